//! Markers: the end of a producer's transaction in one partition (KIP-98).
//!
//! A coordinator sends a marker again until it hears that it was written, and another coordinator that took its place
//! sends it once more. So markers come late and twice, and may meet the producer's next transaction:
//! * a coordinator whose place was taken is fenced by its epoch;
//! * a marker of a lower producer epoch than the partition knows is fenced;
//! * where each transaction has an epoch of its own (KIP-890), a marker's is above that of the transaction it ends. One
//!   that isn't belongs to a transaction that is over;
//! * a marker that would change nothing was written before.

use tidegate_record_batch::ControlMarker;
use tidegate_types::{Offset, ProducerEpoch, ProducerId, TimestampMs};

use super::{AbortedTransaction, ProducerEntry, Producers};

/// The end of a transaction, as its coordinator orders it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    pub producer: ProducerId,
    pub epoch: ProducerEpoch,
    /// The leader epoch of the coordinator's partition.
    pub coordinator_epoch: i32,
    pub commit: bool,
    /// The producer's epoch rises with each transaction, and `epoch` is above that of the one that ends.
    pub epoch_rises: bool,
}

impl Marker {
    pub(crate) fn control(&self) -> ControlMarker {
        ControlMarker {
            commit: self.commit,
            coordinator_epoch: self.coordinator_epoch,
        }
    }
}

/// What the table says of a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkerAdmission {
    Append,
    /// It is in the log.
    Duplicate,
}

/// Why a marker was refused. It never will be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MarkerRefused {
    #[error("a marker of producer {producer} has epoch {found}, but {current} is known already")]
    Fenced {
        producer: ProducerId,
        found: ProducerEpoch,
        current: ProducerEpoch,
    },
    #[error(
        "a marker of producer {producer} comes from a coordinator of epoch {found}, but one of {current} has taken its place"
    )]
    CoordinatorFenced {
        producer: ProducerId,
        found: i32,
        current: i32,
    },
}

impl Producers {
    /// Judges a marker.
    pub(crate) fn admit_marker(&self, marker: &Marker) -> Result<MarkerAdmission, MarkerRefused> {
        let Some(entry) = self.entries.get(&marker.producer) else {
            return Ok(MarkerAdmission::Append);
        };
        let is_open = entry.transaction_start.is_some();
        let is_late = match marker.epoch_rises {
            true => marker.epoch == entry.epoch && is_open,
            false => false,
        };
        if marker.epoch < entry.epoch || is_late {
            return Err(MarkerRefused::Fenced {
                producer: marker.producer,
                found: marker.epoch,
                current: entry.epoch,
            });
        }
        if marker.coordinator_epoch < entry.coordinator_epoch {
            return Err(MarkerRefused::CoordinatorFenced {
                producer: marker.producer,
                found: marker.coordinator_epoch,
                current: entry.coordinator_epoch,
            });
        }
        let changes_nothing = !is_open
            && marker.epoch == entry.epoch
            && marker.coordinator_epoch == entry.coordinator_epoch;
        Ok(match changes_nothing {
            true => MarkerAdmission::Duplicate,
            false => MarkerAdmission::Append,
        })
    }

    /// Takes in a commit or abort marker at `at`. Answers where the transaction that it ended begins.
    pub(crate) fn apply_marker(
        &mut self,
        producer: ProducerId,
        epoch: ProducerEpoch,
        marker: ControlMarker,
        at: Offset,
        now: TimestampMs,
    ) -> Option<Offset> {
        let entry = self
            .entries
            .entry(producer)
            .or_insert_with(|| ProducerEntry::new(epoch, now));
        if epoch > entry.epoch {
            entry.epoch = epoch;
            entry.batches.clear();
        }
        entry.last_seen = now;
        entry.coordinator_epoch = marker.coordinator_epoch;
        let start = entry.transaction_start.take()?;
        self.open.remove(&start);
        if !marker.commit {
            let next = at.checked_add(1).unwrap_or(at);
            let aborted = AbortedTransaction {
                producer,
                start,
                marker: at,
                stable_after: self.first_open_transaction().unwrap_or(next),
            };
            self.aborted.insert(at, aborted);
        }
        Some(start)
    }
}
