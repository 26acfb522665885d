//! All coordinators of this broker.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tidegate_coordinator::{
    ClusterView, EndTransaction, GroupConfig, GroupCoordinator, GroupError, Reply, partition_for,
};
use tidegate_metadata::{ClusterImage, TopicImage};
use tidegate_partition_log::PartitionLog;
use tidegate_runtime::{OnExit, SharedClock, Tasks};
use tidegate_types::{PartitionId, PartitionIndex, TopicId, TopicName};
use tokio_util::sync::CancellationToken;

use super::actor::{Actor, Deletions, Handle, HostClock, Parts};
use super::view::ImageView;
use crate::broker::Broker;
use crate::catalog::{Catalog, OFFSETS_TOPIC};
use crate::handlers::topics::create_with_defaults;

/// A running coordinator.
struct Hosted {
    handle: Handle,
    log: Arc<PartitionLog>,
    deletions: Arc<Deletions>,
    cancel: CancellationToken,
}

impl Drop for Hosted {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

#[derive(Default)]
struct Hosting {
    coordinators: HashMap<PartitionId, Hosted>,
    /// The image of the last call, to see which topics vanished.
    image: Option<Arc<ClusterImage>>,
}

/// Runs a coordinator for each partition of `__consumer_offsets` that this broker leads.
pub(crate) struct GroupHost {
    broker: Weak<Broker>,
    tasks: Tasks,
    clock: HostClock,
    config: GroupConfig,
    hosting: Mutex<Hosting>,
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
            hosting: Mutex::default(),
            creating: tokio::sync::Mutex::new(()),
        }
    }

    /// Logs were opened as this catalog says: starts coordinators for those of `__consumer_offsets`, and has the
    /// offsets of topics removed that vanished since the last call.
    pub(crate) fn opened(&self, catalog: &Catalog) {
        let Some(broker) = self.broker.upgrade() else {
            return;
        };
        let mut hosting = self.hosting.lock();
        let before = hosting.image.replace(catalog.image.clone());
        let view: Arc<dyn ClusterView> = Arc::new(ImageView(catalog.image.clone()));
        let is_new = before
            .as_ref()
            .is_none_or(|before| before.version() != catalog.image.version());
        let deleted = before
            .map(|before| vanished(&before, &catalog.image))
            .unwrap_or_default();
        if is_new {
            for hosted in hosting.coordinators.values() {
                hosted.deletions.show(view.clone());
            }
        }
        if !deleted.is_empty() {
            hosting
                .coordinators
                .values()
                .for_each(|hosted| hosted.deletions.add(&deleted));
        }
        let Some(topic) = catalog.image.topic(OFFSETS_TOPIC) else {
            return;
        };
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
                .coordinators
                .get(&partition)
                .is_some_and(|hosted| Arc::ptr_eq(&hosted.log, &log));
            if !runs {
                let hosted = self.start(&broker, log);
                hosted.deletions.show(view.clone());
                hosting.coordinators.insert(partition, hosted);
            }
        }
    }

    fn start(&self, broker: &Broker, log: Arc<PartitionLog>) -> Hosted {
        let cancel = self.tasks.token().child_token();
        let deletions = Arc::<Deletions>::default();
        let (actor, handle) = Actor::new(Parts {
            log: log.clone(),
            reader: broker.reader.clone(),
            clock: self.clock.clone(),
            coordinator: GroupCoordinator::new(self.config.clone()),
            deletions: deletions.clone(),
            cancel: cancel.clone(),
        });
        let name = format!("group-coordinator-{}", log.id().index);
        self.tasks.spawn(&name, OnExit::Expected, actor.run());
        Hosted {
            handle,
            log,
            deletions,
            cancel,
        }
    }

    /// A partition is no longer led here. Whoever waits for its coordinator is told to look for the new one.
    pub(crate) fn closed(&self, partition: PartitionId) {
        self.hosting.lock().coordinators.remove(&partition);
    }

    /// The coordinator of a group, if it is here.
    pub(crate) fn coordinator(&self, catalog: &Catalog, group: &str) -> Result<Handle, GroupError> {
        let topic = catalog
            .image
            .topic(OFFSETS_TOPIC)
            .ok_or(GroupError::NotCoordinator)?;
        let partition = partition_of(topic, group).ok_or(GroupError::NotCoordinator)?;
        let hosting = self.hosting.lock();
        hosting
            .coordinators
            .get(&partition)
            .map(|hosted| hosted.handle.clone())
            .ok_or(GroupError::NotCoordinator)
    }

    /// Ends a producer's transaction in a partition of `__consumer_offsets`. Answers when the marker is durable.
    pub(crate) async fn end_transaction(
        &self,
        partition: PartitionId,
        end: EndTransaction,
    ) -> Result<(), GroupError> {
        let handle = self
            .hosting
            .lock()
            .coordinators
            .get(&partition)
            .map(|hosted| hosted.handle.clone())
            .ok_or(GroupError::NotCoordinator)?;
        let reply = handle
            .answered(move |coordinator, now, token| coordinator.end_transaction(now, token, end))
            .await;
        match reply {
            Some(Reply::EndTransaction(ended)) => ended,
            Some(_) | None => Err(GroupError::NotCoordinator),
        }
    }

    /// All coordinators here.
    pub(crate) fn coordinators(&self) -> Vec<Handle> {
        self.hosting
            .lock()
            .coordinators
            .values()
            .map(|hosted| hosted.handle.clone())
            .collect()
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

/// The partition of `__consumer_offsets` that a group belongs to. `None` if the topic has no partitions.
pub(crate) fn partition_of(topic: &TopicImage, group: &str) -> Option<PartitionId> {
    let count = u32::try_from(topic.partitions.len())
        .ok()
        .filter(|count| *count > 0)?;
    let index = PartitionIndex::new(partition_for(group, count)).ok()?;
    Some(PartitionId {
        topic: topic.id,
        index,
    })
}

fn vanished(before: &ClusterImage, after: &ClusterImage) -> Vec<(TopicName, Option<TopicId>)> {
    before
        .topics()
        .filter(|topic| after.topic_by_id(topic.id).is_none())
        .map(|topic| (topic.name.clone(), Some(topic.id)))
        .collect()
}
