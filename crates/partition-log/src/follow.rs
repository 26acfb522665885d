//! Following the tail of a log, for the broker that is about to lead it.
//!
//! A follower takes one step after the other at its own pace and keeps nothing in between, so it needs no queue
//! and its slowness costs the leader nothing. The log doesn't wait for it either: what is uploaded may leave the
//! tail, and a follower that still wanted it begins again behind it.

use std::sync::Arc;

use bytes::Bytes;
use futures::Stream;
use tidegate_record_batch::BatchHeader;
use tidegate_types::{LeaderEpoch, Offset};
use tokio::sync::Notify;

use crate::fetch::{LogReader, gone_from_tail};
use crate::log::{FollowPlan, PartitionLog, ReadError, SealedState, Told};
use crate::segments::MapPart;

/// One step of a followed tail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TailItem {
    /// Everything below `from` is in object storage. The first item, and again whenever more was uploaded. If
    /// `from` lies behind what came so far, the copy begins anew there.
    Start {
        from: Offset,
        high_watermark: Offset,
        /// More of the leader's segment map, so that the store's copy of it needn't be read. In `object` mode it may
        /// be ahead of metadata, but never of what the commit of the move brings there.
        map: Option<MapPart>,
    },
    /// Batches in order, each starting where the one before ended, all durable at the leader.
    Batches {
        /// Under which leader epoch all of them were appended.
        leader_epoch: LeaderEpoch,
        /// Each holds one or more whole batches as they are stored.
        batches: Vec<Bytes>,
        /// How far the leader's log was durable when this was read.
        high_watermark: Offset,
    },
    /// The log is sealed and everything below its end has come. Nothing follows.
    Sealed {
        state: SealedState,
        /// The rest of the segment map.
        map: Option<MapPart>,
    },
}

/// Why a tail can't be followed (any more).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FollowError {
    #[error("this broker doesn't lead the partition under that leader epoch")]
    NotLeader,
    #[error("the tail can't be read: {0}")]
    Failed(Arc<str>),
}

/// Follows one log.
pub struct TailFollower {
    log: Arc<PartitionLog>,
    reader: LogReader,
    leader_epoch: LeaderEpoch,
    next: Option<Offset>,
    told: Told,
    done: bool,
    bell: Arc<Notify>,
}

impl LogReader {
    /// Follows the tail of `log` from its uploaded end on, as long as it leads under `leader_epoch`.
    ///
    /// # Errors
    /// If it doesn't, or its WAL failed.
    pub fn follow(
        &self,
        log: &Arc<PartitionLog>,
        leader_epoch: LeaderEpoch,
    ) -> Result<TailFollower, FollowError> {
        let bell = Arc::new(Notify::new());
        log.add_follower(leader_epoch, &bell)?;
        Ok(TailFollower {
            log: log.clone(),
            reader: self.clone(),
            leader_epoch,
            next: None,
            told: Told::default(),
            done: false,
            bell,
        })
    }
}

impl TailFollower {
    /// The next item, as soon as there is one; `None` after [`TailItem::Sealed`] or an error. Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<TailItem, FollowError>> {
        if self.done {
            return None;
        }
        let item = self.step().await;
        self.done = matches!(item, Err(_) | Ok(TailItem::Sealed { .. }));
        Some(item)
    }

    /// The same as a stream.
    pub fn into_stream(self) -> impl Stream<Item = Result<TailItem, FollowError>> + Send {
        futures::stream::unfold(self, async |mut follower| {
            let item = follower.next().await?;
            Some((item, follower))
        })
    }

    async fn step(&mut self) -> Result<TailItem, FollowError> {
        loop {
            match self
                .log
                .follow_plan(self.leader_epoch, self.next, self.told)?
            {
                FollowPlan::Start {
                    from,
                    high_watermark,
                    map,
                    told,
                } => {
                    self.next = Some(self.next.map_or(from, |next| next.max(from)));
                    self.told = told;
                    return Ok(TailItem::Start {
                        from,
                        high_watermark,
                        map,
                    });
                }
                FollowPlan::Pieces {
                    pieces,
                    high_watermark,
                } => {
                    let next = self.next.unwrap_or(self.told.uploaded_end);
                    match self.reader.tail_pieces(pieces).await {
                        Ok(batches) => return self.batches(batches, high_watermark),
                        // It left the tail meanwhile: the next plan begins behind it.
                        Err(error) => gone_from_tail(&self.log, next, error).map_err(failed)?,
                    }
                }
                FollowPlan::Sealed { state, map } => {
                    return Ok(TailItem::Sealed { state, map });
                }
                FollowPlan::Wait => self.bell.notified().await,
            }
        }
    }

    /// Takes the batches up to the next change of the leader epoch.
    fn batches(
        &mut self,
        mut batches: Vec<Bytes>,
        high_watermark: Offset,
    ) -> Result<TailItem, FollowError> {
        let mut leader_epoch = None;
        let mut taken = 0;
        for bytes in &batches {
            let header = BatchHeader::parse(bytes)
                .map_err(|error| FollowError::Failed(error.to_string().into()))?;
            if *leader_epoch.get_or_insert(header.leader_epoch()) != header.leader_epoch() {
                break;
            }
            self.next = Some(header.end_offset());
            taken += 1;
        }
        batches.truncate(taken);
        let leader_epoch = leader_epoch
            .and_then(LeaderEpoch::from_wire)
            .ok_or_else(|| FollowError::Failed("a batch has no leader epoch".into()))?;
        Ok(TailItem::Batches {
            leader_epoch,
            batches,
            high_watermark,
        })
    }
}

impl Drop for TailFollower {
    fn drop(&mut self) {
        self.log.remove_follower(&self.bell);
    }
}

fn failed(error: ReadError) -> FollowError {
    match error {
        ReadError::NotLeader => FollowError::NotLeader,
        ReadError::OutOfRange { .. } | ReadError::Store(_) | ReadError::Wal(_) => {
            FollowError::Failed(error.to_string().into())
        }
    }
}
