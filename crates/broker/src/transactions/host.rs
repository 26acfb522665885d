//! All transaction coordinators of this broker.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tidegate_coordinator::partition_for;
use tidegate_coordinator::transactions::{
    TransactionConfig, TransactionCoordinator, TransactionError,
};
use tidegate_metadata::TopicImage;
use tidegate_partition_log::PartitionLog;
use tidegate_runtime::{OnExit, SharedClock, Tasks};
use tidegate_types::{PartitionId, PartitionIndex, TopicName};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::actor::{Actor, Handle, Parts};
use super::markers::{CONCURRENT, MarkerSender};
use crate::broker::Broker;
use crate::catalog::{Catalog, TRANSACTIONS_TOPIC};
use crate::groups::HostClock;
use crate::handlers::topics::create_with_defaults;

/// A running coordinator.
struct Hosted {
    handle: Handle,
    log: Arc<PartitionLog>,
    cancel: CancellationToken,
}

impl Drop for Hosted {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// Runs a coordinator for each partition of `__transaction_state` that this broker leads.
pub(crate) struct TransactionHost {
    broker: Weak<Broker>,
    tasks: Tasks,
    clock: HostClock,
    config: TransactionConfig,
    hosting: Mutex<HashMap<PartitionId, Hosted>>,
    turns: Arc<Semaphore>,
    /// Held while `__transaction_state` is being created, so that only one request does it.
    creating: tokio::sync::Mutex<()>,
}

impl TransactionHost {
    pub(crate) fn new(
        broker: Weak<Broker>,
        tasks: Tasks,
        clock: SharedClock,
        config: TransactionConfig,
    ) -> Self {
        Self {
            broker,
            tasks,
            clock: HostClock::new(clock),
            config,
            hosting: Mutex::default(),
            turns: Arc::new(Semaphore::new(CONCURRENT)),
            creating: tokio::sync::Mutex::new(()),
        }
    }

    /// Logs were opened as this catalog says: starts coordinators for those of `__transaction_state`.
    pub(crate) fn opened(&self, catalog: &Catalog) {
        let Some(broker) = self.broker.upgrade() else {
            return;
        };
        let Some(topic) = catalog.image.topic(TRANSACTIONS_TOPIC) else {
            return;
        };
        let mut hosting = self.hosting.lock();
        for index in (0..u32::try_from(topic.partitions.len()).unwrap_or(u32::MAX))
            .map_while(|i| PartitionIndex::new(i).ok())
        {
            let partition = PartitionId {
                topic: topic.id,
                index,
            };
            let Some(log) = broker.logs.get(partition) else {
                continue;
            };
            // Another log of the same partition: it was closed and opened again.
            let runs = hosting
                .get(&partition)
                .is_some_and(|hosted| Arc::ptr_eq(&hosted.log, &log));
            if !runs {
                let hosted = self.start(&broker, log);
                hosting.insert(partition, hosted);
            }
        }
    }

    fn start(&self, broker: &Broker, log: Arc<PartitionLog>) -> Hosted {
        let cancel = self.tasks.token().child_token();
        let (actor, handle) = Actor::new(Parts {
            reader: broker.reader.clone(),
            clock: self.clock.clone(),
            coordinator: TransactionCoordinator::new(self.config.clone()),
            markers: MarkerSender {
                broker: self.broker.clone(),
                leader_epoch: log.leader_epoch(),
                turns: self.turns.clone(),
            },
            cancel: cancel.clone(),
            log: log.clone(),
        });
        let name = format!("transaction-coordinator-{}", log.id().index);
        self.tasks.spawn(&name, OnExit::Expected, actor.run());
        Hosted {
            handle,
            log,
            cancel,
        }
    }

    /// A partition is no longer led here. Whoever waits for its coordinator is told to look for the new one.
    pub(crate) fn closed(&self, partition: PartitionId) {
        self.hosting.lock().remove(&partition);
    }

    /// The coordinator of a transactional id, if it is here.
    pub(crate) fn coordinator(
        &self,
        catalog: &Catalog,
        transactional_id: &str,
    ) -> Result<Handle, TransactionError> {
        let partition = catalog
            .image
            .topic(TRANSACTIONS_TOPIC)
            .and_then(|topic| partition_of(topic, transactional_id))
            .ok_or(TransactionError::NotCoordinator)?;
        let hosting = self.hosting.lock();
        hosting
            .get(&partition)
            .map(|hosted| hosted.handle.clone())
            .ok_or(TransactionError::NotCoordinator)
    }

    /// All coordinators here.
    pub(crate) fn coordinators(&self) -> Vec<Handle> {
        let hosting = self.hosting.lock();
        hosting
            .values()
            .map(|hosted| hosted.handle.clone())
            .collect()
    }

    /// `__transaction_state`, created if it doesn't exist yet. `None` if it can't be now.
    pub(crate) async fn state_topic(&self, broker: &Broker) -> Option<Arc<TopicImage>> {
        let find = || {
            let catalog = broker.catalog.load();
            catalog.image.topic(TRANSACTIONS_TOPIC).cloned()
        };
        if let Some(topic) = find() {
            return Some(topic);
        }
        let _creating = self.creating.lock().await;
        if let Some(topic) = find() {
            return Some(topic);
        }
        create_with_defaults(broker, vec![TopicName::new(TRANSACTIONS_TOPIC).ok()?]).await;
        find()
    }
}

/// The partition of `__transaction_state` that an id belongs to. `None` if the topic has no partitions.
pub(crate) fn partition_of(topic: &TopicImage, transactional_id: &str) -> Option<PartitionId> {
    let count = u32::try_from(topic.partitions.len())
        .ok()
        .filter(|count| *count > 0)?;
    let index = PartitionIndex::new(partition_for(transactional_id, count)).ok()?;
    Some(PartitionId {
        topic: topic.id,
        index,
    })
}
