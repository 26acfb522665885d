//! Members that leave, by their own will or because time is up.

use super::group::ConsumerGroup;
use super::heartbeat::Sight;
use super::member::MemberState;
use super::{ConsumerHeartbeat, ConsumerHeartbeatRequest, MemberEpoch};
use crate::context::Context;
use crate::journal::Write;
use crate::{Assignment, GroupError, MemberId, Notice, Reply, ReplyToken};

impl ConsumerGroup {
    /// The member that a leave is about.
    pub(crate) fn leaving(
        &self,
        request: &ConsumerHeartbeatRequest,
    ) -> Result<MemberId, GroupError> {
        let id = request.member_id.as_ref();
        let Some(instance) = &request.instance_id else {
            return self.member(id).map(|member| member.id.clone());
        };
        let member = self
            .static_member(instance)
            .ok_or(GroupError::UnknownMemberId)?;
        if Some(&member.id) != id {
            return Err(GroupError::FencedInstanceId);
        }
        Ok(member.id.clone())
    }

    /// A static member leaves for a while: it keeps its partitions until its session ends.
    pub(crate) fn leave_for_a_while(
        &mut self,
        cx: &mut Context<'_>,
        token: ReplyToken,
        id: &MemberId,
    ) {
        let mut writes = Vec::new();
        if let Some(member) = self.members.get(id) {
            let mut member = member.clone();
            member.current.epoch = MemberEpoch::LEFT_FOR_A_WHILE;
            // Its client is gone: what it had to give up is given up.
            member.current.revoking = Assignment::default();
            member.current.state = MemberState::Stable;
            writes.push(self.write_current(&member));
            self.put(member);
            self.schedule_revocation(cx, id);
        }
        let reply = left(id, MemberEpoch::LEFT_FOR_A_WHILE);
        self.store(cx, writes, Some((token, reply)));
    }

    /// Takes members out and raises the group epoch. Their partitions are free; the next heartbeat of the group
    /// gives them away.
    pub(crate) fn fence(
        &mut self,
        cx: &mut Context<'_>,
        sight: Sight<'_>,
        ids: &[MemberId],
    ) -> Vec<Write> {
        let mut writes = Vec::new();
        for id in ids {
            self.cancel_timers(cx, id);
            if self.remove(id).is_some() {
                writes.extend(self.forget_member(id));
            }
        }
        if writes.is_empty() {
            return writes;
        }
        let regexes = self.refresh_regexes(cx.now, sight.view, sight.version);
        writes.extend(regexes);
        self.seen_view = Some(sight.version);
        self.metadata_hash = self.hash_of_topics(sight.view);
        writes.push(self.bump());
        writes
    }

    pub(crate) fn notice_dropped(&self, cx: &mut Context<'_>, id: &MemberId, reason: &'static str) {
        cx.notice(Notice::MembersDropped {
            group: self.id.clone(),
            members: vec![id.clone()],
            reason,
        });
    }
}

pub(crate) fn left(id: &MemberId, epoch: MemberEpoch) -> Reply {
    Reply::ConsumerHeartbeat(Ok(ConsumerHeartbeat {
        member_id: Some(id.clone()),
        member_epoch: epoch,
        heartbeat_interval_ms: 0,
        assignment: None,
    }))
}
