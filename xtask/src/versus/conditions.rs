//! Under which conditions the figures hold.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::Result;
use serde_json::Value;

use super::results::median;
use crate::command::{output_of, root};

/// What is synced to see what a sync costs, in bytes: about a group commit at 20 MB/s.
const SYNCED: usize = 64 * 1024;

pub struct Conditions(Vec<(&'static str, String)>);

/// Looks at the machine. `work` is where the systems will keep their data.
pub fn observe(work: &Path, quick: bool) -> Result<Conditions> {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let mut facts = vec![
        ("cores", format!("{cores} ({})", cpu_model())),
        ("memory", memory()),
        ("kernel", first_line("/proc/sys/kernel/osrelease")),
        ("load average at the start", first_line("/proc/loadavg")),
        ("file system of the data", file_system(work)),
        ("fdatasync of 64 KiB there", sync_cost(work)?),
        ("Java", java_version()),
        ("Tidegate", commit()),
    ];
    if quick {
        facts.push(("note", "--quick: short runs, not to be quoted".to_owned()));
    }
    Ok(Conditions(facts))
}

impl Conditions {
    pub fn facts(&self) -> &[(&'static str, String)] {
        &self.0
    }

    pub fn json(&self) -> Value {
        self.0
            .iter()
            .map(|(name, fact)| ((*name).to_owned(), Value::from(fact.clone())))
            .collect()
    }
}

fn first_line(file: &str) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}

fn cpu_model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    line.and_then(|line| line.split_once(':')).map_or_else(
        || std::env::consts::ARCH.to_owned(),
        |(_, name)| name.trim().to_owned(),
    )
}

fn memory() -> String {
    let line = first_line("/proc/meminfo");
    let kib = line
        .split_whitespace()
        .nth(1)
        .and_then(|kib| kib.parse::<f64>().ok());
    kib.map_or(line, |kib| format!("{:.1} GB", kib * 1024.0 / 1e9))
}

/// Type of the mount that holds the folder.
fn file_system(folder: &Path) -> String {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            Some((words.next()?, words.next()?))
        })
        .filter(|(point, _)| folder.starts_with(point))
        .max_by_key(|(point, _)| point.len())
        .map_or_else(|| "unknown".to_owned(), |(_, kind)| kind.to_owned())
}

/// What an acknowledged write pays that Kafka doesn't: overwrites of an allocated file, each synced.
fn sync_cost(folder: &Path) -> Result<String> {
    let path = folder.join("sync-cost");
    let mut file = File::create(&path)?;
    let bytes = vec![7; SYNCED];
    for _ in 0..16 {
        file.write_all(&bytes)?;
    }
    file.sync_all()?;
    let mut times = Vec::new();
    for index in 0..200_u64 {
        let begun = Instant::now();
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes, (index % 16) * SYNCED as u64)?;
        file.sync_data()?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    std::fs::remove_file(&path)?;
    times.sort_by(f64::total_cmp);
    let p99 = times
        .get(times.len() * 99 / 100)
        .copied()
        .unwrap_or_default();
    Ok(format!(
        "p50 {:.2} ms, p99 {p99:.2} ms",
        median(&times).unwrap_or_default()
    ))
}

fn java_version() -> String {
    // `java -version` writes to standard error; `--version` (since 9) to standard output.
    let text = output_of(Command::new("java").arg("--version")).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}

fn commit() -> String {
    let git = |arguments: &[&str]| {
        output_of(Command::new("git").args(arguments).current_dir(root())).ok()
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else {
        return "unknown commit".to_owned();
    };
    let dirty =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_none_or(|text| !text.is_empty());
    format!(
        "commit {}{}",
        commit.trim(),
        if dirty { ", with changes" } else { "" }
    )
}
