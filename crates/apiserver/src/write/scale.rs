//! The `scale` subresource: one number wanted and one observed, wherever a kind keeps them.

use serde_json::{Value, json};

use super::decode::Source;
use super::patch::{PatchKind, patched};
use super::update::{Change, precondition};
use super::{Body, Cluster, Options, Written, key, meta};
use crate::failure::Failure;
use crate::machinery::FieldErrorKind;
use crate::machinery::apply::{self, Operation};
use crate::machinery::selector::LabelSelector;
use crate::registry::{Kind, ScalePaths, convert};
use crate::storage::Stored;

impl Cluster {
    /// The scale of an object.
    ///
    /// # Errors
    /// 404 when there is no such object, or its kind has no scale.
    pub fn scale(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Value, Failure> {
        let paths = paths(kind)?;
        let current = self.current(kind, &key(kind, namespace, name))?;
        scale_of(kind, paths, &convert::from_storage(kind, current.value()))
    }

    pub(super) async fn update_scale(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        body: &Value,
        options: &Options,
    ) -> Result<Written, Failure> {
        if meta::name(body) != name {
            return Err(Failure::bad_request(format!(
                "the name of the object ({}) does not match the name on the URL ({name})",
                meta::name(body)
            )));
        }
        self.rescale(kind, namespace, name, options, |_| Ok(body.clone()))
            .await
    }

    pub(super) async fn patch_scale(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        form: PatchKind,
        body: &Value,
        options: &Options,
    ) -> Result<Written, Failure> {
        // A scale has neither lists nor keys, so that the merging forms mean the same.
        let form = match form {
            PatchKind::Json => PatchKind::Json,
            PatchKind::Merge | PatchKind::Strategic | PatchKind::Apply => PatchKind::Merge,
        };
        self.rescale(kind, namespace, name, options, |scale| {
            patched(kind, form, scale, body)
        })
        .await
    }

    async fn rescale(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        options: &Options,
        wanted: impl Fn(&Value) -> Result<Value, Failure>,
    ) -> Result<Written, Failure> {
        let paths = paths(kind)?;
        let key = key(kind, namespace, name);
        let change = |current: &Stored, old: &Value| {
            let scale = scale_of(kind, paths, old)?;
            let wanted = wanted(&scale)?;
            check(&wanted, name)?;
            precondition(kind, &wanted, current, true)?;
            let mut object = old.clone();
            let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
            set(&mut object, &paths.spec, json!(replicas));
            let mut recorded = object.clone();
            let manager = options.manager(kind, Operation::Update, Some("scale"), self);
            apply::record_update(Some(old), &mut recorded, &manager, &kind.schema.tree, &[]);
            Ok(Change {
                object: recorded,
                source: Source::Body,
                subresource: None,
                recorded: true,
            })
        };
        let written = self.modify(kind, &key, options, change).await?;
        Ok(Written {
            object: Body::Value(scale_of(kind, paths, &written.object.to_value())?),
            created: false,
            warnings: written.warnings,
        })
    }
}

fn paths(kind: &Kind) -> Result<&ScalePaths, Failure> {
    kind.subresources
        .scale
        .as_ref()
        .ok_or_else(Failure::no_such_path)
}

fn check(scale: &Value, name: &str) -> Result<(), Failure> {
    let replicas = &scale["spec"]["replicas"];
    match replicas {
        Value::Null => Ok(()),
        Value::Number(number) if number.is_i64() || number.is_u64() => {
            let number = number.as_i64().unwrap_or(i64::MAX);
            if number >= 0 && number <= i64::from(i32::MAX) {
                return Ok(());
            }
            let error = crate::machinery::FieldError {
                kind: FieldErrorKind::Invalid,
                path: "spec.replicas".to_owned(),
                value: Some(number.into()),
                detail: "must be greater than or equal to 0".to_owned(),
            };
            Err(Failure::invalid_kind(
                "autoscaling",
                "Scale",
                name,
                &[error],
            ))
        }
        other => Err(Failure::bad_request(format!(
            "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal {other} into Go struct field ScaleSpec.spec.replicas of type int32"
        ))),
    }
}

/// The scale that an object's numbers make.
fn scale_of(kind: &Kind, paths: &ScalePaths, object: &Value) -> Result<Value, Failure> {
    let mut metadata = json!({});
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let Some(value) = meta::of(object).get(field) {
            metadata[field] = value.clone();
        }
    }
    let Some(wanted) = get(object, &paths.spec).and_then(Value::as_i64) else {
        return Err(Failure::internal(format!(
            "the spec replicas field \"{}\" does not exist",
            paths.spec
        )));
    };
    let mut status =
        json!({"replicas": get(object, &paths.status).and_then(Value::as_i64).unwrap_or(0)});
    let selector = paths.selector.as_ref().and_then(|path| get(object, path));
    let selector = match selector {
        Some(Value::String(text)) => Some(text.clone()),
        Some(object) if !kind.custom => LabelSelector::from_object(object)
            .ok()
            .map(|selector| selector.to_string()),
        _ => None,
    };
    if let Some(selector) = selector {
        status["selector"] = json!(selector);
    }
    Ok(json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": wanted},
        "status": status,
    }))
}

fn get<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut steps = path.split('.').filter(|step| !step.is_empty());
    steps.try_fold(object, |at, step| at.get(step))
}

fn set(object: &mut Value, path: &str, value: Value) {
    let mut at = object;
    for step in path.split('.').filter(|step| !step.is_empty()) {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[step];
    }
    *at = value;
}
