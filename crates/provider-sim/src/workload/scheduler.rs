//! The scheduler: each waiting Pod to the Node that fits and disturbs the spread least.

use std::collections::HashMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Binding, Node, Pod, Taint, Toleration};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use muster_apiserver::machinery::quantity::Quantity;
use muster_informers::Requeue;
use serde_json::json;

use super::{
    WorkError, Workload, controller_uid, is_deleting, is_finished, is_node_ready, moved_on,
    together,
};

/// What a Node has or a Pod needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amounts {
    cpu: Quantity,
    memory: Quantity,
    pods: u32,
}

impl Amounts {
    fn plus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.plus(other.cpu),
            memory: self.memory.plus(other.memory),
            pods: self.pods + other.pods,
        }
    }

    fn fits_into(self, room: Self) -> bool {
        self.cpu <= room.cpu && self.memory <= room.memory && self.pods <= room.pods
    }
}

fn quantity(text: Option<&k8s_openapi::apimachinery::pkg::api::resource::Quantity>) -> Quantity {
    text.and_then(|q| q.0.parse().ok()).unwrap_or_default()
}

fn needs(pod: &Pod) -> Amounts {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers
        .filter_map(|container| container.resources.as_ref()?.requests.as_ref())
        .fold(
            Amounts {
                pods: 1,
                ..Amounts::default()
            },
            |sum, requests| Amounts {
                cpu: sum.cpu.plus(quantity(requests.get("cpu"))),
                memory: sum.memory.plus(quantity(requests.get("memory"))),
                pods: sum.pods,
            },
        )
}

fn room(node: &Node) -> Amounts {
    let allocatable = node
        .status
        .as_ref()
        .and_then(|status| status.allocatable.as_ref());
    let get = |name: &str| allocatable.and_then(|map| map.get(name));
    Amounts {
        cpu: quantity(get("cpu")),
        memory: quantity(get("memory")),
        pods: u32::try_from(quantity(get("pods")).milli() / 1000).unwrap_or(u32::MAX),
    }
}

/// Whether a taint is tolerated.
pub(super) fn tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| {
        let key = toleration.key.as_deref().unwrap_or_default();
        let exists = toleration.operator.as_deref() == Some("Exists");
        let effect = toleration.effect.as_deref().unwrap_or_default();
        (key == taint.key || key.is_empty() && exists)
            && (effect.is_empty() || effect == taint.effect)
            && (exists
                || toleration.value.as_deref().unwrap_or_default()
                    == taint.value.as_deref().unwrap_or_default())
    })
}

/// Whether a Pod may run on a Node, apart from room.
pub(super) fn may_run(pod: &Pod, node: &Node) -> bool {
    let Some(spec) = &pod.spec else {
        return false;
    };
    let labels = node.labels();
    let selected = spec
        .node_selector
        .iter()
        .flatten()
        .all(|(key, value)| labels.get(key) == Some(value));
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let taints = node
        .spec
        .iter()
        .flat_map(|spec| spec.taints.iter().flatten());
    selected
        && taints
            .filter(|taint| taint.effect != "PreferNoSchedule")
            .all(|taint| tolerates(tolerations, taint))
}

fn is_open(node: &Node) -> bool {
    let unschedulable = node
        .spec
        .as_ref()
        .and_then(|spec| spec.unschedulable)
        .unwrap_or(false);
    !unschedulable && is_node_ready(node) && !is_deleting(node)
}

struct Place {
    node: Arc<Node>,
    used: Amounts,
    room: Amounts,
    /// How many Pods of each owner it runs.
    owners: HashMap<String, usize>,
}

/// The Node for a Pod: among those that fit, fewest Pods of the same owner, then not marked as to be avoided, then fewest
/// Pods, then by name.
fn choose<'a>(pod: &Pod, places: &'a mut [Place]) -> Option<&'a mut Place> {
    let needs = needs(pod);
    let owner = controller_uid(pod).into_iter().next().unwrap_or_default();
    places
        .iter_mut()
        .filter(|place| may_run(pod, &place.node) && place.used.plus(needs).fits_into(place.room))
        .min_by_key(|place| {
            let avoided = place
                .node
                .spec
                .iter()
                .flat_map(|spec| spec.taints.iter().flatten())
                .filter(|taint| taint.effect == "PreferNoSchedule")
                .count();
            let same = place.owners.get(&owner).copied().unwrap_or(0);
            (avoided > 0, same, place.used.pods, place.node.name_any())
        })
}

pub(super) async fn pass(workload: &Workload) -> Result<Requeue, WorkError> {
    let unbound = workload.pods.by(workload.pods_unbound, "");
    if unbound.is_empty() {
        return Ok(Requeue::Never);
    }
    let mut places = places(workload);
    // What was bound and is not in the cache yet has its place already.
    let mut waiting = Vec::new();
    for pod in unbound {
        match workload.assumed_place(&pod) {
            None => waiting.push(pod),
            Some(node) => {
                let place = places
                    .iter_mut()
                    .find(|place| place.node.metadata.name.as_ref() == Some(&node));
                if let Some(place) = place {
                    place.take(&pod);
                }
            }
        }
    }
    let open = places.len();
    let writes: Vec<BoxFuture<'_, Result<(), WorkError>>> = waiting
        .into_iter()
        .map(|pod| match choose(&pod, &mut places) {
            Some(place) => {
                place.take(&pod);
                let node = place.node.name_any();
                bind(workload, pod, node).boxed()
            }
            None => refuse(workload, pod, open).boxed(),
        })
        .collect();
    together(writes).await?;
    Ok(Requeue::Never)
}

/// The Nodes that accept Pods, with what runs on them.
fn places(workload: &Workload) -> Vec<Place> {
    let open = workload.nodes.walk_all().into_iter();
    open.filter(|node| is_open(node))
        .map(|node| {
            let mut place = Place {
                room: room(&node),
                used: Amounts::default(),
                owners: HashMap::new(),
                node,
            };
            let name = place.node.name_any();
            for pod in workload.pods.by(workload.pods_by_node, &name) {
                if !is_finished(&pod) {
                    place.take(&pod);
                }
            }
            place
        })
        .collect()
}

impl Place {
    fn take(&mut self, pod: &Pod) {
        self.used = self.used.plus(needs(pod));
        if let Some(owner) = controller_uid(pod).into_iter().next() {
            *self.owners.entry(owner).or_default() += 1;
        }
    }
}

async fn bind(workload: &Workload, pod: Arc<Pod>, node: String) -> Result<(), WorkError> {
    let api: Api<Pod> = Api::namespaced(
        workload.client.clone(),
        &pod.namespace().unwrap_or_default(),
    );
    let name = pod.name_any();
    let binding: Binding = serde_json::from_value(json!({
        "metadata": {"name": name, "uid": pod.uid()},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }))
    .expect("a Binding of this form deserializes");
    workload.assume(&pod, node);
    let bound: Result<serde_json::Value, _> = api
        .create_subresource("binding", &name, &PostParams::default(), &binding)
        .await;
    match bound {
        Ok(_) => Ok(()),
        Err(error) => {
            workload.assume_no_more(&pod);
            if moved_on(&error) {
                Ok(())
            } else {
                Err(error.into())
            }
        }
    }
}

async fn refuse(workload: &Workload, pod: Arc<Pod>, open: usize) -> Result<(), WorkError> {
    let message = format!(
        "0/{} nodes are available: none of the {open} that accept Pods has room for it or suits it.",
        workload.nodes.len()
    );
    let said = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    if said {
        return Ok(());
    }
    let now = jiff::Timestamp::from_second(workload.clock.now().as_second()).unwrap_or_default();
    // Onto the state that was looked at, so that a Pod that found its place meanwhile is not said to wait.
    let patch = json!({
        "metadata": {"uid": pod.uid(), "resourceVersion": pod.resource_version()},
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": message, "lastTransitionTime": now}]},
    });
    let api: Api<Pod> = Api::namespaced(
        workload.client.clone(),
        &pod.namespace().unwrap_or_default(),
    );
    match api
        .patch_status(
            &pod.name_any(),
            &PatchParams::default(),
            &Patch::Strategic(patch),
        )
        .await
    {
        Ok(written) => workload.pods.absorb(written),
        Err(error) if moved_on(&error) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(cpu: &str, owner: &str, extra: serde_json::Value) -> Pod {
        let mut value = json!({"metadata": {"name": "p", "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": owner, "uid": owner, "controller": true}]},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]}});
        for (key, v) in extra.as_object().unwrap() {
            value["spec"][key] = v.clone();
        }
        serde_json::from_value(value).unwrap()
    }

    fn place(name: &str, taints: serde_json::Value) -> Place {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": name, "labels": {"zone": name}},
            "spec": {"taints": taints}, "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "3"}}})).unwrap();
        Place {
            room: room(&node),
            used: Amounts::default(),
            owners: HashMap::new(),
            node: Arc::new(node),
        }
    }

    fn chosen(pod: &Pod, places: &mut [Place]) -> Option<String> {
        choose(pod, places).map(|place| place.node.name_any())
    }

    #[test]
    fn requests_taints_and_selectors_decide_what_fits() {
        let mut places = [
            place("a", json!([{"key": "k", "effect": "NoSchedule"}])),
            place("b", json!([])),
        ];
        assert_eq!(
            chosen(&pod("1", "o", json!({})), &mut places).as_deref(),
            Some("b")
        );
        assert_eq!(chosen(&pod("3", "o", json!({})), &mut places), None);
        assert_eq!(
            chosen(
                &pod("1", "o", json!({"nodeSelector": {"zone": "a"}})),
                &mut places
            ),
            None
        );
        let tolerant = pod(
            "1",
            "o",
            json!({"nodeSelector": {"zone": "a"}, "tolerations": [{"key": "k", "operator": "Exists"}]}),
        );
        assert_eq!(chosen(&tolerant, &mut places).as_deref(), Some("a"));
    }

    #[test]
    fn pods_of_one_owner_are_spread_and_marked_nodes_avoided() {
        let mut places = [
            place("a", json!([])),
            place("b", json!([])),
            place("c", json!([{"key": "k", "effect": "PreferNoSchedule"}])),
        ];
        places[0].take(&pod("1", "o", json!({})));
        assert_eq!(
            chosen(&pod("1", "o", json!({})), &mut places).as_deref(),
            Some("b")
        );
        places[1].take(&pod("2", "o", json!({})));
        assert_eq!(
            chosen(&pod("1", "o", json!({})), &mut places).as_deref(),
            Some("a")
        );
        places[0].take(&pod("1", "o", json!({})));
        assert_eq!(
            chosen(&pod("1", "o", json!({})), &mut places).as_deref(),
            Some("c")
        );
    }
}
