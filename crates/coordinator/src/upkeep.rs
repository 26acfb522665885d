//! What happens to groups from outside: they are listed, described, deleted, and forgotten when their offsets expire.

use tidegate_types::{TopicId, TopicName};

use crate::classic::ClassicGroup;
use crate::consumer::ConsumerGroup;
use crate::context::Waiter;
use crate::coordinator::{GroupCoordinator, context};
use crate::journal::Write;
use crate::offsets::{append_in_batches, delete_topics};
use crate::timers::Timer;
use crate::{
    DescribedGroup, Effect, GroupError, GroupFilter, GroupId, ListedGroup, Notice, Now, Reply,
    ReplyToken, TopicPartition,
};

impl GroupCoordinator {
    /// DeleteGroups: groups without members go, with their offsets. All of them are stored together.
    pub fn delete_groups(
        &mut self,
        now: Now,
        token: ReplyToken,
        groups: Vec<GroupId>,
    ) -> Vec<Effect> {
        let mut writes = Vec::new();
        let results = groups
            .into_iter()
            .map(|id| {
                let result = self.check_delete(&id).map(|()| {
                    // Offsets of open transactions go as well, or the group would come back with their commit.
                    writes.extend(self.journal.offsets.forget_pending(&id));
                    self.remove_group(now, &id, &mut writes);
                });
                (id, result)
            })
            .collect();
        let reply = Reply::DeleteGroups(results);
        let mut cx = context!(self, now);
        if writes.is_empty() {
            cx.reply(token, reply);
        } else {
            cx.append(writes, vec![Waiter::Reply(token, reply)]);
        }
        self.take_effects()
    }

    fn check_delete(&self, id: &GroupId) -> Result<(), GroupError> {
        self.may_append()?;
        let is_empty = match (self.groups.get(id), self.consumer_groups.get(id)) {
            (Some(group), _) => group.is_empty(),
            (None, Some(group)) => group.is_empty(),
            (None, None) => return Err(GroupError::GroupIdNotFound),
        };
        if is_empty {
            Ok(())
        } else {
            Err(GroupError::NonEmptyGroup)
        }
    }

    /// Takes a group out and adds the tombstones of all that the log has of it. If they can't be stored, the
    /// group comes back.
    fn remove_group(&mut self, now: Now, id: &GroupId, writes: &mut Vec<Write>) {
        if self.consumer_groups.contains_key(id) {
            let offsets = self.journal.offsets.newest_of(id);
            writes
                .extend(offsets.map(|(target, _)| Write::Offset(id.clone(), target.clone(), None)));
            writes.extend(self.remove_consumer_group(now, id));
            context!(self, now).notice(Notice::GroupDeleted { group: id.clone() });
            return;
        }
        let Some(mut group) = self.groups.remove(id) else {
            return;
        };
        let mut cx = context!(self, now);
        group.close(&mut cx, &GroupError::UnknownMemberId);
        cx.notice(Notice::GroupDeleted { group: id.clone() });
        let offsets = self.journal.offsets.newest_of(id);
        writes.extend(offsets.map(|(target, _)| Write::Offset(id.clone(), target.clone(), None)));
        writes.push(Write::Group(id.clone(), None));
    }

    /// DescribeGroups, of one group. [`GroupError::GroupIdNotFound`] is shown as a group in state `Dead`
    /// without an error below version 6 (KIP-1043).
    pub fn describe_group(&self, id: &GroupId) -> Result<DescribedGroup, GroupError> {
        self.serving()?;
        match self.groups.get(id).filter(|group| self.is_shown(group)) {
            Some(group) => Ok(group.describe()),
            None => Err(GroupError::GroupIdNotFound),
        }
    }

    /// A group is shown once it has told a client something: a member that it has joined, or that something
    /// is stored.
    fn is_shown(&self, group: &ClassicGroup) -> bool {
        !group.members.is_empty() || self.journal.is_durable(&group.id)
    }

    /// ListGroups.
    pub fn list_groups(&self, filter: &GroupFilter) -> Result<Vec<ListedGroup>, GroupError> {
        self.serving()?;
        let passes = |wanted: &[String], is: &str| {
            wanted.is_empty()
                || wanted
                    .iter()
                    .any(|word| word.trim().eq_ignore_ascii_case(is))
        };
        let classic = self.groups.values().filter(|group| self.is_shown(group));
        let consumer = self
            .consumer_groups
            .values()
            .filter(|group| self.journal.is_durable(&group.id));
        Ok(classic
            .map(ClassicGroup::listed)
            .chain(consumer.map(ConsumerGroup::listed))
            .filter(|group| {
                passes(&filter.states, group.state) && passes(&filter.types, group.group_type)
            })
            .collect())
    }

    /// Topics were deleted: their offsets go. With a topic's id, commits to its successor of the same name stay.
    pub fn topics_deleted(
        &mut self,
        now: Now,
        topics: &[(TopicName, Option<TopicId>)],
    ) -> Vec<Effect> {
        if self.serving().is_ok() {
            delete_topics(&mut context!(self, now), topics);
        }
        self.take_effects()
    }

    /// The regular check for expired offsets. Groups that have neither members nor offsets go with them.
    pub(crate) fn expire(&mut self, now: Now) {
        let interval_ms = self.config.offsets_retention_check_interval_ms.max(1);
        context!(self, now).schedule(Timer::Expiry, interval_ms);
        let retention_ms = self.config.offsets_retention_ms();
        let mut writes = Vec::new();
        let mut finished = Vec::new();
        let (offsets, effects) = (&self.journal.offsets, &mut self.effects);
        let mut judge = |id: &GroupId, expired: Vec<TopicPartition>, none_left, is_deserted| {
            if !expired.is_empty() {
                effects.push(Effect::Notice(Notice::OffsetsExpired {
                    group: id.clone(),
                    count: expired.len(),
                }));
            }
            if none_left && !offsets.pending.holds_group(id) && is_deserted {
                // Removing the group writes all its tombstones.
                finished.push(id.clone());
            } else {
                let expired = expired.into_iter();
                writes.extend(expired.map(|target| Write::Offset(id.clone(), target, None)));
            }
        };
        for (id, group) in &self.consumer_groups {
            let (expired, none_left) =
                group.expired(offsets.settled_of(id), now.wall, retention_ms);
            judge(id, expired, none_left, group.is_empty());
        }
        for (id, group) in &self.groups {
            let (expired, none_left) =
                group.expired(offsets.settled_of(id), now.wall, retention_ms);
            let is_deserted = group.is_empty() && group.pending_joins.is_empty();
            judge(id, expired, none_left, is_deserted);
        }
        for id in &finished {
            self.remove_group(now, id, &mut writes);
        }
        append_in_batches(&mut context!(self, now), writes);
    }
}
