//! Members of a consumer group that speak the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.
//!
//! The server assigns. A member joins, and is answered at once with its member epoch as the generation; it syncs,
//! and gets what it may read now; a heartbeat tells it to join again when there is more to give up or to get.

use super::classic_protocol::{Subscription, encode_assignment};
use super::group::ConsumerGroup;
use super::heartbeat::{Sender, Sight};
use super::member::{ClassicDetails, ConsumerMember, MemberState};
use super::migration::version_of;
use crate::classic::{CONSUMER_PROTOCOL_TYPE, Join};
use crate::context::Context;
use crate::coordinator::{GroupCoordinator, context};
use crate::timers::Timer;
use crate::{
    Generation, GroupConfig, GroupError, GroupId, HeartbeatRequest, InstanceId, JoinRefused,
    Joined, LeavingMember, LeftMember, MemberId, Now, Reply, ReplyToken, SyncRequest, Synced,
};

impl GroupCoordinator {
    /// JoinGroup to a consumer group with members.
    pub(crate) fn join_consumer_group(&mut self, now: Now, join: Join) {
        let id = join.request.group_id.clone();
        let token = join.token;
        let Some(group) = self.consumer_groups.get(&id) else {
            return;
        };
        let (sender, subscription) = match group.admit_classic(&self.config, &join) {
            Ok(admitted) => admitted,
            Err(JoinRefused { error, member_id }) => {
                return context!(self, now).refuse_join(token, member_id, error);
            }
        };
        let replaces = matches!(sender, Sender::Replaces { .. });
        self.with_consumer_group(now, &id, |group, cx, sight| {
            group.join_classic(cx, sight, join, sender, &subscription);
        });
        let all_classic = self
            .consumer_groups
            .get(&id)
            .is_some_and(|group| group.are_classic(&self.config, group.members.len()));
        if replaces && all_classic {
            self.downgrade(now, &id, None, None);
        }
    }

    /// LeaveGroup to a consumer group.
    pub(crate) fn leave_consumer_group(
        &mut self,
        now: Now,
        token: ReplyToken,
        id: &GroupId,
        members: Vec<LeavingMember>,
    ) {
        self.with_consumer_group(now, id, |group, cx, sight| {
            let mut gone = Vec::new();
            let left = members
                .into_iter()
                .map(|leaving| LeftMember {
                    result: group.leaving_classic(&leaving).and_then(|id| {
                        if gone.contains(&id) {
                            return Err(GroupError::UnknownMemberId);
                        }
                        gone.push(id);
                        Ok(())
                    }),
                    member_id: leaving.member_id,
                    instance_id: leaving.instance_id,
                })
                .collect();
            let writes = group.fence(cx, sight, &gone);
            group.store(cx, writes, Some((token, Reply::Leave(Ok(left)))));
        });
    }
}

impl ConsumerGroup {
    fn admit_classic(
        &self,
        config: &GroupConfig,
        join: &Join,
    ) -> Result<(Sender, Subscription), JoinRefused> {
        let request = &join.request;
        let refuse = |error| JoinRefused {
            error,
            member_id: request.member_id.clone(),
        };
        let is_new = request.member_id.is_none();
        let id = request
            .member_id
            .clone()
            .unwrap_or_else(|| MemberId::generate(&request.client_id, request.random));
        let by_instance = request
            .instance_id
            .as_ref()
            .and_then(|instance| self.static_member(instance));
        let is_known = self.members.contains_key(&id) || (is_new && by_instance.is_some());
        if !is_known && self.members.len() >= config.max_consumer_group_size {
            return Err(JoinRefused {
                error: GroupError::GroupMaxSizeReached,
                member_id: None,
            });
        }
        let fits = request.protocol_type == CONSUMER_PROTOCOL_TYPE
            && self.supports_classic(&request.protocols);
        if !fits {
            return Err(refuse(GroupError::InconsistentGroupProtocol));
        }
        if is_new && request.instance_id.is_none() && request.api_version >= 4 {
            return Err(JoinRefused {
                error: GroupError::MemberIdRequired,
                member_id: Some(id),
            });
        }
        let subscription = request
            .protocols
            .first()
            .and_then(|protocol| Subscription::parse(&protocol.metadata).ok())
            .ok_or_else(|| refuse(GroupError::InconsistentGroupProtocol))?;
        let sender = match (&request.instance_id, by_instance) {
            (None, _) if self.members.contains_key(&id) => Sender::Known(id),
            (None, _) => Sender::New(id),
            (Some(_), None) if is_new => Sender::New(id),
            (Some(_), None) => return Err(refuse(GroupError::UnknownMemberId)),
            (Some(_), Some(member)) if is_new => Sender::Replaces {
                old: member.id.clone(),
                new: id,
            },
            (Some(_), Some(member)) if member.id != id => {
                return Err(refuse(GroupError::FencedInstanceId));
            }
            (Some(_), Some(_)) => Sender::Known(id),
        };
        Ok((sender, subscription))
    }

    fn join_classic(
        &mut self,
        cx: &mut Context<'_>,
        sight: Sight<'_>,
        join: Join,
        sender: Sender,
        subscription: &Subscription,
    ) {
        let mut writes = Vec::new();
        let before = self.take_in(cx, sender, &mut writes);
        let id = before.id.clone();
        let mut member = before.clone();
        let request = join.request;
        let protocol_name = request.protocols.first().map(|p| p.name.to_string());
        let profile = &mut member.profile;
        profile.client_id = request.client_id;
        profile.client_host = request.client_host;
        profile.rebalance_timeout_ms = i32::try_from(join.rebalance_timeout_ms).unwrap_or(i32::MAX);
        profile.topics = subscription.topics.iter().cloned().collect();
        profile.regex = None;
        if request.instance_id.is_some() {
            profile.instance_id = request.instance_id;
        }
        if subscription.rack_id.is_some() {
            profile.rack_id = subscription.rack_id.clone();
        }
        profile.classic = Some(ClassicDetails {
            session_timeout_ms: i32::try_from(join.session_timeout_ms).unwrap_or(i32::MAX),
            protocols: request.protocols,
        });
        self.update(cx, sight, &before, member, &mut writes);
        let owned = subscription.owned_now(sight.view);
        self.reconcile(cx, &id, Some(&owned), &mut writes);
        self.schedule_session(cx, sight.view, &id);
        cx.cancel(&Timer::ClassicJoin(self.id.clone(), id.clone()));
        cx.schedule(
            Timer::ClassicSync(self.id.clone(), id.clone()),
            u64::from(join.rebalance_timeout_ms.max(1)),
        );
        let epoch = self
            .members
            .get(&id)
            .map_or(0, |m| m.current.epoch.to_wire());
        let answer = Joined {
            generation: Generation::from_wire(epoch).unwrap_or(Generation::ZERO),
            protocol_type: Some(CONSUMER_PROTOCOL_TYPE.to_owned()),
            protocol_name,
            // Nobody leads: the server assigns.
            leader: None,
            member_id: id,
            skip_assignment: false,
            members: Vec::new(),
        };
        self.store(cx, writes, Some((join.token, Reply::Join(Ok(answer)))));
    }

    fn classic_member(
        &self,
        id: Option<&MemberId>,
        instance: Option<&InstanceId>,
        generation: Option<Generation>,
    ) -> Result<&ConsumerMember, GroupError> {
        let member = match instance {
            None => self.member(id)?,
            Some(instance) => {
                let member = self
                    .static_member(instance)
                    .ok_or(GroupError::UnknownMemberId)?;
                if Some(&member.id) != id {
                    return Err(GroupError::FencedInstanceId);
                }
                member
            }
        };
        if !member.uses_classic_protocol() {
            return Err(GroupError::UnknownMemberId);
        }
        if generation.map(Generation::to_wire) != Some(member.current.epoch.to_wire()) {
            return Err(GroupError::IllegalGeneration);
        }
        Ok(member)
    }

    /// SyncGroup. The assignment is what the member may read now.
    pub(crate) fn sync_classic(
        &mut self,
        cx: &mut Context<'_>,
        sight: Sight<'_>,
        token: ReplyToken,
        request: &SyncRequest,
    ) {
        match self.accept_sync(cx, sight, request) {
            Ok(synced) => self.store(cx, Vec::new(), Some((token, Reply::Sync(Ok(synced))))),
            Err(error) => cx.synced(token, Err(error)),
        }
    }

    fn accept_sync(
        &self,
        cx: &mut Context<'_>,
        sight: Sight<'_>,
        request: &SyncRequest,
    ) -> Result<Synced, GroupError> {
        let member = self.classic_member(
            request.member_id.as_ref(),
            request.instance_id.as_ref(),
            request.generation,
        )?;
        let Some(details) = &member.profile.classic else {
            return Err(GroupError::UnknownMemberId);
        };
        let name = details.protocols.first().map(|p| &*p.name);
        let other_type = request
            .protocol_type
            .as_deref()
            .is_some_and(|asked| asked != CONSUMER_PROTOCOL_TYPE);
        let other_name = request
            .protocol_name
            .as_deref()
            .is_some_and(|asked| Some(asked) != name);
        if other_type || other_name {
            return Err(GroupError::InconsistentGroupProtocol);
        }
        // One that gives partitions up has joined already; it joins again when it has.
        if member.current.epoch.is_behind(self.epoch)
            && member.current.state != MemberState::Unrevoked
        {
            self.expect_join(cx, member);
            return Err(GroupError::RebalanceInProgress);
        }
        cx.cancel(&Timer::ClassicSync(self.id.clone(), member.id.clone()));
        self.schedule_session(cx, sight.view, &member.id);
        let version = version_of(details);
        Ok(Synced {
            protocol_type: request.protocol_type.clone(),
            protocol_name: request.protocol_name.clone(),
            assignment: encode_assignment(&member.current.assigned, version, sight.view),
        })
    }

    /// Heartbeat. The member is told to join if there is a newer epoch, if it must give partitions up, or if those
    /// that it waited for have become free.
    pub(crate) fn heartbeat_classic(
        &self,
        cx: &mut Context<'_>,
        sight: Sight<'_>,
        request: &HeartbeatRequest,
    ) -> Result<(), GroupError> {
        let member = self.classic_member(
            request.member_id.as_ref(),
            request.instance_id.as_ref(),
            request.generation,
        )?;
        self.schedule_session(cx, sight.view, &member.id);
        let has_cause = member.current.epoch.is_behind(self.epoch)
            || (self.seen_view != Some(sight.version)
                && self.hash_of_topics(sight.view) != self.metadata_hash)
            || match member.current.state {
                MemberState::Unrevoked => true,
                MemberState::Unreleased => !self.waits_for_others(member),
                MemberState::Stable | MemberState::Unknown => false,
            };
        if has_cause {
            self.expect_join(cx, member);
            return Err(GroupError::RebalanceInProgress);
        }
        Ok(())
    }

    /// From the first time that a member was told to join, it has its rebalance timeout to do so.
    fn expect_join(&self, cx: &mut Context<'_>, member: &ConsumerMember) {
        let timer = Timer::ClassicJoin(self.id.clone(), member.id.clone());
        if !cx.timers.contains(&timer) {
            cx.schedule(timer, member.rebalance_timeout_ms().max(1));
        }
    }

    fn leaving_classic(&self, leaving: &LeavingMember) -> Result<MemberId, GroupError> {
        let member = match (&leaving.instance_id, &leaving.member_id) {
            (None, id) => self.member(id.as_ref())?,
            (Some(instance), id) => {
                let member = self
                    .static_member(instance)
                    .ok_or(GroupError::UnknownMemberId)?;
                // An administrator may name a static member by its instance id alone.
                if id.as_ref().is_some_and(|id| *id != member.id) {
                    return Err(GroupError::FencedInstanceId);
                }
                member
            }
        };
        if !member.uses_classic_protocol() {
            return Err(GroupError::UnknownMemberId);
        }
        Ok(member.id.clone())
    }
}
