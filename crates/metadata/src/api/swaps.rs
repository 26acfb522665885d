//! Putting segments in the place of others: what compaction writes in the place of what it read.

use serde::{Deserialize, Serialize};
use tidegate_types::{BrokerEpoch, BrokerId, LeaderEpoch, Offset, OffsetRange, PartitionId};

use super::{ControllerUnavailable, StaleBrokerEpoch};
use crate::model::{ObjectCommit, StoredObjectKey};

/// Puts new segments in the place of a run of a partition's segments, in one atomic change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwapSegments {
    /// Who asks: the leader.
    pub broker: BrokerId,
    /// Under which registration.
    pub broker_epoch: BrokerEpoch,
    /// Which partition.
    pub partition: PartitionId,
    /// Under which leader epoch.
    pub leader_epoch: LeaderEpoch,
    /// The segments that go: all that there are between the first one's start and the last one's end, in order. None:
    /// only the cleaned end moves.
    pub inputs: Vec<SwapInput>,
    /// The objects that hold what comes in their place, one segment each, in order.
    pub outputs: Vec<ObjectCommit>,
    /// Up to where the log has been compacted by this, if that moves.
    pub cleaned_end: Option<Offset>,
}

impl SwapSegments {
    /// The most segments on either side of one swap.
    pub const MAX_SEGMENTS: usize = 1_000;

    /// The offsets of the run.
    pub fn range(&self) -> Option<OffsetRange> {
        let (first, last) = self.inputs.first().zip(self.inputs.last())?;
        OffsetRange::new(first.range.start(), last.range.end())
    }
}

/// A segment as the asker knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwapInput {
    /// Its offsets.
    pub range: OffsetRange,
    /// The object it is in.
    pub object: StoredObjectKey,
}

/// What became of a swap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SwapOutcome {
    /// The new segments are in the map.
    Swapped,
    /// Nothing changed, but for the new objects: they are entered as dropped.
    Refused(SwapRefused),
}

/// Why segments weren't swapped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum SwapRefused {
    /// The topic is gone.
    #[error("there is no partition {0}")]
    UnknownPartition(PartitionId),
    /// Only the present leader may.
    #[error("the leader is {leader:?} under leader epoch {leader_epoch}")]
    NotLeader {
        /// Who leads.
        leader: Option<BrokerId>,
        /// Under which leader epoch.
        leader_epoch: LeaderEpoch,
    },
    /// A segment of the run lies below the log start.
    #[error("the log starts at {log_start}")]
    BelowLogStart {
        /// The log start.
        log_start: Offset,
    },
    /// The map has other segments there.
    #[error("the segment map has other segments there")]
    OtherSegments,
    /// The newest checkpoint would be replayed over what compaction changed.
    #[error("the newest checkpoint is as of {as_of:?}")]
    NotCheckpointed {
        /// Its offset.
        as_of: Option<Offset>,
    },
    /// All references to an object were dropped; it may be deleted at any time.
    #[error("{object} was dropped and can't be referred to again")]
    ObjectDropped {
        /// The object.
        object: StoredObjectKey,
    },
    /// The request contradicts itself.
    #[error("the request can't be carried out: {reason}")]
    Malformed {
        /// What is wrong.
        reason: std::borrow::Cow<'static, str>,
    },
}

/// Why a swap got no outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum SwapSegmentsError {
    /// Another process registered under this number, or this one hasn't taken leadership.
    #[error(transparent)]
    StaleBrokerEpoch(#[from] StaleBrokerEpoch),
    /// No answer from the controller.
    #[error(transparent)]
    Unavailable(#[from] ControllerUnavailable),
}
