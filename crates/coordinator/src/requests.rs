//! The requests: checks that need no group, the way to the group, and those about many groups.

use std::collections::BTreeSet;

use tidegate_types::{TopicId, TopicName};

use crate::classic::ClassicGroup;
use crate::classic::Join;
use crate::consumer::ConsumerGroup;
use crate::context::Waiter;
use crate::coordinator::{GroupCoordinator, Phase, context};
use crate::id::MAX_RECORD_STRING_BYTES;
use crate::journal::Write;
use crate::offsets::{View, append_in_batches, commit_offsets, delete_offsets, delete_topics};
use crate::timers::Timer;
use crate::{
    CommitRequest, DeleteOffsetsRequest, DescribedGroup, Effect, FetchRequest, FetchedOffset,
    GroupError, GroupFilter, GroupId, HeartbeatRequest, JoinRefused, JoinRequest, LeaveRequest,
    LeftMember, ListedGroup, Notice, Now, Reply, ReplyToken, SyncRequest,
};

impl GroupCoordinator {
    /// JoinGroup. The reply may come much later: when the rebalance's join phase ends.
    pub fn join(&mut self, now: Now, token: ReplyToken, request: JoinRequest) -> Vec<Effect> {
        let member_id = request.member_id.clone();
        match self.check_join(token, request) {
            Ok(join) => self.join_checked(now, join),
            Err(error) => {
                let refused = Reply::Join(Err(JoinRefused { error, member_id }));
                self.effects.push(Effect::Reply(token, refused));
            }
        }
        self.take_effects()
    }

    /// Refuses what would make one more append while too many are open already.
    pub(crate) fn may_append(&self) -> Result<(), GroupError> {
        self.serving()?;
        if self.journal.pending_count() >= self.config.max_pending_appends {
            return Err(GroupError::CoordinatorNotAvailable);
        }
        Ok(())
    }

    fn check_join(&self, token: ReplyToken, mut request: JoinRequest) -> Result<Join, GroupError> {
        self.may_append()?;
        if request.group_id.is_empty() {
            return Err(GroupError::InvalidGroupId);
        }
        let allowed = self.config.min_session_timeout_ms..=self.config.max_session_timeout_ms;
        let session_timeout_ms = u32::try_from(request.session_timeout_ms)
            .ok()
            .filter(|timeout| allowed.contains(timeout))
            .ok_or(GroupError::InvalidSessionTimeout)?;
        let rebalance_timeout_ms = match request.api_version {
            0 => session_timeout_ms,
            _ => u32::try_from(request.rebalance_timeout_ms).unwrap_or(0),
        };
        // Room for the UUID in a member id made from the client id.
        let fits = |text: &str| text.len() <= MAX_RECORD_STRING_BYTES - 64;
        let fit = fits(&request.client_id)
            && fits(&request.client_host)
            && fits(&request.protocol_type)
            && request
                .protocols
                .iter()
                .all(|protocol| fits(&protocol.name));
        if !fit {
            return Err(GroupError::InvalidRequest);
        }
        let metadata_bytes: usize = request
            .protocols
            .iter()
            .map(|protocol| protocol.name.len() + protocol.metadata.len())
            .sum();
        if metadata_bytes > self.config.max_member_metadata_bytes {
            return Err(GroupError::MemberMetadataTooLarge);
        }
        // A name counts once, or one member would count twice.
        let mut seen = BTreeSet::new();
        request
            .protocols
            .retain(|protocol| seen.insert(protocol.name.clone()));
        Ok(Join {
            token,
            request,
            session_timeout_ms,
            rebalance_timeout_ms,
        })
    }

    fn join_checked(&mut self, now: Now, join: Join) {
        let id = join.request.group_id.clone();
        let token = join.token;
        match self.consumer_groups.get(&id) {
            Some(group) if !group.is_empty() => return self.join_consumer_group(now, join),
            // An empty one gives way to a classic group.
            Some(_) if join.request.member_id.is_none() => {
                let writes = self.remove_consumer_group(now, &id);
                context!(self, now).append(writes, Vec::new());
            }
            Some(_) | None => {}
        }
        let is_new = !self.groups.contains_key(&id);
        if is_new {
            let refusal = match &join.request.member_id {
                Some(_) => Some(GroupError::UnknownMemberId),
                None if self.group_count() >= self.config.max_groups => {
                    Some(GroupError::TooManyGroups)
                }
                None => None,
            };
            if let Some(error) = refusal {
                return context!(self, now).refuse_join(token, join.request.member_id, error);
            }
            self.groups
                .insert(id.clone(), ClassicGroup::new(id.clone(), now));
        }
        self.with_group(now, &id, |group, cx| group.join(cx, join));
        if is_new {
            self.store_created(now, &id);
        }
    }

    /// Stores a group that its first member has just created. One whose first member was refused is dropped
    /// again; Kafka would keep it until its next check for expired groups.
    fn store_created(&mut self, now: Now, id: &GroupId) {
        let Some(group) = self.groups.get(id) else {
            return;
        };
        if group.members.is_empty() && group.pending_joins.is_empty() {
            self.groups.remove(id);
            return;
        }
        let value = group.encode_created();
        let writes = vec![Write::Group(id.clone(), Some(value))];
        context!(self, now).append(writes, vec![Waiter::GroupCreated(id.clone())]);
    }

    /// SyncGroup. The reply comes when the leader's assignment is durable.
    pub fn sync(&mut self, now: Now, token: ReplyToken, request: SyncRequest) -> Vec<Effect> {
        let id = request.group_id.clone();
        if self.serves_consumer_group(&id) {
            self.with_consumer_group(now, &id, |group, cx, sight| {
                group.sync_classic(cx, sight, token, &request);
            });
            return self.take_effects();
        }
        let result = self.find(&id).map(|_| ());
        match result {
            Ok(()) => {
                self.with_group(now, &id, |group, cx| group.sync(cx, token, request));
            }
            Err(error) => self
                .effects
                .push(Effect::Reply(token, Reply::Sync(Err(error)))),
        }
        self.take_effects()
    }

    /// Heartbeat. While loading it is accepted unseen, as Kafka does, so that nobody is sent away.
    pub fn heartbeat(&mut self, now: Now, request: &HeartbeatRequest) -> Result<(), GroupError> {
        if self.phase == Phase::Loading {
            return Ok(());
        }
        let id = &request.group_id;
        if self.serves_consumer_group(id) {
            return self
                .with_consumer_group(now, id, |group, cx, sight| {
                    group.heartbeat_classic(cx, sight, request)
                })
                .unwrap_or(Err(GroupError::UnknownMemberId));
        }
        self.find(id)?;
        self.with_group(now, id, |group, cx| group.heartbeat(cx, request))
            .unwrap_or(Err(GroupError::UnknownMemberId))
    }

    /// LeaveGroup. The reply waits for the record if the group is left empty.
    pub fn leave(&mut self, now: Now, token: ReplyToken, request: LeaveRequest) -> Vec<Effect> {
        if self.serves_consumer_group(&request.group_id) {
            let id = request.group_id;
            self.leave_consumer_group(now, token, &id, request.members);
            return self.take_effects();
        }
        match self.find(&request.group_id).map(|_| ()) {
            Ok(()) => {
                let id = request.group_id;
                self.with_group(now, &id, |group, cx| {
                    group.leave(cx, token, request.members)
                });
            }
            Err(GroupError::UnknownMemberId) => {
                let unknown = request.members.into_iter().map(|member| LeftMember {
                    member_id: member.member_id,
                    instance_id: member.instance_id,
                    result: Err(GroupError::UnknownMemberId),
                });
                let reply = Reply::Leave(Ok(unknown.collect()));
                self.effects.push(Effect::Reply(token, reply));
            }
            Err(error) => self
                .effects
                .push(Effect::Reply(token, Reply::Leave(Err(error)))),
        }
        self.take_effects()
    }

    pub(crate) fn serves_consumer_group(&self, id: &GroupId) -> bool {
        self.phase == Phase::Active && self.consumer_groups.contains_key(id)
    }

    /// The group of a member's request.
    fn find(&self, id: &GroupId) -> Result<&ClassicGroup, GroupError> {
        self.serving()?;
        if id.is_empty() {
            return Err(GroupError::InvalidGroupId);
        }
        self.groups.get(id).ok_or(GroupError::UnknownMemberId)
    }

    /// OffsetCommit. The reply comes when the offsets are durable.
    pub fn commit_offsets(
        &mut self,
        now: Now,
        token: ReplyToken,
        request: CommitRequest,
    ) -> Vec<Effect> {
        if let Err(error) = self.commit_accepted(now, token, request) {
            self.effects
                .push(Effect::Reply(token, Reply::CommitOffsets(Err(error))));
        }
        self.take_effects()
    }

    fn commit_accepted(
        &mut self,
        now: Now,
        token: ReplyToken,
        request: CommitRequest,
    ) -> Result<(), GroupError> {
        self.may_append()?;
        let id = request.group_id.clone();
        let mut created = None;
        if let Some(group) = self.consumer_groups.get(&id) {
            group.accept_commit(&request)?;
            commit_offsets(&mut context!(self, now), token, request, None);
            return Ok(());
        }
        match self.with_group(now, &id, |group, cx| group.accept_commit(cx, &request)) {
            Some(accepted) => accepted?,
            None if request.generation.is_some() => {
                return Err(match request.api_version {
                    9.. => GroupError::GroupIdNotFound,
                    _ => GroupError::IllegalGeneration,
                });
            }
            None if self.group_count() >= self.config.max_groups => {
                return Err(GroupError::TooManyGroups);
            }
            None => created = Some(Waiter::GroupCreated(id.clone())),
        }
        let is_new = created.is_some();
        let mut cx = context!(self, now);
        commit_offsets(&mut cx, token, request, created);
        // A commit of nothing leaves no group behind.
        if is_new && self.journal.offsets.group(&id).is_some() {
            self.groups.insert(id.clone(), ClassicGroup::new(id, now));
        }
        Ok(())
    }

    /// OffsetFetch, of what is durable. An unknown group has no offsets; that is no error.
    pub fn fetch_offsets(&self, request: &FetchRequest) -> Result<Vec<FetchedOffset>, GroupError> {
        self.may_fetch(request)?;
        Ok(self.journal.offsets.fetch(request, View::Durable))
    }

    fn may_fetch(&self, request: &FetchRequest) -> Result<(), GroupError> {
        self.serving()?;
        match self.consumer_groups.get(&request.group_id) {
            Some(group) => group.accept_fetch(request.member_id.as_ref(), request.member_epoch),
            None => Ok(()),
        }
    }

    /// OffsetFetch with `require_stable` (KIP-447): the reply waits for all commits accepted before.
    pub fn fetch_stable_offsets(
        &mut self,
        now: Now,
        token: ReplyToken,
        request: &FetchRequest,
    ) -> Vec<Effect> {
        let reply = self
            .may_fetch(request)
            .map(|()| self.journal.offsets.fetch(request, View::Newest));
        let newest = self.journal.newest_pending().filter(|_| reply.is_ok());
        context!(self, now).reply_after(newest, token, Reply::FetchOffsets(reply));
        self.take_effects()
    }

    /// OffsetDelete.
    pub fn delete_offsets(
        &mut self,
        now: Now,
        token: ReplyToken,
        request: &DeleteOffsetsRequest,
    ) -> Vec<Effect> {
        if self.may_append().is_ok()
            && let Some(group) = self.consumer_groups.get(&request.group_id)
        {
            delete_offsets(&mut context!(self, now), token, request, |topic| {
                group.is_subscribed_to(topic)
            });
            return self.take_effects();
        }
        let found = self
            .may_append()
            .and_then(|()| self.find(&request.group_id))
            .map(|_| ())
            .map_err(|error| match error {
                GroupError::UnknownMemberId => GroupError::GroupIdNotFound,
                other => other,
            });
        match found {
            Ok(()) => {
                self.with_group(now, &request.group_id, |group, cx| {
                    group.delete_offsets(cx, token, request)
                });
            }
            Err(error) => self
                .effects
                .push(Effect::Reply(token, Reply::DeleteOffsets(Err(error)))),
        }
        self.take_effects()
    }

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
        for (id, group) in &self.consumer_groups {
            let offsets = &self.journal.offsets;
            let (expired, none_left) =
                group.expired(offsets.settled_of(id), now.wall, retention_ms);
            let none_left = none_left && !offsets.pending.holds_group(id);
            if !expired.is_empty() {
                let notice = Notice::OffsetsExpired {
                    group: id.clone(),
                    count: expired.len(),
                };
                self.effects.push(Effect::Notice(notice));
            }
            if none_left && group.is_empty() {
                finished.push(id.clone());
            } else {
                let expired = expired.into_iter();
                writes.extend(expired.map(|target| Write::Offset(id.clone(), target, None)));
            }
        }
        for (id, group) in &self.groups {
            let offsets = &self.journal.offsets;
            let (expired, none_left) =
                group.expired(offsets.settled_of(id), now.wall, retention_ms);
            let none_left = none_left && !offsets.pending.holds_group(id);
            if !expired.is_empty() {
                let notice = Notice::OffsetsExpired {
                    group: id.clone(),
                    count: expired.len(),
                };
                self.effects.push(Effect::Notice(notice));
            }
            if none_left && group.is_empty() && group.pending_joins.is_empty() {
                // Removing the group writes all its tombstones.
                finished.push(id.clone());
            } else {
                writes.extend(
                    expired
                        .into_iter()
                        .map(|target| Write::Offset(id.clone(), target, None)),
                );
            }
        }
        for id in &finished {
            self.remove_group(now, id, &mut writes);
        }
        append_in_batches(&mut context!(self, now), writes);
    }
}
