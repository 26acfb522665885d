//! How the cluster stands, and its switches.

use axum::Json;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::brokers::Broker;
use crate::extract;
use crate::problem::ProblemBody;
use crate::{AdminState, Problem};

pub(super) fn routes() -> OpenApiRouter<AdminState> {
    OpenApiRouter::new()
        .routes(routes!(describe))
        .routes(routes!(balance))
}

/// How the cluster stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cluster {
    /// Its identity.
    pub cluster_id: String,
    /// The broker that is the controller.
    pub controller: u32,
    /// The controller's epoch; it rises with each change of controller.
    pub controller_epoch: u64,
    /// All registered brokers, in the order of their numbers.
    pub brokers: Vec<Broker>,
    /// Number of topics.
    pub topics: u64,
    /// Number of partitions of all topics.
    pub partitions: u64,
    /// Number of partitions that nobody serves.
    pub offline_count: u64,
    /// Which they are: the first 1,000.
    pub offline: Vec<OfflinePartition>,
    /// Number of moves that are wanted and not done.
    pub reassignments: u64,
    /// The controller evens out load by itself.
    pub balance: bool,
}

/// A partition that nobody serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OfflinePartition {
    /// The topic's name.
    pub topic: String,
    /// The partition's number.
    pub partition: u32,
    /// The broker whose return it waits for.
    pub waits_for: Option<u32>,
}

/// Whether the controller evens out load by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Balance {
    /// It does.
    pub enabled: bool,
}

/// How the cluster stands.
#[utoipa::path(
    get, path = "/v1/cluster", tag = "cluster", operation_id = "describe_cluster",
    responses(
        (status = 200, description = "How it stands", body = Cluster),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")
    )
)]
async fn describe(extract::Cluster(cluster): extract::Cluster) -> Result<Json<Cluster>, Problem> {
    let status = cluster.admin.cluster_status().await?;
    let controller = status.controller;
    let brokers = status.brokers.into_iter();
    let offline = status.offline.into_iter();
    Ok(Json(Cluster {
        cluster_id: status.cluster_id,
        controller: controller.get(),
        controller_epoch: status.controller_epoch.get(),
        brokers: brokers
            .map(|broker| Broker::of(broker, controller))
            .collect(),
        topics: status.topics,
        partitions: status.partitions,
        offline_count: status.offline_count,
        offline: offline
            .map(|one| OfflinePartition {
                topic: one.topic.as_str().to_owned(),
                partition: one.partition.index.get(),
                waits_for: one.waits_for.map(|broker| broker.get()),
            })
            .collect(),
        reassignments: status.reassignments,
        balance: status.balance,
    }))
}

/// Switches balancing on or off, until the next change of controller: then the new controller's configuration
/// decides.
#[utoipa::path(
    put, path = "/v1/cluster/balance", tag = "cluster", operation_id = "set_balance",
    request_body = Balance,
    responses(
        (status = 200, description = "How it is now", body = Balance),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")
    )
)]
async fn balance(
    extract::Cluster(cluster): extract::Cluster,
    extract::Body(wanted): extract::Body<Balance>,
) -> Result<Json<Balance>, Problem> {
    cluster.admin.set_balance(wanted.enabled).await?;
    Ok(Json(wanted))
}
