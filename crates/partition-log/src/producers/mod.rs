//! What a partition remembers of its idempotent and transactional producers, so that a retry is recognised instead
//! of stored twice (KIP-98, KIP-360), and that every reader learns the same of a transaction.
//!
//! Rules, as Apache Kafka has them:
//! * a batch that equals one of the last five of its producer epoch is a duplicate: it is answered with the
//!   offset it got the first time and nothing is appended;
//! * otherwise its first sequence must follow the last one (2^31−1 is followed by 0);
//! * a lower producer epoch is fenced; a higher one starts again at sequence 0;
//! * a producer this partition doesn't know may continue at any sequence if the partition holds data (its state
//!   may have expired), but must start at 0 on a partition that was never written, or the batches before would be
//!   lost for good (KAFKA-15591), and in a transaction whose producer gets a new epoch each time;
//! * a batch with the first records of a transaction must have been shown to the transaction's coordinator (see
//!   `verification`); those that follow are of a transaction that is open here;
//! * a marker ends what its producer has open; what comes late ends nothing (see `marker`).

mod marker;
#[cfg(test)]
mod tests;
mod verification;

pub(crate) use marker::MarkerAdmission;
pub use marker::{Marker, MarkerRefused};
pub(crate) use verification::Verifications;

use std::collections::{BTreeMap, HashMap, VecDeque};

use tidegate_record_batch::{BatchHeader, ProducerIdentity};
use tidegate_types::{
    Offset, OffsetRange, ProducerEpoch, ProducerId, Sequence, TimestampMs, VerificationTicket,
};

/// How many batches of a producer are remembered: the most that Java's producer keeps in flight.
pub(crate) const REMEMBERED_BATCHES: usize = 5;

/// One remembered batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RememberedBatch {
    pub(crate) first_sequence: Sequence,
    pub(crate) last_sequence: Sequence,
    pub(crate) range: OffsetRange,
    pub(crate) timestamp: TimestampMs,
}

/// One producer's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProducerEntry {
    pub(crate) epoch: ProducerEpoch,
    pub(crate) batches: VecDeque<RememberedBatch>,
    /// When this producer last wrote, by the broker's wall clock: decides expiry.
    pub(crate) last_seen: TimestampMs,
    /// Where this producer's open transaction begins, if it has one.
    pub(crate) transaction_start: Option<Offset>,
    /// Of the coordinator that wrote the last marker; −1 if there was none.
    pub(crate) coordinator_epoch: i32,
}

/// A producer's state, for those who look after transactions (KIP-664).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerView {
    pub producer: ProducerId,
    pub epoch: ProducerEpoch,
    /// `None` if nothing is known of this epoch's batches.
    pub last_sequence: Option<Sequence>,
    pub last_timestamp: TimestampMs,
    /// Of the coordinator that wrote the last marker.
    pub coordinator_epoch: Option<i32>,
    pub transaction_start: Option<Offset>,
}

/// A transaction that was aborted: its records lie in `start..=marker`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedTransaction {
    pub producer: ProducerId,
    pub start: Offset,
    pub marker: Offset,
    /// The last stable offset that this marker left. Transactions whose markers come later begin at or behind it.
    pub stable_after: Offset,
}

/// What the table says of a batch that wants to be appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    Append,
    Duplicate {
        range: OffsetRange,
        timestamp: TimestampMs,
    },
}

/// Why a producer's batch was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SequenceError {
    #[error("producer {producer} wrote sequence {found} where {expected} was expected")]
    OutOfOrder {
        producer: ProducerId,
        found: Sequence,
        expected: Sequence,
    },
    #[error("producer {producer} wrote with epoch {found}, but {current} is known already")]
    Fenced {
        producer: ProducerId,
        found: ProducerEpoch,
        current: ProducerEpoch,
    },
    #[error("producer {producer} wrote outside its open transaction")]
    NotTransactional { producer: ProducerId },
    /// It has no transaction open here, and nobody has asked its coordinator, or a marker came since.
    #[error("producer {producer} wrote records that belong to no open transaction")]
    NoTransaction { producer: ProducerId },
}

/// All producers of one partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Producers {
    pub(crate) entries: HashMap<ProducerId, ProducerEntry>,
    /// Open transactions by their first offset.
    pub(crate) open: BTreeMap<Offset, ProducerId>,
    /// Aborted transactions whose records may still be read, by marker offset.
    pub(crate) aborted: BTreeMap<Offset, AbortedTransaction>,
}

/// What decides about a batch besides the producer's own state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Circumstances<'a> {
    /// While the partition has never held a record.
    pub(crate) never_written: bool,
    pub(crate) verifications: &'a Verifications,
    /// With what the transaction's coordinator was asked.
    pub(crate) ticket: Option<VerificationTicket>,
}

impl ProducerEntry {
    fn new(epoch: ProducerEpoch, now: TimestampMs) -> Self {
        Self {
            epoch,
            batches: VecDeque::new(),
            last_seen: now,
            transaction_start: None,
            coordinator_epoch: -1,
        }
    }

    fn known(&self, epoch: ProducerEpoch, first: Sequence, last: Sequence) -> Option<Admission> {
        let batch = (epoch == self.epoch)
            .then(|| {
                let mut batches = self.batches.iter();
                batches.find(|b| b.first_sequence == first && b.last_sequence == last)
            })
            .flatten()?;
        Some(Admission::Duplicate {
            range: batch.range,
            timestamp: batch.timestamp,
        })
    }
}

impl Producers {
    /// Judges a batch of data, of a client or a coordinator. A coordinator's have no sequences.
    pub(crate) fn admit(
        &self,
        header: &BatchHeader,
        circumstances: Circumstances<'_>,
    ) -> Result<Admission, SequenceError> {
        let Some(identity) = header.producer() else {
            return Ok(Admission::Append);
        };
        if let Some(known) = self.duplicate(identity, header.last_offset_delta()) {
            return Ok(known);
        }
        self.check_epoch(identity)?;
        let Circumstances {
            never_written,
            verifications,
            ticket,
        } = circumstances;
        let producer = identity.id;
        if header.is_transactional()
            && !self.has_open(producer, identity.epoch)
            && !verifications.accept(identity, ticket)
        {
            return Err(SequenceError::NoTransaction { producer });
        }
        if let Some(first) = identity.first_sequence {
            verifications.check_sequence(identity, first)?;
            self.check_sequence(identity, first, never_written, verifications)?;
        }
        let open = self
            .entries
            .get(&producer)
            .and_then(|e| e.transaction_start);
        if open.is_some() && !header.is_transactional() {
            return Err(SequenceError::NotTransactional { producer });
        }
        Ok(Admission::Append)
    }

    /// A batch that is stored already.
    pub(crate) fn duplicate(
        &self,
        identity: ProducerIdentity,
        last_offset_delta: u32,
    ) -> Option<Admission> {
        let first = identity.first_sequence?;
        let entry = self.entries.get(&identity.id)?;
        entry.known(identity.epoch, first, first.advance(last_offset_delta))
    }

    /// Refuses an epoch that is over.
    pub(crate) fn check_epoch(&self, identity: ProducerIdentity) -> Result<(), SequenceError> {
        match self.entries.get(&identity.id) {
            Some(entry) if identity.epoch < entry.epoch => Err(SequenceError::Fenced {
                producer: identity.id,
                found: identity.epoch,
                current: entry.epoch,
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// Whether the producer has a transaction open here under that epoch.
    pub(crate) fn has_open(&self, producer: ProducerId, epoch: ProducerEpoch) -> bool {
        self.entries
            .get(&producer)
            .is_some_and(|entry| entry.epoch == epoch && entry.transaction_start.is_some())
    }

    fn check_sequence(
        &self,
        identity: ProducerIdentity,
        first: Sequence,
        never_written: bool,
        verifications: &Verifications,
    ) -> Result<(), SequenceError> {
        let entry = self.entries.get(&identity.id);
        let expected = match entry {
            // It may have been forgotten; but a producer that gets a new epoch for each transaction begins anew.
            None if !never_written && !verifications.begins_at_zero(identity) => return Ok(()),
            None => Sequence::ZERO,
            Some(entry) if identity.epoch > entry.epoch => Sequence::ZERO,
            Some(entry) => match entry.batches.back() {
                Some(newest) => newest.last_sequence.advance(1),
                // Only a marker is known of this epoch: the first batch after it starts anew.
                None => Sequence::ZERO,
            },
        };
        if first == expected {
            return Ok(());
        }
        Err(SequenceError::OutOfOrder {
            producer: identity.id,
            found: first,
            expected,
        })
    }

    /// Takes in a data batch that was appended at `range`.
    pub(crate) fn apply_data(
        &mut self,
        header: &BatchHeader,
        range: OffsetRange,
        now: TimestampMs,
    ) {
        let Some(identity) = header.producer() else {
            return;
        };
        let entry = self
            .entries
            .entry(identity.id)
            .or_insert_with(|| ProducerEntry::new(identity.epoch, now));
        if entry.epoch != identity.epoch {
            entry.epoch = identity.epoch;
            entry.batches.clear();
        }
        entry.last_seen = now;
        if let Some(first) = identity.first_sequence {
            if entry.batches.len() == REMEMBERED_BATCHES {
                entry.batches.pop_front();
            }
            entry.batches.push_back(RememberedBatch {
                first_sequence: first,
                last_sequence: first.advance(header.last_offset_delta()),
                range,
                timestamp: header.max_timestamp(),
            });
        }
        if header.is_transactional() && entry.transaction_start.is_none() {
            entry.transaction_start = Some(range.start());
            self.open.insert(range.start(), identity.id);
        }
    }

    /// Where the oldest open transaction begins.
    pub(crate) fn first_open_transaction(&self) -> Option<Offset> {
        self.open.first_key_value().map(|(offset, _)| *offset)
    }

    /// The aborted transactions that have records in `range`, in the order of their first records.
    pub(crate) fn aborted_in(&self, range: OffsetRange) -> Vec<AbortedTransaction> {
        let mut found = Vec::new();
        // Only markers at or after the range's start can close a transaction that reaches into it.
        for transaction in self.aborted.range(range.start()..).map(|(_, t)| t) {
            if transaction.start < range.end() {
                found.push(*transaction);
            }
            if transaction.stable_after >= range.end() {
                break;
            }
        }
        found.sort_unstable_by_key(|transaction| transaction.start);
        found
    }

    /// Forgets what lies wholly below the log start.
    pub(crate) fn forget_below(&mut self, log_start: Offset) {
        self.aborted = self.aborted.split_off(&log_start);
    }

    /// Forgets producers that have neither written since `before` nor hold a transaction open.
    pub(crate) fn expire(&mut self, before: TimestampMs) -> usize {
        let count = self.entries.len();
        self.entries
            .retain(|_, entry| entry.transaction_start.is_some() || entry.last_seen >= before);
        count - self.entries.len()
    }

    /// All producers, by their ids.
    pub(crate) fn views(&self) -> Vec<ProducerView> {
        let mut views: Vec<_> = self
            .entries
            .iter()
            .map(|(producer, entry)| {
                let newest = entry.batches.back();
                ProducerView {
                    producer: *producer,
                    epoch: entry.epoch,
                    last_sequence: newest.map(|b| b.last_sequence),
                    last_timestamp: newest.map_or(entry.last_seen, |b| b.timestamp),
                    coordinator_epoch: Some(entry.coordinator_epoch).filter(|epoch| *epoch >= 0),
                    transaction_start: entry.transaction_start,
                }
            })
            .collect();
        views.sort_unstable_by_key(|view| view.producer);
        views
    }
}
