//! The host's report on an append, and what each waiter makes of it.

use crate::classic::ClassicGroup;
use crate::context::{Context, Waiter};
use crate::coordinator::{GroupCoordinator, context};
use crate::journal::Slot;
use crate::{
    AppendFailure, AppendId, Effect, Generation, GroupError, GroupId, GroupState, Notice, Now,
};

impl GroupCoordinator {
    /// Append `id` is durable, or is known not to be in the log and never to be. Reports come in the order
    /// of the appends. A report on an append that isn't pending changes nothing.
    pub fn appended(
        &mut self,
        now: Now,
        id: AppendId,
        outcome: Result<(), AppendFailure>,
    ) -> Vec<Effect> {
        self.timers.cancel(&crate::timers::Timer::Append(id));
        if let Some(settled) = self.journal.settle(id, outcome.is_ok()) {
            for id in settled.committed {
                if self.consumer_groups.contains_key(&id) {
                    continue;
                }
                let new = || ClassicGroup::new(id.clone(), now);
                self.groups.entry(id.clone()).or_insert_with(new);
            }
            for waiter in settled.waiters {
                self.serve(now, waiter, outcome);
            }
            if outcome.is_err() {
                for group in settled.groups {
                    if settled.consumer_groups.contains(&group) {
                        self.restore_consumer_group(now, &group);
                    } else {
                        self.revive(now, group);
                    }
                }
            }
        }
        self.take_effects()
    }

    fn serve(&mut self, now: Now, waiter: Waiter, outcome: Result<(), AppendFailure>) {
        match waiter {
            Waiter::Reply(token, reply) => {
                let reply = match outcome {
                    Ok(()) => reply,
                    Err(failure) => reply.failed(failure.as_reply()),
                };
                self.effects.push(Effect::Reply(token, reply));
            }
            Waiter::Assignment {
                group,
                generation,
                assignment,
            } => {
                let outcome = outcome.map_err(AppendFailure::as_reply);
                self.with_group(now, &group, |group, cx| {
                    group.assignment_stored(cx, generation, &assignment, outcome);
                });
            }
            Waiter::StaticMember {
                group,
                generation,
                new,
                before,
                leader_before,
                may_skip_assignment,
            } => {
                self.with_group(now, &group, |group, cx| match outcome {
                    Ok(()) => {
                        group.static_member_stored(cx, &new, leader_before, may_skip_assignment)
                    }
                    Err(failure) => {
                        group.static_member_not_stored(cx, generation, &new, *before, failure)
                    }
                });
            }
            Waiter::GroupCreated(group) => {
                if let Err(failure) = outcome {
                    self.forget_unstored(now, &group, &failure.as_reply());
                }
            }
        }
    }

    /// Puts back a group that was deleted, if the log still has something of it.
    pub(crate) fn revive(&mut self, now: Now, id: GroupId) {
        if self.groups.contains_key(&id) || self.consumer_groups.contains_key(&id) {
            return;
        }
        let stored = self.journal.groups.get(&id).and_then(Slot::newest).cloned();
        let group = match stored {
            // It was readable when it was loaded or written.
            Some(value) => ClassicGroup::decode(id.clone(), &value, now).ok(),
            None => None,
        };
        let offsets = &self.journal.offsets;
        let has_offsets = offsets.newest_of(&id).next().is_some();
        if group.is_none() && !has_offsets && !offsets.pending.holds_group(&id) {
            return;
        }
        let group = group.unwrap_or_else(|| ClassicGroup::new(id.clone(), now));
        for member in group.members.keys() {
            group.renew_session(&mut context!(self, now), member);
        }
        self.groups.insert(id, group);
    }

    /// Drops a group that couldn't be created, unless the log has, or is getting, something of it.
    fn forget_unstored(&mut self, now: Now, id: &GroupId, error: &GroupError) {
        let is_stored = self.journal.groups.contains_key(id)
            || self.journal.offsets.group(id).is_some()
            || self.journal.offsets.pending.holds_group(id);
        let is_fresh = self.groups.get(id).is_some_and(|group| {
            group.generation == Generation::ZERO && group.state != GroupState::CompletingRebalance
        });
        if is_stored || !is_fresh {
            return;
        }
        if let Some(mut group) = self.groups.remove(id) {
            group.close(&mut context!(self, now), error);
        }
    }

    /// Nobody knows yet whether the append will be durable, and its waiters can't wait longer. What it staged
    /// stays until the host reports.
    pub(crate) fn append_timed_out(&mut self, now: Now, id: AppendId) {
        let Some(pending) = self.journal.pending(id) else {
            return;
        };
        let waiters = std::mem::take(&mut pending.waiters);
        let mut kept = Vec::new();
        for waiter in waiters {
            match waiter {
                Waiter::Reply(..) | Waiter::Assignment { .. } => {
                    self.serve(now, waiter, Err(AppendFailure::Unavailable));
                }
                Waiter::StaticMember {
                    ref group, ref new, ..
                } => {
                    self.with_group(now, group, |group, cx: &mut Context<'_>| {
                        group.static_member_timed_out(cx, new)
                    });
                    kept.push(waiter);
                }
                Waiter::GroupCreated(_) => kept.push(waiter),
            }
        }
        if let Some(pending) = self.journal.pending(id) {
            pending.waiters.extend(kept);
        }
        self.effects
            .push(Effect::Notice(Notice::AppendTimedOut { id }));
    }
}
