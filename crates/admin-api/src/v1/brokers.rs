//! Brokers, and draining them.

use axum::Json;
use serde::{Deserialize, Serialize};
use tidegate_cluster::admin::{BrokerStatus, DrainStatus};
use tidegate_types::BrokerId;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::broker_numbered;
use crate::extract::{Cluster, Named};
use crate::problem::ProblemBody;
use crate::{AdminState, Problem};

pub(super) fn routes() -> OpenApiRouter<AdminState> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(describe))
        .routes(routes!(drain_status, drain, undrain))
}

/// All brokers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Brokers {
    /// All that are registered, in the order of their numbers.
    pub brokers: Vec<Broker>,
}

/// One broker, as the controller sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Broker {
    /// Its number.
    pub id: u32,
    /// Its registration; it rises with each start.
    pub broker_epoch: u64,
    /// It has a session with the controller.
    pub alive: bool,
    /// It gives its partitions away and gets none.
    pub draining: bool,
    /// It is the controller.
    pub controller: bool,
    /// Its rack or zone.
    pub rack: Option<String>,
    /// Where Kafka clients connect: `host:port`.
    pub kafka: String,
    /// Where other brokers connect: `host:port`.
    pub internal: Option<String>,
    /// How many partitions it leads.
    pub led_partitions: u64,
    /// Record bytes that producers sent, per second.
    pub bytes_in_per_s: u64,
    /// Record bytes that consumers read, per second.
    pub bytes_out_per_s: u64,
    /// Kafka requests per second.
    pub requests_per_s: u64,
    /// Its release.
    pub software_version: String,
}

impl Broker {
    pub(super) fn of(status: BrokerStatus, controller: BrokerId) -> Self {
        Self {
            id: status.id.get(),
            broker_epoch: status.broker_epoch.get(),
            alive: status.alive,
            draining: status.draining,
            controller: status.id == controller,
            rack: status.rack,
            kafka: status.kafka.to_string(),
            internal: status.internal.map(|endpoint| endpoint.to_string()),
            led_partitions: status.led_partitions,
            bytes_in_per_s: status.bytes_in_per_s,
            bytes_out_per_s: status.bytes_out_per_s,
            requests_per_s: status.requests_per_s,
            software_version: status.software_version,
        }
    }
}

/// How far a broker is in giving its partitions away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Drain {
    /// The broker's number.
    pub broker: u32,
    /// It gives away what it leads, and gets nothing new.
    pub draining: bool,
    /// Nothing is left to give away.
    pub done: bool,
    /// How many partitions it still leads.
    pub led_partitions: u64,
    /// How many of them are being moved now.
    pub moving: u64,
    /// Why the rest can't move at present, if it can't.
    pub blocked: Option<String>,
}

impl From<DrainStatus> for Drain {
    fn from(status: DrainStatus) -> Self {
        Self {
            broker: status.broker.get(),
            draining: status.draining,
            done: status.is_done(),
            led_partitions: status.led_partitions,
            moving: status.moving,
            blocked: status.blocked,
        }
    }
}

/// All brokers.
#[utoipa::path(
    get, path = "/v1/brokers", tag = "brokers", operation_id = "list_brokers",
    responses(
        (status = 200, description = "All that are registered", body = Brokers),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")
    )
)]
async fn list(Cluster(cluster): Cluster) -> Result<Json<Brokers>, Problem> {
    let status = cluster.admin.cluster_status().await?;
    let brokers = status.brokers.into_iter();
    Ok(Json(Brokers {
        brokers: brokers
            .map(|broker| Broker::of(broker, status.controller))
            .collect(),
    }))
}

/// One broker.
#[utoipa::path(
    get, path = "/v1/brokers/{broker}", tag = "brokers", operation_id = "describe_broker",
    params(("broker" = u32, Path, description = "The broker's number")),
    responses(
        (status = 200, description = "The broker", body = Broker),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")
    )
)]
async fn describe(
    Cluster(cluster): Cluster,
    Named(number): Named<u32>,
) -> Result<Json<Broker>, Problem> {
    let status = cluster.admin.cluster_status().await?;
    let mut brokers = status.brokers.into_iter();
    let found = brokers.find(|broker| broker.id.get() == number);
    found
        .map(|broker| Json(Broker::of(broker, status.controller)))
        .ok_or_else(|| Problem::unknown_broker(number))
}

/// Gives all partitions of a broker to others, and none to it from now on. Answers at once; ask again for how far
/// it is. Ends when the broker starts anew, or by DELETE.
#[utoipa::path(
    post, path = "/v1/brokers/{broker}/drain", tag = "brokers", operation_id = "drain_broker",
    params(("broker" = u32, Path, description = "The broker's number")),
    responses(
        (status = 200, description = "How far it is", body = Drain),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")
    )
)]
async fn drain(
    Cluster(cluster): Cluster,
    Named(number): Named<u32>,
) -> Result<Json<Drain>, Problem> {
    let status = cluster.admin.drain(broker_numbered(number)?).await?;
    Ok(Json(status.into()))
}

/// How far a broker is in giving its partitions away.
#[utoipa::path(
    get, path = "/v1/brokers/{broker}/drain", tag = "brokers", operation_id = "drain_status",
    params(("broker" = u32, Path, description = "The broker's number")),
    responses(
        (status = 200, description = "How far it is", body = Drain),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")
    )
)]
async fn drain_status(
    Cluster(cluster): Cluster,
    Named(number): Named<u32>,
) -> Result<Json<Drain>, Problem> {
    let status = cluster.admin.drain_status(broker_numbered(number)?).await?;
    Ok(Json(status.into()))
}

/// Takes a drain back. What has left returns only by balance or by moves.
#[utoipa::path(
    delete, path = "/v1/brokers/{broker}/drain", tag = "brokers", operation_id = "undrain_broker",
    params(("broker" = u32, Path, description = "The broker's number")),
    responses(
        (status = 200, description = "How it stands", body = Drain),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")
    )
)]
async fn undrain(
    Cluster(cluster): Cluster,
    Named(number): Named<u32>,
) -> Result<Json<Drain>, Problem> {
    let status = cluster.admin.undrain(broker_numbered(number)?).await?;
    Ok(Json(status.into()))
}
