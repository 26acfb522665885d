//! Kafka Connect, and what Schema Registry asks, each started twice.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tidegate_harness::ConnectWorker;

use crate::java::{CONFIGS, TOPICS, java};
use crate::support::{brokers, unique};

const LIMIT: Duration = Duration::from_secs(60);
/// The topics in which Connect keeps its state: what it makes at its first start it checks at the next.
const STATE: [&str; 3] = ["config", "offset", "status"];

/// O-AD-02.
#[test]
fn connect_starts_a_second_time_on_the_topics_it_made() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let name = unique("connect");
    for start in ["first", "second"] {
        let mut worker =
            ConnectWorker::start(folder.path(), &name, &brokers(), "").context(start)?;
        let status = worker.process().terminate(LIMIT)?;
        // 128 and the number of SIGTERM, as Java has it.
        ensure!(
            status.code() == Some(143),
            "{start}: {status}; its log:\n{}",
            worker.process().log_tail(40)
        );
    }
    for what in STATE {
        let policy = policy_with_its_source(&format!("{name}-{what}"))?;
        ensure!(
            policy.contains("DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact"),
            "{what}: {policy}"
        );
    }
    Ok(())
}

/// What Java's admin client is told of a topic's `cleanup.policy`.
fn policy_with_its_source(topic: &str) -> Result<String> {
    let all = [
        "--describe",
        "--all",
        "--entity-type",
        "topics",
        "--entity-name",
        topic,
    ];
    let description = java(CONFIGS, &all, None)?;
    let policy = description
        .lines()
        .find(|line| line.trim().starts_with("cleanup.policy="));
    Ok(policy.context("no cleanup.policy")?.trim().to_owned())
}

/// O-AD-02. Schema Registry itself isn't on Maven Central. It makes its topic with one partition and `compact`; at the
/// next start it finds the topic, and refuses to go on unless the description says so. The same is asked here through
/// the same client, Java's.
#[test]
fn what_schema_registry_checks_at_its_second_start_is_there() -> Result<()> {
    let topic = unique("schemas");
    let create = [
        "--create",
        "--topic",
        &topic,
        "--partitions",
        "1",
        "--replication-factor",
        "1",
        "--config",
        "cleanup.policy=compact",
    ];
    java(TOPICS, &create, None)?;
    for start in ["first", "second"] {
        let description = java(TOPICS, &["--describe", "--topic", &topic], None)?;
        ensure!(
            description.contains("PartitionCount: 1")
                && description.contains("ReplicationFactor: 1")
                && description.contains("cleanup.policy=compact"),
            "{start}: {description}"
        );
        let policy = policy_with_its_source(&topic)?;
        ensure!(
            policy.starts_with("cleanup.policy=compact ")
                && policy.contains("DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact")
                && policy.contains("DEFAULT_CONFIG:log.cleanup.policy=delete"),
            "{start}: {policy}"
        );
        let again = java(TOPICS, &create, None).err().context("created twice")?;
        ensure!(
            format!("{again:#}").contains("exists"),
            "{start}: {again:#}"
        );
    }
    Ok(())
}
