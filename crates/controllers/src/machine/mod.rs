//! Machines: bound to their InfraMachine and their Node while they live, taken apart in order when they go.

mod binding;
mod born;
mod deletion;
pub(crate) mod drain;
mod health;
mod loss;
pub mod node_sync;
pub(crate) mod refusals;
mod replacement;
mod status;
pub(crate) mod turns;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Api, Resource, ResourceExt};
use muster_api::machine::MachineNodeReference;
use muster_api::{Cluster, Machine, MachinePool, contract, names};
use muster_caches::{Management, in_namespace};
use muster_informers::{Key, Options, Requeue};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::node_sync::Additional;
use crate::objects::{Found, owner_key};
use crate::ownership::own;
use crate::workload::Workload;
use crate::{Context, PassError, api};

/// The Machine of an InfraMachine: its owner, else the one of its name.
fn key_of(_: &Management, object: &DynamicObject) -> Option<Key> {
    owner_key(object, "Machine").or_else(|| {
        Some(Key::new(
            object.namespace().unwrap_or_default(),
            object.name_any(),
        ))
    })
}

pub(crate) async fn run(context: Arc<Context>, stop: CancellationToken) {
    tokio::select! {
        synced = context.caches.synced() => if synced.is_err() { return },
        () = stop.cancelled() => return,
    }
    let feeder = Arc::clone(&context);
    let feed = tokio::spawn(async move {
        let mut machines = feeder.caches.machines.subscribe();
        let mut clusters = feeder.caches.clusters.subscribe();
        let mut pools = feeder.caches.pools.subscribe();
        let q = &feeder.machines;
        loop {
            tokio::select! {
                Some(change) = machines.recv() => change.either().for_each(|machine| q.add(Key::of(&**machine))),
                Some(change) = clusters.recv() => {
                    // Pause, deletion and the first connection matter; the counters of the status do not.
                    let mark = |c: &Cluster| (c.spec.paused, c.metadata.deletion_timestamp.clone(), c.status.as_ref().and_then(|s| s.initialization));
                    let changed = match (&change.old, &change.new) {
                        (Some(old), Some(new)) => mark(old) != mark(new),
                        _ => true,
                    };
                    for cluster in change.either().filter(|_| changed) {
                        let value = in_namespace(&cluster.namespace().unwrap_or_default(), &cluster.name_any());
                        let machines = feeder.caches.machines.by(feeder.caches.machines_by_cluster, &value);
                        machines.iter().for_each(|machine| q.add(Key::of(&**machine)));
                    }
                }
                Some(change) = pools.recv() => {
                    // What its machines are to be made from is what each of them is judged by.
                    let source = |pool: &MachinePool| (pool.spec.template.spec.version.clone(), pool.bootstrap_reference());
                    if let (Some(old), Some(new)) = (&change.old, &change.new) && source(old) != source(new) {
                        let machines = feeder.caches.machines_of(&new.namespace().unwrap_or_default(), &new.name_any());
                        machines.iter().for_each(|machine| q.add(Key::of(&**machine)));
                    }
                }
                else => return,
            }
        }
    });
    let options = Options {
        concurrency: 128,
        ..Options::new("machine")
    };
    let queue = context.machines.clone();
    queue
        .run(options, stop, move |key| {
            let context = Arc::clone(&context);
            async move {
                match tokio::time::timeout(PASS, pass(&context, &key)).await {
                    Ok(done) => done,
                    // Whatever it was at is safe to begin anew.
                    Err(_) => Err(PassError::Blocked(format!(
                        "an API has not answered within {}s",
                        PASS.as_secs()
                    ))),
                }
            }
        })
        .await;
    feed.abort();
}

/// What is known of a Machine's surroundings.
pub(crate) struct Seen {
    pub(crate) cluster: Option<Arc<Cluster>>,
    pub(crate) infrastructure: Infrastructure,
    pub(crate) workload: Option<Arc<Workload>>,
    pub(crate) node: NodeSeen,
    /// Nodes that claim its instance too, and are not it.
    pub(crate) rivals: Vec<String>,
}

/// What was seen of the InfraMachine.
pub(crate) enum Infrastructure {
    Here(Arc<DynamicObject>),
    Missing,
    Unusable(String),
}

/// What was seen of the Node.
pub(crate) enum NodeSeen {
    Here(Arc<Node>),
    /// Its instance has none yet, or none any more.
    Missing,
    /// Several Nodes claim the instance.
    Several(Vec<String>),
    /// The workload cluster cannot be asked.
    Unreachable,
}

async fn observe(context: &Context, machine: &Machine) -> Seen {
    let namespace = machine.namespace().unwrap_or_default();
    let cluster_key = Key::new(&namespace, &machine.spec.cluster_name);
    let found = context
        .objects
        .get(
            &namespace,
            &machine.spec.infrastructure_ref,
            &context.machines,
            key_of,
        )
        .await;
    let infrastructure = match found {
        Found::Here(object) => Infrastructure::Here(object),
        Found::Missing => Infrastructure::Missing,
        Found::Unusable(why) => Infrastructure::Unusable(why),
    };
    let workload = context.workloads.get(&cluster_key);
    let id = machine
        .spec
        .provider_id
        .clone()
        .or_else(|| match &infrastructure {
            Infrastructure::Here(object) => contract::provider_id(object),
            _ => None,
        });
    let addresses = match &infrastructure {
        Infrastructure::Here(object) => contract::addresses(object),
        Infrastructure::Missing | Infrastructure::Unusable(_) => Vec::new(),
    };
    let (node, rivals) = match &workload {
        None => (NodeSeen::Unreachable, Vec::new()),
        Some(workload) => {
            let claims = id.map(|id| workload.nodes_of(&id)).unwrap_or_default();
            binding::choose(&claims, machine.node_name(), &addresses)
        }
    };
    Seen {
        cluster: context.caches.clusters.get(&cluster_key),
        infrastructure,
        workload,
        node,
        rivals,
    }
}

async fn pass(context: &Context, key: &Key) -> Result<Requeue, PassError> {
    let Some(machine) = context.caches.machines.get(key) else {
        deletion::forget(context, key);
        return Ok(Requeue::Never);
    };
    if names::CONTROL_PLANE.is_on(&*machine) {
        return Ok(Requeue::Never);
    }
    if let Some(pause) = context
        .caches
        .pause_of(&*machine, &machine.spec.cluster_name)
    {
        // Others need not wait for a drain that stands still.
        deletion::leave(context, key);
        return status::paused(context, &machine, pause).await;
    }
    let seen = observe(context, &machine).await;
    let lane = seen
        .workload
        .as_ref()
        .map(|workload| workload.lane.try_acquire());
    if matches!(lane, Some(Err(_))) {
        return Ok(Requeue::After(LANE_FULL));
    }
    if machine.is_deleting() {
        return deletion::pass(context, &machine, &seen).await;
    }
    if seen.cluster.is_none() {
        return Ok(Requeue::Never);
    }
    let mut next = (*machine).clone();
    if let Infrastructure::Here(object) = &seen.infrastructure {
        bind_infrastructure(context, &mut next, object).await?;
    }
    if let (NodeSeen::Here(node), Some(workload)) = (&seen.node, &seen.workload) {
        bind_node(&mut next, node);
        let additional = &context.settings.additional_sync;
        sync_node(&next, node, workload, &seen, additional).await?;
    }
    let requeue = status::write(context, &machine, next, &seen).await?;
    let lost = loss::settle(context, &machine, &seen).await?;
    Ok(lost.unwrap_or(requeue))
}

/// Owner and label on the InfraMachine; its facts on the Machine.
async fn bind_infrastructure(
    context: &Context,
    machine: &mut Machine,
    object: &DynamicObject,
) -> Result<(), PassError> {
    let namespace = machine.namespace().unwrap_or_default();
    let reference = machine.spec.infrastructure_ref.clone();
    if object.metadata.deletion_timestamp.is_none() {
        let owner = machine.controller_owner_ref(&()).unwrap_or_default();
        own(
            context,
            &namespace,
            &reference,
            object,
            owner,
            &machine.spec.cluster_name,
        )
        .await?;
    }
    if !contract::is_provisioned(object) {
        return Ok(());
    }
    let id = contract::provider_id(object);
    if id.is_some() && id != machine.spec.provider_id {
        let machines: Api<Machine> = Api::namespaced(context.client.clone(), &namespace);
        let patch = json!({"spec": {"providerID": id}});
        let patched = machines
            .patch(
                &machine.name_any(),
                &PatchParams::default(),
                &Patch::Merge(patch),
            )
            .await
            .map_err(api("writing the providerID"))?;
        machine.spec = patched.spec.clone();
        machine.metadata = patched.metadata.clone();
        context.caches.machines.absorb(patched);
    }
    let status = machine.status.get_or_insert_default();
    status
        .initialization
        .get_or_insert_default()
        .infrastructure_provisioned = Some(true);
    status.addresses = contract::addresses(object);
    // A provider that does not say it for a moment takes nothing back.
    if let Some(domain) = contract::failure_domain(object) {
        status.failure_domain = Some(domain);
    }
    Ok(())
}

fn bind_node(machine: &mut Machine, node: &Node) {
    let status = machine.status.get_or_insert_default();
    status.node_ref = Some(MachineNodeReference {
        name: node.name_any(),
    });
    status.node_info = node
        .status
        .as_ref()
        .and_then(|status| status.node_info.clone());
}

async fn sync_node(
    machine: &Machine,
    node: &Node,
    workload: &Workload,
    seen: &Seen,
    additional: &Additional,
) -> Result<(), PassError> {
    let interruptible = match &seen.infrastructure {
        Infrastructure::Here(object) => contract::is_interruptible(object),
        _ => false,
    };
    let Some(patch) = node_sync::patch(machine, node, interruptible, additional) else {
        return Ok(());
    };
    let nodes: Api<Node> = Api::all(workload.client.clone());
    match nodes
        .patch(
            &node.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
    {
        Ok(patched) => workload.nodes.absorb(patched),
        // It changed or went meanwhile; the watch brings what it is now.
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {}
        Err(error) => return Err(api(format!("labelling Node {}", node.name_any()))(error)),
    }
    Ok(())
}

/// How long a pass may take; an API that takes requests and does not answer would hold it for ever.
const PASS: Duration = Duration::from_secs(20);
/// How soon to look again when as many passes as may are talking to a cluster.
const LANE_FULL: Duration = Duration::from_millis(100);
/// How soon a Machine without a Node is looked at again; events come sooner.
const NODE_POLL: Duration = Duration::from_secs(60);
