//! One transactional id, as the log keeps it, and the transitions of its state.

use std::collections::BTreeSet;

use tidegate_types::{ProducerEpoch, ProducerId, TimestampMs};

use super::ProducerIdentity;
use crate::TopicPartition;

/// The state of a transactional id. Kafka's Dead and PrepareEpochFence are never stored and don't exist here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TransactionState {
    Empty,
    Ongoing,
    PrepareCommit,
    PrepareAbort,
    CompleteCommit,
    CompleteAbort,
}

impl TransactionState {
    const ALL: [(i8, Self, &'static str); 6] = [
        (0, Self::Empty, "Empty"),
        (1, Self::Ongoing, "Ongoing"),
        (2, Self::PrepareCommit, "PrepareCommit"),
        (3, Self::PrepareAbort, "PrepareAbort"),
        (4, Self::CompleteCommit, "CompleteCommit"),
        (5, Self::CompleteAbort, "CompleteAbort"),
    ];

    /// Kafka's name for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Ongoing => "Ongoing",
            Self::PrepareCommit => "PrepareCommit",
            Self::PrepareAbort => "PrepareAbort",
            Self::CompleteCommit => "CompleteCommit",
            Self::CompleteAbort => "CompleteAbort",
        }
    }

    /// By Kafka's name.
    pub fn from_name(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(_, _, known)| *known == name);
        found.map(|(_, state, _)| *state)
    }

    pub(super) fn to_record(self) -> i8 {
        match self {
            Self::Empty => 0,
            Self::Ongoing => 1,
            Self::PrepareCommit => 2,
            Self::PrepareAbort => 3,
            Self::CompleteCommit => 4,
            Self::CompleteAbort => 5,
        }
    }

    pub(super) fn from_record(number: i8) -> Option<Self> {
        let found = Self::ALL.iter().find(|(known, _, _)| *known == number);
        found.map(|(_, state, _)| *state)
    }

    pub(super) fn is_prepared(self) -> bool {
        matches!(self, Self::PrepareCommit | Self::PrepareAbort)
    }
}

/// Which rules a client ended its transaction by (the feature `transaction.version`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TransactionVersion {
    /// Partitions are added by requests; the epoch stays.
    V0,
    /// As V0, with flexible records.
    V1,
    /// Each end raises the epoch (KIP-890).
    V2,
}

impl TransactionVersion {
    pub fn level(self) -> i16 {
        match self {
            Self::V0 => 0,
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }

    /// Levels above 2 are taken for 2, as what they add isn't known here.
    pub(super) fn from_level(level: i16) -> Option<Self> {
        match level {
            0 => Some(Self::V0),
            1 => Some(Self::V1),
            2.. => Some(Self::V2),
            _ => None,
        }
    }

    pub(super) fn raises_epoch(self) -> bool {
        self == Self::V2
    }
}

/// The highest epoch that a producer gets; the one above is kept for fencing it.
const LAST_EPOCH: i16 = i16::MAX - 1;

pub(super) fn is_exhausted(epoch: ProducerEpoch) -> bool {
    epoch.to_wire() >= LAST_EPOCH
}

/// The next epoch; `None` after the very last one.
pub(super) fn raised(epoch: ProducerEpoch) -> Option<ProducerEpoch> {
    ProducerEpoch::from_wire(epoch.to_wire().checked_add(1)?)
}

/// One transactional id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transaction {
    pub(super) producer: ProducerIdentity,
    /// The producer id before the current one.
    pub(super) previous_id: Option<ProducerId>,
    /// The producer id from the completion of this transaction on, as its epochs are used up.
    pub(super) next_id: Option<ProducerId>,
    /// The epoch before the current one, if its holder may still go on (KIP-360).
    pub(super) last_epoch: Option<ProducerEpoch>,
    pub(super) timeout_ms: i32,
    pub(super) state: TransactionState,
    pub(super) partitions: BTreeSet<TopicPartition>,
    pub(super) updated_at: TimestampMs,
    /// [`TimestampMs::NONE`] if no transaction was begun since the last InitProducerId.
    pub(super) started_at: TimestampMs,
    pub(super) version: TransactionVersion,
}

impl Transaction {
    /// A free id with this producer.
    pub(super) fn empty(producer: ProducerIdentity, timeout_ms: i32, at: TimestampMs) -> Self {
        Self {
            producer,
            previous_id: None,
            next_id: None,
            last_epoch: None,
            timeout_ms,
            state: TransactionState::Empty,
            partitions: BTreeSet::new(),
            updated_at: at,
            started_at: TimestampMs::NONE,
            version: TransactionVersion::V0,
        }
    }

    pub(super) fn with_partitions(
        &self,
        added: &BTreeSet<TopicPartition>,
        at: TimestampMs,
    ) -> Self {
        let started_at = match self.state {
            TransactionState::Ongoing => self.started_at,
            _ => at,
        };
        Self {
            state: TransactionState::Ongoing,
            partitions: self.partitions.union(added).cloned().collect(),
            started_at,
            updated_at: at,
            version: TransactionVersion::V0,
            ..self.clone()
        }
    }

    /// Decides the transaction. `raised` is the epoch that its markers carry if the rules raise it.
    pub(super) fn prepared(
        &self,
        commit: bool,
        raised: Option<ProducerEpoch>,
        next_id: Option<ProducerId>,
        at: TimestampMs,
    ) -> Self {
        let state = match commit {
            true => TransactionState::PrepareCommit,
            false => TransactionState::PrepareAbort,
        };
        let (epoch, last_epoch, version) = match raised {
            Some(epoch) => (epoch, Some(self.producer.epoch), TransactionVersion::V2),
            None => (self.producer.epoch, self.last_epoch, TransactionVersion::V0),
        };
        // An abort of nothing starts and ends at once.
        let started_at = match self.state {
            TransactionState::Ongoing => self.started_at,
            _ => at,
        };
        Self {
            producer: ProducerIdentity {
                epoch,
                ..self.producer
            },
            last_epoch,
            next_id,
            state,
            started_at,
            updated_at: at,
            version,
            ..self.clone()
        }
    }

    /// What it is once all markers are written. Called on a prepared one.
    pub(super) fn completed(&self, at: TimestampMs) -> Self {
        let state = match self.state {
            TransactionState::PrepareCommit => TransactionState::CompleteCommit,
            _ => TransactionState::CompleteAbort,
        };
        let (producer, previous_id) = match self.next_id {
            Some(id) => (
                ProducerIdentity {
                    id,
                    epoch: ProducerEpoch::FIRST,
                },
                Some(self.producer.id),
            ),
            None => (self.producer, self.previous_id),
        };
        Self {
            producer,
            previous_id,
            next_id: None,
            state,
            partitions: BTreeSet::new(),
            updated_at: at,
            ..self.clone()
        }
    }
}
