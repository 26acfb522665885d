//! Who may commit, fetch and delete the offsets of a consumer group.

use super::MemberEpoch;
use super::group::ConsumerGroup;
use super::member::ConsumerMember;
use crate::{CommitRequest, Generation, GroupError, MemberId, TransactionalCommitRequest};

impl ConsumerGroup {
    /// OffsetCommit. Not a sign of life: a consumer's sessions are renewed by its heartbeats only.
    pub(crate) fn accept_commit(&self, request: &CommitRequest) -> Result<(), GroupError> {
        // A simple consumer or a tool; no members, so nobody to disagree.
        if request.generation.is_none() && self.members.is_empty() {
            return Ok(());
        }
        let member = self.member(request.member_id.as_ref())?;
        if !member.uses_classic_protocol() && request.api_version < 9 {
            return Err(GroupError::UnsupportedVersion);
        }
        check_epoch(member, epoch_of(request.generation))
    }

    /// TxnOffsetCommit, also of a client that doesn't say who it is, as those before KIP-447 do. It has no word for a
    /// stale epoch.
    pub(crate) fn accept_transactional_commit(
        &self,
        request: &TransactionalCommitRequest,
    ) -> Result<(), GroupError> {
        let is_anonymous = request.member_id.is_none() && request.instance_id.is_none();
        if request.generation.is_none() && (self.members.is_empty() || is_anonymous) {
            return Ok(());
        }
        let member = self.member(request.member_id.as_ref())?;
        check_epoch(member, epoch_of(request.generation)).map_err(|_| GroupError::IllegalGeneration)
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

fn epoch_of(generation: Option<Generation>) -> MemberEpoch {
    MemberEpoch::from_wire(generation.map_or(-1, Generation::to_wire))
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
