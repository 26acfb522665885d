//! Opening and closing logs as the cluster's image says.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use tidegate_metadata::{ClusterImage, ImageVersion, PartitionState};
use tidegate_partition_log::{LogOpener, LogSet, OpenError, OpenRequest, RecoveredBatch};
use tidegate_types::{BrokerId, PartitionId, PartitionIndex};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use crate::broker::Broker;
use crate::catalog::Catalog;

/// Logs opened at once.
const CONCURRENT: usize = 64;
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// Keeps the set of open logs equal to what this broker leads.
pub(super) struct Reconciler {
    pub(super) opener: LogOpener,
    pub(super) logs: Arc<LogSet>,
    pub(super) broker: BrokerId,
}

impl Reconciler {
    /// Opens logs with what the local WAL holds of them. A log that can't reach the store is tried again; one that is
    /// damaged stays closed, and the others go on.
    pub(super) async fn open_all(
        &self,
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
        let mut opened = stream::iter(requests)
            .map(async |request| (request.state.partition, self.open(request).await))
            .buffer_unordered(CONCURRENT);
        while let Some((partition, opened)) = opened.next().await {
            match opened {
                Ok(log) => {
                    self.logs.insert(log);
                }
                Err(error) => {
                    error!(partition = %partition, error = &error as &dyn std::error::Error, "partition can't be opened and stays offline");
                }
            }
        }
    }

    async fn open(
        &self,
        request: OpenRequest,
    ) -> Result<Arc<tidegate_partition_log::PartitionLog>, OpenError> {
        let mut pause = FIRST_RETRY;
        loop {
            match self.opener.open(request.clone()).await {
                Err(error) if error.is_retriable() => {
                    warn!(partition = %request.state.partition, error = &error as &dyn std::error::Error, "partition can't be opened yet");
                }
                opened => return opened,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_RETRY);
        }
    }

    /// Follows the images until cancelled.
    pub(super) async fn follow(
        self,
        broker: Arc<Broker>,
        mut images: watch::Receiver<Arc<ClusterImage>>,
        reconciled: watch::Sender<ImageVersion>,
        cancel: CancellationToken,
    ) {
        loop {
            let image = images.borrow_and_update().clone();
            // Cancel-safe: a log that is being opened is opened again at the next start.
            let done = tokio::select! {
                () = cancel.cancelled() => return,
                done = self.apply(&broker, &image) => done,
            };
            if !done {
                tokio::time::sleep(LAST_RETRY / 10).await;
                images.mark_changed();
                continue;
            }
            reconciled.send_replace(image.version());
            tokio::select! {
                () = cancel.cancelled() => return,
                changed = images.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Answers whether everything was done.
    async fn apply(&self, broker: &Broker, image: &Arc<ClusterImage>) -> bool {
        let catalog = Arc::new(Catalog::new(
            image.clone(),
            &broker.options.topic_defaults,
            self.broker,
        ));
        broker.catalog.store(catalog.clone());
        let mut led = HashSet::new();
        let mut missing = Vec::new();
        for topic in image.topics() {
            let durability = catalog.settings(topic).durability;
            for (index, partition) in (0u32..).zip(&topic.partitions) {
                if partition.leader != Some(self.broker) {
                    continue;
                }
                let Ok(index) = PartitionIndex::new(index) else {
                    continue;
                };
                let id = PartitionId {
                    topic: topic.id,
                    index,
                };
                led.insert(id);
                match self.logs.get(id) {
                    Some(log) => log.set_durability(durability),
                    None => missing.push(id),
                }
            }
        }
        for log in self.logs.all() {
            if !led.contains(&log.id()) {
                debug!(partition = %log.id(), topic = %log.topic(), "log closed");
                self.logs.remove(log.id());
                broker.groups.closed(log.id());
            }
        }
        let done = missing.is_empty() || self.open_missing(broker, &catalog, missing).await;
        broker.groups.opened(&catalog);
        done
    }

    /// Answers whether the controller was reached.
    async fn open_missing(
        &self,
        broker: &Broker,
        catalog: &Catalog,
        missing: Vec<PartitionId>,
    ) -> bool {
        let states = match broker.controller.partition_states(missing).await {
            Ok(states) => states
                .into_iter()
                .flatten()
                .filter(|s| s.leader == Some(self.broker))
                .collect(),
            Err(error) => {
                warn!(
                    error = &error as &dyn std::error::Error,
                    "the state of new partitions can't be read yet"
                );
                return false;
            }
        };
        self.open_all(catalog, states, HashMap::new()).await;
        true
    }
}
