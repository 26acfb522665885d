//! One coordinator and the task that drives it.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, pending};
use std::sync::Arc;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tidegate_coordinator::transactions::{
    TransactionCoordinator, TransactionEffect, TransactionNotice, TransactionReply,
};
use tidegate_coordinator::{AppendFailure, AppendId, Now, ReplyToken};
use tidegate_partition_log::{LogReader, PartitionLog};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::append::{Outcome, append};
use super::load::Load;
use super::markers::{MarkerSender, Sent};
use crate::groups::HostClock;

/// Requests that wait for one coordinator before their senders wait. A connection has one request in work.
const QUEUE: usize = 256;

type Answered =
    Box<dyn FnOnce(&mut TransactionCoordinator, Now, ReplyToken) -> Vec<TransactionEffect> + Send>;
type Immediate = Box<dyn FnOnce(&mut TransactionCoordinator, Now) + Send>;

/// One input from a request handler.
enum Call {
    /// Its reply comes as an effect, maybe much later.
    Answered {
        act: Answered,
        reply: oneshot::Sender<TransactionReply>,
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
    /// Hands over a request whose reply may come later. `None`: the coordinator went away before it replied.
    pub(crate) async fn answered<F>(&self, act: F) -> Option<TransactionReply>
    where
        F: FnOnce(&mut TransactionCoordinator, Now, ReplyToken) -> Vec<TransactionEffect>
            + Send
            + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let act = Box::new(act);
        self.calls.send(Call::Answered { act, reply }).await.ok()?;
        answer.await.ok()
    }

    /// Asks what is answered on the spot. `None`: the coordinator went away.
    pub(crate) async fn immediate<T, F>(&self, ask: F) -> Option<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut TransactionCoordinator, Now) -> T + Send + 'static,
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
    pub(super) coordinator: TransactionCoordinator,
    pub(super) markers: MarkerSender,
    pub(super) cancel: CancellationToken,
}

/// The owner of one coordinator: takes one event at a time and carries out the effects.
pub(super) struct Actor {
    pub(super) parts: Parts,
    calls: mpsc::Receiver<Call>,
    waiting: HashMap<ReplyToken, oneshot::Sender<TransactionReply>>,
    next_token: u64,
    /// Appends in the order of the log. Reports are given in the same order, so only the first is looked at.
    appends: VecDeque<(AppendId, Outcome)>,
    /// Markers on their way: at most one order for each transactional id, which the coordinator limits.
    sending: FuturesUnordered<BoxFuture<'static, Sent>>,
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
            sending: FuturesUnordered::new(),
        };
        (actor, Handle { calls: sender })
    }

    /// Loads the partition and serves it until it is closed.
    pub(super) async fn run(mut self) {
        match self.load().await {
            Load::Done => {}
            Load::Closed => return self.unload(),
            // A coordinator that can't be loaded sends everybody away, until the partition is led anew.
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
        // Cancel-safe: a call not received stays in the channel, an append's outcome in its receiver, and markers that
        // aren't written in their set.
        tokio::select! {
            biased;
            () = self.parts.cancel.cancelled() => return false,
            settled = oldest(&mut self.appends) => self.settle(settled),
            () = due(deadline) => {
                let effects = self.parts.coordinator.tick(self.parts.clock.now());
                self.carry_out(effects);
            }
            Some(sent) = self.sending.next(), if !self.sending.is_empty() => self.marked(&sent),
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

    fn marked(&mut self, sent: &Sent) {
        let now = self.parts.clock.now();
        let effects = self.parts.coordinator.markers_written(
            now,
            &sent.transactional_id,
            sent.order,
            &sent.partitions,
        );
        self.carry_out(effects);
    }

    fn settle(&mut self, settled: Settled) {
        let Some((id, _)) = self.appends.pop_front() else {
            return;
        };
        match settled {
            Settled::Known(outcome) => {
                let now = self.parts.clock.now();
                let effects = self.parts.coordinator.appended(now, id, outcome);
                self.carry_out(effects);
            }
            Settled::Unknown => {
                // The log failed or closed. Only its next opening tells what it holds.
                warn!(partition = %self.parts.log.id(), "transaction coordinator stopped: the outcome of a write is unknown");
                self.unload();
            }
        }
    }

    pub(super) fn carry_out(&mut self, effects: Vec<TransactionEffect>) {
        for effect in effects {
            match effect {
                TransactionEffect::Reply(token, reply) => {
                    if let Some(waiter) = self.waiting.remove(&token) {
                        // Whoever asked may have hung up.
                        let _ = waiter.send(reply);
                    }
                }
                TransactionEffect::Append { id, at, records } => {
                    let outcome = append(&self.parts.log, at, &records);
                    self.appends.push_back((id, outcome));
                }
                TransactionEffect::SendMarkers(markers) => {
                    self.sending.push(self.parts.markers.send(markers));
                }
                TransactionEffect::Notice(notice) => log(&notice),
            }
        }
    }

    fn unload(&mut self) {
        self.appends.clear();
        self.sending = FuturesUnordered::new();
        let effects = self.parts.coordinator.unload();
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

fn log(notice: &TransactionNotice) {
    match notice {
        TransactionNotice::Initialized {
            transactional_id,
            producer,
        } => {
            debug!(%transactional_id, producer_id = %producer.id, producer_epoch = %producer.epoch, "transactional id was given to a producer");
        }
        TransactionNotice::Fenced {
            transactional_id,
            timed_out,
        } => {
            info!(%transactional_id, timed_out, "transaction is aborted and its producer fenced");
        }
        TransactionNotice::Expired { ids } => info!(ids, "unused transactional ids are forgotten"),
        TransactionNotice::AppendTimedOut { id } => {
            warn!(append = %id, "a transaction's records are not durable in time");
        }
    }
}
