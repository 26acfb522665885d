//! Transactional producers that go on whatever happens, and a reader of committed records.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};

use crate::transactions::{Attempt, Fate, SeenInTransaction, TransactionMark};

/// One call of a client's, which tries again by itself for that long.
const PATIENCE: Duration = Duration::from_secs(60);
/// One question about a partition's end.
const ASKED: Duration = Duration::from_secs(10);

/// Its thread serves the reports of deliveries: ending a transaction waits for those of all records, and an abort that
/// nobody serves them to would wait for its whole time.
pub(crate) type TransactionalProducer = ThreadedProducer<DefaultProducerContext>;

type Attempts = Vec<((u32, u64), Attempt)>;

/// Running producers, each with a transactional id of its own.
pub struct Transactors {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<Attempts>>>,
}

impl Transactors {
    /// Starts `count` producers that write transactions of a few records over all partitions; one in five is aborted.
    pub fn start(brokers: &str, topic: &str, partitions: i32, count: u32, seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..count)
            .map(|number| {
                let worker = Worker {
                    brokers: brokers.to_owned(),
                    topic: topic.to_owned(),
                    partitions,
                    number,
                    random: StdRng::seed_from_u64(seed ^ u64::from(number)),
                    attempts: Vec::new(),
                };
                let stop = Arc::clone(&stop);
                std::thread::spawn(move || worker.run(&stop))
            })
            .collect();
        Self { stop, threads }
    }

    /// Lets each finish what it began, and gives all that was attempted. No transaction is open afterwards.
    pub fn finish(self) -> Result<Attempts> {
        self.stop.store(true, Ordering::Relaxed);
        let mut attempts = Vec::new();
        for thread in self.threads {
            attempts.extend(thread.join().ok().context("a producer panicked")??);
        }
        Ok(attempts)
    }
}

struct Worker {
    brokers: String,
    topic: String,
    partitions: i32,
    number: u32,
    random: StdRng,
    attempts: Attempts,
}

impl Worker {
    fn run(mut self, stop: &AtomicBool) -> Result<Attempts> {
        let mut client = self.client()?;
        while !stop.load(Ordering::Relaxed) {
            if let Err(error) = self.transaction(&client) {
                // It may have been fenced by a time-out, or its coordinator's answer be unknown: begin anew, which
                // ends what is open.
                println!("producer {} begins anew: {error:#}", self.number);
                client = self.client()?;
            }
        }
        // Ends what a failure may have left open.
        drop(client);
        drop(self.client()?);
        Ok(self.attempts)
    }

    fn client(&self) -> Result<TransactionalProducer> {
        let deadline = Instant::now() + 3 * PATIENCE;
        loop {
            let client: TransactionalProducer = ClientConfig::new()
                .set("bootstrap.servers", &self.brokers)
                .set("transactional.id", format!("transactor-{}", self.number))
                .set("transaction.timeout.ms", "30000")
                .set("linger.ms", "2")
                .set("message.timeout.ms", "25000")
                .set("request.timeout.ms", "5000")
                .set("reconnect.backoff.ms", "20")
                .set("reconnect.backoff.max.ms", "200")
                .set("retry.backoff.ms", "20")
                .set("retry.backoff.max.ms", "200")
                .create()?;
            match client.init_transactions(PATIENCE) {
                Ok(()) => return Ok(client),
                Err(error) if Instant::now() < deadline => {
                    println!("producer {} isn't initialised: {error}", self.number);
                }
                Err(error) => bail!("producer {} can't begin: {error}", self.number),
            }
        }
    }

    /// One transaction. An error says that this client is of no more use.
    fn transaction(&mut self, client: &TransactionalProducer) -> Result<()> {
        let transaction = u64::try_from(self.attempts.len())?;
        let partitions: Vec<i32> = (0..self.random.random_range(1..8))
            .map(|_| self.random.random_range(0..self.partitions))
            .collect();
        let wants_commit = self.random.random_bool(0.8);
        let attempt = Attempt {
            fate: Fate::Unknown,
            partitions: partitions.clone(),
        };
        self.attempts.push(((self.number, transaction), attempt));
        client.begin_transaction()?;
        for (index, partition) in (0..).zip(&partitions) {
            let mark = TransactionMark {
                producer: self.number,
                transaction,
                index,
            };
            let value = mark.value();
            let record: BaseRecord<'_, (), Vec<u8>> = BaseRecord::to(&self.topic)
                .partition(*partition)
                .payload(&value);
            if let Err((error, _)) = client.send(record) {
                println!("producer {} can't send: {error}", self.number);
                return self.abort(client);
            }
            client.poll(Duration::ZERO);
        }
        if self.random.random_bool(0.3) {
            std::thread::sleep(Duration::from_millis(self.random.random_range(0..40)));
        }
        if !wants_commit {
            return self.abort(client);
        }
        let deadline = Instant::now() + 3 * PATIENCE;
        loop {
            match client.commit_transaction(PATIENCE) {
                Ok(()) => {
                    self.settle(Fate::Committed);
                    return Ok(());
                }
                Err(KafkaError::Transaction(error)) if error.txn_requires_abort() => {
                    return self.abort(client);
                }
                Err(KafkaError::Transaction(error))
                    if error.is_retriable() && Instant::now() < deadline => {}
                Err(error) => return Err(error).context("commit"),
            }
        }
    }

    fn abort(&mut self, client: &TransactionalProducer) -> Result<()> {
        let deadline = Instant::now() + 3 * PATIENCE;
        loop {
            match client.abort_transaction(PATIENCE) {
                Ok(()) => {
                    self.settle(Fate::Aborted);
                    return Ok(());
                }
                Err(KafkaError::Transaction(error))
                    if error.is_retriable() && Instant::now() < deadline => {}
                Err(error) => return Err(error).context("abort"),
            }
        }
    }

    fn settle(&mut self, fate: Fate) {
        if let Some((_, attempt)) = self.attempts.last_mut() {
            attempt.fate = fate;
        }
    }
}

/// Waits until no partition has an open transaction, then reads all that is committed.
///
/// # Errors
/// If a transaction hangs, or the partitions can't be read to their ends, for longer than `limit`.
pub fn read_committed(
    brokers: &str,
    topic: &str,
    partitions: i32,
    limit: Duration,
) -> Result<Vec<SeenInTransaction>> {
    let deadline = Instant::now() + limit;
    let committed = reader(brokers, "read_committed")?;
    let all = reader(brokers, "read_uncommitted")?;
    for partition in 0..partitions {
        loop {
            let end = |client: &BaseConsumer| {
                let watermarks = client.fetch_watermarks(topic, partition, ASKED);
                watermarks.map(|(_, end)| end)
            };
            // The stable one first: the other can only be higher.
            let ends = (end(&committed), end(&all));
            if let (Ok(stable), Ok(end)) = ends
                && stable == end
            {
                break;
            }
            ensure!(
                Instant::now() < deadline,
                "a transaction hangs in partition {partition}: {ends:?}"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    let mut assignment = TopicPartitionList::new();
    for partition in 0..partitions {
        assignment.add_partition_offset(topic, partition, Offset::Offset(0))?;
    }
    committed.assign(&assignment)?;
    let mut seen = Vec::new();
    let mut ended = BTreeSet::new();
    while ended.len() < usize::try_from(partitions)? {
        match committed.poll(Duration::from_millis(200)) {
            None => {}
            Some(Ok(message)) => seen.push(SeenInTransaction {
                partition: message.partition(),
                offset: message.offset(),
                mark: message.payload().and_then(TransactionMark::read),
            }),
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                ended.insert(partition);
            }
            Some(Err(error)) => match error.rdkafka_error_code() {
                Some(
                    code @ (RDKafkaErrorCode::OffsetOutOfRange | RDKafkaErrorCode::AutoOffsetReset),
                ) => bail!("the reader was told {code}"),
                _ => std::thread::sleep(Duration::from_millis(20)),
            },
        }
        ensure!(
            Instant::now() < deadline,
            "only {ended:?} were read to their ends"
        );
    }
    Ok(seen)
}

fn reader(brokers: &str, isolation: &str) -> Result<BaseConsumer> {
    Ok(ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "assigned-by-hand")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "error")
        .set("isolation.level", isolation)
        .set("enable.partition.eof", "true")
        .create()?)
}
