//! ConsumerGroupHeartbeat of a member that joins or stays.
//!
//! 1. The member is added or updated; if that changes what the group subscribes to, or a topic has changed, the
//!    group epoch is raised.
//! 2. If the group epoch is above the target's, the target is computed anew.
//! 3. The member makes one step towards its target ([`super::reconcile`]).
//!
//! All of it goes to the log as one batch, and the answer waits for that.

use super::assignor::ServerAssignor;
use super::group::ConsumerGroup;
use super::member::{ConsumerMember, Current, MemberState};
use super::reconcile::Step;
use super::{Assignment, ConsumerHeartbeat, ConsumerHeartbeatRequest, MemberEpoch};
use crate::context::Context;
use crate::expression::Expression;
use crate::id::MAX_RECORD_STRING_BYTES;
use crate::journal::Write;
use crate::{ClusterView, GroupConfig, GroupError, InstanceId, MemberId, Reply, ReplyToken};

/// What the coordinator sees, and how often it has been shown something new.
#[derive(Clone, Copy)]
pub(crate) struct Sight<'a> {
    pub(crate) view: &'a dyn ClusterView,
    pub(crate) version: u64,
}

/// Who the sender of a heartbeat is, once it is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sender {
    New(MemberId),
    Known(MemberId),
    /// A static member that comes back in another process.
    Replaces {
        old: MemberId,
        new: MemberId,
    },
}

/// What can be said of a heartbeat without its group.
pub(crate) fn check_heartbeat(
    config: &GroupConfig,
    request: &ConsumerHeartbeatRequest,
) -> Result<(), GroupError> {
    let invalid = |why| Err(GroupError::InvalidHeartbeat(why));
    let is_blank = |text: Option<&str>| text.is_some_and(|text| text.trim().is_empty());
    if request.group_id.as_str().trim().is_empty() {
        return invalid("GroupId can't be empty.");
    }
    if is_blank(request.instance_id.as_ref().map(InstanceId::as_str)) {
        return invalid("InstanceId can't be empty.");
    }
    if is_blank(request.rack_id.as_deref()) {
        return invalid("RackId can't be empty.");
    }
    let epoch = request.member_epoch;
    let must_have_id = request.api_version >= 1 || epoch != MemberEpoch::JOINING;
    if must_have_id && request.member_id.is_none() {
        return invalid("MemberId can't be empty.");
    }
    match epoch {
        MemberEpoch::LEAVING => {}
        MemberEpoch::LEFT_FOR_A_WHILE if request.instance_id.is_none() => {
            return invalid("InstanceId can't be null.");
        }
        MemberEpoch::LEFT_FOR_A_WHILE => {}
        MemberEpoch::JOINING => {
            if request.rebalance_timeout_ms == -1 {
                return invalid("RebalanceTimeoutMs must be provided in first request.");
            }
            if !request.owned.as_ref().is_some_and(Assignment::is_empty) {
                return invalid("TopicPartitions must be empty when (re-)joining.");
            }
            if request.topics.is_none() && request.regex.is_none() {
                return invalid(
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
                );
            }
        }
        epoch if epoch > MemberEpoch::JOINING => {}
        _ => return invalid("MemberEpoch is invalid."),
    }
    check_sizes(config, request)?;
    if let Some(expression) = request.regex.as_deref().filter(|regex| !regex.is_empty()) {
        Expression::parse(expression).map_err(|_| GroupError::InvalidRegularExpression)?;
    }
    match request.server_assignor.as_deref() {
        Some(name) if ServerAssignor::by_name(name).is_none() => {
            Err(GroupError::UnsupportedAssignor)
        }
        _ => Ok(()),
    }
}

/// What goes into a key of the log has a 16-bit length there; the rest is bounded by configuration.
fn check_sizes(config: &GroupConfig, request: &ConsumerHeartbeatRequest) -> Result<(), GroupError> {
    let id = request.member_id.as_ref().map_or("", MemberId::as_str);
    let regex = request.regex.as_deref().unwrap_or_default();
    let fits = |text: &str| text.len() <= MAX_RECORD_STRING_BYTES;
    if ![id, regex, &request.client_id, &request.client_host]
        .into_iter()
        .all(fits)
    {
        return Err(GroupError::InvalidRequest);
    }
    let names: usize = request.topics.iter().flatten().map(String::len).sum();
    let rack = request.rack_id.as_deref().unwrap_or_default();
    if names + regex.len() + rack.len() > config.max_member_metadata_bytes {
        return Err(GroupError::MemberMetadataTooLarge);
    }
    Ok(())
}

impl ConsumerGroup {
    /// Finds the sender of a heartbeat, or says why it isn't heard. Changes nothing.
    pub(crate) fn admit(
        &self,
        config: &GroupConfig,
        request: &ConsumerHeartbeatRequest,
    ) -> Result<Sender, GroupError> {
        let joining = request.member_epoch == MemberEpoch::JOINING;
        let id = request
            .member_id
            .clone()
            .unwrap_or_else(|| MemberId::from_random(request.random));
        let by_instance = request
            .instance_id
            .as_ref()
            .and_then(|instance| self.static_member(instance));
        let is_known = self.members.contains_key(&id) || (joining && by_instance.is_some());
        if !is_known && self.members.len() >= config.max_consumer_group_size {
            return Err(GroupError::GroupMaxSizeReached);
        }
        if request.instance_id.is_some() {
            return match by_instance {
                None if joining && !self.members.contains_key(&id) => Ok(Sender::New(id)),
                None => Err(GroupError::UnknownMemberId),
                Some(member) if joining => {
                    let has_left = member.current.epoch == MemberEpoch::LEFT_FOR_A_WHILE;
                    if !has_left && !member.uses_classic_protocol() {
                        return Err(GroupError::UnreleasedInstanceId);
                    }
                    Ok(Sender::Replaces {
                        old: member.id.clone(),
                        new: id,
                    })
                }
                Some(member) if member.id != id => Err(GroupError::FencedInstanceId),
                Some(member) => check_epoch(member, request).map(|()| Sender::Known(id)),
            };
        }
        match self.members.get(&id) {
            None if joining => Ok(Sender::New(id)),
            None => Err(GroupError::UnknownMemberId),
            Some(member) => check_epoch(member, request).map(|()| Sender::Known(id)),
        }
    }

    /// Applies a heartbeat that was admitted; nothing fails any more. `writes` are what made the group.
    pub(crate) fn heartbeat(
        &mut self,
        cx: &mut Context<'_>,
        sight: Sight<'_>,
        token: ReplyToken,
        request: ConsumerHeartbeatRequest,
        sender: Sender,
        mut writes: Vec<Write>,
    ) {
        let joining = request.member_epoch == MemberEpoch::JOINING;
        let is_full = joining
            || (request.rebalance_timeout_ms != -1
                && (request.topics.is_some() || request.regex.is_some())
                && request.owned.is_some());
        let before = self.take_in(cx, sender, &mut writes);
        let id = before.id.clone();
        // One that hasn't got our last answer says what it owned before that. It may even be the same request once more,
        // late, from a member that has had the answer and reads what it was given: nothing counts as given up by it.
        let is_current = request.member_epoch == before.current.epoch;
        let owned = request.owned.clone().filter(|_| is_current);
        let mut member = updated(before.clone(), request);
        member.profile.classic = None;
        let assigned_before = before.current.assigned.clone();
        self.update(cx, sight, &before, member, &mut writes);
        self.reconcile(cx, &id, owned.as_ref(), &mut writes);
        self.schedule_session(cx, sight.view, &id);
        let Some(member) = self.members.get(&id) else {
            return;
        };
        let changed = is_full || member.current.assigned != assigned_before;
        let interval = sight.view.overrides(&self.id).heartbeat_interval_ms;
        let answer = ConsumerHeartbeat {
            member_id: Some(id),
            member_epoch: member.current.epoch,
            heartbeat_interval_ms: interval.unwrap_or(cx.config.consumer_heartbeat_interval_ms),
            assignment: changed.then(|| member.current.assigned.clone()),
        };
        let reply = Reply::ConsumerHeartbeat(Ok(answer));
        self.store(cx, writes, Some((token, reply)));
    }

    /// The sender as it was; a static one that comes back takes the place of its former self.
    pub(crate) fn take_in(
        &mut self,
        cx: &mut Context<'_>,
        sender: Sender,
        writes: &mut Vec<Write>,
    ) -> ConsumerMember {
        match sender {
            Sender::New(id) => ConsumerMember::new(id),
            Sender::Known(id) => self
                .members
                .get(&id)
                .cloned()
                .unwrap_or_else(|| ConsumerMember::new(id)),
            Sender::Replaces { old, new } => {
                self.cancel_timers(cx, &old);
                let target = self.target_of(&old);
                let Some(mut member) = self.remove(&old) else {
                    return ConsumerMember::new(new);
                };
                writes.extend(self.forget_member(&old));
                member.id = new.clone();
                member.current.epoch = MemberEpoch::JOINING;
                member.current.previous_epoch = MemberEpoch::JOINING;
                self.put(member.clone());
                self.targets.insert(new.clone(), target);
                writes.push(self.write_member(&member));
                writes.push(self.write_target(&new));
                writes.push(self.write_current(&member));
                if let Some(instance) = &member.profile.instance_id {
                    cx.static_member_replaced(&self.id, instance, &old, &new);
                }
                member
            }
        }
    }

    /// Puts the member in, raises the group epoch if need be, and computes the target of a new epoch.
    pub(crate) fn update(
        &mut self,
        cx: &mut Context<'_>,
        sight: Sight<'_>,
        before: &ConsumerMember,
        member: ConsumerMember,
        writes: &mut Vec<Write>,
    ) {
        let is_new = !self.members.contains_key(&member.id);
        let starts_over = std::mem::take(&mut self.must_rebalance);
        let mut bump = starts_over
            || member.profile.topics != before.profile.topics
            || member.regex() != before.regex()
            || is_new;
        if is_new || member.profile != before.profile {
            writes.push(self.write_member(&member));
        }
        self.put(member);
        if bump || self.seen_view != Some(sight.version) {
            let resolved = self.refresh_regexes(cx.now, sight.view, sight.version);
            writes.extend(resolved);
            self.seen_view = Some(sight.version);
            let hash = self.hash_of_topics(sight.view);
            bump |= hash != self.metadata_hash;
            self.metadata_hash = hash;
        }
        if bump {
            writes.push(self.bump());
        }
        if self.epoch > self.target_epoch {
            let target = self.retarget(sight.view, starts_over);
            writes.extend(target);
        }
    }

    /// One step of a member towards its target.
    pub(crate) fn reconcile(
        &mut self,
        cx: &mut Context<'_>,
        id: &MemberId,
        owned: Option<&Assignment>,
        writes: &mut Vec<Write>,
    ) {
        let target = self.target_of(id);
        let Some(member) = self.members.get(id) else {
            return;
        };
        let step = Step {
            target_epoch: self.target_epoch,
            target: &target,
            owned,
        };
        // A member that can only start afresh was refused before.
        let Ok(next) = step.next(member, |topic, index| self.is_taken(id, topic, index)) else {
            return;
        };
        if next == member.current {
            return;
        }
        let mut member = member.clone();
        member.current = next;
        writes.push(self.write_current(&member));
        self.put(member);
        self.schedule_revocation(cx, id);
    }
}

fn updated(mut member: ConsumerMember, request: ConsumerHeartbeatRequest) -> ConsumerMember {
    let profile = &mut member.profile;
    profile.client_id = request.client_id;
    profile.client_host = request.client_host;
    if request.instance_id.is_some() {
        profile.instance_id = request.instance_id;
    }
    if request.rack_id.is_some() {
        profile.rack_id = request.rack_id;
    }
    if request.rebalance_timeout_ms != -1 {
        profile.rebalance_timeout_ms = request.rebalance_timeout_ms;
    }
    if request.server_assignor.is_some() {
        profile.server_assignor = request.server_assignor;
    }
    if let Some(topics) = request.topics {
        profile.topics = topics.into_iter().collect();
    }
    if request.regex.is_some() {
        profile.regex = request.regex;
    }
    member
}

/// The epoch before is accepted too, from a member that owns nothing it hasn't got: the answer that raised the epoch
/// may have been lost. Everybody else must give up what it has and join again.
fn check_epoch(
    member: &ConsumerMember,
    request: &ConsumerHeartbeatRequest,
) -> Result<(), GroupError> {
    let current: &Current = &member.current;
    let owned = request.owned.as_ref();
    let lost_our_answer = request.member_epoch == current.previous_epoch
        && request.member_epoch < current.epoch
        && owned.is_some_and(|owned| owned.is_subset_of(&current.assigned));
    if request.member_epoch != current.epoch && !lost_our_answer {
        return Err(GroupError::FencedMemberEpoch);
    }
    if current.state == MemberState::Unknown && owned.is_none_or(|owned| !owned.is_empty()) {
        return Err(GroupError::FencedMemberEpoch);
    }
    Ok(())
}
