//! Which batches of a log belong to aborted transactions, and which markers nobody needs any more.

use std::collections::{HashMap, HashSet, VecDeque};

use tidegate_record_batch::{BatchHeader, ControlMarker, StoredBatch};
use tidegate_types::{Offset, ProducerId};

/// A transaction that was aborted: records of the producer from `start` up to the marker belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedRange {
    pub producer: ProducerId,
    pub start: Offset,
    pub marker: Offset,
}

/// What becomes of a batch, as far as transactions decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Its records count.
    Counts,
    Aborted,
    /// A control batch that is needed.
    NeededMarker,
    /// A marker of which no batch of its transaction was seen.
    SpentMarker,
}

/// Follows the transactions of a log while its batches are read in order, from the log start on.
#[derive(Debug)]
pub struct Transactions {
    /// Not begun yet, in the order of their starts.
    ahead: VecDeque<AbortedRange>,
    /// A producer's aborted transaction that has begun. There is one at a time.
    aborting: HashMap<ProducerId, AbortedRange>,
    /// Producers of which transactional batches were seen since their last marker.
    seen: HashSet<ProducerId>,
}

impl Transactions {
    /// `aborted` are all that the log's list has.
    pub fn new(mut aborted: Vec<AbortedRange>) -> Self {
        aborted.sort_unstable_by_key(|range| range.start);
        Self {
            ahead: aborted.into(),
            aborting: HashMap::new(),
            seen: HashSet::new(),
        }
    }

    /// Takes in the next batch.
    pub(super) fn judge(&mut self, batch: &StoredBatch) -> Verdict {
        let header = batch.header();
        self.begin_up_to(header.last_offset());
        if header.is_control() {
            return self.judge_control(batch);
        }
        let Some(producer) = header.producer().filter(|_| header.is_transactional()) else {
            return Verdict::Counts;
        };
        self.seen.insert(producer.id);
        if self.is_aborted(header, producer.id) {
            Verdict::Aborted
        } else {
            Verdict::Counts
        }
    }

    fn is_aborted(&self, header: &BatchHeader, producer: ProducerId) -> bool {
        self.aborting.get(&producer).is_some_and(|range| {
            header.base_offset() >= range.start && header.base_offset() < range.marker
        })
    }

    fn judge_control(&mut self, batch: &StoredBatch) -> Verdict {
        let header = batch.header();
        if header.record_count() == 0 {
            return Verdict::SpentMarker;
        }
        let (Some(producer), Ok(_)) = (header.producer(), ControlMarker::decode(batch)) else {
            return Verdict::NeededMarker;
        };
        let seen = self.seen.remove(&producer.id);
        // As long as the list names the transaction its marker must stand, whatever is left of its records: clients
        // drop all records of the producer up to it.
        let listed = self
            .aborting
            .get(&producer.id)
            .is_some_and(|range| range.marker <= header.base_offset());
        if listed {
            self.aborting.remove(&producer.id);
        }
        if seen || listed {
            Verdict::NeededMarker
        } else {
            Verdict::SpentMarker
        }
    }

    fn begin_up_to(&mut self, offset: Offset) {
        while let Some(range) = self.ahead.pop_front_if(|range| range.start <= offset) {
            // An earlier one of the same producer whose marker wasn't read lies below the log start.
            self.aborting.insert(range.producer, range);
        }
    }
}
