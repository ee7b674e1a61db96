//! The kinds that every logical cluster serves.

use std::sync::{Arc, OnceLock};

use super::columns;
use super::kind::{
    ALL_VERBS, Column, Habits, Kind, ScalePaths, Selectable, StatusWrites, Subresources,
};
use super::schemas;
use super::strategies::{namespace, node, plain_kinds, pod, secret, volumes, workloads};
use super::strategy::{Plain, Strategy};
use crate::storage::ResourceName;

/// All built-in kinds, in discovery's order. They are the same in all logical clusters and made once.
pub fn kinds() -> &'static [Arc<Kind>] {
    static KINDS: OnceLock<Vec<Arc<Kind>>> = OnceLock::new();
    KINDS.get_or_init(|| {
        table()
            .into_iter()
            .map(|entry| Arc::new(entry.kind()))
            .collect()
    })
}

/// One row of the table below; methods refine it.
struct Entry {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
    short: &'static [&'static str],
    categories: &'static [&'static str],
    columns: fn() -> Vec<Column>,
    strategy: &'static dyn Strategy,
    subresources: Subresources,
    selectable: Vec<Selectable>,
    habits: Habits,
    stored_as: Option<(&'static str, &'static str, &'static str)>,
}

fn entry(
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    columns: fn() -> Vec<Column>,
) -> Entry {
    Entry {
        group,
        version: "v1",
        kind,
        plural,
        namespaced: true,
        short: &[],
        categories: &[],
        columns,
        strategy: &Plain,
        subresources: Subresources::default(),
        selectable: Vec::new(),
        habits: Habits::default(),
        stored_as: None,
    }
}

impl Entry {
    fn cluster_scoped(mut self) -> Self {
        self.namespaced = false;
        self
    }

    fn short(mut self, names: &'static [&'static str]) -> Self {
        self.short = names;
        self
    }

    fn in_all(mut self) -> Self {
        self.categories = &["all"];
        self
    }

    fn category(mut self, categories: &'static [&'static str]) -> Self {
        self.categories = categories;
        self
    }

    fn with(mut self, strategy: &'static dyn Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    fn status(mut self) -> Self {
        self.subresources.status = true;
        self
    }

    fn scale(mut self) -> Self {
        self.subresources.scale = Some(ScalePaths {
            spec: ".spec.replicas".to_owned(),
            status: ".status.replicas".to_owned(),
            selector: Some(".spec.selector".to_owned()),
        });
        self
    }

    fn others(mut self, names: &'static [&'static str]) -> Self {
        self.subresources.others = names;
        self
    }

    fn select(mut self, fields: &[(&str, &str, &'static str)]) -> Self {
        self.selectable = fields
            .iter()
            .map(|(label, path, default)| Selectable::labelled(label, path, default))
            .collect();
        self
    }

    fn generation(mut self) -> Self {
        self.habits.generation = true;
        self
    }

    fn conditional(mut self) -> Self {
        self.habits.unconditional_update = false;
        self
    }

    fn create_on_update(mut self) -> Self {
        self.habits.create_on_update = true;
        self
    }

    fn returns_deleted(mut self) -> Self {
        self.habits.returns_deleted = true;
        self
    }

    fn kind(self) -> Kind {
        let (group, plural, version) =
            self.stored_as
                .unwrap_or((self.group, self.plural, self.version));
        let verbs = ALL_VERBS;
        Kind {
            group: self.group.into(),
            version: self.version.into(),
            kind: self.kind.into(),
            list_kind: format!("{}List", self.kind).into(),
            plural: self.plural.into(),
            singular: self.kind.to_lowercase().into(),
            short_names: self.short.iter().map(|name| Arc::from(*name)).collect(),
            categories: self
                .categories
                .iter()
                .map(|name| Arc::from(*name))
                .collect(),
            namespaced: self.namespaced,
            served: true,
            deprecation: None,
            storage_version: version.into(),
            subresources: self.subresources,
            columns: (self.columns)(),
            verbs,
            selectable: self.selectable,
            schema: schemas::builtin(self.group, self.version, self.kind),
            strategy: self.strategy,
            habits: self.habits,
            custom: false,
            terminating: false,
            stored_as: ResourceName {
                group: group.into(),
                plural: plural.into(),
            },
        }
    }
}

const EVENT_FIELDS: &[(&str, &str, &str)] = &[
    ("involvedObject.kind", "involvedObject.kind", ""),
    ("involvedObject.namespace", "involvedObject.namespace", ""),
    ("involvedObject.name", "involvedObject.name", ""),
    ("involvedObject.uid", "involvedObject.uid", ""),
    ("involvedObject.apiVersion", "involvedObject.apiVersion", ""),
    (
        "involvedObject.resourceVersion",
        "involvedObject.resourceVersion",
        "",
    ),
    ("involvedObject.fieldPath", "involvedObject.fieldPath", ""),
    ("reason", "reason", ""),
    ("reportingComponent", "reportingComponent", ""),
    ("source", "source.component", ""),
    ("type", "type", ""),
    ("regarding.kind", "involvedObject.kind", ""),
    ("regarding.namespace", "involvedObject.namespace", ""),
    ("regarding.name", "involvedObject.name", ""),
    ("regarding.uid", "involvedObject.uid", ""),
    ("regarding.apiVersion", "involvedObject.apiVersion", ""),
    ("reportingController", "reportingComponent", ""),
];

const POD_FIELDS: &[(&str, &str, &str)] = &[
    ("spec.nodeName", "spec.nodeName", ""),
    ("spec.restartPolicy", "spec.restartPolicy", ""),
    ("spec.schedulerName", "spec.schedulerName", ""),
    ("spec.serviceAccountName", "spec.serviceAccountName", ""),
    ("spec.hostNetwork", "spec.hostNetwork", "false"),
    ("status.phase", "status.phase", ""),
    ("status.podIP", "status.podIP", ""),
    ("status.nominatedNodeName", "status.nominatedNodeName", ""),
];

#[rustfmt::skip]
fn table() -> Vec<Entry> {
    let mut definition = entry("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", columns::definitions)
        .cluster_scoped().with(&super::crd::Definitions).short(&["crd", "crds"]).category(&["api-extensions"]).status().generation().conditional();
    definition.habits.status_writes = StatusWrites::StatusOnly;
    let mut event = entry("events.k8s.io", "Event", "events", columns::events)
        .short(&["ev"]).with(&plain_kinds::Events).select(EVENT_FIELDS).create_on_update();
    // One storage for the events of both groups, in the core form.
    event.stored_as = Some(("", "events", "v1"));
    vec![
        entry("", "Namespace", "namespaces", columns::namespaces).cluster_scoped().short(&["ns"])
            .with(&namespace::Namespaces).status().others(&["finalize"])
            .select(&[("status.phase", "status.phase", "")]),
        entry("", "Secret", "secrets", columns::secrets).with(&secret::Secrets).select(&[("type", "type", "")]),
        entry("", "ConfigMap", "configmaps", columns::config_maps).short(&["cm"]).with(&secret::ConfigMaps),
        entry("", "Event", "events", columns::events).short(&["ev"]).with(&plain_kinds::Events)
            .select(EVENT_FIELDS).create_on_update(),
        entry("", "Node", "nodes", columns::nodes).cluster_scoped().short(&["no"]).with(&node::Nodes).status()
            .select(&[("spec.unschedulable", "spec.unschedulable", "false")]),
        entry("", "Pod", "pods", columns::pods).short(&["po"]).in_all().with(&pod::Pods).status()
            .others(&["binding", "eviction"]).select(POD_FIELDS).generation().returns_deleted(),
        entry("", "PersistentVolume", "persistentvolumes", columns::volumes).cluster_scoped().short(&["pv"])
            .with(&volumes::Volumes).status().returns_deleted(),
        entry("", "PersistentVolumeClaim", "persistentvolumeclaims", columns::claims).short(&["pvc"])
            .with(&volumes::Claims).status().returns_deleted(),
        entry("", "Service", "services", columns::services).short(&["svc"]).in_all()
            .with(&plain_kinds::Services).status().returns_deleted()
            .select(&[("spec.clusterIP", "spec.clusterIP", ""), ("spec.type", "spec.type", "")]),
        entry("", "ServiceAccount", "serviceaccounts", columns::service_accounts).short(&["sa"]).returns_deleted(),
        entry("apps", "Deployment", "deployments", columns::deployments).short(&["deploy"]).in_all()
            .with(&workloads::Workloads(workloads::Workload::Deployment)).status().scale().generation(),
        entry("apps", "ReplicaSet", "replicasets", columns::replica_sets).short(&["rs"]).in_all()
            .with(&workloads::Workloads(workloads::Workload::ReplicaSet)).status().scale().generation()
            .select(&[("status.replicas", "status.replicas", "0")]),
        entry("apps", "DaemonSet", "daemonsets", columns::daemon_sets).short(&["ds"]).in_all()
            .with(&workloads::Workloads(workloads::Workload::DaemonSet)).status().generation(),
        entry("apps", "StatefulSet", "statefulsets", columns::stateful_sets).short(&["sts"]).in_all()
            .with(&workloads::Workloads(workloads::Workload::StatefulSet)).status().scale().generation(),
        entry("apps", "ControllerRevision", "controllerrevisions", columns::revisions).with(&plain_kinds::Revisions),
        entry("batch", "Job", "jobs", columns::jobs).in_all().with(&workloads::Jobs).status().generation()
            .select(&[("status.successful", "status.succeeded", "0")]),
        entry("policy", "PodDisruptionBudget", "poddisruptionbudgets", columns::budgets).short(&["pdb"])
            .with(&plain_kinds::Budgets).status().generation().conditional(),
        entry("coordination.k8s.io", "Lease", "leases", columns::leases).with(&node::Leases)
            .conditional().create_on_update(),
        event,
        entry("scheduling.k8s.io", "PriorityClass", "priorityclasses", columns::priority_classes).cluster_scoped()
            .short(&["pc"]).with(&plain_kinds::PriorityClasses).generation(),
        entry("storage.k8s.io", "StorageClass", "storageclasses", columns::storage_classes).cluster_scoped()
            .short(&["sc"]).with(&volumes::StorageClasses).returns_deleted(),
        entry("storage.k8s.io", "VolumeAttachment", "volumeattachments", columns::attachments).cluster_scoped()
            .with(&volumes::Attachments).status().conditional().returns_deleted(),
        entry("storage.k8s.io", "CSINode", "csinodes", columns::csi_nodes).cluster_scoped()
            .conditional().returns_deleted(),
        definition,
    ]
}
