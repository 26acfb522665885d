//! Why a request to the store failed for good.

use std::fmt;
use std::time::Duration;

use crate::fault::{FaultKind, StoreFault};

/// What a request was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    Put,
    Get,
    Head,
    Delete,
    List,
    Copy,
}

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
            Self::Head => "head",
            Self::Delete => "delete",
            Self::List => "list",
            Self::Copy => "copy",
        }
    }
}

/// The request that failed and what the store said last.
#[derive(Debug, Clone)]
pub struct FailedRequest {
    pub operation: Operation,
    pub bucket: String,
    pub key: String,
    pub attempts: u32,
    pub elapsed: Duration,
    pub fault: StoreFault,
}

impl fmt::Display for FailedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {:?} in bucket {:?} ({} attempts in {:.1} s): {}",
            self.operation.as_str(),
            self.key,
            self.bucket,
            self.attempts,
            self.elapsed.as_secs_f64(),
            self.fault.detail
        )
    }
}

/// Why a request failed. All that a later try could cure has been retried for the request's time.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    #[error("no such object: {0}")]
    NotFound(Box<FailedRequest>),
    #[error("access denied: {0}")]
    Denied(Box<FailedRequest>),
    #[error("bucket missing: {0}")]
    BucketMissing(Box<FailedRequest>),
    /// Expired, unknown or not found at all.
    #[error("credentials not accepted: {0}")]
    Credentials(Box<FailedRequest>),
    /// `skew_ms` is the store's clock minus ours, as last measured.
    #[error("clock differs from the store's by {} ms: {request}", skew_ms.map_or_else(|| "an unknown number of".to_owned(), |ms| ms.to_string()))]
    ClockSkew {
        request: Box<FailedRequest>,
        skew_ms: Option<i64>,
    },
    #[error("store asks for a lower rate: {0}")]
    Throttled(Box<FailedRequest>),
    /// 5xx, broken or refused connections. What was asked may have happened.
    #[error("store not available: {0}")]
    Unavailable(Box<FailedRequest>),
    /// No answer in time. What was asked may have happened, or may still happen.
    #[error("no answer in time: {0}")]
    TimedOut(Box<FailedRequest>),
    #[error("store full: {0}")]
    Full(Box<FailedRequest>),
    /// The request itself is at fault.
    #[error("request refused: {0}")]
    Invalid(Box<FailedRequest>),
}

impl StoreError {
    pub(crate) fn new(request: FailedRequest, skew_ms: Option<i64>) -> Self {
        let kind = request.fault.kind;
        let request = Box::new(request);
        match kind {
            FaultKind::NotFound => Self::NotFound(request),
            FaultKind::Denied => Self::Denied(request),
            FaultKind::BucketMissing => Self::BucketMissing(request),
            FaultKind::CredentialsExpired | FaultKind::CredentialsMissing => {
                Self::Credentials(request)
            }
            FaultKind::ClockSkew => Self::ClockSkew { request, skew_ms },
            FaultKind::Throttled => Self::Throttled(request),
            FaultKind::Unreachable | FaultKind::Unavailable | FaultKind::Conflict => {
                Self::Unavailable(request)
            }
            FaultKind::TimedOut => Self::TimedOut(request),
            FaultKind::Full => Self::Full(request),
            FaultKind::AlreadyExists | FaultKind::Invalid => Self::Invalid(request),
        }
    }

    /// The facts of the last attempt.
    pub fn request(&self) -> &FailedRequest {
        match self {
            Self::NotFound(request)
            | Self::Denied(request)
            | Self::BucketMissing(request)
            | Self::Credentials(request)
            | Self::ClockSkew { request, .. }
            | Self::Throttled(request)
            | Self::Unavailable(request)
            | Self::TimedOut(request)
            | Self::Full(request)
            | Self::Invalid(request) => request,
        }
    }

    pub fn kind(&self) -> FaultKind {
        self.request().fault.kind
    }

    /// Whether the same request may succeed later without anybody changing it. What needs a human
    /// (a missing bucket, a denied access) counts, because the request may succeed once he has acted.
    pub fn is_retriable(&self) -> bool {
        self.kind().is_retriable()
    }

    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound(_))
    }
}
