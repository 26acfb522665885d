//! What a broker that is about to lead reads of the tail, on the side of the present leader.

use std::sync::Arc;

use tidegate_types::{LeaderEpoch, Offset};
use tokio::sync::Notify;

use super::{PartitionLog, SealedState, State, Status};
use crate::follow::FollowError;
use crate::segments::MapPart;
use crate::tail::TailPiece;

/// Bytes that one step of a follower takes, unless a single batch is larger.
const STEP_BYTES: usize = 512 * 1024;
/// Segments of the map in one item; few where tests are to see several.
const STEP_SEGMENTS: usize = if cfg!(test) { 4 } else { 1_024 };

/// What a follower was told so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Told {
    /// Everything below is uploaded.
    pub(crate) uploaded_end: Offset,
    /// The segment map up to here.
    pub(crate) mapped_end: Offset,
    /// The map went on when its last part was told.
    pub(crate) more: bool,
}

/// A follower's next step.
#[derive(Debug)]
pub(crate) enum FollowPlan {
    /// Everything below `from` is in object storage.
    Start {
        from: Offset,
        high_watermark: Offset,
        map: Option<MapPart>,
        /// What it is told with this.
        told: Told,
    },
    Pieces {
        pieces: Vec<TailPiece>,
        high_watermark: Offset,
    },
    Sealed {
        state: SealedState,
        map: Option<MapPart>,
    },
    /// Nothing now; the bell rings.
    Wait,
}

impl PartitionLog {
    /// Registers a bell that rings whenever [`PartitionLog::follow_plan`] may answer anew.
    pub(crate) fn add_follower(
        &self,
        leader_epoch: LeaderEpoch,
        bell: &Arc<Notify>,
    ) -> Result<(), FollowError> {
        let mut state = self.state.lock();
        state.check_followable(leader_epoch)?;
        state.followers.push(bell.clone());
        Ok(())
    }

    pub(crate) fn remove_follower(&self, bell: &Arc<Notify>) {
        let mut state = self.state.lock();
        state.followers.retain(|known| !Arc::ptr_eq(known, bell));
    }

    /// What a follower gets that has everything below `next` (`None` at first) and was told `told`.
    pub(crate) fn follow_plan(
        &self,
        leader_epoch: LeaderEpoch,
        next: Option<Offset>,
        told: Told,
    ) -> Result<FollowPlan, FollowError> {
        let state = self.state.lock();
        state.check_followable(leader_epoch)?;
        let tail_start = state.tail.start().unwrap_or(state.log_end);
        let up_to_date = state.uploaded_end <= told.uploaded_end && !told.more;
        let Some(next) = next.filter(|n| *n >= tail_start && up_to_date) else {
            return Ok(state.start(tail_start, told));
        };
        if next < state.high_watermark {
            let pieces = state
                .tail
                .read(next, state.high_watermark, STEP_BYTES, true);
            return Ok(FollowPlan::Pieces {
                pieces,
                high_watermark: state.high_watermark,
            });
        }
        match &state.status {
            Status::Sealed(seal) if next == seal.state.end => {
                let map = state.map_part(told.mapped_end);
                if map.as_ref().is_some_and(|map| map.end < state.stored_end) {
                    return Ok(state.start(tail_start, told));
                }
                Ok(FollowPlan::Sealed {
                    state: (*seal.state).clone(),
                    map,
                })
            }
            _ => Ok(FollowPlan::Wait),
        }
    }
}

impl State {
    fn start(&self, tail_start: Offset, told: Told) -> FollowPlan {
        let map = self.map_part(told.mapped_end);
        let mapped_end = map.as_ref().map_or(told.mapped_end, |map| map.end);
        FollowPlan::Start {
            from: self.uploaded_end.max(tail_start),
            high_watermark: self.high_watermark,
            told: Told {
                uploaded_end: self.uploaded_end,
                mapped_end,
                more: map.is_some() && mapped_end < self.stored_end,
            },
            map,
        }
    }

    /// The next part of the segment map from `from` on, if there is more of it.
    fn map_part(&self, from: Offset) -> Option<MapPart> {
        if from >= self.stored_end {
            return None;
        }
        let segments = self.segments.behind(from, STEP_SEGMENTS);
        let cut = segments.last().filter(|_| segments.len() == STEP_SEGMENTS);
        Some(MapPart {
            from,
            end: cut.map_or(self.stored_end, |last| last.range.end()),
            swaps: self.map_swaps,
            segments: segments.to_vec(),
        })
    }

    fn check_followable(&self, leader_epoch: LeaderEpoch) -> Result<(), FollowError> {
        match &self.status {
            Status::Closed | Status::Incoming => Err(FollowError::NotLeader),
            _ if self.leader_epoch != leader_epoch => Err(FollowError::NotLeader),
            Status::Failed(cause) => Err(FollowError::Failed(cause.clone())),
            Status::Open | Status::Switching(_) | Status::Sealed(_) => Ok(()),
        }
    }
}
