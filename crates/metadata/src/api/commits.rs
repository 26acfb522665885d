//! Written objects, the segment map, and what may be deleted.

use serde::{Deserialize, Serialize};
use tidegate_types::{BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionId, TimestampMs};

use super::{ControllerUnavailable, StaleBrokerEpoch};
use crate::model::{ObjectCommit, SegmentEntry, StoredObjectKey};

/// Registers the ranges of written objects; they become visible by this, all in one atomic change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitObjects {
    /// Who asks.
    pub broker: BrokerId,
    /// Under which registration.
    pub broker_epoch: BrokerEpoch,
    /// In order: of a partition, each must start where the one before ended.
    pub objects: Vec<ObjectCommit>,
}

/// What became of one object's segments, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectOutcome {
    /// The object.
    pub key: StoredObjectKey,
    /// One per segment of the request.
    pub segments: Vec<SegmentOutcome>,
}

/// What became of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SegmentOutcome {
    /// The range is covered by the segment map: by this segment or, if it was committed before, by this or
    /// another one. What lies below may be trimmed from the WAL.
    Committed {
        /// The partition's uploaded end offset.
        committed_end: Offset,
    },
    /// The topic is gone, and with it the need for the data.
    TopicDeleted,
    /// A later leader started below the end of this range: the range was sealed without these records, which
    /// were never acknowledged. They are skipped.
    Superseded {
        /// Where the range of its leader epoch was sealed.
        sealed_end: Offset,
    },
    /// Somebody else committed a part of the range, so it no longer begins where the map ends. It is skipped;
    /// the leader cuts it anew from the committed end on.
    Overtaken {
        /// The partition's uploaded end offset.
        committed_end: Offset,
    },
}

/// Why nothing of a commit was carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum CommitRefused {
    /// The range doesn't start where the partition's map ends. Commit what lies between first.
    #[error(
        "{object}: {partition} is committed up to {committed_end}, so a segment from {start} would leave a gap or overlap"
    )]
    NotContiguous {
        /// The object.
        object: StoredObjectKey,
        /// The partition.
        partition: PartitionId,
        /// Where its segment map ends.
        committed_end: Offset,
        /// Where the segment starts.
        start: Offset,
    },
    /// The segment's leader epoch is above the partition's.
    #[error(
        "{object}: leader epoch {leader_epoch} of {partition} was never given out; the current one is {current}"
    )]
    UnknownLeaderEpoch {
        /// The object.
        object: StoredObjectKey,
        /// The partition.
        partition: PartitionId,
        /// The segment's.
        leader_epoch: LeaderEpoch,
        /// The partition's.
        current: LeaderEpoch,
    },
    /// Only the leader may commit under the current leader epoch.
    #[error("{object}: the broker doesn't lead {partition}")]
    NotLeader {
        /// The object.
        object: StoredObjectKey,
        /// The partition.
        partition: PartitionId,
        /// Who does.
        leader: Option<BrokerId>,
    },
    /// A WAL object whose predecessor wasn't committed.
    #[error("{object}: WAL sequence {sequence} isn't the next one, {expected}")]
    SequenceGap {
        /// The object.
        object: StoredObjectKey,
        /// Its sequence.
        sequence: u64,
        /// The next one.
        expected: u64,
    },
    /// All references to the object were dropped; it may be deleted at any time.
    #[error("{object} was dropped and can't be referred to again")]
    ObjectDropped {
        /// The object.
        object: StoredObjectKey,
    },
    /// The object contradicts itself.
    #[error("{object} can't be committed: {reason}")]
    Malformed {
        /// The object.
        object: StoredObjectKey,
        /// What is wrong.
        reason: std::borrow::Cow<'static, str>,
    },
}

/// Why a commit failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum CommitObjectsError {
    /// Another process registered under this number, or this one hasn't taken leadership.
    #[error(transparent)]
    StaleBrokerEpoch(#[from] StaleBrokerEpoch),
    /// Nothing of it was carried out.
    #[error(transparent)]
    Refused(#[from] CommitRefused),
    /// No answer from the controller.
    #[error(transparent)]
    Unavailable(#[from] ControllerUnavailable),
}

/// Raises a partition's log start offset (retention, DeleteRecords).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdvanceLogStart {
    /// Who asks: the leader.
    pub broker: BrokerId,
    /// Under which registration.
    pub broker_epoch: BrokerEpoch,
    /// Which partition.
    pub partition: PartitionId,
    /// Under which leader epoch.
    pub leader_epoch: LeaderEpoch,
    /// The new first readable offset, at most the high watermark. Lower than the present one: no change.
    pub new_start: Offset,
}

/// Why the log start didn't move.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum AdvanceLogStartError {
    /// Another process registered under this number, or this one hasn't taken leadership.
    #[error(transparent)]
    StaleBrokerEpoch(#[from] StaleBrokerEpoch),
    /// No such partition (any more).
    #[error("there is no partition {0}")]
    UnknownPartition(PartitionId),
    /// Only the present leader may.
    #[error("broker {broker} doesn't lead {partition} under leader epoch {leader_epoch}")]
    NotLeader {
        /// Who asked.
        broker: BrokerId,
        /// The partition.
        partition: PartitionId,
        /// Under which leader epoch.
        leader_epoch: LeaderEpoch,
    },
    /// No answer from the controller.
    #[error(transparent)]
    Unavailable(#[from] ControllerUnavailable),
}

/// Reads a part of a partition's segment map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentQuery {
    /// Which partition.
    pub partition: PartitionId,
    /// Segments that end behind this offset, in order.
    pub from: Offset,
    /// At most so many; cut to [`SegmentQuery::MAX_LIMIT`].
    pub limit: usize,
}

impl SegmentQuery {
    /// The most segments in one answer.
    pub const MAX_LIMIT: usize = 10_000;
}

/// A part of a segment map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentPage {
    /// In the order of offsets, without a hole between them.
    pub segments: Vec<SegmentEntry>,
    /// There are more behind the last.
    pub more: bool,
}

/// Asks for objects that may be deleted from the store (invariant I3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletableQuery {
    /// Only those whose last reference was dropped at or before this time: now less the grace period.
    pub dropped_before: TimestampMs,
    /// At most so many; cut to 10,000.
    pub limit: usize,
}

/// An object nobody refers to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletableObject {
    /// Its key.
    pub key: StoredObjectKey,
    /// Its size.
    pub size_bytes: u64,
    /// When its last reference was dropped.
    pub dropped_at: TimestampMs,
}
