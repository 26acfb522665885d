//! SyncGroup: the leader's assignment, from the request through the log to the members.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::ClassicGroup;
use crate::context::{Context, Waiter};
use crate::journal::Write;
use crate::timers::Timer;
use crate::{
    Generation, GroupError, GroupState, MemberId, Notice, ReplyToken, SyncRequest, Synced,
};

impl ClassicGroup {
    pub(crate) fn sync(&mut self, cx: &mut Context<'_>, token: ReplyToken, request: SyncRequest) {
        let id = match self.validate_sync(&request) {
            Ok(id) => id,
            Err(error) => return cx.synced(token, Err(error)),
        };
        match self.state {
            GroupState::Empty => cx.synced(token, Err(GroupError::UnknownMemberId)),
            GroupState::PreparingRebalance => {
                cx.synced(token, Err(GroupError::RebalanceInProgress))
            }
            GroupState::CompletingRebalance => {
                self.sync_received(cx, &id);
                if let Some(member) = self.members.get_mut(&id)
                    && let Some(earlier) = member.awaiting_sync.replace(token)
                {
                    cx.synced(earlier, Err(GroupError::RebalanceInProgress));
                }
                if self.is_leader(&id) {
                    self.store_assignment(cx, request.assignments);
                }
            }
            GroupState::Stable => {
                self.sync_received(cx, &id);
                let assignment = self
                    .members
                    .get(&id)
                    .map(|member| member.assignment.clone());
                cx.synced(token, Ok(self.synced(assignment.unwrap_or_default())));
            }
        }
    }

    fn validate_sync(&self, request: &SyncRequest) -> Result<MemberId, GroupError> {
        let id = self.validate_member(request.member_id.as_ref(), request.instance_id.as_ref())?;
        if request.generation != Some(self.generation) {
            return Err(GroupError::IllegalGeneration);
        }
        let differs = |asked: &Option<String>, ours: &Option<std::sync::Arc<str>>| matches!((asked, ours), (Some(asked), Some(ours)) if **asked != **ours);
        if differs(&request.protocol_type, &self.protocol_type)
            || differs(&request.protocol_name, &self.protocol_name)
        {
            return Err(GroupError::InconsistentGroupProtocol);
        }
        Ok(id.clone())
    }

    fn sync_received(&mut self, cx: &mut Context<'_>, id: &MemberId) {
        self.pending_syncs.remove(id);
        if self.pending_syncs.is_empty() {
            cx.cancel(&Timer::Sync(self.id.clone()));
        }
    }

    /// Members that the leader forgot get an empty assignment; strangers are ignored.
    fn store_assignment(&mut self, cx: &mut Context<'_>, assignments: Vec<(MemberId, Bytes)>) {
        let assignment: BTreeMap<MemberId, Bytes> = assignments
            .into_iter()
            .filter(|(id, _)| self.members.contains_key(id))
            .collect();
        let value = self.encode(|member| assignment.get(&member.id).cloned().unwrap_or_default());
        let waiter = Waiter::Assignment {
            group: self.id.clone(),
            generation: self.generation,
            assignment,
        };
        cx.append(
            vec![Write::Group(self.id.clone(), Some(value))],
            vec![waiter],
        );
    }

    /// The append of an assignment has ended. Nothing to do if the group has moved on.
    pub(crate) fn assignment_stored(
        &mut self,
        cx: &mut Context<'_>,
        generation: Generation,
        assignment: &BTreeMap<MemberId, Bytes>,
        outcome: Result<(), GroupError>,
    ) {
        if self.state != GroupState::CompletingRebalance || self.generation != generation {
            return;
        }
        if let Err(error) = outcome {
            self.fail_syncs(cx, &error);
            self.prepare_rebalance(cx, format!("the assignment could not be stored: {error}"));
            return;
        }
        self.transition(cx.now, GroupState::Stable);
        for member in self.members.values_mut() {
            member.assignment = assignment.get(&member.id).cloned().unwrap_or_default();
        }
        let waiting: Vec<(MemberId, ReplyToken, Bytes)> = self.take_syncs();
        for (id, token, assignment) in waiting {
            cx.synced(token, Ok(self.synced(assignment)));
            self.renew_session(cx, &id);
        }
        cx.notice(Notice::Stable {
            group: self.id.clone(),
            generation,
        });
    }

    /// Resets all assignments and answers the waiting members with `error`.
    pub(crate) fn fail_syncs(&mut self, cx: &mut Context<'_>, error: &GroupError) {
        for member in self.members.values_mut() {
            member.assignment = Bytes::new();
        }
        for (id, token, _) in self.take_syncs() {
            cx.synced(token, Err(error.clone()));
            self.renew_session(cx, &id);
        }
    }

    fn take_syncs(&mut self) -> Vec<(MemberId, ReplyToken, Bytes)> {
        self.members
            .values_mut()
            .filter_map(|member| {
                let token = member.awaiting_sync.take()?;
                Some((member.id.clone(), token, member.assignment.clone()))
            })
            .collect()
    }

    fn synced(&self, assignment: Bytes) -> Synced {
        Synced {
            protocol_type: self.protocol_type.as_deref().map(str::to_owned),
            protocol_name: self.protocol_name.as_deref().map(str::to_owned),
            assignment,
        }
    }

    /// The sync timer has run out: members that joined and never asked for their assignment are dropped.
    pub(crate) fn sync_time_is_up(&mut self, cx: &mut Context<'_>) {
        match self.state {
            GroupState::Empty | GroupState::PreparingRebalance => return,
            GroupState::CompletingRebalance | GroupState::Stable => {}
        }
        let silent: Vec<MemberId> = self.pending_syncs.iter().cloned().collect();
        if silent.is_empty() {
            return;
        }
        for id in &silent {
            self.remove(cx, id);
        }
        cx.notice(Notice::MembersDropped {
            group: self.id.clone(),
            members: silent,
            reason: "they did not sync within the rebalance timeout",
        });
        self.prepare_rebalance(cx, "members did not sync in time".to_owned());
    }
}
