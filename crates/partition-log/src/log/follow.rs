//! What a broker that is about to lead reads of the tail, on the side of the present leader.

use std::sync::Arc;

use tidegate_types::{LeaderEpoch, Offset};
use tokio::sync::Notify;

use super::{PartitionLog, SealedState, State, Status};
use crate::follow::FollowError;
use crate::tail::TailPiece;

/// Bytes that one step of a follower takes, unless a single batch is larger.
const STEP_BYTES: usize = 512 * 1024;

/// A follower's next step.
#[derive(Debug)]
pub(crate) enum FollowPlan {
    /// Everything below `from` is in object storage.
    Start {
        from: Offset,
        uploaded_end: Offset,
        high_watermark: Offset,
    },
    Pieces {
        pieces: Vec<TailPiece>,
        high_watermark: Offset,
    },
    Sealed(SealedState),
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

    /// What a follower gets that has everything below `next` (`None` at first) and knows that everything below
    /// `told` is uploaded.
    pub(crate) fn follow_plan(
        &self,
        leader_epoch: LeaderEpoch,
        next: Option<Offset>,
        told: Offset,
    ) -> Result<FollowPlan, FollowError> {
        let state = self.state.lock();
        state.check_followable(leader_epoch)?;
        let tail_start = state.tail.start().unwrap_or(state.log_end);
        let start = FollowPlan::Start {
            from: state.uploaded_end.max(tail_start),
            uploaded_end: state.uploaded_end,
            high_watermark: state.high_watermark,
        };
        let Some(next) = next.filter(|n| *n >= tail_start && state.uploaded_end <= told) else {
            return Ok(start);
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
                Ok(FollowPlan::Sealed((*seal.state).clone()))
            }
            _ => Ok(FollowPlan::Wait),
        }
    }
}

impl State {
    fn check_followable(&self, leader_epoch: LeaderEpoch) -> Result<(), FollowError> {
        match &self.status {
            Status::Closed | Status::Incoming => Err(FollowError::NotLeader),
            _ if self.leader_epoch != leader_epoch => Err(FollowError::NotLeader),
            Status::Failed(cause) => Err(FollowError::Failed(cause.clone())),
            Status::Open | Status::Switching(_) | Status::Sealed(_) => Ok(()),
        }
    }
}
