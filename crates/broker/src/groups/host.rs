//! All coordinators of this broker.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tidegate_coordinator::{
    ClusterView, EndTransaction, GroupConfig, GroupCoordinator, GroupError, Reply,
};
use tidegate_metadata::{ClusterImage, TopicImage};
use tidegate_partition_log::PartitionLog;
use tidegate_runtime::{OnExit, SharedClock, Tasks};
use tidegate_types::{PartitionId, TopicId, TopicName};

use super::outside::{Deletions, GroupsOutside};
use super::view::ImageView;
use crate::broker::Broker;
use crate::catalog::{Catalog, OFFSETS_TOPIC};
use crate::coordinators::{Actor, Handle, HostClock, Hosted, Hosting, OfLog, Parts, partition_of};
use crate::handlers::topics::create_with_defaults;

/// Runs a coordinator for each partition of `__consumer_offsets` that this broker leads.
pub(crate) struct GroupHost {
    broker: Weak<Broker>,
    tasks: Tasks,
    clock: HostClock,
    config: GroupConfig,
    hosting: Hosting<GroupCoordinator, Arc<Deletions>>,
    /// The image of the last call, to see which topics vanished.
    image: Mutex<Option<Arc<ClusterImage>>>,
    /// Held while `__consumer_offsets` is being created, so that only one request does it.
    creating: tokio::sync::Mutex<()>,
}

impl GroupHost {
    pub(crate) fn new(
        broker: Weak<Broker>,
        tasks: Tasks,
        clock: SharedClock,
        config: GroupConfig,
    ) -> Self {
        Self {
            broker,
            tasks,
            clock: HostClock::new(clock),
            config,
            hosting: Hosting::default(),
            image: Mutex::default(),
            creating: tokio::sync::Mutex::new(()),
        }
    }

    /// Logs were opened as this catalog says: starts coordinators for those of `__consumer_offsets`, and has the
    /// offsets of topics removed that vanished since the last call. Whoever waits for a coordinator is to be told
    /// after this. One call at a time.
    pub(crate) fn opened(&self, catalog: &Catalog) {
        let Some(broker) = self.broker.upgrade() else {
            return;
        };
        let before = self.image.lock().replace(catalog.image.clone());
        let view: Arc<dyn ClusterView> = Arc::new(ImageView(catalog.image.clone()));
        let is_new = before
            .as_ref()
            .is_none_or(|before| before.version() != catalog.image.version());
        let deleted = before
            .map(|before| vanished(&before, &catalog.image))
            .unwrap_or_default();
        self.hosting.each(|deletions| {
            if is_new {
                deletions.show(view.clone());
            }
            if !deleted.is_empty() {
                deletions.add(&deleted);
            }
        });
        let Some(topic) = catalog.image.topic(OFFSETS_TOPIC) else {
            return;
        };
        for log in self.hosting.without(&broker.logs, topic) {
            let hosted = self.start(&broker, log);
            hosted.extra.show(view.clone());
            self.hosting.insert(hosted);
        }
    }

    fn start(
        &self,
        broker: &Broker,
        log: Arc<PartitionLog>,
    ) -> Hosted<GroupCoordinator, Arc<Deletions>> {
        let cancel = self.tasks.token().child_token();
        let deletions = Arc::<Deletions>::default();
        let (actor, handle) = Actor::new(Parts {
            source: OfLog {
                log: log.clone(),
                reader: broker.reader.clone(),
            },
            clock: self.clock.clone(),
            config: self.config.clone(),
            outside: GroupsOutside {
                log: log.clone(),
                deletions: deletions.clone(),
            },
            metrics: broker.metrics.clone(),
            cancel: cancel.clone(),
        });
        let warmed = broker.handover.warm_groups(&log);
        let name = format!("group-coordinator-{}", log.id().index);
        self.tasks.spawn(&name, OnExit::Expected, actor.run(warmed));
        Hosted {
            handle,
            log,
            cancel,
            extra: deletions,
        }
    }

    /// A partition is no longer led here. Whoever waits for its coordinator is told to look for the new one.
    pub(crate) fn closed(&self, partition: PartitionId) {
        self.hosting.closed(partition);
    }

    /// The coordinator of a group, if it is here or is about to be.
    pub(crate) async fn coordinator(
        &self,
        broker: &Broker,
        group: &str,
    ) -> Result<Handle<GroupCoordinator>, GroupError> {
        let catalog = broker.catalog.load_full();
        let topic = catalog.image.topic(OFFSETS_TOPIC);
        let partition = topic.and_then(|topic| partition_of(topic, group));
        let partition = partition.ok_or(GroupError::NotCoordinator)?;
        let found = self.hosting.find(broker, partition).await;
        found.ok_or(GroupError::NotCoordinator)
    }

    /// Ends a producer's transaction in a partition of `__consumer_offsets`. Answers when the marker is durable.
    pub(crate) async fn end_transaction(
        &self,
        broker: &Broker,
        partition: PartitionId,
        end: EndTransaction,
    ) -> Result<(), GroupError> {
        let handle = self.hosting.find(broker, partition).await;
        let handle = handle.ok_or(GroupError::NotCoordinator)?;
        let reply = handle
            .answered(move |coordinator, now, token| coordinator.end_transaction(now, token, end))
            .await;
        match reply {
            Some(Reply::EndTransaction(ended)) => ended,
            Some(_) | None => Err(GroupError::NotCoordinator),
        }
    }

    /// All coordinators here.
    pub(crate) fn coordinators(&self) -> Vec<Handle<GroupCoordinator>> {
        self.hosting.all()
    }

    /// `__consumer_offsets`, created if it doesn't exist yet. `None` if it can't be now.
    pub(crate) async fn offsets_topic(&self, broker: &Broker) -> Option<Arc<TopicImage>> {
        let find = || broker.catalog.load().image.topic(OFFSETS_TOPIC).cloned();
        if let Some(topic) = find() {
            return Some(topic);
        }
        let _creating = self.creating.lock().await;
        if let Some(topic) = find() {
            return Some(topic);
        }
        create_with_defaults(broker, vec![TopicName::new(OFFSETS_TOPIC).ok()?]).await;
        find()
    }
}

fn vanished(before: &ClusterImage, after: &ClusterImage) -> Vec<(TopicName, Option<TopicId>)> {
    before
        .topics()
        .filter(|topic| after.topic_by_id(topic.id).is_none())
        .map(|topic| (topic.name.clone(), Some(topic.id)))
        .collect()
}
