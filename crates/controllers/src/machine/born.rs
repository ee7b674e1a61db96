//! What a Machine's Events tell of its beginning: launched, joined, available; each once, when it comes about.

use kube::ResourceExt;
use kube::runtime::events::EventType;
use muster_api::Machine;
use muster_api::conditions::{Reason as _, types};
use muster_api::reference::Conditioned as _;
use muster_provider::events::about;

use crate::Context;

/// What came about between two states of a Machine, as reasons and sentences.
fn news(before: &Machine, next: &Machine) -> Vec<(&'static str, String)> {
    let mut news = Vec::new();
    let provisioned = |machine: &Machine| {
        let status = machine.status.as_ref();
        let done = status.and_then(|status| status.initialization);
        done.and_then(|done| done.infrastructure_provisioned) == Some(true)
    };
    if provisioned(next) && !provisioned(before) {
        let status = next.status.as_ref();
        let domain = status.and_then(|status| status.failure_domain.as_deref());
        news.push((
            "Launched",
            format!(
                "{} {} stands for instance {}{}",
                next.spec.infrastructure_ref.kind,
                next.spec.infrastructure_ref.name,
                next.spec
                    .provider_id
                    .as_deref()
                    .unwrap_or("without providerID"),
                domain.map_or_else(String::new, |domain| format!(" in failure domain {domain}"))
            ),
        ));
    }
    if let Some(node) = next
        .node_name()
        .filter(|node| before.node_name() != Some(node))
    {
        let info = next
            .status
            .as_ref()
            .and_then(|status| status.node_info.as_ref());
        let version = info.map_or_else(String::new, |info| {
            format!(" with kubelet {}", info.kubelet_version)
        });
        let note = match before.node_name() {
            None => format!(
                "Node {node} joined Cluster {}{version}",
                next.spec.cluster_name
            ),
            Some(old) => format!("Node {node} takes the place of Node {old}{version}"),
        };
        news.push(("NodeJoined", note));
    }
    let available = types::Available::TYPE;
    if next.is_true(available) && !before.is_true(available) {
        let after = next.spec.min_ready_seconds.filter(|seconds| *seconds > 0);
        let after = after.map_or_else(String::new, |seconds| {
            format!(" and has been for {seconds}s")
        });
        news.push(("Available", format!("the Machine is ready{after}")));
    }
    news
}

/// Tells what came about.
pub(super) async fn tell(context: &Context, before: &Machine, next: &Machine) {
    for (reason, note) in news(before, next) {
        tracing::debug!(machine = next.name_any(), reason, note);
        let object = about(next);
        context
            .events
            .say(&object, EventType::Normal, reason, "Create", note)
            .await;
    }
}
