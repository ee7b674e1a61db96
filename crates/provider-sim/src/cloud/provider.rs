//! The simulated cloud as a provider of scale groups.

use std::collections::BTreeSet;

use futures::future::BoxFuture;
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use kube::core::DynamicObject;
use muster_api::reference::{AddressType, MachineAddress};
use muster_api::sim::SimTemplate;
use muster_informers::Key;
use muster_provider::{
    Group, GroupSpec, Instance, InstanceState, NodeShape, ProviderError, ScaleGroup, Size,
};
use tokio::sync::mpsc;

use super::types::{CloudGroup, CloudGroupSpec, Template};
use super::{Cloud, group};
use crate::cluster::logical_name;
use crate::workload::{ARCHITECTURE, OPERATING_SYSTEM};

fn unknown(error: &kube::Error) -> ProviderError {
    ProviderError::Unknown(error.to_string())
}

impl Cloud {
    /// Changes the group's spec from what it is now, again when somebody else changed it meanwhile.
    async fn change(
        &self,
        key: &Key,
        change: impl Fn(&CloudGroup) -> Option<CloudGroupSpec> + Send,
    ) -> Result<(), ProviderError> {
        let api = self.groups(&key.namespace);
        loop {
            let Some(current) = api.get_opt(&key.name).await.map_err(|e| unknown(&e))? else {
                return Err(ProviderError::NotFound {
                    what: format!("scale group {key}"),
                });
            };
            let Some(spec) = change(&current) else {
                return Ok(());
            };
            let next = CloudGroup { spec, ..current };
            match api.replace(&key.name, &PostParams::default(), &next).await {
                Ok(written) => {
                    self.0.groups.absorb(written);
                    return Ok(());
                }
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                Err(error) => return Err(unknown(&error)),
            }
        }
    }
}

impl ScaleGroup for Cloud {
    fn machine_kind(&self) -> &'static str {
        "SimMachine"
    }

    fn individual_deletion(&self, pool: &DynamicObject) -> bool {
        pool.data["spec"]["individualDeletion"]
            .as_bool()
            .unwrap_or(true)
    }

    fn node_shape(&self, pool: &DynamicObject) -> Option<NodeShape> {
        let template = template_of(pool).ok()?;
        Some(NodeShape {
            capacity: template.node_capacity(),
            architecture: ARCHITECTURE.to_owned(),
            operating_system: OPERATING_SYSTEM.to_owned(),
        })
    }

    fn ensure<'a>(&'a self, spec: &'a GroupSpec) -> BoxFuture<'a, Result<(), ProviderError>> {
        Box::pin(async move {
            let machine = template_of(&spec.object).map_err(|error| ProviderError::Denied {
                why: format!(
                    "spec.template of SimMachinePool {} cannot be read: {error}",
                    spec.pool.name
                ),
            })?;
            let template = Template {
                version: spec.version.clone(),
                bootstrap: spec.bootstrap.clone(),
                machine,
            };
            if let Some(group) = self.0.groups.get(&spec.pool) {
                if group.spec.template.means(&template) && group.spec.zones == spec.zones {
                    return Ok(());
                }
                return self
                    .change(&spec.pool, |group| {
                        Some(CloudGroupSpec {
                            template: template.clone(),
                            zones: spec.zones.clone(),
                            ..group.spec.clone()
                        })
                    })
                    .await;
            }
            if spec.zones.is_empty() {
                return Err(ProviderError::Denied {
                    why: "there is no zone to launch in; name zones in the SimCluster's spec.failureDomains".to_owned(),
                });
            }
            let group_spec = CloudGroupSpec {
                cluster: logical_name(&spec.cluster),
                size: 0,
                counted: BTreeSet::new(),
                zones: spec.zones.clone(),
                capacity: std::collections::BTreeMap::new(),
                template,
            };
            let mut group = CloudGroup::new(&spec.pool.name, group_spec);
            group.metadata.namespace = Some(spec.pool.namespace.clone());
            self.0
                .agents
                .ensure_namespace(&self.0.client, &spec.pool.namespace)
                .await
                .map_err(|e| unknown(&e))?;
            match self
                .groups(&spec.pool.namespace)
                .create(&PostParams::default(), &group)
                .await
            {
                Ok(created) => {
                    self.0.groups.absorb(created);
                    Ok(())
                }
                Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
                Err(error) => Err(unknown(&error)),
            }
        })
    }

    fn describe<'a>(
        &'a self,
        pool: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Group>, ProviderError>> {
        Box::pin(async move {
            let instances = self.instances_of(pool);
            let Some(group) = self.0.groups.get(pool) else {
                if instances.is_empty() {
                    return Ok(None);
                }
                let instances = instances.iter().map(|i| describe(i, None)).collect();
                return Ok(Some(Group {
                    size: 0,
                    instances,
                    trouble: None,
                }));
            };
            Ok(Some(Group {
                size: group::effective_size(&group, &instances),
                trouble: group::trouble(&group, &instances),
                instances: instances
                    .iter()
                    .map(|i| describe(i, Some(&group)))
                    .collect(),
            }))
        })
    }

    fn set_size<'a>(
        &'a self,
        pool: &'a Key,
        size: u32,
    ) -> BoxFuture<'a, Result<(), ProviderError>> {
        Box::pin(async move {
            self.change(pool, |group| {
                let instances = self.instances_of(pool);
                // Terminations up to now are in the size that is set.
                let counted: BTreeSet<String> = group
                    .spec
                    .counted
                    .iter()
                    .cloned()
                    .chain(group::uncounted(group, &instances).map(|instance| instance.name_any()))
                    .collect();
                Some(CloudGroupSpec {
                    size,
                    counted,
                    ..group.spec.clone()
                })
            })
            .await
        })
    }

    fn terminate<'a>(
        &'a self,
        pool: &'a Key,
        instance: &'a str,
        size: Size,
    ) -> BoxFuture<'a, Result<(), ProviderError>> {
        Box::pin(async move {
            let key = Key::new(&pool.namespace, instance);
            let Some(found) = self.0.instances.get(&key) else {
                return Ok(());
            };
            group::terminate(self, &found, size == Size::Lower, self.0.clock.now())
                .await
                .map_err(|error| unknown(&error))
        })
    }

    fn delete<'a>(&'a self, pool: &'a Key) -> BoxFuture<'a, Result<(), ProviderError>> {
        Box::pin(async move {
            match self
                .groups(&pool.namespace)
                .delete(&pool.name, &DeleteParams::default())
                .await
            {
                Ok(_) => Ok(()),
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                Err(error) => Err(unknown(&error)),
            }
        })
    }

    fn news(&self) -> Option<mpsc::UnboundedReceiver<Key>> {
        Some(self.listen())
    }
}

/// What a pool's instances are launched from.
fn template_of(pool: &DynamicObject) -> Result<SimTemplate, serde_json::Error> {
    match pool.data["spec"].get("template") {
        None => Ok(SimTemplate::default()),
        Some(template) => serde_json::from_value(template.clone()),
    }
}

fn describe(instance: &super::CloudInstance, group: Option<&CloudGroup>) -> Instance {
    let id = instance.name_any();
    let state = match (instance.is_terminating(), instance.is_running()) {
        (true, _) => InstanceState::Terminating,
        (false, true) => InstanceState::Running,
        (false, false) => InstanceState::Pending,
    };
    Instance {
        provider_id: instance.provider_id(),
        zone: instance.spec.zone.clone(),
        up_to_date: group.is_none_or(|group| group.spec.template.means(&instance.spec.template)),
        addresses: addresses(&id),
        details: serde_json::Map::new(),
        interruptible: instance.spec.interruption.is_some(),
        notice: instance.spec.interruption.as_ref().map(|time| time.0),
        id,
        state,
    }
}

/// The addresses of an instance: derived from its ID, so that Node and InfraMachine agree.
pub fn addresses(id: &str) -> Vec<MachineAddress> {
    let hash = id.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let [_, b, c, d] = hash.to_be_bytes();
    vec![
        MachineAddress {
            type_: AddressType::InternalIP,
            address: format!("10.{b}.{c}.{d}"),
        },
        MachineAddress {
            type_: AddressType::Hostname,
            address: id.to_owned(),
        },
    ]
}
