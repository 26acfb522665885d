//! Topics, log dirs, the cluster.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use kafka_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    CreateTopicsRequest, DescribeClusterRequest, DescribeLogDirsRequest, MetadataRequest, TopicName,
};
use tidegate_harness::{RawClient, TestBatch};

use crate::ops::{create_topic, produce_ok, topic_metadata};
use crate::support::{connect, errors, is_kafka, now_ms, text, unique};

const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
/// The bit field of allowed operations when nobody asked for it.
const NOT_ASKED: i32 = i32::MIN;

fn topic(name: &str, partitions: i32, replication: i16) -> CreatableTopic {
    CreatableTopic::default()
        .with_name(TopicName(text(name)))
        .with_num_partitions(partitions)
        .with_replication_factor(replication)
}

async fn create(
    client: &mut RawClient,
    topics: Vec<CreatableTopic>,
    validate_only: bool,
) -> Result<Vec<CreatableTopicResult>> {
    let request = CreateTopicsRequest::default()
        .with_topics(topics)
        .with_timeout_ms(30_000)
        .with_validate_only(validate_only);
    Ok(client.call(7, &request).await?.topics)
}

async fn create_code(
    client: &mut RawClient,
    topic: CreatableTopic,
    validate_only: bool,
) -> Result<i16> {
    let results = create(client, vec![topic], validate_only).await?;
    Ok(results
        .first()
        .context("no answer for the topic")?
        .error_code)
}

/// O-AD-01.
#[tokio::test]
async fn minus_one_means_the_brokers_defaults_and_the_answer_returns_them() -> Result<()> {
    let mut client = connect().await?;
    let results = create(&mut client, vec![topic(&unique("defaults"), -1, -1)], false).await?;
    let created = &results[0];
    assert_eq!(created.error_code, errors::NONE);
    ensure!(
        created.num_partitions >= 1,
        "{} partitions",
        created.num_partitions
    );
    assert_eq!(created.replication_factor, 1);
    let configs = created.configs.as_ref().context("no configs")?;
    ensure!(
        configs
            .iter()
            .any(|config| config.name.as_str() == "cleanup.policy"),
        "no cleanup.policy"
    );
    // Streams and old tools use version 4.
    let request = CreateTopicsRequest::default()
        .with_topics(vec![topic(&unique("defaults"), -1, -1)])
        .with_timeout_ms(30_000);
    assert_eq!(
        client.call(4, &request).await?.topics[0].error_code,
        errors::NONE
    );
    Ok(())
}

/// O-AD-01.
#[tokio::test]
async fn a_dry_run_reports_errors_and_leaves_no_trace() -> Result<()> {
    let mut client = connect().await?;
    let name = unique("dry");
    assert_eq!(
        create_code(&mut client, topic(&name, 1, 1), true).await?,
        errors::NONE
    );
    assert_eq!(
        topic_metadata(&mut client, &name).await?.error_code,
        UNKNOWN_TOPIC_OR_PARTITION
    );
    assert_eq!(
        create_code(&mut client, topic(&name, 0, 1), true).await?,
        errors::INVALID_PARTITIONS
    );
    assert_eq!(
        create_code(&mut client, topic(&name, 1, 1), false).await?,
        errors::NONE
    );
    assert_eq!(
        create_code(&mut client, topic(&name, 1, 1), true).await?,
        errors::TOPIC_ALREADY_EXISTS
    );
    Ok(())
}

/// O-AD-01. Replication 3 on one broker: Kafka refuses; here the factor is the wished-for length of the placement,
/// and shared storage needs no copies, so it is accepted and the real placement reported.
#[tokio::test]
async fn contradictions_have_their_own_error_codes() -> Result<()> {
    let mut client = connect().await?;
    let name = || unique("wrong");
    let unknown = CreatableTopicConfig::default()
        .with_name(text("no.such.config"))
        .with_value(Some(text("1")));
    let code = create_code(
        &mut client,
        topic(&name(), 1, 1).with_configs(vec![unknown]),
        false,
    )
    .await?;
    assert_eq!(code, errors::INVALID_CONFIG);
    let broken = CreatableTopicConfig::default()
        .with_name(text("retention.ms"))
        .with_value(Some(text("soon")));
    let code = create_code(
        &mut client,
        topic(&name(), 1, 1).with_configs(vec![broken]),
        false,
    )
    .await?;
    assert_eq!(code, errors::INVALID_CONFIG);
    let assignment = CreatableReplicaAssignment::default()
        .with_partition_index(0)
        .with_broker_ids(vec![1.into()]);
    let code = create_code(
        &mut client,
        topic(&name(), 1, -1).with_assignments(vec![assignment]),
        false,
    )
    .await?;
    assert_eq!(code, errors::INVALID_REQUEST);
    let code = create_code(&mut client, topic(&name(), 1, 0), false).await?;
    assert_eq!(code, errors::INVALID_REPLICATION_FACTOR);
    let code = create_code(&mut client, topic(&name(), 0, 1), false).await?;
    assert_eq!(code, errors::INVALID_PARTITIONS);
    let code = create_code(&mut client, topic(&name(), 1, 3), false).await?;
    assert_eq!(
        code,
        if is_kafka() {
            errors::INVALID_REPLICATION_FACTOR
        } else {
            errors::NONE
        }
    );
    Ok(())
}

/// O-AD-01.
#[tokio::test]
async fn errors_are_per_topic() -> Result<()> {
    let mut client = connect().await?;
    let (existing, good, bad) = (unique("existing"), unique("good"), unique("bad"));
    assert_eq!(
        create_code(&mut client, topic(&existing, 1, 1), false).await?,
        errors::NONE
    );
    let topics = vec![
        topic(&existing, 1, 1),
        topic(&good, 2, 1),
        topic(&bad, 0, 1),
    ];
    let results = create(&mut client, topics, false).await?;
    let code = |name: &str| {
        results
            .iter()
            .find(|result| result.name.0.as_str() == name)
            .map(|result| result.error_code)
    };
    assert_eq!(code(&existing), Some(errors::TOPIC_ALREADY_EXISTS));
    assert_eq!(code(&good), Some(errors::NONE));
    assert_eq!(code(&bad), Some(errors::INVALID_PARTITIONS));
    assert_eq!(
        topic_metadata(&mut client, &good).await?.partitions.len(),
        2
    );
    Ok(())
}

/// O-AD-04. A user without rights needs ACLs and comes with them.
#[tokio::test]
async fn log_dirs_name_each_partition_once_with_a_believable_size() -> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(&mut client, "sized", 2, &[]).await?;
    for partition in [0, 1] {
        let value = Bytes::from(vec![b'x'; 500_000]);
        for _ in 0..2 {
            let batch = TestBatch::of_values(now_ms(), [value.clone()]).encode();
            produce_ok(&mut client, &topic, partition, batch).await?;
        }
    }
    for version in 1..=4 {
        let answer = client
            .call(
                version,
                &DescribeLogDirsRequest::default().with_topics(None),
            )
            .await?;
        assert_eq!(
            answer.results.len(),
            1,
            "one directory a broker, version {version}"
        );
        let dir = &answer.results[0];
        assert_eq!(dir.error_code, errors::NONE);
        ensure!(
            dir.topics.iter().all(|topic| !topic.partitions.is_empty()),
            "a topic without partitions"
        );
        let mut sizes: Vec<(i32, i64)> = dir
            .topics
            .iter()
            .filter(|found| found.name.0.as_str() == topic.name)
            .flat_map(|found| &found.partitions)
            .map(|partition| (partition.partition_index, partition.partition_size))
            .collect();
        sizes.sort_unstable();
        assert_eq!(
            sizes.iter().map(|(index, _)| *index).collect::<Vec<_>>(),
            [0, 1],
            "version {version}"
        );
        for (_, size) in sizes {
            ensure!(
                (1_000_000..2_000_000).contains(&size),
                "1 MB is shown as {size} bytes"
            );
        }
        if version >= 4 {
            ensure!(
                dir.total_bytes == -1 || dir.total_bytes > 0,
                "total {}",
                dir.total_bytes
            );
            ensure!(
                dir.usable_bytes == -1 || dir.usable_bytes > 0,
                "usable {}",
                dir.usable_bytes
            );
        }
    }
    Ok(())
}

/// O-AD-04.
#[tokio::test]
async fn allowed_operations_are_told_when_asked_for_and_only_then() -> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(&mut client, "allowed", 1, &[]).await?;
    for asked in [false, true] {
        let wanted = MetadataRequestTopic::default().with_name(Some(topic.wire_name()));
        let request = MetadataRequest::default()
            .with_topics(Some(vec![wanted]))
            .with_include_topic_authorized_operations(asked)
            .with_include_cluster_authorized_operations(asked);
        let answer = client.call(8, &request).await?;
        let bits = answer.topics[0].topic_authorized_operations;
        let cluster =
            DescribeClusterRequest::default().with_include_cluster_authorized_operations(asked);
        let cluster = client.call(0, &cluster).await?;
        for bits in [
            bits,
            answer.cluster_authorized_operations,
            cluster.cluster_authorized_operations,
        ] {
            if asked {
                ensure!(bits > 0, "allowed operations are {bits}");
            } else {
                assert_eq!(bits, NOT_ASKED);
            }
        }
        if asked {
            // Read (3), write (4), create (5), delete (6), alter (7), describe (8), describe and alter configs (10, 11).
            for operation in [3, 4, 6, 7, 8, 10, 11] {
                ensure!(
                    bits & (1 << operation) != 0,
                    "without ACLs operation {operation} is allowed: {bits:b}"
                );
            }
        }
        let live: Vec<i32> = cluster
            .brokers
            .iter()
            .map(|broker| broker.broker_id.0)
            .collect();
        ensure!(
            live.contains(&cluster.controller_id.0),
            "controller {:?} isn't live",
            cluster.controller_id
        );
        ensure!(!cluster.cluster_id.is_empty(), "no cluster id");
        assert_eq!(answer.cluster_id.as_ref(), Some(&cluster.cluster_id));
    }
    Ok(())
}
