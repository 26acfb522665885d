//! The state machine itself: one input at a time, effects out.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_types::TimestampMs;

use super::record::{decode_key, decode_value, encode_key, encode_value};
use super::state::Transaction;
use super::{
    MarkerOrder, Markers, ProducerIdentity, TransactionConfig, TransactionEffect, TransactionError,
    TransactionNotice, TransactionReply, TransactionState, TransactionalId,
};
use crate::coordinator::Phase;
use crate::timers::Timers;
use crate::{AppendId, Now, Record, RecordError, ReplyToken, TopicPartition};

/// What a deadline is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Deadline {
    /// Of an Ongoing transaction.
    TimeOut(TransactionalId),
    /// To store a completion that was refused.
    Complete(TransactionalId),
    /// Of those that wait for an append.
    Append(AppendId),
    Expiry,
}

/// What an id waits for. Only one change of an id is under way at a time.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) append: AppendId,
    /// What the id will be; `None`: forgotten.
    pub(super) next: Option<Transaction>,
    /// Whether further additions may wait for it.
    pub(super) adds: bool,
}

/// An addition that waits for an earlier one.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) token: ReplyToken,
    pub(super) producer: ProducerIdentity,
    pub(super) partitions: BTreeSet<TopicPartition>,
}

/// One transactional id.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// What the log is known to hold; `None`: not stored yet.
    pub(super) durable: Option<Transaction>,
    pub(super) pending: Option<Pending>,
    pub(super) waiting: Vec<Waiting>,
    /// Partitions of a prepared transaction whose marker isn't known to be written.
    pub(super) unmarked: BTreeSet<TopicPartition>,
    /// The order of those markers.
    pub(super) order: Option<MarkerOrder>,
}

/// An append whose outcome isn't known.
#[derive(Debug)]
pub(super) struct OpenAppend {
    pub(super) ids: Vec<TransactionalId>,
    pub(super) replies: Vec<(ReplyToken, TransactionReply)>,
}

/// The transactional ids of one partition of `__transaction_state`. See the module's page for how to drive it.
#[derive(Debug)]
pub struct TransactionCoordinator {
    pub(super) config: TransactionConfig,
    pub(super) phase: Phase,
    pub(super) entries: BTreeMap<TransactionalId, Entry>,
    pub(super) appends: BTreeMap<AppendId, OpenAppend>,
    next_append: AppendId,
    next_order: u64,
    pub(super) timers: Timers<Deadline>,
    pub(super) effects: Vec<TransactionEffect>,
    skipped_records: u64,
}

impl TransactionCoordinator {
    /// A coordinator that is loading: feed it the log with [`Self::replay`], then call [`Self::loaded`].
    pub fn new(config: TransactionConfig) -> Self {
        Self {
            config,
            phase: Phase::Loading,
            entries: BTreeMap::new(),
            appends: BTreeMap::new(),
            next_append: AppendId::FIRST,
            next_order: 0,
            timers: Timers::default(),
            effects: Vec::new(),
            skipped_records: 0,
        }
    }

    /// Takes in one record of the log, in the order of offsets. Records of types that this build doesn't know
    /// are skipped and counted.
    ///
    /// # Errors
    /// The record is damaged or of a newer version; the partition must not be served from what was loaded.
    pub fn replay(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), RecordError> {
        let Some(id) = decode_key(key)? else {
            self.skipped_records += 1;
            return Ok(());
        };
        match value {
            Some(value) => {
                let entry = Entry {
                    durable: Some(decode_value(value)?),
                    ..Entry::default()
                };
                self.entries.insert(id, entry);
            }
            None => {
                self.entries.remove(&id);
            }
        }
        Ok(())
    }

    /// Ends loading: prepared transactions are ended now, and the time of ongoing ones runs on.
    pub fn loaded(&mut self, now: Now) -> Vec<TransactionEffect> {
        if self.phase != Phase::Loading {
            return Vec::new();
        }
        self.phase = Phase::Active;
        self.schedule(
            now,
            Deadline::Expiry,
            self.config.expiration_check_interval_ms,
        );
        let ids: Vec<TransactionalId> = self.entries.keys().cloned().collect();
        for id in ids {
            self.settled(now, &id);
        }
        self.take_effects()
    }

    /// The partition is no longer led here, or is about to be closed. Everyone who waits is told NOT_COORDINATOR; so is
    /// every later request.
    pub fn unload(&mut self) -> Vec<TransactionEffect> {
        self.phase = Phase::Unloaded;
        let error = TransactionError::NotCoordinator;
        let appends = std::mem::take(&mut self.appends);
        for (token, reply) in appends.into_values().flat_map(|append| append.replies) {
            self.reply(token, reply.failed(error));
        }
        let entries = std::mem::take(&mut self.entries);
        for waiting in entries.into_values().flat_map(|entry| entry.waiting) {
            self.reply(waiting.token, TransactionReply::Add(Err(error)));
        }
        self.timers.clear();
        self.take_effects()
    }

    /// What the log is known to hold, as the fewest records that rebuild it.
    pub fn export(&self) -> Vec<Record> {
        let stored = self
            .entries
            .iter()
            .filter_map(|(id, entry)| Some((id, entry.durable.as_ref()?)));
        stored
            .map(|(id, transaction)| Record {
                key: encode_key(id),
                value: Some(encode_value(transaction)),
            })
            .collect()
    }

    /// When to call [`Self::tick`] next, on the monotonic clock. `None` while nothing can come due.
    pub fn next_deadline(&self) -> Option<u64> {
        self.timers.next_deadline()
    }

    /// Does all that has come due.
    pub fn tick(&mut self, now: Now) -> Vec<TransactionEffect> {
        while let Some(deadline) = self.timers.take_due(now.monotonic_ms) {
            match deadline {
                Deadline::TimeOut(id) => self.time_is_up(now, &id),
                Deadline::Complete(id) => self.complete(now, &id),
                Deadline::Append(id) => self.append_timed_out(id),
                Deadline::Expiry => self.expire(now),
            }
        }
        self.take_effects()
    }

    /// Records skipped while loading because their type is not known.
    pub fn skipped_records(&self) -> u64 {
        self.skipped_records
    }

    /// Transactional ids held, for metrics.
    pub fn id_count(&self) -> usize {
        self.entries.len()
    }

    /// Transactional ids whose transaction is open or being ended, for metrics.
    pub fn open_count(&self) -> usize {
        let stored = self.entries.values().filter_map(|e| e.durable.as_ref());
        stored
            .filter(|t| t.state == TransactionState::Ongoing || t.state.is_prepared())
            .count()
    }

    pub(super) fn serving(&self) -> Result<(), TransactionError> {
        match self.phase {
            Phase::Loading => Err(TransactionError::CoordinatorLoadInProgress),
            Phase::Active => Ok(()),
            Phase::Unloaded => Err(TransactionError::NotCoordinator),
        }
    }

    /// An id that nothing is under way of, as the log has it. An unknown one is `None`.
    pub(super) fn free(
        &self,
        id: &TransactionalId,
    ) -> Result<Option<&Transaction>, TransactionError> {
        self.serving()?;
        match self.entries.get(id) {
            None => Ok(None),
            Some(Entry {
                pending: Some(_), ..
            }) => Err(TransactionError::ConcurrentTransactions),
            Some(entry) => Ok(entry.durable.as_ref()),
        }
    }

    /// Stages changes of ids as one append; each must have none pending. `replies` are given when it is durable.
    pub(super) fn append(
        &mut self,
        now: Now,
        changes: Vec<(TransactionalId, Option<Transaction>)>,
        adds: bool,
        replies: Vec<(ReplyToken, TransactionReply)>,
    ) {
        let append = self.next_append;
        self.next_append = append.next();
        let mut records = Vec::with_capacity(changes.len());
        let mut ids = Vec::with_capacity(changes.len());
        for (id, next) in changes {
            records.push(Record {
                key: encode_key(&id),
                value: next.as_ref().map(encode_value),
            });
            let pending = Pending { append, next, adds };
            self.entries.entry(id.clone()).or_default().pending = Some(pending);
            ids.push(id);
        }
        if !replies.is_empty() {
            self.schedule(now, Deadline::Append(append), self.config.append_timeout_ms);
        }
        self.appends.insert(append, OpenAppend { ids, replies });
        self.effects.push(TransactionEffect::Append {
            id: append,
            at: now.wall,
            records,
        });
    }

    /// Whether another append may be begun.
    pub(super) fn admit_append(&self) -> Result<(), TransactionError> {
        if self.appends.len() < self.config.max_pending_appends {
            return Ok(());
        }
        Err(TransactionError::CoordinatorNotAvailable)
    }

    /// What follows from the state that `id` now has in the log.
    pub(super) fn settled(&mut self, now: Now, id: &TransactionalId) {
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        let Some(transaction) = entry.durable.as_ref() else {
            return;
        };
        match transaction.state {
            TransactionState::Ongoing => {
                let left = remaining_ms(transaction, now.wall);
                self.schedule(now, Deadline::TimeOut(id.clone()), left);
            }
            TransactionState::PrepareCommit | TransactionState::PrepareAbort => {
                let order = MarkerOrder(self.next_order);
                self.next_order += 1;
                let markers = Markers {
                    order,
                    transactional_id: id.clone(),
                    producer: transaction.producer,
                    commit: transaction.state == TransactionState::PrepareCommit,
                    version: transaction.version,
                    partitions: transaction.partitions.iter().cloned().collect(),
                };
                entry.unmarked = transaction.partitions.clone();
                entry.order = Some(order);
                self.timers.cancel(&Deadline::TimeOut(id.clone()));
                if markers.partitions.is_empty() {
                    self.complete(now, id);
                } else {
                    self.effects.push(TransactionEffect::SendMarkers(markers));
                }
            }
            TransactionState::Empty
            | TransactionState::CompleteCommit
            | TransactionState::CompleteAbort => {
                entry.order = None;
                self.timers.cancel(&Deadline::TimeOut(id.clone()));
            }
        }
    }

    pub(super) fn schedule(&mut self, now: Now, deadline: Deadline, delay_ms: u64) {
        let at = now.monotonic_ms.saturating_add(delay_ms);
        self.timers.schedule(deadline, at);
    }

    pub(super) fn reply(&mut self, token: ReplyToken, reply: TransactionReply) {
        self.effects.push(TransactionEffect::Reply(token, reply));
    }

    pub(super) fn notice(&mut self, notice: TransactionNotice) {
        self.effects.push(TransactionEffect::Notice(notice));
    }

    #[must_use]
    pub(super) fn take_effects(&mut self) -> Vec<TransactionEffect> {
        std::mem::take(&mut self.effects)
    }
}

/// How long an ongoing transaction may still take.
fn remaining_ms(transaction: &Transaction, wall: TimestampMs) -> u64 {
    let ends = transaction
        .started_at
        .get()
        .saturating_add(i64::from(transaction.timeout_ms));
    let left = ends.saturating_sub(wall.get());
    // A clock that went back must not keep a transaction open for longer than was asked for.
    let most = i64::from(transaction.timeout_ms.max(0));
    left.clamp(0, most).unsigned_abs()
}
