//! Consumer groups, and how far they are behind.

use axum::Json;
use serde::{Deserialize, Serialize};
use tidegate_cluster::queries::{GroupAnswer, GroupDescription, GroupOffset};
use tidegate_metadata::ClusterImage;
use tidegate_types::{BrokerId, PartitionId};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::leaders::{Statuses, ask_all, log_statuses};
use crate::extract::{Cluster, Named};
use crate::problem::{ProblemBody, ProblemKind};
use crate::{AdminState, Problem};

pub(super) fn routes() -> OpenApiRouter<AdminState> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(describe))
}

/// All groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Groups {
    /// In the order of their names.
    pub groups: Vec<Group>,
    /// Why some may be missing: brokers that didn't answer, or that still load theirs.
    pub incomplete: Vec<String>,
}

/// One group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct Group {
    /// Its name.
    pub group: String,
    /// Its state, by Kafka's name, such as `Stable` or `Empty`.
    pub state: String,
    /// What its members speak among each other, such as `consumer`; empty if unknown.
    pub protocol_type: String,
    /// The broker that coordinates it.
    pub coordinator: u32,
}

/// A group in full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupDetails {
    /// Name, state and coordinator.
    #[serde(flatten)]
    pub group: Group,
    /// The assignment strategy in use.
    pub protocol: String,
    /// It rises with each rebalance.
    pub generation: i32,
    /// Its members.
    pub members: Vec<Member>,
    /// Its committed offsets, in the order of topics and partitions.
    pub offsets: Vec<CommittedOffset>,
    /// Records behind, over all partitions whose leader answered.
    pub lag: u64,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Member {
    /// Its name in the group.
    pub member_id: String,
    /// What it calls itself across restarts.
    pub instance_id: Option<String>,
    /// What its client calls itself.
    pub client_id: String,
    /// Where it connects from.
    pub client_host: String,
    /// What it reads, as far as that can be read.
    pub assigned: Vec<AssignedPartition>,
}

/// A partition that a member reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AssignedPartition {
    /// The topic's name.
    pub topic: String,
    /// The partition's number.
    pub partition: u32,
}

/// How far a group has read a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CommittedOffset {
    /// The topic's name.
    pub topic: String,
    /// The partition's number.
    pub partition: u32,
    /// The next record that the group reads.
    pub offset: u64,
    /// What readers see ends here; empty if the leader didn't answer or the partition is gone.
    pub high_watermark: Option<u64>,
    /// Records behind.
    pub lag: Option<u64>,
    /// What was committed with the offset.
    pub metadata: String,
}

/// All groups of all brokers.
#[utoipa::path(
    get, path = "/v1/groups", tag = "groups", operation_id = "list_groups",
    responses(
        (status = 200, description = "All groups", body = Groups),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")
    )
)]
async fn list(Cluster(cluster): Cluster) -> Json<Groups> {
    let image = cluster.image();
    let answers = ask_all(&cluster, &image, |queries| async move {
        queries.list_groups(Vec::new()).await
    });
    let mut groups = Vec::new();
    let mut incomplete = Vec::new();
    for (broker, answer) in answers.await {
        match answer {
            Err(error) => incomplete.push(format!("broker {broker}: {error}")),
            Ok(listed) => {
                incomplete.extend(
                    listed
                        .incomplete
                        .map(|cause| format!("broker {broker}: {cause}")),
                );
                groups.extend(listed.groups.into_iter().map(|group| Group {
                    group: group.group,
                    state: group.state,
                    protocol_type: group.protocol_type,
                    coordinator: broker.get(),
                }));
            }
        }
    }
    groups.sort();
    // A coordinator that moves meanwhile may be seen twice.
    groups.dedup_by(|a, b| a.group == b.group);
    Json(Groups { groups, incomplete })
}

/// A group in full, with how far it is behind.
#[utoipa::path(
    get, path = "/v1/groups/{group}", tag = "groups", operation_id = "describe_group",
    params(("group" = String, Path, description = "The group's name")),
    responses(
        (status = 200, description = "The group", body = GroupDetails),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")
    )
)]
async fn describe(
    Cluster(cluster): Cluster,
    Named(name): Named<String>,
) -> Result<Json<GroupDetails>, Problem> {
    let image = cluster.image();
    let answers = ask_all(&cluster, &image, |queries| {
        let name = name.clone();
        async move { queries.describe_group(name).await }
    });
    let mut silent = Vec::new();
    let mut unknown = false;
    for (broker, answer) in answers.await {
        match answer {
            Ok(GroupAnswer::Described(described)) => {
                let offsets = described.offsets.iter();
                let partitions = offsets.filter_map(|one| partition_of(&image, one));
                let statuses = log_statuses(&cluster, &image, partitions).await;
                return Ok(Json(details(broker, *described, &image, &statuses)));
            }
            Ok(GroupAnswer::Unknown) => unknown = true,
            Ok(GroupAnswer::NotHere) => {}
            Ok(GroupAnswer::Unavailable { cause }) => {
                silent.push(format!("broker {broker}: {cause}"));
            }
            Err(error) => silent.push(format!("broker {broker}: {error}")),
        }
    }
    // Its own coordinator doesn't know it, or no broker was silent: then there is none.
    if unknown || silent.is_empty() {
        return Err(Problem::new(
            ProblemKind::UnknownGroup,
            format!("there is no group {name:?}"),
        ));
    }
    Err(Problem::new(
        ProblemKind::BrokerUnreachable,
        format!(
            "the group's coordinator may be silent: {}",
            silent.join("; ")
        ),
    ))
}

/// The partition of a committed offset, if it still exists.
fn partition_of(image: &ClusterImage, one: &GroupOffset) -> Option<PartitionId> {
    let topic = image.topic(one.topic.as_str())?;
    topic.partition(one.partition)?;
    Some(PartitionId {
        topic: topic.id,
        index: one.partition,
    })
}

fn details(
    coordinator: BrokerId,
    described: GroupDescription,
    image: &ClusterImage,
    statuses: &Statuses,
) -> GroupDetails {
    let mut offsets: Vec<CommittedOffset> = described
        .offsets
        .into_iter()
        .map(|one| {
            let status = partition_of(image, &one).and_then(|id| statuses.get(&id)?.as_ref().ok());
            let high_watermark = status.map(|s| s.high_watermark.get());
            CommittedOffset {
                topic: one.topic.as_str().to_owned(),
                partition: one.partition.get(),
                offset: one.offset.get(),
                high_watermark,
                lag: high_watermark.map(|end| end.saturating_sub(one.offset.get())),
                metadata: one.metadata,
            }
        })
        .collect();
    offsets.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
    let members = described.members.into_iter().map(|member| Member {
        member_id: member.member_id,
        instance_id: member.instance_id,
        client_id: member.client_id,
        client_host: member.client_host,
        assigned: member
            .assigned
            .into_iter()
            .map(|(topic, partition)| AssignedPartition {
                topic: topic.as_str().to_owned(),
                partition: partition.get(),
            })
            .collect(),
    });
    GroupDetails {
        group: Group {
            group: described.summary.group,
            state: described.summary.state,
            protocol_type: described.summary.protocol_type,
            coordinator: coordinator.get(),
        },
        protocol: described.protocol,
        generation: described.generation,
        members: members.collect(),
        lag: offsets.iter().filter_map(|one| one.lag).sum(),
        offsets,
    }
}
