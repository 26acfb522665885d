//! One pass over one log: map the dirty part, rewrite everything up to its end run by run, swap each run.

mod offer;
mod plan;
mod rewrite;
mod store;
mod swap;

use std::sync::Arc;

use tidegate_maintenance::{KeyMap, MapEnd, Mapper, Transactions};
use tidegate_metadata::ControllerUnavailable;
use tidegate_metadata::api::StaleBrokerEpoch;
use tidegate_object_storage::ObjectKey;
use tidegate_partition_log::{OpenError, PartitionLog, StoreReadError};
use tidegate_record_batch::BatchError;
use tidegate_types::{LeaderEpoch, Offset};
use tracing::info;

use self::plan::Planned;
use super::Compactor;
use super::pace::Pace;
use super::watch::Known;

/// Why a pass came to no end. What was swapped stays.
#[derive(Debug, thiserror::Error)]
pub(super) enum PassError {
    #[error("a segment can't be read")]
    Read(#[from] StoreReadError),
    #[error("a stored batch is damaged")]
    Batch(#[from] BatchError),
    #[error("the controller can't be asked")]
    Controller(#[from] ControllerUnavailable),
    #[error("the segment map can't be read")]
    Map(#[from] OpenError),
    #[error("this broker's registration is over")]
    Stale(#[from] StaleBrokerEpoch),
    #[error("object {0} exists already with other contents")]
    KeyTaken(ObjectKey),
    #[error("the work was given up")]
    Stopped,
}

/// How a pass ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum PassEnd {
    /// Everything that was to be compacted is, up to this offset.
    Done {
        leader_epoch: LeaderEpoch,
        end: Offset,
    },
    /// There was nothing to do.
    NotDue(Known),
    /// The map was too small for all of it.
    MapFull,
    Stopped(&'static str),
}

/// Ends a pass early.
enum Halt {
    Error(PassError),
    End(PassEnd),
}

impl<E: Into<PassError>> From<E> for Halt {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

pub(super) struct Pass<'a> {
    of: &'a Compactor,
    log: &'a Arc<PartitionLog>,
    pace: &'a mut Pace,
}

impl<'a> Pass<'a> {
    pub(super) fn new(of: &'a Compactor, log: &'a Arc<PartitionLog>, pace: &'a mut Pace) -> Self {
        Self { of, log, pace }
    }

    pub(super) async fn run(mut self) -> Result<PassEnd, PassError> {
        match self.steps().await {
            Ok(end) | Err(Halt::End(end)) => Ok(end),
            Err(Halt::Error(error)) => Err(error),
        }
    }

    async fn steps(&mut self) -> Result<PassEnd, Halt> {
        let planned = self.plan().await?;
        let (map, map_end) = self.map(&planned).await?;
        let leader_epoch = planned.view.leader_epoch;
        let all = map_end >= planned.dirty.end();
        let keys = map.len();
        let filter = planned.filter(map, map_end, self.of.broker.clock.wall());
        let stats = self.rewrite(&planned, filter, map_end).await?;
        self.of.metrics.passes.inc();
        info!(
            partition = %self.log.id(),
            topic = %self.log.topic(),
            end = %map_end,
            keys,
            bytes_read = stats.bytes_read,
            bytes_kept = stats.bytes_kept,
            records_read = stats.records_read,
            records_kept = stats.records_kept,
            "compacted"
        );
        Ok(if all {
            PassEnd::Done {
                leader_epoch,
                end: map_end,
            }
        } else {
            PassEnd::MapFull
        })
    }

    /// Reads the dirty part, as far as the map takes it.
    async fn map(&mut self, planned: &Planned) -> Result<(KeyMap, Offset), Halt> {
        let map = KeyMap::new(self.of.settings.key_map_bytes());
        let transactions = Transactions::new(planned.aborted.clone());
        let mut mapper = Mapper::new(map, transactions, planned.dirty);
        'segments: for segment in &planned.view.segments {
            if segment.range.end() <= planned.dirty.start() {
                continue;
            }
            if segment.range.start() >= planned.dirty.end() {
                break;
            }
            let mut scan = self.of.reader.scan(self.log.id(), segment).await?;
            while let Some(bytes) = scan.next().await? {
                self.admit(planned, bytes.len()).await?;
                let taken;
                (mapper, taken) = aside(move || {
                    let taken = mapper.take(bytes);
                    (mapper, taken)
                })
                .await?;
                if taken? == MapEnd::Reached {
                    break 'segments;
                }
            }
        }
        let (map, end) = mapper.finish();
        if end <= planned.dirty.start() {
            return Err(stop("nothing was mapped"));
        }
        Ok((map, end))
    }

    /// Counts what was read, and waits until it may be worked on.
    async fn admit(&mut self, planned: &Planned, bytes: usize) -> Result<(), Halt> {
        self.of.metrics.bytes_read.inc_by(bytes as u64);
        let (of, log) = (self.of, self.log);
        let wanted = || still_wanted(of, log, planned);
        self.pace.take(bytes, wanted).await.map_err(stop)
    }

    fn check_wanted(&self, planned: &Planned) -> Result<(), Halt> {
        still_wanted(self.of, self.log, planned).map_err(stop)
    }

    /// Whether this broker has closed the log.
    fn is_gone(&self) -> bool {
        let open = self.of.broker.logs.get(self.log.id());
        open.is_none_or(|open| !Arc::ptr_eq(&open, self.log))
    }
}

/// Whether a pass may go on, or why not: the log must be led as it was when the pass began, and the topic must promise
/// its readers no more than it did then.
fn still_wanted(of: &Compactor, log: &PartitionLog, planned: &Planned) -> Result<(), &'static str> {
    if !log.leads_under(planned.view.leader_epoch) {
        return Err("the log isn't led any more");
    }
    match of.topic_settings(log) {
        None => Err("the topic isn't compacted"),
        Some(settings) if settings.min_lag > planned.settings.min_lag => {
            Err("min.compaction.lag.ms was raised")
        }
        Some(_) => Ok(()),
    }
}

fn stop(reason: &'static str) -> Halt {
    Halt::End(PassEnd::Stopped(reason))
}

/// Does work that takes milliseconds of a processor where it holds nobody up.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Halt> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| PassError::Stopped.into())
}
