use std::collections::BTreeMap;

use super::Standing::{Down, Leaving, Sick, Starting, Up};
use super::*;
use proptest::prelude::*;

fn pool(desired: u32, groups: &[(Standing, usize)]) -> Census {
    let machines = groups
        .iter()
        .flat_map(|(standing, count)| std::iter::repeat_n(*standing, *count));
    Census::of(desired, machines)
}

#[test]
fn a_limit_is_the_budget_or_what_the_rollout_says_and_at_least_one_by_percentage() {
    let percent = |number| Some(Share::Percent(number));
    assert_eq!(limit(None, None, 3), 1);
    assert_eq!(limit(None, None, 45), 4);
    assert_eq!(limit(None, percent(50), 10), 5);
    assert_eq!(limit(None, Some(Share::Number(0)), 10), 1);
    assert_eq!(limit(percent(20), percent(50), 10), 2);
    assert_eq!(limit(percent(1), None, 10), 1);
    assert_eq!(limit(Some(Share::Number(0)), percent(50), 10), 0);
    assert_eq!(limit(percent(0), None, 10), 0);
}

#[test]
fn a_wave_of_sick_machines_is_repaired_one_by_one() {
    let mut census = pool(10, &[(Up, 4), (Sick, 6)]);
    assert_eq!(census.allows(1).repairs, 1);
    census.begin(Sick);
    assert_eq!(census.allows(1).repairs, 0);
    // Gone, and its successor has not come: still one under way.
    assert_eq!(pool(10, &[(Up, 4), (Sick, 5)]).allows(1).repairs, 0);
    // It is starting, and the next waits for it.
    let starting = pool(10, &[(Up, 4), (Sick, 5), (Starting, 1)]);
    assert_eq!(starting.allows(1).repairs, 0);
    assert_eq!(pool(10, &[(Up, 5), (Sick, 5)]).allows(1).repairs, 1);
    // When the wave is over there is no burst.
    assert_eq!(pool(10, &[(Up, 7), (Sick, 3)]).allows(1).repairs, 1);
}

#[test]
fn what_cannot_be_repaired_keeps_nothing_from_repair() {
    assert_eq!(
        pool(5, &[(Up, 2), (Down, 2), (Sick, 1)]).allows(1).repairs,
        1
    );
    // But with room for more it counts.
    assert_eq!(
        pool(9, &[(Up, 3), (Down, 2), (Sick, 4)]).allows(3).repairs,
        1
    );
    assert_eq!(pool(5, &[(Up, 4), (Sick, 1)]).allows(0).repairs, 0);
}

#[test]
fn a_rollout_leaves_the_size_less_the_limit_up() {
    assert_eq!(pool(10, &[(Up, 10)]).allows(2).ups, 2);
    assert_eq!(pool(10, &[(Up, 9), (Down, 1)]).allows(2).ups, 1);
    assert_eq!(pool(10, &[(Up, 9), (Sick, 1)]).allows(1).ups, 0);
    // Deletions by users count, and are not held back.
    assert_eq!(pool(10, &[(Up, 7), (Leaving, 3)]).allows(2).ups, 0);
    // A surge makes room where none may be down.
    assert_eq!(pool(10, &[(Up, 10), (Starting, 1)]).allows(0).ups, 0);
    assert_eq!(pool(10, &[(Up, 11)]).allows(0).ups, 1);
}

#[test]
fn one_that_goes_while_its_successor_comes_is_one_under_way() {
    assert_eq!(
        pool(10, &[(Up, 9), (Leaving, 1), (Starting, 1)]).under_way(),
        1
    );
    assert_eq!(pool(10, &[(Up, 10), (Leaving, 2)]).under_way(), 2);
    // A machine more than the size is nothing that anybody waits for.
    assert_eq!(pool(10, &[(Up, 10), (Starting, 1)]).under_way(), 0);
}

#[test]
fn what_is_down_and_out_of_date_goes_within_the_limit_or_when_a_surge_has_replaced_it() {
    assert_eq!(pool(3, &[(Up, 2), (Down, 1)]).allows(0).downs, 0);
    assert_eq!(pool(3, &[(Up, 3), (Down, 1)]).allows(0).downs, 1);
    assert_eq!(pool(3, &[(Up, 2), (Down, 1)]).allows(1).downs, 1);
}

/// What happens to a pool.
#[derive(Clone, Debug)]
enum Step {
    /// A pass that repairs and then rolls; it may crash after so many deletions.
    Pass {
        crashes_after: Option<u8>,
    },
    Sickens(u8),
    Heals(u8),
    Fails(u8),
    UserDeletes(u8),
    Gone(u8),
    Launches,
    Boots(u8),
    Scale(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let which = 0..24_u8;
    let step = prop_oneof![
        6 => prop::option::of(0..3_u8).prop_map(|crashes_after| Step::Pass { crashes_after }),
        3 => which.clone().prop_map(Step::Sickens),
        1 => which.clone().prop_map(Step::Heals),
        1 => which.clone().prop_map(Step::Fails),
        1 => which.clone().prop_map(Step::UserDeletes),
        4 => which.clone().prop_map(Step::Gone),
        4 => Just(Step::Launches),
        4 => which.prop_map(Step::Boots),
        1 => (1..16_u32).prop_map(Step::Scale),
    ];
    prop::collection::vec(step, 0..120)
}

/// A pool as it is written down, which is all that outlives a crash.
struct Written {
    desired: u32,
    machines: BTreeMap<u32, (Standing, bool)>,
    next: u32,
}

impl Written {
    fn of(desired: u32) -> Self {
        let mut pool = Self {
            desired,
            machines: BTreeMap::new(),
            next: 0,
        };
        for _ in 0..desired {
            pool.add(Up);
        }
        pool
    }

    fn add(&mut self, standing: Standing) {
        self.machines.insert(self.next, (standing, false));
        self.next += 1;
    }

    fn census(&self) -> Census {
        Census::of(self.desired, self.machines.values().map(|(s, _)| *s))
    }

    fn count(&self, standing: Standing) -> u32 {
        let same = self.machines.values().filter(|(s, _)| *s == standing);
        u32::try_from(same.count()).unwrap()
    }

    fn nth(&self, number: u8, is: impl Fn(Standing) -> bool) -> Option<u32> {
        let all: Vec<u32> = self
            .machines
            .iter()
            .filter(|(_, (s, _))| is(*s))
            .map(|(id, _)| *id)
            .collect();
        all.get(usize::from(number) % all.len().max(1)).copied()
    }

    fn turn(&mut self, number: u8, from: impl Fn(Standing) -> bool, to: Standing) {
        if let Some(id) = self.nth(number, from) {
            self.machines.get_mut(&id).unwrap().0 = to;
        }
    }

    /// Muster begins with a machine of that standing.
    fn begin(&mut self, stood: Standing) -> bool {
        let Some(id) = self.nth(0, |s| s == stood) else {
            return false;
        };
        *self.machines.get_mut(&id).unwrap() = (Leaving, true);
        true
    }
}

proptest! {
    #[test]
    fn whatever_happens_no_more_is_down_by_muster_than_the_limit(
        desired in 1..16_u32,
        share in prop_oneof![(0..4_u32).prop_map(Share::Number), (0..60_u32).prop_map(Share::Percent)],
        steps in steps(),
    ) {
        let mut pool = Written::of(desired);
        for step in steps {
            match step {
                Step::Pass { crashes_after } => {
                    let mut writes = 0;
                    let limit = limit(Some(share), None, pool.desired);
                    let mut census = pool.census();
                    loop {
                        if crashes_after == Some(writes) {
                            break;
                        }
                        let allows = census.allows(limit);
                        let stood = if allows.repairs > 0 { Sick } else if allows.ups > 0 { Up } else { break };
                        let before = pool.census().under_way();
                        if !pool.begin(stood) {
                            break;
                        }
                        census.begin(stood);
                        prop_assert_eq!(census, pool.census(), "what is noted is what is there");
                        writes += 1;
                        match stood {
                            Sick => prop_assert!(before < limit, "{before} under way, limit {limit}"),
                            _ => prop_assert!(pool.count(Up) + limit >= pool.desired),
                        }
                    }
                }
                Step::Sickens(n) => pool.turn(n, |s| matches!(s, Up | Down), Sick),
                Step::Heals(n) => pool.turn(n, |s| matches!(s, Sick | Down), Up),
                Step::Fails(n) => pool.turn(n, |s| matches!(s, Up | Starting), Down),
                Step::UserDeletes(n) => pool.turn(n, |s| s != Leaving, Leaving),
                Step::Gone(n) => {
                    if let Some(id) = pool.nth(n, |s| s == Leaving) {
                        pool.machines.remove(&id);
                    }
                }
                Step::Launches => {
                    let staying = pool.machines.values().filter(|(s, _)| *s != Leaving).count();
                    if u32::try_from(staying).unwrap() < pool.desired {
                        pool.add(Starting);
                    }
                }
                Step::Boots(n) => pool.turn(n, |s| s == Starting, Up),
                Step::Scale(to) => pool.desired = to,
            }
        }
    }

    /// Repair never stands still: where something is sick and nothing is on its way, something may be repaired.
    #[test]
    fn something_sick_is_repaired_once_nothing_is_on_its_way(up in 0..20_u32, sick in 1..20_u32, down in 0..20_u32, percent in 1..100_u32) {
        let desired = up + sick + down;
        let census = Census { desired, up, sick, down, ..Census::default() };
        let limit = limit(Some(Share::Percent(percent)), None, desired);
        prop_assert!(census.allows(limit).repairs >= 1);
    }
}
