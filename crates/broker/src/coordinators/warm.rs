//! Getting a machine ready for a partition that this broker is about to lead: it reads along in the copy that a move
//! makes, while the former leader still serves.
//!
//! A machine that was read along is only a head start. Whatever goes wrong leaves it behind, or leaves none, and the
//! new leader reads more of the log. What it has taken in is durable where the partition was led, so it is in the log
//! whether the move takes place or not.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_coordinator::transactions::{TransactionConfig, TransactionCoordinator};
use tidegate_coordinator::{GroupConfig, GroupCoordinator};
use tidegate_partition_log::{IncomingLog, LogReader};
use tidegate_runtime::{OnExit, Tasks};
use tidegate_types::{Offset, TopicName};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::load::READ_BYTES;
use super::{Machine, Replica};
use crate::catalog::{OFFSETS_TOPIC, TRANSACTIONS_TOPIC};

const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(5);
/// The longest that a move is held up by a history that isn't read yet. The former leader serves meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);

/// Makes machines for partitions that are about to be led here.
#[derive(Clone)]
pub(crate) struct Replicas {
    pub(crate) groups: GroupConfig,
    pub(crate) transactions: TransactionConfig,
    pub(crate) reader: LogReader,
    pub(crate) tasks: Tasks,
}

/// A machine that reads along, of either kind.
pub(crate) enum Warm {
    Groups(Warming<GroupCoordinator>),
    Transactions(Warming<TransactionCoordinator>),
}

impl Replicas {
    /// Begins to read along if the topic is one of a coordinator's. Ends with `cancel`.
    pub(crate) fn follow(
        &self,
        topic: &TopicName,
        log: &Arc<IncomingLog>,
        cancel: &CancellationToken,
    ) -> Option<Warm> {
        match topic.as_str() {
            OFFSETS_TOPIC => Some(Warm::Groups(self.begin(&self.groups, log, cancel))),
            TRANSACTIONS_TOPIC => {
                let warming = self.begin(&self.transactions, log, cancel);
                Some(Warm::Transactions(warming))
            }
            _ => None,
        }
    }

    fn begin<M: Machine>(
        &self,
        config: &M::Config,
        log: &Arc<IncomingLog>,
        cancel: &CancellationToken,
    ) -> Warming<M> {
        let grown = Arc::new(Notify::new());
        let reached = watch::Sender::new(Reached::default());
        let stop = cancel.child_token();
        let (sender, machine) = oneshot::channel();
        let warming = Warming {
            grown: grown.clone(),
            reached: reached.subscribe(),
            stop: stop.clone(),
            machine: Mutex::new(Some(machine)),
        };
        let reading = Reading {
            log: log.clone(),
            reader: self.reader.clone(),
            grown,
            reached,
            stop,
        };
        let replica = Replica::<M>::new(config, log.log_start());
        self.tasks.spawn("warm-up", OnExit::Expected, async move {
            if let Some(replica) = reading.run(replica).await {
                // Nobody wants it if the move didn't take place.
                let _ = sender.send(replica);
            }
        });
        warming
    }
}

impl Warm {
    /// The copy has more.
    pub(crate) fn grown(&self) {
        match self {
            Self::Groups(warming) => warming.grown.notify_one(),
            Self::Transactions(warming) => warming.grown.notify_one(),
        }
    }

    /// Waits until all below `end` was taken in, or there is no use in waiting.
    pub(crate) async fn reached(&self, end: Offset) {
        let reached = match self {
            Self::Groups(warming) => &warming.reached,
            Self::Transactions(warming) => &warming.reached,
        };
        let mut reached = reached.clone();
        let there = reached.wait_for(|reached| reached.stuck || reached.next >= end);
        // After an error there is nothing to wait for either.
        let _ = timeout(PATIENCE, there).await;
    }
}

/// How far a machine is.
#[derive(Debug, Clone, Copy, Default)]
struct Reached {
    next: Offset,
    /// It can't get on now.
    stuck: bool,
}

/// A machine that reads along.
pub(crate) struct Warming<M> {
    grown: Arc<Notify>,
    reached: watch::Receiver<Reached>,
    stop: CancellationToken,
    machine: Mutex<Option<oneshot::Receiver<Replica<M>>>>,
}

impl<M: Machine> Warming<M> {
    /// Ends the reading: the machine as it is then. `None` if it was taken before.
    pub(crate) fn take(&self) -> Option<Warmed<M>> {
        let machine = self.machine.lock().take()?;
        self.stop.cancel();
        Some(Warmed(machine))
    }
}

/// A machine that stops reading along.
pub(crate) struct Warmed<M>(oneshot::Receiver<Replica<M>>);

impl<M> Warmed<M> {
    /// The machine, as soon as it has taken in what it was at. `None` if it failed.
    pub(super) async fn replica(self) -> Option<Replica<M>> {
        self.0.await.ok()
    }
}

struct Reading {
    log: Arc<IncomingLog>,
    reader: LogReader,
    grown: Arc<Notify>,
    reached: watch::Sender<Reached>,
    stop: CancellationToken,
}

impl Reading {
    /// Reads along until stopped. `None` if the log can't be understood.
    async fn run<M: Machine>(self, mut replica: Replica<M>) -> Option<Replica<M>> {
        let partition = self.log.id();
        let mut pause = FIRST_RETRY;
        loop {
            let next = replica.next();
            // Cancel-safe: a read that is given up has changed nothing.
            let read = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Some(replica),
                read = self.log.read(&self.reader, next, READ_BYTES) => read,
            };
            match read {
                Ok(read) => {
                    pause = FIRST_RETRY;
                    let ended = read.batches.is_empty();
                    let advanced = replica.advanced(read.batches).await;
                    replica = match advanced {
                        Ok(replica) => replica,
                        Err(error) => {
                            debug!(%partition, kind = M::KIND, error = &error as &dyn std::error::Error, "a coordinator can't be got ready");
                            return None;
                        }
                    };
                    replica.skip_to(read.next);
                    let next = replica.next();
                    self.reached.send_replace(Reached {
                        next,
                        stuck: ended && next < self.log.end(),
                    });
                    if !ended {
                        continue;
                    }
                    // Cancel-safe: the bell keeps one permit.
                    tokio::select! {
                        () = self.stop.cancelled() => {}
                        () = self.grown.notified() => {}
                    }
                }
                Err(error) => {
                    debug!(%partition, kind = M::KIND, error = &error as &dyn std::error::Error, "a coordinator that is got ready can't read on yet");
                    self.reached.send_replace(Reached { next, stuck: true });
                    tokio::select! {
                        () = self.stop.cancelled() => {}
                        () = tokio::time::sleep(pause) => {}
                    }
                    pause = (pause * 2).min(LAST_RETRY);
                }
            }
        }
    }
}
