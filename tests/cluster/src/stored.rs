//! What a topic holds at the end, read by raw fetches so that offsets are those in the batches.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::{FetchRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use tidegate_harness::{RawClient, decode_batches};

use crate::Mark;

/// Reads every partition from offset 0 to its high watermark: (offset, mark) in the order stored.
pub async fn read_stored(
    brokers: &str,
    topic: &str,
    partitions: i32,
) -> Result<BTreeMap<i32, Vec<(i64, Option<Mark>)>>> {
    let mut client = RawClient::connect(brokers).await?;
    let mut stored = BTreeMap::new();
    for partition in 0..partitions {
        let records = read_partition(&mut client, topic, partition).await;
        stored.insert(
            partition,
            records.with_context(|| format!("reading partition {partition}"))?,
        );
    }
    Ok(stored)
}

async fn read_partition(
    client: &mut RawClient,
    topic: &str,
    partition: i32,
) -> Result<Vec<(i64, Option<Mark>)>> {
    let mut records = Vec::new();
    let mut next = 0;
    let mut deadline = Instant::now() + Duration::from_secs(60);
    loop {
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
        let answer = client.call(11, &request).await?;
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
                deadline = Instant::now() + Duration::from_secs(60);
            }
            if next >= data.high_watermark {
                return Ok(records);
            }
        }
        if Instant::now() > deadline {
            bail!(
                "stuck at {next}, high watermark {}, error {}",
                data.high_watermark,
                data.error_code
            );
        }
    }
}
