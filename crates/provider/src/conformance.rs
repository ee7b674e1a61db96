//! What the pool reconciler relies on in any [`ScaleGroup`], as checks that a provider's tests run against its cloud, or
//! against the most faithful model of it that there is.
//!
//! A provider's tests implement [`Bench`] and expect [`broken`] to find nothing. Each rule has a pool of its own, so that
//! none sees what another left behind.

mod rules;

use std::fmt;

use futures::future::BoxFuture;
use muster_informers::Key;

use crate::scale_group::{Group, GroupSpec, Instance, InstanceState, ProviderError, ScaleGroup};

/// A provider with its cloud, as tests hold it.
pub trait Bench: Send + Sync {
    /// The provider.
    type Provider: ScaleGroup;

    /// The provider.
    fn provider(&self) -> &Self::Provider;

    /// What a new pool of this name is wanted to be; whatever else the provider needs for it is there when this returns.
    fn spec<'a>(&'a self, pool: &'a str) -> BoxFuture<'a, GroupSpec>;

    /// The same with another template, so that instances of the former one are out of date.
    fn changed<'a>(&'a self, spec: &'a GroupSpec) -> BoxFuture<'a, GroupSpec>;

    /// Lets the cloud work for a moment. What does not come true within [`PATIENCE`] of these moments is broken.
    fn moment(&self) -> BoxFuture<'_, ()>;

    /// Terminates an instance as somebody at the cloud's console does, who says nothing of the group's size.
    fn terminate_outside<'a>(&'a self, pool: &'a Key, instance: &'a str) -> BoxFuture<'a, ()>;

    /// Sets the group's size as somebody at the cloud's console does.
    fn resize_outside<'a>(&'a self, pool: &'a Key, size: u32) -> BoxFuture<'a, ()>;

    /// Whether the cloud behind this bench launches where a zone is short. Clouds do; a stand-in may not.
    fn spreads(&self) -> bool {
        true
    }
}

/// For how many moments something is waited for.
pub const PATIENCE: u32 = 300;

/// For how many moments it is watched that something does not happen.
const WATCHED: u32 = 20;

/// What is relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A group that was never made is told as absent, not as a failure.
    AbsentGroupIsTold,
    /// Making a group again makes no second one, and leaves its size.
    EnsuredOnce,
    /// The size that is set is told at once, and comes true with distinct instances of the group's zones.
    SizeComesTrue,
    /// Instances go where a zone is short.
    ZonesAreEven,
    /// A termination that lowers the size takes that instance, tells the lower size at once, and launches no other.
    LowerTakesJustThat,
    /// A termination that keeps the size takes that instance and no other, and another is launched.
    KeepIsReplaced,
    /// A termination that is asked for again, in whatever way, changes nothing.
    RepeatedTerminationCountsOnce,
    /// Terminations side by side are counted each.
    TerminationsSideBySide,
    /// Terminating what was never there is success or `NotFound`, and changes no size.
    UnknownInstance,
    /// An instance that goes without the provider's doing is told so and replaced.
    OutsideTermination,
    /// A size that is set without the provider's doing is told.
    OutsideSize,
    /// A changed template makes running instances out of date and terminates none.
    ChangedTemplate,
    /// Deleting a group takes what is left in it, and may be asked for again.
    Deletion,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::AbsentGroupIsTold,
        Self::EnsuredOnce,
        Self::SizeComesTrue,
        Self::ZonesAreEven,
        Self::LowerTakesJustThat,
        Self::KeepIsReplaced,
        Self::RepeatedTerminationCountsOnce,
        Self::TerminationsSideBySide,
        Self::UnknownInstance,
        Self::OutsideTermination,
        Self::OutsideSize,
        Self::ChangedTemplate,
        Self::Deletion,
    ];

    /// Name of the pool that the rule is tried on.
    fn pool(self) -> String {
        let mut name = String::from("conforms");
        for letter in format!("{self:?}").chars() {
            if letter.is_ascii_uppercase() {
                name.push('-');
            }
            name.push(letter.to_ascii_lowercase());
        }
        name
    }
}

/// A rule that does not hold.
#[derive(Clone, Debug)]
pub struct Broken {
    /// Which.
    pub rule: Rule,
    /// What was seen instead.
    pub seen: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.seen)
    }
}

/// Tries every rule and tells those that do not hold.
pub async fn broken<B: Bench>(bench: &B) -> Vec<Broken> {
    let mut broken = Vec::new();
    for rule in Rule::ALL {
        if let Err(Seen(seen)) = rules::check(rule, bench).await {
            broken.push(Broken { rule, seen });
        }
    }
    broken
}

/// What was seen instead of what a rule says.
#[derive(Debug)]
struct Seen(String);

impl From<ProviderError> for Seen {
    fn from(error: ProviderError) -> Self {
        Self(format!("the provider failed: {error}"))
    }
}

/// One pool of a bench.
struct Pool<'a, B> {
    bench: &'a B,
    spec: GroupSpec,
}

impl<'a, B: Bench> Pool<'a, B> {
    /// A group of that size, all of it running.
    async fn of(bench: &'a B, rule: Rule, size: u32) -> Result<Self, Seen> {
        let spec = bench.spec(&rule.pool()).await;
        let pool = Self { bench, spec };
        pool.provider().ensure(&pool.spec).await?;
        if size > 0 {
            pool.provider().set_size(pool.key(), size).await?;
        }
        pool.comes_to(&format!("{size} running instances"), |group| {
            group.size == size && running(group) == size as usize && live(group) == size as usize
        })
        .await?;
        Ok(pool)
    }

    fn provider(&self) -> &'a B::Provider {
        self.bench.provider()
    }

    fn key(&self) -> &Key {
        &self.spec.pool
    }

    async fn group(&self) -> Result<Group, Seen> {
        let group = self.provider().describe(self.key()).await?;
        group.ok_or_else(|| Seen("a group that was made is told as absent".to_owned()))
    }

    /// Waits for something; what there is instead is told.
    async fn comes_to(&self, what: &str, holds: impl Fn(&Group) -> bool) -> Result<Group, Seen> {
        let mut last = self.group().await?;
        for _ in 0..PATIENCE {
            if holds(&last) {
                return Ok(last);
            }
            self.bench.moment().await;
            last = self.group().await?;
        }
        Err(Seen(format!(
            "{what} did not come; there is {}",
            told(&last)
        )))
    }

    /// Watches that something goes on to hold.
    async fn stays(&self, what: &str, holds: impl Fn(&Group) -> bool) -> Result<(), Seen> {
        for _ in 0..WATCHED {
            let group = self.group().await?;
            if !holds(&group) {
                return Err(Seen(format!("{what} did not stay so: {}", told(&group))));
            }
            self.bench.moment().await;
        }
        Ok(())
    }
}

fn live(group: &Group) -> usize {
    group.instances.iter().filter(|i| i.is_live()).count()
}

fn running(group: &Group) -> usize {
    let runs = |i: &&Instance| i.state == InstanceState::Running;
    group.instances.iter().filter(runs).count()
}

fn has_live(group: &Group, id: &str) -> bool {
    group.instances.iter().any(|i| i.id == id && i.is_live())
}

fn ids(group: &Group) -> Vec<String> {
    let mut ids: Vec<String> = group.instances.iter().map(|i| i.id.clone()).collect();
    ids.sort();
    ids
}

fn told(group: &Group) -> String {
    let all: Vec<String> = group
        .instances
        .iter()
        .map(|i| format!("{} {} in {}", i.id, i.state.as_str(), i.zone))
        .collect();
    format!("size {}, instances [{}]", group.size, all.join(", "))
}

fn expect(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Seen> {
    if holds {
        Ok(())
    } else {
        Err(Seen(otherwise()))
    }
}
