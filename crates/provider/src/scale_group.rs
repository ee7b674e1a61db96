//! The trait that a provider implements, over the cloud's own group of instances.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::core::DynamicObject;
use muster_api::reference::MachineAddress;
use muster_informers::Key;
use tokio::sync::mpsc;

/// What a group is wanted to be.
#[derive(Clone, Debug)]
pub struct GroupSpec {
    /// The InfraMachinePool, which identifies the group.
    pub pool: Key,
    /// The Cluster it belongs to.
    pub cluster: Key,
    /// The InfraMachinePool as it is, for what only the provider knows of.
    pub object: DynamicObject,
    /// Kubernetes version of new instances.
    pub version: Option<String>,
    /// Which bootstrap object or Secret new instances boot with. An instance that was launched with another is out of
    /// date; what the Secret holds is no part of that.
    pub bootstrap: Option<String>,
    /// Zones to spread over.
    pub zones: Vec<String>,
}

/// What a group was observed to be.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// How many instances it keeps. Terminations that lower it are counted already.
    pub size: u32,
    /// Its instances, those that are being terminated included.
    pub instances: Vec<Instance>,
    /// What the cloud refuses at present, in words, such as a zone without capacity.
    pub trouble: Option<String>,
}

/// One instance of a group.
#[derive(Clone, Debug)]
pub struct Instance {
    /// The cloud's name of it.
    pub id: String,
    /// The same as its Node's `spec.providerID`.
    pub provider_id: String,
    /// The zone it is in.
    pub zone: String,
    /// Where it stands.
    pub state: InstanceState,
    /// Whether it was launched from the group's current template.
    pub up_to_date: bool,
    /// Its addresses.
    pub addresses: Vec<MachineAddress>,
    /// Whether the cloud may take it back at any time.
    pub interruptible: bool,
    /// When the cloud takes it back, once it has announced that.
    pub notice: Option<Timestamp>,
    /// What else of it the InfraMachine's status shows, by field.
    pub details: serde_json::Map<String, serde_json::Value>,
}

impl Instance {
    /// Whether it counts in the group's size: it is not on its way out.
    pub fn is_live(&self) -> bool {
        match self.state {
            InstanceState::Pending | InstanceState::Running => true,
            InstanceState::Leaving | InstanceState::Terminating => false,
        }
    }
}

/// What the next Node of a group will be like, for those who have to decide about a group that has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeShape {
    /// Room for Pods, by resource, as Kubernetes writes quantities.
    pub capacity: BTreeMap<String, String>,
    /// As in the label `kubernetes.io/arch`.
    pub architecture: String,
    /// As in the label `kubernetes.io/os`.
    pub operating_system: String,
}

/// Where an instance stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceState {
    /// It was launched and is not running yet.
    Pending,
    /// It runs.
    Running,
    /// The cloud terminates it and has lowered or kept the size already, but waits until it is told to go on, so that it can
    /// be drained. Being told to terminate it is what it waits for.
    Leaving,
    /// It is being terminated.
    Terminating,
}

impl InstanceState {
    /// As statuses show it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Leaving => "Leaving",
            Self::Terminating => "Terminating",
        }
    }
}

/// What a termination does to the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// The size stays, so the cloud launches another instance.
    Keep,
    /// The size goes down by one, in the same act.
    Lower,
}

/// Why the cloud did not do what was asked; each variant implies what to do.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProviderError {
    /// It is not there. For a deletion this is success.
    #[error("{what} does not exist")]
    NotFound {
        /// What was asked for.
        what: String,
    },
    /// Too much was asked of the cloud; ask again after this time.
    #[error("the cloud throttles requests")]
    Throttled {
        /// When to ask again.
        after: Duration,
    },
    /// What was asked for is not allowed or not possible; wait for somebody to change it.
    #[error("{why}")]
    Denied {
        /// What is wrong, and what to do.
        why: String,
    },
    /// Anything else; ask again with back-off.
    #[error("{0}")]
    Unknown(String),
}

/// A cloud's groups of instances. Every call may be repeated, and must then do no more than once.
pub trait ScaleGroup: Send + Sync + 'static {
    /// Kind of the InfraMachines that this provider has, one per instance.
    fn machine_kind(&self) -> &'static str;

    /// Whether single instances of this pool can be terminated; where not, only the size can be set.
    fn individual_deletion(&self, pool: &DynamicObject) -> bool;

    /// What the next Node of this pool will be like; nothing where the provider cannot know before there is one.
    fn node_shape(&self, _pool: &DynamicObject) -> Option<NodeShape> {
        None
    }

    /// Whether the pool only took on a group that was there before it: such a group brings its own size, needs no bootstrap
    /// data, and stays with its instances as they are when the pool goes.
    fn adopts(&self, _pool: &DynamicObject) -> bool {
        false
    }

    /// Makes the group, at size 0, or brings its template up to date.
    fn ensure<'a>(&'a self, spec: &'a GroupSpec) -> BoxFuture<'a, Result<(), ProviderError>>;

    /// What the group is; nothing when it does not exist.
    fn describe<'a>(&'a self, pool: &'a Key)
    -> BoxFuture<'a, Result<Option<Group>, ProviderError>>;

    /// Sets the size.
    fn set_size<'a>(&'a self, pool: &'a Key, size: u32)
    -> BoxFuture<'a, Result<(), ProviderError>>;

    /// Terminates one instance. One that is terminating or gone already is left as it is, the size included.
    fn terminate<'a>(
        &'a self,
        pool: &'a Key,
        instance: &'a str,
        size: Size,
    ) -> BoxFuture<'a, Result<(), ProviderError>>;

    /// Deletes the group; instances that are left in it are terminated.
    fn delete<'a>(&'a self, pool: &'a Key) -> BoxFuture<'a, Result<(), ProviderError>>;

    /// The pools whose groups change from now on. A provider without such news lets them be polled.
    fn news(&self) -> Option<mpsc::UnboundedReceiver<Key>> {
        None
    }
}
