//! What the active controller does beside the metadata's state machine: it holds the brokers' sessions, tells
//! the living from the dead, carries out moves, fails dead brokers over, drains and balances.
//!
//! It decides nothing that safety rests on. Whether a change takes place is decided by
//! [`tidegate_metadata`], each by the state it was asked under; whether a broker may acknowledge, by the broker's
//! own seal, WAL and fence. So all of this may be dropped at any point, done twice, or done by two conductors of
//! two controllers at once; orders carry the controller epoch. What it wants is stored (targets of partitions,
//! draining brokers), so the next controller's conductor goes on with it.
//!
//! Tasks, all ended by [`ConductorHandle::stop`]: one per session (receives heartbeats), `liveness`, `wishes`,
//! `mover`, `move-commits`, `planner`, one per batch of moves, per failed batch, and per dead broker.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_metadata::{ClusterImage, ControllerHandle, Endpoint};
use tidegate_runtime::{OnExit, SharedClock, StillRunning, Tasks};
use tidegate_types::{BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, PartitionId, TopicName};
use tidegate_wal::object::ObjectLogStore;
use tokio::sync::Notify;

use crate::orders::{BrokerOrders, OrderError, Peers};

mod admin;
pub mod balance;
pub mod drain;
mod failover;
mod liveness;
mod metrics;
mod moves;
mod options;
mod planner;
mod sessions;

#[cfg(test)]
mod tests;

pub use metrics::ConductorMetrics;
pub use options::{ConductorOptions, MoveOptions};

use liveness::{Brokers, Failovers};
use moves::Moves;
use moves::commit::Committer;
use moves::wishes::Wishes;
use planner::Planner;
use sessions::Sessions;

/// What all tasks of a conductor share.
pub(crate) struct Core {
    pub(crate) handle: ControllerHandle,
    pub(crate) peers: Arc<dyn Peers>,
    pub(crate) fencing: Arc<dyn ObjectLogStore>,
    pub(crate) options: ConductorOptions,
    pub(crate) clock: SharedClock,
    pub(crate) tasks: Tasks,
    pub(crate) metrics: ConductorMetrics,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) brokers: Brokers,
    pub(crate) failovers: Failovers,
    pub(crate) moves: Moves,
    pub(crate) wishes: Wishes,
    pub(crate) committer: Committer,
    pub(crate) planner: Planner,
    /// Rung when a broker is known to be dead before its time is over.
    pub(crate) died: Notify,
    orders: AtomicU64,
}

impl Core {
    pub(crate) fn image(&self) -> Arc<ClusterImage> {
        Arc::clone(&self.handle.image().borrow())
    }

    pub(crate) fn controller_epoch(&self) -> ControllerEpoch {
        self.handle.image().borrow().version().controller_epoch
    }

    /// A number above all that were given out before, by this controller and by those before it.
    pub(crate) fn next_order(&self) -> u64 {
        let count = self.orders.fetch_add(1, Ordering::Relaxed) & u64::from(u32::MAX);
        (self.controller_epoch().get() << 32) | count
    }

    /// Under which registration a broker is known.
    pub(crate) fn registration(&self, broker: BrokerId) -> Option<BrokerEpoch> {
        self.image().broker(broker).map(|one| one.broker_epoch)
    }

    pub(crate) fn endpoint(&self, broker: BrokerId) -> Option<Endpoint> {
        self.image().broker(broker)?.internal.clone()
    }

    /// Gives orders to a broker; `None` if it isn't registered or has no endpoint for other brokers.
    pub(crate) fn orders(&self, broker: BrokerId) -> Option<Arc<dyn BrokerOrders>> {
        let endpoint = self.endpoint(broker)?;
        Some(self.peers.orders(broker, &endpoint))
    }

    /// Whether a broker can be given partitions.
    pub(crate) fn takes_partitions(&self, broker: BrokerId) -> bool {
        let views = self.brokers.all();
        views
            .get(&broker)
            .is_some_and(|view| view.takes_partitions())
    }

    /// Whether the partition may still be led under this leader epoch. A leader that isn't alive isn't named, so
    /// only the epoch tells.
    pub(crate) fn is_led(
        &self,
        partition: PartitionId,
        broker: BrokerId,
        leader_epoch: LeaderEpoch,
    ) -> bool {
        let image = self.image();
        let topic = image.topic_by_id(partition.topic);
        topic
            .and_then(|topic| topic.partition(partition.index))
            .is_some_and(|one| {
                one.leader_epoch == leader_epoch && one.leader.is_none_or(|leader| leader == broker)
            })
    }

    /// The topic's name; its id while it has none.
    pub(crate) fn topic_name(&self, partition: PartitionId) -> TopicName {
        let image = self.image();
        match image.topic_by_id(partition.topic) {
            Some(topic) => topic.name.clone(),
            None => TopicName::new(&partition.topic.uuid().to_string())
                .expect("the text of an id is a valid name"),
        }
    }

    /// Runs until done, or until the conductor stops.
    pub(crate) fn spawn(&self, name: &str, work: impl Future<Output = ()> + Send + 'static) {
        let token = self.tasks.token().clone();
        self.tasks.spawn(name, OnExit::Expected, async move {
            // What is dropped here is taken up by the next controller: see the module's page.
            tokio::select! {
                biased;
                () = token.cancelled() => {}
                () = work => {}
            }
        });
    }

    /// Like [`Self::spawn`], for what mustn't end before the conductor does: a panic stops the process.
    fn spawn_vital(&self, name: &str, work: impl Future<Output = ()> + Send + 'static) {
        let token = self.tasks.token().clone();
        self.tasks.spawn(name, OnExit::StopProcess, async move {
            let ended = tokio::select! {
                biased;
                () = token.cancelled() => false,
                () = work => true,
            };
            if ended {
                // The controller's picture or queue is gone: there is nothing to conduct any more.
                token.cancel();
            }
        });
    }
}

/// Waits so long for an answer.
pub(crate) async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, OrderError>>,
) -> Result<T, OrderError> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(OrderError::TimedOut),
    }
}

/// The controller's part beside the metadata.
pub struct Conductor;

impl Conductor {
    /// Starts all tasks, as children of `tasks`. `controller` must be running, or be run soon. `fencing` is where
    /// brokers in `object` mode write their WAL.
    pub fn start(
        controller: ControllerHandle,
        peers: Arc<dyn Peers>,
        fencing: Arc<dyn ObjectLogStore>,
        options: ConductorOptions,
        clock: SharedClock,
        tasks: &Tasks,
        metrics: ConductorMetrics,
    ) -> ConductorHandle {
        let (wishes, wish_queue) = Wishes::new();
        let (committer, groups) = Committer::new();
        let core = Arc::new(Core {
            handle: controller,
            peers,
            fencing,
            planner: Planner::new(options.balance.enabled),
            options,
            clock,
            tasks: tasks.child("conductor"),
            metrics,
            sessions: Arc::default(),
            brokers: Brokers::default(),
            failovers: Failovers::default(),
            moves: Moves::default(),
            wishes,
            committer,
            died: Notify::new(),
            orders: AtomicU64::new(1),
        });
        core.spawn_vital("liveness", liveness::watch(Arc::clone(&core)));
        core.spawn_vital("wishes", moves::wishes::keep(Arc::clone(&core), wish_queue));
        core.spawn_vital("mover", moves::wishes::drive(Arc::clone(&core)));
        core.spawn_vital(
            "move-commits",
            moves::commit::run(Arc::clone(&core), groups),
        );
        core.spawn_vital("planner", planner::run(Arc::clone(&core)));
        let sessions = Arc::clone(&core.sessions);
        let token = core.tasks.token().clone();
        core.tasks.spawn("farewell", OnExit::Expected, async move {
            token.cancelled().await;
            sessions.close();
        });
        ConductorHandle { core }
    }
}

/// Asks the conductor. Cheap to clone.
#[derive(Clone)]
pub struct ConductorHandle {
    core: Arc<Core>,
}

impl ConductorHandle {
    /// Ends all sessions without a word, and all tasks: this controller was deposed, or stops. What is under way
    /// is left as it is for the next controller. Cancelling the tasks it was started under does the same.
    ///
    /// # Errors
    /// If some tasks still run after `timeout`.
    pub async fn stop(&self, timeout: Duration) -> Result<(), StillRunning> {
        self.core.sessions.close();
        self.core.tasks.shutdown(timeout).await
    }
}
