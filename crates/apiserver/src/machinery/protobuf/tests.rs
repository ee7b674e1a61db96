//! Bodies made by hand, byte for byte as Kubernetes documents them, and bytes that are none.

use proptest::prelude::*;
use prost::encoding::{encode_key, encode_varint};
use serde_json::json;

use super::*;

fn bytes(number: u32, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let mut out = Vec::new();
    encode_key(number, WireType::LengthDelimited, &mut out);
    encode_varint(content.len() as u64, &mut out);
    out.extend(content);
    out
}

fn varint(number: u32, value: i64) -> Vec<u8> {
    let mut out = Vec::new();
    encode_key(number, WireType::Varint, &mut out);
    encode_varint(value.cast_unsigned(), &mut out);
    out
}

fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let meta = [bytes(1, api_version), bytes(2, kind)].concat();
    [MAGIC.to_vec(), bytes(1, meta), bytes(2, raw)].concat()
}

/// A PodDisruptionBudget with a percentage, a selector, empty fields and a time that is not set.
fn budget() -> Vec<u8> {
    let labels = bytes(1, [bytes(1, "app"), bytes(2, "web")].concat());
    let metadata = [bytes(1, "web"), bytes(2, ""), bytes(8, [])].concat();
    let spec = [
        bytes(2, labels),
        bytes(3, [varint(1, 1), varint(2, 0), bytes(3, "30%")].concat()),
    ];
    let raw = [bytes(1, metadata), bytes(2, spec.concat()), bytes(3, [])].concat();
    body("policy/v1", "PodDisruptionBudget", &raw)
}

#[test]
fn a_budget_is_read_as_its_json_says_it() {
    assert_eq!(
        decode(&budget()).unwrap(),
        json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "web"},
            "spec": {"maxUnavailable": "30%", "selector": {"matchLabels": {"app": "web"}}},
        })
    );
}

#[test]
fn secrets_are_base64_and_numbers_keep_their_sign() {
    let entry = bytes(2, [bytes(1, "key"), bytes(2, [0xff, 0])].concat());
    let secret = decode(&body("v1", "Secret", &entry)).unwrap();
    assert_eq!(secret["data"], json!({"key": "/wA="}));
    let lease = bytes(
        2,
        [
            varint(2, -1),
            bytes(4, [varint(1, 1_700_000_000), varint(2, 120_000)].concat()),
        ]
        .concat(),
    );
    let lease = decode(&body("coordination.k8s.io/v1", "Lease", &lease)).unwrap();
    assert_eq!(
        lease["spec"],
        json!({"leaseDurationSeconds": -1, "renewTime": "2023-11-14T22:13:20.000120Z"})
    );
}

#[test]
fn fields_of_an_inlined_message_are_the_parents() {
    // A volume: its source is a message of its own on the wire only. The source's second field is emptyDir.
    let volume = [bytes(1, "scratch"), bytes(2, bytes(2, []))].concat();
    let pod = bytes(2, bytes(1, volume));
    let pod = decode(&body("v1", "Pod", &pod)).unwrap();
    assert_eq!(
        pod["spec"],
        json!({"volumes": [{"name": "scratch", "emptyDir": {}}]})
    );
}

#[test]
fn options_of_a_deletion_are_read_in_every_group() {
    for version in ["v1", "apps/v1", "policy/v1"] {
        let options = decode(&body(version, "DeleteOptions", &varint(1, 0))).unwrap();
        assert_eq!(options["gracePeriodSeconds"], json!(0), "{version}");
    }
}

#[test]
fn what_is_not_read_says_what_to_send_instead() {
    let error = decode(&body("batch/v1", "CronJob", &[])).unwrap_err();
    assert!(
        error.to_string().contains("send it as application/json"),
        "{error}"
    );
    let error = decode(b"{\"kind\":\"Pod\"}").unwrap_err();
    assert!(error.to_string().contains("does not begin with"), "{error}");
    let error = decode(&body("v1", "Namespace", &bytes(1, bytes(1, [0xff])))).unwrap_err();
    assert!(
        error.to_string().starts_with("name: it is not valid UTF-8"),
        "{error}"
    );
}

#[test]
fn every_cut_of_a_body_is_an_error_or_a_value() {
    let whole = budget();
    for end in 0..whole.len() {
        let _ = decode(&whole[..end]);
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(raw in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&body("v1", "Pod", &raw));
        let _ = decode(&[MAGIC, &raw].concat());
    }
}
