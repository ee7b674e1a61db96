//! What a rollout will do, wave by wave, if nothing fails and nothing else changes.

use std::collections::BTreeMap;

use crate::allowance::Standing;

use super::{Because, Decision, Member, Pods, Pool, Waiting, decide};

/// Machines that go together, once the wave before has been replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wave {
    /// How many machines more than the pool's size there are meanwhile.
    pub surge: u32,
    /// Those that go, in order, with the rule that chose each.
    pub machines: Vec<(String, Because)>,
    /// How many machines each zone has when the wave is over.
    pub zones: BTreeMap<String, u32>,
    /// The fewest machines that are available during the wave.
    pub available: u32,
}

/// The waves to come, and why there are no more. New machines are assumed to become available, each in the zone that is
/// short, and the Pods of earlier waves to be ready again by the next.
pub fn waves(pool: &Pool, members: &[Member], pods: &mut impl Pods) -> (Vec<Wave>, Waiting) {
    let mut members: Vec<Member> = members.to_vec();
    let zones: Vec<String> = {
        let mut zones: Vec<String> = members.iter().filter_map(|m| m.zone.clone()).collect();
        zones.sort();
        zones.dedup();
        zones
    };
    let mut waves: Vec<Wave> = Vec::new();
    let mut launched = 0;
    loop {
        settle(pool, &mut members, &zones, &mut launched);
        let Decision {
            surge,
            next,
            waiting,
            ..
        } = decide(pool, &members, pods);
        if next.is_empty() {
            return (waves, waiting);
        }
        for member in &mut members {
            if next.iter().any(|(name, _)| *name == member.name) {
                member.standing = Standing::Leaving;
            }
        }
        let available = members.iter().filter(|m| m.is_up()).count();
        members.retain(|m| !m.is_leaving());
        let mut after = members.clone();
        settle(pool, &mut after, &zones, &mut launched.clone());
        waves.push(Wave {
            surge,
            machines: next,
            zones: spread(&after),
            available: u32::try_from(available).unwrap_or(u32::MAX),
        });
    }
}

/// What was under way is over: who was leaving is gone, who was starting is there, who was missing is launched.
fn settle(pool: &Pool, members: &mut Vec<Member>, zones: &[String], launched: &mut u32) {
    members.retain(|m| !m.is_leaving());
    for member in members.iter_mut().filter(|m| !m.is_outdated()) {
        if member.standing == Standing::Starting && !member.failed_to_start {
            member.standing = Standing::Up;
        }
    }
    let outdated = members.iter().filter(|m| m.is_outdated()).count();
    let surge = match (&pool.refused, pool.can_surge) {
        (None, true) => super::surge(pool.strategy, u32::try_from(outdated).unwrap_or(u32::MAX)),
        _ => 0,
    };
    let wanted = usize::try_from(pool.desired.saturating_add(surge)).unwrap_or(usize::MAX);
    let mut counts = spread(members);
    while members.len() < wanted {
        let zone = zones
            .iter()
            .min_by_key(|zone| counts.get(*zone).copied().unwrap_or(0))
            .cloned();
        *counts.entry(zone.clone().unwrap_or_default()).or_default() += 1;
        *launched += 1;
        members.push(Member {
            // No name of a Kubernetes object has a space in it.
            name: format!("new machine {launched}"),
            created: jiff::Timestamp::MAX,
            zone,
            standing: Standing::Up,
            marked: false,
            held: false,
            outdated: Vec::new(),
            failed_to_start: false,
        });
    }
}

fn spread(members: &[Member]) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for member in members {
        *counts.entry(member.zone().to_owned()).or_default() += 1;
    }
    counts
}
