//! Structural schemas: what a custom kind's objects may be.
//!
//! A schema is parsed once, when its kind is defined, and then prunes, defaults and validates every write. Rules in CEL
//! are compiled at the same time.

mod formats;
mod node;
mod parse;
mod prune;
#[cfg(test)]
mod tests;
mod validate;

use kube::core::cel;
use serde_json::Value;

use super::{FieldError, FieldErrorKind};
use node::Node;

/// The schema of a kind's objects.
pub struct Schema {
    root: Node,
    rules: Option<cel::CompiledSchema>,
    drops_nulls: bool,
}

impl Schema {
    /// Reads `openAPIV3Schema`.
    ///
    /// # Errors
    /// All that is not structural, malformed, or a rule that does not compile; paths are below the schema.
    pub fn parse(schema: &Value) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        let root = parse::node(schema, "", parse::Place::Root, &mut errors);
        let mut rules = None;
        if root.has_rules() {
            let compiled = cel::compile_schema(schema);
            uncompiled(&compiled, "", &mut errors);
            rules = Some(compiled);
        }
        if errors.is_empty() {
            Ok(Self {
                root,
                rules,
                drops_nulls: false,
            })
        } else {
            Err(errors)
        }
    }

    /// Reads the schema of a built-in kind: fields that are null count as absent, as Kubernetes' decoder has it.
    pub fn builtin(schema: &Value) -> Self {
        // What is not structural in a built-in schema (a few fields of any type) is left open by the parser.
        let mut ignored = Vec::new();
        Self {
            root: parse::node(schema, "", parse::Place::Root, &mut ignored),
            rules: None,
            drops_nulls: true,
        }
    }

    /// Removes fields that the schema does not know; returns their paths.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut unknown = Vec::new();
        prune::prune(&self.root, object, "", true, &mut unknown);
        unknown
    }

    /// Fills in defaults, also for fields that are null and may not be.
    pub fn default(&self, object: &mut Value) {
        prune::default(&self.root, object, self.drops_nulls);
    }

    /// What is wrong with an object, given what it was before.
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        validate::validate(&self.root, new, "", &mut errors);
        // As in Kubernetes, rules are not asked about an object whose types are wrong already.
        if errors.is_empty()
            && let Some(rules) = &self.rules
            && let Err(found) = cel::validate_compiled(rules, new, old)
        {
            errors.extend(found.into_vec().into_iter().map(|error| {
                let kind = match error.reason.as_deref() {
                    Some("FieldValueRequired") => FieldErrorKind::Required,
                    Some("FieldValueForbidden") => FieldErrorKind::Forbidden,
                    Some("FieldValueDuplicate") => FieldErrorKind::Duplicate,
                    _ => FieldErrorKind::Invalid,
                };
                let value = validate::at(new, &error.field_path).map(validate::shown);
                FieldError::new(kind, error.field_path, value, error.message)
            }));
        }
        errors
    }
}

/// Rules that do not compile, here and below.
fn uncompiled(schema: &cel::CompiledSchema, path: &str, errors: &mut Vec<FieldError>) {
    let join = |field: &str| {
        if path.is_empty() {
            field.to_owned()
        } else {
            format!("{path}.{field}")
        }
    };
    for (index, rule) in schema.validations.iter().enumerate() {
        if let Err(error) = rule {
            errors.push(FieldError::new(
                FieldErrorKind::Invalid,
                join(&format!("x-kubernetes-validations[{index}].rule")),
                None,
                format!("compilation failed: {error}"),
            ));
        }
    }
    for (name, property) in &schema.properties {
        uncompiled(property, &join(&format!("properties[{name}]")), errors);
    }
    if let Some(items) = &schema.items {
        uncompiled(items, &join("items"), errors);
    }
    if let Some(values) = &schema.additional_properties {
        uncompiled(values, &join("additionalProperties"), errors);
    }
}
