//! The state of a classic group, and the changes to it that keep its parts in step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_types::TimestampMs;

use super::Member;
use super::subscription::subscribed_topics;
use crate::context::Context;
use crate::timers::Timer;
use crate::{
    Generation, GroupError, GroupId, GroupState, InstanceId, MemberId, Now, Protocol, ReplyToken,
};

pub(crate) const CONSUMER_PROTOCOL_TYPE: &str = "consumer";

/// How much longer the first rebalance of an empty group may be put off.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InitialDelay {
    pub(crate) last_delay_ms: u32,
    pub(crate) remaining_ms: u32,
}

#[derive(Debug)]
pub(crate) struct ClassicGroup {
    pub(crate) id: GroupId,
    pub(crate) state: GroupState,
    /// The state before this one; tells a first rebalance from a later one.
    pub(crate) came_from_empty: bool,
    /// Unknown in records below version 2.
    pub(crate) state_since: Option<TimestampMs>,
    pub(crate) protocol_type: Option<Arc<str>>,
    pub(crate) protocol_name: Option<Arc<str>>,
    pub(crate) generation: Generation,
    pub(crate) leader: Option<MemberId>,
    pub(crate) members: BTreeMap<MemberId, Member>,
    pub(crate) static_members: BTreeMap<InstanceId, MemberId>,
    /// Told their id, not back yet.
    pub(crate) pending_joins: BTreeSet<MemberId>,
    /// Joined this generation, no SyncGroup yet.
    pub(crate) pending_syncs: BTreeSet<MemberId>,
    /// `None` if not known: no generation yet, another protocol type, or unreadable metadata.
    pub(crate) subscribed: Option<BTreeSet<String>>,
    pub(crate) member_added: bool,
    pub(crate) initial_delay: Option<InitialDelay>,
    /// Per protocol, how many members support it.
    support: BTreeMap<Arc<str>, usize>,
}

impl ClassicGroup {
    pub(crate) fn new(id: GroupId, now: Now) -> Self {
        Self {
            id,
            state: GroupState::Empty,
            came_from_empty: false,
            state_since: Some(now.wall),
            protocol_type: None,
            protocol_name: None,
            generation: Generation::ZERO,
            leader: None,
            members: BTreeMap::new(),
            static_members: BTreeMap::new(),
            pending_joins: BTreeSet::new(),
            pending_syncs: BTreeSet::new(),
            subscribed: None,
            member_added: false,
            initial_delay: None,
            support: BTreeMap::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state == GroupState::Empty
    }

    pub(crate) fn is_leader(&self, member: &MemberId) -> bool {
        self.leader.as_ref() == Some(member)
    }

    pub(crate) fn awaiting_join_count(&self) -> usize {
        self.members
            .values()
            .filter(|member| member.awaiting_join.is_some())
            .count()
    }

    pub(crate) fn all_joined(&self) -> bool {
        self.pending_joins.is_empty()
            && self
                .members
                .values()
                .all(|member| member.awaiting_join.is_some())
    }

    /// The longest of the members' rebalance timeouts.
    pub(crate) fn rebalance_timeout_ms(&self) -> u32 {
        self.members
            .values()
            .map(|member| member.rebalance_timeout_ms)
            .max()
            .unwrap_or(0)
    }

    pub(crate) fn transition(&mut self, now: Now, state: GroupState) {
        self.came_from_empty = self.is_empty();
        self.state = state;
        self.state_since = Some(now.wall);
    }

    pub(crate) fn uses_consumer_protocol(&self) -> bool {
        self.protocol_type.as_deref() == Some(CONSUMER_PROTOCOL_TYPE)
    }

    /// A consumer group whose topics aren't known counts as subscribed to all.
    pub(crate) fn is_subscribed_to(&self, topic: &str) -> bool {
        match &self.subscribed {
            Some(topics) => topics.contains(topic),
            None => self.uses_consumer_protocol(),
        }
    }

    pub(crate) fn refresh_subscribed(&mut self) {
        self.subscribed = if !self.uses_consumer_protocol() {
            None
        } else if self.members.is_empty() {
            Some(BTreeSet::new())
        } else {
            self.protocol_name.as_ref().and_then(|protocol| {
                let mut topics = BTreeSet::new();
                for member in self.members.values() {
                    topics.extend(subscribed_topics(&member.metadata(Some(protocol)))?);
                }
                Some(topics)
            })
        };
    }

    /// Adds a member that is not in the group. The first one sets the protocol type and leads.
    pub(crate) fn add(&mut self, member: Member, protocol_type: &str) {
        if self.members.is_empty() {
            self.protocol_type = Some(protocol_type.into());
        }
        self.leader.get_or_insert_with(|| member.id.clone());
        if let Some(instance) = &member.instance_id {
            self.static_members
                .insert(instance.clone(), member.id.clone());
        }
        self.pending_joins.remove(&member.id);
        self.count_support(&member.protocols);
        self.members.insert(member.id.clone(), member);
    }

    /// Removes a member, pending or not. Whoever waits for it is told UNKNOWN_MEMBER_ID, so that the client,
    /// if it is alive after all, joins again.
    pub(crate) fn remove(&mut self, cx: &mut Context<'_>, id: &MemberId) {
        cx.cancel_session(&self.id, id);
        self.pending_joins.remove(id);
        self.pending_syncs.remove(id);
        if let Some(member) = self.members.remove(id) {
            self.discount_support(&member.protocols);
            if let Some(instance) = &member.instance_id {
                self.static_members.remove(instance);
            }
            if let Some(token) = member.awaiting_join {
                cx.refuse_join(token, None, GroupError::UnknownMemberId);
            }
            if let Some(token) = member.awaiting_sync {
                cx.synced(token, Err(GroupError::UnknownMemberId));
            }
        }
        if self.is_leader(id) {
            self.leader = self.members.keys().next().cloned();
        }
    }

    /// Takes over what a member says of itself when it joins again.
    pub(crate) fn update(
        &mut self,
        cx: &mut Context<'_>,
        id: &MemberId,
        protocols: Vec<Protocol>,
        rebalance_timeout_ms: u32,
        session_timeout_ms: u32,
        awaiting: Option<ReplyToken>,
    ) {
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        member.rebalance_timeout_ms = rebalance_timeout_ms;
        member.session_timeout_ms = session_timeout_ms;
        let replaced = std::mem::replace(&mut member.awaiting_join, awaiting);
        let old = std::mem::replace(&mut member.protocols, protocols.clone());
        self.discount_support(&old);
        self.count_support(&protocols);
        if let Some(token) = replaced {
            // The same member has sent a second JoinGroup: the first connection is given up.
            cx.refuse_join(token, Some(id.clone()), GroupError::RebalanceInProgress);
        }
    }

    /// Gives a static member a new id, with all else it had. Requests under the old id are fenced.
    pub(crate) fn rename(&mut self, cx: &mut Context<'_>, old: &MemberId, new: &MemberId) {
        let Some(mut member) = self.members.remove(old) else {
            return;
        };
        if let Some(token) = member.awaiting_join.take() {
            cx.refuse_join(token, Some(old.clone()), GroupError::FencedInstanceId);
        }
        if let Some(token) = member.awaiting_sync.take() {
            cx.synced(token, Err(GroupError::FencedInstanceId));
        }
        cx.cancel_session(&self.id, old);
        member.id = new.clone();
        member.is_new = false;
        if self.is_leader(old) {
            self.leader = Some(new.clone());
        }
        if self.pending_syncs.remove(old) {
            self.pending_syncs.insert(new.clone());
        }
        if let Some(instance) = &member.instance_id {
            self.static_members.insert(instance.clone(), new.clone());
        }
        self.members.insert(new.clone(), member);
    }

    pub(crate) fn validate_member<'a>(
        &self,
        member: Option<&'a MemberId>,
        instance: Option<&InstanceId>,
    ) -> Result<&'a MemberId, GroupError> {
        if let Some(instance) = instance {
            match self.static_members.get(instance) {
                None => return Err(GroupError::UnknownMemberId),
                Some(current) if Some(current) != member => {
                    return Err(GroupError::FencedInstanceId);
                }
                Some(_) => {}
            }
        }
        member
            .filter(|id| self.members.contains_key(*id))
            .ok_or(GroupError::UnknownMemberId)
    }

    /// Whether a member with these protocols can be in the group without leaving it nothing in common.
    pub(crate) fn supports(&self, protocol_type: &str, protocols: &[Protocol]) -> bool {
        if self.is_empty() {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        self.protocol_type.as_deref() == Some(protocol_type)
            && protocols
                .iter()
                .any(|protocol| self.supported_by(&protocol.name) == self.members.len())
    }

    /// The protocol with the most votes among those that all members support. A tie goes to the one the
    /// leader prefers; Kafka leaves it to its hash map. `None` only without members or common protocols.
    pub(crate) fn select_protocol(&self) -> Option<Arc<str>> {
        let is_candidate = |name: &Arc<str>| self.supported_by(name) == self.members.len();
        let mut votes: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
        for member in self.members.values() {
            if let Some(choice) = member
                .protocols
                .iter()
                .find(|protocol| is_candidate(&protocol.name))
            {
                *votes.entry(&choice.name).or_default() += 1;
            }
        }
        let most = votes.values().max()?;
        let preference = self
            .leader
            .as_ref()
            .and_then(|leader| self.members.get(leader));
        preference
            .into_iter()
            .flat_map(|member| &member.protocols)
            .map(|protocol| &protocol.name)
            .chain(votes.keys().copied())
            .find(|name| votes.get(name) == Some(most))
            .cloned()
    }

    fn supported_by(&self, protocol: &Arc<str>) -> usize {
        self.support.get(protocol).copied().unwrap_or(0)
    }

    fn count_support(&mut self, protocols: &[Protocol]) {
        for protocol in protocols {
            *self.support.entry(protocol.name.clone()).or_default() += 1;
        }
    }

    fn discount_support(&mut self, protocols: &[Protocol]) {
        for protocol in protocols {
            if let Some(count) = self.support.get_mut(&protocol.name) {
                *count -= 1;
                if *count == 0 {
                    self.support.remove(&protocol.name);
                }
            }
        }
    }

    /// Starts the session of a member afresh.
    pub(crate) fn renew_session(&self, cx: &mut Context<'_>, id: &MemberId) {
        if let Some(member) = self.members.get(id) {
            cx.schedule_session(&self.id, id, member.session_timeout_ms);
        }
    }

    /// Answers whoever waits for this group and stops its timers; the group is about to be dropped.
    pub(crate) fn close(&mut self, cx: &mut Context<'_>, error: &GroupError) {
        cx.cancel(&Timer::Join(self.id.clone()));
        cx.cancel(&Timer::Sync(self.id.clone()));
        for id in &self.pending_joins {
            cx.cancel_session(&self.id, id);
        }
        for member in self.members.values_mut() {
            cx.cancel_session(&self.id, &member.id);
            if let Some(token) = member.awaiting_join.take() {
                cx.refuse_join(token, Some(member.id.clone()), error.clone());
            }
            if let Some(token) = member.awaiting_sync.take() {
                cx.synced(token, Err(error.clone()));
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn assert_consistent(&self) {
        let mut support: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        for member in self.members.values() {
            for protocol in &member.protocols {
                *support.entry(protocol.name.clone()).or_default() += 1;
            }
        }
        assert_eq!(support, self.support, "support counts drifted");
        let statics: BTreeMap<_, _> = self
            .members
            .values()
            .filter_map(|member| Some((member.instance_id.clone()?, member.id.clone())))
            .collect();
        assert_eq!(statics, self.static_members, "static members drifted");
        assert!(
            self.pending_joins
                .iter()
                .all(|id| !self.members.contains_key(id))
        );
        assert!(
            self.pending_syncs
                .iter()
                .all(|id| self.members.contains_key(id))
        );
        match &self.leader {
            Some(leader) => assert!(self.members.contains_key(leader), "the leader is no member"),
            None => assert!(self.members.is_empty(), "members without a leader"),
        }
        if self.is_empty() {
            assert!(self.members.is_empty(), "Empty with members");
        }
        if self.state != GroupState::CompletingRebalance {
            assert!(
                self.members
                    .values()
                    .all(|member| member.awaiting_sync.is_none())
            );
        }
    }
}
