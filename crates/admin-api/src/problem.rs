//! Errors as problem details (RFC 9457).

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tidegate_cluster::admin::{AdminError, MoveError};
use tidegate_metadata::ControllerUnavailable;
use utoipa::ToSchema;

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
const BEARER: HeaderValue = HeaderValue::from_static("Bearer");
/// What "no controller at present" and its like pass by in, mostly.
const SOON: HeaderValue = HeaderValue::from_static("1");

/// What went wrong, for programs. The URI is a name, nothing lies behind it.
macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident = $uri:literal, $status:ident, $title:literal;)+) => {
        /// What kind of problem it is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum ProblemKind {
            /// The status says it all.
            Plain(StatusCode),
            $($(#[doc = $doc])+ $kind,)+
        }

        impl ProblemKind {
            /// All that have a name of their own.
            pub const NAMED: &[Self] = &[$(Self::$kind),+];

            /// The problem's `type`.
            pub fn uri(self) -> &'static str {
                match self {
                    Self::Plain(_) => "about:blank",
                    $(Self::$kind => concat!("urn:tidegate:problem:", $uri),)+
                }
            }

            /// The status it is answered with.
            pub fn status(self) -> StatusCode {
                match self {
                    Self::Plain(status) => status,
                    $(Self::$kind => StatusCode::$status,)+
                }
            }

            fn title(self) -> &'static str {
                match self {
                    Self::Plain(status) => status.canonical_reason().unwrap_or("Error"),
                    $(Self::$kind => $title,)+
                }
            }
        }
    };
}

kinds! {
    /// Nothing lies at this path.
    UnknownPath = "unknown-path", NOT_FOUND, "Unknown path";
    /// The path doesn't know this method.
    UnknownMethod = "unknown-method", METHOD_NOT_ALLOWED, "Method not allowed";
    /// The request can't be read; nothing was carried out.
    Malformed = "malformed-request", BAD_REQUEST, "Malformed request";
    /// The request is larger than the API takes.
    TooLarge = "request-too-large", PAYLOAD_TOO_LARGE, "Request too large";
    /// The token is missing or wrong.
    Unauthorized = "unauthorized", UNAUTHORIZED, "Bearer token needed";
    /// A page of another origin asks, in somebody's browser.
    CrossOrigin = "cross-origin", FORBIDDEN, "Cross-origin request";
    /// No controller is known at present; nothing was carried out. Passes by itself.
    NoController = "no-controller", SERVICE_UNAVAILABLE, "No controller yet";
    /// The metadata store can't be reached, or is busy; nothing was carried out.
    Unavailable = "unavailable", SERVICE_UNAVAILABLE, "Unavailable at present";
    /// There was no answer; the request may have been carried out.
    OutcomeUnknown = "outcome-unknown", GATEWAY_TIMEOUT, "Outcome unknown";
    /// A broker of an older release doesn't know this request.
    Unsupported = "unsupported", NOT_IMPLEMENTED, "Not supported by the controller";
    /// No topic has this name.
    UnknownTopic = "unknown-topic", NOT_FOUND, "Unknown topic";
    /// The topic has no such partition.
    UnknownPartition = "unknown-partition", NOT_FOUND, "Unknown partition";
    /// No broker has this number.
    UnknownBroker = "unknown-broker", NOT_FOUND, "Unknown broker";
    /// No group has this name.
    UnknownGroup = "unknown-group", NOT_FOUND, "Unknown group";
    /// The topic exists.
    TopicExists = "topic-exists", CONFLICT, "Topic exists";
    /// The topic can't be as it is wanted.
    InvalidTopic = "invalid-topic", BAD_REQUEST, "Invalid topic";
    /// The broker has no session with the controller.
    BrokerNotAlive = "broker-not-alive", CONFLICT, "Broker not alive";
    /// The broker gives its partitions away.
    BrokerDraining = "broker-draining", CONFLICT, "Drain in progress";
    /// Nobody leads the partition.
    NoLeader = "no-leader", CONFLICT, "Partition without leader";
    /// A later request wants the partition elsewhere.
    MoveReplaced = "move-replaced", CONFLICT, "Move replaced";
    /// The last attempt failed; it is tried again.
    MoveFailed = "move-failed", CONFLICT, "Move failed";
    /// The move wasn't done in time; it goes on.
    MoveUnderWay = "move-under-way", GATEWAY_TIMEOUT, "Move under way";
    /// A broker that was asked gave no answer.
    BrokerUnreachable = "broker-unreachable", BAD_GATEWAY, "Broker unreachable";
}

/// An error answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    kind: ProblemKind,
    detail: String,
}

/// A problem detail (RFC 9457), `application/problem+json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(title = "Problem")]
pub struct ProblemBody {
    /// What kind of problem it is: `urn:tidegate:problem:...`, or `about:blank` where the status says it all.
    pub r#type: String,
    /// The kind, for people.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong in this very case, in one sentence.
    pub detail: String,
}

impl Problem {
    /// `detail` says what is wrong in this very case, on one line, without secrets.
    pub fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
        }
    }

    /// What kind of problem it is.
    pub fn kind(&self) -> ProblemKind {
        self.kind
    }

    pub(crate) fn unknown_topic(topic: &str) -> Self {
        Self::new(
            ProblemKind::UnknownTopic,
            format!("there is no topic {topic:?}"),
        )
    }

    pub(crate) fn unknown_partition(topic: &str, partition: u32, partitions: usize) -> Self {
        Self::new(
            ProblemKind::UnknownPartition,
            format!(
                "topic {topic:?} has no partition {partition}: it has {partitions}, counted from 0"
            ),
        )
    }

    pub(crate) fn unknown_broker(broker: u32) -> Self {
        Self::new(
            ProblemKind::UnknownBroker,
            format!("broker {broker} isn't registered"),
        )
    }
}

impl From<Problem> for ProblemBody {
    fn from(problem: Problem) -> Self {
        Self {
            r#type: problem.kind.uri().to_owned(),
            title: problem.kind.title().to_owned(),
            status: problem.kind.status().as_u16(),
            detail: problem.detail,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.kind.status();
        let mut response = (status, axum::Json(ProblemBody::from(self))).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, PROBLEM_JSON);
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, BEARER);
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, SOON);
        }
        response
    }
}

impl From<ControllerUnavailable> for Problem {
    fn from(unavailable: ControllerUnavailable) -> Self {
        let kind = match unavailable {
            ControllerUnavailable::NoController | ControllerUnavailable::Closed => {
                ProblemKind::NoController
            }
            ControllerUnavailable::StoreUnavailable | ControllerUnavailable::Busy => {
                ProblemKind::Unavailable
            }
            ControllerUnavailable::OutcomeUnknown | ControllerUnavailable::Deposed => {
                ProblemKind::OutcomeUnknown
            }
        };
        Self::new(kind, unavailable.to_string())
    }
}

impl From<AdminError> for Problem {
    fn from(error: AdminError) -> Self {
        match error {
            AdminError::Unavailable(unavailable) => unavailable.into(),
            AdminError::UnknownBroker(broker) => Self::unknown_broker(broker.get()),
            AdminError::Unsupported(reason) => Self::new(ProblemKind::Unsupported, reason),
        }
    }
}

impl From<&MoveError> for Problem {
    fn from(error: &MoveError) -> Self {
        let kind = match error {
            MoveError::UnknownPartition(_) => ProblemKind::UnknownPartition,
            MoveError::UnknownBroker(_) => ProblemKind::UnknownBroker,
            MoveError::BrokerNotAlive(_) => ProblemKind::BrokerNotAlive,
            // No problem at all to who asks: see `reassignments`.
            MoveError::AlreadyThere { .. } => ProblemKind::Plain(StatusCode::OK),
            MoveError::Draining(_) => ProblemKind::BrokerDraining,
            MoveError::NoLeader => ProblemKind::NoLeader,
            MoveError::Replaced => ProblemKind::MoveReplaced,
            MoveError::Failed { .. } => ProblemKind::MoveFailed,
            MoveError::TimedOut => ProblemKind::MoveUnderWay,
        };
        Self::new(kind, error.to_string())
    }
}
