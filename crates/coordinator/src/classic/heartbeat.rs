//! Heartbeat, and the checks of an OffsetCommit, which counts as one.

use super::ClassicGroup;
use crate::context::Context;
use crate::{CommitRequest, GroupError, GroupState, HeartbeatRequest};

impl ClassicGroup {
    pub(crate) fn heartbeat(
        &mut self,
        cx: &mut Context<'_>,
        request: &HeartbeatRequest,
    ) -> Result<(), GroupError> {
        let id = self.validate_member(request.member_id.as_ref(), request.instance_id.as_ref())?;
        if request.generation != Some(self.generation) {
            return Err(GroupError::IllegalGeneration);
        }
        match self.state {
            GroupState::Empty => Err(GroupError::UnknownMemberId),
            GroupState::PreparingRebalance => {
                self.renew_session(cx, id);
                Err(GroupError::RebalanceInProgress)
            }
            // A client may send heartbeats as soon as it has joined.
            GroupState::CompletingRebalance | GroupState::Stable => {
                self.renew_session(cx, id);
                Ok(())
            }
        }
    }

    /// Whether the sender may commit offsets. From a member it renews the session.
    pub(crate) fn accept_commit(
        &mut self,
        cx: &mut Context<'_>,
        request: &CommitRequest,
    ) -> Result<(), GroupError> {
        // A simple consumer or a tool; no members, so nobody to disagree.
        if request.generation.is_none() && self.is_empty() {
            return Ok(());
        }
        if request.generation.is_none()
            && request.member_id.is_none()
            && request.instance_id.is_none()
        {
            return Err(GroupError::UnknownMemberId);
        }
        let id = self.validate_member(request.member_id.as_ref(), request.instance_id.as_ref())?;
        if request.generation != Some(self.generation) {
            return Err(GroupError::IllegalGeneration);
        }
        match self.state {
            // It knows the new generation, but not yet its assignment.
            GroupState::CompletingRebalance => Err(GroupError::RebalanceInProgress),
            GroupState::Empty => Err(GroupError::UnknownMemberId),
            GroupState::PreparingRebalance | GroupState::Stable => {
                self.renew_session(cx, id);
                Ok(())
            }
        }
    }
}
