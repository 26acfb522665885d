//! The log's part in compaction by key: what may be compacted, and taking in what came of it.

use tidegate_metadata::ControllerApi;
use tidegate_types::{LeaderEpoch, Offset, OffsetRange, ProducerEpoch, ProducerId};

use super::{PartitionLog, Status};
use crate::open::{OpenError, segments_from};
use crate::producers::AbortedTransaction;
use crate::segments::Segment;

/// What compaction has to know of a log, all of one moment.
#[derive(Debug)]
pub struct CompactionView {
    pub leader_epoch: LeaderEpoch,
    pub log_start: Offset,
    pub last_stable: Offset,
    /// Exclusive end of what is in object storage and committed.
    pub stored_end: Offset,
    pub segments: Vec<Segment>,
    pub aborted: Vec<AbortedTransaction>,
    pub producers: Vec<LastOfProducer>,
}

/// The newest that a log knows of a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastOfProducer {
    pub producer: ProducerId,
    pub epoch: ProducerEpoch,
    /// Where its last batch ends; `None` if only a marker is known.
    pub data_end: Option<Offset>,
}

impl PartitionLog {
    /// What compaction starts from; `None` unless the log is open and leads.
    pub fn compaction_view(&self) -> Option<CompactionView> {
        let state = self.state.lock();
        if state.status != Status::Open {
            return None;
        }
        let producers = state.producers.entries.iter();
        Some(CompactionView {
            leader_epoch: state.leader_epoch,
            log_start: state.log_start,
            last_stable: state.last_stable(),
            stored_end: state.stored_end.min(state.uploaded_end),
            segments: state.segments.as_slice().to_vec(),
            aborted: state.producers.aborted.values().copied().collect(),
            producers: producers
                .map(|(producer, entry)| LastOfProducer {
                    producer: *producer,
                    epoch: entry.epoch,
                    data_end: entry.batches.back().map(|batch| batch.range.end()),
                })
                .collect(),
        })
    }

    /// Whether compaction may go on with what it began under this leader epoch.
    pub fn leads_under(&self, leader_epoch: LeaderEpoch) -> bool {
        let state = self.state.lock();
        state.status == Status::Open && state.leader_epoch == leader_epoch
    }

    /// Takes in that metadata has `segments` in the place of all that was in `range`, and that everything below
    /// `cleaned_end` is compacted: of the aborted transactions that ended below it no record is left, and nobody
    /// is told of them any more. Readers who found records before begin anew.
    pub fn compacted(
        &self,
        swapped: Option<(OffsetRange, Vec<Segment>)>,
        cleaned_end: Option<Offset>,
    ) {
        let mut state = self.state.lock();
        let mut compacted = cleaned_end.unwrap_or(Offset::ZERO);
        if let Some((range, segments)) = swapped {
            compacted = compacted.max(range.end());
            state.segments.swap(range, segments);
            let log_start = state.log_start;
            state.segments.drop_below(log_start);
        }
        if let Some(cleaned_end) = cleaned_end {
            let before = state.producers.aborted.len();
            state.producers.forget_below(cleaned_end);
            if state.producers.aborted.len() != before {
                state.aborted_forgotten += 1;
            }
        }
        // The tail may still hold these records as they were written, aborted ones among them.
        let below = compacted.min(state.stored_end);
        let freed = state.tail.drop_below(below);
        drop(state);
        self.context.tail_budget.released(freed);
    }

    /// How often aborted transactions were forgotten.
    pub(crate) fn aborted_forgotten(&self) -> u64 {
        self.state.lock().aborted_forgotten
    }

    /// Reads a part of the segment map anew from metadata. Nobody but the caller may be changing that part.
    ///
    /// # Errors
    /// The controller can't be asked.
    pub async fn reload_segments(
        &self,
        controller: &dyn ControllerApi,
        range: OffsetRange,
    ) -> Result<(), OpenError> {
        let mut segments = segments_from(controller, self.id, range.start()).await?;
        segments.retain(|segment| segment.range.end() <= range.end());
        self.compacted(Some((range, segments)), None);
        Ok(())
    }
}
