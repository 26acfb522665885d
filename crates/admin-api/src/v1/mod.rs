//! `/v1`: the cluster's administration. The types here are the API's JSON; clients may use them too.
//!
//! Ids and offsets are plain numbers here and nowhere below.

mod brokers;
mod cluster;
mod groups;
mod leaders;
mod partitions;
mod reassignments;
mod topics;

pub use brokers::{Broker, Brokers, Drain};
pub use cluster::{Balance, Cluster, OfflinePartition};
pub use groups::{AssignedPartition, CommittedOffset, Group, GroupDetails, Groups, Member};
pub use partitions::{EpochStart, Partition};
pub use reassignments::{
    MAX_TIMEOUT_MS, MoveAnswer, MoveStatus, ReassignAnswer, ReassignRequest, Reassignment,
    Reassignments, WantedMove,
};
pub use topics::{CreateTopic, PartitionSummary, Topic, TopicDescription, Topics};

use std::sync::Arc;

use tidegate_metadata::{ClusterImage, TopicImage};
use tidegate_types::{BrokerId, PartitionId, PartitionIndex};
use utoipa_axum::router::OpenApiRouter;

use crate::{AdminState, Problem};

pub(crate) fn routes() -> OpenApiRouter<AdminState> {
    OpenApiRouter::new()
        .merge(cluster::routes())
        .merge(brokers::routes())
        .merge(reassignments::routes())
        .merge(topics::routes())
        .merge(partitions::routes())
        .merge(groups::routes())
}

fn topic_named<'a>(image: &'a ClusterImage, topic: &str) -> Result<&'a Arc<TopicImage>, Problem> {
    image
        .topic(topic)
        .ok_or_else(|| Problem::unknown_topic(topic))
}

fn partition_named(
    image: &ClusterImage,
    topic: &str,
    partition: u32,
) -> Result<PartitionId, Problem> {
    let found = topic_named(image, topic)?;
    let index = PartitionIndex::new(partition).ok();
    index
        .filter(|index| found.partition(*index).is_some())
        .map(|index| PartitionId {
            topic: found.id,
            index,
        })
        .ok_or_else(|| Problem::unknown_partition(topic, partition, found.partitions.len()))
}

fn broker_numbered(broker: u32) -> Result<BrokerId, Problem> {
    BrokerId::new(broker).map_err(|_| Problem::unknown_broker(broker))
}
