//! Adding partitions to a transaction, and asking whether they are in it (KIP-98, KIP-890).

use std::collections::BTreeSet;

use super::coordinator::Waiting;
use super::state::Transaction;
use super::{
    AddPartitionsRequest, ProducerIdentity, TransactionCoordinator, TransactionEffect,
    TransactionError, TransactionReply, TransactionState, TransactionalId,
};
use crate::{Now, ReplyToken, TopicPartition};

/// What a request leads to.
enum Step {
    /// All are in it.
    Done,
    /// Others are being added; these come next.
    Wait,
    Store(Transaction),
}

impl TransactionCoordinator {
    /// Adds partitions, which begins a transaction if none is open. Answered with [`TransactionReply::Add`]; all are
    /// added or none.
    pub fn add_partitions(
        &mut self,
        now: Now,
        token: ReplyToken,
        request: AddPartitionsRequest,
    ) -> Vec<TransactionEffect> {
        let id = request.transactional_id;
        let partitions: BTreeSet<TopicPartition> = request.partitions.into_iter().collect();
        match self.add_step(now, &id, request.producer, &partitions) {
            Err(error) => self.reply(token, TransactionReply::Add(Err(error))),
            Ok(Step::Done) => self.reply(token, TransactionReply::Add(Ok(()))),
            Ok(Step::Store(next)) => {
                let reply = (token, TransactionReply::Add(Ok(())));
                self.append(now, vec![(id, Some(next))], true, vec![reply]);
            }
            Ok(Step::Wait) => {
                let entry = self.entries.entry(id).or_default();
                entry.waiting.push(Waiting {
                    token,
                    producer: request.producer,
                    partitions,
                });
            }
        }
        self.take_effects()
    }

    fn add_step(
        &self,
        now: Now,
        id: &TransactionalId,
        producer: ProducerIdentity,
        partitions: &BTreeSet<TopicPartition>,
    ) -> Result<Step, TransactionError> {
        self.serving()?;
        let entry = self.entries.get(id);
        let known = entry
            .and_then(|entry| entry.durable.as_ref())
            .ok_or(TransactionError::InvalidProducerIdMapping)?;
        check_producer(known, producer)?;
        let pending = entry.and_then(|entry| entry.pending.as_ref());
        if pending.is_some_and(|pending| !pending.adds) || known.state.is_prepared() {
            return Err(TransactionError::ConcurrentTransactions);
        }
        if known.state == TransactionState::Ongoing && partitions.is_subset(&known.partitions) {
            return Ok(Step::Done);
        }
        if pending.is_some() {
            let waiting = entry.map_or(0, |entry| entry.waiting.len());
            if waiting >= self.config.max_waiting_additions {
                return Err(TransactionError::ConcurrentTransactions);
            }
            return Ok(Step::Wait);
        }
        self.admit_append()?;
        Ok(Step::Store(known.with_partitions(partitions, now.wall)))
    }

    /// Which of the partitions are in the open transaction of this producer, in the order of the request.
    ///
    /// # Errors
    /// As for [`Self::add_partitions`]; of a partition [`TransactionError::TransactionAbortable`].
    pub fn verify_partitions(
        &self,
        request: &AddPartitionsRequest,
    ) -> Result<Vec<Result<(), TransactionError>>, TransactionError> {
        self.serving()?;
        let known = self
            .entries
            .get(&request.transactional_id)
            .and_then(|entry| entry.durable.as_ref())
            .ok_or(TransactionError::InvalidProducerIdMapping)?;
        check_producer(known, request.producer)?;
        if known.state.is_prepared() {
            return Err(TransactionError::ConcurrentTransactions);
        }
        let checked = request.partitions.iter().map(|partition| {
            if known.partitions.contains(partition) {
                Ok(())
            } else {
                Err(TransactionError::TransactionAbortable)
            }
        });
        Ok(checked.collect())
    }

    /// An addition of `id` has ended: those that waited for it are stored together.
    pub(super) fn add_waiting(&mut self, now: Now, id: &TransactionalId) {
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        let mut joined: Option<Transaction> = None;
        let mut replies = Vec::new();
        for waiting in std::mem::take(&mut entry.waiting) {
            match self.add_step(now, id, waiting.producer, &waiting.partitions) {
                Ok(Step::Store(next)) => {
                    let next = match joined {
                        Some(joined) => joined.with_partitions(&waiting.partitions, now.wall),
                        None => next,
                    };
                    joined = Some(next);
                    replies.push((waiting.token, TransactionReply::Add(Ok(()))));
                }
                Ok(Step::Done) => self.reply(waiting.token, TransactionReply::Add(Ok(()))),
                Ok(Step::Wait) => {
                    let error = TransactionError::ConcurrentTransactions;
                    self.reply(waiting.token, TransactionReply::Add(Err(error)));
                }
                Err(error) => self.reply(waiting.token, TransactionReply::Add(Err(error))),
            }
        }
        if let Some(joined) = joined {
            self.append(now, vec![(id.clone(), Some(joined))], true, replies);
        }
    }
}

pub(super) fn check_producer(
    known: &Transaction,
    producer: ProducerIdentity,
) -> Result<(), TransactionError> {
    if known.producer.id != producer.id {
        return Err(TransactionError::InvalidProducerIdMapping);
    }
    // A prepared one of version 2 has the epoch of the next transaction already, so that the producer that ended it
    // passes here and is asked to wait.
    if known.producer.epoch != producer.epoch {
        return Err(TransactionError::ProducerFenced);
    }
    Ok(())
}
