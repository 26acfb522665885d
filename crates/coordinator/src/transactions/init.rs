//! InitProducerId of a transactional producer (KIP-98, KIP-360).

use tidegate_types::{ProducerEpoch, ProducerId};

use super::state::{Transaction, is_exhausted, raised};
use super::{
    InitRequest, ProducerIdentity, TransactionCoordinator, TransactionEffect, TransactionError,
    TransactionNotice, TransactionReply, TransactionState,
};
use crate::{Now, ReplyToken};

/// What a request leads to.
enum Step {
    /// The id is the producer's once this is stored.
    Give(Transaction),
    /// The open transaction is aborted first, with an epoch of its own; the producer asks again.
    Abort(Transaction),
}

impl TransactionCoordinator {
    /// Gives the transactional id to a producer. Answered with [`TransactionReply::Init`].
    pub fn init(
        &mut self,
        now: Now,
        token: ReplyToken,
        request: &InitRequest,
    ) -> Vec<TransactionEffect> {
        let id = &request.transactional_id;
        match self.init_step(now, request) {
            Err(error) => self.reply(token, TransactionReply::Init(Err(error))),
            Ok(Step::Give(next)) => {
                let reply = TransactionReply::Init(Ok(next.producer));
                self.append(
                    now,
                    vec![(id.clone(), Some(next))],
                    false,
                    vec![(token, reply)],
                );
            }
            Ok(Step::Abort(next)) => {
                let reply = TransactionReply::Init(Err(TransactionError::ConcurrentTransactions));
                self.append(
                    now,
                    vec![(id.clone(), Some(next))],
                    false,
                    vec![(token, reply)],
                );
                self.notice(TransactionNotice::Fenced {
                    transactional_id: id.clone(),
                    timed_out: false,
                });
            }
        }
        self.take_effects()
    }

    fn init_step(&self, now: Now, request: &InitRequest) -> Result<Step, TransactionError> {
        let longest = i64::from(self.config.max_timeout_ms);
        if request.timeout_ms <= 0 || i64::from(request.timeout_ms) > longest {
            return Err(TransactionError::InvalidTransactionTimeout);
        }
        let known = self.free(&request.transactional_id)?;
        self.admit_append()?;
        let Some(known) = known else {
            if self.entries.len() >= self.config.max_transactional_ids {
                return Err(TransactionError::TooManyTransactionalIds);
            }
            let producer = first_of(request.fresh)?;
            return Ok(Step::Give(Transaction::empty(
                producer,
                request.timeout_ms,
                now.wall,
            )));
        };
        if let Some(expected) = request.expected {
            check_expected(known, expected)?;
        }
        match known.state {
            TransactionState::PrepareCommit | TransactionState::PrepareAbort => {
                Err(TransactionError::ConcurrentTransactions)
            }
            TransactionState::Ongoing => {
                let epoch = raised(known.producer.epoch).ok_or(TransactionError::ProducerFenced)?;
                let mut next = known.prepared(false, Some(epoch), None, now.wall);
                // A successor fences whoever held the id; a producer that recovers may ask again with what it has.
                if request.expected.is_none() {
                    next.last_epoch = None;
                }
                Ok(Step::Abort(next))
            }
            TransactionState::Empty
            | TransactionState::CompleteCommit
            | TransactionState::CompleteAbort => {
                let (producer, previous_id, last_epoch) = next_producer(known, request)?;
                Ok(Step::Give(Transaction {
                    previous_id,
                    last_epoch,
                    ..Transaction::empty(producer, request.timeout_ms, now.wall)
                }))
            }
        }
    }
}

/// The first identity with a new id.
fn first_of(fresh: Option<ProducerId>) -> Result<ProducerIdentity, TransactionError> {
    let id = fresh.ok_or(TransactionError::ProducerIdNeeded)?;
    Ok(ProducerIdentity {
        id,
        epoch: ProducerEpoch::FIRST,
    })
}

/// A producer that had the id before must have the current producer id, or the one before it if that ran out of epochs
/// and the answer that said so may have been lost. While a transaction is open the epoch is checked too, so that a
/// fenced producer can't abort its successor's.
fn check_expected(known: &Transaction, expected: ProducerIdentity) -> Result<(), TransactionError> {
    let current = expected.id == known.producer.id;
    let rotated = known.previous_id == Some(expected.id) && is_exhausted(expected.epoch);
    if !current && !rotated {
        return Err(TransactionError::ProducerFenced);
    }
    let holds = current && expected.epoch == known.producer.epoch;
    if known.state == TransactionState::Ongoing && !holds {
        return Err(TransactionError::ProducerFenced);
    }
    Ok(())
}

/// Who the producer is from now on, the producer id before that, and the epoch that may ask again.
fn next_producer(
    known: &Transaction,
    request: &InitRequest,
) -> Result<(ProducerIdentity, Option<ProducerId>, Option<ProducerEpoch>), TransactionError> {
    let current = known.producer;
    let expected_epoch = request.expected.map(|expected| expected.epoch);
    match request.expected {
        // A call whose answer was lost: the same answer again.
        Some(expected) if expected != current => {
            if known.last_epoch != Some(expected.epoch) {
                return Err(TransactionError::ProducerFenced);
            }
            Ok((current, known.previous_id, known.last_epoch))
        }
        Some(_) | None => {
            let previous_id = Some(current.id);
            match raised(current.epoch).filter(|_| !is_exhausted(current.epoch)) {
                Some(epoch) => {
                    let producer = ProducerIdentity { epoch, ..current };
                    Ok((producer, previous_id, expected_epoch))
                }
                None => Ok((first_of(request.fresh)?, previous_id, expected_epoch)),
            }
        }
    }
}
