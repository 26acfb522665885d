//! Registration, leadership after a start, and what is handed out to brokers.

use serde::{Deserialize, Serialize};
use tidegate_types::{
    BrokerEpoch, BrokerId, LeaderEpoch, Offset, OffsetRange, PartitionId, ProducerId,
};
use uuid::Uuid;

use super::{CommitRefused, ControllerUnavailable, ObjectOutcome, StaleBrokerEpoch};
use crate::model::{Endpoint, ObjectCommit, PartitionState, WalIdentity, WriterState};

/// Announces a broker process. Sent at each start, and again whenever the answer was lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterBroker {
    /// The broker's number; `None`: the lowest one that was never used.
    pub broker: Option<BrokerId>,
    /// Random per life of a broker: tells a repetition from a restart.
    pub incarnation: Uuid,
    /// Where Kafka clients connect.
    pub kafka: Endpoint,
    /// Where other brokers connect.
    pub internal: Option<Endpoint>,
    /// Its rack or zone.
    pub rack: Option<String>,
    /// The local WAL whose lock the process holds: whoever registered with the same one before is dead.
    #[serde(default)]
    pub wal: Option<WalIdentity>,
}

/// A registration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// The broker's number.
    pub broker: BrokerId,
    /// To be named in every later request. From now on an earlier broker epoch can commit nothing.
    pub broker_epoch: BrokerEpoch,
    /// The broker epoch that last led partitions under this broker's number. Its WAL objects must be fenced
    /// and recovered, from this sequence on, before leadership is taken. `None` at the first start ever, or
    /// when this registration has taken leadership already.
    pub former_writer: Option<WriterState>,
}

/// Why a broker wasn't registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum RegisterBrokerError {
    /// Another process lives under this number, with another local WAL. Passes when that one's session ends.
    #[error("broker {broker} is alive in another process ({kafka})")]
    Duplicate {
        /// The number.
        broker: BrokerId,
        /// Where that process answers Kafka clients.
        kafka: Endpoint,
    },
    /// No number is left to be given out.
    #[error("all broker numbers are used")]
    NoNumber,
    /// No answer from the controller.
    #[error(transparent)]
    Unavailable(#[from] ControllerUnavailable),
}

/// The end of what a broker's local WAL holds of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveredEnd {
    /// Which partition.
    pub partition: PartitionId,
    /// Leader epoch of the last batch.
    pub leader_epoch: LeaderEpoch,
    /// Exclusive end.
    pub end: Offset,
}

/// Commits what recovery found and makes the broker leader of all partitions that it led or that nobody
/// ever led and that are placed on it, in one atomic change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeLeadership {
    /// Who asks.
    pub broker: BrokerId,
    /// Under which registration.
    pub broker_epoch: BrokerEpoch,
    /// The local WAL it runs on.
    pub wal: Option<WalIdentity>,
    /// The former writer whose WAL objects were fenced; must be the one that registration named.
    pub fenced_writer: Option<BrokerEpoch>,
    /// That writer's WAL objects which no commit covers, in the order of their sequence, without a gap.
    pub recovered: Vec<ObjectCommit>,
    /// What the local WAL holds; partitions that it doesn't hold aren't named.
    pub ends: Vec<RecoveredEnd>,
    /// Lead also the partitions whose acknowledged records are known to be missing.
    pub accept_loss: bool,
}

/// What leadership was taken of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeadershipTaken {
    /// All partitions that the broker leads now.
    pub partitions: Vec<PartitionState>,
    /// Partitions left offline, because leading them would skip acknowledged records.
    pub withheld: Vec<Withheld>,
    /// What `accept_loss` gave up.
    pub lost: Vec<Loss>,
    /// What became of the recovered objects' segments, in their order.
    pub recovered: Vec<ObjectOutcome>,
}

/// A partition left without a leader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Withheld {
    /// Which partition.
    pub partition: PartitionId,
    /// Why.
    pub reason: WithheldReason,
}

/// Why leading would skip acknowledged records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WithheldReason {
    /// It was acknowledged on another local WAL than the one this broker runs on.
    OtherWal {
        /// The WAL that holds its records.
        expected: WalIdentity,
    },
    /// The log is known to have reached further than what was found.
    Missing {
        /// From the end of what was found to where the log is known to have reached.
        missing: OffsetRange,
    },
}

/// Offsets given up by `accept_loss`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Which partition.
    pub partition: PartitionId,
    /// From here on; how far the log reached may be unknown.
    pub from: Offset,
    /// Where the log is known to have reached, if that is beyond `from`.
    pub known_to: Option<Offset>,
}

/// Why leadership wasn't taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum TakeLeadershipError {
    /// Another process registered under this number.
    #[error(transparent)]
    StaleBrokerEpoch(#[from] StaleBrokerEpoch),
    /// The former writer isn't fenced, so it could still acknowledge.
    #[error("the WAL objects of broker epoch {expected} must be fenced and recovered first")]
    WriterNotFenced {
        /// Whose.
        expected: BrokerEpoch,
    },
    /// The recovered objects can't be committed.
    #[error(transparent)]
    Commit(#[from] CommitRefused),
    /// No answer from the controller.
    #[error(transparent)]
    Unavailable(#[from] ControllerUnavailable),
}

/// Takes a block of producer ids that nobody else ever gets. A lost answer loses a block, which is harmless.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocateProducerIds {
    /// Who asks.
    pub broker: BrokerId,
    /// Under which registration.
    pub broker_epoch: BrokerEpoch,
}

/// Consecutive producer ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProducerIdBlock {
    /// The first.
    pub first: ProducerId,
    /// How many.
    pub count: u32,
}

/// Why there is no block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum AllocateProducerIdsError {
    /// Another process registered under this number.
    #[error(transparent)]
    StaleBrokerEpoch(#[from] StaleBrokerEpoch),
    /// All 2^63 are given out.
    #[error("all producer ids are given out")]
    Exhausted,
    /// No answer from the controller.
    #[error(transparent)]
    Unavailable(#[from] ControllerUnavailable),
}
