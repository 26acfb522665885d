//! Telling faults of a store apart, from what its client reports.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use tidegate_types::WithCauses;

/// What kind of thing went wrong; each kind has its own reaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// No object has this name.
    NotFound,
    /// A create-only write met an object of that name, perhaps our own.
    AlreadyExists,
    /// The store refused to order two concurrent writes of one name (S3's 409): try again.
    Conflict,
    /// The credentials are valid and don't allow this.
    Denied,
    /// The bucket, container or folder doesn't exist.
    BucketMissing,
    /// The credentials aren't valid any more, or not valid at all.
    CredentialsExpired,
    /// No credentials could be found.
    CredentialsMissing,
    /// The store rejects signatures because the clocks differ too much.
    ClockSkew,
    /// The store asks for a lower rate (429, 503 SlowDown).
    Throttled,
    /// No connection could be made.
    Unreachable,
    /// The store's disk or quota is full.
    Full,
    /// The store failed (5xx, "200 with an error"), or the connection broke: outcome unknown.
    Unavailable,
    /// No answer in time: outcome unknown.
    TimedOut,
    /// The request can't succeed as it is.
    Invalid,
}

impl FaultKind {
    /// Whether the same request may succeed later without anybody changing it.
    pub fn is_retriable(self) -> bool {
        match self {
            Self::NotFound | Self::AlreadyExists | Self::Invalid => false,
            Self::Conflict
            | Self::Denied
            | Self::BucketMissing
            | Self::CredentialsExpired
            | Self::CredentialsMissing
            | Self::ClockSkew
            | Self::Throttled
            | Self::Unreachable
            | Self::Full
            | Self::Unavailable
            | Self::TimedOut => true,
        }
    }

    /// Whether waiting a little within one request makes sense. What needs a human doesn't: it is
    /// reported at once and watched by the probe.
    pub(crate) fn is_transient(self) -> bool {
        match self {
            Self::Conflict
            | Self::ClockSkew
            | Self::CredentialsExpired
            | Self::Throttled
            | Self::Unreachable
            | Self::Unavailable
            | Self::TimedOut => true,
            Self::NotFound
            | Self::AlreadyExists
            | Self::Denied
            | Self::BucketMissing
            | Self::CredentialsMissing
            | Self::Full
            | Self::Invalid => false,
        }
    }

    /// The value of the `outcome` label in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::AlreadyExists => "exists",
            Self::Conflict => "conflict",
            Self::Denied => "denied",
            Self::BucketMissing => "bucket_missing",
            Self::CredentialsExpired => "credentials_expired",
            Self::CredentialsMissing => "credentials_missing",
            Self::ClockSkew => "clock_skew",
            Self::Throttled => "throttled",
            Self::Unreachable => "unreachable",
            Self::Full => "full",
            Self::Unavailable => "unavailable",
            Self::TimedOut => "timed_out",
            Self::Invalid => "invalid",
        }
    }
}

/// A [`FaultKind`] with what the store said, shortened to its code and message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFault {
    pub kind: FaultKind,
    pub detail: Arc<str>,
}

impl fmt::Display for StoreFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.as_str(), self.detail)
    }
}

/// The mark of an attempt that this crate gave up waiting for.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {0:?}")]
pub(crate) struct AttemptTimedOut(pub std::time::Duration);

/// An answer shorter or longer than what was asked for.
#[derive(Debug, thiserror::Error)]
#[error("asked for {asked} bytes and got {got}")]
pub(crate) struct WrongLength {
    pub asked: u64,
    pub got: u64,
}

/// Classifies what `object_store` reports.
///
/// The crate keeps the status and the body of an answer in a private type and shows them in the text of
/// the error only, so the text is what has to be read. The tests beside this function run its S3 client
/// over scripted answers, so a change of its wording fails them.
pub(crate) fn classify(error: &object_store::Error) -> StoreFault {
    let text = WithCauses(error).to_string();
    let code = xml_field(&text, "Code");
    let status = status_of(&text);
    let kind = kind_of(error, &text, code, status);
    StoreFault {
        kind,
        detail: detail_of(&text, code, status).into(),
    }
}

fn kind_of(
    error: &object_store::Error,
    text: &str,
    code: Option<&str>,
    status: Option<u16>,
) -> FaultKind {
    if let Some(kind) = code.and_then(kind_of_code) {
        return kind;
    }
    match status {
        Some(401) => return FaultKind::CredentialsExpired,
        Some(403) => return FaultKind::Denied,
        Some(409) => {
            return if text.contains("BlobAlreadyExists") {
                FaultKind::AlreadyExists
            } else {
                FaultKind::Conflict
            };
        }
        Some(412 | 304) => return FaultKind::AlreadyExists,
        Some(429) => return FaultKind::Throttled,
        Some(408) => return FaultKind::TimedOut,
        // A bare 503 comes from proxies and from stores that throttle without saying so: slow down too.
        Some(503) => return FaultKind::Throttled,
        Some(status) if status >= 500 => return FaultKind::Unavailable,
        Some(_) | None => {}
    }
    match error {
        object_store::Error::NotFound { .. } => return FaultKind::NotFound,
        object_store::Error::AlreadyExists { .. }
        | object_store::Error::Precondition { .. }
        | object_store::Error::NotModified { .. } => return FaultKind::AlreadyExists,
        object_store::Error::PermissionDenied { .. } => return FaultKind::Denied,
        object_store::Error::Unauthenticated { .. } => return FaultKind::CredentialsExpired,
        object_store::Error::InvalidPath { .. }
        | object_store::Error::NotSupported { .. }
        | object_store::Error::NotImplemented { .. }
        | object_store::Error::UnknownConfigurationKey { .. } => return FaultKind::Invalid,
        _ => {}
    }
    if text.contains("but object was only") {
        // How `object_store` words a range that starts past the end.
        return FaultKind::Invalid;
    }
    kind_of_cause(error, text).unwrap_or(match status {
        Some(200..300) | None => FaultKind::Unavailable,
        Some(_) => FaultKind::Invalid,
    })
}

/// S3 error codes, which GCS's XML and most compatible servers share.
fn kind_of_code(code: &str) -> Option<FaultKind> {
    Some(match code {
        "NoSuchBucket" | "ContainerNotFound" => FaultKind::BucketMissing,
        "NoSuchKey" | "BlobNotFound" => FaultKind::NotFound,
        "AccessDenied" | "AllAccessDisabled" | "AccountProblem" | "AuthorizationFailure" => {
            FaultKind::Denied
        }
        "InvalidAccessKeyId"
        | "SignatureDoesNotMatch"
        | "ExpiredToken"
        | "InvalidToken"
        | "TokenRefreshRequired" => FaultKind::CredentialsExpired,
        "RequestTimeTooSkewed" => FaultKind::ClockSkew,
        "SlowDown"
        | "SlowDownRead"
        | "SlowDownWrite"
        | "Throttling"
        | "TooManyRequests"
        | "RequestLimitExceeded"
        | "ServerBusy"
        | "ServiceUnavailable" => FaultKind::Throttled,
        "ConditionalRequestConflict" | "OperationAborted" => FaultKind::Conflict,
        "PreconditionFailed" | "BlobAlreadyExists" => FaultKind::AlreadyExists,
        "InternalError" => FaultKind::Unavailable,
        "RequestTimeout" => FaultKind::TimedOut,
        "QuotaExceeded" | "XMinioStorageFull" => FaultKind::Full,
        _ => return None,
    })
}

fn kind_of_cause(error: &object_store::Error, text: &str) -> Option<FaultKind> {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if current.is::<AttemptTimedOut>() {
            return Some(FaultKind::TimedOut);
        }
        if let Some(http) = current.downcast_ref::<object_store::client::HttpError>() {
            use object_store::client::HttpErrorKind;
            let kind = match http.kind() {
                HttpErrorKind::Timeout => FaultKind::TimedOut,
                HttpErrorKind::Connect if text.contains("169.254.169.254") => {
                    FaultKind::CredentialsMissing
                }
                HttpErrorKind::Connect => FaultKind::Unreachable,
                _ => FaultKind::Unavailable,
            };
            return Some(kind);
        }
        if let Some(io) = current.downcast_ref::<std::io::Error>() {
            use std::io::ErrorKind;
            return match io.kind() {
                ErrorKind::NotFound => Some(FaultKind::NotFound),
                ErrorKind::AlreadyExists => Some(FaultKind::AlreadyExists),
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                    Some(FaultKind::Denied)
                }
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Some(FaultKind::Full),
                _ => Some(FaultKind::Unavailable),
            };
        }
        cause = current.source();
    }
    None
}

fn xml_field<'a>(text: &'a str, field: &str) -> Option<&'a str> {
    let start = text.find(&format!("<{field}>"))? + field.len() + 2;
    let end = text[start..].find(&format!("</{field}>"))?;
    Some(&text[start..start + end])
}

fn status_of(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("non-2xx status code: ")?;
    rest.get(..3)?.parse().ok()
}

/// Code and message where there are any: a body may also hold parts of the signature, which stay out
/// of logs.
fn detail_of(text: &str, code: Option<&str>, status: Option<u16>) -> String {
    const MAX_CHARS: usize = 300;
    let detail = match (code, status) {
        (Some(code), status) => {
            let status = status.map(|s| format!("{s} ")).unwrap_or_default();
            let message = xml_field(text, "Message").unwrap_or("no message");
            format!("{status}{code}: {message}")
        }
        (None, Some(status)) => format!("status {status}"),
        (None, None) => text.to_owned(),
    };
    detail.chars().take(MAX_CHARS).collect()
}
