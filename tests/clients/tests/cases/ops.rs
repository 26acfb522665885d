//! The requests that every case needs, shortened.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::list_offsets_response::ListOffsetsPartitionResponse;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{
    BrokerId, CreateTopicsRequest, FetchRequest, FetchResponse, ListOffsetsRequest,
    MetadataRequest, ProduceRequest, TopicName,
};
use tidegate_harness::{DecodedRecord, RawClient, decode_batches};
use uuid::Uuid;

use crate::support::{errors, text, unique};

/// A topic made for one test.
#[derive(Debug, Clone)]
pub(crate) struct Topic {
    pub(crate) name: String,
    pub(crate) id: Uuid,
}

impl Topic {
    pub(crate) fn wire_name(&self) -> TopicName {
        TopicName(text(&self.name))
    }
}

/// Creates a topic whose name starts with `prefix`, and waits until its partitions have leaders.
pub(crate) async fn create_topic(
    client: &mut RawClient,
    prefix: &str,
    partitions: i32,
    configs: &[(&str, &str)],
) -> Result<Topic> {
    create_named_topic(client, &unique(prefix), partitions, configs).await
}

/// Creates a topic of this name, and waits until its partitions have leaders.
pub(crate) async fn create_named_topic(
    client: &mut RawClient,
    name: &str,
    partitions: i32,
    configs: &[(&str, &str)],
) -> Result<Topic> {
    let configs = configs
        .iter()
        .map(|(key, value)| {
            CreatableTopicConfig::default()
                .with_name(text(key))
                .with_value(Some(text(value)))
        })
        .collect();
    let topic = CreatableTopic::default()
        .with_name(TopicName(text(name)))
        .with_num_partitions(partitions)
        .with_replication_factor(1)
        .with_configs(configs);
    let topic = create(client, topic).await?;
    wait_for_leaders(client, &topic, partitions).await?;
    Ok(topic)
}

/// Creates a topic as it is described, and waits for nothing more than the answer.
pub(crate) async fn create(client: &mut RawClient, topic: CreatableTopic) -> Result<Topic> {
    let name = topic.name.to_string();
    let request = CreateTopicsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(30_000);
    let answer = client.call(7, &request).await?;
    let created = answer.topics.first().context("no answer for the topic")?;
    ensure!(
        created.error_code == errors::NONE,
        "creating {name}: {} {:?}",
        created.error_code,
        created.error_message
    );
    Ok(Topic {
        name,
        id: created.topic_id,
    })
}

async fn wait_for_leaders(client: &mut RawClient, topic: &Topic, partitions: i32) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let wanted = usize::try_from(partitions.max(1))?;
    loop {
        let found = topic_metadata(client, &topic.name).await?;
        let led = found
            .partitions
            .iter()
            .filter(|partition| partition.leader_id >= BrokerId(0))
            .count();
        let known = found.error_code == errors::NONE && found.topic_id == topic.id && led >= wanted;
        if known && all_serve(client, topic, partitions).await? {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("{} has no leaders: {found:?}", topic.name);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Kafka names a leader a moment before it serves; no test is about that moment.
async fn all_serve(client: &mut RawClient, topic: &Topic, partitions: i32) -> Result<bool> {
    for partition in 0..partitions.max(1) {
        if list_offset(client, 7, topic, partition, -1)
            .await?
            .error_code
            != errors::NONE
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The metadata of one topic, without creating it.
pub(crate) async fn topic_metadata(
    client: &mut RawClient,
    name: &str,
) -> Result<kafka_protocol::messages::metadata_response::MetadataResponseTopic> {
    let wanted = kafka_protocol::messages::metadata_request::MetadataRequestTopic::default()
        .with_name(Some(TopicName(text(name))));
    let request = MetadataRequest::default()
        .with_topics(Some(vec![wanted]))
        .with_allow_auto_topic_creation(false);
    let answer = client.call(12, &request).await?;
    answer
        .topics
        .into_iter()
        .next()
        .context("no metadata for the topic")
}

/// A produce request for one partition.
pub(crate) fn produce_request(
    version: i16,
    topic: &Topic,
    acks: i16,
    partitions: Vec<(i32, Bytes)>,
) -> ProduceRequest {
    let data = partitions
        .into_iter()
        .map(|(index, records)| {
            PartitionProduceData::default()
                .with_index(index)
                .with_records(Some(records))
        })
        .collect();
    let data = TopicProduceData::default().with_partition_data(data);
    let data = if version >= 13 {
        data.with_topic_id(topic.id)
    } else {
        data.with_name(topic.wire_name())
    };
    ProduceRequest::default()
        .with_acks(acks)
        .with_timeout_ms(30_000)
        .with_topic_data(vec![data])
}

/// Produces one batch with acks=all and gives the partition's answer.
pub(crate) async fn produce(
    client: &mut RawClient,
    version: i16,
    topic: &Topic,
    partition: i32,
    batch: Bytes,
) -> Result<PartitionProduceResponse> {
    let request = produce_request(version, topic, -1, vec![(partition, batch)]);
    let answer = client.call(version, &request).await?;
    let topic = answer
        .responses
        .into_iter()
        .next()
        .context("no answer for the topic")?;
    topic
        .partition_responses
        .into_iter()
        .next()
        .context("no answer for the partition")
}

/// Produces and expects success; gives the base offset.
pub(crate) async fn produce_ok(
    client: &mut RawClient,
    topic: &Topic,
    partition: i32,
    batch: Bytes,
) -> Result<i64> {
    let answer = produce(client, 9, topic, partition, batch).await?;
    ensure!(
        answer.error_code == errors::NONE,
        "produce answered {}",
        answer.error_code
    );
    Ok(answer.base_offset)
}

/// A fetch of some partitions from some offsets, without a session, that doesn't wait.
pub(crate) fn fetch_request(
    version: i16,
    topic: &Topic,
    partitions: &[(i32, i64)],
) -> FetchRequest {
    let partitions = partitions
        .iter()
        .map(|(index, offset)| {
            FetchPartition::default()
                .with_partition(*index)
                .with_fetch_offset(*offset)
                .with_partition_max_bytes(50 << 20)
        })
        .collect();
    let topic_part = FetchTopic::default().with_partitions(partitions);
    let topic_part = if version >= 13 {
        topic_part.with_topic_id(topic.id)
    } else {
        topic_part.with_topic(topic.wire_name())
    };
    let request = FetchRequest::default()
        .with_max_wait_ms(0)
        .with_min_bytes(0)
        .with_max_bytes(50 << 20)
        .with_session_epoch(-1)
        .with_topics(vec![topic_part]);
    if version >= 15 {
        request
    } else {
        request.with_replica_id(BrokerId(-1))
    }
}

/// The partitions of a fetch answer with one topic or none.
pub(crate) fn fetched(answer: FetchResponse) -> Vec<PartitionData> {
    answer
        .responses
        .into_iter()
        .flat_map(|topic| topic.partitions)
        .collect()
}

/// Fetches one partition once.
pub(crate) async fn fetch(
    client: &mut RawClient,
    version: i16,
    topic: &Topic,
    partition: i32,
    offset: i64,
) -> Result<PartitionData> {
    let answer = client
        .call(
            version,
            &fetch_request(version, topic, &[(partition, offset)]),
        )
        .await?;
    ensure!(
        answer.error_code == errors::NONE,
        "fetch answered {}",
        answer.error_code
    );
    fetched(answer)
        .into_iter()
        .next()
        .context("no answer for the partition")
}

/// All records of a partition from offset 0 to its end.
pub(crate) async fn read_all(
    client: &mut RawClient,
    topic: &Topic,
    partition: i32,
) -> Result<Vec<DecodedRecord>> {
    let end = end_offset(client, topic, partition).await?;
    let mut records = Vec::new();
    let mut next = 0;
    let deadline = Instant::now() + Duration::from_secs(60);
    while next < end {
        let mut request = fetch_request(11, topic, &[(partition, next)]);
        request.max_wait_ms = 500;
        request.min_bytes = 1;
        let answer = client.call(11, &request).await?;
        let data = fetched(answer)
            .into_iter()
            .next()
            .context("no answer for the partition")?;
        ensure!(
            data.error_code == errors::NONE,
            "fetch at {next} answered {}",
            data.error_code
        );
        for batch in decode_batches(data.records.unwrap_or_default())? {
            records.extend(
                batch
                    .records
                    .into_iter()
                    .filter(|record| record.offset >= next),
            );
            next = batch.end_offset;
        }
        ensure!(
            Instant::now() < deadline,
            "reading stopped at {next} of {end}"
        );
    }
    Ok(records)
}

/// ListOffsets for one partition.
pub(crate) async fn list_offset(
    client: &mut RawClient,
    version: i16,
    topic: &Topic,
    partition: i32,
    timestamp: i64,
) -> Result<ListOffsetsPartitionResponse> {
    let partition = ListOffsetsPartition::default()
        .with_partition_index(partition)
        .with_timestamp(timestamp);
    let topic = ListOffsetsTopic::default()
        .with_name(topic.wire_name())
        .with_partitions(vec![partition]);
    let request = ListOffsetsRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_topics(vec![topic]);
    let answer = client.call(version, &request).await?;
    let topic = answer
        .topics
        .into_iter()
        .next()
        .context("no answer for the topic")?;
    topic
        .partitions
        .into_iter()
        .next()
        .context("no answer for the partition")
}

/// The end offset of a partition.
pub(crate) async fn end_offset(
    client: &mut RawClient,
    topic: &Topic,
    partition: i32,
) -> Result<i64> {
    let answer = list_offset(client, 7, topic, partition, -1).await?;
    ensure!(
        answer.error_code == errors::NONE,
        "ListOffsets answered {}",
        answer.error_code
    );
    Ok(answer.offset)
}
