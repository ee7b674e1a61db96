//! Applying manifests: all are checked before the first is applied, so that a mistake disturbs nothing.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use kube::api::{Api, ApiResource, Patch, PatchParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::{ApiCapabilities, Scope, pinned_kind};
use kube::{Client, ResourceExt};

/// One object of a manifest.
pub struct Document {
    /// Where it comes from, for messages.
    place: String,
    object: DynamicObject,
}

/// Reads manifests; a file may hold several documents.
pub fn read(path: &Path) -> anyhow::Result<Vec<Document>> {
    let (name, text) = if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("reading standard input")?;
        ("standard input".to_owned(), text)
    } else {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        (path.display().to_string(), text)
    };
    parse(&name, &text)
}

fn parse(name: &str, text: &str) -> anyhow::Result<Vec<Document>> {
    let mut documents = Vec::new();
    for (index, part) in split(text).into_iter().enumerate() {
        let place = format!("{name}, document {}", index + 1);
        let value: serde_json::Value = serde_saphyr::from_str(&part).map_err(|error| {
            anyhow!(
                "{place} is not valid YAML: {}",
                one_line(&error.to_string())
            )
        })?;
        if value.is_null() {
            continue;
        }
        for (field, example) in [("apiVersion", "v1"), ("kind", "ConfigMap")] {
            if !value[field].is_string() {
                bail!(
                    "{place} has no {field}; every object names it, for example `{field}: {example}`"
                );
            }
        }
        let object: DynamicObject = serde_json::from_value(value)
            .map_err(|error| anyhow!("{place} is not a Kubernetes object: {error}"))?;
        if object.name_any().is_empty() {
            bail!("{place} has no metadata.name");
        }
        documents.push(Document { place, object });
    }
    Ok(documents)
}

/// The first line of a parser's message; the others draw the place.
fn one_line(text: &str) -> &str {
    text.lines()
        .next()
        .unwrap_or_default()
        .trim_start_matches("error: ")
}

/// The documents of a YAML stream.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for line in text.lines() {
        if line == "---" || line.starts_with("--- ") {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push_str(line);
            part.push('\n');
        }
    }
    let only_comments = |part: &String| {
        part.lines()
            .all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
    };
    parts.retain(|part| !only_comments(part));
    parts
}

/// Applies documents on the server side, Namespaces and definitions first; a refusal of any, asked for beforehand, applies
/// none.
pub async fn all(
    client: &Client,
    documents: Vec<Document>,
    namespace: &str,
) -> anyhow::Result<Vec<String>> {
    let mut documents = documents;
    documents.sort_by_key(|document| match kind(&document.object) {
        "Namespace" => 0,
        "CustomResourceDefinition" => 1,
        _ => 2,
    });
    let mut kinds: HashMap<GroupVersionKind, (ApiResource, ApiCapabilities)> = HashMap::new();
    let ground = Ground::of(&documents);
    for document in documents
        .iter()
        .filter(|document| !ground.carries(&document.object))
    {
        one(client, &mut kinds, document, namespace, true).await?;
    }
    let mut done = Vec::new();
    for document in &documents {
        done.push(one(client, &mut kinds, document, namespace, false).await?);
    }
    Ok(done)
}

/// Namespaces and kinds that a manifest makes: what stands on them cannot be asked about before they are there.
struct Ground {
    namespaces: Vec<String>,
    kinds: Vec<String>,
}

impl Ground {
    fn of(documents: &[Document]) -> Self {
        let made = |wanted: &'static str| {
            documents
                .iter()
                .map(|d| &d.object)
                .filter(move |o| kind(o) == wanted)
        };
        Self {
            namespaces: made("Namespace").map(ResourceExt::name_any).collect(),
            kinds: made("CustomResourceDefinition")
                .filter_map(|crd| {
                    crd.data["spec"]["names"]["kind"]
                        .as_str()
                        .map(str::to_owned)
                })
                .collect(),
        }
    }

    fn carries(&self, object: &DynamicObject) -> bool {
        self.kinds.iter().any(|made| made == kind(object))
            || object
                .namespace()
                .is_some_and(|namespace| self.namespaces.contains(&namespace))
    }
}

fn kind(object: &DynamicObject) -> &str {
    object
        .types
        .as_ref()
        .map_or("", |types| types.kind.as_str())
}

async fn one(
    client: &Client,
    kinds: &mut HashMap<GroupVersionKind, (ApiResource, ApiCapabilities)>,
    document: &Document,
    namespace: &str,
    dry_run: bool,
) -> anyhow::Result<String> {
    let types = document.object.types.clone().unwrap_or_default();
    let gvk = GroupVersionKind::try_from(&types)
        .map_err(|error| anyhow!("{}: {error}", document.place))?;
    if !kinds.contains_key(&gvk) {
        let found = pinned_kind(client, &gvk).await.map_err(|_| {
            anyhow!(
                "{}: {} cannot be applied: the server has no kind {} in version {}",
                document.place,
                document.object.name_any(),
                types.kind,
                types.api_version
            )
        })?;
        kinds.insert(gvk.clone(), found);
    }
    let (resource, capabilities) = &kinds[&gvk];
    let name = document.object.name_any();
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), resource),
        Scope::Namespaced => {
            let namespace = document
                .object
                .namespace()
                .unwrap_or_else(|| namespace.to_owned());
            Api::namespaced_with(client.clone(), &namespace, resource)
        }
    };
    let mut params = PatchParams::apply("muster-up").force();
    params.dry_run = dry_run;
    params.field_validation = Some(kube::api::ValidationDirective::Strict);
    let text = format!("{}/{name}", resource.plural);
    match api
        .patch(&name, &params, &Patch::Apply(&document.object))
        .await
    {
        Ok(_) => Ok(text),
        Err(kube::Error::Api(status)) => bail!("{}: {}", document.place, status.message),
        Err(error) => Err(error).with_context(|| format!("{}: applying {text}", document.place)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_split_and_mistakes_name_the_document() {
        let text = "# a comment\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n";
        assert_eq!(parse("x.yaml", text).unwrap().len(), 2);
        for (text, expected) in [
            ("a: [", "x.yaml, document 1 is not valid YAML"),
            ("kind: A", "x.yaml, document 1 has no apiVersion"),
            (
                "apiVersion: v1\nkind: A\nmetadata: {}",
                "x.yaml, document 1 has no metadata.name",
            ),
        ] {
            let error = parse("x.yaml", text).err().unwrap().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
