//! LeaveGroup.

use super::ClassicGroup;
use crate::context::Context;
use crate::{GroupError, GroupState, LeavingMember, LeftMember, Reply, ReplyToken};

impl ClassicGroup {
    pub(crate) fn leave(
        &mut self,
        cx: &mut Context<'_>,
        token: ReplyToken,
        members: Vec<LeavingMember>,
    ) {
        let mut reasons = Vec::new();
        let left: Vec<LeftMember> = members
            .into_iter()
            .map(|member| {
                let result = self.remove_leaving(cx, &member);
                if result.is_ok() {
                    reasons.push(member.reason.unwrap_or_else(|| "not provided".to_owned()));
                }
                LeftMember {
                    member_id: member.member_id,
                    instance_id: member.instance_id,
                    result,
                }
            })
            .collect();
        let mut append = None;
        if !reasons.is_empty() {
            let reason = format!(
                "{} left; client reason: {}",
                reasons.len(),
                reasons.join(", ")
            );
            append = match self.state {
                GroupState::Stable | GroupState::CompletingRebalance => {
                    self.prepare_rebalance(cx, reason)
                }
                GroupState::PreparingRebalance => self.maybe_complete_join(cx),
                GroupState::Empty => None,
            };
        }
        cx.reply_after(append, token, Reply::Leave(Ok(left)));
    }

    fn remove_leaving(
        &mut self,
        cx: &mut Context<'_>,
        leaving: &LeavingMember,
    ) -> Result<(), GroupError> {
        let id = match &leaving.member_id {
            // An administrator may name a static member by its instance id alone.
            None => leaving
                .instance_id
                .as_ref()
                .and_then(|instance| self.static_members.get(instance).cloned())
                .ok_or(GroupError::UnknownMemberId)?,
            Some(id) if self.pending_joins.contains(id) => id.clone(),
            Some(id) => self
                .validate_member(Some(id), leaving.instance_id.as_ref())?
                .clone(),
        };
        self.remove(cx, &id);
        Ok(())
    }
}
