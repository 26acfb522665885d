//! One partition in full.

use axum::Json;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::leaders::log_statuses;
use super::partition_named;
use crate::extract::{Cluster, Named};
use crate::problem::ProblemBody;
use crate::{AdminState, Problem};

pub(super) fn routes() -> OpenApiRouter<AdminState> {
    OpenApiRouter::new().routes(routes!(describe))
}

/// One partition. What only its leader knows is empty if that one didn't answer; `leader_silent` then says why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Partition {
    /// The topic's name.
    pub topic: String,
    /// Its number.
    pub partition: u32,
    /// Who leads it; nobody can append or read without.
    pub leader: Option<u32>,
    /// The number of its leadership; it rises with each change.
    pub leader_epoch: u32,
    /// The brokers that may lead it, the preferred first.
    pub placement: Vec<u32>,
    /// The leaderships that the log holds records of, the oldest first.
    pub epochs: Vec<EpochStart>,
    /// How records are acknowledged: `local` or `object`.
    pub durability: Option<String>,
    /// First readable offset.
    pub log_start: u64,
    /// What is in object storage and in the metadata ends here.
    pub uploaded_end: u64,
    /// What readers of committed transactions see ends here.
    pub last_stable: Option<u64>,
    /// What readers see ends here.
    pub high_watermark: Option<u64>,
    /// What was appended ends here.
    pub log_end: Option<u64>,
    /// Number of segments in object storage.
    pub segments: u64,
    /// Their bytes.
    pub stored_bytes: u64,
    /// Bytes that aren't in object storage yet.
    pub not_uploaded_bytes: Option<u64>,
    /// Why the leader didn't say more.
    pub leader_silent: Option<String>,
}

/// Where a leadership begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EpochStart {
    /// The leader epoch.
    pub epoch: u32,
    /// Its first offset.
    pub start: u64,
}

/// One partition in full.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/partitions/{partition}", tag = "topics", operation_id = "describe_partition",
    params(
        ("topic" = String, Path, description = "The topic's name"),
        ("partition" = u32, Path, description = "The partition's number")
    ),
    responses(
        (status = 200, description = "The partition", body = Partition),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")
    )
)]
async fn describe(
    Cluster(cluster): Cluster,
    Named((topic, partition)): Named<(String, u32)>,
) -> Result<Json<Partition>, Problem> {
    let image = cluster.image();
    let id = partition_named(&image, &topic, partition)?;
    let states = cluster.controller.partition_states(vec![id]).await?;
    let Some(state) = states.into_iter().flatten().next() else {
        return Err(Problem::unknown_topic(&topic));
    };
    let mut statuses = log_statuses(&cluster, &image, [id]).await;
    let (status, leader_silent) = match statuses.remove(&id) {
        Some(Ok(status)) => (Some(status), None),
        Some(Err(cause)) => (None, Some(cause)),
        None => (None, Some("nobody leads the partition".to_owned())),
    };
    Ok(Json(Partition {
        topic,
        partition,
        leader: state.leader.map(|leader| leader.get()),
        leader_epoch: state.leader_epoch.get(),
        placement: state.placement.iter().map(|broker| broker.get()).collect(),
        epochs: state
            .epochs
            .iter()
            .map(|epoch| EpochStart {
                epoch: epoch.epoch.get(),
                start: epoch.start.get(),
            })
            .collect(),
        durability: status.map(|s| s.durability.to_string()),
        log_start: status.map_or(state.log_start, |s| s.log_start).get(),
        uploaded_end: state.committed_end.get(),
        last_stable: status.map(|s| s.last_stable.get()),
        high_watermark: status.map(|s| s.high_watermark.get()),
        log_end: status.map(|s| s.log_end.get()),
        segments: status.map_or(state.segment_count, |s| s.segments),
        stored_bytes: status.map_or(state.segment_bytes, |s| s.stored_bytes),
        not_uploaded_bytes: status.map(|s| s.not_uploaded_bytes),
        leader_silent,
    }))
}
