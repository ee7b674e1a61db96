//! What holds of the repository as a whole.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails, and says where"
)]

use std::path::{Path, PathBuf};

/// The crates in ARCHITECTURE.md's order; an arrow of dependency points only from a later to an earlier one.
fn listed(root: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let rows = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `crates/"));
    rows.filter_map(|row| row.split_once('`'))
        .map(|(name, _)| name.to_owned())
        .collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_crate_is_in_the_architecture_and_arrows_point_only_down() {
    let root = root();
    let listed = listed(&root);
    for entry in std::fs::read_dir(root.join("crates")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let place = listed.iter().position(|known| *known == name);
        let place = place.unwrap_or_else(|| {
            panic!("ARCHITECTURE.md does not list crates/{name}; add a row for it")
        });
        let manifest =
            std::fs::read_to_string(root.join("crates").join(&name).join("Cargo.toml")).unwrap();
        let dependencies = manifest.split("[dev-dependencies]").next().unwrap();
        for line in dependencies.lines() {
            let Some(other) = line
                .strip_prefix("muster-")
                .and_then(|rest| rest.split('.').next())
            else {
                continue;
            };
            // The test kit stands beside the binary: it uses everything below, and nothing ships it.
            let below = listed.iter().position(|known| known == other).unwrap();
            assert!(
                below < place,
                "crates/{name} depends on crates/{other}, which ARCHITECTURE.md lists after it"
            );
        }
    }
}

#[test]
fn the_readme_names_its_commands_and_its_examples_exist() {
    let root = root();
    let text = std::fs::read_to_string(root.join("README.md")).unwrap();
    for command in [
        "cargo run --release -- up -f examples/quickstart.yaml",
        "make test",
        "cargo test --workspace",
    ] {
        assert!(text.contains(command), "{command}");
    }
    for part in text
        .split_whitespace()
        .filter(|word| word.starts_with("examples/") || word.starts_with("docs/"))
    {
        let path = part.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        assert!(
            root.join(path).exists(),
            "README.md names {path}, which does not exist"
        );
    }
}
