//! Apply by example, and its laws by property.

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn tree() -> TypeTree {
    TypeTree::from_schema(
        &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "replicas": {"type": "integer"},
            "paused": {"type": "boolean"},
            "zones": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "args": {"type": "array", "items": {"type": "string"}},
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
                "items": {"type": "object", "properties": {"port": {"type": "integer"}, "name": {"type": "string"},
                    "protocol": {"type": "string", "default": "TCP"}}}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}}
        }}}}),
    )
}

fn at(name: &str, operation: Operation, second: i64) -> Manager {
    Manager {
        name: name.to_owned(),
        operation,
        api_version: "example.com/v1".to_owned(),
        subresource: None,
        time: Timestamp::from_second(second).unwrap(),
    }
}

fn applied(
    live: Option<&Value>,
    spec: Value,
    by: &str,
    force: bool,
) -> Result<Value, Vec<Conflict>> {
    let body = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec});
    apply(
        live,
        &body,
        &at(by, Operation::Apply, 1),
        force,
        &tree(),
        &[&["status"]],
    )
}

#[test]
fn an_applier_owns_what_it_lists_and_takes_it_away_again() {
    let one = applied(
        None,
        json!({"replicas": 3, "labels": {"a": "1", "b": "2"}}),
        "x",
        false,
    )
    .unwrap();
    assert_eq!(
        one["metadata"]["managedFields"][0]["fieldsV1"],
        json!({"f:spec": {"f:replicas": {}, "f:labels": {"f:a": {}, "f:b": {}}}})
    );
    let two = applied(
        Some(&one),
        json!({"replicas": 3, "labels": {"a": "1"}}),
        "x",
        false,
    )
    .unwrap();
    assert_eq!(two["spec"], json!({"replicas": 3, "labels": {"a": "1"}}));
    let three = applied(Some(&two), json!({"replicas": 3}), "x", false).unwrap();
    assert_eq!(three["spec"], json!({"replicas": 3}));
}

#[test]
fn a_field_of_another_is_a_conflict_that_names_manager_and_field() {
    let live = applied(None, json!({"replicas": 3}), "x", false).unwrap();
    let refused = applied(Some(&live), json!({"replicas": 4}), "y", false).unwrap_err();
    assert_eq!(
        refused,
        [Conflict {
            manager: "\"x\"".to_owned(),
            field: ".spec.replicas".to_owned()
        }]
    );
    let taken = applied(Some(&live), json!({"replicas": 4}), "y", true).unwrap();
    assert_eq!(taken["spec"]["replicas"], 4);
    assert_eq!(
        taken["metadata"]["managedFields"].as_array().unwrap().len(),
        1
    );
    // The same value can be shared.
    let shared = applied(Some(&live), json!({"replicas": 3}), "y", false).unwrap();
    assert_eq!(
        shared["metadata"]["managedFields"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    let left = applied(Some(&shared), json!({}), "y", false).unwrap();
    assert_eq!(left["spec"]["replicas"], 3, "x still wants it");
}

#[test]
fn keyed_lists_merge_by_their_keys_with_defaults() {
    let live = applied(
        None,
        json!({"ports": [{"port": 80, "name": "http"}]}),
        "x",
        false,
    )
    .unwrap();
    let both = applied(
        Some(&live),
        json!({"ports": [{"port": 53, "protocol": "UDP"}]}),
        "y",
        false,
    )
    .unwrap();
    assert_eq!(both["spec"]["ports"].as_array().unwrap().len(), 2);
    let same = applied(
        Some(&both),
        json!({"ports": [{"port": 80, "protocol": "TCP", "name": "http"}]}),
        "x",
        false,
    )
    .unwrap();
    assert_eq!(same["spec"]["ports"].as_array().unwrap().len(), 2, "{same}");
    let gone = applied(Some(&same), json!({}), "x", false).unwrap();
    assert_eq!(
        gone["spec"]["ports"],
        json!([{"port": 53, "protocol": "UDP"}])
    );
}

#[test]
fn an_update_owns_what_it_changed_and_others_lose_it() {
    let live = applied(
        None,
        json!({"replicas": 3, "paused": true, "zones": ["a"]}),
        "x",
        false,
    )
    .unwrap();
    let mut new = live.clone();
    new["spec"]["replicas"] = 5.into();
    new["spec"]["zones"] = json!(["a", "b"]);
    new["spec"].as_object_mut().unwrap().remove("paused");
    record_update(
        Some(&live),
        &mut new,
        &at("edit", Operation::Update, 9),
        &tree(),
        &[],
    );
    let entries = new["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(
        entries[0]["fieldsV1"],
        json!({"f:spec": {"f:zones": {"v:\"a\"": {}}}})
    );
    assert_eq!(
        entries[1]["fieldsV1"],
        json!({"f:spec": {"f:replicas": {}, "f:zones": {"v:\"b\"": {}}}})
    );
    let refused = applied(Some(&new), json!({"replicas": 3}), "x", false).unwrap_err();
    assert_eq!(refused[0].manager, "\"edit\" using example.com/v1");
}

#[test]
fn a_write_without_effect_keeps_times() {
    let live = applied(None, json!({"replicas": 3}), "x", false).unwrap();
    let body = json!({"metadata": {"name": "a"}, "spec": {"replicas": 3}});
    let again = apply(
        Some(&live),
        &body,
        &at("x", Operation::Apply, 99),
        false,
        &tree(),
        &[],
    )
    .unwrap();
    assert_eq!(again["metadata"], live["metadata"]);
    let mut new = live.clone();
    record_update(
        Some(&live),
        &mut new,
        &at("edit", Operation::Update, 99),
        &tree(),
        &[],
    );
    assert_eq!(new, live);
}

#[test]
fn records_can_be_cleared() {
    let live = applied(None, json!({"replicas": 3}), "x", false).unwrap();
    let mut new = live.clone();
    new["metadata"]["managedFields"] = json!([{}]);
    record_update(
        Some(&live),
        &mut new,
        &at("edit", Operation::Update, 9),
        &tree(),
        &[],
    );
    assert!(new["metadata"].get("managedFields").is_none());
}

fn spec() -> impl Strategy<Value = Value> {
    let replicas = prop::option::of(0..3_i32);
    let zones = prop::option::of(prop::sample::subsequence(vec!["a", "b", "c"], 0..3));
    let args = prop::option::of(prop::collection::vec("[xy]", 0..3));
    let ports = prop::option::of(prop::sample::subsequence(vec![80, 81, 82], 0..3));
    let labels = prop::option::of(prop::collection::btree_map("[a-c]", "[0-1]", 0..3));
    (replicas, zones, args, ports, labels).prop_map(|(replicas, zones, args, ports, labels)| {
        let mut spec = serde_json::Map::new();
        if let Some(v) = replicas {
            spec.insert("replicas".into(), v.into());
        }
        if let Some(v) = zones {
            spec.insert("zones".into(), json!(v));
        }
        if let Some(v) = args {
            spec.insert("args".into(), json!(v));
        }
        if let Some(v) = ports {
            let items: Vec<Value> = v
                .into_iter()
                .map(|p| json!({"port": p, "name": format!("p{p}")}))
                .collect();
            spec.insert("ports".into(), items.into());
        }
        if let Some(v) = labels {
            spec.insert("labels".into(), json!(v));
        }
        Value::Object(spec)
    })
}

/// Whether everything that `wanted` says is so in `object`, by the merge rules.
fn holds(object: &Value, wanted: &Value) -> bool {
    let body = json!({"spec": wanted});
    let mut without = object.clone();
    managers::clear(&mut without);
    merge::merge(&without, &body, tree().root()) == without
}

proptest! {
    #[test]
    fn applying_twice_is_applying_once(a in spec(), b in spec()) {
        let live = applied(None, a, "x", false).unwrap();
        let once = applied(Some(&live), b.clone(), "y", true).unwrap();
        let twice = applied(Some(&once), b, "y", true).unwrap();
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn what_was_applied_by_force_is_so(a in spec(), b in spec()) {
        let live = applied(None, a, "x", false).unwrap();
        let now = applied(Some(&live), b.clone(), "y", true).unwrap();
        prop_assert!(holds(&now, &b));
    }

    #[test]
    fn applying_nothing_after_all_leaves_what_the_other_wants(a in spec(), b in spec()) {
        let live = applied(None, a, "x", false).unwrap();
        if let Ok(both) = applied(Some(&live), b, "y", false) {
            let back = applied(Some(&both), json!({}), "y", false).unwrap();
            prop_assert_eq!(&back["spec"], &live["spec"]);
        }
    }
}
