//! The requests of members and of those who commit: checks that need no group, and the way to the group.

use std::collections::BTreeSet;

use crate::classic::ClassicGroup;
use crate::classic::Join;
use crate::context::Waiter;
use crate::coordinator::{GroupCoordinator, Phase, context};
use crate::id::MAX_RECORD_STRING_BYTES;
use crate::journal::Write;
use crate::offsets::{View, commit_offsets, delete_offsets};
use crate::{
    CommitRequest, DeleteOffsetsRequest, Effect, FetchRequest, FetchedOffset, GroupError, GroupId,
    HeartbeatRequest, JoinRefused, JoinRequest, LeaveRequest, LeftMember, Now, Reply, ReplyToken,
    SyncRequest,
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
}
