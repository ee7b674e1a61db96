//! Volumes, claims, what attaches them and the classes that they come from: stored, not provisioned.

use serde_json::{Value, json};

use crate::machinery::FieldError;
use crate::registry::strategy::{
    Strategy, at, forbidden, immutable, keep, required, set_default, text_at,
};

/// The strategy of PersistentVolumes.
pub struct Volumes;

impl Strategy for Volumes {
    fn default(&self, object: &mut Value) {
        if let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object()) {
            set_default(spec, "persistentVolumeReclaimPolicy", "Retain");
            set_default(spec, "volumeMode", "Filesystem");
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({"phase": "Pending"});
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if at(object, &["spec", "accessModes"])
            .and_then(Value::as_array)
            .is_none_or(Vec::is_empty)
        {
            errors.push(required("spec.accessModes", ""));
        }
        if at(object, &["spec", "capacity"])
            .and_then(Value::as_object)
            .is_none_or(serde_json::Map::is_empty)
        {
            errors.push(required("spec.capacity", ""));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.validate(new);
        errors.extend(immutable(new, old, &["spec", "volumeMode"]));
        errors
    }
}

/// The strategy of PersistentVolumeClaims.
pub struct Claims;

impl Strategy for Claims {
    fn default(&self, object: &mut Value) {
        if let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object()) {
            set_default(spec, "volumeMode", "Filesystem");
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({"phase": "Pending"});
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if at(object, &["spec", "accessModes"])
            .and_then(Value::as_array)
            .is_none_or(Vec::is_empty)
        {
            errors.push(required(
                "spec.accessModes",
                "at least 1 access mode is required",
            ));
        }
        if at(object, &["spec", "resources", "requests", "storage"]).is_none() {
            errors.push(required("spec.resources[storage]", ""));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.validate(new);
        let mut copy = new["spec"].clone();
        keep(&mut copy, &old["spec"], "resources");
        keep(&mut copy, &old["spec"], "volumeAttributesClassName");
        if text_at(old, &["spec", "volumeName"]).is_empty() {
            keep(&mut copy, &old["spec"], "volumeName");
        }
        if copy != old["spec"] {
            errors.push(forbidden(
                "spec",
                "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
            ));
        }
        errors
    }
}

/// The strategy of VolumeAttachments.
pub struct Attachments;

impl Strategy for Attachments {
    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({"attached": false});
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for field in ["attacher", "nodeName"] {
            if text_at(object, &["spec", field]).is_empty() {
                errors.push(required(format!("spec.{field}"), ""));
            }
        }
        let source = &object["spec"]["source"];
        if source["persistentVolumeName"].is_null() && source["inlineVolumeSpec"].is_null() {
            errors.push(required(
                "spec.source",
                "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
            ));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.validate(new);
        errors.extend(immutable(new, old, &["spec"]));
        errors
    }
}

/// The strategy of StorageClasses.
pub struct StorageClasses;

impl Strategy for StorageClasses {
    fn default(&self, object: &mut Value) {
        set_default(object, "reclaimPolicy", "Delete");
        set_default(object, "volumeBindingMode", "Immediate");
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        if text_at(object, &["provisioner"]).is_empty() {
            return vec![required("provisioner", "")];
        }
        Vec::new()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.validate(new);
        for (field, detail) in [
            ("parameters", "updates to parameters are forbidden."),
            ("provisioner", "updates to provisioner are forbidden."),
            ("reclaimPolicy", "updates to reclaimPolicy are forbidden."),
        ] {
            if new[field] != old[field] {
                errors.push(forbidden(field, detail));
            }
        }
        errors.extend(immutable(new, old, &["volumeBindingMode"]));
        errors
    }
}
