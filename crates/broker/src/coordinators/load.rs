//! Rebuilding a machine from its partition's log.

use std::sync::Arc;
use std::time::Duration;

use tidegate_partition_log::{Isolation, LogReader, PartitionLog, ReadError, ReadRequest};
use tidegate_types::PartitionId;
use tracing::{debug, warn};

use super::actor::{Loaded, Source};
use super::replica::end_of;
use super::{Machine, ReplayError, Replica, Warmed};

/// Bytes read at once: what the log fetches at once, so that its read-ahead sees what is wanted next.
pub(super) const READ_BYTES: usize = 1 << 20;
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// Why there is no machine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// Another broker leads.
    #[error("the partition was closed")]
    Closed,
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error("the log doesn't hold what it says")]
    Read(#[source] ReadError),
}

/// A log that this broker leads.
pub(crate) struct OfLog {
    pub(crate) log: Arc<PartitionLog>,
    pub(crate) reader: LogReader,
}

impl<M: Machine> Source<M> for OfLog {
    fn partition(&self) -> PartitionId {
        self.log.id()
    }

    fn load(
        &self,
        config: M::Config,
        warmed: Option<Warmed<M>>,
    ) -> impl Future<Output = Result<Loaded<M>, LoadError>> + Send + 'static {
        let (log, reader) = (self.log.clone(), self.reader.clone());
        async move {
            let warm = head_start(&log, warmed).await?;
            let is_warm = warm.is_some();
            let borders = log.watermarks().map_err(|_| LoadError::Closed)?;
            let replica = warm.unwrap_or_else(|| Replica::new(&config, borders.log_start));
            let machine = load(&log, &reader, replica).await?;
            Ok(Loaded {
                machine,
                warm: is_warm,
            })
        }
    }
}

/// A machine that has a part of the log, if a move has got one ready.
async fn head_start<M: Machine>(
    log: &PartitionLog,
    warmed: Option<Warmed<M>>,
) -> Result<Option<Replica<M>>, LoadError> {
    let borders = log.watermarks().map_err(|_| LoadError::Closed)?;
    let replica = match warmed {
        Some(warmed) => warmed.replica().await,
        None => None,
    };
    // A copy ends where its leadership begins, so none is ahead; one that were would know what isn't in the log.
    let replica = replica.filter(|replica| replica.next() <= borders.log_end);
    if let Some(replica) = &replica {
        debug!(partition = %log.id(), kind = M::KIND, from = %replica.next(), end = %borders.log_end, "a coordinator was got ready before");
    }
    Ok(replica)
}

/// Reads on where the replica is, up to the end that the log has now. While one piece is taken in, the next one is
/// read. A store that can't be reached is tried again.
async fn load<M: Machine>(
    log: &Arc<PartitionLog>,
    reader: &LogReader,
    mut replica: Replica<M>,
) -> Result<M, LoadError> {
    let borders = log.watermarks().map_err(|_| LoadError::Closed)?;
    let end = borders.log_end;
    replica.skip_to(borders.log_start);
    let mut at = replica.next();
    let mut piece = Vec::new();
    let mut pause = FIRST_RETRY;
    while at < end {
        let request = ReadRequest {
            offset: at,
            max_bytes: READ_BYTES,
            first_whole: true,
            isolation: Isolation::ReadUncommitted,
        };
        let taken_in = replica.advanced(std::mem::take(&mut piece));
        let (taken_in, read) = tokio::join!(taken_in, reader.read(log, request));
        replica = taken_in?;
        match read {
            Ok(read) if !read.batches.is_empty() => {
                pause = FIRST_RETRY;
                at = end_of(&read.batches, at).map_err(ReplayError::from)?;
                piece = read.batches;
                continue;
            }
            // What is left was compacted away.
            Ok(read) if read.watermarks.high_watermark >= end => break,
            // An earlier coordinator's appends are not durable yet.
            Ok(_) => {}
            Err(ReadError::NotLeader) => return Err(LoadError::Closed),
            // The log's start moved while we read: what is gone was deleted on purpose.
            Err(ReadError::OutOfRange { watermarks, .. }) if watermarks.log_start > at => {
                at = watermarks.log_start;
                continue;
            }
            Err(error @ ReadError::OutOfRange { .. }) => return Err(LoadError::Read(error)),
            Err(error @ (ReadError::Store(_) | ReadError::Wal(_))) => {
                warn!(partition = %log.id(), kind = M::KIND, error = &error as &dyn std::error::Error, "a coordinator can't read its log yet");
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_RETRY);
    }
    Ok(replica.advanced(piece).await?.into_machine())
}
