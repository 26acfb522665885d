//! Which request meets which fault.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::http1::Message;

/// What an S3 request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// GetObject, whole or a range.
    Get,
    /// HeadObject.
    Head,
    /// PutObject.
    Put,
    /// DeleteObject or DeleteObjects.
    Delete,
    /// ListObjects or ListObjectsV2.
    List,
    /// CreateMultipartUpload.
    CreateMultipart,
    /// UploadPart.
    UploadPart,
    /// CompleteMultipartUpload.
    CompleteMultipart,
    /// AbortMultipartUpload.
    AbortMultipart,
    /// ListMultipartUploads or ListParts.
    ListMultipart,
    /// Anything on the bucket itself.
    Bucket,
}

impl Operation {
    /// Whether it stores bytes.
    pub fn is_upload(self) -> bool {
        matches!(
            self,
            Self::Put | Self::CreateMultipart | Self::UploadPart | Self::CompleteMultipart
        )
    }
}

/// A request as a rule sees it.
#[derive(Debug, Clone)]
pub struct S3Request {
    /// What it asks for.
    pub operation: Operation,
    /// The bucket.
    pub bucket: String,
    /// The key, percent-decoded; empty for the bucket itself.
    pub key: String,
    /// The raw query.
    pub query: String,
    /// Body bytes.
    pub body_bytes: usize,
    /// Whether it is create-only (`If-None-Match: *`).
    pub create_only: bool,
}

impl S3Request {
    pub(super) fn parse(message: &Message) -> Result<Self> {
        let mut words = message.start.split(' ');
        let method = words.next().context("no method")?;
        let target = words.next().context("no target")?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (bucket, key) = path
            .trim_start_matches('/')
            .split_once('/')
            .unwrap_or((path.trim_start_matches('/'), ""));
        let has = |name: &str| {
            query
                .split('&')
                .any(|pair| pair == name || pair.starts_with(&format!("{name}=")))
        };
        let operation = match (method, key.is_empty()) {
            ("GET", _) if has("uploads") || has("uploadId") => Operation::ListMultipart,
            ("POST", true) if has("delete") => Operation::Delete,
            ("GET", true) if !has("location") => Operation::List,
            (_, true) => Operation::Bucket,
            ("GET", false) => Operation::Get,
            ("HEAD", false) => Operation::Head,
            ("PUT", false) if has("uploadId") => Operation::UploadPart,
            ("PUT", false) => Operation::Put,
            ("POST", false) if has("uploads") => Operation::CreateMultipart,
            ("POST", false) => Operation::CompleteMultipart,
            ("DELETE", false) if has("uploadId") => Operation::AbortMultipart,
            ("DELETE", false) => Operation::Delete,
            (_, false) => Operation::Bucket,
        };
        Ok(Self {
            operation,
            bucket: bucket.to_owned(),
            key: percent_decode(key),
            query: query.to_owned(),
            body_bytes: message.body.len(),
            create_only: message.header("if-none-match") == Some("*"),
        })
    }
}

fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        if let Some(value) = hex.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            out.push(value);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// What happens to a request that a rule matches.
#[derive(Clone)]
pub enum Action {
    /// Not forwarded; answered with this status and S3 error code.
    Answer {
        /// HTTP status.
        status: u16,
        /// S3 error code, such as `SlowDown`.
        code: &'static str,
    },
    /// Not forwarded; answered with 403 `RequestTimeTooSkewed` by a store with a clock of its own.
    WrongClock {
        /// The answer's `Date`.
        date: &'static str,
    },
    /// Forwarded after a pause.
    Delay(Duration),
    /// Never answered (an hour).
    Hang,
    /// Forwarded; the answer is thrown away and the connection reset. The store has done it, the client can't know.
    DropReply,
    /// Not forwarded; the connection is reset.
    Reset,
    /// Forwarded; the answer is replaced. Status 200 with an error code is S3's "200 with an error inside".
    ReplaceReply {
        /// HTTP status.
        status: u16,
        /// S3 error code.
        code: &'static str,
    },
    /// Forwarded; keys for which the function says yes are missing from the listing.
    HideFromListing(Arc<dyn Fn(&str) -> bool + Send + Sync>),
}

impl Action {
    /// 503 `SlowDown`.
    pub const SLOW_DOWN: Self = Self::Answer {
        status: 503,
        code: "SlowDown",
    };
    /// 409 `ConditionalRequestConflict`.
    pub const CONFLICT: Self = Self::Answer {
        status: 409,
        code: "ConditionalRequestConflict",
    };
    /// 403 `RequestTimeTooSkewed`.
    pub const CLOCK_SKEW: Self = Self::Answer {
        status: 403,
        code: "RequestTimeTooSkewed",
    };
    /// 400 `ExpiredToken`.
    pub const EXPIRED_TOKEN: Self = Self::Answer {
        status: 400,
        code: "ExpiredToken",
    };
    /// 403 `AccessDenied`.
    pub const DENIED: Self = Self::Answer {
        status: 403,
        code: "AccessDenied",
    };
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer { status, code } => write!(f, "Answer({status} {code})"),
            Self::WrongClock { date } => write!(f, "WrongClock({date})"),
            Self::Delay(duration) => write!(f, "Delay({duration:?})"),
            Self::Hang => f.write_str("Hang"),
            Self::DropReply => f.write_str("DropReply"),
            Self::Reset => f.write_str("Reset"),
            Self::ReplaceReply { status, code } => write!(f, "ReplaceReply({status} {code})"),
            Self::HideFromListing(_) => f.write_str("HideFromListing"),
        }
    }
}

pub(super) fn error_body(code: &str, key: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>injected by the fault proxy\
         </Message><Key>{key}</Key><RequestId>fault-proxy</RequestId></Error>"
    )
}

/// The listing without the `Contents` elements whose key is hidden.
pub(super) fn hide_keys(listing: &str, hidden: impl Fn(&str) -> bool) -> String {
    let mut out = String::with_capacity(listing.len());
    let mut rest = listing;
    while let Some(start) = rest.find("<Contents>") {
        let Some(length) = rest[start..].find("</Contents>") else {
            break;
        };
        let end = start + length + "</Contents>".len();
        let key = rest[start..end]
            .split("<Key>")
            .nth(1)
            .and_then(|tail| tail.split("</Key>").next())
            .unwrap_or("");
        out.push_str(&rest[..start]);
        if !hidden(key) {
            out.push_str(&rest[start..end]);
        }
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

/// Names a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleId(usize);

/// One request that passed the proxy.
#[derive(Debug, Clone)]
pub struct LoggedRequest {
    /// When it arrived.
    pub at: Instant,
    /// What it was.
    pub request: S3Request,
    /// What the client got; `None` when the connection was cut.
    pub status: Option<u16>,
}

type Matches = Box<dyn Fn(&S3Request) -> bool + Send + Sync>;

struct Rule {
    id: usize,
    action: Action,
    left: Option<usize>,
    matches: Matches,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    used: Vec<usize>,
    log: Vec<LoggedRequest>,
}

#[derive(Default)]
pub(super) struct Rules(Mutex<State>);

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rules")
    }
}

impl Rules {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, action: Action, left: Option<usize>, matches: Matches) -> RuleId {
        let mut state = self.state();
        let id = state.used.len();
        state.used.push(0);
        state.rules.push(Rule {
            id,
            action,
            left,
            matches,
        });
        RuleId(id)
    }

    pub(super) fn remove(&self, id: RuleId) {
        self.state().rules.retain(|rule| rule.id != id.0);
    }

    pub(super) fn clear(&self) {
        self.state().rules.clear();
    }

    pub(super) fn uses(&self, id: RuleId) -> usize {
        self.state().used.get(id.0).copied().unwrap_or(0)
    }

    pub(super) fn decide(&self, request: &S3Request) -> Option<Action> {
        let mut state = self.state();
        let rule = state
            .rules
            .iter_mut()
            .find(|rule| rule.left != Some(0) && (rule.matches)(request))?;
        if let Some(left) = rule.left.as_mut() {
            *left -= 1;
        }
        let (id, action) = (rule.id, rule.action.clone());
        state.used[id] += 1;
        Some(action)
    }

    pub(super) fn record(&self, request: &S3Request, status: Option<u16>, at: Instant) {
        self.state().log.push(LoggedRequest {
            at,
            request: request.clone(),
            status,
        });
    }

    pub(super) fn log(&self) -> Vec<LoggedRequest> {
        self.state().log.clone()
    }
}
