//! Kafka Connect: a file's lines into a topic, exactly once, and from there into another file.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tidegate_harness::{ConnectWorker, Durability, http_get, http_post, wait_for};

use crate::stage::{Stage, internal};
use crate::topics::{create, read_committed, wait_for_records};

const GROUP: &str = "files";
const TOPIC: &str = "lines";
const LIMIT: Duration = Duration::from_secs(180);
const CALL: Duration = Duration::from_secs(30);
/// More than the file ever has. The file source keeps what is left of a full batch until the file grows again: a worker
/// that was away while more lines came than one batch takes would keep back the last ones once nobody writes.
const BATCH_LINES: &str = "1000000";
/// Its tasks' transactions end each time the source has been asked; a group whose worker died gets on soon, also if it
/// left a transaction open, which holds back whoever reads committed records until it times out.
const SETTINGS: &str = "exactly.once.source.support=enabled\noffset.flush.interval.ms=500\n\
    scheduled.rebalance.max.delay.ms=500\nsession.timeout.ms=6000\nheartbeat.interval.ms=1000\n\
    producer.transaction.timeout.ms=10000\n";

fn start_connector(
    worker: &ConnectWorker,
    name: &str,
    class: &str,
    topic: &str,
    file: &Path,
) -> Result<()> {
    let text = "org.apache.kafka.connect.storage.StringConverter";
    let body = json!({"name": name, "config": {
        "connector.class": format!("org.apache.kafka.connect.file.FileStream{class}Connector"),
        "tasks.max": "1",
        "file": file.display().to_string(),
        topic: TOPIC,
        "batch.size": BATCH_LINES,
        "key.converter": text,
        "value.converter": text,
    }});
    wait_for(&format!("the connector {name} to be taken"), LIMIT, || {
        let answer = http_post(worker.rest(), "/connectors", &body.to_string(), CALL).ok()?;
        // 409: created by an attempt before whose answer was lost, or the group is about to settle.
        (answer.status == 201
            || http_get(worker.rest(), &format!("/connectors/{name}"))
                .is_ok_and(|found| found.status == 200))
        .then_some(())
    })
}

/// Appends numbered lines to a file until it is told to stop; gives how many.
fn write_lines(file: &Path, stop: &AtomicBool) -> Result<usize> {
    let mut file = File::options().create(true).append(true).open(file)?;
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        writeln!(file, "line {count}")?;
        count += 1;
        std::thread::sleep(Duration::from_millis(4));
    }
    Ok(count)
}

#[test]
fn the_lines_of_a_file_reach_a_topic_once_and_another_file_all() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (source, sink) = (
        folder.path().join("source.txt"),
        folder.path().join("sink.txt"),
    );
    let mut stage = Stage::set(Durability::Local)?;
    let brokers = stage.bootstrap();
    let topic = (TOPIC.to_owned(), 1);
    create(&brokers, std::slice::from_ref(&topic))?;
    let stop = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let (source, stop) = (source.clone(), Arc::clone(&stop));
        move || write_lines(&source, &stop)
    });
    let mut worker = ConnectWorker::start(folder.path(), GROUP, &brokers, SETTINGS)?;
    start_connector(&worker, "source", "Source", "topic", &source)?;
    start_connector(&worker, "sink", "Sink", "topics", &sink)?;
    wait_for_records(&brokers, TOPIC, 1, 100, LIMIT)
        .with_context(|| worker.process().log_tail(40))?;
    let of_connect = ["config", "offset", "status"].map(|name| (format!("{GROUP}-{name}"), 1));
    let movable = [&[topic][..], &internal(), &of_connect].concat();
    stage.play(&movable, || {
        worker.process().check_alive()?;
        worker.process().kill()?;
        worker = ConnectWorker::start(folder.path(), GROUP, &brokers, SETTINGS)?;
        Ok(())
    })?;
    stop.store(true, Ordering::Relaxed);
    let count = writer.join().ok().context("the writer panicked")??;
    let wanted: Vec<String> = (0..count).map(|number| format!("line {number}")).collect();
    println!("{count} lines");
    wait_for_records(&brokers, TOPIC, 1, count, LIMIT)
        .with_context(|| worker.process().log_tail(40))?;
    wait_for("the sink to have all lines", LIMIT, || {
        let text = std::fs::read_to_string(&sink).ok()?;
        let lines: BTreeSet<&str> = text.lines().collect();
        wanted
            .iter()
            .all(|line| lines.contains(line.as_str()))
            .then_some(())
    })
    .with_context(|| worker.process().log_tail(40))?;
    worker.process().terminate(Duration::from_secs(60))?;
    let found: Vec<String> = read_committed(&brokers, TOPIC, 1)?
        .into_iter()
        .map(|record| record.value)
        .collect();
    let differs = found
        .iter()
        .zip(&wanted)
        .position(|(found, wanted)| found != wanted);
    ensure!(
        found == wanted,
        "the topic has {} lines instead of {count}; the first that differs: {differs:?}",
        found.len()
    );
    // The sink may repeat after a kill, and adds nothing of its own.
    let lines = std::fs::read_to_string(&sink)?;
    let known: BTreeSet<&str> = wanted.iter().map(String::as_str).collect();
    // A kill may cut the last line short, and the next is written behind it.
    let strange = lines.lines().filter(|line| !known.contains(line)).count();
    ensure!(
        strange <= 2,
        "{strange} lines of the sink were never written"
    );
    Ok(())
}
