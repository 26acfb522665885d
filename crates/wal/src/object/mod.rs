//! The object WAL: log files that are immutable objects.
//!
//! Entries of many partitions gather in one object, which is their first segment too: nothing is written a
//! second time before merging. Objects are created under consecutive numbers, several at once, and
//! acknowledged in the order of the numbers. The protocol, and why it loses nothing, is in
//! `docs/protocols/object-wal.md`.
//!
//! When idle an entry is sent at once. While PUTs are under way, entries gather until they fill an object, or
//! for a fraction of the time that a PUT takes.
//!
//! A PUT whose outcome is unknown is repeated until it is known. Only one thing ends the WAL: an object under
//! its number that isn't its own. It was fenced then, and never acknowledges again.

mod intake;
mod metrics;
mod policy;
mod put;
mod recovery;
mod store;
#[cfg(test)]
mod tests;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use tidegate_runtime::{OnExit, Random, SharedClock, Tasks};
use tidegate_segment_format::{ByteRange, SegmentInfo};
use tidegate_types::{BrokerEpoch, BrokerId};
use tokio::sync::{Notify, watch};

use crate::{AppendObserver, AppendRefused, Entry, Wal, WalFailure, WrittenObjectRef};
use intake::Intake;

pub use metrics::ObjectWalMetrics;
pub use recovery::{FencedWriter, RecoveredObject, RecoveryError, fence_and_collect};
pub use store::{CreateOutcome, LogObjectName, ObjectLogStore, StoreFailure};

/// Sizes and times of an object WAL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectWalOptions {
    /// An object is cut when the batches that wait reach this. One entry may be larger.
    pub max_object_bytes: u64,
    /// Blocks within an object take batches up to this.
    pub block_target_bytes: usize,
    /// Objects sent and not yet acknowledged.
    pub max_in_flight: usize,
    /// While a PUT is under way an entry waits at least this long for others. It bounds the number of PUTs,
    /// which cost money: at 5 ms, 200 a second.
    pub min_linger: Duration,
    /// … and at most this long.
    pub max_linger: Duration,
    /// The most bytes that may wait to become durable.
    pub pending_bytes: u64,
    /// The most objects that may be acknowledged and not yet committed to metadata; it bounds the walk of
    /// a recovery.
    pub max_uncommitted_objects: u64,
    /// The longest wait between the repetitions of a PUT.
    pub max_retry_wait: Duration,
}

impl Default for ObjectWalOptions {
    fn default() -> Self {
        Self {
            max_object_bytes: 4 * 1024 * 1024,
            block_target_bytes: 512 * 1024,
            max_in_flight: 8,
            min_linger: Duration::from_millis(5),
            max_linger: Duration::from_millis(50),
            pending_bytes: 64 * 1024 * 1024,
            max_uncommitted_objects: 4096,
            max_retry_wait: Duration::from_secs(2),
        }
    }
}

/// Options that contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid options of the object WAL: {0}")]
pub struct InvalidObjectWalOptions(pub &'static str);

impl ObjectWalOptions {
    /// # Errors
    /// Names the rule that is broken.
    pub fn validate(&self) -> Result<(), InvalidObjectWalOptions> {
        let rules = [
            (self.max_object_bytes > 0, "an object must hold some bytes"),
            (self.block_target_bytes > 0, "a block must hold some bytes"),
            (self.max_in_flight > 0, "one PUT must be allowed in flight"),
            (
                self.min_linger <= self.max_linger,
                "the shortest linger must not exceed the longest",
            ),
            (
                self.pending_bytes >= self.max_object_bytes,
                "the bytes allowed to wait must fill an object",
            ),
            (
                self.max_uncommitted_objects > 0,
                "one object must be allowed to wait for its commit",
            ),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err(InvalidObjectWalOptions(rule)),
            None => Ok(()),
        }
    }
}

/// Who writes the log, and from which number on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogWriter {
    pub broker: BrokerId,
    /// Of this registration. A writer that starts again must have a new one.
    pub broker_epoch: BrokerEpoch,
    /// 0 for a new broker epoch.
    pub first_sequence: u64,
}

/// An acknowledged object, for the metadata commit.
#[derive(Debug, Clone)]
pub struct WrittenObject {
    pub object: Arc<WrittenObjectRef>,
    /// One per partition, ordered by partition.
    pub segments: Vec<SegmentInfo>,
    pub index: ByteRange,
}

/// Takes acknowledged objects, in the order of their sequence, from the WAL's writer: return soon.
pub trait WrittenSink: Send + Sync {
    /// Called before the observers of the object's entries are.
    fn written(&self, object: WrittenObject);
}

/// What the WAL takes from its surroundings.
#[derive(Clone)]
pub struct ObjectWalSeams {
    pub store: Arc<dyn ObjectLogStore>,
    pub clock: SharedClock,
    /// For the nonce and jitter. No two lives of a process may have the same numbers.
    pub random: Random,
    /// The owner of the WAL's writer; the WAL makes a child of it.
    pub tasks: Tasks,
    pub metrics: ObjectWalMetrics,
}

/// What the handles and the writer share.
struct Shared {
    intake: parking_lot::Mutex<Intake>,
    /// Something for the writer to look at.
    changed: Notify,
    /// Give up on what isn't durable yet.
    give_up: tokio_util::sync::CancellationToken,
    failure: watch::Sender<Option<WalFailure>>,
    clock: SharedClock,
    metrics: ObjectWalMetrics,
}

/// A handle to an object WAL. When the last one is dropped the WAL writes what it has taken and ends.
#[derive(Clone)]
pub struct ObjectWal {
    shared: Arc<Shared>,
    closer: Arc<Closer>,
}

struct Closer {
    shared: Arc<Shared>,
    tasks: Tasks,
}

impl Closer {
    fn begin_close(&self) {
        self.shared.intake.lock().close();
        // From here the writer may return without anybody calling that a fault.
        self.tasks.token().cancel();
    }
}

impl Drop for Closer {
    fn drop(&mut self) {
        self.begin_close();
    }
}

/// Entries that weren't durable when the time to close was over; their observers were told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes were not durable when the WAL was closed")]
pub struct GaveUp {
    pub bytes: u64,
}

impl ObjectWal {
    /// Starts a writer. It asks nothing of the store before the first append.
    ///
    /// # Errors
    /// If the options contradict each other.
    pub fn start(
        writer: LogWriter,
        options: ObjectWalOptions,
        sink: Arc<dyn WrittenSink>,
        seams: ObjectWalSeams,
    ) -> Result<Self, InvalidObjectWalOptions> {
        options.validate()?;
        let tasks = seams.tasks.child("object-wal");
        let shared = Arc::new(Shared {
            intake: parking_lot::Mutex::new(Intake::new(&options, writer.first_sequence)),
            changed: Notify::new(),
            give_up: tokio_util::sync::CancellationToken::new(),
            failure: watch::Sender::new(None),
            clock: Arc::clone(&seams.clock),
            metrics: seams.metrics.clone(),
        });
        let writer = writer::Writer::new(Arc::clone(&shared), writer, options, sink, &seams);
        let run = writer.run(tasks.token().clone());
        tasks.spawn("object wal writer", OnExit::StopProcess, run);
        let closer = Arc::new(Closer {
            shared: Arc::clone(&shared),
            tasks,
        });
        Ok(Self { shared, closer })
    }

    /// Metadata has committed, or given up, every object below `sequence`.
    pub fn committed(&self, sequence: u64) {
        self.shared.intake.lock().committed(sequence);
    }

    /// Why the WAL failed, once it has: it was fenced.
    pub fn failure(&self) -> watch::Receiver<Option<WalFailure>> {
        self.shared.failure.subscribe()
    }

    /// Takes no more and makes durable what was taken.
    ///
    /// # Errors
    /// If that isn't done after `timeout`. What is left then fails as [`WalFailure::Closed`]: its fate is
    /// unknown, and recovery of this writer tells it.
    pub async fn close(&self, timeout: Duration) -> Result<(), GaveUp> {
        self.closer.begin_close();
        if self.closer.tasks.shutdown(timeout).await.is_ok() {
            return Ok(());
        }
        let bytes = self.pending_bytes();
        self.shared.give_up.cancel();
        // The writer only has observers to tell now.
        let _ended = self.closer.tasks.shutdown(timeout).await;
        Err(GaveUp { bytes })
    }
}

impl Wal for ObjectWal {
    /// # Panics
    /// If the entry has no batches or covers no offsets.
    fn append(&self, entry: Entry, observer: Arc<dyn AppendObserver>) -> Result<(), AppendRefused> {
        assert!(
            !entry.batches.is_empty() && !entry.range.is_empty(),
            "an entry holds batches and covers offsets"
        );
        let now = self.shared.clock.now();
        let admitted = self.shared.intake.lock().admit(entry, observer, now);
        match &admitted {
            Ok(pending_bytes) => {
                self.shared.metrics.pending(*pending_bytes);
                self.shared.changed.notify_one();
            }
            Err(AppendRefused::Full(_)) => self.shared.metrics.refused_full(),
            Err(
                AppendRefused::Failed(_) | AppendRefused::Closed | AppendRefused::TooLarge { .. },
            ) => {}
        }
        admitted.map(|_| ())
    }

    fn pending_bytes(&self) -> u64 {
        self.shared.intake.lock().pending_bytes()
    }

    fn available_bytes(&self) -> u64 {
        self.shared.intake.lock().available_bytes()
    }
}
