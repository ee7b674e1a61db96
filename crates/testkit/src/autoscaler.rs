//! What Cluster Autoscaler asks of the two APIs through its `clusterapi` provider, request by request and in its order.
//!
//! Source of the order: the provider's node groups, scalable resources and controller. It decides nothing; a story says
//! what it is to do.

use std::collections::BTreeMap;

use anyhow::{Context, bail, ensure};
use http::Request;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use serde_json::{Value, json};

/// Where Machines and pools are. The provider takes the version that discovery prefers.
const GROUP: &str = "cluster.x-k8s.io";
/// Marks a Machine as the one to go.
const DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";
const MIN: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";
const MAX: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
const CAPACITY: &str = "capacity.cluster-autoscaler.kubernetes.io/";

/// How the scale subresource is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Releases up to 1.30 read the scale and put it back with another number.
    Put,
    /// Later ones patch the number alone.
    Patch,
}

/// The autoscaler; it has a client of each cluster, as with separate kubeconfigs.
pub struct Autoscaler {
    management: Client,
    workload: Client,
    version: String,
    dialect: Dialect,
}

/// A pool as the autoscaler sees it.
#[derive(Clone, Debug)]
pub struct NodeGroup {
    /// Namespace of the pool.
    pub namespace: String,
    /// Name of the pool.
    pub name: String,
    /// Its smallest size.
    pub min: i64,
    /// Its largest size.
    pub max: i64,
    /// Its size.
    pub target: i64,
    /// The instances that it believes to be there.
    pub provider_ids: Vec<String>,
    object: Value,
}

/// What it expects of a Node of a pool that has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    /// Room for Pods.
    pub capacity: BTreeMap<String, String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Taints, as `key=value:effect`.
    pub taints: Vec<String>,
    /// Architecture.
    pub architecture: String,
    /// Operating system.
    pub operating_system: String,
}

impl Autoscaler {
    /// Starts as the real one does: discovery, then lists of everything that it watches. It does not start without
    /// MachineSets.
    ///
    /// # Errors
    /// When something that it needs is not served.
    pub async fn start(
        management: Client,
        workload: Client,
        dialect: Dialect,
    ) -> anyhow::Result<Self> {
        let mut autoscaler = Self {
            management,
            workload,
            version: String::new(),
            dialect,
        };
        let groups = get(&autoscaler.management, "/apis").await?;
        let group = groups["groups"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|group| group["name"] == GROUP)
            .context("the group is not served")?;
        autoscaler.version = text(&group["preferredVersion"]["version"]);
        let served = get(
            &autoscaler.management,
            &format!("/apis/{GROUP}/{}", autoscaler.version),
        )
        .await?;
        let serves = |resource: &str| {
            let all = served["resources"].as_array().into_iter().flatten();
            all.into_iter().any(|known| known["name"] == resource)
        };
        ensure!(serves("machinepools"), "there are no MachinePools");
        for resource in ["machinesets", "machinepools", "machines"] {
            let path = format!("/apis/{GROUP}/{}/{resource}", autoscaler.version);
            get(&autoscaler.management, &path).await?;
        }
        autoscaler.nodes().await?;
        Ok(autoscaler)
    }

    /// The node groups: pools with both bounds, and of those with no machines only such as tell what a Node would be like.
    ///
    /// # Errors
    /// When a request fails, or a bound is no number.
    pub async fn node_groups(&self) -> anyhow::Result<Vec<NodeGroup>> {
        let path = format!("/apis/{GROUP}/{}/machinepools", self.version);
        let list = get(&self.management, &path).await?;
        let mut groups = Vec::new();
        for object in list["items"].as_array().into_iter().flatten() {
            let annotation = |key: &str| object["metadata"]["annotations"][key].as_str();
            let bound = |key: &str| annotation(key).unwrap_or("0").parse::<i64>();
            let (min, max) = (bound(MIN)?, bound(MAX)?);
            let group = NodeGroup {
                namespace: text(&object["metadata"]["namespace"]),
                name: text(&object["metadata"]["name"]),
                min,
                max,
                target: object["spec"]["replicas"].as_i64().context("no replicas")?,
                provider_ids: texts(&object["spec"]["providerIDList"]),
                object: object.clone(),
            };
            if group.target == 0 && self.template(&group).await?.is_none() {
                continue;
            }
            if max >= min && max != 0 {
                groups.push(group);
            }
        }
        Ok(groups)
    }

    /// The node group of that name.
    ///
    /// # Errors
    /// When there is none.
    pub async fn group(&self, name: &str) -> anyhow::Result<NodeGroup> {
        let all = self.node_groups().await?;
        let found = all.into_iter().find(|group| group.name == name);
        found.with_context(|| format!("{name} is no node group"))
    }

    /// What a Node of the group would be like; nothing when CPU and memory are not known, and then the group cannot grow
    /// from none. Annotations are over what the InfraMachinePool says.
    ///
    /// # Errors
    /// When a request fails.
    pub async fn template(&self, group: &NodeGroup) -> anyhow::Result<Option<Template>> {
        let mut template = Template {
            architecture: "amd64".to_owned(),
            operating_system: "linux".to_owned(),
            ..Template::default()
        };
        template.capacity.insert("pods".into(), "110".into());
        if let Some(infra) = self.infrastructure(group).await? {
            // A capacity of which one amount is not a string counts as none at all.
            let amounts = infra["status"]["capacity"].as_object();
            if let Some(amounts) = amounts.filter(|all| all.values().all(Value::is_string)) {
                for (resource, amount) in amounts {
                    template.capacity.insert(resource.clone(), text(amount));
                }
            }
            let told = |field: &str| infra["status"]["nodeInfo"][field].as_str();
            if let Some(architecture) = told("architecture") {
                architecture.clone_into(&mut template.architecture);
            }
            if let Some(system) = told("operatingSystem") {
                system.clone_into(&mut template.operating_system);
            }
        }
        let annotations = group.object["metadata"]["annotations"].as_object();
        let own = |key: &str| {
            let value = annotations.and_then(|all| all.get(&format!("{CAPACITY}{key}")));
            value.and_then(Value::as_str)
        };
        for (key, resource) in [
            ("cpu", "cpu"),
            ("memory", "memory"),
            ("ephemeral-disk", "ephemeral-storage"),
            ("maxPods", "pods"),
        ] {
            if let Some(amount) = own(key) {
                template.capacity.insert(resource.into(), amount.into());
            }
        }
        if let (Some(kind), Some(count)) = (own("gpu-type"), own("gpu-count")) {
            template.capacity.insert(kind.into(), count.into());
        }
        let of_template = &group.object["spec"]["template"];
        for (key, value) in of_template["metadata"]["labels"]
            .as_object()
            .into_iter()
            .flatten()
        {
            if is_synced(key) {
                template.labels.insert(key.clone(), text(value));
            }
        }
        let pairs = own("labels").unwrap_or_default().split(',');
        for (key, value) in pairs.filter_map(|pair| pair.split_once('=')) {
            template.labels.insert(key.into(), value.into());
        }
        for taint in of_template["spec"]["taints"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let part = |field: &str| text(&taint[field]);
            template.taints.push(format!(
                "{}={}:{}",
                part("key"),
                part("value"),
                part("effect")
            ));
        }
        let more = own("taints").unwrap_or_default().split(',');
        template
            .taints
            .extend(more.filter(|taint| !taint.is_empty()).map(str::to_owned));
        let knows = |resource: &str| template.capacity.contains_key(resource);
        Ok((knows("cpu") && knows("memory")).then_some(template))
    }

    /// The InfraMachinePool, found by the preferred version of its group and the plainest of plurals.
    async fn infrastructure(&self, group: &NodeGroup) -> anyhow::Result<Option<Value>> {
        let reference = &group.object["spec"]["template"]["spec"]["infrastructureRef"];
        let (api, kind) = (text(&reference["apiGroup"]), text(&reference["kind"]));
        let found = get(&self.management, &format!("/apis/{api}")).await?;
        let path = format!(
            "/apis/{api}/{}/namespaces/{}/{}s/{}",
            text(&found["preferredVersion"]["version"]),
            group.namespace,
            kind.to_lowercase(),
            text(&reference["name"]),
        );
        Ok(get(&self.management, &path).await.ok())
    }

    /// Asks for more.
    ///
    /// # Errors
    /// When that would be more than the largest size, or a request fails.
    pub async fn increase(&self, group: &NodeGroup, by: i64) -> anyhow::Result<()> {
        let size = self.replicas(group).await?;
        self.set_size(group, size + by).await
    }

    /// Takes back what was asked for and did not come; nobody has to go for that.
    ///
    /// # Errors
    /// When somebody would have to go, or a request fails.
    pub async fn decrease_target(&self, group: &NodeGroup, by: i64) -> anyhow::Result<()> {
        let size = self.replicas(group).await?;
        let have = self.group(&group.name).await?.provider_ids.len();
        ensure!(
            usize::try_from(size - by).is_ok_and(|wanted| wanted >= have),
            "attempt to delete existing nodes"
        );
        self.set_size(group, size - by).await
    }

    /// Removes Nodes, each by its Machine: mark, then a size of one less. Nodes that it only believes in, since their
    /// instance never registered, are removed in the same way, by the instance's ID.
    ///
    /// # Errors
    /// When the group would be smaller than its smallest size, a Node has no Machine, or a request fails.
    pub async fn delete_nodes(
        &self,
        group: &NodeGroup,
        provider_ids: &[String],
    ) -> anyhow::Result<()> {
        let mut size = self.replicas(group).await?;
        let fewer = i64::try_from(provider_ids.len())?;
        ensure!(size - fewer >= group.min, "min size reached");
        for id in provider_ids {
            let known = self.group(&group.name).await?.provider_ids;
            ensure!(known.contains(id), "{id} is not of this group");
            let Some(machine) = self.machine_of(id).await? else {
                bail!("unknown machine for node {id}");
            };
            if !machine["metadata"]["deletionTimestamp"].is_null() {
                continue;
            }
            self.mark(&machine, Some("2026-01-01 00:00:00 +0000 UTC"))
                .await?;
            if let Err(error) = self.set_size(group, size - 1).await {
                self.mark(&machine, None).await?;
                return Err(error);
            }
            size -= 1;
        }
        Ok(())
    }

    /// The Machine of an instance, found by `spec.providerID` in all namespaces: it has to be the only one.
    ///
    /// # Errors
    /// When there are several.
    pub async fn machine_of(&self, provider_id: &str) -> anyhow::Result<Option<Value>> {
        let path = format!("/apis/{GROUP}/{}/machines", self.version);
        let list = get(&self.management, &path).await?;
        let all = list["items"].as_array().cloned().unwrap_or_default();
        let mut found = all
            .into_iter()
            .filter(|machine| machine["spec"]["providerID"] == provider_id);
        let first = found.next();
        ensure!(
            found.next().is_none(),
            "several machines have {provider_id}"
        );
        Ok(first)
    }

    /// The Nodes of the workload cluster.
    ///
    /// # Errors
    /// When the request fails.
    pub async fn nodes(&self) -> anyhow::Result<Vec<Node>> {
        let list = get(&self.workload, "/api/v1/nodes").await?;
        Ok(serde_json::from_value(list["items"].clone())?)
    }

    /// Puts a mark on a Machine, or takes it away: the whole object is read and put back.
    ///
    /// # Errors
    /// When a request fails.
    pub async fn mark(&self, machine: &Value, mark: Option<&str>) -> anyhow::Result<()> {
        let path = format!(
            "/apis/{GROUP}/{}/namespaces/{}/machines/{}",
            self.version,
            text(&machine["metadata"]["namespace"]),
            text(&machine["metadata"]["name"]),
        );
        let mut fresh = get(&self.management, &path).await?;
        let annotations = &mut fresh["metadata"]["annotations"];
        match mark {
            Some(mark) => annotations[DELETE_MACHINE] = json!(mark),
            None => {
                if let Some(all) = annotations.as_object_mut() {
                    all.remove(DELETE_MACHINE);
                }
            }
        }
        send(&self.management, "PUT", &path, "application/json", &fresh).await?;
        Ok(())
    }

    /// The size, from the scale subresource.
    ///
    /// # Errors
    /// When the request fails.
    pub async fn replicas(&self, group: &NodeGroup) -> anyhow::Result<i64> {
        let scale = get(&self.management, &self.scale_path(group)).await?;
        scale["spec"]["replicas"].as_i64().context("no replicas")
    }

    /// Writes the size, within the bounds.
    ///
    /// # Errors
    /// When it is outside of them, or a request fails.
    pub async fn set_size(&self, group: &NodeGroup, size: i64) -> anyhow::Result<()> {
        ensure!(size <= group.max, "size increase too large");
        ensure!(size >= group.min, "size decrease too large");
        let path = self.scale_path(group);
        match self.dialect {
            Dialect::Put => {
                let mut scale = get(&self.management, &path).await?;
                scale["spec"]["replicas"] = json!(size);
                send(&self.management, "PUT", &path, "application/json", &scale).await?;
            }
            Dialect::Patch => {
                let patch = json!({"spec": {"replicas": size}});
                let form = "application/merge-patch+json";
                send(&self.management, "PATCH", &path, form, &patch).await?;
            }
        }
        Ok(())
    }

    fn scale_path(&self, group: &NodeGroup) -> String {
        format!(
            "/apis/{GROUP}/{}/namespaces/{}/machinepools/{}/scale",
            self.version, group.namespace, group.name
        )
    }
}

/// Whether a label of the pool's template reaches its Nodes. Source: Cluster API.
fn is_synced(label: &str) -> bool {
    let domain = label.split_once('/').map_or("", |(domain, _)| domain);
    let below = |of: &str| domain == of || domain.ends_with(&format!(".{of}"));
    domain == "node-role.kubernetes.io"
        || below("node-restriction.kubernetes.io")
        || below("node.cluster.x-k8s.io")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}

async fn get(client: &Client, path: &str) -> anyhow::Result<Value> {
    let request = Request::get(path).body(Vec::new())?;
    Ok(client.request(request).await?)
}

async fn send(
    client: &Client,
    method: &str,
    path: &str,
    form: &str,
    body: &Value,
) -> anyhow::Result<Value> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", form)
        .body(serde_json::to_vec(body)?)?;
    Ok(client.request(request).await?)
}
