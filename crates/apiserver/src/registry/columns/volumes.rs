//! The table columns of volumes, claims and what attaches them.

use serde_json::{Value, json};

use super::{age, columns, joined, or, strings};
use crate::registry::kind::Column;
use crate::registry::strategy::{at, text_at};

fn access_modes(modes: Option<&Value>) -> Value {
    let short = strings(modes).map(|mode| match mode {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        other => other,
    });
    joined(short, "")
}

/// PersistentVolume columns.
pub fn volumes() -> Vec<Column> {
    columns(&[
        ("Capacity", "string", 0, |object, _| {
            text_at(object, &["spec", "capacity", "storage"]).into()
        }),
        ("Access Modes", "string", 0, |object, _| {
            access_modes(at(object, &["spec", "accessModes"]))
        }),
        ("Reclaim Policy", "string", 0, |object, _| {
            text_at(object, &["spec", "persistentVolumeReclaimPolicy"]).into()
        }),
        ("Status", "string", 0, |object, _| phase(object)),
        ("Claim", "string", 0, |object, _| {
            let claim = &object["spec"]["claimRef"];
            if claim.is_null() {
                return "".into();
            }
            format!(
                "{}/{}",
                text_at(claim, &["namespace"]),
                text_at(claim, &["name"])
            )
            .into()
        }),
        ("StorageClass", "string", 0, |object, _| {
            text_at(object, &["spec", "storageClassName"]).into()
        }),
        ("VolumeAttributesClass", "string", 0, |object, _| {
            or(
                text_at(object, &["spec", "volumeAttributesClassName"]),
                "<unset>",
            )
        }),
        ("Reason", "string", 0, |object, _| {
            text_at(object, &["status", "reason"]).into()
        }),
        ("Age", "string", 0, age),
        ("VolumeMode", "string", 1, |object, _| {
            or(text_at(object, &["spec", "volumeMode"]), "<unset>")
        }),
    ])
}

fn phase(object: &Value) -> Value {
    if object["metadata"]["deletionTimestamp"].is_null() {
        text_at(object, &["status", "phase"]).into()
    } else {
        "Terminating".into()
    }
}

/// PersistentVolumeClaim columns.
pub fn claims() -> Vec<Column> {
    columns(&[
        ("Status", "string", 0, |object, _| phase(object)),
        ("Volume", "string", 0, |object, _| {
            text_at(object, &["spec", "volumeName"]).into()
        }),
        ("Capacity", "string", 0, |object, _| {
            text_at(object, &["status", "capacity", "storage"]).into()
        }),
        ("Access Modes", "string", 0, |object, _| {
            access_modes(at(object, &["status", "accessModes"]))
        }),
        ("StorageClass", "string", 0, |object, _| {
            text_at(object, &["spec", "storageClassName"]).into()
        }),
        ("VolumeAttributesClass", "string", 0, |object, _| {
            or(
                text_at(object, &["spec", "volumeAttributesClassName"]),
                "<unset>",
            )
        }),
        ("Age", "string", 0, age),
        ("VolumeMode", "string", 1, |object, _| {
            or(text_at(object, &["spec", "volumeMode"]), "<unset>")
        }),
    ])
}

/// VolumeAttachment columns.
pub fn attachments() -> Vec<Column> {
    columns(&[
        ("Attacher", "string", 0, |object, _| {
            text_at(object, &["spec", "attacher"]).into()
        }),
        ("PV", "string", 0, |object, _| {
            text_at(object, &["spec", "source", "persistentVolumeName"]).into()
        }),
        ("Node", "string", 0, |object, _| {
            text_at(object, &["spec", "nodeName"]).into()
        }),
        ("Attached", "boolean", 0, |object, _| {
            json!(object["status"]["attached"] == true)
        }),
        ("Age", "string", 0, age),
    ])
}

/// StorageClass columns.
pub fn storage_classes() -> Vec<Column> {
    columns(&[
        ("Provisioner", "string", 0, |object, _| {
            text_at(object, &["provisioner"]).into()
        }),
        ("ReclaimPolicy", "string", 0, |object, _| {
            text_at(object, &["reclaimPolicy"]).into()
        }),
        ("VolumeBindingMode", "string", 0, |object, _| {
            text_at(object, &["volumeBindingMode"]).into()
        }),
        ("AllowVolumeExpansion", "string", 0, |object, _| {
            json!(object["allowVolumeExpansion"] == true)
        }),
        ("Age", "string", 0, age),
    ])
}

/// CSINode columns.
pub fn csi_nodes() -> Vec<Column> {
    columns(&[
        ("Drivers", "integer", 0, |object, _| {
            at(object, &["spec", "drivers"])
                .and_then(Value::as_array)
                .map_or(0, Vec::len)
                .into()
        }),
        ("Age", "string", 0, age),
    ])
}
