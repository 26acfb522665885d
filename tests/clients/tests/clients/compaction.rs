//! Compaction by key, as real clients see it: the last value of each key stays, over restarts, and little else does.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::{CreateTopicsRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tidegate_harness::{Broker, BrokerOptions, Durability, RawClient, Setting, Tools, wait_for};

use crate::support::run;

const KEYS: usize = 100;
const ROUNDS: usize = 40;
const LIMIT: Duration = Duration::from_secs(60);

fn broker(durability: Durability) -> Result<Broker> {
    let options = BrokerOptions::default()
        .durability(durability)
        .set(Setting::UploadAgeMs, 200)
        .set(Setting::CompactionCheckMs, 300)
        .set(Setting::CompactionMinDirtyBytes, 1024)
        .tidegate_only();
    Broker::start(options)
}

fn create(broker: &Broker, name: &str, configs: &[(&str, &str)]) -> Result<()> {
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    let configs = configs.iter().map(|(name, value)| {
        CreatableTopicConfig::default()
            .with_name(text(name))
            .with_value(Some(text(value)))
    });
    let topic = CreatableTopic::default()
        .with_name(TopicName(text(name)))
        .with_num_partitions(1)
        .with_replication_factor(1)
        .with_configs(configs.collect());
    let request = CreateTopicsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(30_000);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let bootstrap = broker.bootstrap();
    let answer = runtime.block_on(async {
        RawClient::connect(&bootstrap)
            .await?
            .call(7, &request)
            .await
    })?;
    let code = answer.topics.first().context("no answer")?.error_code;
    ensure!(code == 0, "creating {name} answered {code}");
    Ok(())
}

/// Writes a value for every key in each round; the last round removes every tenth key.
fn update(broker: &Broker, topic: &str, codec: &str) -> Result<BTreeMap<String, String>> {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", broker.bootstrap())
        .set("enable.idempotence", "true")
        .set("compression.codec", codec)
        .create()?;
    let mut expected = BTreeMap::new();
    for round in 0..ROUNDS {
        for number in 0..KEYS {
            let (key, value) = (format!("k{number}"), format!("v{round}-{number}"));
            let record = BaseRecord::to(topic).key(&key);
            let removed = round + 1 == ROUNDS && number % 10 == 0;
            let record = if removed {
                expected.remove(&key);
                record
            } else {
                expected.insert(key.clone(), value.clone());
                record.payload(&value)
            };
            producer.send(record).map_err(|(error, _)| error)?;
        }
        producer.flush(LIMIT)?;
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(expected)
}

fn consumer(broker: &Broker, group: &str) -> Result<BaseConsumer> {
    Ok(ClientConfig::new()
        .set("bootstrap.servers", broker.bootstrap())
        .set("group.id", group)
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "false")
        .create()?)
}

/// The last value of each key.
type Folded = BTreeMap<Vec<u8>, Vec<u8>>;

/// All records of partitions, from the beginning to the end: how many, and what they come to.
fn read(broker: &Broker, topic: &str, partitions: i32) -> Result<(usize, Folded)> {
    let consumer = consumer(broker, "reader")?;
    let (mut count, mut folded) = (0, Folded::new());
    for partition in 0..partitions {
        let (low, high) = consumer.fetch_watermarks(topic, partition, LIMIT)?;
        let mut assignment = TopicPartitionList::new();
        assignment.add_partition_offset(topic, partition, Offset::Offset(low))?;
        consumer.assign(&assignment)?;
        let at_end = || -> Result<bool> {
            let position = consumer.position()?;
            let found = position.find_partition(topic, partition);
            Ok(low == high || found.is_some_and(|p| p.offset() == Offset::Offset(high)))
        };
        let mut polls = 0;
        while !at_end()? {
            polls += 1;
            // What is left behind the last record may be a hole.
            if polls > 40 && count > 0 {
                break;
            }
            ensure!(polls < 600, "partition {partition} doesn't end");
            while let Some(message) = consumer.poll(Duration::from_millis(50)) {
                let message = message?;
                polls = 0;
                count += 1;
                let key = message.key().unwrap_or_default().to_vec();
                match message.payload() {
                    Some(value) => folded.insert(key, value.to_vec()),
                    None => folded.remove(&key),
                };
            }
        }
    }
    Ok((count, folded))
}

fn as_bytes(expected: &BTreeMap<String, String>) -> Folded {
    let pairs = expected.iter();
    pairs
        .map(|(k, v)| (k.clone().into_bytes(), v.clone().into_bytes()))
        .collect()
}

/// What Java's console consumer sees of a topic.
fn read_by_java(broker: &Broker, topic: &str) -> Result<Folded> {
    let mut command = Command::new("java");
    command.args(["-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=OFF"]);
    command.args(["-cp", &Tools::find()?.kafka_classpath()?]);
    command.arg("org.apache.kafka.tools.consumer.ConsoleConsumer");
    command.args(["--bootstrap-server", &broker.bootstrap()]);
    command.args(["--topic", topic, "--from-beginning", "--timeout-ms", "8000"]);
    command.args(["--formatter-property", "print.key=true"]);
    command.args(["--formatter-property", "null.literal=<gone>"]);
    let printed = run(&mut command, None, LIMIT)?;
    let mut folded = BTreeMap::new();
    for line in printed.lines() {
        let Some((key, value)) = line.split_once('\t') else {
            continue;
        };
        match value {
            "<gone>" => folded.remove(key.as_bytes()),
            value => folded.insert(key.as_bytes().to_vec(), value.as_bytes().to_vec()),
        };
    }
    Ok(folded)
}

#[test]
fn the_last_value_of_each_key_survives_compaction_and_restarts() -> Result<()> {
    for (durability, codec) in [(Durability::Local, "none"), (Durability::Object, "lz4")] {
        let mut broker = broker(durability)?;
        println!("{durability:?}: {}", broker.log_path().display());
        let configs = [
            ("cleanup.policy", "compact"),
            ("min.cleanable.dirty.ratio", "0.1"),
            ("delete.retention.ms", "100"),
        ];
        create(&broker, "compacted", &configs)?;
        let expected = update(&broker, "compacted", codec)?;
        let left = |broker: &Broker| read(broker, "compacted", 1).ok();
        // In `object` mode what lies behind the last checkpoint, at most a megabyte or 32 batches, isn't compacted.
        let most = KEYS * ROUNDS * 9 / 10;
        let (count, folded) = wait_for("compaction", LIMIT, || {
            left(&broker).filter(|(count, _)| *count < most)
        })?;
        println!("{count} of {} records are left", KEYS * ROUNDS);
        assert_eq!(folded, as_bytes(&expected));
        broker.crash_and_restart()?;
        let (_, folded) = read(&broker, "compacted", 1)?;
        assert_eq!(folded, as_bytes(&expected), "after a crash");
        assert_eq!(read_by_java(&broker, "compacted")?, as_bytes(&expected));
        let failures = broker.metric("tidegate_compaction_failures_total")?;
        assert_eq!(failures, Some(0.0));
    }
    Ok(())
}

#[test]
fn committed_offsets_do_not_pile_up() -> Result<()> {
    const COMMITS: i64 = 3_000;
    let mut broker = broker(Durability::Local)?;
    println!("{}", broker.log_path().display());
    create(&broker, "data", &[])?;
    let commit_offset = |broker: &Broker, offset: i64| -> Result<()> {
        let consumer = consumer(broker, "busy")?;
        for offset in offset - COMMITS..=offset {
            let mut offsets = TopicPartitionList::new();
            offsets.add_partition_offset("data", 0, Offset::Offset(offset))?;
            consumer.commit(&offsets, CommitMode::Sync)?;
        }
        Ok(())
    };
    commit_offset(&broker, COMMITS)?;
    let partitions = 50;
    let few = usize::try_from(COMMITS / 2)?;
    let (count, _) = wait_for("compaction of __consumer_offsets", LIMIT, || {
        read(&broker, "__consumer_offsets", partitions)
            .ok()
            .filter(|(count, _)| *count < few)
    })?;
    println!("{count} records of {COMMITS} commits are left");
    broker.crash_and_restart()?;
    let consumer = consumer(&broker, "busy")?;
    let mut asked = TopicPartitionList::new();
    asked.add_partition("data", 0);
    let committed = consumer.committed_offsets(asked, LIMIT)?;
    let found = committed.find_partition("data", 0).context("no offset")?;
    assert_eq!(found.offset(), Offset::Offset(COMMITS));
    Ok(())
}
