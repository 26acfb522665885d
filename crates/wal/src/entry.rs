//! What every kind of WAL takes in and gives back.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_types::{BrokerEpoch, BrokerId, LeaderEpoch, OffsetRange, PartitionId, TimestampMs};

/// One append: consecutive record batches of one partition, already placed at their offsets.
#[derive(Debug, Clone)]
pub struct Entry {
    pub partition: PartitionId,
    pub leader_epoch: LeaderEpoch,
    /// The offsets of `batches`, from the first base offset to the last offset + 1.
    pub range: OffsetRange,
    /// The record batches, concatenated; the WAL never copies or looks into them.
    pub batches: Bytes,
    pub max_timestamp: TimestampMs,
    pub record_count: u32,
    /// The partition's derived state; it says itself as of which offset. The object mode stores it; the local
    /// mode, which replays the batches, doesn't.
    pub checkpoint: Option<Bytes>,
}

/// Hears how one append ended. Exactly one of the two methods is called, once for each entry taken, and for
/// the entries of one partition in the order in which they were appended.
///
/// It is called from the WAL's writer, which does nothing else meanwhile: return soon, take no lock that is
/// held over [`Wal::append`], and don't call the WAL back.
pub trait AppendObserver: Send + Sync {
    /// The entry survives what its durability mode promises.
    fn durable(&self, appended: Appended);

    /// The entry's fate is unknown: it may or may not turn up after a restart. Nothing appended later to this
    /// WAL becomes durable either.
    fn failed(&self, failure: &WalFailure);
}

/// An entry that became durable.
#[derive(Debug, Clone)]
pub struct Appended {
    pub range: OffsetRange,
    pub location: Location,
}

/// Where the batches of a durable entry lie.
#[derive(Debug, Clone)]
pub enum Location {
    /// In the local WAL: the position of the entry's frame and the length of its batches, the two arguments
    /// of `LocalWal::read`.
    Local { position: WalPosition, length: u32 },
    /// In a stored object: the byte position and length of the entry's batches within it.
    Object {
        object: Arc<WrittenObjectRef>,
        position: u64,
        length: u64,
    },
}

/// The identity and size of an object that the object WAL stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenObjectRef {
    pub broker: BrokerId,
    pub broker_epoch: BrokerEpoch,
    pub sequence: u64,
    pub size_bytes: u64,
}

/// A byte address in a broker's WAL. It grows with each append, over files and over restarts, as long as the
/// WAL holds anything.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct WalPosition(u64);

impl WalPosition {
    pub const ZERO: Self = Self(0);

    pub const fn new(position: u64) -> Self {
        Self(position)
    }

    pub const fn get(self) -> u64 {
        self.0
    }

    /// The position `bytes` further. A WAL would need 2^64 bytes of appends to run out.
    pub fn advance(self, bytes: u64) -> Self {
        Self(
            self.0
                .checked_add(bytes)
                .expect("a WAL is written fewer than 2^64 bytes in its life"),
        )
    }
}

impl fmt::Display for WalPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for WalPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a WAL can't go on. It is final: only opening the WAL again, with its recovery, helps.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WalFailure {
    /// The disk answered an error. After a failed sync nobody knows which of the bytes are stored, so it is
    /// never repeated (the kernel may have dropped the dirty pages and would answer success).
    #[error("the disk failed to {operation} WAL file {file}")]
    Disk {
        operation: &'static str,
        file: String,
        source: Arc<io::Error>,
    },
    /// Somebody else created the object that this writer was to create: it was fenced and must step down.
    #[error("another writer owns WAL object {sequence} of broker epoch {broker_epoch}")]
    Fenced {
        broker_epoch: BrokerEpoch,
        sequence: u64,
    },
    /// The object store gave a final error.
    #[error("the object store failed to take WAL object {sequence}")]
    Store {
        sequence: u64,
        source: Arc<dyn Error + Send + Sync>,
    },
    /// The WAL was closed before the entry became durable.
    #[error("the WAL was closed")]
    Closed,
}

/// An append that wasn't taken: the entry's observer isn't called.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendRefused {
    /// No room now. Retriable: room comes back by itself.
    #[error("the WAL is full: {0}")]
    Full(FullCause),
    /// The WAL failed earlier.
    #[error("the WAL has failed")]
    Failed(#[source] WalFailure),
    /// The WAL is closing.
    #[error("the WAL is closed")]
    Closed,
    /// The entry can never fit.
    #[error("an entry of {bytes} bytes is above the WAL's limit of {limit_bytes}")]
    TooLarge { bytes: u64, limit_bytes: u64 },
}

impl AppendRefused {
    /// Whether the same append may succeed later on the same WAL.
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Full(_) => true,
            Self::Failed(_) | Self::Closed | Self::TooLarge { .. } => false,
        }
    }
}

/// What there was no room in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FullCause {
    /// Too many bytes wait to become durable: appends come faster than the disk or the store takes them.
    #[error("too many bytes wait to become durable")]
    Pending,
    /// The configured capacity holds entries that can't be trimmed yet: uploads don't keep up.
    #[error("its capacity holds entries not uploaded yet")]
    Capacity,
    /// The file system has no room for another WAL file.
    #[error("the file system is full")]
    FileSystem,
}

/// A write-ahead log shared by many partitions.
pub trait Wal: Send + Sync {
    /// Takes `entry` and returns at once; `observer` hears how it ended. Entries of one partition become
    /// durable in the order of the calls.
    ///
    /// # Errors
    /// When the entry wasn't taken; see [`AppendRefused`].
    fn append(&self, entry: Entry, observer: Arc<dyn AppendObserver>) -> Result<(), AppendRefused>;

    /// Bytes taken and not yet durable.
    fn pending_bytes(&self) -> u64;

    /// Bytes that can be taken now before [`AppendRefused::Full`].
    fn available_bytes(&self) -> u64;
}
