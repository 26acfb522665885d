//! A machine and how much of the log it has taken in.

use bytes::Bytes;
use tidegate_coordinator::RecordError;
use tidegate_record_batch::{BatchError, Batches, RecordsError};
use tidegate_types::Offset;

use super::Machine;

/// The most that a compressed batch may grow to. This broker writes them uncompressed.
pub(crate) const BATCH_BYTES: usize = 64 << 20;
/// More than this is taken in beside the runtime's workers, which others need.
const INLINE_BYTES: usize = 32 << 10;

/// Why a log's records can't be taken in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplayError {
    #[error("a batch of the log is damaged")]
    Batch(#[from] BatchError),
    #[error("the records of a batch can't be read")]
    Records(#[from] RecordsError),
    #[error("a record has no key")]
    NoKey,
    #[error("a record can't be read")]
    Record(#[from] RecordError),
    /// A panic, or the end of the process.
    #[error("taking in the records was given up")]
    GivenUp,
}

/// A machine that has taken in exactly what its log holds below an offset.
pub(crate) struct Replica<M> {
    machine: M,
    next: Offset,
}

impl<M: Machine> Replica<M> {
    /// One that knows nothing yet of a log that begins at `log_start`.
    pub(crate) fn new(config: &M::Config, log_start: Offset) -> Self {
        Self {
            machine: M::loading(config),
            next: log_start,
        }
    }

    /// Where to read on.
    pub(crate) fn next(&self) -> Offset {
        self.next
    }

    /// There is nothing in the log between here and `offset`.
    pub(crate) fn skip_to(&mut self, offset: Offset) {
        self.next = self.next.max(offset);
    }

    pub(crate) fn into_machine(self) -> M {
        self.machine
    }

    /// Takes in batches. What was taken in before changes nothing.
    ///
    /// # Errors
    /// Something can't be understood; what has come so far is lost.
    pub(crate) async fn advanced(mut self, batches: Vec<Bytes>) -> Result<Self, ReplayError> {
        if batches.iter().map(Bytes::len).sum::<usize>() <= INLINE_BYTES {
            self.take_in(batches)?;
            return Ok(self);
        }
        let work = tokio::task::spawn_blocking(move || self.take_in(batches).map(|()| self));
        work.await.unwrap_or(Err(ReplayError::GivenUp))
    }

    fn take_in(&mut self, batches: Vec<Bytes>) -> Result<(), ReplayError> {
        for batch in batches.into_iter().flat_map(Batches::headers_only) {
            let batch = batch?;
            let end = batch.header().end_offset();
            if end > self.next {
                self.machine.replay(&batch, self.next)?;
                self.next = end;
            }
        }
        Ok(())
    }
}

/// Where batches end that begin at or before `next`.
///
/// # Errors
/// One is damaged.
pub(super) fn end_of(batches: &[Bytes], next: Offset) -> Result<Offset, BatchError> {
    let Some(last) = batches.last() else {
        return Ok(next);
    };
    Batches::headers_only(last.clone())
        .try_fold(next, |end, batch| Ok(end.max(batch?.header().end_offset())))
}
