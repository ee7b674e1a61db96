//! A rollout in words, as conditions and previews show it.

use super::{Budget, Counts, Decision, Limits, Pool, Waiting};

/// How many machines or Pods a message names.
const NAMED: usize = 3;

/// Why limits leave no room at all.
pub(super) fn no_room(pool: &Pool, limits: Limits) -> String {
    let surge = if limits.max_surge > 0 && !pool.can_surge {
        "the group cannot have more machines than its size for a while, so rollout.maxSurge is of no use here"
    } else {
        "rollout.maxSurge is 0"
    };
    let (field, value) = if limits.max_unavailable > pool.disruption {
        ("disruption.maxUnavailable", pool.disruption)
    } else {
        ("rollout.maxUnavailable", limits.max_unavailable)
    };
    format!(
        "{surge} and {field} is {value} of {} machines; let {field} of the MachinePoolPolicy be 1 or more",
        pool.desired
    )
}

impl Decision {
    /// Where the rollout stands and what it waits for.
    pub fn told(&self) -> String {
        let Counts {
            up_to_date,
            starting,
            outdated,
            leaving,
            ..
        } = self.counts;
        let next = u32::try_from(self.next.len()).unwrap_or(u32::MAX);
        let mut stand = format!(
            "{up_to_date} machine{} up to date, {} out of date",
            s(up_to_date),
            outdated.saturating_sub(next)
        );
        if leaving + next > 0 {
            stand.push_str(&format!(", {} out of date and leaving", leaving + next));
        }
        if starting > 0 {
            stand.push_str(&format!(", {starting} new not available yet"));
        }
        match self.waiting.told() {
            Some(why) => format!("{stand}; {why}"),
            None => stand,
        }
    }
}

impl Waiting {
    /// What is waited for, as the end of a sentence.
    pub fn told(&self) -> Option<String> {
        Some(match self {
            Self::Nothing => return None,
            Self::Refused(why) | Self::NoRoom(why) => why.clone(),
            Self::OnDelete => {
                "they are replaced when they are deleted (rollout.type OnDelete)".to_owned()
            }
            Self::Stopped { failed } => format!(
                "stopped, since {} did not become available in the time that a start may take; correct what the pool's machines are made from, or delete {} to try again",
                few("Machine", failed),
                if failed.len() == 1 { "it" } else { "them" }
            ),
            Self::ScaleDown { surplus } => {
                format!(
                    "waiting for {surplus} machine{} to go by scale-down",
                    s(*surplus)
                )
            }
            Self::Machines {
                starting,
                leaving,
                missing,
            } => {
                let mut parts = Vec::new();
                if !leaving.is_empty() {
                    parts.push(format!("{} to be gone", few("Machine", leaving)));
                }
                if !starting.is_empty() {
                    parts.push(format!("{} to become available", few("Machine", starting)));
                }
                if *missing > 0 && leaving.is_empty() {
                    parts.push(format!("{missing} machine{} to be launched", s(*missing)));
                }
                if parts.is_empty() {
                    parts.push("unavailable machines to be available again".to_owned());
                }
                format!("waiting for {}", parts.join(" and "))
            }
            Self::Budgets(budgets) => {
                let named: Vec<String> = budgets.iter().take(NAMED).map(budget).collect();
                format!("waiting for room in {}", named.join(" and "))
            }
        })
    }
}

fn budget(budget: &Budget) -> String {
    let name = &budget.name;
    if budget.unready.is_empty() {
        format!("PodDisruptionBudget {name}, which has no room for more Pods to move now")
    } else {
        format!(
            "PodDisruptionBudget {name}, of which {} not ready",
            match few("Pod", &budget.unready) {
                pods if budget.unready.len() == 1 => format!("{pods} is"),
                pods => format!("{pods} are"),
            }
        )
    }
}

fn s(count: u32) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// Some by name, the others counted.
fn few(what: &str, names: &[String]) -> String {
    let plural = if names.len() == 1 { "" } else { "s" };
    let shown = names
        .iter()
        .take(NAMED)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    match names.len().checked_sub(NAMED) {
        Some(more) if more > 0 => format!("{what}{plural} {shown}, ... ({more} more)"),
        _ => format!("{what}{plural} {shown}"),
    }
}
