//! The way of a log's tail into object storage: cuts for uploads, and what becomes of a stored segment.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tidegate_types::{DurabilityMode, LeaderEpoch, Offset, OffsetRange};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{CHECKPOINT_OVERDUE, PartitionLog, Status};
use crate::checkpoint;
use crate::segments::Segment;
use crate::tail::TailBatch;

/// A piece of a log that is to be uploaded, decided at one moment.
pub(crate) struct UploadCut {
    pub(crate) log: Arc<PartitionLog>,
    pub(crate) range: OffsetRange,
    pub(crate) leader_epoch: LeaderEpoch,
    pub(crate) bytes: u64,
    /// The state as of `range.end()`. It must not be stored before everything below is durable: a checkpoint
    /// that knows sequences which a crash then loses would turn their retries into duplicates.
    pub(crate) checkpoint: Bytes,
    pub(crate) durable: oneshot::Receiver<()>,
}

impl PartitionLog {
    /// Bytes that wait for an upload, and since when.
    pub(crate) fn waiting(&self) -> Option<(u64, Instant)> {
        let state = self.state.lock();
        state
            .waiting_since
            .map(|since| (state.waiting_bytes, since))
    }

    /// Cuts everything appended so far that no upload has taken yet.
    pub(crate) fn cut(self: &Arc<Self>) -> Option<UploadCut> {
        let mut state = self.state.lock();
        if state.durability != DurabilityMode::Local
            || matches!(state.status, Status::Closed | Status::Failed(_))
        {
            return None;
        }
        let range =
            OffsetRange::new(state.upload_cursor, state.log_end).filter(|r| !r.is_empty())?;
        let bytes = std::mem::take(&mut state.waiting_bytes);
        self.context
            .unstored_bytes
            .fetch_sub(bytes, Ordering::Relaxed);
        state.waiting_since = None;
        state.upload_cursor = range.end();
        Some(UploadCut {
            log: self.clone(),
            range,
            leader_epoch: state.leader_epoch,
            bytes,
            checkpoint: checkpoint::encode(range.end(), &state.producers),
            durable: state.await_durable(range.end()),
        })
    }

    /// The batches of a cut, oldest first.
    pub(crate) fn cut_batches(&self, range: OffsetRange) -> Vec<TailBatch> {
        self.state.lock().tail.batches_in(range).cloned().collect()
    }

    /// Takes in a segment that is readable in object storage (`object` mode: before metadata knows of it).
    pub(crate) fn stored(&self, segment: Segment) {
        let mut state = self.state.lock();
        state.stored_end = state.stored_end.max(segment.range.end());
        // DeleteRecords may have gone past it: then metadata doesn't keep it either.
        if segment.range.end() > state.log_start {
            state.segments.push(segment);
        }
    }

    /// Takes in that metadata has committed everything below `end`.
    pub(crate) fn uploaded(&self, end: Offset) {
        let mut state = self.state.lock();
        state.uploaded_end = state.uploaded_end.max(end);
        state.upload_cursor = state.upload_cursor.max(state.uploaded_end);
        let stored_end = state.stored_end;
        state.tail.drop_spilled(stored_end);
        state.finish_switch();
    }

    /// Takes in a new log start that metadata has committed. It never goes back.
    pub fn advance_log_start(&self, log_start: Offset) {
        let mut state = self.state.lock();
        if log_start <= state.log_start {
            return;
        }
        state.log_start = log_start;
        state.segments.drop_below(log_start);
        state.producers.forget_below(log_start);
        // Opening can't replay what is deleted, so the next append brings the state along.
        state.bytes_since_checkpoint = CHECKPOINT_OVERDUE;
    }
}
