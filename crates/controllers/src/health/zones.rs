//! Zones that are lost: all their Nodes fell silent together, which is no fault of the Machines.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use muster_informers::Key;
use muster_plan::health::is_lost;

use super::Work;
use crate::Context;

/// After which time Machines of a lost zone are judged one by one again, if all others are well: it will not come back.
pub(super) const PATIENCE: SignedDuration = SignedDuration::from_hours(1);

/// Since when a Node's kubelet has not been heard of.
pub(super) fn silent_since(node: &Node) -> Option<Timestamp> {
    let status = node.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    let ready = conditions.find(|condition| condition.type_ == "Ready")?;
    let since = ready.last_transition_time.as_ref().map(|time| time.0);
    since.filter(|_| ready.status == "Unknown")
}

/// The zones of a check's targets that are lost now, each with the time since when. Looks only at zones in which somebody is
/// not healthy. When one comes back, all targets are looked at anew.
pub(super) fn lost(
    context: &Context,
    check: &Key,
    cluster: &Key,
    now: Timestamp,
) -> BTreeMap<String, Timestamp> {
    let Some(workload) = context.workloads.get(cluster) else {
        // Whether a zone is back cannot be told.
        return context.health.lost_zones(check);
    };
    let ailing: Vec<(String, Vec<String>)> = context.health.roster(check, |roster| {
        let zones = roster.ailing_zones();
        let of = |zone: &str| {
            let in_zone = |name: &&str| {
                let found = roster.get(name);
                found.is_some_and(|found| found.zone.as_deref() == Some(zone))
            };
            roster.names().filter(in_zone).map(str::to_owned).collect()
        };
        zones.map(|zone| (zone.to_owned(), of(zone))).collect()
    });
    let before = context.health.lost_zones(check);
    let mut lost = BTreeMap::new();
    for (zone, names) in ailing {
        let (mut reporting, mut silent) = (0, Vec::new());
        for name in &names {
            let machine = context
                .caches
                .machines
                .get(&Key::new(&check.namespace, name));
            let node = machine
                .as_ref()
                .and_then(|machine| workload.nodes.get(&Key::new("", machine.node_name()?)));
            match node.as_deref().map(silent_since) {
                Some(Some(since)) => silent.push(since),
                Some(None) => reporting += 1,
                // One that is no Node says nothing about its zone.
                None => {}
            }
        }
        if is_lost(reporting, &silent) {
            let since = before.get(&zone).copied();
            let since = since.or_else(|| silent.iter().min().copied());
            lost.insert(zone, since.unwrap_or(now));
        }
    }
    let is_back = before.keys().any(|zone| !lost.contains_key(zone));
    if context
        .health
        .set_lost_zones(check, lost.clone(), is_back.then_some(now))
    {
        context.health.queue.add(Work::Everybody(check.clone()));
    }
    lost
}
