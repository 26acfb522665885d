//! The state machines that are hosted.

use tidegate_coordinator::{AppendFailure, AppendId, Now, RecordError};
use tidegate_record_batch::StoredBatch;
use tidegate_types::{Offset, PartitionId};

use super::ReplayError;

/// The state machine of one partition of an internal topic. It knows no clock, no task and no I/O.
pub(crate) trait Machine: Sized + Send + 'static {
    type Config: Clone + Send + Sync + 'static;
    type Effect: Send;
    type Reply: Send;

    /// For logs and metrics: what it coordinates.
    const KIND: &'static str;

    /// One that is loading: it answers whoever asks that it isn't ready.
    fn loading(config: &Self::Config) -> Self;

    /// Takes in the records of a batch from offset `from` on.
    ///
    /// # Errors
    /// The batch can't be understood.
    fn replay(&mut self, batch: &StoredBatch, from: Offset) -> Result<(), ReplayError>;

    /// Ends loading.
    ///
    /// # Errors
    /// What was replayed can't be understood.
    fn loaded(&mut self, now: Now) -> Result<Vec<Self::Effect>, RecordError>;

    /// Sends everybody away, from now on.
    fn unload(&mut self, now: Now) -> Vec<Self::Effect>;

    /// Tells what became of an append.
    fn appended(
        &mut self,
        now: Now,
        id: AppendId,
        outcome: Result<(), AppendFailure>,
    ) -> Vec<Self::Effect>;

    /// When [`Self::tick`] is to be called next.
    fn next_deadline(&self) -> Option<u64>;

    fn tick(&mut self, now: Now) -> Vec<Self::Effect>;

    /// Writes a line to the log about what was loaded.
    fn report(&self, partition: PartitionId, took_ms: u64);
}
