//! One coordinator and the task that drives it.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_coordinator::{
    AppendFailure, AppendId, ClusterView, Effect, EndTransaction, GroupCoordinator, Now, Record,
    Reply, ReplyToken, Transaction,
};
use tidegate_partition_log::{
    AppendError, Durability, LogReader, Marker, MarkerRefused, PartitionLog, SequenceError,
};
use tidegate_record_batch::{BatchBuilder, Codec, ProducedBatch, ProducerIdentity, TimestampType};
use tidegate_runtime::SharedClock;
use tidegate_types::{Offset, TimestampMs, TopicId, TopicName};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::load::Load;
use super::notice;

/// Requests that wait for one coordinator before their senders wait. A connection has one request in work.
const QUEUE: usize = 256;

type Answered = Box<dyn FnOnce(&mut GroupCoordinator, Now, ReplyToken) -> Vec<Effect> + Send>;
type Immediate = Box<dyn FnOnce(&mut GroupCoordinator, Now) + Send>;

/// One input from a request handler.
enum Call {
    /// Its reply comes as an effect, maybe much later.
    Answered {
        act: Answered,
        reply: oneshot::Sender<Reply>,
    },
    /// It is answered on the spot.
    Immediate(Immediate),
}

/// The way to one coordinator. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Handle {
    calls: mpsc::Sender<Call>,
}

impl Handle {
    /// Hands over a request whose reply may come much later. `None`: the coordinator went away before it replied.
    pub(crate) async fn answered<F>(&self, act: F) -> Option<Reply>
    where
        F: FnOnce(&mut GroupCoordinator, Now, ReplyToken) -> Vec<Effect> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        self.calls
            .send(Call::Answered {
                act: Box::new(act),
                reply,
            })
            .await
            .ok()?;
        answer.await.ok()
    }

    /// Asks what is answered on the spot. `None`: the coordinator went away.
    pub(crate) async fn immediate<T, F>(&self, ask: F) -> Option<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut GroupCoordinator, Now) -> T + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let act: Immediate = Box::new(move |coordinator, now| {
            // Whoever asked may have hung up.
            let _ = reply.send(ask(coordinator, now));
        });
        self.calls.send(Call::Immediate(act)).await.ok()?;
        answer.await.ok()
    }
}

/// What changed of topics and is still to be told to the coordinator: those whose offsets are to be removed, each
/// once, and the newest view of all.
#[derive(Default)]
pub(super) struct Deletions {
    topics: Mutex<Vec<(TopicName, Option<TopicId>)>>,
    view: Mutex<Option<Arc<dyn ClusterView>>>,
    bell: Notify,
}

impl Deletions {
    pub(super) fn add(&self, deleted: &[(TopicName, Option<TopicId>)]) {
        self.topics.lock().extend_from_slice(deleted);
        self.bell.notify_one();
    }

    pub(super) fn show(&self, view: Arc<dyn ClusterView>) {
        *self.view.lock() = Some(view);
        self.bell.notify_one();
    }

    fn take(&self) -> Vec<(TopicName, Option<TopicId>)> {
        std::mem::take(&mut *self.topics.lock())
    }
}

/// The clock in the coordinator's terms: milliseconds since the host began.
#[derive(Clone)]
pub(crate) struct HostClock {
    clock: SharedClock,
    base: Instant,
}

impl HostClock {
    pub(crate) fn new(clock: SharedClock) -> Self {
        let base = clock.now();
        Self { clock, base }
    }

    pub(crate) fn now(&self) -> Now {
        let since = self.clock.now().saturating_duration_since(self.base);
        Now {
            monotonic_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            wall: self.clock.wall(),
        }
    }

    /// Far deadlines come as "in an hour": the actor looks again then.
    pub(crate) fn instant(&self, at_ms: u64) -> Instant {
        self.base
            .checked_add(Duration::from_millis(at_ms))
            .unwrap_or_else(|| self.clock.now() + Duration::from_secs(3600))
    }
}

/// How an append stands.
enum Outcome {
    Refused(AppendFailure),
    Durable,
    /// Resolves when durable; an error means that nobody knows whether it is in the log.
    Waiting(oneshot::Receiver<()>),
}

/// What became of the oldest append.
enum Settled {
    Known(Result<(), AppendFailure>),
    Unknown,
}

/// What an actor is made of.
pub(super) struct Parts {
    pub(super) log: Arc<PartitionLog>,
    pub(super) reader: LogReader,
    pub(super) clock: HostClock,
    pub(super) coordinator: GroupCoordinator,
    pub(super) deletions: Arc<Deletions>,
    pub(super) cancel: CancellationToken,
}

/// The owner of one coordinator: takes one event at a time and carries out the effects.
pub(super) struct Actor {
    pub(super) parts: Parts,
    calls: mpsc::Receiver<Call>,
    waiting: HashMap<ReplyToken, oneshot::Sender<Reply>>,
    next_token: u64,
    /// Appends in the order of the log. Reports are given in the same order, so only the first is looked at.
    appends: VecDeque<(AppendId, Outcome)>,
}

impl Actor {
    pub(super) fn new(parts: Parts) -> (Self, Handle) {
        let (sender, calls) = mpsc::channel(QUEUE);
        let actor = Self {
            parts,
            calls,
            waiting: HashMap::new(),
            next_token: 0,
            appends: VecDeque::new(),
        };
        (actor, Handle { calls: sender })
    }

    /// Loads the partition and serves it until it is closed.
    pub(super) async fn run(mut self) {
        match self.load().await {
            Load::Done => {}
            Load::Closed => return self.unload(),
            // Like Apache Kafka's: a coordinator that can't be loaded sends everybody away, until the partition
            // is led anew.
            Load::Failed => self.unload(),
        }
        while self.step().await {}
        self.unload();
    }

    /// Takes one event. False when there is nothing more to do.
    async fn step(&mut self) -> bool {
        let deadline = self
            .parts
            .coordinator
            .next_deadline()
            .map(|at| self.parts.clock.instant(at));
        // Cancel-safe: a call not received stays in the channel, an append's outcome stays in its receiver, and the
        // bell keeps one permit.
        tokio::select! {
            biased;
            () = self.parts.cancel.cancelled() => return false,
            settled = oldest(&mut self.appends) => self.settle(settled),
            () = due(deadline) => {
                let effects = self.parts.coordinator.tick(self.parts.clock.now());
                self.carry_out(effects);
            }
            () = self.parts.deletions.bell.notified() => self.delete_topics(),
            call = self.calls.recv() => match call {
                Some(call) => self.apply(call),
                None => return false,
            },
        }
        true
    }

    /// Answers requests while something else is going on. `None` if the partition was closed meanwhile.
    pub(super) async fn serve_while<F: Future>(&mut self, work: F) -> Option<F::Output> {
        tokio::pin!(work);
        loop {
            // Cancel-safe: the work is pinned outside, and a call not received stays in the channel.
            tokio::select! {
                biased;
                () = self.parts.cancel.cancelled() => return None,
                done = &mut work => return Some(done),
                call = self.calls.recv() => self.apply(call?),
            }
        }
    }

    /// Shows the coordinator the newest view, if there is one that it hasn't seen.
    pub(super) fn show_view(&mut self) {
        let view = self.parts.deletions.view.lock().take();
        if let Some(view) = view {
            self.parts.coordinator.see(view);
        }
    }

    pub(super) fn delete_topics(&mut self) {
        self.show_view();
        let topics = self.parts.deletions.take();
        if !topics.is_empty() {
            let effects = self
                .parts
                .coordinator
                .topics_deleted(self.parts.clock.now(), &topics);
            self.carry_out(effects);
        }
    }

    fn apply(&mut self, call: Call) {
        let now = self.parts.clock.now();
        match call {
            Call::Immediate(act) => act(&mut self.parts.coordinator, now),
            Call::Answered { act, reply } => {
                let token = ReplyToken(self.next_token);
                self.next_token += 1;
                self.waiting.insert(token, reply);
                let effects = act(&mut self.parts.coordinator, now, token);
                self.carry_out(effects);
            }
        }
    }

    fn settle(&mut self, settled: Settled) {
        let Some((id, _)) = self.appends.pop_front() else {
            return;
        };
        match settled {
            Settled::Known(outcome) => {
                let effects = self
                    .parts
                    .coordinator
                    .appended(self.parts.clock.now(), id, outcome);
                self.carry_out(effects);
            }
            Settled::Unknown => {
                // The log failed or closed. Only its next opening tells what it holds.
                warn!(partition = %self.parts.log.id(), "group coordinator stopped: the outcome of a write is unknown");
                self.unload();
            }
        }
    }

    pub(super) fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Reply(token, reply) => {
                    if let Some(waiter) = self.waiting.remove(&token) {
                        // Whoever asked may have hung up.
                        let _ = waiter.send(reply);
                    }
                }
                Effect::Append { id, at, records } => {
                    let outcome = append(&self.parts.log, at, &records, None);
                    self.appends.push_back((id, outcome));
                }
                Effect::AppendTransactional {
                    id,
                    at,
                    records,
                    transaction,
                } => {
                    let outcome = append(&self.parts.log, at, &records, Some(transaction));
                    self.appends.push_back((id, outcome));
                }
                Effect::AppendMarker { id, end } => {
                    let outcome = append_marker(&self.parts.log, end);
                    self.appends.push_back((id, outcome));
                }
                Effect::Notice(notice) => notice::log(&notice),
            }
        }
    }

    fn unload(&mut self) {
        self.appends.clear();
        let effects = self.parts.coordinator.unload(self.parts.clock.now());
        self.carry_out(effects);
        self.waiting.clear();
    }
}

async fn due(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at).await,
        None => pending().await,
    }
}

async fn oldest(appends: &mut VecDeque<(AppendId, Outcome)>) -> Settled {
    match appends.front_mut() {
        None => pending().await,
        Some((_, Outcome::Refused(failure))) => Settled::Known(Err(*failure)),
        Some((_, Outcome::Durable)) => Settled::Known(Ok(())),
        Some((_, Outcome::Waiting(durable))) => match durable.await {
            Ok(()) => Settled::Known(Ok(())),
            Err(_) => Settled::Unknown,
        },
    }
}

fn append(
    log: &Arc<PartitionLog>,
    at: TimestampMs,
    records: &[Record],
    transaction: Option<Transaction>,
) -> Outcome {
    // As in Apache Kafka, the records of a coordinator have no sequences.
    let producer = transaction.map(|of| ProducerIdentity {
        id: of.producer,
        epoch: of.epoch,
        first_sequence: None,
    });
    let mut builder = BatchBuilder::new(
        Offset::ZERO,
        Codec::None,
        TimestampType::CreateTime,
        producer,
        transaction.is_some(),
    );
    for record in records {
        builder.push(at, Some(&record.key), record.value.as_deref(), &[]);
    }
    let batch = match builder.finish() {
        Ok(bytes) => ProducedBatch::from_broker(bytes),
        Err(error) => {
            error!(partition = %log.id(), error = &error as &dyn std::error::Error, "group records don't fit a batch");
            return Outcome::Refused(AppendFailure::TooLarge);
        }
    };
    let batch = match batch {
        Ok(batch) => batch,
        Err(error) => {
            error!(partition = %log.id(), error = &error as &dyn std::error::Error, "group records make no valid batch");
            return Outcome::Refused(AppendFailure::TooLarge);
        }
    };
    match log.append_verified(batch, transaction.and_then(|of| of.ticket)) {
        Ok(appended) => outcome(appended.durability),
        Err(error) => {
            warn!(partition = %log.id(), error = &error as &dyn std::error::Error, "group records were not written");
            Outcome::Refused(failure(&error))
        }
    }
}

fn append_marker(log: &Arc<PartitionLog>, end: EndTransaction) -> Outcome {
    let marker = Marker {
        producer: end.producer,
        epoch: end.epoch,
        coordinator_epoch: end.coordinator_epoch,
        commit: end.commit,
        epoch_rises: end.epoch_rises,
    };
    match log.append_marker(marker) {
        Ok(durability) => outcome(durability),
        Err(error) => {
            info!(partition = %log.id(), producer = %end.producer, error = &error as &dyn std::error::Error, "transaction marker was not written");
            Outcome::Refused(failure(&error))
        }
    }
}

fn outcome(durability: Durability) -> Outcome {
    match durability {
        Durability::Durable => Outcome::Durable,
        Durability::Pending(receiver) => Outcome::Waiting(receiver),
    }
}

fn failure(error: &AppendError) -> AppendFailure {
    match error {
        AppendError::NotLeader | AppendError::Failed(_) | AppendError::OutOfOffsets => {
            AppendFailure::NotLeader
        }
        AppendError::Full(_) | AppendError::Switching | AppendError::Sealed => {
            AppendFailure::Unavailable
        }
        AppendError::TooLarge { .. } => AppendFailure::TooLarge,
        AppendError::Sequence(SequenceError::Fenced { .. })
        | AppendError::Marker(MarkerRefused::Fenced { .. }) => AppendFailure::ProducerFenced,
        // The records of a coordinator have no sequences to be wrong.
        AppendError::Sequence(
            SequenceError::NoTransaction { .. }
            | SequenceError::NotTransactional { .. }
            | SequenceError::OutOfOrder { .. },
        ) => AppendFailure::NoTransaction,
        AppendError::Marker(MarkerRefused::CoordinatorFenced { .. }) => {
            AppendFailure::CoordinatorFenced
        }
    }
}
