//! librdkafka through the `rdkafka` crate: producer, consumer groups, rebalancing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use crate::support::{
    PARTITIONS, brokers, committed_sum, create_topic, expect_stored_codec, expect_values, unique,
};

const COUNT: usize = 600;

fn produce(topic: &str, codec: &str, first: usize, count: usize) -> Result<()> {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", brokers())
        .set("enable.idempotence", "true")
        .set("compression.codec", codec)
        .set("linger.ms", "20")
        .create()?;
    for number in first..first + count {
        let (key, value) = (format!("k{}", number % 16), format!("v{number}"));
        producer
            .send(BaseRecord::to(topic).key(&key).payload(&value))
            .map_err(|(error, _)| error)?;
    }
    producer.flush(Duration::from_secs(30))?;
    ensure!(producer.in_flight_count() == 0, "records are left");
    Ok(())
}

fn consumer(group: &str, strategy: &str) -> Result<BaseConsumer> {
    Ok(ClientConfig::new()
        .set("bootstrap.servers", brokers())
        .set("group.id", group)
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", "false")
        .set("session.timeout.ms", "10000")
        .set("partition.assignment.strategy", strategy)
        .create()?)
}

/// Polls all consumers in turn until `count` records came; gives (consumer, partition, offset, value).
fn take(consumers: &[&BaseConsumer], count: usize) -> Result<Vec<(usize, i32, i64, String)>> {
    let mut taken = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    while taken.len() < count {
        ensure!(
            Instant::now() < deadline,
            "{} of {count} records came",
            taken.len()
        );
        for (index, consumer) in consumers.iter().enumerate() {
            while let Some(message) = consumer.poll(Duration::from_millis(10)) {
                let message = message?;
                let value =
                    String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned();
                taken.push((index, message.partition(), message.offset(), value));
            }
        }
    }
    Ok(taken)
}

#[test]
fn records_round_trip_in_every_codec_and_in_order() -> Result<()> {
    for (codec, code) in [("none", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3)] {
        let topic = create_topic("rdkafka")?;
        produce(&topic, codec, 0, COUNT)?;
        expect_stored_codec(&topic, codec, code)?;
        let consumer = consumer("unused", "range")?;
        let mut assignment = TopicPartitionList::new();
        for partition in 0..PARTITIONS {
            assignment.add_partition_offset(&topic, partition, Offset::Beginning)?;
        }
        consumer.assign(&assignment)?;
        let records = take(&[&consumer], COUNT)?;
        expect_values(codec, records.iter().map(|record| &record.3), COUNT)?;
        let mut next = BTreeMap::new();
        for (_, partition, offset, _) in records {
            let expected = next.entry(partition).or_insert(0);
            assert_eq!(offset, *expected, "partition {partition}");
            *expected += 1;
        }
    }
    Ok(())
}

/// Polls until every consumer has partitions and together they have all. No record may come yet.
fn wait_for_assignment(consumers: &[&BaseConsumer]) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let all = usize::try_from(PARTITIONS)?;
    loop {
        let mut assigned = Vec::new();
        for consumer in consumers {
            let record = consumer.poll(Duration::from_millis(50)).transpose()?;
            ensure!(record.is_none(), "a record where none was due");
            assigned.push(consumer.assignment()?.count());
        }
        if assigned.iter().sum::<usize>() == all && !assigned.contains(&0) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "assigned {assigned:?}");
    }
}

/// Two consumers share the topic; one leaves and the other takes over where it stopped. In both rebalance protocols.
#[test]
fn a_group_shares_partitions_and_takes_over_from_a_member_that_leaves() -> Result<()> {
    for strategy in ["range", "cooperative-sticky"] {
        let topic = create_topic("rdkafka")?;
        let group = unique("rdkafka-group");
        let (first, second) = (consumer(&group, strategy)?, consumer(&group, strategy)?);
        first.subscribe(&[&topic])?;
        second.subscribe(&[&topic])?;
        let both = [&first, &second];
        wait_for_assignment(&both)?;
        produce(&topic, "none", 0, COUNT)?;
        let shared = take(&both, COUNT)?;
        ensure!(
            shared.iter().any(|record| record.0 == 0) && shared.iter().any(|record| record.0 == 1),
            "not shared"
        );
        for consumer in both {
            consumer.commit_consumer_state(CommitMode::Sync)?;
        }
        assert_eq!(
            committed_sum(&group, &topic)?,
            i64::try_from(COUNT)?,
            "{strategy}"
        );

        second.unsubscribe();
        drop(second);
        // A record read before the takeover would rightly come again: nothing is committed in between.
        wait_for_assignment(&[&first])?;
        produce(&topic, "none", COUNT, COUNT)?;
        let taken_over = take(&[&first], COUNT)?;
        let values = shared.iter().chain(&taken_over).map(|record| &record.3);
        expect_values(strategy, values, 2 * COUNT)?;
        first.commit_consumer_state(CommitMode::Sync)?;
        assert_eq!(
            committed_sum(&group, &topic)?,
            i64::try_from(2 * COUNT)?,
            "{strategy}"
        );
    }
    Ok(())
}
