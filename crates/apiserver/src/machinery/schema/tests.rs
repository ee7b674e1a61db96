//! Schemas by example: a schema, an object, and what comes of it.

use serde_json::{Value, json};

use super::Schema;

fn pool() -> Value {
    json!({"type": "object", "required": ["spec"], "properties": {
    "spec": {"type": "object", "required": ["clusterName"], "properties": {
        "clusterName": {"type": "string", "minLength": 1, "maxLength": 5},
        "replicas": {"type": "integer", "format": "int32", "minimum": 0, "default": 1},
        "order": {"type": "string", "enum": ["Newest", "Oldest"]},
        "limit": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        "gates": {"type": "array", "maxItems": 2, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
            "items": {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}}}},
        "zones": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "labels": {"type": "object", "additionalProperties": {"type": "string", "pattern": "^[a-z]*$"}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "maybe": {"type": "string", "nullable": true},
        "deletion": {"type": "object", "minProperties": 1, "properties": {"seconds": {"type": "integer"}}}
    }}}})
}

fn errors(spec: Value) -> Vec<String> {
    let schema = Schema::parse(&pool()).unwrap_or_else(|e| panic!("{e:?}"));
    let found = schema.validate(&json!({"spec": spec}), None);
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn errors_name_field_value_and_rule() {
    for (spec, expected) in [
        (
            json!({"clusterName": "a", "replicas": -1}),
            "spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0",
        ),
        (
            json!({"clusterName": "a", "replicas": "x"}),
            "spec.replicas: Invalid value: \"string\": spec.replicas in body must be of type integer: \"string\"",
        ),
        (
            json!({"clusterName": "a", "replicas": 3_000_000_000_u64}),
            "spec.replicas: Invalid value: 3000000000: spec.replicas in body must be of type int32: 3000000000",
        ),
        (json!({}), "spec.clusterName: Required value"),
        (
            json!({"clusterName": ""}),
            "spec.clusterName: Invalid value: \"\": spec.clusterName in body should be at least 1 chars long",
        ),
        (
            json!({"clusterName": "abcdef"}),
            "spec.clusterName: Too long: may not be more than 5 bytes",
        ),
        (
            json!({"clusterName": "a", "order": "Youngest"}),
            "spec.order: Unsupported value: \"Youngest\": supported values: \"Newest\", \"Oldest\"",
        ),
        (
            json!({"clusterName": "a", "limit": true}),
            "spec.limit: Invalid value: \"boolean\": spec.limit in body must be of type integer,string: \"boolean\"",
        ),
        (
            json!({"clusterName": "a", "gates": [{"type": "A"}, {"type": "A"}]}),
            "spec.gates[1]: Duplicate value: {\"type\":\"A\"}",
        ),
        (
            json!({"clusterName": "a", "zones": ["a", "a"]}),
            "spec.zones[1]: Duplicate value: \"a\"",
        ),
        (
            json!({"clusterName": "a", "labels": {"x": "A"}}),
            "spec.labels.x: Invalid value: \"A\": spec.labels.x in body should match '^[a-z]*$'",
        ),
        (
            json!({"clusterName": "a", "deletion": {}}),
            "spec.deletion: Invalid value: 0: spec.deletion in body should have at least 1 properties",
        ),
        (
            json!({"clusterName": null}),
            "spec.clusterName: Invalid value: \"null\": spec.clusterName in body must be of type string: \"null\"",
        ),
    ] {
        assert_eq!(errors(spec.clone()), [expected], "{spec}");
    }
    assert!(
        errors(json!({"clusterName": "a", "limit": "10%", "maybe": null, "replicas": 0}))
            .is_empty()
    );
}

#[test]
fn unknown_fields_are_removed_and_named() {
    let schema = Schema::parse(&pool()).unwrap_or_else(|e| panic!("{e:?}"));
    let mut object = json!({"kind": "P", "metadata": {"x": 1}, "status": 1, "spec": {"clusterName": "a", "oops": 1,
        "free": {"any": {"thing": 1}}, "gates": [{"type": "A", "more": 1}]}});
    let mut unknown = schema.prune(&mut object);
    unknown.sort();
    assert_eq!(unknown, ["spec.gates[0].more", "spec.oops", "status"]);
    assert_eq!(
        object,
        json!({"kind": "P", "metadata": {"x": 1}, "spec": {"clusterName": "a", "free": {"any": {"thing": 1}}, "gates": [{"type": "A"}]}})
    );
}

#[test]
fn defaults_take_the_place_of_absent_and_of_forbidden_null() {
    let schema = Schema::parse(&pool()).unwrap_or_else(|e| panic!("{e:?}"));
    for given in [
        json!({"clusterName": "a"}),
        json!({"clusterName": "a", "replicas": null}),
    ] {
        let mut object = json!({"spec": given});
        schema.default(&mut object);
        assert_eq!(object["spec"]["replicas"], 1);
    }
    let mut object = json!({"spec": {"maybe": null, "replicas": 0}});
    schema.default(&mut object);
    assert_eq!(object, json!({"spec": {"maybe": null, "replicas": 0}}));
}

#[test]
fn rules_see_the_former_object() {
    let schema = Schema::parse(&json!({"type": "object", "properties": {"spec": {"type": "object",
        "x-kubernetes-validations": [{"rule": "self.min <= self.max", "message": "min must not be above max"}],
        "properties": {
            "min": {"type": "integer"}, "max": {"type": "integer"},
            "name": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is immutable"}]}
    }}}}))
    .unwrap_or_else(|e| panic!("{e:?}"));
    let good = json!({"spec": {"min": 1, "max": 2, "name": "a"}});
    assert!(schema.validate(&good, None).is_empty());
    let bad = json!({"spec": {"min": 3, "max": 2, "name": "b"}});
    let told: Vec<String> = schema
        .validate(&bad, Some(&good))
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told.iter().any(|t| t.contains("min must not be above max")),
        "{told:?}"
    );
    assert!(
        told.iter()
            .any(|t| t == "spec.name: Invalid value: \"b\": is immutable"),
        "{told:?}"
    );
}

#[test]
fn schemas_that_are_not_structural_are_refused() {
    for (schema, expected) in [
        (json!({}), "type: Required value"),
        (json!({"type": "string"}), "must be object at the root"),
        (
            json!({"type": "object", "properties": {"a": {}}}),
            "properties[a].type: Required value",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "array"}}}),
            "properties[a].items: Required value",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "float"}}}),
            "Unsupported value: \"float\"",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}),
            "regular expression",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string", "x-kubernetes-validations": [{"rule": "self =="}]}}}),
            "compilation failed",
        ),
    ] {
        let told = match Schema::parse(&schema) {
            Ok(_) => panic!("{schema} was accepted"),
            Err(errors) => errors
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; "),
        };
        assert!(told.contains(expected), "{told}");
    }
}
