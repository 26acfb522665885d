//! One coordinator and the task that drives it.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, pending};
use std::time::Duration;

use tidegate_coordinator::{AppendFailure, AppendId, Now, ReplyToken};
use tidegate_types::PartitionId;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::append::Outcome;
use super::handle::Call;
use super::load::LoadError;
use super::{Handle, HostClock, Machine, ReplayError, Warmed};
use crate::metrics::BrokerMetrics;

/// Requests that come while the coordinator loads are kept for so long, and then told that it loads: a client that is
/// told so waits for longer than most loads take.
const PARKED: Duration = Duration::from_secs(1);
/// Pauses before a log that couldn't be understood is read again.
const FIRST_RELOAD: Duration = Duration::from_secs(1);
const LAST_RELOAD: Duration = Duration::from_secs(60);

/// What became of an effect.
pub(crate) enum Done<R> {
    Reply(ReplyToken, R),
    Appending(AppendId, Outcome),
    Nothing,
}

/// Where a machine's records are.
pub(crate) trait Source<M: Machine>: Send + 'static {
    fn partition(&self) -> PartitionId;

    /// A machine that has taken in the whole log. `warmed` has a part of it already.
    fn load(
        &self,
        config: M::Config,
        warmed: Option<Warmed<M>>,
    ) -> impl Future<Output = Result<Loaded<M>, LoadError>> + Send + 'static;
}

/// A machine that has taken in its log.
#[derive(Debug)]
pub(crate) struct Loaded<M> {
    pub(crate) machine: M,
    /// Whether a move had got it ready.
    pub(crate) warm: bool,
}

/// What is outside a machine: carries out its effects, and has news for it.
pub(crate) trait Outside<M: Machine>: Send + 'static {
    /// Something that came from elsewhere than from a caller.
    type News: Send;

    fn carry_out(&mut self, effect: M::Effect) -> Done<M::Reply>;

    /// The next piece of news. Cancel-safe.
    fn news(&mut self) -> impl Future<Output = Self::News> + Send;

    /// Tells the machine.
    fn tell(&mut self, machine: &mut M, now: Now, news: Self::News) -> Vec<M::Effect>;

    /// The machine is about to end its loading.
    fn prepare(&mut self, machine: &mut M);

    /// The machine is gone: what is under way for it is given up.
    fn give_up(&mut self);
}

/// What an actor is made of.
pub(crate) struct Parts<M: Machine, S, O> {
    pub(crate) source: S,
    pub(crate) clock: HostClock,
    pub(crate) config: M::Config,
    pub(crate) outside: O,
    pub(crate) metrics: BrokerMetrics,
    pub(crate) cancel: CancellationToken,
}

/// What became of the oldest append.
enum Settled {
    Known(Result<(), AppendFailure>),
    Unknown,
}

/// The owner of one coordinator: takes one event at a time and carries out the effects.
pub(crate) struct Actor<M: Machine, S, O> {
    parts: Parts<M, S, O>,
    /// Until the log is loaded, one that only says so.
    machine: M,
    calls: mpsc::Receiver<Call<M>>,
    waiting: HashMap<ReplyToken, oneshot::Sender<M::Reply>>,
    next_token: u64,
    /// Appends in the order of the log. Reports are given in the same order, so only the first is looked at.
    appends: VecDeque<(AppendId, Outcome)>,
}

impl<M: Machine, S: Source<M>, O: Outside<M>> Actor<M, S, O> {
    pub(crate) fn new(parts: Parts<M, S, O>) -> (Self, Handle<M>) {
        let (handle, calls) = Handle::new();
        let actor = Self {
            machine: M::loading(&parts.config),
            parts,
            calls,
            waiting: HashMap::new(),
            next_token: 0,
            appends: VecDeque::new(),
        };
        (actor, handle)
    }

    /// Loads the partition and serves it until it is closed. `warmed` is what a move has got ready.
    pub(crate) async fn run(mut self, warmed: Option<Warmed<M>>) {
        if self.load(warmed).await {
            while self.step().await {}
        }
        self.unload();
    }

    /// Loads until it succeeds, or the partition is closed: `false`.
    async fn load(&mut self, mut warmed: Option<Warmed<M>>) -> bool {
        let started = self.parts.clock.now();
        let parked_until = tokio::time::Instant::now() + PARKED;
        let mut pause = FIRST_RELOAD;
        let partition = self.parts.source.partition();
        loop {
            let config = self.parts.config.clone();
            let work = self.parts.source.load(config, warmed.take());
            let loaded = match self.serve_while(parked_until, work).await {
                None | Some(Err(LoadError::Closed)) => return false,
                Some(loaded) => loaded.and_then(|loaded| self.loaded(loaded)),
            };
            let error = match loaded {
                Ok(warm) => {
                    let took = self.parts.clock.now().monotonic_ms - started.monotonic_ms;
                    self.parts.metrics.coordinator_loaded(M::KIND, warm, took);
                    self.machine.report(partition, took);
                    return true;
                }
                Err(error) => error,
            };
            error!(%partition, kind = M::KIND, retry_ms = pause.as_millis(), error = &error as &dyn std::error::Error, "a coordinator can't be loaded; its partition is not served");
            let rest = tokio::time::sleep(pause);
            if self.serve_while(parked_until, rest).await.is_none() {
                return false;
            }
            pause = (pause * 2).min(LAST_RELOAD);
        }
    }

    /// Begins to serve with a machine. Answers whether it was got ready before.
    fn loaded(&mut self, loaded: Loaded<M>) -> Result<bool, LoadError> {
        let Loaded { mut machine, warm } = loaded;
        self.parts.outside.prepare(&mut machine);
        let effects = machine
            .loaded(self.parts.clock.now())
            .map_err(ReplayError::from)?;
        self.machine = machine;
        self.carry_out(effects);
        Ok(warm)
    }

    /// Takes one event. False when there is nothing more to do.
    async fn step(&mut self) -> bool {
        let deadline = self.machine.next_deadline();
        let deadline = deadline.map(|at| self.parts.clock.instant(at));
        // Cancel-safe: a call not received stays in the channel, an append's outcome in its receiver, and news where
        // they are.
        tokio::select! {
            biased;
            () = self.parts.cancel.cancelled() => return false,
            settled = oldest(&mut self.appends) => self.settle(settled),
            () = due(deadline) => {
                let effects = self.machine.tick(self.parts.clock.now());
                self.carry_out(effects);
            }
            news = self.parts.outside.news() => {
                let now = self.parts.clock.now();
                let effects = self.parts.outside.tell(&mut self.machine, now, news);
                self.carry_out(effects);
            }
            call = self.calls.recv() => match call {
                Some(call) => self.apply(call),
                None => return false,
            },
        }
        true
    }

    /// Works, and answers requests meanwhile that have waited long enough. `None` if the partition was closed.
    async fn serve_while<F: Future>(
        &mut self,
        parked_until: Instant,
        work: F,
    ) -> Option<F::Output> {
        let parked = tokio::time::sleep_until(parked_until);
        tokio::pin!(work, parked);
        let mut serves = false;
        loop {
            // Cancel-safe: the work is pinned outside, and a call not received stays in the channel.
            tokio::select! {
                biased;
                () = self.parts.cancel.cancelled() => return None,
                done = &mut work => return Some(done),
                () = &mut parked, if !serves => serves = true,
                call = self.calls.recv(), if serves => self.apply(call?),
            }
        }
    }

    fn apply(&mut self, call: Call<M>) {
        let now = self.parts.clock.now();
        match call {
            Call::Immediate(act) => act(&mut self.machine, now),
            Call::Answered { act, reply } => {
                let token = ReplyToken(self.next_token);
                self.next_token += 1;
                self.waiting.insert(token, reply);
                let effects = act(&mut self.machine, now, token);
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
                let now = self.parts.clock.now();
                let effects = self.machine.appended(now, id, outcome);
                self.carry_out(effects);
            }
            Settled::Unknown => {
                // The log failed or closed. Only its next opening tells what it holds.
                warn!(partition = %self.parts.source.partition(), kind = M::KIND, "a coordinator stopped: the outcome of a write is unknown");
                self.unload();
            }
        }
    }

    fn carry_out(&mut self, effects: Vec<M::Effect>) {
        for effect in effects {
            match self.parts.outside.carry_out(effect) {
                Done::Reply(token, reply) => {
                    if let Some(waiter) = self.waiting.remove(&token) {
                        // Whoever asked may have hung up.
                        let _ = waiter.send(reply);
                    }
                }
                Done::Appending(id, outcome) => self.appends.push_back((id, outcome)),
                Done::Nothing => {}
            }
        }
    }

    fn unload(&mut self) {
        self.appends.clear();
        self.parts.outside.give_up();
        let effects = self.machine.unload(self.parts.clock.now());
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

#[cfg(test)]
mod tests;
