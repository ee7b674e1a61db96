//! Turns changes of everything that a pass looks at into keys of InfraMachinePools.

use std::fmt::Debug;
use std::sync::Arc;

use kube::{Resource, ResourceExt};
use muster_caches::in_namespace;
use muster_informers::{Informer, Key, Queue};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use super::{Context, members};
use crate::scale_group::ScaleGroup;

/// Starts the feeds; they end when they are aborted.
pub(super) fn start<S: ScaleGroup>(
    context: &Arc<Context<S>>,
    queue: &Queue<Key>,
) -> Vec<JoinHandle<()>> {
    let caches = &context.caches;
    let mut feeds = vec![
        each(&context.pools, queue, |object| vec![Key::of(object)]),
        {
            let context = Arc::clone(context);
            each(&context.machines.clone(), queue, move |machine| {
                let key = members::key_of(&context.caches, &context.kinds, machine);
                key.into_iter().collect()
            })
        },
        {
            let context = Arc::clone(context);
            each(&caches.pools, queue, move |pool| {
                let key = members::infra_key(&context.kinds, pool);
                key.into_iter().collect()
            })
        },
        {
            let context = Arc::clone(context);
            each(&caches.machines, queue, move |machine| {
                let pool = context.caches.pool_of(machine);
                let key = pool.and_then(|pool| members::infra_key(&context.kinds, &pool));
                key.into_iter().collect()
            })
        },
        {
            let context = Arc::clone(context);
            each(&caches.clusters, queue, move |cluster| {
                let pools = context.caches.pools.by(
                    context.caches.pools_by_cluster,
                    &in_namespace(
                        &cluster.namespace().unwrap_or_default(),
                        &cluster.name_any(),
                    ),
                );
                let keys = pools
                    .iter()
                    .filter_map(|pool| members::infra_key(&context.kinds, pool));
                keys.collect()
            })
        },
        {
            let context = Arc::clone(context);
            each(&caches.secrets, queue, move |secret| {
                let pools = context.caches.pools.by(
                    context.caches.pools_by_secret,
                    &in_namespace(&secret.namespace().unwrap_or_default(), &secret.name_any()),
                );
                let keys = pools
                    .iter()
                    .filter_map(|pool| members::infra_key(&context.kinds, pool));
                keys.collect()
            })
        },
    ];
    if let Some(mut news) = context.cloud.news() {
        let queue = queue.clone();
        feeds.push(tokio::spawn(async move {
            while let Some(key) = news.recv().await {
                queue.add(key);
            }
        }));
    }
    feeds
}

/// Puts the keys on the queue that a change of an object concerns, as it was and as it is.
fn each<K>(
    informer: &Informer<K>,
    queue: &Queue<Key>,
    keys: impl Fn(&K) -> Vec<Key> + Send + 'static,
) -> JoinHandle<()>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let (mut changes, queue) = (informer.subscribe(), queue.clone());
    tokio::spawn(async move {
        while let Some(change) = changes.recv().await {
            for object in change.either() {
                for key in keys(object) {
                    queue.add(key);
                }
            }
        }
    })
}
