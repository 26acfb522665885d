//! Opening and closing logs as the cluster's image says.
//!
//! Closing comes first and waits for nothing, so that two brokers that swap partitions never wait for each other.
//! Opening runs beside: a log that can't reach the store yet holds up neither the others nor the next image.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream, SelectAll};
use futures::{FutureExt, StreamExt};
use tidegate_metadata::{ClusterImage, ImageVersion, PartitionState};
use tidegate_partition_log::RecoveredBatch;
use tidegate_partition_log::{LogOpener, LogSet, OpenError, OpenRequest, PartitionLog};
use tidegate_types::{BrokerId, LeaderEpoch, PartitionId, PartitionIndex};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use super::start::Readiness;
use crate::broker::Broker;
use crate::catalog::Catalog;

/// Logs opened from the store at once.
const CONCURRENT: usize = 64;
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(5);
/// A controller that doesn't answer is asked again after this.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// What came of one opening.
struct Opened {
    partition: PartitionId,
    leader_epoch: LeaderEpoch,
    /// `None`: it isn't led here any more, or can't be opened; logged already.
    log: Option<Arc<PartitionLog>>,
}

/// What an image gives to this broker, beside what the controller knows of it.
type Asked = ((PartitionId, LeaderEpoch), Option<PartitionState>);

/// Keeps the set of open logs equal to what this broker leads.
pub(super) struct Reconciler {
    pub(super) opener: LogOpener,
    pub(super) broker: Arc<Broker>,
    pub(super) reconciled: watch::Sender<ImageVersion>,
    /// Told when only a new life of this broker can go on.
    pub(super) stage: watch::Sender<Readiness>,
}

/// Openings under way, and the leader epoch that each is for.
#[derive(Default)]
struct Openings {
    running: SelectAll<BoxStream<'static, Opened>>,
    wanted: HashMap<PartitionId, LeaderEpoch>,
}

impl Reconciler {
    /// Follows the images until cancelled.
    pub(super) async fn follow(self, cancel: CancellationToken) {
        let mut images = self.broker.images.clone();
        let mut openings = Openings::default();
        let turns = Arc::new(Semaphore::new(CONCURRENT));
        loop {
            let image = images.borrow_and_update().clone();
            let version = image.version();
            self.apply(&image, &mut openings, &turns);
            loop {
                if openings.wanted.is_empty() {
                    self.reconciled.send_replace(version);
                }
                // Cancel-safe: an opening that isn't done stays in the set. Each log serves as soon as it is open.
                tokio::select! {
                    () = cancel.cancelled() => return,
                    changed = images.changed() => {
                        if changed.is_err() {
                            return;
                        }
                        break;
                    }
                    Some(opened) = openings.running.next(), if !openings.running.is_empty() => {
                        self.take_in(opened, &mut openings);
                        while let Some(Some(more)) = openings.running.next().now_or_never() {
                            self.take_in(more, &mut openings);
                        }
                        let catalog = self.broker.catalog.load_full();
                        self.broker.groups.opened(&catalog);
                        self.broker.transactions.opened(&catalog);
                        // Those who wait for a coordinator find it now.
                        self.broker.handover.settled();
                    }
                }
            }
        }
    }

    /// Closes what isn't led any more, and begins to open what is led now.
    fn apply(&self, image: &Arc<ClusterImage>, openings: &mut Openings, turns: &Arc<Semaphore>) {
        let broker = &self.broker;
        let catalog = Arc::new(broker.catalog.load().next(
            image.clone(),
            &broker.options.topic_defaults,
            broker.id,
        ));
        broker.catalog.store(catalog.clone());
        let led = led_by(image, broker.id);
        for log in broker.logs.all() {
            if is_over(image, broker.id, &log) {
                debug!(partition = %log.id(), topic = %log.topic(), "log closed");
                broker.logs.remove(log.id());
                broker.groups.closed(log.id());
                broker.transactions.closed(log.id());
            }
        }
        let controller_epoch = image.version().controller_epoch;
        broker.handover.controller.saw(controller_epoch);
        broker.handover.retain(image, broker.id);
        openings
            .wanted
            .retain(|partition, epoch| led.get(partition) == Some(epoch));
        let mut missing = Vec::new();
        for (partition, epoch) in led {
            if let Some(log) = broker.logs.get(partition) {
                if let Some(topic) = image.topic_by_id(partition.topic) {
                    log.set_durability(catalog.settings(topic).durability);
                }
                if !log.takes_appends() {
                    broker.handover.unseal_for(&log, controller_epoch);
                }
            } else if openings.wanted.get(&partition) != Some(&epoch) {
                openings.wanted.insert(partition, epoch);
                missing.push((partition, epoch));
            }
        }
        if !missing.is_empty() {
            let opening = Opening {
                broker: broker.clone(),
                opener: self.opener.clone(),
                catalog: catalog.clone(),
                turns: turns.clone(),
                stage: self.stage.clone(),
            };
            openings.running.push(Arc::new(opening).run(missing));
        }
        broker.groups.opened(&catalog);
        broker.transactions.opened(&catalog);
        // Also for those who wait for this image only.
        broker.handover.settled();
    }

    fn take_in(&self, opened: Opened, openings: &mut Openings) {
        // Otherwise an image has come since that wants something else.
        if openings.wanted.get(&opened.partition) != Some(&opened.leader_epoch) {
            return;
        }
        openings.wanted.remove(&opened.partition);
        if let Some(log) = opened.log {
            self.broker.logs.insert(log);
        }
    }
}

/// Whether a log's leadership has ended: its topic is gone, somebody else leads, or this broker leads anew, having
/// been replaced meanwhile. A leader that is only hidden, because the controller doesn't hear this broker, still owns
/// what its WAL holds: closing the log would give that up.
fn is_over(image: &ClusterImage, me: BrokerId, log: &PartitionLog) -> bool {
    let now = image
        .topic_by_id(log.id().topic)
        .and_then(|topic| topic.partition(log.id().index));
    match now {
        None => true,
        Some(now) => {
            now.leader_epoch != log.leader_epoch() || now.leader.is_some_and(|leader| leader != me)
        }
    }
}

/// What the image says that a broker leads.
fn led_by(image: &ClusterImage, broker: BrokerId) -> HashMap<PartitionId, LeaderEpoch> {
    let mut led = HashMap::new();
    for topic in image.topics() {
        for (index, partition) in (0u32..).zip(&topic.partitions) {
            if partition.leader != Some(broker) {
                continue;
            }
            if let Ok(index) = PartitionIndex::new(index) {
                let id = PartitionId {
                    topic: topic.id,
                    index,
                };
                led.insert(id, partition.leader_epoch);
            }
        }
    }
    led
}

/// One set of partitions that an image has newly given to this broker.
struct Opening {
    broker: Arc<Broker>,
    opener: LogOpener,
    catalog: Arc<Catalog>,
    turns: Arc<Semaphore>,
    stage: watch::Sender<Readiness>,
}

impl Opening {
    /// What became of each, as soon as it is known.
    fn run(
        self: Arc<Self>,
        missing: Vec<(PartitionId, LeaderEpoch)>,
    ) -> BoxStream<'static, Opened> {
        let opening = self.clone();
        stream::once(async move { opening.states(missing).await })
            .flat_map(stream::iter)
            .map(move |(missing, state)| self.clone().one(missing, state))
            .buffer_unordered(CONCURRENT)
            .boxed()
    }

    /// What the controller says of them.
    async fn states(&self, missing: Vec<(PartitionId, LeaderEpoch)>) -> Vec<Asked> {
        let ids: Vec<PartitionId> = missing.iter().map(|(id, _)| *id).collect();
        loop {
            match self.broker.controller.partition_states(ids.clone()).await {
                Ok(states) => return missing.into_iter().zip(states).collect(),
                Err(error) => {
                    warn!(
                        error = &error as &dyn std::error::Error,
                        "the state of new partitions can't be read yet"
                    );
                    tokio::time::sleep(ASK_AGAIN).await;
                }
            }
        }
    }

    async fn one(
        self: Arc<Self>,
        (partition, leader_epoch): (PartitionId, LeaderEpoch),
        state: Option<PartitionState>,
    ) -> Opened {
        let log = match state {
            Some(state)
                if state.leader == Some(self.broker.id) && state.leader_epoch == leader_epoch =>
            {
                self.open(state).await
            }
            _ => None,
        };
        Opened {
            partition,
            leader_epoch,
            log,
        }
    }

    /// From the copy that a handover made, or else from the store.
    async fn open(&self, state: PartitionState) -> Option<Arc<PartitionLog>> {
        let partition = state.partition;
        match self.broker.handover.activate(&state).await {
            Some(Ok(log)) => return Some(log),
            Some(Err(error)) => {
                warn!(%partition, error = &error as &dyn std::error::Error, "the copy of a handover can't be used; opening from the store");
            }
            None => {}
        }
        let topic = self.catalog.image.topic_by_id(partition.topic)?;
        let request = OpenRequest {
            topic: topic.name.clone(),
            durability: self.catalog.settings(topic).durability,
            recovered: Vec::new(),
            state,
        };
        let _turn = self.turns.acquire().await.ok()?;
        match opened(&self.opener, request).await {
            Ok(log) => Some(log),
            // The copy of a handover is lost to this life; the local WAL has it, and only a start reads that.
            Err(error @ OpenError::Missing { .. }) => {
                let cause =
                    format!("what a handover left in the write-ahead log is needed: {error}");
                self.stage.send_replace(Readiness::Fenced { cause });
                None
            }
            Err(_) => None,
        }
    }
}

/// Opens a log; one that can't reach the store is tried again, one that is damaged stays closed.
async fn opened(opener: &LogOpener, request: OpenRequest) -> Result<Arc<PartitionLog>, OpenError> {
    let partition = request.state.partition;
    let mut pause = FIRST_RETRY;
    loop {
        match opener.open(request.clone()).await {
            Ok(log) => return Ok(log),
            Err(error) if error.is_retriable() => {
                warn!(%partition, error = &error as &dyn std::error::Error, "partition can't be opened yet");
            }
            Err(error) => {
                error!(%partition, error = &error as &dyn std::error::Error, "partition can't be opened and stays offline");
                return Err(error);
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_RETRY);
    }
}

/// Opens what leadership was taken of at the start, with what the local WAL holds of it.
pub(super) async fn open_all(
    opener: &LogOpener,
    logs: &LogSet,
    catalog: &Catalog,
    states: Vec<PartitionState>,
    mut recovered: HashMap<PartitionId, Vec<RecoveredBatch>>,
) {
    let requests: Vec<OpenRequest> = states
        .into_iter()
        .filter_map(|state| {
            let topic = catalog.image.topic_by_id(state.partition.topic)?;
            Some(OpenRequest {
                topic: topic.name.clone(),
                durability: catalog.settings(topic).durability,
                recovered: recovered.remove(&state.partition).unwrap_or_default(),
                state,
            })
        })
        .collect();
    let mut running = stream::iter(requests)
        .map(|request| opened(opener, request))
        .buffer_unordered(CONCURRENT);
    while let Some(log) = running.next().await {
        // One that can't be opened was told of.
        if let Ok(log) = log {
            logs.insert(log);
        }
    }
}
