//! What recovery finds in a local WAL, put in order.
//!
//! The WAL holds what its broker appended as leader and what it copied from others, each under the leader epoch
//! under which it was first appended. A batch may be there twice, parts of the log may lie in another order than
//! their offsets, and copies for moves that never took place lie among them. A batch of a leader epoch at an
//! offset has one content for ever, so only one question decides: did that leader epoch own those offsets?

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tidegate_metadata::PartitionState;
use tidegate_metadata::api::RecoveredEnd;
use tidegate_record_batch::{BatchHeader, ControlMarker, StoredBatch};
use tidegate_types::{LeaderEpoch, Offset, OffsetRange};
use tidegate_wal::WalPosition;

use crate::open::marker_of;

/// A batch that recovery found in the local WAL.
#[derive(Debug, Clone)]
pub struct RecoveredBatch {
    pub header: BatchHeader,
    /// Filled for control batches.
    pub marker: Option<ControlMarker>,
    pub leader_epoch: LeaderEpoch,
    pub position: WalPosition,
}

impl RecoveredBatch {
    /// Reads what opening needs out of a WAL entry's bytes, which hold one batch.
    pub fn new(batch: &StoredBatch, leader_epoch: LeaderEpoch, position: WalPosition) -> Self {
        Self {
            header: *batch.header(),
            marker: marker_of(batch),
            leader_epoch,
            position,
        }
    }

    pub fn range(&self) -> OffsetRange {
        OffsetRange::new(self.header.base_offset(), self.header.end_offset())
            .expect("a batch ends after its start")
    }
}

/// The part of a log that continues what metadata has committed.
#[derive(Debug)]
pub struct RecoveredRun<'a> {
    /// In the order of offsets, each starting where the one before ends, the first at the committed end.
    pub batches: Vec<&'a RecoveredBatch>,
    /// The first one behind a hole that follows, and the end of the last: no crash explains them.
    pub beyond: Option<OffsetRange>,
}

impl<'a> RecoveredRun<'a> {
    /// Sorts out what was found of one partition.
    pub fn of(state: &PartitionState, found: &'a [RecoveredBatch]) -> Self {
        let epochs = Epochs::new(state, found);
        let mut usable: Vec<&RecoveredBatch> = found
            .iter()
            .filter(|batch| batch.range().end() > state.committed_end && epochs.own(batch))
            .collect();
        // Of several copies the newest: then what was written before it isn't needed.
        usable.sort_by_key(|batch| (batch.range().start(), Reverse(batch.position)));
        let mut run = Self {
            batches: Vec::new(),
            beyond: None,
        };
        let mut end = state.committed_end;
        for batch in usable {
            let range = batch.range();
            if range.start() < end {
                continue;
            }
            if range.start() == end && run.beyond.is_none() {
                end = range.end();
                run.batches.push(batch);
                continue;
            }
            let start = run.beyond.map_or(range.start(), OffsetRange::start);
            run.beyond = OffsetRange::new(start, range.end());
        }
        run
    }
}

/// What to tell the controller of one partition before leadership is taken. `None` if the WAL holds nothing of it
/// that metadata hasn't committed.
///
/// A hole isn't skipped silently: the end is then behind it, so that leadership is taken there and opening says
/// what is missing.
pub fn recovered_end(state: &PartitionState, found: &[RecoveredBatch]) -> Option<RecoveredEnd> {
    let run = RecoveredRun::of(state, found);
    let end = run
        .beyond
        .map(OffsetRange::end)
        .or_else(|| Some(run.batches.last()?.range().end()))?;
    let last = found
        .iter()
        .filter(|batch| batch.range().end() == end)
        .map(|batch| batch.leader_epoch)
        .max()?;
    Some(RecoveredEnd {
        partition: state.partition,
        leader_epoch: last,
        end,
    })
}

/// Which leader epoch owns which offsets.
struct Epochs {
    starts: BTreeMap<LeaderEpoch, Offset>,
    last: LeaderEpoch,
}

impl Epochs {
    /// Takes the history from metadata. Epochs that ended below the log start aren't in it any more: there the
    /// batches themselves tell where each begins.
    fn new(state: &PartitionState, found: &[RecoveredBatch]) -> Self {
        let mut starts: BTreeMap<LeaderEpoch, Offset> =
            state.epochs.iter().map(|e| (e.epoch, e.start)).collect();
        let first_known = state.epochs.first();
        for batch in found {
            let (epoch, range) = (batch.leader_epoch, batch.range());
            if first_known.is_none_or(|first| epoch < first.epoch && range.end() <= first.start) {
                let known = starts.entry(epoch).or_insert(range.start());
                *known = range.start().min(*known);
            }
        }
        Self {
            starts,
            last: state.leader_epoch,
        }
    }

    fn own(&self, batch: &RecoveredBatch) -> bool {
        let epoch = batch.leader_epoch;
        let (range, later) = (batch.range(), self.starts.range(epoch..));
        let mut later = later.skip_while(|(e, _)| **e == epoch);
        let begins = self.starts.get(&epoch);
        epoch <= self.last
            && begins.is_some_and(|start| *start <= range.start())
            && later.next().is_none_or(|(_, end)| range.end() <= *end)
    }
}

#[cfg(test)]
mod tests;
