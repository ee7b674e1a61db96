//! The simulated cloud: it keeps groups at their size, and moves instances through their lives in time.
//!
//! What it does is level-triggered over its own API's objects, so that a crash between any two writes is made good by
//! the next pass.

pub mod group;
mod placement;
pub mod provider;
pub mod types;

use std::sync::{Arc, Mutex, PoisonError};

use kube::{Api, Client};
use muster_clock::Clock;
use muster_informers::{Index, Informer, Key, Options, Queue};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::workload::Agents;
use types::{CloudGroup, CloudInstance};

/// Name of the logical cluster that is the cloud's API.
pub const CLUSTER: &str = "sim-cloud";

/// The cloud; cheap to clone.
#[derive(Clone)]
pub struct Cloud(Arc<Inner>);

struct Inner {
    client: Client,
    groups: Informer<CloudGroup>,
    instances: Informer<CloudInstance>,
    instances_by_group: Index,
    agents: Agents,
    clock: Clock,
    queue: Queue<Key>,
    seed: u64,
    listeners: Mutex<Vec<mpsc::UnboundedSender<Key>>>,
}

impl Cloud {
    /// Starts the cloud over its API.
    pub fn start(
        client: Client,
        agents: Agents,
        clock: Clock,
        seed: u64,
        stop: CancellationToken,
    ) -> Self {
        let groups = Informer::builder(Api::<CloudGroup>::all(client.clone())).start();
        let mut builder = Informer::builder(Api::<CloudInstance>::all(client.clone()));
        let instances_by_group = builder.index(|instance| vec![instance.group_key().to_string()]);
        let instances = builder.start();
        let cloud = Self(Arc::new(Inner {
            client,
            groups,
            instances,
            instances_by_group,
            agents,
            clock,
            queue: Queue::default(),
            seed,
            listeners: Mutex::default(),
        }));
        tokio::spawn(cloud.clone().run(stop));
        cloud
    }

    async fn run(self, stop: CancellationToken) {
        let ready = async {
            self.0.groups.synced().await.is_ok() && self.0.instances.synced().await.is_ok()
        };
        tokio::select! {
            ready = ready => if !ready { return },
            () = stop.cancelled() => return,
        }
        let (mut groups, mut instances) = (self.0.groups.subscribe(), self.0.instances.subscribe());
        let feeder = self.clone();
        let feed = tokio::spawn(async move {
            loop {
                let key = tokio::select! {
                    Some(change) = groups.recv() => change.either().map(|group| Key::of(&**group)).next(),
                    Some(change) = instances.recv() => change.either().map(|instance| instance.group_key()).next(),
                    else => return,
                };
                if let Some(key) = key {
                    feeder.0.queue.add(key.clone());
                    feeder.tell(&key);
                }
            }
        });
        let cloud = self.clone();
        self.0
            .queue
            .run(Options::new("sim-cloud"), stop, move |key| {
                let cloud = cloud.clone();
                async move { group::pass(&cloud, &key).await }
            })
            .await;
        feed.abort();
    }

    fn tell(&self, key: &Key) {
        let mut listeners = self
            .0
            .listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| listener.send(key.clone()).is_ok());
    }

    fn listen(&self) -> mpsc::UnboundedReceiver<Key> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut listeners = self
            .0
            .listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        listeners.push(sender);
        receiver
    }

    fn groups(&self, namespace: &str) -> Api<CloudGroup> {
        Api::namespaced(self.0.client.clone(), namespace)
    }

    fn instances(&self, namespace: &str) -> Api<CloudInstance> {
        Api::namespaced(self.0.client.clone(), namespace)
    }

    fn instances_of(&self, group: &Key) -> Vec<Arc<CloudInstance>> {
        self.0
            .instances
            .by(self.0.instances_by_group, &group.to_string())
    }
}
