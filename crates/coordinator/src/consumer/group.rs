//! The state of a consumer group, and the changes to it that keep its parts in step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_types::{PartitionIndex, TopicId};

use super::member::{ConsumerMember, MemberState};
use super::{Assignment, ConsumerGroupState, GroupEpoch, ResolvedRegex};
use crate::context::{Context, Waiter};
use crate::journal::Write;
use crate::records::{ConsumerKey, GroupRecord, encode_target, encode_target_epoch};
use crate::timers::Timer;
use crate::{AppendId, ClusterView, GroupError, GroupId, InstanceId, MemberId, Reply, ReplyToken};

/// All of it is in the log; what is here is ahead of it by the appends that are pending.
#[derive(Debug)]
pub(crate) struct ConsumerGroup {
    pub(crate) id: GroupId,
    pub(crate) epoch: GroupEpoch,
    pub(crate) metadata_hash: i64,
    pub(crate) members: BTreeMap<MemberId, ConsumerMember>,
    pub(crate) static_members: BTreeMap<InstanceId, MemberId>,
    pub(crate) target_epoch: GroupEpoch,
    pub(crate) targets: BTreeMap<MemberId, Assignment>,
    pub(crate) regexes: BTreeMap<String, ResolvedRegex>,
    /// Who has a partition, or hasn't said yet that it gave it up.
    pub(super) owners: BTreeMap<(TopicId, PartitionIndex), MemberId>,
    /// The view that the subscriptions were last compared with.
    pub(crate) seen_view: Option<u64>,
    /// The next heartbeat raises the epoch and stores all targets, whatever it says: an append failed, and later
    /// ones may have been built on it.
    pub(crate) must_rebalance: bool,
    /// Corrections to go with the next append.
    pub(super) due: Vec<Write>,
    /// A reply that rests on this append waits for it.
    last_append: Option<AppendId>,
}

impl ConsumerGroup {
    pub(crate) fn new(id: GroupId) -> Self {
        Self {
            id,
            epoch: GroupEpoch::ZERO,
            metadata_hash: 0,
            members: BTreeMap::new(),
            static_members: BTreeMap::new(),
            target_epoch: GroupEpoch::ZERO,
            targets: BTreeMap::new(),
            regexes: BTreeMap::new(),
            owners: BTreeMap::new(),
            seen_view: None,
            must_rebalance: false,
            due: Vec::new(),
            last_append: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(crate) fn state(&self) -> ConsumerGroupState {
        if self.members.is_empty() {
            ConsumerGroupState::Empty
        } else if self.epoch > self.target_epoch {
            ConsumerGroupState::Assigning
        } else if self
            .members
            .values()
            .all(|member| member.is_reconciled_to(self.target_epoch))
        {
            ConsumerGroupState::Stable
        } else {
            ConsumerGroupState::Reconciling
        }
    }

    /// Adds a member or replaces its former state.
    pub(crate) fn put(&mut self, member: ConsumerMember) {
        self.release(&member.id.clone());
        for place in owned_by(&member) {
            self.owners.insert(place, member.id.clone());
        }
        if let Some(instance) = &member.profile.instance_id {
            self.static_members
                .insert(instance.clone(), member.id.clone());
        }
        self.members.insert(member.id.clone(), member);
    }

    /// Takes a member out, with its target. Its partitions are free.
    pub(crate) fn remove(&mut self, id: &MemberId) -> Option<ConsumerMember> {
        self.release(id);
        self.targets.remove(id);
        let member = self.members.remove(id)?;
        if let Some(instance) = &member.profile.instance_id
            && self.static_members.get(instance) == Some(id)
        {
            self.static_members.remove(instance);
        }
        Some(member)
    }

    fn release(&mut self, id: &MemberId) {
        let Some(member) = self.members.get(id) else {
            return;
        };
        for place in owned_by(member) {
            if self.owners.get(&place) == Some(id) {
                self.owners.remove(&place);
            }
        }
    }

    pub(crate) fn owner(&self, topic: TopicId, partition: PartitionIndex) -> Option<&MemberId> {
        self.owners.get(&(topic, partition))
    }

    /// Whether somebody else owns the partition.
    pub(crate) fn is_taken(
        &self,
        by_others_than: &MemberId,
        topic: TopicId,
        partition: PartitionIndex,
    ) -> bool {
        self.owner(topic, partition)
            .is_some_and(|owner| owner != by_others_than)
    }

    pub(crate) fn target_of(&self, id: &MemberId) -> Assignment {
        self.targets.get(id).cloned().unwrap_or_default()
    }

    /// The member of a request.
    pub(crate) fn member(&self, id: Option<&MemberId>) -> Result<&ConsumerMember, GroupError> {
        id.and_then(|id| self.members.get(id))
            .ok_or(GroupError::UnknownMemberId)
    }

    pub(crate) fn static_member(&self, instance: &InstanceId) -> Option<&ConsumerMember> {
        self.members.get(self.static_members.get(instance)?)
    }

    /// What a member subscribes to, by name and by expression.
    pub(crate) fn topics_of<'a>(
        &'a self,
        member: &'a ConsumerMember,
    ) -> impl Iterator<Item = &'a str> {
        let by_regex = member
            .regex()
            .and_then(|regex| self.regexes.get(regex))
            .map(|resolved| &resolved.topics);
        member
            .profile
            .topics
            .iter()
            .chain(by_regex.into_iter().flatten())
            .map(String::as_str)
    }

    pub(crate) fn is_subscribed_to(&self, topic: &str) -> bool {
        self.members
            .values()
            .any(|member| self.topics_of(member).any(|name| name == topic))
    }

    pub(crate) fn subscribed_topics(&self) -> BTreeSet<&str> {
        self.members
            .values()
            .flat_map(|member| self.topics_of(member))
            .collect()
    }

    pub(crate) fn classic_member_count(&self) -> usize {
        self.members
            .values()
            .filter(|member| member.uses_classic_protocol())
            .count()
    }

    /// Whether a member that speaks the classic protocol with these would leave all of those that do something in
    /// common.
    pub(crate) fn supports_classic(&self, protocols: &[crate::Protocol]) -> bool {
        let knows = |member: &ConsumerMember, name: &Arc<str>| {
            member
                .profile
                .classic
                .as_ref()
                .is_none_or(|classic| classic.protocols.iter().any(|p| p.name == *name))
        };
        protocols
            .iter()
            .any(|p| self.members.values().all(|member| knows(member, &p.name)))
    }

    /// The assignor that most members ask for; the default if none asks.
    pub(crate) fn assignor(&self) -> Option<&str> {
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.members.values() {
            if let Some(name) = member.profile.server_assignor.as_deref() {
                *votes.entry(name).or_default() += 1;
            }
        }
        votes
            .into_iter()
            .max_by_key(|(_, count)| *count)
            .map(|(name, _)| name)
    }

    /// Whether a member waits for partitions that others have still got.
    pub(crate) fn waits_for_others(&self, member: &ConsumerMember) -> bool {
        member.current.state == MemberState::Unreleased
            && self.targets.get(&member.id).is_some_and(|target| {
                target.partitions().any(|(topic, index)| {
                    !member.current.assigned.contains(topic, index)
                        && self.is_taken(&member.id, topic, index)
                })
            })
    }

    pub(crate) fn schedule_session(
        &self,
        cx: &mut Context<'_>,
        view: &dyn ClusterView,
        id: &MemberId,
    ) {
        let classic = self
            .members
            .get(id)
            .and_then(ConsumerMember::session_timeout_ms);
        let timeout_ms = classic.unwrap_or_else(|| {
            view.overrides(&self.id)
                .session_timeout_ms
                .unwrap_or(cx.config.consumer_session_timeout_ms)
        });
        cx.schedule_session(&self.id, id, timeout_ms);
    }

    /// The time to give partitions up runs while there are some to give up.
    pub(crate) fn schedule_revocation(&self, cx: &mut Context<'_>, id: &MemberId) {
        let timer = Timer::Revocation(self.id.clone(), id.clone());
        match self.members.get(id) {
            Some(member)
                if member.current.state == MemberState::Unrevoked
                    && !member.uses_classic_protocol() =>
            {
                // At least 1 ms, or a timeout of 0 would come due in the same instant.
                cx.schedule(timer, member.rebalance_timeout_ms().max(1));
            }
            _ => cx.cancel(&timer),
        }
    }

    pub(crate) fn cancel_timers(&self, cx: &mut Context<'_>, id: &MemberId) {
        cx.cancel_session(&self.id, id);
        for timer in [
            Timer::Revocation(self.id.clone(), id.clone()),
            Timer::ClassicJoin(self.id.clone(), id.clone()),
            Timer::ClassicSync(self.id.clone(), id.clone()),
        ] {
            cx.cancel(&timer);
        }
    }

    /// Stops all timers; the group is about to go.
    pub(crate) fn close(&self, cx: &mut Context<'_>) {
        for id in self.members.keys() {
            self.cancel_timers(cx, id);
        }
    }

    /// Stores the writes and then replies; without any, replies when what the group rests on is durable.
    pub(crate) fn store(
        &mut self,
        cx: &mut Context<'_>,
        writes: Vec<Write>,
        reply: Option<(ReplyToken, Reply)>,
    ) {
        if writes.is_empty() {
            if let Some((token, reply)) = reply {
                cx.reply_after(self.last_append, token, reply);
            }
            return;
        }
        let mut all = std::mem::take(&mut self.due);
        all.extend(writes);
        let waiters = reply
            .map(|(token, reply)| Waiter::Reply(token, reply))
            .into_iter()
            .collect();
        self.last_append = Some(cx.append(all, waiters));
    }

    fn write(&self, key: ConsumerKey, value: Option<bytes::Bytes>) -> Write {
        Write::Consumer(self.id.clone(), key, value)
    }

    pub(crate) fn write_group(&self) -> Write {
        let record = GroupRecord {
            epoch: self.epoch.to_wire(),
            metadata_hash: self.metadata_hash,
        };
        self.write(ConsumerKey::Group, Some(record.encode()))
    }

    pub(crate) fn write_target_epoch(&self) -> Write {
        let value = encode_target_epoch(self.target_epoch.to_wire());
        self.write(ConsumerKey::TargetEpoch, Some(value))
    }

    pub(crate) fn write_target(&self, id: &MemberId) -> Write {
        let value = encode_target(&self.target_of(id));
        self.write(ConsumerKey::TargetOf(id.clone()), Some(value))
    }

    pub(crate) fn write_member(&self, member: &ConsumerMember) -> Write {
        let value = member.profile.encode();
        self.write(ConsumerKey::Member(member.id.clone()), Some(value))
    }

    pub(crate) fn write_current(&self, member: &ConsumerMember) -> Write {
        let value = member.current.encode();
        self.write(ConsumerKey::Current(member.id.clone()), Some(value))
    }

    pub(crate) fn write_regex(&self, regex: &str) -> Write {
        let value = self.regexes.get(regex).map(ResolvedRegex::encode);
        self.write(ConsumerKey::Regex(regex.into()), value)
    }

    /// The tombstones of a member, in Kafka's order.
    pub(crate) fn forget_member(&self, id: &MemberId) -> Vec<Write> {
        [
            ConsumerKey::Current(id.clone()),
            ConsumerKey::TargetOf(id.clone()),
            ConsumerKey::Member(id.clone()),
        ]
        .into_iter()
        .map(|key| self.write(key, None))
        .collect()
    }

    /// Raises the group epoch.
    pub(crate) fn bump(&mut self) -> Write {
        self.epoch = self.epoch.next();
        self.write_group()
    }
}

/// What a member has or hasn't said yet that it gave up.
pub(super) fn owned_by(member: &ConsumerMember) -> impl Iterator<Item = (TopicId, PartitionIndex)> {
    member
        .current
        .assigned
        .partitions()
        .chain(member.current.revoking.partitions())
}
