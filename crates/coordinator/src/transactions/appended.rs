//! The host's report on an append, and what follows.

use super::coordinator::Deadline;
use super::{
    TransactionCoordinator, TransactionEffect, TransactionNotice, TransactionReply, TransactionalId,
};
use crate::{AppendFailure, AppendId, Now};

impl TransactionCoordinator {
    /// Append `id` is durable, or is known not to be in the log and never to be. Reports come in the order
    /// of the appends. A report on an append that isn't pending changes nothing.
    pub fn appended(
        &mut self,
        now: Now,
        id: AppendId,
        outcome: Result<(), AppendFailure>,
    ) -> Vec<TransactionEffect> {
        self.timers.cancel(&Deadline::Append(id));
        let Some(append) = self.appends.remove(&id) else {
            return self.take_effects();
        };
        for (token, reply) in append.replies {
            let reply = match outcome {
                Ok(()) => reply,
                Err(failure) => reply.failed(failure.as_transaction_error()),
            };
            if let TransactionReply::Init(Ok(producer)) = reply
                && let [id] = &append.ids[..]
            {
                self.notice(TransactionNotice::Initialized {
                    transactional_id: id.clone(),
                    producer,
                });
            }
            self.reply(token, reply);
        }
        for transactional_id in append.ids {
            self.settle(now, id, transactional_id, outcome.is_ok());
        }
        self.take_effects()
    }

    fn settle(&mut self, now: Now, append: AppendId, id: TransactionalId, durable: bool) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        let Some(pending) = entry.pending.take_if(|pending| pending.append == append) else {
            return;
        };
        if durable {
            entry.durable = pending.next;
            self.settled(now, &id);
        } else if let Some(known) = &entry.durable
            && known.state.is_prepared()
        {
            // Nobody asks for a completion, so nobody asks again.
            self.schedule(now, Deadline::Complete(id.clone()), self.config.retry_ms);
        }
        self.add_waiting(now, &id);
        let unused = |entry: &super::coordinator::Entry| {
            entry.durable.is_none() && entry.pending.is_none() && entry.waiting.is_empty()
        };
        if self.entries.get(&id).is_some_and(unused) {
            self.entries.remove(&id);
        }
    }

    /// Its waiters can't wait longer. What was to be stored stays pending: it may still become durable.
    pub(super) fn append_timed_out(&mut self, id: AppendId) {
        let Some(append) = self.appends.get_mut(&id) else {
            return;
        };
        let replies = std::mem::take(&mut append.replies);
        for (token, reply) in replies {
            let reply = reply.failed(super::TransactionError::CoordinatorNotAvailable);
            self.reply(token, reply);
        }
        self.notice(TransactionNotice::AppendTimedOut { id });
    }
}
