//! The cluster as the benchmark sees it: reached once at the start, so that what is wrong is said clearly
//! before anything runs; topics created, looked up and deleted.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use rdkafka::ClientConfig;
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;

use crate::cli::{ConnectionArgs, FetchArgs, LoadArgs, TopicArgs};

/// Remembers the last thing the client library complained about: its own time-outs don't say why.
#[derive(Clone, Default)]
pub struct Complaints(Arc<Mutex<Option<String>>>);

impl Complaints {
    pub fn note(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    pub fn last(&self) -> Option<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl ClientContext for Complaints {
    fn log(&self, level: RDKafkaLogLevel, _facility: &str, message: &str) {
        if (level as i32) <= RDKafkaLogLevel::Warning as i32 {
            self.note(without_thread_name(message).to_owned());
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.note(format!("{error}: {reason}"));
    }
}

impl ConsumerContext for Complaints {}

/// librdkafka begins its lines with `[thrd:NAME]: `.
fn without_thread_name(message: &str) -> &str {
    match message.strip_prefix("[thrd:") {
        Some(rest) => rest.split_once("]: ").map_or(message, |(_, text)| text),
        None => message,
    }
}

/// One partition of one topic with the offsets it had when asked.
#[derive(Clone, Debug)]
pub struct PartitionSpan {
    pub topic: Arc<str>,
    pub partition: i32,
    /// First offset that is still there.
    pub start: i64,
    /// Offset the next record will get.
    pub end: i64,
}

/// A reachable cluster.
pub struct Cluster {
    base: ClientConfig,
    bootstrap: String,
    timeout: Duration,
    lookup: BaseConsumer<Complaints>,
    complaints: Complaints,
}

impl Cluster {
    /// Connects, or says who can't be reached and why.
    pub fn connect(args: &ConnectionArgs) -> Result<Self> {
        let mut base = ClientConfig::new();
        base.set("bootstrap.servers", &args.bootstrap)
            .set("client.id", "tidegate-bench")
            // Loopback names often resolve to ::1 first, where few test brokers listen.
            .set("broker.address.family", "v4");
        for (key, value) in &args.properties {
            base.set(key, value);
        }
        let complaints = Complaints::default();
        let lookup: BaseConsumer<Complaints> = base
            .create_with_context(complaints.clone())
            .context("the client refused its configuration")?;
        let cluster = Self {
            base,
            bootstrap: args.bootstrap.clone(),
            timeout: args.timeout,
            lookup,
            complaints,
        };
        cluster.reach()?;
        Ok(cluster)
    }

    fn reach(&self) -> Result<()> {
        // A broker that refuses the connection is reported at once; one that is silent gets the whole time-out.
        let deadline = Instant::now() + self.timeout.min(Duration::from_secs(10));
        loop {
            let error = match self
                .lookup
                .fetch_metadata(Some("tidegate-bench-reachable"), Duration::from_secs(1))
            {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            self.lookup.poll(Duration::ZERO);
            let cause = self.complaints.last();
            let refused = cause.as_ref().is_some_and(|text| {
                text.contains("Connection refused") || text.contains("Failed to resolve")
            });
            if refused || Instant::now() >= deadline {
                return Err(match cause {
                    Some(cause) => {
                        anyhow!("can't reach a Kafka broker at {}: {cause}", self.bootstrap)
                    }
                    None => anyhow!("can't reach a Kafka broker at {}: {error}", self.bootstrap),
                });
            }
        }
    }

    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sees to it that the topics are there; answers each name with its partition count.
    pub fn prepare_topics(&self, args: &TopicArgs) -> Result<Vec<(String, i32)>> {
        let mut topics = Vec::new();
        let mut missing = Vec::new();
        for name in args.names() {
            match self.partition_count(&name)? {
                Some(count) if args.create && count != args.partitions => bail!(
                    "topic `{name}` exists with {count} partitions, but --partitions says {}: \
                     delete it, or leave --create out to use it as it is",
                    args.partitions
                ),
                Some(count) => topics.push((name, count)),
                None if args.create => missing.push(name),
                None => bail!(
                    "topic `{name}` doesn't exist at {}: name one that does with --topic, or pass --create",
                    self.bootstrap
                ),
            }
        }
        if !missing.is_empty() {
            self.create(&missing, args)?;
            topics.extend(missing.into_iter().map(|name| (name, args.partitions)));
        }
        Ok(topics)
    }

    fn create(&self, names: &[String], args: &TopicArgs) -> Result<()> {
        let replicas = args.replication_factor.unwrap_or(-1);
        let new: Vec<NewTopic<'_>> = names
            .iter()
            .map(|name| {
                let topic = NewTopic::new(name, args.partitions, TopicReplication::Fixed(replicas));
                args.topic_config
                    .iter()
                    .fold(topic, |topic, (key, value)| topic.set(key, value))
            })
            .collect();
        let results = block_on(self.admin()?.create_topics(&new, &self.admin_options()))?
            .context("could not create the topics")?;
        for result in results {
            if let Err((name, code)) = result
                && code != RDKafkaErrorCode::TopicAlreadyExists
            {
                bail!("could not create topic `{name}`: {code}");
            }
        }
        for name in names {
            self.await_leaders(name, args.partitions)?;
        }
        Ok(())
    }

    /// A created topic isn't usable before each partition has a leader.
    fn await_leaders(&self, name: &str, partitions: i32) -> Result<()> {
        let deadline = Instant::now() + self.timeout;
        loop {
            let metadata = self.lookup.fetch_metadata(Some(name), self.timeout);
            let ready = metadata.is_ok_and(|metadata| {
                metadata.topics().iter().any(|topic| {
                    topic.error().is_none()
                        && topic.partitions().len() == usize::try_from(partitions).unwrap_or(0)
                        && topic
                            .partitions()
                            .iter()
                            .all(|partition| partition.leader() >= 0)
                })
            });
            if ready {
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!(
                    "topic `{name}` was created, but its partitions have no leaders after {:?}",
                    self.timeout
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// `None` if the topic doesn't exist.
    fn partition_count(&self, name: &str) -> Result<Option<i32>> {
        let metadata = self
            .lookup
            .fetch_metadata(Some(name), self.timeout)
            .with_context(|| format!("could not look up topic `{name}`"))?;
        let Some(topic) = metadata.topics().iter().find(|topic| topic.name() == name) else {
            return Ok(None);
        };
        match topic.error().map(RDKafkaErrorCode::from) {
            None => Ok(Some(i32::try_from(topic.partitions().len())?)),
            Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
                Ok(None)
            }
            Some(code) => bail!("could not look up topic `{name}`: {code}"),
        }
    }

    /// Start and end of each partition, as of now.
    pub fn spans(&self, topics: &[(String, i32)]) -> Result<Vec<PartitionSpan>> {
        let mut spans = Vec::new();
        for (name, partitions) in topics {
            let topic: Arc<str> = name.as_str().into();
            for partition in 0..*partitions {
                let (start, end) = self.watermarks(name, partition)?;
                spans.push(PartitionSpan {
                    topic: Arc::clone(&topic),
                    partition,
                    start,
                    end,
                });
            }
        }
        Ok(spans)
    }

    /// Asks again while the cluster is settling: after a restart a partition has no leader for a moment.
    fn watermarks(&self, topic: &str, partition: i32) -> Result<(i64, i64)> {
        let deadline = Instant::now() + self.timeout;
        loop {
            match self.lookup.fetch_watermarks(topic, partition, self.timeout) {
                Ok(watermarks) => return Ok(watermarks),
                Err(error) if Instant::now() >= deadline => {
                    return Err(error).with_context(|| {
                        format!("could not ask for the offsets of {topic}-{partition}")
                    });
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Deletes the topics; one that is gone already is no error.
    pub fn delete_topics(&self, topics: &[(String, i32)]) -> Result<()> {
        let names: Vec<&str> = topics.iter().map(|(name, _)| name.as_str()).collect();
        let results = block_on(self.admin()?.delete_topics(&names, &self.admin_options()))?
            .context("could not delete the topics")?;
        for result in results {
            if let Err((name, code)) = result
                && code != RDKafkaErrorCode::UnknownTopicOrPartition
            {
                bail!("could not delete topic `{name}`: {code}");
            }
        }
        Ok(())
    }

    /// Gives a topic these configs in the place of all it has.
    pub fn set_topic_configs(&self, topic: &str, configs: &[(&str, &str)]) -> Result<()> {
        let change = AlterConfig::new(ResourceSpecifier::Topic(topic));
        let change = configs
            .iter()
            .fold(change, |change, (key, value)| change.set(key, value));
        let results = block_on(
            self.admin()?
                .alter_configs([&change], &self.admin_options()),
        )?
        .with_context(|| format!("could not change the configs of topic `{topic}`"))?;
        for result in results {
            if let Err((_, code)) = result {
                bail!("could not change the configs of topic `{topic}`: {code}");
            }
        }
        Ok(())
    }

    fn admin(&self) -> Result<AdminClient<DefaultClientContext>> {
        self.base
            .create()
            .context("the client refused its configuration")
    }

    fn admin_options(&self) -> AdminOptions {
        AdminOptions::new()
            .request_timeout(Some(self.timeout))
            .operation_timeout(Some(self.timeout))
    }

    /// Settings of a producer for this load.
    pub fn producer_config(&self, load: &LoadArgs) -> ClientConfig {
        let mut config = self.base.clone();
        let idempotence = load.idempotence && load.acks.property() == "all";
        for (key, value) in [
            ("acks", load.acks.property().to_owned()),
            ("enable.idempotence", idempotence.to_string()),
            ("compression.type", load.compression.property().to_owned()),
            ("batch.size", load.batch_size.to_string()),
            // The size alone shall decide, as it does in the Java client.
            ("batch.num.messages", "1000000".to_owned()),
            ("linger.ms", load.linger_ms.to_string()),
            ("max.in.flight", load.in_flight.to_string()),
            (
                "queue.buffering.max.kbytes",
                (load.buffer / 1024).max(1).to_string(),
            ),
            ("queue.buffering.max.messages", "0".to_owned()),
            (
                "message.max.bytes",
                (load.record_size + 65_536).max(1_000_000).to_string(),
            ),
        ] {
            self.set_default(&mut config, key, value);
        }
        config
    }

    /// Who leads each partition of a topic, by their numbers; -1 where nobody does.
    pub fn leaders(&self, topic: &str) -> Result<Vec<i32>> {
        let deadline = Instant::now() + self.timeout;
        loop {
            // A broker that is being killed leaves its request without an answer: another one is asked then.
            let error = match self
                .lookup
                .fetch_metadata(Some(topic), Duration::from_secs(5))
            {
                Ok(metadata) => {
                    let found = metadata.topics().iter().find(|one| one.name() == topic);
                    let mut leaders: Vec<(i32, i32)> = found
                        .map(|topic| topic.partitions())
                        .unwrap_or_default()
                        .iter()
                        .map(|partition| (partition.id(), partition.leader()))
                        .collect();
                    leaders.sort_unstable();
                    return Ok(leaders.into_iter().map(|(_, leader)| leader).collect());
                }
                Err(error) => error,
            };
            if Instant::now() > deadline {
                return Err(error).with_context(|| format!("could not look up topic `{topic}`"));
            }
        }
    }

    /// What is particular about [`Self::writer_config`].
    pub const WRITER_NOTE: &str = "linger 0, retry back-off 5 to 50 ms, metadata asked again every 20 ms while a \
         leader is unknown, reconnect back-off 20 to 250 ms";

    /// Settings of an idempotent producer that is to notice and to recover at once.
    pub fn writer_config(&self) -> ClientConfig {
        let mut config = self.base.clone();
        for (key, value) in [
            ("acks", "all"),
            ("enable.idempotence", "true"),
            ("linger.ms", "0"),
            ("max.in.flight", "5"),
            // A record that is given up would be a hole in what is compared at the end.
            ("message.timeout.ms", "600000"),
            ("queue.buffering.max.messages", "0"),
            ("retry.backoff.ms", "5"),
            ("retry.backoff.max.ms", "50"),
            ("topic.metadata.refresh.fast.interval.ms", "20"),
            ("reconnect.backoff.ms", "20"),
            ("reconnect.backoff.max.ms", "250"),
            ("socket.nagle.disable", "true"),
        ] {
            self.set_default(&mut config, key, value.to_owned());
        }
        config
    }

    /// Settings of a consumer that follows or reads back what that producer writes.
    pub fn follower_config(&self) -> ClientConfig {
        let mut config = self.base.clone();
        for (key, value) in [
            ("group.id", "tidegate-bench-follower"),
            ("enable.auto.commit", "false"),
            ("enable.partition.eof", "false"),
            ("auto.offset.reset", "error"),
            ("fetch.wait.max.ms", "100"),
            ("fetch.queue.backoff.ms", "1"),
            ("fetch.error.backoff.ms", "20"),
            ("retry.backoff.ms", "5"),
            ("retry.backoff.max.ms", "50"),
            ("topic.metadata.refresh.fast.interval.ms", "20"),
            ("reconnect.backoff.ms", "20"),
            ("reconnect.backoff.max.ms", "250"),
            ("socket.nagle.disable", "true"),
        ] {
            self.set_default(&mut config, key, value.to_owned());
        }
        config
    }

    /// Settings of a consumer that assigns its partitions itself and commits nothing.
    pub fn consumer_config(&self, fetch: &FetchArgs, group: &str) -> ClientConfig {
        let mut config = self.base.clone();
        for (key, value) in [
            ("group.id", group.to_owned()),
            ("enable.auto.commit", "false".to_owned()),
            ("enable.partition.eof", "true".to_owned()),
            ("fetch.max.bytes", fetch.fetch_max.to_string()),
            (
                "max.partition.fetch.bytes",
                fetch.partition_fetch_max.to_string(),
            ),
            (
                "receive.message.max.bytes",
                (fetch.fetch_max + 100_000_000).to_string(),
            ),
            ("check.crcs", fetch.check_crcs.to_string()),
            // A reader that has paused because its queue was full shall go on as soon as there is room.
            ("fetch.queue.backoff.ms", "1".to_owned()),
            ("fetch.error.backoff.ms", "50".to_owned()),
        ] {
            self.set_default(&mut config, key, value);
        }
        config
    }

    /// What was given with `--set` wins.
    fn set_default(&self, config: &mut ClientConfig, key: &str, value: String) {
        if self.base.get(key).is_none() {
            config.set(key, value);
        }
    }
}

/// The admin client is the one asynchronous part of the library that is used here.
fn block_on<F: Future>(future: F) -> Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("could not start a runtime")?;
    Ok(runtime.block_on(future))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_name_is_no_part_of_a_complaint() {
        assert_eq!(
            without_thread_name("[thrd:a:1/b]: a:1: refused"),
            "a:1: refused"
        );
        assert_eq!(without_thread_name("plain"), "plain");
    }
}
