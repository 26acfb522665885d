//! What a rule may touch besides its group, and what waits for an append.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::classic::Member;
use crate::journal::{Journal, Kind, Write};
use crate::timers::{Timer, Timers};
use crate::{
    AppendId, Effect, Generation, GroupConfig, GroupError, GroupId, InstanceId, JoinRefused,
    Joined, MemberId, Notice, Now, Reply, ReplyToken, Synced,
};

/// What goes on when an append ends.
#[derive(Debug)]
pub(crate) enum Waiter {
    /// Reply as prepared, or with the failure.
    Reply(ReplyToken, Reply),
    /// The leader's assignment: give it to the members, or have them join again.
    Assignment {
        group: GroupId,
        generation: Generation,
        assignment: BTreeMap<MemberId, Bytes>,
    },
    /// A static member came back under a new id: answer its join, or put the old member back.
    StaticMember {
        group: GroupId,
        generation: Generation,
        new: MemberId,
        before: Box<Member>,
        leader_before: Option<MemberId>,
        may_skip_assignment: bool,
    },
    /// A group that the log hasn't got yet: forget it if it can't be stored.
    GroupCreated(GroupId),
}

/// Lent to a rule for the length of one input.
pub(crate) struct Context<'a> {
    pub(crate) now: Now,
    pub(crate) config: &'a GroupConfig,
    pub(crate) timers: &'a mut Timers,
    pub(crate) journal: &'a mut Journal,
    pub(crate) effects: &'a mut Vec<Effect>,
}

impl Context<'_> {
    pub(crate) fn reply(&mut self, token: ReplyToken, reply: Reply) {
        self.effects.push(Effect::Reply(token, reply));
    }

    pub(crate) fn joined(&mut self, token: ReplyToken, joined: Joined) {
        self.reply(token, Reply::Join(Ok(joined)));
    }

    pub(crate) fn refuse_join(
        &mut self,
        token: ReplyToken,
        member_id: Option<MemberId>,
        error: GroupError,
    ) {
        self.reply(token, Reply::Join(Err(JoinRefused { error, member_id })));
    }

    pub(crate) fn synced(&mut self, token: ReplyToken, reply: Result<Synced, GroupError>) {
        self.reply(token, Reply::Sync(reply));
    }

    pub(crate) fn notice(&mut self, notice: Notice) {
        self.effects.push(Effect::Notice(notice));
    }

    pub(crate) fn append(&mut self, writes: Vec<Write>, waiters: Vec<Waiter>) -> AppendId {
        self.append_as(Kind::Plain, writes, waiters)
    }

    pub(crate) fn append_as(
        &mut self,
        kind: Kind,
        writes: Vec<Write>,
        waiters: Vec<Waiter>,
    ) -> AppendId {
        self.journal.append(
            self.now,
            self.config,
            self.timers,
            self.effects,
            kind,
            writes,
            waiters,
        )
    }

    /// Replies when append `id` ends, or at once if there is none to wait for.
    pub(crate) fn reply_after(&mut self, id: Option<AppendId>, token: ReplyToken, reply: Reply) {
        match id.and_then(|id| Some((id, self.journal.pending(id)?))) {
            Some((id, pending)) => {
                pending.waiters.push(Waiter::Reply(token, reply));
                // If the append's time was up before, this reply gets a time of its own.
                if !self.timers.contains(&Timer::Append(id)) {
                    self.schedule(
                        Timer::Append(id),
                        u64::from(self.config.offset_commit_timeout_ms),
                    );
                }
            }
            None => self.reply(token, reply),
        }
    }

    pub(crate) fn schedule(&mut self, timer: Timer, delay_ms: u64) {
        self.timers
            .schedule(timer, self.now.monotonic_ms.saturating_add(delay_ms));
    }

    pub(crate) fn cancel(&mut self, timer: &Timer) {
        self.timers.cancel(timer);
    }

    pub(crate) fn schedule_session(&mut self, group: &GroupId, member: &MemberId, timeout_ms: u32) {
        let timer = Timer::Session(group.clone(), member.clone());
        self.schedule(timer, u64::from(timeout_ms));
    }

    pub(crate) fn cancel_session(&mut self, group: &GroupId, member: &MemberId) {
        self.cancel(&Timer::Session(group.clone(), member.clone()));
    }

    pub(crate) fn static_member_replaced(
        &mut self,
        group: &GroupId,
        instance: &InstanceId,
        old: &MemberId,
        new: &MemberId,
    ) {
        self.notice(Notice::StaticMemberReplaced {
            group: group.clone(),
            instance: instance.clone(),
            old: old.clone(),
            new: new.clone(),
        });
    }
}
