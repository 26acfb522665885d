//! Crates depend downward only. The table is the architecture's; `cargo metadata` is what is really there.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

/// Crate (without the `tidegate-` prefix), level. Greater is higher; crates on one level don't import each other.
const LEVELS: &[(&str, u32)] = &[
    ("tidegate", 60),
    ("broker", 50),
    ("admin-api", 50),
    ("partition-log", 40),
    ("maintenance", 40),
    ("coordinator", 40),
    ("cluster", 40),
    ("metadata", 30),
    ("wal", 30),
    ("object-storage", 30),
    ("runtime", 20),
    ("segment-format", 12),
    ("record-batch", 11),
    ("types", 10),
    ("kafka-wire", 0),
];

/// Crates that import less than their level would let them: (crate, all it may import).
const NARROWER: &[(&str, &[&str])] = &[
    ("coordinator", &["segment-format", "record-batch", "types"]),
    ("segment-format", &["record-batch", "types"]),
    ("record-batch", &["types"]),
    ("types", &[]),
    ("kafka-wire", &[]),
];

/// Crates that only some may import: (crate, its importers).
const PRIVATE: &[(&str, &[&str])] = &[("kafka-wire", &["broker"])];

fn level(name: &str) -> Option<u32> {
    LEVELS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, level)| *level)
}

/// What an import is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Product,
    /// A dev-dependency. It may point sideways, so that a crate's tests can use the neighbour it will be joined with.
    Tests,
}

/// Why `from` mustn't import `to`, or `None` when it may.
fn objection(from: &str, to: &str, purpose: Purpose) -> Option<String> {
    let Some(from_level) = level(from) else {
        return Some(format!("{from} has no level: add it to the table"));
    };
    let Some(to_level) = level(to) else {
        return Some(format!(
            "{from} imports {to}, which is no crate of the product"
        ));
    };
    if to_level > from_level || (to_level == from_level && purpose == Purpose::Product) {
        return Some(format!(
            "{from} (level {from_level}) imports {to} (level {to_level}): arrows point down only"
        ));
    }
    if purpose == Purpose::Tests {
        return None;
    }
    if let Some((_, allowed)) = NARROWER.iter().find(|(name, _)| *name == from)
        && !allowed.contains(&to)
    {
        return Some(format!("{from} may import {allowed:?} only, not {to}"));
    }
    if let Some((_, importers)) = PRIVATE.iter().find(|(name, _)| *name == to)
        && !importers.contains(&from)
    {
        return Some(format!("only {importers:?} may import {to}, not {from}"));
    }
    None
}

/// Every arrow between the product's crates: importer → imported, prefixes removed.
fn arrows(metadata: &Value) -> BTreeMap<String, Vec<(String, Purpose)>> {
    let mut arrows = BTreeMap::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let path = package["manifest_path"].as_str().unwrap_or_default();
        if !path.contains("/crates/") {
            continue;
        }
        let imported = package["dependencies"]
            .as_array()
            .expect("dependencies")
            .iter();
        let imported = imported
            .filter(|dependency| dependency["path"].is_string())
            .filter_map(|dependency| {
                let purpose = if dependency["kind"] == "dev" {
                    Purpose::Tests
                } else {
                    Purpose::Product
                };
                Some((short(dependency["name"].as_str()?), purpose))
            })
            .collect();
        arrows.insert(
            short(package["name"].as_str().expect("a package has a name")),
            imported,
        );
    }
    arrows
}

fn short(name: &str) -> String {
    name.strip_prefix("tidegate-").unwrap_or(name).to_owned()
}

#[test]
fn no_crate_imports_upward_or_sideways() {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let arrows = arrows(&metadata);
    assert!(
        arrows.len() >= LEVELS.len(),
        "the table names crates that don't exist: {:?}",
        arrows.keys()
    );
    let objections: Vec<String> = arrows
        .iter()
        .flat_map(|(from, imported)| {
            imported
                .iter()
                .filter_map(|(to, purpose)| objection(from, to, *purpose))
        })
        .collect();
    assert!(objections.is_empty(), "{objections:#?}");
}

#[test]
fn an_arrow_that_points_up_or_sideways_is_noticed() {
    let product = |from, to| objection(from, to, Purpose::Product);
    assert!(product("wal", "partition-log").is_some());
    assert!(product("wal", "object-storage").is_some());
    assert!(product("types", "record-batch").is_some());
    assert!(product("coordinator", "metadata").is_some());
    assert!(product("partition-log", "kafka-wire").is_some());
    assert!(product("broker", "harness").is_some());
    assert_eq!(product("broker", "kafka-wire"), None);
    assert_eq!(product("partition-log", "wal"), None);
    assert_eq!(product("segment-format", "record-batch"), None);
}

#[test]
fn tests_may_use_a_neighbour_but_nothing_above() {
    assert_eq!(objection("wal", "object-storage", Purpose::Tests), None);
    assert!(objection("wal", "partition-log", Purpose::Tests).is_some());
}
