//! All transaction coordinators of this broker.

use std::sync::{Arc, Weak};

use tidegate_coordinator::transactions::{
    TransactionConfig, TransactionCoordinator, TransactionError,
};
use tidegate_metadata::TopicImage;
use tidegate_partition_log::PartitionLog;
use tidegate_runtime::{OnExit, SharedClock, Tasks};
use tidegate_types::{PartitionId, TopicName};
use tokio::sync::Semaphore;

use super::markers::{CONCURRENT, MarkerSender};
use super::outside::TransactionsOutside;
use crate::broker::Broker;
use crate::catalog::{Catalog, TRANSACTIONS_TOPIC};
use crate::coordinators::{Actor, Handle, HostClock, Hosted, Hosting, OfLog, Parts, partition_of};
use crate::handlers::topics::create_with_defaults;

/// Runs a coordinator for each partition of `__transaction_state` that this broker leads.
pub(crate) struct TransactionHost {
    broker: Weak<Broker>,
    tasks: Tasks,
    clock: HostClock,
    config: TransactionConfig,
    hosting: Hosting<TransactionCoordinator, ()>,
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
            hosting: Hosting::default(),
            turns: Arc::new(Semaphore::new(CONCURRENT)),
            creating: tokio::sync::Mutex::new(()),
        }
    }

    /// Logs were opened as this catalog says: starts coordinators for those of `__transaction_state`. Whoever waits for
    /// a coordinator is to be told after this. One call at a time.
    pub(crate) fn opened(&self, catalog: &Catalog) {
        let Some(broker) = self.broker.upgrade() else {
            return;
        };
        let Some(topic) = catalog.image.topic(TRANSACTIONS_TOPIC) else {
            return;
        };
        for log in self.hosting.without(&broker.logs, topic) {
            let hosted = self.start(&broker, log);
            self.hosting.insert(hosted);
        }
    }

    fn start(&self, broker: &Broker, log: Arc<PartitionLog>) -> Hosted<TransactionCoordinator, ()> {
        let cancel = self.tasks.token().child_token();
        let markers = MarkerSender {
            broker: self.broker.clone(),
            leader_epoch: log.leader_epoch(),
            turns: self.turns.clone(),
        };
        let (actor, handle) = Actor::new(Parts {
            source: OfLog {
                log: log.clone(),
                reader: broker.reader.clone(),
            },
            clock: self.clock.clone(),
            config: self.config.clone(),
            outside: TransactionsOutside::new(log.clone(), markers),
            metrics: broker.metrics.clone(),
            cancel: cancel.clone(),
        });
        let warmed = broker.handover.warm_transactions(&log);
        let name = format!("transaction-coordinator-{}", log.id().index);
        self.tasks.spawn(&name, OnExit::Expected, actor.run(warmed));
        Hosted {
            handle,
            log,
            cancel,
            extra: (),
        }
    }

    /// A partition is no longer led here. Whoever waits for its coordinator is told to look for the new one.
    pub(crate) fn closed(&self, partition: PartitionId) {
        self.hosting.closed(partition);
    }

    /// The coordinator of a transactional id, if it is here or is about to be.
    pub(crate) async fn coordinator(
        &self,
        broker: &Broker,
        transactional_id: &str,
    ) -> Result<Handle<TransactionCoordinator>, TransactionError> {
        let catalog = broker.catalog.load_full();
        let topic = catalog.image.topic(TRANSACTIONS_TOPIC);
        let partition = topic.and_then(|topic| partition_of(topic, transactional_id));
        let partition = partition.ok_or(TransactionError::NotCoordinator)?;
        let found = self.hosting.find(broker, partition).await;
        found.ok_or(TransactionError::NotCoordinator)
    }

    /// All coordinators here.
    pub(crate) fn coordinators(&self) -> Vec<Handle<TransactionCoordinator>> {
        self.hosting.all()
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
