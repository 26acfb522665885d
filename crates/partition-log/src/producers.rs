//! What a partition remembers of its idempotent producers, so that a retry is recognised instead of stored
//! twice (KIP-98, KIP-360).
//!
//! Rules, as Apache Kafka has them:
//! * a batch that equals one of the last five of its producer epoch is a duplicate: it is answered with the
//!   offset it got the first time and nothing is appended;
//! * otherwise its first sequence must follow the last one (2^31−1 is followed by 0);
//! * a lower producer epoch is fenced; a higher one starts again at sequence 0;
//! * a producer this partition doesn't know may continue at any sequence if the partition holds data (its state
//!   may have expired), but must start at 0 on a partition that was never written, or the batches before would be
//!   lost for good (KAFKA-15591).

use std::collections::{BTreeMap, HashMap, VecDeque};

use tidegate_record_batch::BatchHeader;
use tidegate_types::{Offset, OffsetRange, ProducerEpoch, ProducerId, Sequence, TimestampMs};

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
    pub(crate) coordinator_epoch: i32,
}

/// A transaction that was aborted: its records lie in `start..=marker`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedTransaction {
    pub producer: ProducerId,
    pub start: Offset,
    pub marker: Offset,
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

impl Producers {
    /// Judges a client's batch. `never_written` is true while the partition has never held a record.
    pub(crate) fn admit(
        &self,
        header: &BatchHeader,
        never_written: bool,
    ) -> Result<Admission, SequenceError> {
        let Some(identity) = header.producer() else {
            return Ok(Admission::Append);
        };
        let (producer, epoch) = (identity.id, identity.epoch);
        let Some(first) = identity.first_sequence else {
            return Ok(Admission::Append);
        };
        let out_of_order = |expected| SequenceError::OutOfOrder {
            producer,
            found: first,
            expected,
        };
        let Some(entry) = self.entries.get(&producer) else {
            return if never_written && first != Sequence::ZERO {
                Err(out_of_order(Sequence::ZERO))
            } else {
                Ok(Admission::Append)
            };
        };
        if epoch < entry.epoch {
            return Err(SequenceError::Fenced {
                producer,
                found: epoch,
                current: entry.epoch,
            });
        }
        if epoch > entry.epoch {
            return if first == Sequence::ZERO {
                Ok(Admission::Append)
            } else {
                Err(out_of_order(Sequence::ZERO))
            };
        }
        if entry.transaction_start.is_some() && !header.is_transactional() {
            return Err(SequenceError::NotTransactional { producer });
        }
        let last = first.advance(header.last_offset_delta());
        if let Some(known) = entry
            .batches
            .iter()
            .find(|b| b.first_sequence == first && b.last_sequence == last)
        {
            return Ok(Admission::Duplicate {
                range: known.range,
                timestamp: known.timestamp,
            });
        }
        match entry.batches.back() {
            Some(newest) if newest.last_sequence.advance(1) == first => Ok(Admission::Append),
            Some(newest) => Err(out_of_order(newest.last_sequence.advance(1))),
            // Only a marker is known of this epoch: the first batch after it starts anew.
            None if first == Sequence::ZERO => Ok(Admission::Append),
            None => Err(out_of_order(Sequence::ZERO)),
        }
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
            .or_insert_with(|| ProducerEntry {
                epoch: identity.epoch,
                batches: VecDeque::with_capacity(1),
                last_seen: now,
                transaction_start: None,
                coordinator_epoch: -1,
            });
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

    /// Takes in a commit or abort marker at `marker`.
    pub(crate) fn apply_marker(
        &mut self,
        producer: ProducerId,
        epoch: ProducerEpoch,
        coordinator_epoch: i32,
        commit: bool,
        marker: Offset,
        now: TimestampMs,
    ) {
        let entry = self
            .entries
            .entry(producer)
            .or_insert_with(|| ProducerEntry {
                epoch,
                batches: VecDeque::new(),
                last_seen: now,
                transaction_start: None,
                coordinator_epoch,
            });
        if epoch > entry.epoch {
            entry.epoch = epoch;
            entry.batches.clear();
        }
        entry.last_seen = now;
        entry.coordinator_epoch = coordinator_epoch;
        if let Some(start) = entry.transaction_start.take() {
            self.open.remove(&start);
            if !commit {
                self.aborted.insert(
                    marker,
                    AbortedTransaction {
                        producer,
                        start,
                        marker,
                    },
                );
            }
        }
    }

    /// Where the oldest open transaction begins.
    pub(crate) fn first_open_transaction(&self) -> Option<Offset> {
        self.open.first_key_value().map(|(offset, _)| *offset)
    }

    /// The aborted transactions that have records in `range`.
    pub(crate) fn aborted_in(&self, range: OffsetRange) -> Vec<AbortedTransaction> {
        // Only markers at or after the range's start can close a transaction that reaches into it.
        self.aborted
            .range(range.start()..)
            .map(|(_, t)| *t)
            .filter(|t| t.start < range.end())
            .collect()
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
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use tidegate_record_batch::{BatchBuilder, Codec, ProducerIdentity, TimestampType};

    use super::*;

    fn header(id: i64, epoch: i16, first: i32, count: usize) -> BatchHeader {
        let identity = ProducerIdentity {
            id: ProducerId::from_wire(id).unwrap(),
            epoch: ProducerEpoch::from_wire(epoch).unwrap(),
            first_sequence: Sequence::from_wire(first),
        };
        let mut builder = BatchBuilder::new(
            Offset::ZERO,
            Codec::None,
            TimestampType::CreateTime,
            Some(identity),
            false,
        );
        for _ in 0..count {
            builder.push(TimestampMs::new(1), None, Some(b"v"), &[]);
        }
        let bytes: BytesMut = builder.finish().unwrap();
        BatchHeader::parse(&bytes).unwrap()
    }

    fn range(start: u64, count: u64) -> OffsetRange {
        OffsetRange::new(
            Offset::new(start).unwrap(),
            Offset::new(start + count).unwrap(),
        )
        .unwrap()
    }

    fn apply(table: &mut Producers, h: &BatchHeader, start: u64) {
        let r = range(start, u64::from(h.record_count()));
        table.apply_data(h, r, TimestampMs::new(0));
    }

    #[test]
    fn a_retry_of_one_of_the_last_five_batches_gets_its_first_offsets() {
        let mut table = Producers::default();
        for i in 0..6 {
            let h = header(1, 0, i, 1);
            assert_eq!(table.admit(&h, i == 0), Ok(Admission::Append));
            apply(&mut table, &h, i.cast_unsigned().into());
        }
        for i in 1..6 {
            let answer = table.admit(&header(1, 0, i, 1), false).unwrap();
            assert_eq!(
                answer,
                Admission::Duplicate {
                    range: range(i.cast_unsigned().into(), 1),
                    timestamp: TimestampMs::new(1)
                }
            );
        }
        assert!(matches!(
            table.admit(&header(1, 0, 0, 1), false),
            Err(SequenceError::OutOfOrder { .. })
        ));
    }

    #[test]
    fn an_unknown_producer_must_start_at_zero_only_on_a_partition_never_written() {
        let table = Producers::default();
        assert!(matches!(
            table.admit(&header(1, 0, 17, 1), true),
            Err(SequenceError::OutOfOrder { .. })
        ));
        assert_eq!(
            table.admit(&header(1, 0, 7, 1), false),
            Ok(Admission::Append)
        );
    }

    #[test]
    fn sequences_wrap_and_gaps_are_refused() {
        let mut table = Producers::default();
        apply(&mut table, &header(1, 0, 2_147_483_646, 3), 0);
        assert_eq!(
            table.admit(&header(1, 0, 1, 1), false),
            Ok(Admission::Append)
        );
        assert!(matches!(
            table.admit(&header(1, 0, 3, 1), false),
            Err(SequenceError::OutOfOrder { .. })
        ));
    }

    #[test]
    fn a_lower_epoch_is_fenced_and_a_higher_one_starts_at_zero() {
        let mut table = Producers::default();
        apply(&mut table, &header(1, 3, 0, 1), 0);
        assert!(matches!(
            table.admit(&header(1, 2, 1, 1), false),
            Err(SequenceError::Fenced { .. })
        ));
        assert!(matches!(
            table.admit(&header(1, 4, 1, 1), false),
            Err(SequenceError::OutOfOrder { .. })
        ));
        assert_eq!(
            table.admit(&header(1, 4, 0, 1), false),
            Ok(Admission::Append)
        );
    }

    #[test]
    fn an_idle_producer_is_forgotten_but_not_while_its_transaction_is_open() {
        let mut table = Producers::default();
        apply(&mut table, &header(1, 0, 0, 1), 0);
        apply(&mut table, &header(2, 0, 0, 1), 1);
        table
            .entries
            .get_mut(&ProducerId::from_wire(2).unwrap())
            .unwrap()
            .transaction_start = Some(Offset::ZERO);
        assert_eq!(table.expire(TimestampMs::new(10)), 1);
        assert!(
            table
                .entries
                .contains_key(&ProducerId::from_wire(2).unwrap())
        );
    }
}
