//! Having markers written by the leaders of a transaction's partitions, however long that takes.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use tidegate_cluster::orders::OrderError;
use tidegate_cluster::transactions::{MarkerOutcome, TransactionMarker};
use tidegate_coordinator::TopicPartition;
use tidegate_coordinator::transactions::{MarkerOrder, Markers, TransactionalId};
use tidegate_types::{BrokerId, LeaderEpoch, PartitionId};
use tokio::sync::Semaphore;
use tracing::{debug, warn};

use super::apply::write_marker;
use crate::broker::Broker;

const FIRST_RETRY: Duration = Duration::from_millis(5);
const LAST_RETRY: Duration = Duration::from_secs(1);
/// A marker that isn't written after so many tries gets a line in the log, and again after each as many.
const TRIES_UNTIL_TOLD: u32 = 60;

/// Calls for markers under way from this broker.
pub(super) const CONCURRENT: usize = 256;

/// Sends the markers of one coordinator.
#[derive(Clone)]
pub(super) struct MarkerSender {
    pub(super) broker: Weak<Broker>,
    /// Of the coordinator's partition.
    pub(super) leader_epoch: LeaderEpoch,
    /// Shared by all coordinators of this broker.
    pub(super) turns: Arc<Semaphore>,
}

/// Every partition of an order has its marker.
pub(super) struct Sent {
    pub(super) transactional_id: TransactionalId,
    pub(super) order: MarkerOrder,
    pub(super) partitions: Vec<TopicPartition>,
}

impl MarkerSender {
    /// Resolves when all partitions have the marker; never, if a newer coordinator was heard of. Dropping it gives up;
    /// whoever coordinates next sends all again.
    pub(super) fn send(&self, markers: Markers) -> BoxFuture<'static, Sent> {
        let sender = self.clone();
        async move { sender.run(markers).await }.boxed()
    }

    async fn run(self, markers: Markers) -> Sent {
        let mut left = markers.partitions.clone();
        let mut pause = FIRST_RETRY;
        let mut tries = 0_u32;
        loop {
            // A broker that stops cancels the coordinator as well.
            if let Some(broker) = self.broker.upgrade() {
                left = match self.attempt(&broker, &markers, left).await {
                    Some(left) => left,
                    None => {
                        warn!(transactional_id = %markers.transactional_id, coordinator_epoch = %self.leader_epoch, "markers are left to a newer coordinator");
                        return std::future::pending().await;
                    }
                };
            }
            if left.is_empty() {
                return Sent {
                    transactional_id: markers.transactional_id,
                    order: markers.order,
                    partitions: markers.partitions,
                };
            }
            tries = tries.saturating_add(1);
            if tries.is_multiple_of(TRIES_UNTIL_TOLD) {
                warn!(transactional_id = %markers.transactional_id, partitions = left.len(), first = ?left.first(), tries, "markers of a transaction can't be written yet");
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_RETRY);
        }
    }

    /// Asks every leader once. Returns the partitions that still need the marker; `None` if another coordinator has
    /// taken this one's place.
    async fn attempt(
        &self,
        broker: &Broker,
        markers: &Markers,
        left: Vec<TopicPartition>,
    ) -> Option<Vec<TopicPartition>> {
        let (by_leader, mut without) = by_leader(broker, left);
        let calls = by_leader
            .into_iter()
            .map(|(leader, partitions)| self.ask(broker, markers, leader, partitions));
        for unwritten in join_all(calls).await {
            without.extend(unwritten?);
        }
        Some(without)
    }

    async fn ask(
        &self,
        broker: &Broker,
        markers: &Markers,
        leader: BrokerId,
        partitions: Vec<(TopicPartition, PartitionId)>,
    ) -> Option<Vec<TopicPartition>> {
        let all = |partitions: Vec<(TopicPartition, PartitionId)>| {
            Some(partitions.into_iter().map(|(name, _)| name).collect())
        };
        let Ok(_turn) = self.turns.acquire().await else {
            return all(partitions);
        };
        let marker = TransactionMarker {
            producer: markers.producer.id,
            epoch: markers.producer.epoch,
            coordinator_epoch: self.leader_epoch.to_wire(),
            commit: markers.commit,
            transaction_version: u8::try_from(markers.version.level()).unwrap_or(0),
            partitions: partitions.iter().map(|(_, id)| *id).collect(),
        };
        match write(broker, leader, marker).await {
            Ok(outcomes) if outcomes.len() == partitions.len() => partitions
                .into_iter()
                .zip(outcomes)
                .filter(|(_, outcome)| then(outcome) != Then::Done)
                .map(|((name, _), outcome)| {
                    debug!(transactional_id = %markers.transactional_id, partition = ?name, ?outcome, "marker isn't written");
                    (then(&outcome) == Then::Again).then_some(name)
                })
                .collect(),
            Ok(_) => all(partitions),
            Err(error) => {
                debug!(%leader, error = &error as &dyn std::error::Error, "a broker can't be asked for markers");
                all(partitions)
            }
        }
    }
}

/// One outcome per partition of the marker.
async fn write(
    broker: &Broker,
    leader: BrokerId,
    marker: TransactionMarker,
) -> Result<Vec<MarkerOutcome>, OrderError> {
    if leader == broker.id {
        let partitions = marker.partitions.iter();
        let writes = partitions.map(|partition| write_marker(broker, *partition, &marker));
        return Ok(join_all(writes).await);
    }
    let catalog = broker.catalog.load_full();
    let endpoint = catalog
        .image
        .broker(leader)
        .filter(|leader| leader.alive)
        .and_then(|leader| leader.internal.clone())
        .ok_or_else(|| OrderError::Unreachable(format!("broker {leader} is away")))?;
    let peer = broker.handover.peers.transactions(leader, &endpoint);
    peer.write_markers(vec![marker]).await
}

/// What an outcome means for the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// The partition needs nothing more.
    Done,
    /// It still needs its marker.
    Again,
    /// Another coordinator sees to the transaction, and this one may not end it.
    Stop,
}

/// A partition that the leader doesn't know is looked up again: this broker may know that it is gone, or the leader may
/// not know yet that it was created. One that knows a newer epoch of the producer has no transaction of this one's open:
/// an epoch begins only when what was open before has its marker.
fn then(outcome: &MarkerOutcome) -> Then {
    match outcome {
        MarkerOutcome::Written | MarkerOutcome::ProducerFenced => Then::Done,
        MarkerOutcome::NotLeader | MarkerOutcome::UnknownPartition | MarkerOutcome::Retry(_) => {
            Then::Again
        }
        MarkerOutcome::CoordinatorFenced => Then::Stop,
    }
}

type ByLeader = BTreeMap<BrokerId, Vec<(TopicPartition, PartitionId)>>;

/// The partitions by who leads them, and those that nobody leads. Those that don't exist any more need no marker: their
/// topic existed when the transaction took them in, and this broker's image is none older.
fn by_leader(broker: &Broker, partitions: Vec<TopicPartition>) -> (ByLeader, Vec<TopicPartition>) {
    let catalog = broker.catalog.load_full();
    let mut leaders = ByLeader::new();
    let mut without = Vec::new();
    for name in partitions {
        let Some(topic) = catalog.image.topic(name.topic.as_str()) else {
            continue;
        };
        let Some(partition) = topic.partition(name.partition) else {
            continue;
        };
        let id = PartitionId {
            topic: topic.id,
            index: name.partition,
        };
        match partition.leader {
            Some(leader) => leaders.entry(leader).or_default().push((name, id)),
            None => without.push(name),
        }
    }
    (leaders, without)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_markers_are_not_sent_for_ever() {
        assert_eq!(then(&MarkerOutcome::Written), Then::Done);
        assert_eq!(then(&MarkerOutcome::ProducerFenced), Then::Done);
        assert_eq!(then(&MarkerOutcome::CoordinatorFenced), Then::Stop);
        for passing in [
            MarkerOutcome::NotLeader,
            MarkerOutcome::UnknownPartition,
            MarkerOutcome::Retry("full".to_owned()),
        ] {
            assert_eq!(then(&passing), Then::Again);
        }
    }
}
