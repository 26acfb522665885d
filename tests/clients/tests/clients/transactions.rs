//! Transactions by real clients: librdkafka, and Java through Apache Kafka's own tools.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tidegate_harness::Tools;

use crate::java::java;
use crate::support::{
    PARTITIONS, brokers, committed_sum, create_topic, expect_values, run, unique, values,
};

const LIMIT: Duration = Duration::from_secs(30);
const TRANSACTIONS: &str = "org.apache.kafka.tools.TransactionsCommand";
const PRODUCER: &str = "org.apache.kafka.tools.ConsoleProducer";
const COPIER: &str = "org.apache.kafka.tools.TransactionalMessageCopier";
const LOAD: &str = "org.apache.kafka.tools.ProducerPerformance";

/// Its thread serves the reports of deliveries, which ending a transaction waits for.
pub(crate) type TransactionalProducer = ThreadedProducer<DefaultProducerContext>;

pub(crate) fn producer_at(brokers: &str, transactional_id: &str) -> Result<TransactionalProducer> {
    let producer: TransactionalProducer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("transactional.id", transactional_id)
        .set("transaction.timeout.ms", "60000")
        .set("linger.ms", "1")
        .create()?;
    producer.init_transactions(LIMIT)?;
    Ok(producer)
}

pub(crate) fn send(
    producer: &TransactionalProducer,
    topic: &str,
    partition: i32,
    value: &str,
) -> Result<()> {
    let record = BaseRecord::<(), str>::to(topic)
        .payload(value)
        .partition(partition);
    producer.send(record).map_err(|(error, _)| error)?;
    producer.poll(Duration::ZERO);
    Ok(())
}

/// All values that a consumer of this isolation level gets until the topic's end, in the order of each partition.
pub(crate) fn read(
    brokers: &str,
    topic: &str,
    partitions: i32,
    isolation: &str,
) -> Result<Vec<String>> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", unique("reader"))
        .set("isolation.level", isolation)
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .create()?;
    let mut assignment = TopicPartitionList::new();
    for partition in 0..partitions {
        assignment.add_partition_offset(topic, partition, Offset::Beginning)?;
    }
    consumer.assign(&assignment)?;
    let (mut values, mut ended) = (Vec::new(), 0);
    let deadline = Instant::now() + LIMIT;
    while ended < partitions {
        ensure!(Instant::now() < deadline, "{topic} has no end");
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => {
                let value = message.payload().unwrap_or_default();
                values.push(String::from_utf8_lossy(value).into_owned());
            }
            Some(Err(rdkafka::error::KafkaError::PartitionEOF(_))) => ended += 1,
            Some(Err(error)) => return Err(error.into()),
            None => {}
        }
    }
    Ok(values)
}

#[test]
fn a_reader_of_committed_records_sees_whole_transactions_and_no_aborted_ones() -> Result<()> {
    let topic = create_topic("txn")?;
    let producer = producer_at(&brokers(), &unique("txn-id"))?;
    let mut expected = Vec::new();
    for round in 0..10 {
        producer.begin_transaction()?;
        for partition in 0..PARTITIONS {
            send(
                &producer,
                &topic,
                partition,
                &format!("r{round}p{partition}"),
            )?;
        }
        if round % 3 == 2 {
            producer.flush(LIMIT)?;
            producer.abort_transaction(LIMIT)?;
        } else {
            producer.commit_transaction(LIMIT)?;
            expected.extend((0..PARTITIONS).map(|partition| format!("r{round}p{partition}")));
        }
    }
    producer.begin_transaction()?;
    send(&producer, &topic, 0, "open")?;
    producer.flush(LIMIT)?;
    let mut committed = read(&brokers(), &topic, PARTITIONS, "read_committed")?;
    committed.sort();
    expected.sort();
    assert_eq!(committed, expected);
    let all = read(&brokers(), &topic, PARTITIONS, "read_uncommitted")?;
    ensure!(all.len() == 31, "{} records in all", all.len());
    producer.commit_transaction(LIMIT)?;
    let committed = read(&brokers(), &topic, PARTITIONS, "read_committed")?;
    ensure!(
        committed.contains(&"open".to_owned()),
        "the last is missing"
    );
    Ok(())
}

#[test]
fn a_successor_aborts_what_its_predecessor_left_open_and_fences_it() -> Result<()> {
    let topic = create_topic("txn")?;
    let name = unique("txn-id");
    let first = producer_at(&brokers(), &name)?;
    first.begin_transaction()?;
    send(&first, &topic, 0, "lost")?;
    first.flush(LIMIT)?;
    let second = producer_at(&brokers(), &name)?;
    second.begin_transaction()?;
    send(&second, &topic, 0, "kept")?;
    second.commit_transaction(LIMIT)?;
    ensure!(
        first.commit_transaction(LIMIT).is_err(),
        "a fenced producer committed"
    );
    let committed = read(&brokers(), &topic, PARTITIONS, "read_committed")?;
    assert_eq!(committed, ["kept"]);
    Ok(())
}

#[test]
fn a_transaction_that_is_left_alone_is_aborted_in_time() -> Result<()> {
    let topic = create_topic("txn")?;
    let producer: TransactionalProducer = ClientConfig::new()
        .set("bootstrap.servers", brokers())
        .set("transactional.id", unique("txn-id"))
        .set("transaction.timeout.ms", "2000")
        .set("message.timeout.ms", "2000")
        .create()?;
    producer.init_transactions(LIMIT)?;
    producer.begin_transaction()?;
    send(&producer, &topic, 0, "left")?;
    producer.flush(LIMIT)?;
    let other = producer_at(&brokers(), &unique("txn-id"))?;
    other.begin_transaction()?;
    send(&other, &topic, 0, "behind")?;
    other.commit_transaction(LIMIT)?;
    let deadline = Instant::now() + LIMIT;
    while read(&brokers(), &topic, PARTITIONS, "read_committed")? != ["behind"] {
        ensure!(Instant::now() < deadline, "it is still open");
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

#[test]
fn offsets_are_committed_with_the_records_or_not_at_all() -> Result<()> {
    let (source, target) = (create_topic("txn")?, create_topic("txn")?);
    let group = unique("txn-group");
    let feeder = producer_at(&brokers(), &unique("txn-id"))?;
    feeder.begin_transaction()?;
    for value in values(10) {
        send(&feeder, &source, 0, &value)?;
    }
    feeder.commit_transaction(LIMIT)?;
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers())
        .set("group.id", &group)
        .set("isolation.level", "read_committed")
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", "false")
        .create()?;
    consumer.subscribe(&[&source])?;
    let mut values = Vec::new();
    let deadline = Instant::now() + LIMIT;
    while values.len() < 10 {
        ensure!(Instant::now() < deadline, "{} of 10 came", values.len());
        if let Some(message) = consumer.poll(Duration::from_millis(100)) {
            let message = message?;
            let value = message.payload().unwrap_or_default();
            values.push(String::from_utf8_lossy(value).into_owned());
        }
    }
    let metadata = consumer.group_metadata().context("no group metadata")?;
    let producer = producer_at(&brokers(), &unique("txn-id"))?;
    let mut offsets = TopicPartitionList::new();
    offsets.add_partition_offset(&source, 0, Offset::Offset(10))?;
    for commit in [false, true] {
        producer.begin_transaction()?;
        for value in &values {
            send(&producer, &target, 0, value)?;
        }
        producer.send_offsets_to_transaction(&offsets, &metadata, LIMIT)?;
        if commit {
            producer.commit_transaction(LIMIT)?;
        } else {
            producer.flush(LIMIT)?;
            producer.abort_transaction(LIMIT)?;
        }
        // The markers follow the answer.
        let expected = if commit { 10 } else { 0 };
        let deadline = Instant::now() + LIMIT;
        while committed_sum(&group, &source)? != expected {
            ensure!(Instant::now() < deadline, "the offset isn't {expected}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    let copied = read(&brokers(), &target, PARTITIONS, "read_committed")?;
    expect_values("copied", copied, 10)
}

/// Runs a tool that names the brokers in its own way.
fn tool(class: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("java");
    command.args([
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        "-Dlog4j2.level=OFF",
        "-cp",
        &Tools::find()?.kafka_classpath()?,
        class,
    ]);
    run(command.args(arguments), None, Duration::from_secs(120))
}

/// Apache Kafka's own exactly-once check: consume, produce and commit offsets in transactions, a part of which is
/// aborted at random; then nothing is missing and nothing there twice.
#[test]
fn the_java_copier_copies_each_record_once_though_it_aborts_at_random() -> Result<()> {
    let (source, target) = (create_topic("txn")?, create_topic("txn")?);
    let count = 500;
    let input = values(count).join("\n") + "\n";
    java(PRODUCER, &["--topic", &source], Some(&input))?;
    let group = unique("copier");
    for partition in 0..PARTITIONS {
        tool(
            COPIER,
            &[
                "--broker-list",
                &brokers(),
                "--input-topic",
                &source,
                "--input-partition",
                &partition.to_string(),
                "--output-topic",
                &target,
                "--consumer-group",
                &group,
                "--transactional-id",
                &unique("copier-id"),
                "--transaction-size",
                "20",
                "--enable-random-aborts",
            ],
        )?;
    }
    let copied = read(&brokers(), &target, PARTITIONS, "read_committed")?;
    expect_values("copied", copied, count)?;
    assert_eq!(committed_sum(&group, &source)?, i64::try_from(count)?);
    Ok(())
}

#[test]
fn a_java_producer_commits_a_transaction_every_tenth_of_a_second() -> Result<()> {
    let topic = create_topic("txn")?;
    tool(
        LOAD,
        &[
            "--topic",
            &topic,
            "--num-records",
            "2000",
            "--record-size",
            "100",
            "--throughput",
            "1000",
            "--transactional-id",
            &unique("load"),
            "--transaction-duration-ms",
            "100",
            "--producer-props",
            &format!("bootstrap.servers={}", brokers()),
        ],
    )?;
    let committed = read(&brokers(), &topic, PARTITIONS, "read_committed")?;
    assert_eq!(committed.len(), 2_000);
    Ok(())
}

#[test]
fn the_transactions_tool_lists_describes_and_ends() -> Result<()> {
    let topic = create_topic("txn")?;
    let name = unique("txn-id");
    let producer = producer_at(&brokers(), &name)?;
    producer.begin_transaction()?;
    send(&producer, &topic, 1, "open")?;
    producer.flush(LIMIT)?;
    let listed = java(TRANSACTIONS, &["list"], None)?;
    let line = listed.lines().find(|line| line.contains(&name));
    let line = line.with_context(|| format!("not listed: {listed}"))?;
    ensure!(line.contains("Ongoing"), "{line}");
    let described = java(
        TRANSACTIONS,
        &["describe", "--transactional-id", &name],
        None,
    )?;
    ensure!(
        described.contains("Ongoing") && described.contains(&format!("{topic}-1")),
        "{described}"
    );
    let at_partition = ["--topic", &topic, "--partition", "1"];
    let producers = java(
        TRANSACTIONS,
        &[&["describe-producers"], &at_partition[..]].concat(),
        None,
    )?;
    ensure!(producers.lines().count() >= 2, "{producers}");
    java(
        TRANSACTIONS,
        &["forceTerminateTransaction", "--transactionalId", &name],
        None,
    )?;
    let deadline = Instant::now() + LIMIT;
    loop {
        let described = java(
            TRANSACTIONS,
            &["describe", "--transactional-id", &name],
            None,
        )?;
        if !described.contains("Ongoing") && !described.contains("PrepareAbort") {
            break;
        }
        ensure!(Instant::now() < deadline, "{described}");
    }
    ensure!(
        producer.commit_transaction(LIMIT).is_err(),
        "it was terminated"
    );
    assert!(read(&brokers(), &topic, PARTITIONS, "read_committed")?.is_empty());
    Ok(())
}
