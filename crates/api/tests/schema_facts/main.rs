//! Our definitions of Cluster API's kinds demand and show what Cluster API's own do, no more and no less.
//!
//! `facts.txt` is the table of what they demand: types, required fields, defaults, enums, bounds, patterns, list and map
//! types, names, columns, subresources. It was made from Cluster API's definitions, which are not part of this
//! repository; where they are at hand, a test makes it anew and compares. `LEFT_OUT` is all that is not ours.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests; a panic is how they fail"
)]

mod facts;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use facts::Facts;
use muster_api::CORE_GROUP;
use serde_json::Value;

/// Version of Cluster API's kinds that the table is about.
const VERSION: &str = "v1beta2";

/// What Cluster API's definitions have and ours knowingly do not: kind, place with all below it, and why.
const LEFT_OUT: &[(&str, &str, &str)] = &[(
    "Cluster",
    "spec.topology",
    "ClusterClass is not Muster's: it manages clusters that are made of plain objects",
)];

type Table = BTreeMap<String, Facts>;

#[test]
fn our_definitions_have_every_fact_of_the_table_and_no_other() {
    let table = read_table();
    let ours = ours();
    let kinds = |table: &Table| table.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(kinds(&ours), kinds(&table), "kinds of group {CORE_GROUP}");
    let differences = differences(&table, &ours);
    assert!(
        differences.is_empty(),
        "{} places where our definitions differ from Cluster API's; mend the type, or add the place to LEFT_OUT with a \
         reason:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

#[test]
fn what_is_left_out_is_neither_in_ours_nor_in_the_table() {
    for (name, table) in [("our definitions", ours()), ("the table", read_table())] {
        for (kind, place, reason) in LEFT_OUT {
            let facts = table
                .get(*kind)
                .unwrap_or_else(|| panic!("{name}: no kind {kind}"));
            let found = facts.keys().find(|path| is_at_or_below(path, place));
            assert!(
                found.is_none(),
                "{name} have {kind} {found:?}, which LEFT_OUT says is not there: {reason}"
            );
        }
    }
}

#[test]
fn the_table_is_what_cluster_api_s_own_definitions_say() {
    let update = std::env::var_os("MUSTER_UPDATE_FACTS").is_some();
    let Some(folder) = upstream_folder() else {
        assert!(
            !update,
            "the table can only be written where Cluster API's definitions are; name them with MUSTER_SHARED"
        );
        eprintln!(
            "skipped: Cluster API's definitions are not at hand; MUSTER_SHARED may name their folder"
        );
        return;
    };
    let upstream = upstream(&folder);
    for (kind, place, _) in LEFT_OUT {
        assert!(
            upstream[*kind]
                .keys()
                .any(|path| is_at_or_below(path, place)),
            "LEFT_OUT names {kind} {place}, which Cluster API does not have (any more); remove the entry"
        );
    }
    let current = render(&without_left_out(upstream));
    if update {
        std::fs::write(table_path(), &current).unwrap();
    }
    let differences = differences(&parse(&current), &read_table());
    assert!(
        differences.is_empty(),
        "the table is not current; MUSTER_UPDATE_FACTS=1 writes it anew:\n{}",
        differences.join("\n")
    );
    assert_eq!(
        std::fs::read_to_string(table_path()).unwrap(),
        current,
        "written in another form"
    );
}

#[test]
fn our_own_kinds_require_only_what_they_cannot_do_without() {
    // An optional field with a schema of its own was once required, which refused every policy without all limits.
    let mut required = Vec::new();
    for definition in muster_api::crds::all() {
        if definition["spec"]["group"] == CORE_GROUP {
            continue;
        }
        let kind = facts::kind(&definition);
        let facts = facts::of(&definition, "v1alpha1").unwrap();
        let fields = facts.iter().filter(|(place, facts)| {
            facts.split(' ').any(|fact| fact == "required") && !place.contains("conditions[]")
        });
        required.extend(fields.map(|(place, _)| format!("{kind} {place}")));
    }
    insta::assert_snapshot!(required.join("\n"), @r"
    MachinePoolPolicy spec
    MachinePoolPolicy spec.machinePoolName
    SimCluster spec
    SimCluster status.failureDomains[].name
    SimMachinePool spec
    SimMachinePool spec.template.taints[].effect
    SimMachinePool spec.template.taints[].key
    SimMachinePool status.nodeInfo.architecture
    SimMachinePool status.nodeInfo.operatingSystem
    SimMachine spec
    SimMachine status.addresses[].address
    SimMachine status.addresses[].type
    ");
}

#[test]
fn a_keyword_that_the_walk_does_not_know_is_an_error_not_a_gap() {
    let schema = serde_json::json!({"type": "object", "properties": {"spec": {"type": "integer", "multipleOf": 2}}});
    let definition = serde_json::json!({"spec": {
        "names": {"kind": "Odd"},
        "versions": [{"name": VERSION, "schema": {"openAPIV3Schema": schema}}],
    }});
    let error = facts::of(&definition, VERSION).unwrap_err();
    assert_eq!(
        error,
        "spec: keyword multipleOf is not known to this walk; teach it"
    );
}

/// Facts of our definitions of Cluster API's kinds.
fn ours() -> Table {
    muster_api::crds::all()
        .iter()
        .filter(|definition| definition["spec"]["group"] == CORE_GROUP)
        .map(facts_of)
        .collect()
}

fn facts_of(definition: &Value) -> (String, Facts) {
    let kind = facts::kind(definition).to_owned();
    let facts = facts::of(definition, VERSION).unwrap_or_else(|error| panic!("{kind}: {error}"));
    (kind, facts)
}

/// Each place where two tables differ, with both sides.
fn differences(theirs: &Table, ours: &Table) -> Vec<String> {
    let none = Facts::new();
    let kinds: BTreeSet<_> = theirs.keys().chain(ours.keys()).collect();
    let mut lines = Vec::new();
    for kind in kinds {
        let (theirs, ours) = (
            theirs.get(kind).unwrap_or(&none),
            ours.get(kind).unwrap_or(&none),
        );
        let places: BTreeSet<_> = theirs.keys().chain(ours.keys()).collect();
        for place in places {
            let (wanted, found) = (theirs.get(place), ours.get(place));
            if wanted != found {
                let side = |fact: Option<&String>| fact.map_or("(absent)".to_owned(), Clone::clone);
                lines.push(format!(
                    "{kind} {place}\n  want {}\n  have {}",
                    side(wanted),
                    side(found)
                ));
            }
        }
    }
    lines
}

fn is_at_or_below(path: &str, place: &str) -> bool {
    path.strip_prefix(place)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[', '{']))
}

fn without_left_out(mut table: Table) -> Table {
    for (kind, place, _) in LEFT_OUT {
        if let Some(facts) = table.get_mut(*kind) {
            facts.retain(|path, _| !is_at_or_below(path, place));
        }
    }
    table
}

fn table_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schema_facts/facts.txt")
}

fn read_table() -> Table {
    parse(&std::fs::read_to_string(table_path()).unwrap())
}

fn render(table: &Table) -> String {
    let mut text = format!(
        "# What Cluster API's definitions at {VERSION} demand and show; made by schema_facts, not by hand.\n\
         # A line is a place and its facts; [] are a list's items, {{}} a map's values, @ what is no field.\n"
    );
    for (kind, facts) in table {
        text.push_str(&format!("\n[{kind}]\n"));
        for (place, facts) in facts {
            text.push_str(format!("{place} {facts}").trim_end());
            text.push('\n');
        }
    }
    text
}

fn parse(text: &str) -> Table {
    let mut table = Table::new();
    let mut kind = String::new();
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            kind = name.to_owned();
            continue;
        }
        let (place, facts) = line.split_once(' ').unwrap_or((line, ""));
        table
            .entry(kind.clone())
            .or_default()
            .insert(place.to_owned(), facts.to_owned());
    }
    table
}

/// The folder of Cluster API's definitions: below `MUSTER_SHARED`, or beside the workspace; a wrong one named is an
/// error, none beside it is not.
fn upstream_folder() -> Option<PathBuf> {
    if let Some(shared) = std::env::var_os("MUSTER_SHARED") {
        let folder = PathBuf::from(shared).join("inputs/crds");
        assert!(
            folder.is_dir(),
            "MUSTER_SHARED is set, but {} is no folder",
            folder.display()
        );
        return Some(folder);
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/inputs/crds");
    folder.is_dir().then_some(folder)
}

fn upstream(folder: &Path) -> Table {
    let mut table = Table::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            let text = std::fs::read_to_string(&path).unwrap();
            let definition: Value = serde_saphyr::from_str(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            table.extend([facts_of(&definition)]);
        }
    }
    assert!(!table.is_empty(), "{} has no definitions", folder.display());
    table
}
