//! Whether the bucket can be used, told once when it changes.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_types::TimestampMs;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::error::Operation;
use crate::fault::{FaultKind, StoreFault};
use crate::metrics::Metrics;

/// Whether the store can be read and written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreHealth {
    Accessible,
    /// No write will be acknowledged until a probe has succeeded.
    Inaccessible {
        since: TimestampMs,
        cause: StoreFault,
        bucket: String,
    },
}

impl StoreHealth {
    pub fn is_accessible(&self) -> bool {
        matches!(self, Self::Accessible)
    }
}

/// Draws the store's health from the outcome of every request.
#[derive(Debug)]
pub(crate) struct HealthTracker {
    bucket: String,
    unreachable_after: Duration,
    sender: watch::Sender<StoreHealth>,
    failing: Mutex<Option<Failing>>,
    metrics: Arc<Metrics>,
    /// Wakes the probe when the store is lost, and when the last handle is gone.
    wake_probe: Arc<Notify>,
}

/// Requests have failed to get an answer since then.
#[derive(Debug, Clone, Copy)]
struct Failing {
    since: Instant,
    requests: u32,
}

/// So many in a row before "no answer" counts as "can't be reached".
const FAILURES_IN_A_ROW: u32 = 3;

impl HealthTracker {
    pub(crate) fn new(bucket: String, unreachable_after: Duration, metrics: Arc<Metrics>) -> Self {
        Self {
            bucket,
            unreachable_after,
            sender: watch::Sender::new(StoreHealth::Accessible),
            failing: Mutex::new(None),
            metrics,
            wake_probe: Arc::default(),
        }
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<StoreHealth> {
        self.sender.subscribe()
    }

    pub(crate) fn wake_probe(&self) -> Arc<Notify> {
        Arc::clone(&self.wake_probe)
    }

    pub(crate) fn is_accessible(&self) -> bool {
        self.sender.borrow().is_accessible()
    }

    /// The store did what it was asked, or answered about the object.
    pub(crate) fn on_answer(&self) {
        let mut failing = self.failing.lock();
        if failing.is_some() {
            *failing = None;
        }
    }

    pub(crate) fn on_fault(&self, operation: Operation, fault: &StoreFault, wall: TimestampMs) {
        let lost = match fault.kind {
            FaultKind::NotFound | FaultKind::AlreadyExists | FaultKind::Conflict => {
                self.on_answer();
                false
            }
            // The store is there and works; it just wants less, or something else.
            FaultKind::Throttled | FaultKind::Invalid => false,
            FaultKind::BucketMissing
            | FaultKind::CredentialsExpired
            | FaultKind::CredentialsMissing
            | FaultKind::ClockSkew
            | FaultKind::Full => true,
            // A policy without the right to delete leaves garbage, but data can be written and read.
            FaultKind::Denied => !matches!(operation, Operation::Delete | Operation::Copy),
            FaultKind::Unreachable | FaultKind::Unavailable | FaultKind::TimedOut => {
                self.has_failed_long()
            }
        };
        if lost {
            self.lose(fault, wall);
        }
    }

    fn has_failed_long(&self) -> bool {
        let now = Instant::now();
        let mut failing = self.failing.lock();
        let current = failing.get_or_insert(Failing {
            since: now,
            requests: 0,
        });
        current.requests = current.requests.saturating_add(1);
        current.requests >= FAILURES_IN_A_ROW && now >= current.since + self.unreachable_after
    }

    fn lose(&self, fault: &StoreFault, wall: TimestampMs) {
        let changed = self.sender.send_if_modified(|health| {
            let changed = health.is_accessible();
            if changed {
                *health = StoreHealth::Inaccessible {
                    since: wall,
                    cause: fault.clone(),
                    bucket: self.bucket.clone(),
                };
            }
            changed
        });
        if changed {
            self.metrics.accessible(false);
            tracing::error!(
                bucket = %self.bucket,
                cause = fault.kind.as_str(),
                detail = %fault.detail,
                clock_skew_ms = self.metrics.last_skew_ms(),
                remedy = remedy(fault.kind),
                "object store not accessible; nothing is acknowledged until it is"
            );
            self.wake_probe.notify_one();
        }
    }

    /// A probe has read and written.
    pub(crate) fn heal(&self, wall: TimestampMs) {
        *self.failing.lock() = None;
        let before = self.sender.send_replace(StoreHealth::Accessible);
        if let StoreHealth::Inaccessible { since, bucket, .. } = before {
            self.metrics.accessible(true);
            tracing::info!(
                bucket = %bucket,
                inaccessible_ms = wall.get().saturating_sub(since.get()),
                "object store accessible again"
            );
        }
    }
}

impl Drop for HealthTracker {
    fn drop(&mut self) {
        self.wake_probe.notify_one();
    }
}

fn remedy(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::BucketMissing => "create the bucket, or correct its name in the store's URL",
        FaultKind::Denied => "allow this identity to list, get, put and delete under the prefix",
        FaultKind::CredentialsExpired => "renew the credentials, or check the secret",
        FaultKind::CredentialsMissing => {
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or attach a role"
        }
        FaultKind::ClockSkew => "set this machine's clock (NTP)",
        FaultKind::Full => "free space in the store",
        FaultKind::Unreachable => "check AWS_ENDPOINT_URL, the network and the store",
        FaultKind::Unavailable | FaultKind::TimedOut => "check the network and the store",
        FaultKind::NotFound
        | FaultKind::AlreadyExists
        | FaultKind::Conflict
        | FaultKind::Throttled
        | FaultKind::Invalid => "none: heals by itself",
    }
}
