//! Ending transactions: by the producer (EndTxn), by time, and their completion once all markers are written.

use tidegate_types::ProducerEpoch;

use super::coordinator::Deadline;
use super::state::{Transaction, is_exhausted, raised};
use super::{
    EndRequest, EndedTransaction, MarkerOrder, ProducerIdentity, TransactionCoordinator,
    TransactionEffect, TransactionError, TransactionNotice, TransactionReply, TransactionState,
    TransactionalId,
};
use crate::{Now, ReplyToken, TopicPartition};

/// What a request leads to.
enum Step {
    /// It was done before; the answer got lost.
    Again(ProducerIdentity),
    Store(Transaction),
}

impl TransactionCoordinator {
    /// Decides the producer's transaction. Answered with [`TransactionReply::End`] once the decision is durable; markers
    /// follow.
    pub fn end(
        &mut self,
        now: Now,
        token: ReplyToken,
        request: &EndRequest,
    ) -> Vec<TransactionEffect> {
        match self.end_step(now, request) {
            Err(error) => self.reply(token, TransactionReply::End(Err(error))),
            Ok(Step::Again(producer)) => {
                let ended = EndedTransaction { producer };
                self.reply(token, TransactionReply::End(Ok(ended)));
            }
            Ok(Step::Store(next)) => {
                let ended = EndedTransaction {
                    producer: next.completed(now.wall).producer,
                };
                let reply = (token, TransactionReply::End(Ok(ended)));
                let id = request.transactional_id.clone();
                self.append(now, vec![(id, Some(next))], false, vec![reply]);
            }
        }
        self.take_effects()
    }

    fn end_step(&self, now: Now, request: &EndRequest) -> Result<Step, TransactionError> {
        self.serving()?;
        let entry = self.entries.get(&request.transactional_id);
        let known = entry
            .and_then(|entry| entry.durable.as_ref())
            .ok_or(TransactionError::InvalidProducerIdMapping)?;
        let again = check_end(known, request)?;
        if entry.is_some_and(|entry| entry.pending.is_some()) {
            return Err(TransactionError::ConcurrentTransactions);
        }
        let completed = match known.state {
            TransactionState::Ongoing => return self.decide(now, known, request),
            TransactionState::PrepareCommit | TransactionState::PrepareAbort => {
                let commits = known.state == TransactionState::PrepareCommit;
                return Err(if commits == request.commit {
                    TransactionError::ConcurrentTransactions
                } else {
                    TransactionError::InvalidTxnState
                });
            }
            TransactionState::Empty => None,
            TransactionState::CompleteCommit => Some(true),
            TransactionState::CompleteAbort => Some(false),
        };
        if again && completed == Some(request.commit) {
            return Ok(Step::Again(known.producer));
        }
        // A producer that doesn't know whether anything of it arrived aborts, and needs a raised epoch to be safe from
        // what may still come (KIP-890).
        if !again && !request.commit && request.version.raises_epoch() {
            return self.decide(now, known, request);
        }
        Err(TransactionError::InvalidTxnState)
    }

    fn decide(
        &self,
        now: Now,
        known: &Transaction,
        request: &EndRequest,
    ) -> Result<Step, TransactionError> {
        self.admit_append()?;
        if !request.version.raises_epoch() {
            return Ok(Step::Store(known.prepared(
                request.commit,
                None,
                None,
                now.wall,
            )));
        }
        let epoch = raised(known.producer.epoch).ok_or(TransactionError::ProducerFenced)?;
        let next_id = if is_exhausted(known.producer.epoch) {
            Some(request.fresh.ok_or(TransactionError::ProducerIdNeeded)?)
        } else {
            None
        };
        let next = known.prepared(request.commit, Some(epoch), next_id, now.wall);
        Ok(Step::Store(next))
    }

    /// The transaction took too long.
    pub(super) fn time_is_up(&mut self, now: Now, id: &TransactionalId) {
        let Some(entry) = self.entries.get(id) else {
            return;
        };
        let Some(known) = entry.durable.as_ref() else {
            return;
        };
        if known.state != TransactionState::Ongoing {
            return;
        }
        let retry = Deadline::TimeOut(id.clone());
        if entry.pending.is_some() || self.admit_append().is_err() {
            return self.schedule(now, retry, self.config.retry_ms);
        }
        let Some(epoch) = raised(known.producer.epoch) else {
            return;
        };
        let next = known.prepared(false, Some(epoch), None, now.wall);
        self.append(now, vec![(id.clone(), Some(next))], false, Vec::new());
        // In case the append is refused; the decision cancels it.
        self.schedule(now, retry, self.config.retry_ms);
        self.notice(TransactionNotice::Fenced {
            transactional_id: id.clone(),
            timed_out: true,
        });
    }

    /// These partitions have the marker of that order. An order that isn't the newest of the id is none of this
    /// report's business: before version 2 the next transaction has the same producer and epoch.
    pub fn markers_written(
        &mut self,
        now: Now,
        id: &TransactionalId,
        order: MarkerOrder,
        partitions: &[TopicPartition],
    ) -> Vec<TransactionEffect> {
        if let Some(entry) = self.entries.get_mut(id)
            && entry.order == Some(order)
        {
            for partition in partitions {
                entry.unmarked.remove(partition);
            }
            if entry.unmarked.is_empty() {
                self.complete(now, id);
            }
        }
        self.take_effects()
    }

    /// Stores that the transaction is over, unless that is under way.
    pub(super) fn complete(&mut self, now: Now, id: &TransactionalId) {
        let Some(entry) = self.entries.get(id) else {
            return;
        };
        let Some(known) = entry.durable.as_ref() else {
            return;
        };
        if !known.state.is_prepared() || !entry.unmarked.is_empty() || entry.pending.is_some() {
            return;
        }
        let next = known.completed(now.wall);
        self.append(now, vec![(id.clone(), Some(next))], false, Vec::new());
    }
}

/// Whether the request is one whose answer was lost; and that it is the id's producer at all.
fn check_end(known: &Transaction, request: &EndRequest) -> Result<bool, TransactionError> {
    let producer = request.producer;
    let raised_after = known.version.raises_epoch()
        && known.producer.id == producer.id
        && raised(producer.epoch) == Some(known.producer.epoch);
    let rotated_after = known.version.raises_epoch()
        && known.previous_id == Some(producer.id)
        && known.producer.epoch == ProducerEpoch::FIRST
        && is_exhausted(producer.epoch);
    if known.producer.id != producer.id && !rotated_after {
        return Err(TransactionError::InvalidProducerIdMapping);
    }
    let same = known.producer == producer;
    if !request.version.raises_epoch() {
        // Up to EndTxn 4 the epoch is the same before and after.
        return if same {
            Ok(matches!(
                known.state,
                TransactionState::CompleteCommit | TransactionState::CompleteAbort
            ))
        } else {
            Err(TransactionError::ProducerFenced)
        };
    }
    match known.state {
        TransactionState::Ongoing | TransactionState::Empty if same => Ok(false),
        TransactionState::PrepareCommit | TransactionState::PrepareAbort if raised_after => {
            Ok(true)
        }
        TransactionState::CompleteCommit | TransactionState::CompleteAbort
            if raised_after || rotated_after =>
        {
            Ok(true)
        }
        TransactionState::CompleteCommit | TransactionState::CompleteAbort if same => Ok(false),
        // It has been told its next epoch and ends the next transaction already, of which nothing can be known before
        // this one is over.
        TransactionState::PrepareCommit | TransactionState::PrepareAbort if same => {
            Err(TransactionError::ConcurrentTransactions)
        }
        _ => Err(TransactionError::ProducerFenced),
    }
}
