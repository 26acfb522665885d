//! Kafka Streams with `exactly_once_v2`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tidegate_harness::{Durability, Process, Tools};

use crate::stage::{Stage, internal, start_java};
use crate::topics::{Committed, Feed, create, read_committed, wait_for_records};

const APPLICATION: &str = "word-count";
const INPUT: &str = "lines";
const OUTPUT: &str = "counts";
const PARTITIONS: u32 = 4;
const INSTANCES: usize = 2;
const WORDS_IN_A_LINE: u64 = 4;
const WORDS: u64 = 61;
/// A killed instance's transactions stay open for ten seconds, and its session for six.
const LIMIT: Duration = Duration::from_secs(180);

/// The same words come again and again, in different company.
fn line(number: u64) -> String {
    let words = (0..WORDS_IN_A_LINE).map(|at| format!("word-{}", (number * (at + 1) + at) % WORDS));
    words.collect::<Vec<_>>().join(" ")
}

fn start(folder: &Path, number: usize, brokers: &str) -> Result<Process> {
    let classpath = Tools::find()?.streams_classpath()?;
    let state = folder.join(format!("state-{number}")).display().to_string();
    let arguments = [brokers, APPLICATION, INPUT, OUTPUT, &state];
    let log = folder.join(format!("streams-{number}.log"));
    start_java(
        "streams",
        &classpath,
        "streams/WordCount.java",
        &arguments,
        &log,
    )
}

#[test]
fn a_word_count_is_exact_though_brokers_move_and_die_and_its_instances_too() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut stage = Stage::set(Durability::Local)?;
    let brokers = stage.bootstrap();
    let topics = [INPUT, OUTPUT].map(|name| (name.to_owned(), PARTITIONS));
    create(&brokers, &topics)?;
    let feed = Feed::start(&brokers, INPUT, line)?;
    let mut instances = (0..INSTANCES)
        .map(|number| start(folder.path(), number, &brokers))
        .collect::<Result<Vec<_>>>()?;
    // The acts begin when the application is at work: before that there is nothing to disturb.
    wait_for_records(&brokers, OUTPUT, PARTITIONS, 100, LIMIT)?;
    let of_the_application = ["by-word-repartition", "counts-changelog"]
        .map(|name| (format!("{APPLICATION}-{name}"), PARTITIONS));
    let movable = [topics, of_the_application, internal()].concat();
    let mut next = 0;
    stage.play(&movable, || {
        let number = next % INSTANCES;
        next += 1;
        // One that ended by itself gave up, which is a fault of the brokers.
        instances[number].check_alive()?;
        instances[number].kill()?;
        instances[number] = start(folder.path(), number, &brokers)?;
        Ok(())
    })?;
    let lines = feed.finish()?;
    let wanted = lines.len() * usize::try_from(WORDS_IN_A_LINE)?;
    println!("{} lines, {wanted} words", lines.len());
    wait_for_records(&brokers, OUTPUT, PARTITIONS, wanted, LIMIT)?;
    for instance in &mut instances {
        instance.check_alive()?;
        instance.terminate(Duration::from_secs(60))?;
    }
    // All there is, now that nobody writes.
    check(&lines, &read_committed(&brokers, OUTPUT, PARTITIONS)?)
}

/// Each word is counted 1, 2, 3, … up to how often it was written: nothing lost, doubled, torn or out of order.
fn check(lines: &[String], output: &[Committed]) -> Result<()> {
    let mut written: BTreeMap<&str, u64> = BTreeMap::new();
    for word in lines.iter().flat_map(|line| line.split(' ')) {
        *written.entry(word).or_default() += 1;
    }
    let mut counted: BTreeMap<&str, u64> = BTreeMap::new();
    for record in output {
        let count = counted.entry(&record.key).or_default();
        let value: u64 = record.value.parse().context("a count that is no number")?;
        ensure!(
            value == *count + 1,
            "{} is counted {value} after {count} (partition {})",
            record.key,
            record.partition
        );
        *count = value;
    }
    ensure!(
        counted == written,
        "counted {counted:?}, written {written:?}"
    );
    Ok(())
}

#[test]
fn the_check_notices_a_count_that_is_missing_doubled_or_torn() {
    let lines = ["a b".to_owned(), "a".to_owned()];
    let record = |key: &str, value: &str| Committed {
        partition: 0,
        key: key.into(),
        value: value.into(),
    };
    let right = vec![record("a", "1"), record("b", "1"), record("a", "2")];
    assert!(check(&lines, &right).is_ok());
    assert!(check(&lines, &right[..2]).is_err(), "one is missing");
    let doubled = [right.clone(), vec![record("a", "2")]].concat();
    assert!(check(&lines, &doubled).is_err(), "one comes twice");
    assert!(check(&lines, &right[1..]).is_err(), "the first is missing");
    let more = [right, vec![record("c", "1")]].concat();
    assert!(check(&lines, &more).is_err(), "one was never written");
}
