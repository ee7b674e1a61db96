//! One pass of the cloud over one group: count terminations, launch what is missing, move instances on in time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use muster_informers::{Key, Requeue};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;

use super::types::{CloudGroup, CloudInstance, CloudInstanceSpec, Termination};
use super::{Cloud, placement};

/// How many launches or moves are under way at once.
const PARALLEL: usize = 32;

/// Size of a group with all terminations counted that lower it.
pub(super) fn effective_size(group: &CloudGroup, instances: &[Arc<CloudInstance>]) -> u32 {
    let uncounted = uncounted(group, instances).count();
    group
        .spec
        .size
        .saturating_sub(u32::try_from(uncounted).unwrap_or(u32::MAX))
}

/// Instances whose termination lowers the size and that the size has not followed yet.
pub(super) fn uncounted<'a>(
    group: &'a CloudGroup,
    instances: &'a [Arc<CloudInstance>],
) -> impl Iterator<Item = &'a Arc<CloudInstance>> {
    instances.iter().filter(|instance| {
        instance
            .spec
            .termination
            .as_ref()
            .is_some_and(|t| t.lowers_size)
            && !group.spec.counted.contains(&instance.name_any())
    })
}

/// Whether a zone has no room for what is missing.
pub(super) fn trouble(group: &CloudGroup, instances: &[Arc<CloudInstance>]) -> Option<String> {
    let live = instances.iter().filter(|i| !i.is_terminating()).count();
    let missing = usize::try_from(effective_size(group, instances))
        .unwrap_or(0)
        .saturating_sub(live);
    if missing == 0 {
        return None;
    }
    let counts = counts(instances);
    match placement::next_zone(&group.spec.zones, &counts, &group.spec.capacity) {
        Some(_) => None,
        None => Some(format!(
            "{missing} instance{} cannot be launched: no capacity in {}",
            if missing == 1 { "" } else { "s" },
            group
                .spec
                .zones
                .iter()
                .map(|zone| format!("zone {zone}"))
                .collect::<Vec<_>>()
                .join(", ")
        )),
    }
}

fn counts(instances: &[Arc<CloudInstance>]) -> BTreeMap<&str, usize> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for instance in instances
        .iter()
        .filter(|instance| !instance.is_terminating())
    {
        *counts.entry(&instance.spec.zone).or_default() += 1;
    }
    counts
}

pub(super) async fn pass(cloud: &Cloud, key: &Key) -> Result<Requeue, kube::Error> {
    let now = cloud.0.clock.now();
    let instances = cloud.instances_of(key);
    let Some(group) = cloud.0.groups.get(key) else {
        // What is left of a deleted group goes with it.
        for instance in instances
            .iter()
            .filter(|instance| !instance.is_terminating())
        {
            terminate(cloud, instance, false, now).await?;
        }
        return advance(cloud, &cloud.instances_of(key), now).await;
    };
    let group = count(cloud, &group, &instances).await?;
    launch(cloud, &group, &instances, now).await?;
    advance(cloud, &cloud.instances_of(key), now).await
}

/// Lets the size follow terminations, each once: which were counted is written together with the size.
async fn count(
    cloud: &Cloud,
    group: &Arc<CloudGroup>,
    instances: &[Arc<CloudInstance>],
) -> Result<Arc<CloudGroup>, kube::Error> {
    let new: Vec<String> = uncounted(group, instances)
        .map(|instance| instance.name_any())
        .collect();
    let stale = group
        .spec
        .counted
        .iter()
        .any(|id| !instances.iter().any(|i| i.name_any() == *id));
    if new.is_empty() && !stale {
        return Ok(Arc::clone(group));
    }
    let mut next = (**group).clone();
    next.spec.size = effective_size(group, instances);
    next.spec
        .counted
        .retain(|id| instances.iter().any(|i| i.name_any() == *id));
    next.spec.counted.extend(new);
    let namespace = group.namespace().unwrap_or_default();
    // With the resource version that was read: a size that was set meanwhile is not overwritten.
    let written = cloud
        .groups(&namespace)
        .replace(&group.name_any(), &PostParams::default(), &next)
        .await?;
    cloud.0.groups.absorb(written.clone());
    Ok(Arc::new(written))
}

async fn launch(
    cloud: &Cloud,
    group: &CloudGroup,
    instances: &[Arc<CloudInstance>],
    now: Timestamp,
) -> Result<(), kube::Error> {
    let live: Vec<&Arc<CloudInstance>> = instances.iter().filter(|i| !i.is_terminating()).collect();
    let size = usize::try_from(effective_size(group, instances)).unwrap_or(usize::MAX);
    if group.meta().deletion_timestamp.is_some() {
        return Ok(());
    }
    // Fewer wanted than there are: the cloud takes the youngest, as a scale-in from outside does.
    let mut surplus: Vec<&Arc<CloudInstance>> = live.clone();
    surplus.sort_by_key(|i| (i.spec.launched.as_ref().map(|t| t.0), i.name_any()));
    for instance in surplus.into_iter().skip(size) {
        terminate(cloud, instance, false, now).await?;
    }
    let mut counts = counts(instances);
    let mut launches = Vec::new();
    for number in live.len()..size {
        let Some(zone) = placement::next_zone(&group.spec.zones, &counts, &group.spec.capacity)
        else {
            break;
        };
        *counts.entry(zone).or_default() += 1;
        launches.push(create(cloud, group, zone.to_owned(), number, now));
    }
    let done: Vec<Result<(), kube::Error>> = futures::stream::iter(launches)
        .buffer_unordered(PARALLEL)
        .collect()
        .await;
    done.into_iter().collect()
}

async fn create(
    cloud: &Cloud,
    group: &CloudGroup,
    zone: String,
    number: usize,
    now: Timestamp,
) -> Result<(), kube::Error> {
    let namespace = group.namespace().unwrap_or_default();
    let spec = CloudInstanceSpec {
        group: group.name_any(),
        cluster: group.spec.cluster.clone(),
        zone,
        launched: Some(Time(now)),
        template: group.spec.template.clone(),
        termination: None,
        interruption: None,
        failed: false,
        hung: false,
    };
    let api = cloud.instances(&namespace);
    let mut attempt = 0_u32;
    loop {
        let mut instance = CloudInstance::new(&id(cloud, group, number, attempt), spec.clone());
        attempt += 1;
        instance.metadata.namespace = Some(namespace.clone());
        match api.create(&PostParams::default(), &instance).await {
            Ok(created) => {
                cloud.0.instances.absorb(created);
                return Ok(());
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(error),
        }
    }
}

/// A new ID: by chance, from the seed and where and when it is drawn, so that the same world draws the same.
fn id(cloud: &Cloud, group: &CloudGroup, number: usize, attempt: u32) -> String {
    let place = format!(
        "{}/{}/{}/{number}/{attempt}/{}",
        group.namespace().unwrap_or_default(),
        group.name_any(),
        group.resource_version().unwrap_or_default(),
        cloud.0.clock.now().as_nanosecond(),
    );
    let salt = place
        .bytes()
        .fold(cloud.0.seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    let bits: u128 = StdRng::seed_from_u64(salt).random();
    format!("i-{:017x}", bits & ((1 << 68) - 1))
}

pub(super) async fn terminate(
    cloud: &Cloud,
    instance: &CloudInstance,
    lowers_size: bool,
    now: Timestamp,
) -> Result<(), kube::Error> {
    if instance.is_terminating() {
        return Ok(());
    }
    let termination = Termination {
        at: Some(Time(now)),
        lowers_size,
    };
    // Only one that nobody terminated meanwhile: the first order decides what the size does.
    let patch = json!({
        "metadata": {"resourceVersion": instance.resource_version()},
        "spec": {"termination": termination},
    });
    let namespace = instance.namespace().unwrap_or_default();
    let written = cloud
        .instances(&namespace)
        .patch(
            &instance.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await;
    match written {
        Ok(written) => cloud.0.instances.absorb(written),
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// What time does to an instance.
enum Move {
    Boots,
    IsGone,
    IsTakenBack,
    Waits(Option<SignedDuration>),
}

fn next_move(instance: &CloudInstance, now: Timestamp) -> Move {
    let template = &instance.spec.template.machine;
    let since = |at: &Option<Time>| now.duration_since(at.as_ref().map_or(now, |time| time.0));
    let left = |total: Duration, passed: SignedDuration| {
        SignedDuration::try_from(total)
            .unwrap_or(SignedDuration::MAX)
            .saturating_sub(passed)
    };
    if let Some(termination) = &instance.spec.termination {
        let left = left(template.termination(), since(&termination.at));
        return match (instance.spec.hung, left.is_positive()) {
            (true, _) => Move::Waits(None),
            (false, true) => Move::Waits(Some(left)),
            (false, false) => Move::IsGone,
        };
    }
    let until_taken = instance
        .spec
        .interruption
        .as_ref()
        .map(|at| at.0.duration_since(now));
    if until_taken.is_some_and(|left| !left.is_positive()) {
        return Move::IsTakenBack;
    }
    if !instance.is_running() {
        let left = left(template.boot(), since(&instance.spec.launched));
        return match (instance.spec.hung, left.is_positive()) {
            (true, _) => Move::Waits(until_taken),
            (false, true) => Move::Waits(Some(until_taken.map_or(left, |taken| taken.min(left)))),
            (false, false) => Move::Boots,
        };
    }
    Move::Waits(until_taken)
}

async fn advance(
    cloud: &Cloud,
    instances: &[Arc<CloudInstance>],
    now: Timestamp,
) -> Result<Requeue, kube::Error> {
    let mut soonest: Option<SignedDuration> = None;
    let mut moves = Vec::new();
    for instance in instances {
        match next_move(instance, now) {
            Move::Waits(left) => {
                soonest = soonest.into_iter().chain(left).min();
                cloud.0.agents.set_alive(instance);
            }
            due => moves.push(carry_out(cloud, Arc::clone(instance), due, now)),
        }
    }
    let done: Vec<Result<(), kube::Error>> = futures::stream::iter(moves)
        .buffer_unordered(PARALLEL)
        .collect()
        .await;
    done.into_iter().collect::<Result<(), _>>()?;
    Ok(soonest
        .and_then(|left| Duration::try_from(left).ok())
        .map_or(Requeue::Never, Requeue::After))
}

async fn carry_out(
    cloud: &Cloud,
    instance: Arc<CloudInstance>,
    due: Move,
    now: Timestamp,
) -> Result<(), kube::Error> {
    let namespace = instance.namespace().unwrap_or_default();
    let name = instance.name_any();
    match due {
        Move::Boots => {
            if let Err(error) = cloud.0.agents.join(&instance).await {
                tracing::debug!(instance = name, %error, "the Node could not register yet");
                return Err(error);
            }
            let patch = json!({"status": {"state": "Running"}});
            let written = cloud
                .instances(&namespace)
                .patch_status(&name, &PatchParams::default(), &Patch::Merge(patch))
                .await?;
            cloud.0.agents.set_alive(&written);
            cloud.0.instances.absorb(written);
        }
        Move::IsTakenBack => terminate(cloud, &instance, false, now).await?,
        Move::IsGone => {
            cloud.0.agents.forget(&instance);
            match cloud
                .instances(&namespace)
                .delete(&name, &DeleteParams::default())
                .await
            {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Move::Waits(_) => {}
    }
    Ok(())
}
