//! Requests to repairers outside, made from the template that a check names: one for each sick Machine, taken back when
//! it is healthy again.

use std::sync::Arc;

use kube::api::{DynamicObject, PostParams};
use kube::runtime::events::EventType;
use kube::{Api, Resource, ResourceExt};
use muster_api::health_check::RemediationTemplateReference;
use muster_api::{Machine, MachineHealthCheck, names, owners};
use muster_caches::{Management, in_namespace};
use muster_informers::{Key, Options, Requeue};
use muster_plan::health::request::{Request, Step, decide};
use muster_provider::deletion::by_uid;
use muster_provider::events::about;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::opinions::Handed;
use super::{Work, look};
use crate::objects::{Kind, Wanted, owner_key, resource};
use crate::{Context, PassError};

/// Works off the Machines whose requests are to be looked at.
pub(super) async fn run(context: Arc<Context>, stop: CancellationToken) {
    let queue = context.health.requests.clone();
    let options = Options::new("remediation-request");
    queue
        .run(options, stop, move |key| {
            let context = Arc::clone(&context);
            async move { pass(&context, &key).await }
        })
        .await;
}

async fn pass(context: &Context, key: &Key) -> Result<Requeue, PassError> {
    let Some(machine) = context.caches.machines.get(key) else {
        return Ok(Requeue::Never);
    };
    let value = in_namespace(&key.namespace, &machine.spec.cluster_name);
    let checks = context
        .caches
        .health_checks
        .by(context.caches.health_checks_by_cluster, &value);
    let mut handed = None;
    for check in &checks {
        if let Some(template) = template(check) {
            let found = one(context, check, template, &machine, key).await;
            handed = handed.or(found);
        }
    }
    let failed = match &handed {
        Some(Handed::NoTemplate(why) | Handed::Failed(why)) => Some(why.clone()),
        Some(Handed::Over) | None => None,
    };
    if context.health.hand(key, handed) {
        context.machines.add(key.clone());
    }
    match failed {
        Some(why) => Err(PassError::Blocked(why)),
        None => Ok(Requeue::Never),
    }
}

/// The template of requests that a check names.
pub(super) fn template(check: &MachineHealthCheck) -> Option<&RemediationTemplateReference> {
    check.spec.remediation.as_ref()?.template_ref.as_ref()
}

/// Has the requests of a check cached, so that it is known which Machines are handed over. Why they cannot be, if so.
pub(super) async fn learn(
    context: &Context,
    template: &RemediationTemplateReference,
) -> Result<Kind, String> {
    let wanted = wanted(template).ok_or_else(|| {
        format!(
            "kind {} of spec.remediation.templateRef does not end in Template, so the kind of its requests is not known",
            template.kind
        )
    })?;
    let key_of = |_: &Management, request: &DynamicObject| owner_key(request, "Machine");
    context
        .objects
        .kind(&wanted, &context.health.requests, key_of)
        .await
}

/// The kind of the requests: a template's without its ending. Source: Cluster API.
fn wanted(template: &RemediationTemplateReference) -> Option<Wanted> {
    let (group, version) = template.api_version.split_once('/')?;
    let kind = template.kind.strip_suffix("Template");
    Some(Wanted {
        group: group.to_owned(),
        kind: kind.filter(|kind| !kind.is_empty())?.to_owned(),
        version: Some(version.to_owned()),
    })
}

/// Whether a request for a Machine is there and not done, as far as requests of that kind are known.
pub(super) fn is_handed_over(
    context: &Context,
    check: &MachineHealthCheck,
    machine: &Machine,
) -> bool {
    let kind = template(check).and_then(|template| context.objects.known(&wanted(template)?));
    let request = kind.and_then(|kind| kind.get(&Key::of(machine)));
    request.is_some_and(|request| owners::is_owned_by(&*request, machine))
}

/// Makes or takes back what one check has to ask for about a Machine; how the Machine is with its repairer.
async fn one(
    context: &Context,
    check: &MachineHealthCheck,
    template: &RemediationTemplateReference,
    machine: &Machine,
    key: &Key,
) -> Option<Handed> {
    let kind = learn(context, template).await;
    let of = Key::of(check);
    if look(context, check, Some(machine), key) {
        context.health.queue.add(Work::Check(of.clone()));
    }
    let (found, may) = context.health.may_hand_over(&of, key)?;
    let kind = match kind {
        Ok(kind) => kind,
        Err(why) => return may.then_some(Handed::Failed(why)),
    };
    let written = kind.get(key);
    let ours = |request: &&Arc<DynamicObject>| owners::is_owned_by(&***request, machine);
    let request = match written.as_ref() {
        None => Request::None,
        Some(found) if found.metadata.deletion_timestamp.is_none() && ours(&found) => Request::Made,
        Some(_) => Request::NotOurs,
    };
    let is_over = written.as_ref().filter(ours).map(|_| Handed::Over);
    if context
        .caches
        .pause_of(check, &check.spec.cluster_name)
        .is_some()
    {
        return is_over;
    }
    match decide(&found.verdict, may, found.leaving, request) {
        Step::Leave => is_over,
        Step::Make => Some(make(context, &kind, check, template, machine).await),
        Step::TakeBack => match written {
            Some(request) => take_back(&kind, &request, machine).await,
            None => None,
        },
    }
}

/// Makes the request. One that is there already, though it was not seen yet, is as good.
async fn make(
    context: &Context,
    kind: &Kind,
    check: &MachineHealthCheck,
    template: &RemediationTemplateReference,
    machine: &Machine,
) -> Handed {
    let namespace = machine.namespace().unwrap_or_default();
    let (group, version) = template.api_version.split_once('/').unwrap_or_default();
    let templates = Api::<DynamicObject>::namespaced_with(
        context.client.clone(),
        &namespace,
        &resource(group, version, &template.kind),
    );
    let Some(read) = templates.get_opt(&template.name).await.transpose() else {
        return Handed::NoTemplate(format!(
            "MachineHealthCheck {} hands sick Machines over by {} {}, which does not exist in namespace {namespace}; create it or correct spec.remediation.templateRef",
            check.name_any(),
            template.kind,
            template.name
        ));
    };
    let told = |what: &str, why: &dyn std::fmt::Display| {
        format!("{what} {} {}: {why}", template.kind, template.name)
    };
    let read = match read {
        Ok(read) => read,
        Err(error) => return Handed::NoTemplate(told("reading", &error)),
    };
    let request = match filled(&read, template, machine) {
        Ok(request) => request,
        Err(why) => return Handed::Failed(told("filling in", &why)),
    };
    match kind
        .api(&namespace)
        .create(&PostParams::default(), &request)
        .await
    {
        Ok(made) => {
            let note = format!(
                "{} {} is made, by which MachineHealthCheck {} hands this Machine over to be repaired",
                made.types.as_ref().map_or("", |types| &types.kind),
                machine.name_any(),
                check.name_any()
            );
            kind.absorb(made);
            let reason = "RemediationRequested";
            context
                .events
                .say(&about(machine), EventType::Normal, reason, "Check", note)
                .await;
            Handed::Over
        }
        Err(kube::Error::Api(status)) if status.is_already_exists() => Handed::Over,
        Err(error) => Handed::Failed(told("making a request from", &error)),
    }
}

/// A request for a Machine, as its template has it. Source: Cluster API's way of making objects from templates.
fn filled(
    read: &DynamicObject,
    template: &RemediationTemplateReference,
    machine: &Machine,
) -> Result<DynamicObject, String> {
    let content = read.data.pointer("/spec/template");
    let content = content
        .and_then(Value::as_object)
        .ok_or("it has no spec.template")?;
    let given = |of: &str| -> Map<String, Value> {
        let at = content
            .get("metadata")
            .and_then(|metadata| metadata.get(of));
        at.and_then(Value::as_object).cloned().unwrap_or_default()
    };
    let (mut labels, mut annotations) = (given("labels"), given("annotations"));
    labels.insert(
        names::CLUSTER_NAME.to_string(),
        machine.spec.cluster_name.clone().into(),
    );
    let (group, _) = template.api_version.split_once('/').unwrap_or_default();
    annotations.insert(
        names::CLONED_FROM_NAME.to_string(),
        template.name.clone().into(),
    );
    annotations.insert(
        names::CLONED_FROM_GROUP_KIND.to_string(),
        format!("{}.{group}", template.kind).into(),
    );
    let mut request = content.clone();
    request.remove("status");
    let kind = template.kind.strip_suffix("Template");
    request.insert("kind".to_owned(), json!(kind.unwrap_or(&template.kind)));
    request.insert("apiVersion".to_owned(), json!(template.api_version));
    request.insert(
        "metadata".to_owned(),
        json!({
            "name": machine.name_any(),
            "namespace": machine.namespace(),
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner(machine)],
        }),
    );
    serde_json::from_value(request.into()).map_err(|error| error.to_string())
}

/// The Machine as the request's owner, not its controller. Source: Cluster API.
fn owner(machine: &Machine) -> Value {
    json!({
        "apiVersion": Machine::api_version(&()),
        "kind": Machine::kind(&()),
        "name": machine.name_any(),
        "uid": machine.uid(),
    })
}

/// Deletes the request of a Machine that is healthy again. Until the repairer lets go of it the Machine stays in its hands.
async fn take_back(kind: &Kind, request: &DynamicObject, machine: &Machine) -> Option<Handed> {
    let requests = kind.api(&machine.namespace().unwrap_or_default());
    match requests
        .delete(&machine.name_any(), &by_uid(request.uid()))
        .await
    {
        Ok(either::Either::Left(going)) => {
            kind.absorb(going);
            Some(Handed::Over)
        }
        Ok(either::Either::Right(_)) => None,
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => None,
        Err(error) => Some(Handed::Failed(format!("deleting the request: {error}"))),
    }
}
