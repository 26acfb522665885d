//! A static member that comes back without its member id (KIP-345, KAFKA-10284).

use super::join::Join;
use super::{ClassicGroup, Member};
use crate::context::{Context, Waiter};
use crate::journal::Write;
use crate::{AppendFailure, Generation, GroupError, GroupState, MemberId, ReplyToken};

impl ClassicGroup {
    /// Gives the instance a new member id. In a Stable group whose protocol stays the same nobody else
    /// notices: the new id is stored, so that it is still known after a restart, and then answered.
    pub(crate) fn replace_static_member(
        &mut self,
        cx: &mut Context<'_>,
        join: Join,
        old: &MemberId,
        new: MemberId,
    ) {
        let Some(mut before) = self.members.get(old).cloned() else {
            return cx.refuse_join(join.token, None, GroupError::UnknownMemberId);
        };
        before.awaiting_join = None;
        before.awaiting_sync = None;
        let leader_before = self.leader.clone();
        self.rename(cx, old, &new);
        if let Some(instance) = &before.instance_id {
            cx.static_member_replaced(&self.id, instance, old, &new);
        }
        let (token, rebalance, session) = (
            join.token,
            join.rebalance_timeout_ms,
            join.session_timeout_ms,
        );
        self.update(
            cx,
            &new,
            join.request.protocols,
            rebalance,
            session,
            Some(token),
        );
        self.renew_session(cx, &new);
        let reason = format!("static member {new} replaces {old}");
        match self.state {
            GroupState::Stable if self.select_protocol() == self.protocol_name => {
                let value = self.encode(|member| member.assignment.clone());
                let waiter = Waiter::StaticMember {
                    group: self.id.clone(),
                    generation: self.generation,
                    new,
                    before: Box::new(before),
                    leader_before,
                    may_skip_assignment: join.request.api_version >= 9,
                };
                cx.append(
                    vec![Write::Group(self.id.clone(), Some(value))],
                    vec![waiter],
                );
            }
            // In CompletingRebalance the leader may be assigning to the old id right now, so all join again.
            GroupState::Stable | GroupState::CompletingRebalance => {
                self.prepare_rebalance(cx, reason);
            }
            GroupState::PreparingRebalance | GroupState::Empty => {
                self.maybe_complete_join(cx);
            }
        }
    }

    /// The new id is durable. If a rebalance has begun meanwhile, its end answers the join.
    pub(crate) fn static_member_stored(
        &mut self,
        cx: &mut Context<'_>,
        new: &MemberId,
        leader_before: Option<MemberId>,
        may_skip_assignment: bool,
    ) {
        if self.state == GroupState::PreparingRebalance {
            return;
        }
        let Some(token) = self.take_join(new) else {
            return;
        };
        let is_leader = self.is_leader(new);
        let mut answer = self.joined(new, Vec::new());
        if may_skip_assignment {
            answer.skip_assignment = is_leader;
            if is_leader {
                answer.members = self.joined_members();
            }
        } else {
            // An old client that sees itself as the leader would compute an assignment that nobody gets.
            answer.leader = leader_before;
        }
        cx.joined(token, answer);
    }

    /// The new id is not in the log and won't be: the old member is put back. Not if the group has moved on,
    /// since then the new id is part of a rebalance whose end writes the group again.
    pub(crate) fn static_member_not_stored(
        &mut self,
        cx: &mut Context<'_>,
        generation: Generation,
        new: &MemberId,
        before: Member,
        failure: AppendFailure,
    ) {
        if self.state != GroupState::Stable || self.generation != generation {
            return;
        }
        if !self.members.contains_key(new) {
            // It has come back once more since. Should that not be stored either, its former self is who it was before
            // both.
            for waiter in cx.journal.waiters_mut() {
                if let Waiter::StaticMember {
                    group,
                    before: later,
                    ..
                } = waiter
                    && *group == self.id
                    && later.id == *new
                {
                    **later = before.clone();
                }
            }
            return;
        }
        let token = self.take_join(new);
        let old = before.id;
        self.update(
            cx,
            new,
            before.protocols,
            before.rebalance_timeout_ms,
            before.session_timeout_ms,
            None,
        );
        self.rename(cx, new, &old);
        self.renew_session(cx, &old);
        if let Some(token) = token {
            cx.refuse_join(token, None, failure.as_reply());
        }
    }

    /// The append takes too long to wait for. Its outcome is open, so the new id stays; the client will come
    /// back without an id and get another one.
    pub(crate) fn static_member_timed_out(&mut self, cx: &mut Context<'_>, new: &MemberId) {
        if self.state == GroupState::PreparingRebalance {
            return;
        }
        if let Some(token) = self.take_join(new) {
            cx.refuse_join(token, None, GroupError::CoordinatorNotAvailable);
        }
    }

    fn take_join(&mut self, id: &MemberId) -> Option<ReplyToken> {
        self.members.get_mut(id)?.awaiting_join.take()
    }
}
