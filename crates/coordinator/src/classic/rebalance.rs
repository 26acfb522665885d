//! The join phase: starting a rebalance, waiting for the members, and ending it.

use super::ClassicGroup;
use super::group::InitialDelay;
use crate::context::Context;
use crate::journal::Write;
use crate::timers::Timer;
use crate::{AppendId, GroupError, GroupState, MemberId, Notice};

impl ClassicGroup {
    /// Starts a rebalance, or, in the middle of one, ends its join phase if all have come.
    pub(crate) fn rebalance_or_complete_join(
        &mut self,
        cx: &mut Context<'_>,
        reason: String,
    ) -> Option<AppendId> {
        match self.state {
            GroupState::Empty | GroupState::CompletingRebalance | GroupState::Stable => {
                self.prepare_rebalance(cx, reason)
            }
            GroupState::PreparingRebalance => self.maybe_complete_join(cx),
        }
    }

    /// Returns the append that an emptied group makes.
    pub(crate) fn prepare_rebalance(
        &mut self,
        cx: &mut Context<'_>,
        reason: String,
    ) -> Option<AppendId> {
        if self.state == GroupState::CompletingRebalance {
            self.fail_syncs(cx, &GroupError::RebalanceInProgress);
        }
        self.pending_syncs.clear();
        cx.cancel(&Timer::Sync(self.id.clone()));
        let first = self.is_empty();
        self.initial_delay = None;
        if first {
            let delay_ms = cx.config.initial_rebalance_delay_ms;
            self.delay_first_join(
                cx,
                delay_ms,
                self.rebalance_timeout_ms().saturating_sub(delay_ms),
            );
        }
        self.transition(cx.now, GroupState::PreparingRebalance);
        cx.notice(Notice::PreparingRebalance {
            group: self.id.clone(),
            generation: self.generation,
            reason,
        });
        if first {
            return None;
        }
        if self.all_joined() {
            return self.complete_join(cx);
        }
        self.schedule_join_end(cx);
        None
    }

    /// Ends the join phase if nobody is missing, but not the first one, which waits for more members.
    pub(crate) fn maybe_complete_join(&mut self, cx: &mut Context<'_>) -> Option<AppendId> {
        if self.state != GroupState::PreparingRebalance
            || self.came_from_empty
            || !self.all_joined()
        {
            return None;
        }
        self.complete_join(cx)
    }

    /// The join timer has run out.
    pub(crate) fn join_time_is_up(&mut self, cx: &mut Context<'_>) {
        if self.state != GroupState::PreparingRebalance {
            return;
        }
        match self.initial_delay {
            Some(delay) if self.member_added && delay.remaining_ms != 0 => {
                self.member_added = false;
                let next = cx.config.initial_rebalance_delay_ms.min(delay.remaining_ms);
                self.delay_first_join(
                    cx,
                    next,
                    delay.remaining_ms.saturating_sub(delay.last_delay_ms),
                );
            }
            Some(_) | None => {
                self.complete_join(cx);
            }
        }
    }

    fn delay_first_join(&mut self, cx: &mut Context<'_>, delay_ms: u32, remaining_ms: u32) {
        self.initial_delay = Some(InitialDelay {
            last_delay_ms: delay_ms,
            remaining_ms,
        });
        cx.schedule(Timer::Join(self.id.clone()), u64::from(delay_ms));
    }

    fn schedule_join_end(&mut self, cx: &mut Context<'_>) {
        // At least 1 ms, or a rebalance timeout of 0 would come due for ever at the same instant.
        let timeout = self.rebalance_timeout_ms().max(1);
        cx.schedule(Timer::Join(self.id.clone()), u64::from(timeout));
    }

    /// Ends the join phase: dynamic members that haven't come are dropped, static ones stay. With members the
    /// next generation waits for the leader's assignment; without, the group is stored as Empty.
    pub(crate) fn complete_join(&mut self, cx: &mut Context<'_>) -> Option<AppendId> {
        cx.cancel(&Timer::Join(self.id.clone()));
        self.drop_absent_dynamic_members(cx);
        if !self.elect_joined_leader() && !self.members.is_empty() {
            cx.notice(Notice::NobodyRejoined {
                group: self.id.clone(),
            });
            self.initial_delay = None;
            self.schedule_join_end(cx);
            return None;
        }
        self.initial_delay = None;
        self.member_added = false;
        self.generation = self.generation.next();
        self.pending_syncs.clear();
        self.protocol_name = self.select_protocol();
        self.refresh_subscribed();
        if self.members.is_empty() {
            self.transition(cx.now, GroupState::Empty);
            cx.notice(Notice::Empty {
                group: self.id.clone(),
                generation: self.generation,
            });
            let value = self.encode(|member| member.assignment.clone());
            return Some(cx.append(vec![Write::Group(self.id.clone(), Some(value))], Vec::new()));
        }
        self.transition(cx.now, GroupState::CompletingRebalance);
        cx.notice(Notice::JoinCompleted {
            group: self.id.clone(),
            generation: self.generation,
            members: self.members.len(),
        });
        self.answer_joins(cx);
        // At least 1 ms, as above.
        cx.schedule(
            Timer::Sync(self.id.clone()),
            u64::from(self.rebalance_timeout_ms().max(1)),
        );
        None
    }

    fn drop_absent_dynamic_members(&mut self, cx: &mut Context<'_>) {
        let absent: Vec<MemberId> = self
            .members
            .values()
            .filter(|member| member.awaiting_join.is_none() && !member.is_static())
            .map(|member| member.id.clone())
            .collect();
        if absent.is_empty() {
            return;
        }
        for id in &absent {
            self.remove(cx, id);
        }
        cx.notice(Notice::MembersDropped {
            group: self.id.clone(),
            members: absent,
            reason: "they did not join within the rebalance timeout",
        });
    }

    /// A leader that hasn't come back gives way to a member that has. False if none has.
    fn elect_joined_leader(&mut self) -> bool {
        let has_joined = |id: &MemberId| {
            self.members
                .get(id)
                .is_some_and(|member| member.awaiting_join.is_some())
        };
        if self.leader.as_ref().is_some_and(has_joined) {
            return true;
        }
        match self
            .members
            .values()
            .find(|member| member.awaiting_join.is_some())
        {
            Some(member) => {
                self.leader = Some(member.id.clone());
                true
            }
            None => false,
        }
    }

    fn answer_joins(&mut self, cx: &mut Context<'_>) {
        let ids: Vec<MemberId> = self.members.keys().cloned().collect();
        for id in ids {
            let members = if self.is_leader(&id) {
                self.joined_members()
            } else {
                Vec::new()
            };
            let answer = self.joined(&id, members);
            if let Some(member) = self.members.get_mut(&id) {
                member.is_new = false;
                if let Some(token) = member.awaiting_join.take() {
                    cx.joined(token, answer);
                }
            }
            self.renew_session(cx, &id);
            self.pending_syncs.insert(id);
        }
    }

    /// A session has run out.
    pub(crate) fn session_expired(&mut self, cx: &mut Context<'_>, id: &MemberId) {
        if self.pending_joins.contains(id) {
            self.remove(cx, id);
            self.maybe_complete_join_after_removal(cx);
            return;
        }
        // A member that waits for us gets a fresh session with our answer.
        if self
            .members
            .get(id)
            .is_none_or(super::Member::needs_no_heartbeat)
        {
            return;
        }
        cx.notice(Notice::MemberExpired {
            group: self.id.clone(),
            member: id.clone(),
        });
        self.remove(cx, id);
        match self.state {
            GroupState::Stable | GroupState::CompletingRebalance => {
                self.prepare_rebalance(cx, format!("session of {id} expired"));
            }
            GroupState::PreparingRebalance => self.maybe_complete_join_after_removal(cx),
            GroupState::Empty => {}
        }
    }

    /// Unlike [`Self::maybe_complete_join`] this ends a first rebalance too, as Kafka does.
    fn maybe_complete_join_after_removal(&mut self, cx: &mut Context<'_>) {
        if self.state == GroupState::PreparingRebalance && self.all_joined() {
            self.complete_join(cx);
        }
    }
}
