//! The nouns of the metadata: what a partition, a segment and an object look like to a broker.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_types::{
    BrokerEpoch, BrokerId, LeaderEpoch, Offset, OffsetRange, PartitionId, TimestampMs,
};
use uuid::Uuid;

/// A text that can't be an object's key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid object key {key:?}: {reason}")]
pub struct InvalidObjectKey {
    /// The text, cut to 300 characters.
    pub key: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// The key of an object relative to the cluster's prefix, such as `data/1/7/42`. Opaque here: 1 to 255
/// printable ASCII characters.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StoredObjectKey(Arc<str>);

impl TryFrom<String> for StoredObjectKey {
    type Error = InvalidObjectKey;
    fn try_from(key: String) -> Result<Self, InvalidObjectKey> {
        Self::new(&key)
    }
}

impl From<StoredObjectKey> for String {
    fn from(key: StoredObjectKey) -> Self {
        key.as_str().to_owned()
    }
}

impl StoredObjectKey {
    /// The longest key, in bytes.
    pub const MAX_LENGTH: usize = 255;

    /// # Errors
    /// The text is empty, too long, or has a character that isn't printable ASCII.
    pub fn new(key: &str) -> Result<Self, InvalidObjectKey> {
        let invalid = |reason| InvalidObjectKey {
            key: key.chars().take(300).collect(),
            reason,
        };
        if key.is_empty() {
            return Err(invalid("it is empty"));
        }
        if key.len() > Self::MAX_LENGTH {
            return Err(invalid("it is longer than 255 bytes"));
        }
        if !key.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(invalid("only printable ASCII is allowed"));
        }
        Ok(Self(key.into()))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StoredObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for StoredObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// Where to connect to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Endpoint {
    /// Host name or address, as clients should use it.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// A run of bytes in an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteSpan {
    /// Position of the first byte.
    pub position: u64,
    /// Number of bytes.
    pub length: u64,
}

/// The first offset written under a leader epoch (KIP-101).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochStart {
    /// The leader epoch.
    pub epoch: LeaderEpoch,
    /// Its first offset; equal to the end of the epoch before it.
    pub start: Offset,
}

/// Where a partition's newest checkpoint lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRef {
    /// The object that holds it; it isn't deleted as long as this reference stands.
    pub object: StoredObjectKey,
    /// Where in the object.
    pub span: ByteSpan,
    /// The checkpoint is the state before the record at this offset: the end of its segment.
    pub as_of: Offset,
}

/// All the controller knows of one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionState {
    /// Which partition.
    pub partition: PartitionId,
    /// The broker that may append; `None` while nobody can.
    pub leader: Option<BrokerId>,
    /// The current leader epoch, or the last one if there is no leader.
    pub leader_epoch: LeaderEpoch,
    /// Oldest first; offsets strictly rise; entries wholly below the log start are pruned.
    pub epochs: Vec<EpochStart>,
    /// The brokers that may lead, in order of preference.
    pub placement: Vec<BrokerId>,
    /// First readable offset.
    pub log_start: Offset,
    /// The uploaded end offset: exclusive end of what the segment map covers.
    pub committed_end: Offset,
    /// The newest checkpoint, if anything was ever committed.
    pub checkpoint: Option<CheckpointRef>,
    /// Number of segments in the map.
    pub segment_count: u64,
    /// Their bytes.
    pub segment_bytes: u64,
    /// Up to where the log has been compacted by key.
    pub cleaned_end: Offset,
    /// How often segments were put in the place of others: a map read under another count may be out of date.
    pub swaps: u64,
}

impl PartitionState {
    /// The first offset of the current leader epoch.
    pub fn leader_epoch_start(&self) -> Offset {
        self.epochs.last().map_or(Offset::ZERO, |e| e.start)
    }
}

/// One entry of a partition's segment map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentEntry {
    /// The offsets it holds.
    pub range: OffsetRange,
    /// Leader epoch of its last batch.
    pub leader_epoch: LeaderEpoch,
    /// The object that holds it.
    pub object: StoredObjectKey,
    /// Its bytes in the object.
    pub span: ByteSpan,
    /// The object's index.
    pub index: ByteSpan,
    /// The greatest timestamp of its records.
    pub max_timestamp: TimestampMs,
    /// Number of records.
    pub record_count: u64,
    /// When it was committed, by the controller's clock: its age can't count from later, whatever its records
    /// say.
    pub committed_at: TimestampMs,
}

/// One partition's slice of a written object, offered for commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentCommit {
    /// Which partition.
    pub partition: PartitionId,
    /// Leader epoch of the slice's last batch.
    pub leader_epoch: LeaderEpoch,
    /// The offsets it holds; must start at the partition's committed end.
    pub range: OffsetRange,
    /// Its bytes in the object.
    pub span: ByteSpan,
    /// The greatest timestamp of its records.
    pub max_timestamp: TimestampMs,
    /// Number of records.
    pub record_count: u64,
    /// The partition's state as of `range.end()`, in the same object.
    pub checkpoint: Option<ByteSpan>,
}

/// A written object, offered for commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectCommit {
    /// Its key.
    pub key: StoredObjectKey,
    /// Its size.
    pub size_bytes: u64,
    /// Where its index lies.
    pub index: ByteSpan,
    /// Its number in the writer's row of WAL objects; `None` for objects that are no WAL objects.
    pub wal_sequence: Option<u64>,
    /// At most one per partition.
    pub segments: Vec<SegmentCommit>,
}

/// The broker epoch under which a broker last led partitions, and how far its WAL objects are committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriterState {
    /// The broker epoch that wrote.
    pub broker_epoch: BrokerEpoch,
    /// The first WAL sequence that no commit covers: where recovery starts to read.
    pub next_wal_sequence: u64,
}

/// What is known of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectStatus {
    /// No commit names it: an orphan, or not committed yet.
    Unknown,
    /// Segments or checkpoints refer to it.
    Referenced {
        /// How many do.
        references: u64,
    },
    /// Its last reference was dropped.
    Dropped {
        /// When, by the controller's clock.
        at: TimestampMs,
    },
}

/// The identity of one broker's local WAL: made once when its folder is made.
pub type WalIdentity = Uuid;
