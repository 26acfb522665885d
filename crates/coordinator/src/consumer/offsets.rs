//! Who may commit, fetch and delete the offsets of a consumer group.

use super::MemberEpoch;
use super::group::ConsumerGroup;
use super::member::ConsumerMember;
use crate::{CommitRequest, GroupError, MemberId};

impl ConsumerGroup {
    /// OffsetCommit, and TxnOffsetCommit, which has no version of its own that matters here. Not a sign of life: a
    /// consumer's sessions are renewed by its heartbeats only.
    pub(crate) fn accept_commit(
        &self,
        request: &CommitRequest,
        transactional: bool,
    ) -> Result<(), GroupError> {
        // A simple consumer or a tool; no members, so nobody to disagree.
        if request.generation.is_none() && self.members.is_empty() {
            return Ok(());
        }
        let member = self.member(request.member_id.as_ref())?;
        if !transactional && !member.uses_classic_protocol() && request.api_version < 9 {
            return Err(GroupError::UnsupportedVersion);
        }
        let epoch = request.generation.map_or(-1, crate::Generation::to_wire);
        check_epoch(member, MemberEpoch::from_wire(epoch))
    }

    /// OffsetFetch from version 9 on. Without a member id and an epoch it comes from a tool.
    pub(crate) fn accept_fetch(
        &self,
        member: Option<&MemberId>,
        epoch: Option<MemberEpoch>,
    ) -> Result<(), GroupError> {
        if member.is_none() && epoch.is_none() {
            return Ok(());
        }
        let member = self.member(member)?;
        check_epoch(member, epoch.unwrap_or(MemberEpoch::LEAVING))
    }
}

fn check_epoch(member: &ConsumerMember, epoch: MemberEpoch) -> Result<(), GroupError> {
    if epoch == member.current.epoch {
        Ok(())
    } else if member.uses_classic_protocol() {
        Err(GroupError::IllegalGeneration)
    } else {
        Err(GroupError::StaleMemberEpoch)
    }
}
