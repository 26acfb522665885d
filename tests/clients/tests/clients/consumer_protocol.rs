//! Real clients in groups of the new protocol (KIP-848): Java, librdkafka, and both protocols in one group.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use tidegate_harness::Tools;

use crate::java::java;
use crate::support::{
    PARTITIONS, brokers, committed_sum, create_topic, expect_values, run, unique, values,
};

const COUNT: usize = 300;
const CONSUMER: &str = "org.apache.kafka.tools.consumer.ConsoleConsumer";
const GROUPS: &str = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
const CONFIGS: &str = "org.apache.kafka.tools.ConfigCommand";
const FEATURES: &str = "org.apache.kafka.tools.FeatureCommand";

fn produce(topic: &str, first: usize, count: usize) -> Result<()> {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", brokers())
        .create()?;
    for number in first..first + count {
        let (key, value) = (format!("k{}", number % 16), format!("v{number}"));
        producer
            .send(BaseRecord::to(topic).key(&key).payload(&value))
            .map_err(|(error, _)| error)?;
    }
    producer.flush(Duration::from_secs(30))?;
    Ok(())
}

fn consumer(group: &str, protocol: &str) -> Result<BaseConsumer> {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", brokers())
        .set("group.id", group)
        .set("group.protocol", protocol)
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", "false");
    if protocol == "classic" {
        config.set("partition.assignment.strategy", "cooperative-sticky");
    }
    Ok(config.create()?)
}

/// Polls until all partitions are assigned, and each consumer has some. Gives the values that came meanwhile.
fn settle(consumers: &[&BaseConsumer]) -> Result<Vec<String>> {
    let deadline = Instant::now() + Duration::from_secs(90);
    let mut values = Vec::new();
    loop {
        let mut assigned = Vec::new();
        for consumer in consumers {
            if let Some(message) = consumer.poll(Duration::from_millis(50)) {
                let payload = message?.payload().unwrap_or_default().to_vec();
                values.push(String::from_utf8(payload)?);
            }
            assigned.push(consumer.assignment()?.count());
        }
        let all = assigned.iter().sum::<usize>() == usize::try_from(PARTITIONS)?;
        if all && !assigned.contains(&0) {
            return Ok(values);
        }
        ensure!(Instant::now() < deadline, "assigned {assigned:?}");
    }
}

fn take(consumers: &[&BaseConsumer], values: &mut Vec<String>, count: usize) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while values.len() < count {
        ensure!(
            Instant::now() < deadline,
            "{} of {count} came",
            values.len()
        );
        for consumer in consumers {
            while let Some(message) = consumer.poll(Duration::from_millis(10)) {
                let payload = message?.payload().unwrap_or_default().to_vec();
                values.push(String::from_utf8(payload)?);
            }
        }
    }
    Ok(())
}

#[test]
fn librdkafka_shares_and_takes_over_in_a_consumer_group() -> Result<()> {
    let topic = create_topic("cp-rdkafka")?;
    let group = unique("cp-rdkafka");
    let first = consumer(&group, "consumer")?;
    let second = consumer(&group, "consumer")?;
    first.subscribe(&[&topic])?;
    second.subscribe(&[&topic])?;
    assert!(settle(&[&first, &second])?.is_empty());
    produce(&topic, 0, COUNT)?;
    let mut came = Vec::new();
    take(&[&first, &second], &mut came, COUNT)?;
    first.commit_consumer_state(CommitMode::Sync)?;
    second.commit_consumer_state(CommitMode::Sync)?;
    assert_eq!(committed_sum(&group, &topic)?, i64::try_from(COUNT)?);
    second.unsubscribe();
    drop(second);
    settle(&[&first])?;
    produce(&topic, COUNT, COUNT)?;
    take(&[&first], &mut came, 2 * COUNT)?;
    expect_values("consumer protocol", came.iter(), 2 * COUNT)?;
    first.commit_consumer_state(CommitMode::Sync)?;
    Ok(())
}

/// O-GR-02 (b): one member of each protocol on the same group. Neither is half-joined: they share the partitions.
#[test]
fn members_of_both_protocols_share_a_group() -> Result<()> {
    let topic = create_topic("cp-mixed")?;
    let group = unique("cp-mixed");
    let old = consumer(&group, "classic")?;
    old.subscribe(&[&topic])?;
    settle(&[&old])?;
    let new = consumer(&group, "consumer")?;
    new.subscribe(&[&topic])?;
    settle(&[&old, &new])?;
    produce(&topic, 0, COUNT)?;
    let mut came = Vec::new();
    take(&[&old, &new], &mut came, COUNT)?;
    old.commit_consumer_state(CommitMode::Sync)?;
    new.commit_consumer_state(CommitMode::Sync)?;
    // And back: the last member of the new protocol goes.
    new.unsubscribe();
    drop(new);
    settle(&[&old])?;
    produce(&topic, COUNT, COUNT)?;
    take(&[&old], &mut came, 2 * COUNT)?;
    expect_values("both protocols", came.iter(), 2 * COUNT)
}

#[test]
fn confluent_kafka_consumes_in_a_consumer_group() -> Result<()> {
    let topic = create_topic("cp-confluent")?;
    produce(&topic, 0, COUNT)?;
    let group = unique("cp-confluent");
    let script =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("python/confluent_client.py");
    let mut command = Command::new(Tools::find()?.python()?);
    command
        .arg(script)
        .args(["new-group", &brokers(), &topic, &COUNT.to_string(), &group]);
    let out = run(&mut command, None, Duration::from_secs(60))?;
    expect_values("confluent-kafka", out.lines(), COUNT)?;
    assert_eq!(committed_sum(&group, &topic)?, i64::try_from(COUNT)?);
    Ok(())
}

#[test]
fn javas_consumer_reads_in_a_consumer_group_and_the_tools_show_it() -> Result<()> {
    let topic = create_topic("cp-java")?;
    produce(&topic, 0, COUNT)?;
    let group = unique("cp-java");
    let count = COUNT.to_string();
    let consume = |assignor: &str, what: &[&str]| -> Result<String> {
        let assignor = format!("group.remote.assignor={assignor}");
        let mut arguments = vec![
            "--group",
            &group,
            "--max-messages",
            &count,
            "--timeout-ms",
            "30000",
            "--command-property",
            "group.protocol=consumer",
            "--command-property",
            "auto.offset.reset=earliest",
            "--command-property",
            &assignor,
        ];
        arguments.extend(what);
        java(CONSUMER, &arguments, None)
    };
    let read = consume("uniform", &["--topic", &topic])?;
    expect_values("java", read.lines(), COUNT)?;
    let description = java(GROUPS, &["--describe", "--group", &group], None)?;
    let lag: usize = description
        .lines()
        .filter(|line| line.starts_with(&group))
        .filter_map(|line| line.split_whitespace().nth(5)?.parse::<usize>().ok())
        .sum();
    assert_eq!(lag, 0, "{description}");
    assert!(description.contains(&topic), "{description}");
    let listed = java(GROUPS, &["--list", "--type"], None)?;
    let line = listed.lines().find(|line| line.contains(&group));
    ensure!(
        line.is_some_and(|line| line.contains("Consumer")),
        "not listed as a consumer group: {listed}"
    );
    produce(&topic, COUNT, COUNT)?;
    let read = consume("range", &["--topic", &topic])?;
    let numbers: Vec<String> = values(2 * COUNT).split_off(COUNT);
    let mut read: Vec<&str> = read.lines().collect();
    let mut numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
    read.sort_unstable();
    numbers.sort_unstable();
    assert_eq!(read, numbers);
    let deleted = java(GROUPS, &["--delete", "--group", &group], None)?;
    assert!(deleted.contains("successful"), "{deleted}");
    Ok(())
}

#[test]
fn a_group_has_configs_and_the_cluster_has_the_feature() -> Result<()> {
    let group = unique("cp-configs");
    let on_group = |arguments: &[&str]| {
        let mut all = vec!["--entity-type", "groups", "--entity-name", &group];
        all.extend(arguments);
        java(CONFIGS, &all, None)
    };
    on_group(&[
        "--alter",
        "--add-config",
        "consumer.session.timeout.ms=50000",
    ])?;
    let shown = on_group(&["--describe"])?;
    assert!(
        shown.contains("consumer.session.timeout.ms=50000"),
        "{shown}"
    );
    assert!(on_group(&["--alter", "--add-config", "consumer.session.timeout.ms=1"]).is_err());
    assert!(on_group(&["--alter", "--add-config", "no.such=1"]).is_err());
    on_group(&["--alter", "--delete-config", "consumer.session.timeout.ms"])?;
    let shown = on_group(&["--describe", "--all"])?;
    assert!(
        shown.contains("consumer.session.timeout.ms=45000"),
        "{shown}"
    );
    let features = java(FEATURES, &["describe"], None)?;
    let line = features.lines().find(|line| line.contains("group.version"));
    ensure!(
        line.is_some_and(|line| line.contains("FinalizedVersionLevel: 1")),
        "{features}"
    );
    Ok(())
}
