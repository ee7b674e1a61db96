//! StatefulSets: Pods with names that last, made and removed in order, one at a time unless the set asks otherwise.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use muster_informers::{Key, Requeue};
use serde_json::{Value, json};

use super::{WorkError, Workload, delete, is_deleting, is_finished, is_ready, moved_on};

const REVISION: &str = "controller-revision-hash";
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// When a name that something else has is tried again.
const TAKEN: Duration = Duration::from_secs(5);

/// Where the Pod of one ordinal stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stands {
    /// It starts, or is not ready any more.
    NotReady,
    /// It is ready.
    Ready,
    /// It has ended by itself.
    Finished,
    /// It is being deleted.
    Going,
}

/// The Pod of one ordinal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Member {
    stands: Stands,
    /// Whether it was made from the template of today.
    current: bool,
}

/// What is done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create(i32),
    Delete(i32),
}

/// What a set wants.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    first: i32,
    replicas: i32,
    /// One after the other.
    ordered: bool,
    /// From which ordinal on Pods follow the template; nothing when they do only once somebody deletes them.
    update_from: Option<i32>,
}

/// The steps that may be done now; none when something is waited for, or nothing is left to do.
fn steps(wanted: Wanted, members: &BTreeMap<i32, Member>) -> Vec<Step> {
    let ordinals = wanted.first..wanted.first.saturating_add(wanted.replicas);
    let mut steps = Vec::new();
    let mut complete = true;
    for ordinal in ordinals.clone() {
        let settled = match members.get(&ordinal).map(|member| member.stands) {
            Some(Stands::Ready) => true,
            Some(Stands::NotReady | Stands::Going) => false,
            Some(Stands::Finished) => {
                steps.push(Step::Delete(ordinal));
                false
            }
            None => {
                steps.push(Step::Create(ordinal));
                false
            }
        };
        complete &= settled;
        if !settled && wanted.ordered {
            return steps;
        }
    }
    let going = |member: &Member| member.stands == Stands::Going;
    for (&ordinal, member) in members.iter().rev() {
        if ordinals.contains(&ordinal) {
            continue;
        }
        if !going(member) {
            steps.push(Step::Delete(ordinal));
        }
        if wanted.ordered {
            return steps;
        }
    }
    // The template is followed once all stand, from the last to the first, one at a time.
    if complete
        && steps.is_empty()
        && let Some(from) = wanted.update_from
    {
        let behind = members.iter().rev().find(|(ordinal, member)| {
            ordinals.contains(ordinal) && **ordinal >= from && !member.current
        });
        steps.extend(behind.map(|(&ordinal, _)| Step::Delete(ordinal)));
    }
    steps
}

fn wanted(set: &StatefulSet) -> Wanted {
    let spec = set.spec.as_ref();
    let strategy = spec.and_then(|spec| spec.update_strategy.as_ref());
    let on_delete = strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete");
    let partition = strategy
        .and_then(|strategy| strategy.rolling_update.as_ref()?.partition)
        .unwrap_or(0);
    Wanted {
        first: spec
            .and_then(|spec| spec.ordinals.as_ref()?.start)
            .unwrap_or(0),
        replicas: replicas(set),
        ordered: spec.and_then(|spec| spec.pod_management_policy.as_deref()) != Some("Parallel"),
        update_from: (!on_delete).then_some(partition),
    }
}

/// How many Pods a StatefulSet wants.
pub(super) fn replicas(set: &StatefulSet) -> i32 {
    set.spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1)
}

/// The ordinal in the name of a set's Pod.
fn ordinal_of(set: &str, pod: &str) -> Option<i32> {
    pod.strip_prefix(set)?.strip_prefix('-')?.parse().ok()
}

fn revision(set: &StatefulSet) -> String {
    let template = json!(set.spec.as_ref().map(|spec| &spec.template));
    format!("{}-{}", set.name_any(), super::hash(&template))
}

pub(super) async fn pass(workload: &Workload, key: &Key) -> Result<Requeue, WorkError> {
    let Some(set) = workload.stateful_sets.get(key) else {
        return Ok(Requeue::Never);
    };
    if is_deleting(&*set) {
        return Ok(Requeue::Never);
    }
    let revision = revision(&set);
    let pods: BTreeMap<i32, Arc<Pod>> = workload
        .pods
        .by(workload.pods_by_owner, &set.uid().unwrap_or_default())
        .into_iter()
        .filter_map(|pod| Some((ordinal_of(&key.name, &pod.name_any())?, pod)))
        .collect();
    let members = pods
        .iter()
        .map(|(&ordinal, pod)| (ordinal, member(pod, &revision)))
        .collect();
    let mut requeue = Requeue::Never;
    for step in steps(wanted(&set), &members) {
        match step {
            Step::Create(ordinal) => {
                if !create(workload, &set, ordinal, &revision).await? {
                    requeue = Requeue::After(TAKEN);
                }
            }
            Step::Delete(ordinal) => {
                if let Some(pod) = pods.get(&ordinal) {
                    delete(workload, pod).await?;
                }
            }
        }
    }
    write_status(workload, &set, &pods, &revision).await?;
    Ok(requeue)
}

fn member(pod: &Pod, revision: &str) -> Member {
    let stands = if is_deleting(pod) {
        Stands::Going
    } else if is_finished(pod) {
        Stands::Finished
    } else if is_ready(pod) {
        Stands::Ready
    } else {
        Stands::NotReady
    };
    let made_from = pod.labels().get(REVISION);
    Member {
        stands,
        current: made_from.is_some_and(|made_from| made_from == revision),
    }
}

/// Makes the Pod of an ordinal, after its claims; says whether its name was free.
async fn create(
    workload: &Workload,
    set: &StatefulSet,
    ordinal: i32,
    revision: &str,
) -> Result<bool, WorkError> {
    let namespace = set.namespace().unwrap_or_default();
    for claim in claims(set, ordinal) {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(workload.client.clone(), &namespace);
        match api.create(&PostParams::default(), &claim).await {
            Ok(_) => {}
            // It outlives the Pods that use it.
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(error.into()),
        }
    }
    let api: Api<Pod> = Api::namespaced(workload.client.clone(), &namespace);
    match api
        .create(&PostParams::default(), &pod(set, ordinal, revision))
        .await
    {
        Ok(created) => workload.pods.absorb(created),
        Err(kube::Error::Api(status)) if status.is_already_exists() => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    Ok(true)
}

/// The claims of one ordinal: one for each template, with a name that lasts.
fn claims(set: &StatefulSet, ordinal: i32) -> Vec<PersistentVolumeClaim> {
    let templates = set
        .spec
        .iter()
        .flat_map(|spec| spec.volume_claim_templates.iter().flatten());
    templates
        .cloned()
        .map(|mut claim| {
            claim.metadata.name = Some(claim_name(set, &claim.name_any(), ordinal));
            claim.metadata.namespace = set.namespace();
            claim.status = None;
            claim
        })
        .collect()
}

fn claim_name(set: &StatefulSet, template: &str, ordinal: i32) -> String {
    format!("{template}-{}-{ordinal}", set.name_any())
}

fn pod(set: &StatefulSet, ordinal: i32, revision: &str) -> Pod {
    let name = format!("{}-{ordinal}", set.name_any());
    let mut template = json!(set.spec.as_ref().map(|spec| &spec.template));
    let (metadata, spec) = (template["metadata"].take(), template["spec"].take());
    let mut labels = metadata["labels"].as_object().cloned().unwrap_or_default();
    labels.insert(REVISION.to_owned(), revision.into());
    labels.insert(POD_NAME.to_owned(), name.as_str().into());
    labels.insert(POD_INDEX.to_owned(), ordinal.to_string().into());
    let mut spec = spec;
    let templates = set
        .spec
        .iter()
        .flat_map(|spec| spec.volume_claim_templates.iter().flatten());
    let own: Vec<Value> = templates
        .map(|claim| {
            let name = claim.name_any();
            json!({"name": name, "persistentVolumeClaim": {"claimName": claim_name(set, &name, ordinal)}})
        })
        .collect();
    if !own.is_empty() {
        // A claim of the set goes before a volume of the same name.
        let others = spec["volumes"].as_array().cloned().unwrap_or_default();
        let others = others
            .into_iter()
            .filter(|volume| own.iter().all(|claim| claim["name"] != volume["name"]));
        spec["volumes"] = own.iter().cloned().chain(others).collect();
    }
    if spec["hostname"].is_null() {
        spec["hostname"] = name.as_str().into();
    }
    if let Some(service) = set
        .spec
        .as_ref()
        .and_then(|spec| spec.service_name.as_ref())
        && !service.is_empty()
    {
        spec["subdomain"] = service.as_str().into();
    }
    serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": metadata["annotations"],
            "ownerReferences": [set.controller_owner_ref(&())],
        },
        "spec": spec,
    }))
    .expect("a Pod of this form deserializes")
}

async fn write_status(
    workload: &Workload,
    set: &StatefulSet,
    pods: &BTreeMap<i32, Arc<Pod>>,
    revision: &str,
) -> Result<(), WorkError> {
    let live: Vec<&Arc<Pod>> = pods.values().filter(|pod| !is_deleting(&***pod)).collect();
    let ready = live.iter().filter(|pod| is_ready(pod)).count();
    let updated = live
        .iter()
        .filter(|pod| {
            pod.labels()
                .get(REVISION)
                .is_some_and(|made| made == revision)
        })
        .count();
    let before = set.status.as_ref();
    // The revision that all Pods had last stays the current one until they all have the new one.
    let current = match before.and_then(|status| status.current_revision.as_deref()) {
        Some(current) if updated < live.len() => current,
        _ => revision,
    };
    let of_current = live
        .iter()
        .filter(|pod| {
            pod.labels()
                .get(REVISION)
                .is_some_and(|made| made == current)
        })
        .count();
    let status = json!({
        "replicas": live.len(),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "updatedReplicas": updated,
        "currentReplicas": of_current,
        "currentRevision": current,
        "updateRevision": revision,
        "observedGeneration": set.metadata.generation,
    });
    let now = json!(set.status);
    let same = status
        .as_object()
        .into_iter()
        .flatten()
        .all(|(field, value)| now.get(field).unwrap_or(&json!(0)) == value);
    if same {
        return Ok(());
    }
    let api: Api<StatefulSet> = Api::namespaced(
        workload.client.clone(),
        &set.namespace().unwrap_or_default(),
    );
    let patch = json!({"status": status});
    match api
        .patch_status(
            &set.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
    {
        Ok(written) => workload.stateful_sets.absorb(written),
        Err(error) if moved_on(&error) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDERED: Wanted = Wanted {
        first: 0,
        replicas: 3,
        ordered: true,
        update_from: Some(0),
    };

    fn members(list: &[(i32, Stands)]) -> BTreeMap<i32, Member> {
        let member = |stands| Member {
            stands,
            current: true,
        };
        list.iter()
            .map(|(ordinal, stands)| (*ordinal, member(*stands)))
            .collect()
    }

    #[test]
    fn the_next_pod_is_made_once_those_before_it_are_ready() {
        use Stands::{Finished, Going, NotReady, Ready};
        for (have, then) in [
            (vec![], vec![Step::Create(0)]),
            (vec![(0, NotReady)], vec![]),
            (vec![(0, Ready)], vec![Step::Create(1)]),
            // A name is taken until its Pod is gone.
            (vec![(0, Going), (1, Ready), (2, Ready)], vec![]),
            (vec![(1, Ready), (2, Ready)], vec![Step::Create(0)]),
            (vec![(0, Finished), (1, Ready)], vec![Step::Delete(0)]),
            (vec![(0, Ready), (1, Ready), (2, Ready)], vec![]),
        ] {
            assert_eq!(steps(ORDERED, &members(&have)), then, "{have:?}");
        }
    }

    #[test]
    fn surplus_goes_from_the_end_one_at_a_time() {
        use Stands::{Going, NotReady, Ready};
        let wanted = Wanted {
            replicas: 1,
            ..ORDERED
        };
        let all = members(&[(0, Ready), (1, Ready), (2, Ready)]);
        assert_eq!(steps(wanted, &all), [Step::Delete(2)]);
        let going = members(&[(0, Ready), (1, Ready), (2, Going)]);
        assert_eq!(steps(wanted, &going), []);
        let shaky = members(&[(0, NotReady), (1, Ready)]);
        assert_eq!(steps(wanted, &shaky), []);
    }

    #[test]
    fn a_parallel_set_waits_for_nobody() {
        let wanted = Wanted {
            first: 5,
            ordered: false,
            ..ORDERED
        };
        let have = members(&[(0, Stands::Ready), (6, Stands::NotReady)]);
        assert_eq!(
            steps(wanted, &have),
            [Step::Create(5), Step::Create(7), Step::Delete(0)]
        );
    }

    #[test]
    fn a_new_template_is_followed_from_the_end_down_to_the_partition() {
        let mut have = members(&[(0, Stands::Ready), (1, Stands::Ready), (2, Stands::Ready)]);
        for member in have.values_mut() {
            member.current = false;
        }
        let upto = |update_from| Wanted {
            update_from,
            ..ORDERED
        };
        assert_eq!(steps(upto(Some(1)), &have), [Step::Delete(2)]);
        assert_eq!(steps(upto(None), &have), []);
        for ordinal in [1, 2] {
            have.insert(
                ordinal,
                Member {
                    stands: Stands::Ready,
                    current: true,
                },
            );
        }
        assert_eq!(steps(upto(Some(1)), &have), []);
        assert_eq!(steps(upto(Some(0)), &have), [Step::Delete(0)]);
    }

    #[test]
    fn a_pod_of_a_set_is_told_by_its_ordinal() {
        assert_eq!(ordinal_of("db", "db-10"), Some(10));
        assert_eq!(ordinal_of("db", "db-a-1"), None);
        assert_eq!(ordinal_of("db", "dbx-1"), None);
    }
}
