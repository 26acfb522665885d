//! The coordinators of one kind that this broker runs, and the way to them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_coordinator::partition_for;
use tidegate_metadata::TopicImage;
use tidegate_partition_log::{LogSet, Ownership, PartitionLog};
use tidegate_types::{PartitionId, PartitionIndex};
use tokio::time::timeout_at;
use tokio_util::sync::CancellationToken;

use super::{Handle, Machine};
use crate::broker::Broker;
use crate::handover::Patience;

/// A running coordinator. Dropping it ends its task.
pub(crate) struct Hosted<M: Machine, X> {
    pub(crate) handle: Handle<M>,
    pub(crate) log: Arc<PartitionLog>,
    pub(crate) cancel: CancellationToken,
    /// What its kind has besides.
    pub(crate) extra: X,
}

impl<M: Machine, X> Drop for Hosted<M, X> {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// One for each partition of the kind's topic that this broker leads.
pub(crate) struct Hosting<M: Machine, X>(Mutex<HashMap<PartitionId, Hosted<M, X>>>);

impl<M: Machine, X> Default for Hosting<M, X> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<M: Machine, X> Hosting<M, X> {
    /// The open logs of a topic without a coordinator. Another log of the same partition was closed and opened again.
    pub(crate) fn without(&self, logs: &LogSet, topic: &TopicImage) -> Vec<Arc<PartitionLog>> {
        let hosted = self.0.lock();
        (0..u32::try_from(topic.partitions.len()).unwrap_or(u32::MAX))
            .map_while(|index| PartitionIndex::new(index).ok())
            .filter_map(|index| {
                let topic = topic.id;
                logs.get(PartitionId { topic, index })
            })
            .filter(|log| {
                let known = hosted.get(&log.id());
                !known.is_some_and(|hosted| Arc::ptr_eq(&hosted.log, log))
            })
            .collect()
    }

    pub(crate) fn insert(&self, hosted: Hosted<M, X>) {
        let former = self.0.lock().insert(hosted.log.id(), hosted);
        drop(former);
    }

    /// A partition is no longer led here. Whoever waits for its coordinator is told to look for the new one.
    pub(crate) fn closed(&self, partition: PartitionId) {
        let former = self.0.lock().remove(&partition);
        drop(former);
    }

    /// All coordinators here.
    pub(crate) fn all(&self) -> Vec<Handle<M>> {
        let hosted = self.0.lock();
        hosted
            .values()
            .map(|hosted| hosted.handle.clone())
            .collect()
    }

    /// Looks at what each has besides.
    pub(crate) fn each(&self, mut look: impl FnMut(&X)) {
        for hosted in self.0.lock().values() {
            look(&hosted.extra);
        }
    }

    fn get(&self, partition: PartitionId) -> Option<(Handle<M>, Arc<PartitionLog>)> {
        let hosted = self.0.lock();
        let hosted = hosted.get(&partition)?;
        Some((hosted.handle.clone(), hosted.log.clone()))
    }

    /// The coordinator of a partition, if it is here. While the partition is between two leaders this waits for what
    /// becomes of it, for a moment: a client that is sent away comes back later than a move takes.
    pub(crate) async fn find(&self, broker: &Broker, partition: PartitionId) -> Option<Handle<M>> {
        if broker.has_lapsed() {
            // What it remembers may be another's by now; answers that nothing is appended for would be out of date.
            return None;
        }
        let mut patience = Patience::default();
        loop {
            // Before the look: what changes after it rings.
            let rung = broker.leadership_changed();
            match self.get(partition) {
                Some((handle, log)) if log.takes_appends() => return Some(handle),
                Some((handle, log)) => {
                    let deadline = patience.deadline(&*broker.clock);
                    match timeout_at(deadline, log.settled()).await {
                        // The seal was taken back, or is in force for too long: then the coordinator says so.
                        Ok(Ownership::Leading) | Err(_) => return Some(handle),
                        // It is about to be taken out.
                        Ok(_) => {}
                    }
                }
                None if broker.is_about_to_lead(partition) => {}
                None => return None,
            }
            if !broker.wait(rung, &mut patience).await {
                return None;
            }
        }
    }
}

/// The partition of a coordinators' topic that a group or transactional id belongs to. `None` if the topic has none.
pub(crate) fn partition_of(topic: &TopicImage, key: &str) -> Option<PartitionId> {
    let count = u32::try_from(topic.partitions.len())
        .ok()
        .filter(|count| *count > 0)?;
    let index = PartitionIndex::new(partition_for(key, count)).ok()?;
    Some(PartitionId {
        topic: topic.id,
        index,
    })
}
