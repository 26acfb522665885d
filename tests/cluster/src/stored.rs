//! What a topic holds at the end, read by raw fetches so that offsets are those in the batches.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::{FetchRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use tidegate_harness::{RawClient, decode_batches};

use crate::Mark;

const PATIENCE: Duration = Duration::from_secs(60);
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
const BETWEEN_BROKERS: Duration = Duration::from_millis(50);

/// Reads every partition from offset 0 to its high watermark: (offset, mark) in the order stored.
pub async fn read_stored(
    brokers: &str,
    topic: &str,
    partitions: i32,
) -> Result<BTreeMap<i32, Vec<(i64, Option<Mark>)>>> {
    let addresses: Vec<&str> = brokers.split(',').collect();
    let mut stored = BTreeMap::new();
    for partition in 0..partitions {
        let records = read_partition(&addresses, topic, partition).await;
        stored.insert(
            partition,
            records.with_context(|| format!("reading partition {partition}"))?,
        );
    }
    Ok(stored)
}

/// Asks one broker after the other until the leader answers.
async fn read_partition(
    addresses: &[&str],
    topic: &str,
    partition: i32,
) -> Result<Vec<(i64, Option<Mark>)>> {
    let mut records = Vec::new();
    let mut next = 0;
    let mut deadline = Instant::now() + PATIENCE;
    let mut asked = 0;
    let mut client = None;
    loop {
        if Instant::now() > deadline {
            bail!("stuck at {next}: no broker answers as the leader");
        }
        let connected = match client.take() {
            Some(connected) => Ok(connected),
            None => {
                let address = addresses[asked % addresses.len()];
                asked += 1;
                RawClient::connect(address).await
            }
        };
        let Ok(mut connected) = connected else {
            tokio::time::sleep(BETWEEN_BROKERS).await;
            continue;
        };
        let wanted = FetchPartition::default()
            .with_partition(partition)
            .with_fetch_offset(next)
            .with_partition_max_bytes(4 << 20);
        let wanted = FetchTopic::default()
            .with_topic(TopicName(StrBytes::from_string(topic.to_owned())))
            .with_partitions(vec![wanted]);
        let request = FetchRequest::default()
            .with_replica_id((-1).into())
            .with_max_wait_ms(200)
            .with_min_bytes(1)
            .with_max_bytes(16 << 20)
            .with_session_epoch(-1)
            .with_topics(vec![wanted]);
        let asking = connected.call(11, &request);
        let Ok(Ok(answer)) = tokio::time::timeout(ANSWER_LIMIT, asking).await else {
            continue;
        };
        let data = answer
            .responses
            .into_iter()
            .flat_map(|topic| topic.partitions)
            .next()
            .context("no answer")?;
        if data.error_code == 0 {
            for batch in decode_batches(data.records.unwrap_or_default())? {
                for record in batch.records.iter().filter(|record| record.offset >= next) {
                    records.push((record.offset, record.value.as_deref().and_then(Mark::read)));
                }
                next = next.max(batch.end_offset);
                deadline = Instant::now() + PATIENCE;
            }
            client = Some(connected);
            if next >= data.high_watermark {
                return Ok(records);
            }
        }
        if data.error_code != 0 {
            tokio::time::sleep(BETWEEN_BROKERS).await;
        }
    }
}
