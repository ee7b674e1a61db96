//! Cordons and taints of Nodes that are drained, or soon will be. What Muster set is marked, so that it can be taken away
//! again and a cordon of somebody else's never is.

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use muster_api::names;
use serde_json::{Value, json};

use crate::workload::Workload;
use crate::{PassError, api};

/// What a Node is to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::machine) enum Wanted<'a> {
    /// It takes no new Pods, for the drain of this Machine.
    Cordoned(&'a str),
    /// It takes Pods that have no other choice.
    Avoided,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::machine) enum Outcome {
    /// It was so already.
    Unchanged,
    /// It is so now.
    Changed,
    /// Somebody else had uncordoned it, and it is cordoned again.
    CordonedAgain {
        /// Who, if the Node tells.
        by: Option<String>,
    },
}

/// Brings a Node to what it is to be.
pub(in crate::machine) async fn bring(
    workload: &Workload,
    node: &Node,
    wanted: Wanted<'_>,
) -> Result<Outcome, PassError> {
    let Some(patch) = patch(node, wanted) else {
        return Ok(Outcome::Unchanged);
    };
    let nodes: Api<Node> = Api::all(workload.client.clone());
    let name = node.name_any();
    match nodes
        .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
        .await
    {
        Ok(patched) => workload.nodes.absorb(patched),
        // It changed or went meanwhile; the watch brings what it is now.
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
            return Ok(Outcome::Unchanged);
        }
        Err(error) => return Err(api(format!("cordoning Node {name}"))(error)),
    }
    Ok(match wanted {
        Wanted::Cordoned(_) if names::NODE_CORDONED_FOR.is_on(node) => Outcome::CordonedAgain {
            by: uncordoned_by(node),
        },
        Wanted::Cordoned(_) | Wanted::Avoided => Outcome::Changed,
    })
}

pub(in crate::machine) fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
}

fn patch(node: &Node, wanted: Wanted<'_>) -> Option<Value> {
    let ours = names::NODE_CORDONED_FOR.is_on(node);
    match wanted {
        Wanted::Cordoned(_) if is_cordoned(node) => None,
        Wanted::Cordoned(machine) => Some(json!({
            "metadata": {"annotations": {names::NODE_CORDONED_FOR: machine}},
            "spec": {"unschedulable": true},
        })),
        Wanted::Avoided => {
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone());
            let mut next = taints.unwrap_or_default();
            let tainted = next.iter().any(|t| t.key == names::DRAINS_SOON_TAINT);
            if tainted && !ours {
                return None;
            }
            let mut patch =
                json!({"metadata": {"resourceVersion": node.resource_version()}, "spec": {}});
            if ours {
                patch["metadata"]["annotations"] = json!({names::NODE_CORDONED_FOR: null});
                patch["spec"]["unschedulable"] = Value::Null;
            }
            if !tainted {
                next.push(Taint {
                    key: names::DRAINS_SOON_TAINT.to_owned(),
                    effect: "PreferNoSchedule".to_owned(),
                    ..Taint::default()
                });
            }
            patch["spec"]["taints"] = json!(next);
            Some(patch)
        }
    }
}

/// Who last wrote `spec` of a Node, by the record of its fields' managers.
fn uncordoned_by(node: &Node) -> Option<String> {
    let entries = node.metadata.managed_fields.iter().flatten();
    let last = entries
        .filter(|entry| {
            let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
            fields.is_some_and(|fields| fields["f:spec"].is_object())
        })
        .max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?;
    last.manager.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(value: Value) -> Node {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_cordon_of_somebody_elses_is_neither_marked_nor_taken_away() {
        let theirs = node(json!({"metadata": {"name": "n"}, "spec": {"unschedulable": true}}));
        assert_eq!(patch(&theirs, Wanted::Cordoned("m")), None);
        let avoided = patch(&theirs, Wanted::Avoided).unwrap();
        assert_eq!(avoided["spec"].get("unschedulable"), None);
        assert_eq!(
            avoided["spec"]["taints"],
            json!([{"key": names::DRAINS_SOON_TAINT, "effect": "PreferNoSchedule"}])
        );
    }

    #[test]
    fn a_cordon_of_ours_is_taken_away_when_the_drain_makes_way() {
        let ours = node(json!({
            "metadata": {"name": "n", "resourceVersion": "7", "annotations": {names::NODE_CORDONED_FOR: "m"}},
            "spec": {"unschedulable": true, "taints": [{"key": "a", "effect": "NoSchedule"}]},
        }));
        let patch = patch(&ours, Wanted::Avoided).unwrap();
        assert_eq!(patch["spec"]["unschedulable"], Value::Null);
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert_eq!(patch["spec"]["taints"][0]["key"], "a");
    }
}
