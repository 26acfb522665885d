//! Moving partitions.

use std::collections::HashSet;
use std::time::Duration;

use axum::Json;
use serde::{Deserialize, Serialize};
use tidegate_cluster::admin::{self, MoveError, MoveReport, MoveRequest};
use tidegate_metadata::ClusterImage;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{broker_numbered, partition_named};
use crate::extract::{Body, Cluster};
use crate::problem::{ProblemBody, ProblemKind};
use crate::{AdminState, Problem};

/// How long moves are waited for unless the request says.
const DEFAULT_TIMEOUT_MS: u64 = 30_000;
/// The longest a request may ask to be waited for, in milliseconds.
pub const MAX_TIMEOUT_MS: u64 = 600_000;

pub(super) fn routes() -> OpenApiRouter<AdminState> {
    OpenApiRouter::new().routes(routes!(list, reassign))
}

/// Partitions to be moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReassignRequest {
    /// At most one move of each partition.
    pub moves: Vec<WantedMove>,
    /// How long the answer may wait for the moves, in milliseconds: 30,000 unless it says, at most 600,000. What
    /// isn't done by then goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// One partition to be moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WantedMove {
    /// The topic's name.
    pub topic: String,
    /// The partition's number.
    pub partition: u32,
    /// The broker that shall lead it.
    pub to: u32,
}

/// What became of the moves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReassignAnswer {
    /// In the order of the request.
    pub moves: Vec<MoveAnswer>,
}

/// What became of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MoveStatus {
    /// It is done.
    Moved,
    /// The wanted broker led already; nothing was done.
    AlreadyThere,
    /// It isn't done yet, and goes on.
    UnderWay,
    /// It isn't done; `problem` says why.
    Failed,
}

/// What became of one move. Offsets, epochs and times are there once it is done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MoveAnswer {
    /// The topic's name.
    pub topic: String,
    /// The partition's number.
    pub partition: u32,
    /// The broker that shall lead it.
    pub to: u32,
    /// What became of it.
    pub status: MoveStatus,
    /// Who led it before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u32>,
    /// The leader epoch since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_epoch: Option<u32>,
    /// Where the former leader's epoch ended and the new one starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed_end_offset: Option<u64>,
    /// The new leader catching up while the former one served, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare_ms: Option<f64>,
    /// From the order to seal to the sealed end being durable at the former leader, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal_ms: Option<f64>,
    /// From the order to hold to the new leader holding all of it, in milliseconds; beside `seal_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_ms: Option<f64>,
    /// The change in metadata, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_ms: Option<f64>,
    /// From the request to the commit, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_ms: Option<f64>,
    /// Why it isn't done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<ProblemBody>,
}

/// Moves that are wanted and not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reassignments {
    /// All of them.
    pub reassignments: Vec<Reassignment>,
}

/// A move that is wanted and not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reassignment {
    /// The topic's name.
    pub topic: String,
    /// The partition's number.
    pub partition: u32,
    /// Who leads it at present.
    pub leader: Option<u32>,
    /// Who shall lead it.
    pub to: u32,
    /// The brokers that may lead it, the preferred first.
    pub placement: Vec<u32>,
    /// What it is at, for people.
    pub phase: String,
    /// Why the last attempt failed, if one did.
    pub last_failure: Option<String>,
}

impl From<admin::Reassignment> for Reassignment {
    fn from(one: admin::Reassignment) -> Self {
        Self {
            topic: one.topic.as_str().to_owned(),
            partition: one.partition.index.get(),
            leader: one.leader.map(|leader| leader.get()),
            to: one.to.get(),
            placement: one.placement.iter().map(|broker| broker.get()).collect(),
            phase: one.phase,
            last_failure: one.last_failure,
        }
    }
}

impl MoveAnswer {
    fn new(wanted: WantedMove, status: MoveStatus) -> Self {
        Self {
            topic: wanted.topic,
            partition: wanted.partition,
            to: wanted.to,
            status,
            from: None,
            leader_epoch: None,
            sealed_end_offset: None,
            prepare_ms: None,
            seal_ms: None,
            hold_ms: None,
            commit_ms: None,
            total_ms: None,
            problem: None,
        }
    }

    fn refused(wanted: WantedMove, problem: Problem) -> Self {
        let status = if problem.kind() == ProblemKind::MoveUnderWay {
            MoveStatus::UnderWay
        } else {
            MoveStatus::Failed
        };
        Self {
            problem: Some(problem.into()),
            ..Self::new(wanted, status)
        }
    }

    fn of(wanted: WantedMove, result: Result<MoveReport, MoveError>) -> Self {
        match result {
            Ok(report) => Self {
                from: Some(report.from.get()),
                leader_epoch: Some(report.leader_epoch.get()),
                sealed_end_offset: Some(report.sealed_end_offset.get()),
                prepare_ms: Some(micros(report.prepare_ms)),
                seal_ms: Some(micros(report.seal_ms)),
                hold_ms: Some(micros(report.hold_ms)),
                commit_ms: Some(micros(report.commit_ms)),
                total_ms: Some(micros(report.total_ms)),
                ..Self::new(wanted, MoveStatus::Moved)
            },
            Err(MoveError::AlreadyThere {
                leader,
                leader_epoch,
            }) => Self {
                from: Some(leader.get()),
                leader_epoch: Some(leader_epoch.get()),
                ..Self::new(wanted, MoveStatus::AlreadyThere)
            },
            // The detail names topics by id, which nobody asked by.
            Err(MoveError::UnknownPartition(_)) => {
                let problem = Problem::new(
                    ProblemKind::UnknownPartition,
                    format!(
                        "there is no partition {} of topic {:?} any more",
                        wanted.partition, wanted.topic
                    ),
                );
                Self::refused(wanted, problem)
            }
            Err(error) => Self::refused(wanted, Problem::from(&error)),
        }
    }
}

/// Milliseconds, to the microsecond: what is behind that is noise.
fn micros(ms: f64) -> f64 {
    (ms * 1_000.0).round() / 1_000.0
}

fn check(request: &ReassignRequest) -> Result<Duration, Problem> {
    let timeout_ms = request.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS);
    if timeout_ms > MAX_TIMEOUT_MS {
        return Err(Problem::new(
            ProblemKind::Malformed,
            format!("field timeout_ms: {timeout_ms} is above {MAX_TIMEOUT_MS}"),
        ));
    }
    if request.moves.is_empty() {
        return Err(Problem::new(
            ProblemKind::Malformed,
            "field moves: it is empty",
        ));
    }
    let mut seen = HashSet::new();
    for (at, one) in request.moves.iter().enumerate() {
        if !seen.insert((&one.topic, one.partition)) {
            return Err(Problem::new(
                ProblemKind::Malformed,
                format!(
                    "field moves[{at}]: partition {} of topic {:?} is named twice",
                    one.partition, one.topic
                ),
            ));
        }
    }
    Ok(Duration::from_millis(timeout_ms))
}

fn request_of(image: &ClusterImage, wanted: &WantedMove) -> Result<MoveRequest, Problem> {
    Ok(MoveRequest {
        partition: partition_named(image, &wanted.topic, wanted.partition)?,
        to: broker_numbered(wanted.to)?,
    })
}

/// Moves partitions to other brokers, and waits for it. Every move has an answer of its own; one that can't be done
/// doesn't hinder the others. A move to the broker that leads already is done.
#[utoipa::path(
    post, path = "/v1/reassignments", tag = "reassignments", operation_id = "reassign",
    request_body = ReassignRequest,
    responses(
        (status = 200, description = "What became of each move", body = ReassignAnswer),
        (status = "default", description = "Nothing was carried out, or, with 504, it isn't known", body = ProblemBody, content_type = "application/problem+json")
    )
)]
async fn reassign(
    Cluster(cluster): Cluster,
    Body(request): Body<ReassignRequest>,
) -> Result<Json<ReassignAnswer>, Problem> {
    let timeout = check(&request)?;
    let image = cluster.image();
    let mut asked = Vec::with_capacity(request.moves.len());
    let found: Vec<_> = request
        .moves
        .into_iter()
        .map(|wanted| {
            let found = request_of(&image, &wanted);
            asked.extend(found.as_ref().ok().copied());
            (wanted, found)
        })
        .collect();
    let mut done = if asked.is_empty() {
        Vec::new()
    } else {
        cluster.admin.reassign(asked, timeout).await?
    }
    .into_iter();
    let moves = found
        .into_iter()
        .map(|(wanted, found)| match found {
            Err(problem) => MoveAnswer::refused(wanted, problem),
            Ok(_) => match done.next() {
                Some(result) => MoveAnswer::of(wanted, result),
                None => MoveAnswer::refused(
                    wanted,
                    Problem::new(
                        ProblemKind::OutcomeUnknown,
                        "the controller gave no answer for this move",
                    ),
                ),
            },
        })
        .collect();
    Ok(Json(ReassignAnswer { moves }))
}

/// The moves that are wanted and not done.
#[utoipa::path(
    get, path = "/v1/reassignments", tag = "reassignments", operation_id = "list_reassignments",
    responses(
        (status = 200, description = "All of them", body = Reassignments),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")
    )
)]
async fn list(Cluster(cluster): Cluster) -> Result<Json<Reassignments>, Problem> {
    let listed = cluster.admin.list_reassignments(None).await?;
    Ok(Json(Reassignments {
        reassignments: listed.into_iter().map(Reassignment::from).collect(),
    }))
}
