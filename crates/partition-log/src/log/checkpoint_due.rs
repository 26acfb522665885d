//! When the next append of a log in `object` mode brings a checkpoint along.
//!
//! A checkpoint bounds what opening replays. Reading costs a GET for each object and time for each byte, so both count:
//! a partition of rare small records lies in as many objects as it has batches.

use bytes::Bytes;
use tidegate_types::Offset;

use crate::checkpoint;
use crate::producers::Producers;

/// No more than about this many bytes are replayed when a partition opens.
const EVERY_BYTES: u64 = 1 << 20;
/// Nor more than about this many batches, each of which may lie in an object of its own.
const EVERY_APPENDS: u32 = 32;
/// A checkpoint may take at most one part in this many of the bytes since the last one. A partition with many
/// producers therefore has them further apart.
const SHARE: u64 = 32;

/// What was appended since the last checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CheckpointDue {
    bytes: u64,
    appends: u32,
    /// Bytes that must have been appended before encoding is tried again: it costs time for each producer.
    affordable_from: u64,
}

impl CheckpointDue {
    /// The next append brings one, whatever it costs.
    pub(super) fn overdue() -> Self {
        Self {
            bytes: u64::MAX / 2,
            appends: 0,
            affordable_from: 0,
        }
    }

    /// The state as of `log_end`, if an append of `length` bytes is to bring it.
    pub(super) fn take_if_due(
        &mut self,
        length: u64,
        log_end: Offset,
        producers: &Producers,
    ) -> Option<Bytes> {
        let bytes = self.bytes.saturating_add(length);
        let enough = bytes >= EVERY_BYTES || self.appends >= EVERY_APPENDS;
        if !enough || bytes < self.affordable_from {
            return None;
        }
        let encoded = checkpoint::encode(log_end, producers);
        self.affordable_from = SHARE.saturating_mul(encoded.len() as u64);
        (bytes >= self.affordable_from).then_some(encoded)
    }

    /// An append of `length` bytes was taken.
    pub(super) fn appended(&mut self, length: u64, with_checkpoint: bool) {
        if with_checkpoint {
            *self = Self {
                bytes: 0,
                appends: 0,
                affordable_from: 0,
            };
        } else {
            self.bytes = self.bytes.saturating_add(length);
            self.appends = self.appends.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::producers::ProducerEntry;
    use tidegate_types::{ProducerEpoch, ProducerId, TimestampMs};

    fn producers(count: i64) -> Producers {
        let mut table = Producers::default();
        for id in 0..count {
            table.entries.insert(
                ProducerId::from_wire(id).unwrap(),
                ProducerEntry {
                    epoch: ProducerEpoch::from_wire(0).unwrap(),
                    batches: Default::default(),
                    last_seen: TimestampMs::new(1_700_000_000_000),
                    transaction_start: None,
                    coordinator_epoch: 0,
                },
            );
        }
        table
    }

    /// The number of the append that brings the first checkpoint after another one.
    fn appends_until_due(length: u64, table: &Producers) -> u32 {
        let mut due = CheckpointDue::overdue();
        due.appended(0, true);
        for append in 1..1_000_000 {
            if due.take_if_due(length, Offset::ZERO, table).is_some() {
                return append;
            }
            due.appended(length, false);
        }
        panic!("never due");
    }

    #[test]
    fn a_log_without_one_brings_one_with_its_first_append() {
        let mut due = CheckpointDue::overdue();
        assert!(due.take_if_due(1, Offset::ZERO, &producers(1)).is_some());
    }

    #[test]
    fn large_batches_are_counted_by_their_bytes() {
        assert_eq!(appends_until_due(EVERY_BYTES / 4, &producers(1)), 4);
    }

    #[test]
    fn small_batches_are_counted_one_by_one() {
        assert_eq!(
            appends_until_due(200, &producers(1)),
            EVERY_APPENDS + 1,
            "each may lie in an object of its own, and each object costs a read"
        );
    }

    #[test]
    fn a_checkpoint_of_many_producers_waits_until_it_is_a_small_part_of_the_data() {
        let table = producers(10_000);
        let size = checkpoint::encode(Offset::ZERO, &table).len() as u64;
        let appends = u64::from(appends_until_due(200, &table));
        assert!(appends * 200 >= SHARE * size);
        assert!((appends - 2) * 200 < SHARE * size);
    }

    #[test]
    fn one_that_was_too_dear_is_not_encoded_again_until_it_can_be_afforded() {
        let table = producers(1000);
        let mut due = CheckpointDue::overdue();
        due.appended(0, true);
        for _ in 0..=EVERY_APPENDS {
            assert!(due.take_if_due(10, Offset::ZERO, &table).is_none());
            due.appended(10, false);
        }
        let size = checkpoint::encode(Offset::ZERO, &table).len() as u64;
        assert_eq!(due.affordable_from, SHARE * size);
    }
}
