//! JoinGroup.

use bytes::Bytes;

use super::{ClassicGroup, Member};
use crate::context::Context;
use crate::{GroupError, GroupState, JoinRequest, Joined, JoinedMember, MemberId, ReplyToken};

/// A JoinGroup after the checks that need no group.
pub(crate) struct Join {
    pub(crate) token: ReplyToken,
    pub(crate) request: JoinRequest,
    pub(crate) session_timeout_ms: u32,
    pub(crate) rebalance_timeout_ms: u32,
}

impl Join {
    fn reason(&self) -> &str {
        self.request
            .reason
            .as_deref()
            .filter(|reason| !reason.is_empty())
            .unwrap_or("not provided")
    }
}

impl ClassicGroup {
    pub(crate) fn join(&mut self, cx: &mut Context<'_>, join: Join) {
        let member_id = join.request.member_id.clone();
        if !self.has_room_for(cx, member_id.as_ref()) {
            if let Some(id) = &member_id {
                self.remove(cx, id);
            }
            return cx.refuse_join(join.token, None, GroupError::GroupMaxSizeReached);
        }
        if !self.supports(&join.request.protocol_type, &join.request.protocols) {
            return cx.refuse_join(join.token, member_id, GroupError::InconsistentGroupProtocol);
        }
        match member_id {
            None => self.join_new(cx, join),
            Some(id) if self.pending_joins.contains(&id) && join.request.instance_id.is_none() => {
                self.add_and_rebalance(cx, join, id);
            }
            Some(id) => self.join_again(cx, join, &id),
        }
    }

    /// Kafka's `group.max.size`. While members rejoin, those that have come back count, so that lowering the
    /// limit drops the last to come.
    fn has_room_for(&self, cx: &Context<'_>, id: Option<&MemberId>) -> bool {
        let member = id.and_then(|id| self.members.get(id));
        match self.state {
            GroupState::Empty => true,
            GroupState::PreparingRebalance => {
                member.is_some_and(|member| member.awaiting_join.is_some())
                    || self.awaiting_join_count() < cx.config.max_group_size
            }
            GroupState::CompletingRebalance | GroupState::Stable => {
                member.is_some() || self.members.len() < cx.config.max_group_size
            }
        }
    }

    fn join_new(&mut self, cx: &mut Context<'_>, join: Join) {
        let random = join.request.random;
        let Some(instance) = &join.request.instance_id else {
            let id = MemberId::generate(&join.request.client_id, random);
            if join.request.api_version < 4 {
                return self.add_and_rebalance(cx, join, id);
            }
            if self.pending_joins.len() >= cx.config.max_pending_members {
                return cx.refuse_join(join.token, None, GroupError::GroupMaxSizeReached);
            }
            self.pending_joins.insert(id.clone());
            cx.schedule_session(&self.id, &id, join.session_timeout_ms);
            return cx.refuse_join(join.token, Some(id), GroupError::MemberIdRequired);
        };
        let id = MemberId::generate(instance.as_str(), random);
        match self.static_members.get(instance).cloned() {
            Some(current) => self.replace_static_member(cx, join, &current, id),
            None => self.add_and_rebalance(cx, join, id),
        }
    }

    fn join_again(&mut self, cx: &mut Context<'_>, join: Join, id: &MemberId) {
        if let Err(error) = self.validate_member(Some(id), join.request.instance_id.as_ref()) {
            return cx.refuse_join(join.token, Some(id.clone()), error);
        }
        let unchanged = self
            .members
            .get(id)
            .is_some_and(|member| member.protocols == join.request.protocols);
        let is_leader = self.is_leader(id);
        match self.state {
            GroupState::PreparingRebalance => {
                self.update_and_rebalance(cx, join, id, "member joins again")
            }
            // It may have missed our answer; the generation is still being completed.
            GroupState::CompletingRebalance if unchanged => {
                let members = if is_leader {
                    self.joined_members()
                } else {
                    Vec::new()
                };
                cx.joined(join.token, self.joined(id, members));
            }
            GroupState::CompletingRebalance => {
                self.update_and_rebalance(cx, join, id, "member changed its metadata")
            }
            // The leader joins to have the assignment computed again, e.g. because a topic has grown.
            GroupState::Stable if is_leader => {
                self.update_and_rebalance(cx, join, id, "leader joins again")
            }
            GroupState::Stable if unchanged => cx.joined(join.token, self.joined(id, Vec::new())),
            GroupState::Stable => {
                self.update_and_rebalance(cx, join, id, "member changed its metadata")
            }
            GroupState::Empty => {
                cx.refuse_join(join.token, Some(id.clone()), GroupError::UnknownMemberId)
            }
        }
    }

    fn update_and_rebalance(&mut self, cx: &mut Context<'_>, join: Join, id: &MemberId, why: &str) {
        let reason = format!("{why}: {id}; client reason: {}", join.reason());
        let (rebalance, session) = (join.rebalance_timeout_ms, join.session_timeout_ms);
        self.update(
            cx,
            id,
            join.request.protocols,
            rebalance,
            session,
            Some(join.token),
        );
        self.rebalance_or_complete_join(cx, reason);
    }

    fn add_and_rebalance(&mut self, cx: &mut Context<'_>, join: Join, id: MemberId) {
        let reason = format!("new member {id}; client reason: {}", join.reason());
        if self.state == GroupState::PreparingRebalance && self.came_from_empty {
            self.member_added = true;
        }
        let request = join.request;
        let member = Member {
            id: id.clone(),
            instance_id: request.instance_id,
            client_id: request.client_id,
            client_host: request.client_host,
            rebalance_timeout_ms: join.rebalance_timeout_ms,
            session_timeout_ms: join.session_timeout_ms,
            protocols: request.protocols,
            assignment: Bytes::new(),
            awaiting_join: Some(join.token),
            awaiting_sync: None,
            is_new: true,
        };
        self.add(member, &request.protocol_type);
        // It can't send heartbeats while it waits, and we can't see it go away. Without this limit, a client
        // that times out and retries would leave a dead member behind each time.
        cx.schedule_session(&self.id, &id, cx.config.new_member_join_timeout_ms);
        self.rebalance_or_complete_join(cx, reason);
    }

    /// The answer to a member of the current generation.
    pub(crate) fn joined(&self, id: &MemberId, members: Vec<JoinedMember>) -> Joined {
        Joined {
            generation: self.generation,
            protocol_type: self.protocol_type.as_deref().map(str::to_owned),
            protocol_name: self.protocol_name.as_deref().map(str::to_owned),
            leader: self.leader.clone(),
            member_id: id.clone(),
            skip_assignment: false,
            members,
        }
    }

    pub(crate) fn joined_members(&self) -> Vec<JoinedMember> {
        self.members
            .values()
            .map(|member| JoinedMember {
                member_id: member.id.clone(),
                instance_id: member.instance_id.clone(),
                metadata: member.metadata(self.protocol_name.as_ref()),
            })
            .collect()
    }
}
