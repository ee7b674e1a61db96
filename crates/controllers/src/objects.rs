//! Objects whose kind is a provider's own: infrastructure and bootstrap.
//!
//! The API version of a kind is found through the contract labels of its CustomResourceDefinition. Each kind is cached
//! from its first use on, and its changes are told to whoever asked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, ListParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use muster_api::reference::ContractReference;
use muster_api::{contract, names};
use muster_caches::{Management, in_namespace};
use muster_informers::{Index, Informer, Key, Queue};

/// What became of a look at a provider's object.
pub enum Found {
    /// It is there.
    Here(Arc<DynamicObject>),
    /// There is none of that name.
    Missing,
    /// Its kind cannot be used; the sentence says why and what to do.
    Unusable(String),
}

/// Caches of providers' kinds; cheap to clone.
#[derive(Clone)]
pub struct Objects(Arc<Inner>);

struct Inner {
    client: Client,
    caches: Management,
    kinds: Mutex<HashMap<Wanted, Kind>>,
}

/// A kind, by whatever a reference says of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// API group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// API version; none: the one that satisfies Cluster API's contract.
    pub version: Option<String>,
}

impl From<&ContractReference> for Wanted {
    fn from(reference: &ContractReference) -> Self {
        Self {
            group: reference.api_group.clone(),
            kind: reference.kind.clone(),
            version: None,
        }
    }
}

/// A kind in use; cheap to clone.
#[derive(Clone)]
pub struct Kind {
    client: Client,
    resource: ApiResource,
    cache: Informer<DynamicObject>,
    /// Objects by [`in_namespace`] of their pool's label.
    by_pool: Index,
    /// The queues that are told of changes.
    told: Arc<Mutex<Vec<Queue<Key>>>>,
}

impl Kind {
    /// The object of that key.
    pub fn get(&self, key: &Key) -> Option<Arc<DynamicObject>> {
        self.cache.get(key)
    }

    /// The API of the kind.
    pub fn api(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &self.resource)
    }

    /// Takes over what the API answered to a write.
    pub fn absorb(&self, object: DynamicObject) {
        self.cache.absorb(object);
    }

    /// Tells a queue of changes from now on, unless it is told already: several reconcilers look at one kind.
    fn tell(&self, caches: &Management, queue: &Queue<Key>, key_of: KeyOf) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.iter().any(|known| known.is(queue)) {
            return;
        }
        told.push(queue.clone());
        let (mut changes, queue) = (self.cache.subscribe(), queue.clone());
        let caches = caches.clone();
        tokio::spawn(async move {
            while let Some(change) = changes.recv().await {
                change
                    .either()
                    .filter_map(|object| key_of(&caches, object))
                    .for_each(|key| queue.add(key));
            }
        });
    }
}

/// How a change of a provider's object becomes a key to reconcile.
pub type KeyOf = fn(&Management, &DynamicObject) -> Option<Key>;

impl Objects {
    /// No kinds yet.
    pub fn new(client: Client, caches: Management) -> Self {
        Self(Arc::new(Inner {
            client,
            caches,
            kinds: Mutex::default(),
        }))
    }

    /// A kind, once it is known.
    pub fn known(&self, wanted: &Wanted) -> Option<Kind> {
        let kinds = self.0.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.get(wanted).cloned()
    }

    /// A kind; cached from now on, its changes put on `queue`.
    ///
    /// # Errors
    /// When it cannot be used; the sentence says why and what to do.
    pub async fn kind(
        &self,
        wanted: &Wanted,
        queue: &Queue<Key>,
        key_of: KeyOf,
    ) -> Result<Kind, String> {
        let kind = match self.known(wanted) {
            Some(kind) => kind,
            None => self.learn(wanted).await?,
        };
        kind.tell(&self.0.caches, queue, key_of);
        // Also where somebody else just began with it: in a cache that is not complete yet, what is there looks missing.
        kind.cache
            .synced()
            .await
            .map_err(|error| error.to_string())?;
        Ok(kind)
    }

    async fn learn(&self, wanted: &Wanted) -> Result<Kind, String> {
        let plural = plural(&wanted.kind);
        let name = format!("{plural}.{}", wanted.group);
        let crds: Api<CustomResourceDefinition> = Api::all(self.0.client.clone());
        let found = crds
            .get_metadata_opt(&name)
            .await
            .map_err(|error| format!("reading CustomResourceDefinition {name}: {error}"))?;
        let Some(crd) = found else {
            return Err(format!(
                "kind {} of group {} does not exist: there is no CustomResourceDefinition {name}; install its provider or correct the reference",
                wanted.kind, wanted.group
            ));
        };
        let by_contract = || contract::api_version(crd.labels());
        let Some(version) = wanted.version.clone().or_else(by_contract) else {
            return Err(format!(
                "CustomResourceDefinition {name} has none of the labels cluster.x-k8s.io/v1beta2 and cluster.x-k8s.io/v1beta1 that name the API versions which satisfy Cluster API's contract"
            ));
        };
        let resource = resource(&wanted.group, &version, &wanted.kind);
        if wanted.version.is_some() {
            // Nobody vouches for a version that a reference gives.
            let all = Api::<DynamicObject>::all_with(self.0.client.clone(), &resource);
            let first = all.list_metadata(&ListParams::default().limit(1)).await;
            first.map_err(|error| {
                let at = &resource.api_version;
                format!("kind {} cannot be listed at {at}: {error}", wanted.kind)
            })?;
        }
        let mut builder = Informer::builder(Api::<DynamicObject>::all_with(
            self.0.client.clone(),
            &resource,
        ));
        let by_pool = builder.index(|object: &DynamicObject| {
            let namespace = object.namespace().unwrap_or_default();
            let pool = names::POOL_NAME.text(object);
            pool.map(|pool| in_namespace(&namespace, pool))
                .into_iter()
                .collect()
        });
        let cache = builder.start();
        let mut kinds = self.0.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever was first keeps its cache.
        let kind = kinds.entry(wanted.clone()).or_insert_with(|| Kind {
            client: self.0.client.clone(),
            resource,
            cache,
            by_pool,
            told: Arc::default(),
        });
        Ok(kind.clone())
    }

    /// The object that a reference names.
    pub async fn get(
        &self,
        namespace: &str,
        reference: &ContractReference,
        queue: &Queue<Key>,
        key_of: KeyOf,
    ) -> Found {
        match self.kind(&reference.into(), queue, key_of).await {
            Err(why) => Found::Unusable(why),
            Ok(kind) => match kind.cache.get(&Key::new(namespace, &reference.name)) {
                Some(object) => Found::Here(object),
                None => Found::Missing,
            },
        }
    }

    /// All objects of a kind in a namespace that belong to a pool, by their label.
    pub async fn of_pool(
        &self,
        namespace: &str,
        reference: &ContractReference,
        pool: &str,
        queue: &Queue<Key>,
        key_of: KeyOf,
    ) -> Result<Vec<Arc<DynamicObject>>, String> {
        let kind = self.kind(&reference.into(), queue, key_of).await?;
        let value = in_namespace(namespace, &names::pool_label(pool));
        Ok(kind.cache.by(kind.by_pool, &value))
    }

    /// The object that a reference names, as far as its kind is cached.
    pub fn cached(
        &self,
        namespace: &str,
        reference: &ContractReference,
    ) -> Option<Arc<DynamicObject>> {
        let kind = self.known(&reference.into())?;
        kind.get(&Key::new(namespace, &reference.name))
    }

    /// The API of a reference's kind, once it is known.
    pub fn api(
        &self,
        namespace: &str,
        reference: &ContractReference,
    ) -> Option<Api<DynamicObject>> {
        Some(self.known(&reference.into())?.api(namespace))
    }

    /// The group and version that a kind is used at, once it is known.
    pub fn api_version(&self, reference: &ContractReference) -> Option<String> {
        Some(self.known(&reference.into())?.resource.api_version)
    }

    /// Takes over what the API answered to a write.
    pub fn absorb(&self, reference: &ContractReference, object: DynamicObject) {
        if let Some(kind) = self.known(&reference.into()) {
            kind.absorb(object);
        }
    }
}

/// A kind of a provider at that version.
pub fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    let gvk = GroupVersionKind::gvk(group, version, kind);
    ApiResource::from_gvk_with_plural(&gvk, &plural(kind))
}

/// The plural as CRDs of providers have it: clients compute it. Source: Cluster API.
fn plural(kind: &str) -> String {
    let lower = kind.to_lowercase();
    match lower.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies"),
        _ if lower.ends_with('s')
            || lower.ends_with('x')
            || lower.ends_with("ch")
            || lower.ends_with("sh") =>
        {
            format!("{lower}es")
        }
        _ => format!("{lower}s"),
    }
}

/// The key of the owner of that kind.
pub fn owner_key(object: &DynamicObject, kind: &str) -> Option<Key> {
    let owner = object
        .owner_references()
        .iter()
        .find(|owner| owner.kind == kind)?;
    Some(Key::new(
        object.namespace().unwrap_or_default(),
        &owner.name,
    ))
}
