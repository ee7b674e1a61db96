//! Random pools through random histories of repairs and rollouts, in which the process may die at any deletion.

use proptest::prelude::{
    Just, Strategy as Given, TestCaseError, any, prop, prop_assert, prop_assert_eq, prop_oneof,
    proptest,
};

use super::*;
use crate::repair;

/// A pool that lives: what happens to it, and what it is.
#[derive(Clone, Debug)]
struct World {
    desired: u32,
    limits: Limits,
    disruption: u32,
    template: u32,
    launched: u32,
    machines: Vec<(Member, u32)>,
}

#[derive(Clone, Debug)]
enum Step {
    /// A pass of the pool's reconciler: repairs, and then the rollout. So many deletions are done before the process dies.
    Pass {
        done: usize,
    },
    /// The group comes to its size.
    Launch,
    /// One that is starting is up.
    Boot(usize),
    /// One that is leaving is gone.
    Gone(usize),
    Sickens(usize),
    Recovers(usize),
    Template,
    Scale(u32),
    UserDeletes(usize),
}

impl World {
    fn pool(&self) -> Pool {
        Pool {
            desired: self.desired,
            strategy: Strategy::Rolling(self.limits),
            disruption: self.disruption,
            can_surge: true,
            balanced: true,
            refused: None,
        }
    }

    fn members(&self) -> Vec<Member> {
        let members = self.machines.iter().map(|(member, template)| Member {
            outdated: if *template == self.template {
                Vec::new()
            } else {
                vec![Outdated::Instance]
            },
            ..member.clone()
        });
        members.collect()
    }

    fn staying(&self) -> usize {
        self.machines
            .iter()
            .filter(|(m, _)| !m.is_leaving())
            .count()
    }

    /// As a provider does: up to the size and the surge, in the zone that is short; what is too much goes, outdated first.
    fn launch(&mut self) {
        let outdated = self
            .members()
            .iter()
            .filter(|m| m.is_outdated() && !m.is_leaving())
            .count();
        let surge = surge(
            Strategy::Rolling(self.limits),
            u32::try_from(outdated).unwrap(),
        );
        let wanted = usize::try_from(self.desired + surge).unwrap();
        while self.machines.len() < wanted {
            self.launched += 1;
            let zone = ["a", "b", "c"]
                .into_iter()
                .min_by_key(|zone| {
                    self.machines
                        .iter()
                        .filter(|(m, _)| m.zone() == *zone)
                        .count()
                })
                .unwrap();
            let new = standing(
                Standing::Starting,
                member(&format!("m{:04}", self.launched), zone),
            );
            self.machines.push((new, self.template));
        }
        let template = self.template;
        while self.staying() > wanted {
            let victim = self
                .machines
                .iter_mut()
                .filter(|(m, _)| !m.is_leaving())
                .min_by_key(|(m, made)| (m.is_up(), *made == template))
                .unwrap();
            victim.0.standing = Standing::Leaving;
        }
    }

    fn nth(&mut self, of: Standing, nth: usize) -> Option<&mut Member> {
        let mut found: Vec<&mut Member> = self
            .machines
            .iter_mut()
            .map(|(member, _)| member)
            .filter(|m| m.standing == of)
            .collect();
        let count = found.len().max(1);
        (!found.is_empty()).then(|| found.swap_remove(nth % count))
    }

    fn moves(&mut self, from: Standing, to: Standing, nth: usize) {
        if let Some(member) = self.nth(from, nth) {
            member.standing = to;
        }
    }

    fn census(&self) -> Census {
        Census::of(self.desired, self.machines.iter().map(|(m, _)| m.standing))
    }

    /// Begins the repairs that may begin, as far as the process lives; how many those were.
    fn repair(&mut self, done: usize) -> Result<usize, TestCaseError> {
        let before = self.census();
        let sick: Vec<repair::Sick> = self
            .machines
            .iter()
            .filter(|(member, _)| member.standing == Standing::Sick)
            .map(|(member, _)| repair::Sick {
                name: member.name.clone(),
                asked: false,
                no_node: false,
                since: member.created,
            })
            .collect();
        let decision = repair::decide(sick, before, self.disruption);
        for name in decision.begin.iter().take(done) {
            let mut machines = self.machines.iter_mut().map(|(member, _)| member);
            let member = machines.find(|member| member.name == *name).unwrap();
            prop_assert_eq!(member.standing, Standing::Sick);
            member.standing = Standing::Leaving;
        }
        let began = decision.begin.len().min(done);
        let after = self.census();
        // One budget: no more are on their way than may be, unless they were before by somebody else's will.
        if began > 0 {
            prop_assert!(after.under_way() <= self.disruption, "{before:?} {after:?}");
        }
        Ok(began)
    }

    /// Begins what the rollout may begin, as far as the process lives.
    fn roll(&mut self, done: usize) -> Result<(), TestCaseError> {
        let before = self.census();
        let decision = decided(&self.pool(), &self.members());
        let (mut ups, mut began) = (0, 0);
        for (name, _) in decision.next.iter().take(done) {
            let (member, template) = self
                .machines
                .iter_mut()
                .find(|(m, _)| m.name == *name)
                .unwrap();
            prop_assert!(*template != self.template, "{name} is up to date");
            prop_assert!(!member.is_leaving());
            ups += u32::from(member.is_up());
            began += u32::from(member.standing != Standing::Starting);
            member.standing = Standing::Leaving;
        }
        let after = self.census();
        let down = self.limits.max_unavailable.min(self.disruption);
        if ups > 0 {
            prop_assert!(after.up >= self.desired.saturating_sub(down), "{after:?}");
        }
        // No more are on their way by Muster's will than the budget has, but for those beyond the size.
        let room = self.disruption.saturating_sub(before.under_way());
        prop_assert!(
            began - ups <= room.max(before.surplus()),
            "{before:?} {after:?}"
        );
        let leaving = self.disruption.max(before.leaving + before.surplus());
        prop_assert!(
            after.leaving - ups <= leaving.max(before.leaving),
            "{before:?} {after:?}"
        );
        Ok(())
    }

    fn act(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Pass { done } => {
                let repaired = self.repair(*done)?;
                self.roll(*done - repaired)?;
            }
            Step::Launch => self.launch(),
            Step::Boot(nth) => self.moves(Standing::Starting, Standing::Up, *nth),
            Step::Gone(nth) => {
                if let Some(name) = self.nth(Standing::Leaving, *nth).map(|m| m.name.clone()) {
                    self.machines.retain(|(m, _)| m.name != name);
                }
            }
            Step::Sickens(nth) => self.moves(Standing::Up, Standing::Sick, *nth),
            Step::Recovers(nth) => self.moves(Standing::Sick, Standing::Up, *nth),
            Step::Template => self.template += 1,
            Step::Scale(to) => self.desired = *to,
            Step::UserDeletes(nth) => self.moves(Standing::Up, Standing::Leaving, *nth),
        }
        Ok(())
    }
}

fn worlds() -> impl Given<Value = World> {
    (1..12_u32, 0..4_u32, 0..4_u32, 0..5_u32).prop_map(
        |(desired, surge, unavailable, disruption)| {
            let max_unavailable = if surge == 0 {
                unavailable.max(1)
            } else {
                unavailable
            };
            let mut world = World {
                desired,
                limits: Limits {
                    max_surge: surge,
                    max_unavailable,
                },
                disruption: if surge == 0 {
                    disruption.max(1)
                } else {
                    disruption
                },
                template: 0,
                launched: 0,
                machines: Vec::new(),
            };
            world.launch();
            for (member, _) in &mut world.machines {
                member.standing = Standing::Up;
            }
            world
        },
    )
}

fn steps() -> impl Given<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..6_usize).prop_map(|done| Step::Pass { done }),
        6 => Just(Step::Launch),
        6 => any::<usize>().prop_map(Step::Boot),
        6 => any::<usize>().prop_map(Step::Gone),
        2 => any::<usize>().prop_map(Step::Sickens),
        1 => any::<usize>().prop_map(Step::Recovers),
        1 => Just(Step::Template),
        1 => (0..12_u32).prop_map(Step::Scale),
        1 => any::<usize>().prop_map(Step::UserDeletes),
    ];
    prop::collection::vec(step, 0..120)
}

proptest! {
    #[test]
    fn however_a_history_goes_no_more_are_down_by_musters_will_than_may_be(mut world in worlds(), steps in steps()) {
        for step in &steps {
            world.act(step)?;
        }
    }

    #[test]
    fn whatever_happened_a_rollout_ends_once_nothing_fails_any_more(mut world in worlds(), steps in steps()) {
        for step in &steps {
            world.act(step)?;
        }
        let began = world.launched;
        let outdated = world.members().iter().filter(|m| m.is_outdated()).count();
        let sick = world.census().sick;
        while world.disruption == 0 && world.nth(Standing::Sick, 0).is_some() {
            world.act(&Step::Recovers(0))?;
        }
        for _ in 0..200 {
            world.act(&Step::Launch)?;
            for _ in 0..30 {
                world.act(&Step::Boot(0))?;
            }
            world.act(&Step::Pass { done: usize::MAX })?;
            world.act(&Step::Gone(0))?;
        }
        let members = world.members();
        prop_assert!(members.iter().all(|m| !m.is_outdated() && m.is_up()), "{:?}\n{members:?}", decided(&world.pool(), &members));
        prop_assert_eq!(members.len(), usize::try_from(world.desired).unwrap());
        // Nobody goes twice, and nobody who need not.
        let launched = usize::try_from(world.launched - began).unwrap();
        let needed = outdated + usize::try_from(sick + world.desired).unwrap();
        prop_assert!(launched <= needed + 4, "{launched} launched");
    }

    #[test]
    fn the_order_of_the_input_does_not_matter(world in worlds(), steps in steps()) {
        let mut world = world;
        for step in &steps {
            world.act(step)?;
        }
        let members = world.members();
        let reversed: Vec<Member> = members.iter().rev().cloned().collect();
        let (one, other) = (decided(&world.pool(), &members), decided(&world.pool(), &reversed));
        prop_assert_eq!((one.next, one.surge), (other.next, other.surge));
    }

    #[test]
    fn waves_replace_each_outdated_machine_once(mut world in worlds(), steps in steps()) {
        for step in &steps {
            world.act(step)?;
        }
        let members = world.members();
        let (waves, waiting) = waves(&world.pool(), &members, &mut NoPods);
        let mut gone: Vec<&str> = waves.iter().flat_map(|w| &w.machines).map(|(name, _)| name.as_str()).collect();
        let all = gone.len();
        gone.sort_unstable();
        gone.dedup();
        prop_assert_eq!(gone.len(), all, "nobody goes twice");
        let outdated = members.iter().filter(|m| m.is_outdated() && !m.is_leaving()).count();
        if waiting == Waiting::Nothing {
            prop_assert_eq!(all, outdated);
        }
    }
}
