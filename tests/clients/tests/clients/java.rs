//! The Java client through Apache Kafka's own command-line classes.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use tidegate_harness::Tools;

use crate::support::{brokers, create_topic, expect_values, run, unique, values};

const COUNT: usize = 300;
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn java(class: &str, arguments: &[&str], input: Option<&str>) -> Result<String> {
    let classpath = Tools::find()?.kafka_classpath()?;
    let mut command = Command::new("java");
    // Without a configuration, log4j writes errors to standard output, which is what the tests read.
    command.args([
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        "-Dlog4j2.level=OFF",
        "-cp",
        &classpath,
        class,
    ]);
    command
        .args(["--bootstrap-server", &brokers()])
        .args(arguments);
    run(&mut command, input, LIMIT)
}

pub(crate) const TOPICS: &str = "org.apache.kafka.tools.TopicCommand";
const PRODUCER: &str = "org.apache.kafka.tools.ConsoleProducer";
const CONSUMER: &str = "org.apache.kafka.tools.consumer.ConsoleConsumer";
const GROUPS: &str = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
pub(crate) const CONFIGS: &str = "org.apache.kafka.tools.ConfigCommand";

#[test]
fn the_console_clients_round_trip_in_every_codec() -> Result<()> {
    let input = values(COUNT).join("\n") + "\n";
    let count = COUNT.to_string();
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let topic = create_topic("java")?;
        java(
            PRODUCER,
            &["--topic", &topic, "--compression-codec", codec],
            Some(&input),
        )?;
        let arguments = [
            "--topic",
            &topic,
            "--from-beginning",
            "--max-messages",
            &count,
            "--timeout-ms",
            "30000",
        ];
        expect_values(codec, java(CONSUMER, &arguments, None)?.lines(), COUNT)?;
    }
    Ok(())
}

#[test]
fn a_console_consumer_in_a_group_commits_and_the_groups_tool_shows_no_lag() -> Result<()> {
    let topic = create_topic("java")?;
    java(
        PRODUCER,
        &["--topic", &topic],
        Some(&(values(COUNT).join("\n") + "\n")),
    )?;
    let group = unique("java-group");
    let count = COUNT.to_string();
    let arguments = [
        "--topic",
        &topic,
        "--group",
        &group,
        "--from-beginning",
        "--max-messages",
        &count,
        "--timeout-ms",
        "30000",
    ];
    expect_values("group", java(CONSUMER, &arguments, None)?.lines(), COUNT)?;
    assert!(
        java(GROUPS, &["--list"], None)?
            .lines()
            .any(|line| line.trim() == group)
    );
    let description = java(GROUPS, &["--describe", "--group", &group], None)?;
    let mut committed = 0;
    for line in description.lines().filter(|line| line.starts_with(&group)) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        ensure!(fields.len() > 5, "odd line: {line}");
        committed += fields[3].parse::<usize>()?;
        assert_eq!(fields[5], "0", "lag in: {line}");
    }
    assert_eq!(committed, COUNT, "{description}");
    let reset = [
        "--group",
        &group,
        "--topic",
        &topic,
        "--reset-offsets",
        "--to-earliest",
        "--execute",
    ];
    java(GROUPS, &reset, None)?;
    let description = java(GROUPS, &["--describe", "--group", &group], None)?;
    let lag: usize = description
        .lines()
        .filter(|line| line.starts_with(&group))
        .filter_map(|line| line.split_whitespace().nth(5)?.parse::<usize>().ok())
        .sum();
    assert_eq!(lag, COUNT, "{description}");
    Ok(())
}

#[test]
fn the_topics_tool_creates_describes_grows_and_deletes() -> Result<()> {
    let topic = unique("java-made");
    java(
        TOPICS,
        &[
            "--create",
            "--topic",
            &topic,
            "--partitions",
            "2",
            "--replication-factor",
            "1",
        ],
        None,
    )?;
    assert!(
        java(TOPICS, &["--list"], None)?
            .lines()
            .any(|line| line == topic)
    );
    java(
        TOPICS,
        &["--alter", "--topic", &topic, "--partitions", "5"],
        None,
    )?;
    let description = java(TOPICS, &["--describe", "--topic", &topic], None)?;
    assert!(description.contains("PartitionCount: 5"), "{description}");
    java(TOPICS, &["--delete", "--topic", &topic], None)?;
    assert!(
        !java(TOPICS, &["--list"], None)?
            .lines()
            .any(|line| line == topic)
    );
    Ok(())
}

#[test]
fn the_configs_tool_sets_shows_and_removes() -> Result<()> {
    let topic = create_topic("java")?;
    let of_topic = ["--entity-type", "topics", "--entity-name", &topic];
    let configs = |arguments: &[&str]| java(CONFIGS, &[arguments, &of_topic].concat(), None);
    configs(&[
        "--alter",
        "--add-config",
        "retention.ms=123456,cleanup.policy=compact",
    ])?;
    let description = configs(&["--describe"])?;
    assert!(description.contains("retention.ms=123456"), "{description}");
    assert!(
        description.contains("cleanup.policy=compact"),
        "{description}"
    );
    configs(&["--alter", "--delete-config", "retention.ms"])?;
    let description = configs(&["--describe"])?;
    assert!(
        !description.contains("retention.ms=123456"),
        "{description}"
    );
    assert!(
        description.contains("cleanup.policy=compact"),
        "{description}"
    );
    Ok(())
}

#[test]
fn the_configs_tool_sets_shows_and_removes_quotas_of_users_clients_and_addresses() -> Result<()> {
    let (user, client) = (unique("quota-user"), unique("quota-client"));
    let entities: &[(&[&str], &str, &str)] = &[
        (
            &["--entity-type", "users", "--entity-name", &user],
            "producer_byte_rate=1000000",
            "producer_byte_rate=1000000.0",
        ),
        (
            &["--entity-type", "clients", "--entity-name", &client],
            "request_percentage=50.5",
            "request_percentage=50.5",
        ),
        (
            &["--entity-type", "ips", "--entity-name", "192.0.2.7"],
            "connection_creation_rate=100000",
            "connection_creation_rate=100000.0",
        ),
    ];
    for (entity, set, shown) in entities {
        let configs = |arguments: &[&str]| java(CONFIGS, &[arguments, entity].concat(), None);
        configs(&["--alter", "--add-config", set])?;
        let description = configs(&["--describe"])?;
        assert!(description.contains(shown), "{description}");
        let (key, _) = set.split_once('=').unwrap_or_default();
        configs(&["--alter", "--delete-config", key])?;
        let description = configs(&["--describe"])?;
        assert!(!description.contains(key), "{description}");
    }
    // Without a name, all users: this one asks for SCRAM credentials too.
    java(CONFIGS, &["--describe", "--entity-type", "users"], None)?;
    Ok(())
}
