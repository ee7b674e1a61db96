//! Whatever is made, owned and deleted in whatever order: in the end nothing is left that should be gone, and nothing
//! is gone that should be left.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::write::tests::World;
use crate::write::{DeleteOptions, Propagation};

#[derive(Clone, Debug)]
enum Step {
    /// Object `name`, owned by those of `owners` that exist.
    Make {
        name: usize,
        owners: Vec<usize>,
        blocks: bool,
    },
    Delete {
        name: usize,
        with: Option<Propagation>,
    },
    /// Let the collectors work.
    Settle,
}

fn step() -> impl Strategy<Value = Step> {
    let with = prop_oneof![
        Just(None),
        Just(Some(Propagation::Background)),
        Just(Some(Propagation::Foreground)),
        Just(Some(Propagation::Orphan)),
    ];
    prop_oneof![
        4 => (0..8usize, prop::collection::vec(0..8usize, 0..3), any::<bool>())
            .prop_map(|(name, owners, blocks)| Step::Make { name, owners, blocks }),
        3 => (0..8usize, with).prop_map(|(name, with)| Step::Delete { name, with }),
        1 => Just(Step::Settle),
    ]
}

async fn settled() {
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
}

async fn run(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let world = World::new().await;
    let cancel = CancellationToken::new();
    super::spawn(world.0.clone(), cancel.clone());
    let _running = cancel.drop_guard();
    let name_of = |index: usize| format!("o{index}");
    for step in steps {
        match step {
            Step::Make {
                name,
                owners,
                blocks,
            } => {
                let owners: BTreeSet<usize> = owners.into_iter().collect();
                let references: Vec<Value> = owners
                    .into_iter()
                    .filter_map(|owner| world.get("configmaps", &name_of(owner)))
                    .map(|owner| {
                        json!({
                            "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"],
                            "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks,
                        })
                    })
                    .collect();
                let body =
                    json!({"metadata": {"name": name_of(name), "ownerReferences": references}});
                // It may be there already.
                drop(world.create("configmaps", body).await);
            }
            Step::Delete { name, with } => {
                let options = DeleteOptions {
                    propagation: with,
                    ..DeleteOptions::default()
                };
                drop(world.delete("configmaps", &name_of(name), options).await);
            }
            Step::Settle => settled().await,
        }
    }
    settled().await;
    let kind = world.kind("configmaps");
    let objects: BTreeMap<String, Value> = world
        .0
        .storage
        .list(&world.0.name, &kind.stored_as, None)
        .items
        .iter()
        .map(|stored| (stored.uid.to_string(), stored.value()))
        .collect();
    for object in objects.values() {
        prop_assert!(
            object["metadata"]["deletionTimestamp"].is_null(),
            "stuck: {object}"
        );
        let owners = object["metadata"]["ownerReferences"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        for owner in &owners {
            let uid = owner["uid"].as_str().unwrap_or("");
            prop_assert!(objects.contains_key(uid), "owner is gone: {object}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_story_ends_in_order(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(run(steps))?;
    }
}
