//! The simulated cloud does what any provider must.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::time::Duration;

use futures::future::BoxFuture;
use kube::api::{Api, Patch, PatchParams};
use kube::core::{DynamicObject, TypeMeta};
use muster_apiserver::{Host, Persistence};
use muster_clock::Clock;
use muster_informers::Key;
use muster_provider::GroupSpec;
use muster_provider::conformance::{self, Bench};
use muster_provider_sim::cloud::types::{self, CloudGroup};
use muster_provider_sim::cloud::{self, Cloud};
use muster_provider_sim::{console, workload};
use serde_json::json;
use tokio_util::sync::CancellationToken;

struct Simulation {
    cloud: Cloud,
    console: kube::Client,
    clock: Clock,
}

impl Bench for Simulation {
    type Provider = Cloud;

    fn provider(&self) -> &Cloud {
        &self.cloud
    }

    fn spec<'a>(&'a self, pool: &'a str) -> BoxFuture<'a, GroupSpec> {
        let mut object = DynamicObject {
            types: Some(TypeMeta::default()),
            metadata: Default::default(),
            data: json!({"spec": {"template": {"bootDuration": "2s", "terminationDuration": "1s"}}}),
        };
        object.metadata.name = Some(pool.to_owned());
        let spec = GroupSpec {
            pool: Key::new("default", pool),
            cluster: Key::new("default", "c"),
            object,
            version: Some("v1.37.2".to_owned()),
            bootstrap: Some("Secret/bootstrap".to_owned()),
            zones: ["a", "b", "c"].map(str::to_owned).to_vec(),
        };
        Box::pin(async move { spec })
    }

    fn changed<'a>(&'a self, spec: &'a GroupSpec) -> BoxFuture<'a, GroupSpec> {
        let mut changed = spec.clone();
        changed.object.data["spec"]["template"]["capacity"] = json!({"cpu": "8"});
        Box::pin(async move { changed })
    }

    fn moment(&self) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(Duration::from_millis(200)))
    }

    fn terminate_outside<'a>(&'a self, _: &'a Key, instance: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let now = self.clock.now();
            console::terminate(&self.console, instance, now)
                .await
                .unwrap();
        })
    }

    fn resize_outside<'a>(&'a self, pool: &'a Key, size: u32) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let groups: Api<CloudGroup> = Api::namespaced(self.console.clone(), &pool.namespace);
            let patch = Patch::Merge(json!({"spec": {"size": size}}));
            groups
                .patch(&pool.name, &PatchParams::default(), &patch)
                .await
                .unwrap();
        })
    }
}

#[tokio::test(start_paused = true)]
async fn the_simulated_cloud_keeps_every_rule_of_a_provider() {
    let clock = Clock::following_tokio("2026-01-01T00:00:00Z".parse().unwrap());
    let host = Host::open(Persistence::Memory, clock.clone())
        .await
        .unwrap();
    let console = host.cluster(cloud::CLUSTER).await.unwrap().client();
    types::install(&console).await.unwrap();
    host.cluster("default.c").await.unwrap();
    let stop = CancellationToken::new();
    let agents = workload::Agents::new(host, clock.clone(), stop.clone());
    agents.ensure_cluster("default.c");
    let cloud = Cloud::start(console.clone(), agents, clock.clone(), 11, stop.clone());
    let bench = Simulation {
        cloud,
        console,
        clock,
    };
    let broken = conformance::broken(&bench).await;
    stop.cancel();
    let told: Vec<String> = broken.iter().map(ToString::to_string).collect();
    assert!(told.is_empty(), "broken rules:\n{}", told.join("\n"));
}
