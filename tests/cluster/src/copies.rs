//! Consume, produce and commit the offsets in one transaction: a copier whose copy must equal what it read, record for
//! record, whatever happens; with the checker of that.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, Producer};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};

use crate::transactions::{SeenInTransaction, TransactionMark};
use crate::transactors::TransactionalProducer;

/// One call of a client's, which tries again by itself for that long.
const PATIENCE: Duration = Duration::from_secs(20);
/// Records of one transaction, at the most.
const AT_ONCE: usize = 50;

/// What is wrong with a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyViolation {
    /// Read and committed, but not in the copy.
    Lost {
        partition: i32,
        mark: TransactionMark,
    },
    /// In the copy, but never committed in the source: it was read from an aborted transaction, or is nobody's.
    Unexpected(SeenInTransaction),
    Twice(SeenInTransaction),
    /// The copy has it before a record that comes earlier in the source.
    OutOfOrder(SeenInTransaction),
}

impl fmt::Display for CopyViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Compares a copy with its source, both as readers of committed records saw them. A record keeps its partition.
pub fn check_copy(source: &[SeenInTransaction], copy: &[SeenInTransaction]) -> Vec<CopyViolation> {
    let mut violations = Vec::new();
    let mut sorted = source.to_vec();
    sorted.sort();
    // Where each record is in its partition, and whether it was found.
    let mut places: BTreeMap<(i32, TransactionMark), (usize, bool)> = BTreeMap::new();
    for (place, record) in sorted.iter().enumerate() {
        if let Some(mark) = record.mark {
            places.insert((record.partition, mark), (place, false));
        }
    }
    let mut newest: BTreeMap<i32, usize> = BTreeMap::new();
    let mut copied = copy.to_vec();
    copied.sort();
    for record in copied {
        let found = record
            .mark
            .and_then(|mark| places.get_mut(&(record.partition, mark)));
        let Some((place, seen)) = found else {
            violations.push(CopyViolation::Unexpected(record));
            continue;
        };
        if *seen {
            violations.push(CopyViolation::Twice(record));
            continue;
        }
        *seen = true;
        let newest = newest.entry(record.partition).or_insert(*place);
        if *place < *newest {
            violations.push(CopyViolation::OutOfOrder(record));
        }
        *newest = (*newest).max(*place);
    }
    let lost = places.into_iter().filter(|(_, (_, seen))| !seen);
    violations.extend(lost.map(|((partition, mark), _)| CopyViolation::Lost { partition, mark }));
    violations
}

/// Copies a topic to another until it is told to finish.
pub struct Copier {
    source: String,
    target: String,
    brokers: String,
    partitions: i32,
}

/// A running copier.
pub struct Copying {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64>>,
}

impl Copying {
    /// Lets it copy all that the source holds now, which must be all there will be, and stops it. Answers how many
    /// transactions it committed.
    pub fn finish(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().ok().context("the copier panicked")?
    }
}

impl Copier {
    pub fn start(brokers: &str, source: &str, target: &str, partitions: i32) -> Copying {
        let copier = Self {
            source: source.to_owned(),
            target: target.to_owned(),
            brokers: brokers.to_owned(),
            partitions,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || copier.run(&stop)
        });
        Copying { stop, thread }
    }

    fn run(&self, stop: &AtomicBool) -> Result<u64> {
        let mut committed = 0;
        let mut deadline = None;
        loop {
            let last = stop.load(Ordering::Relaxed);
            match self.session(stop, last, &mut committed) {
                Ok(()) if last => return Ok(committed),
                Ok(()) => {}
                Err(error) => println!("the copier begins anew: {error:#}"),
            }
            if last {
                let until = *deadline.get_or_insert_with(|| Instant::now() + 3 * PATIENCE);
                ensure!(Instant::now() < until, "the copier doesn't come to an end");
            }
        }
    }

    /// One life of the clients, until it is told to stop; the `last` one, which begins after that, until the ends of all
    /// partitions. An error says that the clients are of no more use; the next go on from what is committed.
    fn session(&self, stop: &AtomicBool, last: bool, committed: &mut u64) -> Result<()> {
        let producer: TransactionalProducer = self
            .config()
            .set("transactional.id", "copier")
            .set("transaction.timeout.ms", "30000")
            .set("linger.ms", "2")
            .create()?;
        // Ends what the life before left open, so that the offsets are known.
        producer.init_transactions(PATIENCE)?;
        let consumer = self.consumer()?;
        let mut ended = BTreeSet::new();
        while if last {
            ended.len() < usize::try_from(self.partitions)?
        } else {
            !stop.load(Ordering::Relaxed)
        } {
            *committed += u64::from(self.copy_some(&producer, &consumer, &mut ended)?);
        }
        Ok(())
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.brokers)
            .set("reconnect.backoff.ms", "20")
            .set("reconnect.backoff.max.ms", "200")
            .set("retry.backoff.ms", "20");
        config
    }

    fn consumer(&self) -> Result<BaseConsumer> {
        let consumer: BaseConsumer = self
            .config()
            .set("group.id", "copier")
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "error")
            .set("isolation.level", "read_committed")
            .set("enable.partition.eof", "true")
            .create()?;
        let mut wanted = TopicPartitionList::new();
        for partition in 0..self.partitions {
            wanted.add_partition(&self.source, partition);
        }
        let starts = consumer.committed_offsets(wanted, PATIENCE)?;
        for partition in 0..self.partitions {
            if let Some(mut start) = starts.find_partition(&self.source, partition)
                && start.offset() == Offset::Invalid
            {
                start.set_offset(Offset::Offset(0))?;
            }
        }
        consumer.assign(&starts)?;
        Ok(consumer)
    }

    /// One transaction, unless there is nothing to copy. Answers whether there was one.
    fn copy_some(
        &self,
        producer: &TransactionalProducer,
        consumer: &BaseConsumer,
        ended: &mut BTreeSet<i32>,
    ) -> Result<bool> {
        let mut next: BTreeMap<i32, i64> = BTreeMap::new();
        let mut count = 0;
        while count < AT_ONCE {
            let Some(message) = consumer.poll(Duration::from_millis(50)) else {
                break;
            };
            let message = match message {
                Ok(message) => message,
                Err(KafkaError::PartitionEOF(partition)) => {
                    ended.insert(partition);
                    continue;
                }
                Err(error) if is_passing(&error) => continue,
                Err(error) => return Err(error.into()),
            };
            ended.remove(&message.partition());
            if next.is_empty() {
                producer.begin_transaction()?;
            }
            let record: BaseRecord<'_, (), [u8]> = BaseRecord::to(&self.target)
                .partition(message.partition())
                .payload(message.payload().unwrap_or_default());
            producer.send(record).map_err(|(error, _)| error)?;
            producer.poll(Duration::ZERO);
            next.insert(message.partition(), message.offset() + 1);
            count += 1;
        }
        if next.is_empty() {
            return Ok(false);
        }
        let mut offsets = TopicPartitionList::new();
        for (partition, offset) in next {
            offsets.add_partition_offset(&self.source, partition, Offset::Offset(offset))?;
        }
        let group = consumer
            .group_metadata()
            .context("the group has no metadata")?;
        producer.send_offsets_to_transaction(&offsets, &group, PATIENCE)?;
        producer.commit_transaction(PATIENCE)?;
        Ok(true)
    }
}

/// A reader goes on by itself after everything but a position that isn't there.
fn is_passing(error: &KafkaError) -> bool {
    !matches!(
        error.rdkafka_error_code(),
        Some(RDKafkaErrorCode::OffsetOutOfRange | RDKafkaErrorCode::AutoOffsetReset)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(offset: i64, transaction: u64) -> SeenInTransaction {
        SeenInTransaction {
            partition: 0,
            offset,
            mark: Some(TransactionMark {
                producer: 0,
                transaction,
                index: 0,
            }),
        }
    }

    #[test]
    fn a_copy_in_other_places_but_in_order_is_right() {
        let source = [seen(0, 0), seen(2, 1), seen(9, 2)];
        assert_eq!(
            check_copy(&source, &[seen(0, 0), seen(1, 1), seen(5, 2)]),
            []
        );
    }

    #[test]
    fn each_wrong_copy_is_noticed() {
        let source = [seen(0, 0), seen(2, 1), seen(9, 2)];
        let lost = check_copy(&source, &[seen(0, 0), seen(1, 2)]);
        assert!(matches!(lost[..], [CopyViolation::Lost { .. }]));
        let twice = check_copy(&source, &[seen(0, 0), seen(1, 1), seen(2, 2), seen(3, 1)]);
        assert!(matches!(twice[..], [CopyViolation::Twice(_)]));
        let swapped = check_copy(&source, &[seen(0, 1), seen(1, 0), seen(2, 2)]);
        assert!(matches!(swapped[..], [CopyViolation::OutOfOrder(_)]));
        let aborted = check_copy(&source, &[seen(0, 0), seen(1, 7), seen(2, 1), seen(3, 2)]);
        assert!(matches!(aborted[..], [CopyViolation::Unexpected(_)]));
        let mut elsewhere = seen(0, 0);
        elsewhere.partition = 1;
        let elsewhere = check_copy(&source, &[elsewhere, seen(1, 1), seen(2, 2)]);
        assert_eq!(elsewhere.len(), 2, "unexpected there, lost here");
    }
}
