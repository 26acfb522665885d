//! The task that owns state and store. It takes all requests that wait, answers the questions among them, decides the
//! others one after the other in memory, writes one batch, and answers when that is durable (group commit).
//!
//! A failed batch makes memory and store differ in an unknown way, so the state is thrown away, the store is
//! opened again (which fences the write that may still be under way), and the state is read anew.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;

use tidegate_runtime::SharedClock;
use tidegate_types::BrokerId;
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use super::job::{Job, Pending};
use super::opening::{self, Identity, OpenError, Opened};
use super::overlay::Overlay;
use super::{OpenStore, RandomIds, Shared};
use crate::api::ControllerUnavailable;
use crate::image::ClusterImage;
use crate::state::cleaning::{CleanTopic, TrimPartition};
use crate::state::{Change, Environment, Facts, State};
use crate::store::{StoreError, StoreOpener};

/// Why the controller's task ended.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ControllerExit {
    /// It was asked to.
    #[error("shut down")]
    Shutdown,
    /// Another controller took over.
    #[error("another controller (broker {broker}) took over")]
    Deposed {
        /// The broker it runs on.
        broker: BrokerId,
    },
    /// The stored metadata can't be read. A human must act.
    #[error("the metadata can't be read: {0}")]
    Damaged(Arc<str>),
}

type Jobs = Vec<Box<dyn Job>>;

/// Answers requests until it is shut down or deposed. Run it under a named task.
pub struct ControllerTask {
    opener: Arc<dyn StoreOpener>,
    shared: Arc<Shared>,
    clock: SharedClock,
    random_ids: RandomIds,
    receiver: mpsc::Receiver<Box<dyn Job>>,
    image: watch::Sender<Arc<ClusterImage>>,
    instance: Uuid,
    alive: BTreeSet<BrokerId>,
    opened: Option<Opened>,
}

/// What ends a phase of the task.
enum Turn {
    Reopen,
    Exit(ControllerExit),
}

impl ControllerTask {
    pub(super) async fn open(
        opener: Arc<dyn StoreOpener>,
        shared: Arc<Shared>,
        clock: SharedClock,
        mut random_ids: RandomIds,
        receiver: mpsc::Receiver<Box<dyn Job>>,
        image: watch::Sender<Arc<ClusterImage>>,
    ) -> Result<Self, OpenError> {
        let identity = Identity {
            instance: random_ids(),
            opened_before: false,
            alive: None,
            new_cluster: random_ids(),
            now: clock.wall(),
        };
        let opening = opening::open(opener.as_ref(), &shared.options, &identity);
        let opened = tokio::time::timeout(shared.options.store_timeout, opening)
            .await
            .map_err(|_| OpenError::Unavailable(StoreError::Failed("no answer".into())))??;
        let mut task = Self {
            opener,
            shared,
            clock,
            random_ids,
            receiver,
            image,
            instance: identity.instance,
            alive: BTreeSet::new(),
            opened: None,
        };
        task.enter(opened);
        Ok(task)
    }

    /// Runs until `shutdown` completes or another controller has taken over. Requests in hand then get no
    /// answer, later ones find the controller closed.
    pub async fn run(mut self, shutdown: impl Future<Output = ()> + Send) -> ControllerExit {
        let mut shutdown = pin!(shutdown);
        let exit = loop {
            let turn = match self.opened.take() {
                Some(opened) => self.serve(opened, shutdown.as_mut()).await,
                None => self.reopen(shutdown.as_mut()).await,
            };
            if let Turn::Exit(exit) = turn {
                break exit;
            }
        };
        self.shared.store.store(None);
        self.receiver.close();
        let reason = match exit {
            ControllerExit::Shutdown | ControllerExit::Damaged(_) => ControllerUnavailable::Closed,
            ControllerExit::Deposed { .. } => ControllerUnavailable::Deposed,
        };
        while let Ok(job) = self.receiver.try_recv() {
            job.fail(reason);
        }
        exit
    }

    /// Makes an opened state the present one.
    fn enter(&mut self, mut opened: Opened) {
        let metrics = &self.shared.metrics;
        metrics.openings.inc();
        let shared_store = OpenStore(Arc::clone(&opened.store));
        self.shared.store.store(Some(Arc::new(shared_store)));
        self.publish(&mut opened.state);
        let version = self.image.borrow().version();
        metrics.epoch.set(version.controller_epoch.get());
        tracing::info!(
            controller_epoch = version.controller_epoch.get(),
            topics = opened.state.topic_count(),
            partitions = opened.state.partition_count(),
            "controller opened the metadata"
        );
        self.opened = Some(opened);
    }

    fn publish(&self, state: &mut State) {
        if let Some(image) = state.publish() {
            self.image.send_replace(image);
        }
        let metrics = &self.shared.metrics;
        metrics
            .topics
            .set(i64::try_from(state.topic_count()).unwrap_or(i64::MAX));
        metrics
            .partitions
            .set(i64::try_from(state.partition_count()).unwrap_or(i64::MAX));
    }

    /// Serves requests until the store fails or the end comes.
    async fn serve<S: Future<Output = ()>>(
        &mut self,
        mut opened: Opened,
        mut shutdown: Pin<&mut S>,
    ) -> Turn {
        let turn = loop {
            let mut jobs: Jobs = Vec::new();
            let housekeeping = housekeeping(&opened.state);
            // Cancel-safe: `recv_many` takes nothing if it loses, and the other branches hold nothing.
            tokio::select! {
                biased;
                () = shutdown.as_mut() => break Turn::Exit(ControllerExit::Shutdown),
                count = self.receiver.recv_many(&mut jobs, self.shared.options.batch) => {
                    if count == 0 {
                        break Turn::Exit(ControllerExit::Shutdown);
                    }
                }
                () = std::future::ready(()), if housekeeping.is_some() => {}
            }
            jobs.extend(housekeeping);
            // Whoever asked saw none of these changes answered, so its question may come before all of them; behind
            // them it would wait for the store.
            let (questions, changes): (Jobs, Jobs) =
                jobs.into_iter().partition(|job| job.is_question());
            let mut ended = None;
            for jobs in [questions, changes] {
                if ended.is_none() && !jobs.is_empty() {
                    ended = self.batch(&mut opened, jobs, shutdown.as_mut()).await;
                } else {
                    fail_all(jobs, ControllerUnavailable::StoreUnavailable);
                }
            }
            if let Some(turn) = ended {
                break turn;
            }
        };
        self.alive = opened
            .state
            .brokers()
            .map(|(id, _)| id)
            .filter(|id| opened.state.is_alive(*id))
            .collect();
        self.shared.store.store(None);
        // A store that doesn't answer can't be closed in order; what is durable stays so.
        let _ = tokio::time::timeout(self.shared.options.store_timeout, opened.store.close()).await;
        turn
    }

    /// Decides the jobs and makes the result durable. `None`: go on.
    async fn batch<S: Future<Output = ()>>(
        &mut self,
        opened: &mut Opened,
        mut jobs: Jobs,
        shutdown: Pin<&mut S>,
    ) -> Option<Turn> {
        let started = self.clock.now();
        self.shared
            .metrics
            .batch_commands
            .observe(jobs.len() as f64);
        let mut overlay = Overlay::default();
        let decided = self.decide(opened, &mut jobs, &mut overlay).await;
        if let Err(error) = decided {
            // Nothing was written, but the state in memory has run ahead of the store.
            self.shared.metrics.commits_failed.inc();
            fail_all(jobs, ControllerUnavailable::StoreUnavailable);
            return Some(after_failure(&error));
        }
        if overlay.is_empty() {
            self.publish(&mut opened.state);
            jobs.into_iter().for_each(|job| job.succeed());
            return None;
        }
        let batch = overlay.into_batch();
        let store = Arc::clone(&opened.store);
        let mut jobs = Some(jobs);
        let result = self
            .while_refusing(store.apply(batch), shutdown, || {
                fail_all(
                    jobs.take().unwrap_or_default(),
                    ControllerUnavailable::OutcomeUnknown,
                );
            })
            .await;
        let result = match result {
            Some(result) => result,
            None => {
                fail_all(
                    jobs.take().unwrap_or_default(),
                    ControllerUnavailable::OutcomeUnknown,
                );
                return Some(Turn::Exit(ControllerExit::Shutdown));
            }
        };
        match result {
            Ok(()) => {
                let took = self.clock.now().saturating_duration_since(started);
                self.shared
                    .metrics
                    .commit_seconds
                    .observe(took.as_secs_f64());
                self.publish(&mut opened.state);
                let jobs = jobs.unwrap_or_default();
                jobs.into_iter().for_each(|job| job.succeed());
                None
            }
            Err(error) => {
                self.shared.metrics.commits_failed.inc();
                fail_all(
                    jobs.unwrap_or_default(),
                    ControllerUnavailable::OutcomeUnknown,
                );
                Some(after_failure(&error))
            }
        }
    }

    /// Decides the jobs in order, each on what those before it left.
    async fn decide(
        &mut self,
        opened: &mut Opened,
        jobs: &mut Jobs,
        overlay: &mut Overlay,
    ) -> Result<(), StoreError> {
        let now = self.clock.wall();
        for job in jobs {
            let mut facts = Facts::default();
            loop {
                let needs = job.needs(&opened.state, &facts);
                if needs.is_empty() {
                    break;
                }
                for need in needs {
                    let fact = overlay.resolve(opened.store.as_ref(), &need).await?;
                    facts.insert(need, fact);
                }
            }
            let mut environment = Environment {
                now,
                random_id: &mut self.random_ids,
            };
            let changes = job.decide(&opened.state, &facts, &mut environment);
            for change in &changes {
                opened.state.absorb(change).map_err(|contradiction| {
                    StoreError::Damaged(format!("{}: {contradiction}", job.name()).into())
                })?;
                overlay.put(change);
                self.count(change);
            }
        }
        Ok(())
    }

    fn count(&self, change: &Change) {
        let metrics = &self.shared.metrics;
        match change {
            Change::Segment(_, Some(_)) => {
                metrics.segments_committed.inc();
            }
            Change::Dropped(_, _, true) => {
                metrics.objects_dropped.inc();
            }
            Change::Dropped(_, _, false) => {
                metrics.objects_forgotten.inc();
            }
            Change::Topic(..)
            | Change::DeletedTopic(..)
            | Change::Partition(..)
            | Change::Broker(..)
            | Change::Configs(..)
            | Change::GroupConfigs(..)
            | Change::Quotas(..)
            | Change::ProducerIds(..)
            | Change::Segment(_, None)
            | Change::Object(..)
            | Change::Alive(..) => {}
        }
    }

    /// Waits for the store; from the time-out on, calls `give_up` once and refuses what comes in. `None` if
    /// the shutdown came first.
    async fn while_refusing<T, S: Future<Output = ()>>(
        &mut self,
        work: impl Future<Output = T>,
        mut shutdown: Pin<&mut S>,
        give_up: impl FnOnce(),
    ) -> Option<T> {
        let mut work = pin!(work);
        // Cancel-safe: `work` is only polled by reference, and a received job is failed at once.
        tokio::select! {
            biased;
            done = work.as_mut() => return Some(done),
            () = shutdown.as_mut() => return None,
            () = tokio::time::sleep(self.shared.options.store_timeout) => {}
        }
        tracing::warn!("the metadata store doesn't answer; requests are refused until it does");
        give_up();
        loop {
            tokio::select! {
                biased;
                done = work.as_mut() => return Some(done),
                () = shutdown.as_mut() => return None,
                job = self.receiver.recv() => match job {
                    Some(job) => {
                        self.shared.metrics.refused.inc();
                        job.fail(ControllerUnavailable::StoreUnavailable);
                    }
                    None => return None,
                },
            }
        }
    }

    /// Opens the store again, with growing pauses, refusing requests meanwhile.
    async fn reopen<S: Future<Output = ()>>(&mut self, mut shutdown: Pin<&mut S>) -> Turn {
        let (mut pause, longest) = self.shared.options.reopen_backoff;
        loop {
            let identity = Identity {
                instance: self.instance,
                opened_before: true,
                alive: Some(self.alive.clone()),
                new_cluster: (self.random_ids)(),
                now: self.clock.wall(),
            };
            let opener = Arc::clone(&self.opener);
            let shared = Arc::clone(&self.shared);
            let attempt = async move {
                tokio::time::sleep(pause).await;
                tokio::time::timeout(
                    shared.options.store_timeout,
                    opening::open(opener.as_ref(), &shared.options, &identity),
                )
                .await
                .unwrap_or_else(|_| {
                    Err(OpenError::Unavailable(StoreError::Failed(
                        "no answer".into(),
                    )))
                })
            };
            let mut attempt = pin!(attempt);
            let result = loop {
                // Cancel-safe: `attempt` is only polled by reference, and a received job is failed at once.
                tokio::select! {
                    biased;
                    () = shutdown.as_mut() => return Turn::Exit(ControllerExit::Shutdown),
                    result = attempt.as_mut() => break result,
                    job = self.receiver.recv() => match job {
                        Some(job) => {
                            self.shared.metrics.refused.inc();
                            job.fail(ControllerUnavailable::StoreUnavailable);
                        }
                        None => return Turn::Exit(ControllerExit::Shutdown),
                    },
                }
            };
            match result {
                Ok(opened) => {
                    self.enter(opened);
                    return Turn::Reopen;
                }
                Err(error @ OpenError::Unavailable(_)) => {
                    tracing::warn!(%error, "the metadata store can't be opened again yet");
                    pause = longest.min(pause * 2);
                }
                Err(OpenError::Deposed { broker }) => {
                    return Turn::Exit(ControllerExit::Deposed { broker });
                }
                Err(error @ (OpenError::NewerFormat { .. } | OpenError::Damaged(_))) => {
                    return Turn::Exit(ControllerExit::Damaged(error.to_string().into()));
                }
            }
        }
    }
}

fn fail_all(jobs: Jobs, reason: ControllerUnavailable) {
    for job in jobs {
        job.fail(reason);
    }
}

/// What follows a failure of the store. Fencing isn't the end yet: a store can report our own write, whose
/// answer was lost, as another's. The controller epoch read at the next opening tells.
fn after_failure(error: &StoreError) -> Turn {
    match error {
        StoreError::Fenced | StoreError::Failed(_) => {
            tracing::warn!(%error, "the metadata store failed; opening it again");
            Turn::Reopen
        }
        StoreError::Damaged(what) => Turn::Exit(ControllerExit::Damaged(Arc::clone(what))),
    }
}

/// The next bounded step of dropping references, if any are left to drop.
fn housekeeping(state: &State) -> Option<Box<dyn Job>> {
    if let Some(partition) = state.next_trim() {
        return Some(Box::new(Pending::new(TrimPartition(partition)).0));
    }
    let topic = state.next_cleaning()?;
    Some(Box::new(Pending::new(CleanTopic(topic)).0))
}
