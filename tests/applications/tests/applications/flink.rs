//! Flink's Kafka connector, reading and writing exactly once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use tidegate_harness::{Durability, Process, Tools, wait_for};

use crate::stage::{Stage, internal, start_java};
use crate::topics::{Feed, create, read_committed, wait_for_records};

const INPUT: &str = "original";
const OUTPUT: &str = "copied";
const PARTITIONS: u32 = 4;
const LIMIT: Duration = Duration::from_secs(180);

/// Starts the job, from the last whole checkpoint if there is one.
fn start(folder: &Path, brokers: &str) -> Result<Process> {
    let checkpoints = folder.join("checkpoints");
    std::fs::create_dir_all(&checkpoints)?;
    let place = format!("file://{}", checkpoints.display());
    let last = last_checkpoint(&checkpoints)?.map(|path| format!("file://{}", path.display()));
    println!("the job starts from {last:?}");
    let mut arguments = vec![brokers, INPUT, OUTPUT, &place];
    arguments.extend(last.as_deref());
    let classpath = Tools::find()?.flink_classpath()?;
    start_java(
        "flink",
        &classpath,
        "flink/Copy.java",
        &arguments,
        &folder.join("flink.log"),
    )
}

/// The youngest folder `chk-N` that is whole: its `_metadata` is written last.
fn last_checkpoint(checkpoints: &Path) -> Result<Option<PathBuf>> {
    let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
    for job in std::fs::read_dir(checkpoints)? {
        for checkpoint in std::fs::read_dir(job?.path())? {
            let path = checkpoint?.path();
            // Old ones vanish while we look.
            if let Ok(whole) = std::fs::metadata(path.join("_metadata")) {
                found.push((whole.modified()?, path));
            }
        }
    }
    Ok(found.into_iter().max().map(|(_, path)| path))
}

#[test]
fn a_job_restored_from_its_checkpoint_copies_each_record_once_though_brokers_die() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut stage = Stage::set(Durability::Object)?;
    let brokers = stage.bootstrap();
    let topics = [INPUT, OUTPUT].map(|name| (name.to_owned(), PARTITIONS));
    create(&brokers, &topics)?;
    let feed = Feed::start(&brokers, INPUT, |number| format!("record-{number}"))?;
    let mut job = start(folder.path(), &brokers)?;
    wait_for_records(&brokers, OUTPUT, PARTITIONS, 100, LIMIT)?;
    let movable = [topics, internal()].concat();
    let mut restored = 0;
    stage.play(&movable, || {
        job.check_alive()?;
        job.kill()?;
        let checkpoints = folder.path().join("checkpoints");
        ensure!(
            last_checkpoint(&checkpoints)?.is_some(),
            "no checkpoint was ever finished"
        );
        restored += 1;
        job = start(folder.path(), &brokers)?;
        Ok(())
    })?;
    let written = feed.finish()?;
    println!(
        "{} records, the job was restored {restored} times",
        written.len()
    );
    ensure!(restored > 0, "the job was never restored");
    wait_for_records(&brokers, OUTPUT, PARTITIONS, written.len(), LIMIT)
        .with_context(|| job.log_tail(40))?;
    job.check_alive()?;
    // What a later checkpoint might still bring would be too much.
    let seen = last_checkpoint(&folder.path().join("checkpoints"))?;
    wait_for("one more checkpoint", LIMIT, || {
        let now = last_checkpoint(&folder.path().join("checkpoints")).ok()?;
        (now != seen).then_some(())
    })?;
    job.kill()?;
    let mut times: BTreeMap<&str, u32> = written.iter().map(|text| (text.as_str(), 0)).collect();
    let copied = read_committed(&brokers, OUTPUT, PARTITIONS)?;
    for record in &copied {
        let count = times.get_mut(record.value.as_str());
        *count.with_context(|| format!("{} was never written", record.value))? += 1;
    }
    let wrong: Vec<_> = times
        .iter()
        .filter(|(_, times)| **times != 1)
        .take(20)
        .collect();
    ensure!(wrong.is_empty(), "not copied once but so often: {wrong:?}");
    Ok(())
}
