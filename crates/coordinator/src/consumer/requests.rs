//! The way of the consumer protocol's requests to their group, and what time brings.

use super::group::ConsumerGroup;
use super::heartbeat::{Sight, check_heartbeat};
use super::leave::left;
use super::{ConsumerHeartbeatRequest, DescribedConsumerGroup, MemberEpoch};
use crate::context::Context;
use crate::coordinator::{GroupCoordinator, context};
use crate::journal::Write;
use crate::{Effect, GroupError, GroupId, MemberId, Notice, Now, Reply, ReplyToken};

impl GroupCoordinator {
    /// ConsumerGroupHeartbeat. The reply waits until what it says is durable.
    pub fn consumer_heartbeat(
        &mut self,
        now: Now,
        token: ReplyToken,
        request: ConsumerHeartbeatRequest,
    ) -> Vec<Effect> {
        let accepted = self
            .may_append()
            .and_then(|()| check_heartbeat(&self.config, &request))
            .and_then(|()| match request.member_epoch {
                MemberEpoch::LEAVING | MemberEpoch::LEFT_FOR_A_WHILE => {
                    self.consumer_leave(now, token, &request)
                }
                _ => self.consumer_stays(now, token, request),
            });
        if let Err(error) = accepted {
            self.effects
                .push(Effect::Reply(token, Reply::ConsumerHeartbeat(Err(error))));
        }
        self.take_effects()
    }

    fn consumer_stays(
        &mut self,
        now: Now,
        token: ReplyToken,
        request: ConsumerHeartbeatRequest,
    ) -> Result<(), GroupError> {
        let id = request.group_id.clone();
        if let Some(group) = self.consumer_groups.get(&id) {
            let sender = group.admit(&self.config, &request)?;
            self.with_consumer_group(now, &id, |group, cx, sight| {
                group.heartbeat(cx, sight, token, request, sender, Vec::new());
            });
            return Ok(());
        }
        if request.member_epoch != MemberEpoch::JOINING {
            return Err(GroupError::GroupIdNotFound);
        }
        // Until the sender is admitted, the former group stays as it is.
        let (group, writes) = self.begin_consumer_group(&id)?;
        let sender = group.admit(&self.config, &request)?;
        self.become_consumer_group(now, group);
        self.with_consumer_group(now, &id, |group, cx, sight| {
            for member in group.members.keys().cloned().collect::<Vec<_>>() {
                group.schedule_session(cx, sight.view, &member);
            }
            group.heartbeat(cx, sight, token, request, sender, writes);
        });
        Ok(())
    }

    /// A new group, or what becomes of a classic one, with the writes that make it. Changes nothing yet.
    fn begin_consumer_group(
        &self,
        id: &GroupId,
    ) -> Result<(ConsumerGroup, Vec<Write>), GroupError> {
        let Some(classic) = self.groups.get(id) else {
            if self.group_count() >= self.config.max_groups {
                return Err(GroupError::TooManyGroups);
            }
            return Ok((ConsumerGroup::new(id.clone()), Vec::new()));
        };
        let is_stored = self
            .journal
            .groups
            .get(id)
            .is_some_and(|slot| slot.newest().is_some());
        let mut writes = Vec::new();
        if is_stored {
            writes.push(Write::Group(id.clone(), None));
        }
        if classic.is_empty() {
            return Ok((ConsumerGroup::new(id.clone()), writes));
        }
        let policy = self.config.consumer_migration_policy;
        let may = policy.allows_upgrade()
            && classic.uses_consumer_protocol()
            && classic.members.len() <= self.config.max_consumer_group_size;
        if !may {
            return Err(GroupError::GroupIdNotFound);
        }
        let group = ConsumerGroup::from_classic(classic, &*self.view)?;
        writes.extend(group.creation());
        Ok((group, writes))
    }

    /// Puts the group in place of a classic one, whose members are told to join again.
    fn become_consumer_group(&mut self, now: Now, group: ConsumerGroup) {
        let id = group.id.clone();
        if let Some(mut classic) = self.groups.remove(&id) {
            let members = classic.members.len();
            let mut cx = context!(self, now);
            classic.close(&mut cx, &GroupError::RebalanceInProgress);
            if members > 0 {
                cx.notice(Notice::Upgraded {
                    group: id.clone(),
                    members,
                });
            }
        }
        self.consumer_groups.insert(id, group);
    }

    fn consumer_leave(
        &mut self,
        now: Now,
        token: ReplyToken,
        request: &ConsumerHeartbeatRequest,
    ) -> Result<(), GroupError> {
        let id = &request.group_id;
        let group = self
            .consumer_groups
            .get(id)
            .ok_or(GroupError::GroupIdNotFound)?;
        let member = group.leaving(request)?;
        if request.member_epoch == MemberEpoch::LEFT_FOR_A_WHILE {
            self.with_consumer_group(now, id, |group, cx, _| {
                group.leave_for_a_while(cx, token, &member);
            });
            return Ok(());
        }
        let reply = left(&member, request.member_epoch);
        self.fence_consumers(now, id, &[member], Some((token, reply)));
        Ok(())
    }

    /// Takes members out of a consumer group, which becomes a classic one if only members of that protocol are left.
    pub(crate) fn fence_consumers(
        &mut self,
        now: Now,
        id: &GroupId,
        members: &[MemberId],
        reply: Option<(ReplyToken, Reply)>,
    ) {
        let becomes_classic = members.len() == 1
            && self
                .consumer_groups
                .get(id)
                .is_some_and(|group| group.may_downgrade(&self.config, &members[0]));
        if becomes_classic {
            return self.downgrade(now, id, Some(&members[0]), reply);
        }
        self.with_consumer_group(now, id, |group, cx, sight| {
            let writes = group.fence(cx, sight, members);
            group.store(cx, writes, reply);
        });
    }

    /// Makes a classic group of the members but `leaving`; they are told to join it.
    pub(crate) fn downgrade(
        &mut self,
        now: Now,
        id: &GroupId,
        leaving: Option<&MemberId>,
        reply: Option<(ReplyToken, Reply)>,
    ) {
        let Some(mut group) = self.consumer_groups.remove(id) else {
            return;
        };
        let view = self.view.clone();
        let mut cx = context!(self, now);
        group.close(&mut cx);
        if let Some(leaving) = leaving {
            group.remove(leaving);
        }
        let mut writes = cx.journal.forget_consumer_group(id);
        let mut classic = group.into_classic(&*view, now);
        let value = classic.encode(|member| member.assignment.clone());
        writes.push(Write::Group(id.clone(), Some(value)));
        let waiters = reply
            .map(|(token, reply)| crate::context::Waiter::Reply(token, reply))
            .into_iter()
            .collect();
        cx.append(writes, waiters);
        cx.notice(Notice::Downgraded {
            group: id.clone(),
            members: classic.members.len(),
        });
        for member in classic.members.keys() {
            classic.renew_session(&mut cx, member);
        }
        classic.prepare_rebalance(&mut cx, "the group became a classic one".to_owned());
        self.groups.insert(id.clone(), classic);
    }

    /// The host shows topics and group configs as they are from now on. Groups look at them with their next
    /// heartbeat.
    pub fn see(&mut self, view: std::sync::Arc<dyn crate::ClusterView>) {
        self.view = view;
        self.view_version += 1;
    }

    /// ConsumerGroupDescribe, of one group.
    pub fn describe_consumer_group(
        &self,
        id: &GroupId,
    ) -> Result<DescribedConsumerGroup, GroupError> {
        self.serving()?;
        self.consumer_groups
            .get(id)
            .map(|group| group.describe(&*self.view))
            .ok_or(GroupError::GroupIdNotFound)
    }

    /// A session of a consumer group has run out.
    pub(crate) fn consumer_session_expired(&mut self, now: Now, id: &GroupId, member: &MemberId) {
        self.drop_consumer(now, id, member, "the session ended");
    }

    /// A member didn't give its partitions up in time. The timer is cancelled when it does.
    pub(crate) fn revocation_time_is_up(&mut self, now: Now, id: &GroupId, member: &MemberId) {
        self.drop_consumer(
            now,
            id,
            member,
            "it did not give up its partitions within the rebalance timeout",
        );
    }

    pub(crate) fn classic_join_time_is_up(&mut self, now: Now, id: &GroupId, member: &MemberId) {
        self.drop_consumer(
            now,
            id,
            member,
            "it did not join within the rebalance timeout",
        );
    }

    pub(crate) fn classic_sync_time_is_up(&mut self, now: Now, id: &GroupId, member: &MemberId) {
        self.drop_consumer(
            now,
            id,
            member,
            "it did not sync within the rebalance timeout",
        );
    }

    fn drop_consumer(&mut self, now: Now, id: &GroupId, member: &MemberId, why: &'static str) {
        let is_member = self
            .consumer_groups
            .get(id)
            .is_some_and(|group| group.members.contains_key(member));
        if !is_member {
            return;
        }
        self.with_consumer_group(now, id, |group, cx, _| {
            group.notice_dropped(cx, member, why);
        });
        self.fence_consumers(now, id, std::slice::from_ref(member), None);
    }

    pub(crate) fn with_consumer_group<R>(
        &mut self,
        now: Now,
        id: &GroupId,
        act: impl FnOnce(&mut ConsumerGroup, &mut Context<'_>, Sight<'_>) -> R,
    ) -> Option<R> {
        let group = self.consumer_groups.get_mut(id)?;
        let sight = Sight {
            view: &*self.view,
            version: self.view_version,
        };
        let mut cx = context!(self, now);
        Some(act(group, &mut cx, sight))
    }

    /// Takes out a consumer group without members, and returns the tombstones of what the log has of it.
    pub(crate) fn remove_consumer_group(&mut self, now: Now, id: &GroupId) -> Vec<Write> {
        let Some(group) = self.consumer_groups.remove(id) else {
            return Vec::new();
        };
        group.close(&mut context!(self, now));
        let mut writes = self.journal.forget_consumer_group(id);
        // Left behind if the group's change of protocol was stored in part.
        let classic = self.journal.groups.get(id).and_then(|slot| slot.newest());
        if classic.is_some() {
            writes.push(Write::Group(id.clone(), None));
        }
        writes
    }

    /// Rebuilds a group from what the log will hold, after an append of its consumer records failed.
    pub(crate) fn restore_consumer_group(&mut self, now: Now, id: &GroupId) {
        if let Some(group) = self.consumer_groups.remove(id) {
            group.close(&mut context!(self, now));
        }
        if !self.journal.has_consumer_group(id) {
            // It was a classic group, or none.
            return self.revive(now, id.clone());
        }
        if let Some(mut classic) = self.groups.remove(id) {
            classic.close(&mut context!(self, now), &GroupError::UnknownMemberId);
        }
        // The records were readable when they were loaded or written.
        let Ok(mut group) =
            ConsumerGroup::from_records(id.clone(), self.journal.consumer_records(id))
        else {
            return;
        };
        group.must_rebalance = true;
        self.consumer_groups.insert(id.clone(), group);
        self.start_consumer_timers(now, id);
    }

    /// Sessions start afresh, and so does the time to give partitions up.
    pub(crate) fn start_consumer_timers(&mut self, now: Now, id: &GroupId) {
        self.with_consumer_group(now, id, |group, cx, sight| {
            for member in group.members.keys().cloned().collect::<Vec<_>>() {
                group.schedule_session(cx, sight.view, &member);
                group.schedule_revocation(cx, &member);
            }
        });
    }
}
