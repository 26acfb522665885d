//! What every attempt at a request goes through: the limiter, a time limit, metrics, health.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tidegate_runtime::{Random, SharedClock};
use tokio::time::Instant;

use crate::backend::{Backend, sync_existing};
use crate::error::Operation;
use crate::fault::{AttemptTimedOut, FaultKind, StoreFault, classify};
use crate::health::HealthTracker;
use crate::limiter::Limiter;
use crate::metrics::Metrics;
use crate::options::{RequestClass, StoreOptions};

/// Shared by all handles of one store.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) backend: Backend,
    pub(crate) options: StoreOptions,
    pub(crate) clock: ClockDebug,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: HealthTracker,
    pub(crate) random: Random,
    limiter: Limiter,
}

/// Clocks have nothing to print.
#[derive(Clone)]
pub(crate) struct ClockDebug(pub(crate) SharedClock);

impl std::fmt::Debug for ClockDebug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

/// An attempt that failed: what the client reported, and what that means.
#[derive(Debug)]
pub(crate) struct AttemptFailed {
    pub(crate) error: object_store::Error,
    pub(crate) fault: StoreFault,
}

impl Gate {
    pub(crate) fn new(
        backend: Backend,
        options: StoreOptions,
        clock: SharedClock,
        random: Random,
        metrics: Arc<Metrics>,
    ) -> Self {
        let health = HealthTracker::new(
            backend.bucket.clone(),
            options.unreachable_after,
            Arc::clone(&metrics),
        );
        Self {
            limiter: Limiter::new(options.max_concurrency),
            backend,
            options,
            clock: ClockDebug(clock),
            random,
            metrics,
            health,
        }
    }

    /// Makes one attempt. `bytes` is what it is expected to move.
    pub(crate) async fn attempt<T>(
        &self,
        operation: Operation,
        class: RequestClass,
        bytes: u64,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, AttemptFailed> {
        let permit = self.limiter.acquire(class).await;
        self.metrics.limiter(self.limiter.state());
        let started = Instant::now();
        let limit = self.attempt_limit(class, bytes);
        let result = match tokio::time::timeout(limit, request).await {
            Ok(result) => result,
            Err(_elapsed) => Err(timed_out(limit)),
        };
        drop(permit);
        self.record(operation, started.elapsed(), result)
    }

    /// What an attempt that moves `bytes` may take.
    pub(crate) fn attempt_limit(&self, class: RequestClass, bytes: u64) -> Duration {
        // A local disk answers in the end; a second attempt would only wait behind the first.
        const FOLDER: Duration = Duration::from_secs(60);
        let limit = self.options.limits(class).attempt_for(bytes);
        match self.backend.traits.folder {
            Some(_) => limit.max(FOLDER),
            None => limit,
        }
    }

    /// Takes note of an attempt's outcome.
    pub(crate) fn record<T>(
        &self,
        operation: Operation,
        elapsed: Duration,
        result: object_store::Result<T>,
    ) -> Result<T, AttemptFailed> {
        let result = result.map_err(|error| AttemptFailed {
            fault: classify(&error),
            error,
        });
        let fault = result.as_ref().err().map(|failed| &failed.fault);
        self.metrics.attempt(
            operation,
            fault.map(|fault| fault.kind),
            elapsed.as_secs_f64(),
        );
        match fault {
            None => {
                self.limiter.on_success();
                self.health.on_answer();
            }
            Some(fault) => {
                if fault.kind == FaultKind::Throttled {
                    self.limiter.on_throttled(&self.random);
                }
                self.health.on_fault(operation, fault, self.clock.0.wall());
            }
        }
        self.metrics.limiter(self.limiter.state());
        result
    }

    /// Called before "exists" is reported for a create-only write.
    pub(crate) async fn confirm_exists(
        &self,
        path: &object_store::path::Path,
    ) -> object_store::Result<()> {
        let Some(folder) = &self.backend.traits.folder else {
            return Ok(());
        };
        sync_existing(folder, path)
            .await
            .map_err(|source| object_store::Error::Generic {
                store: "local folder",
                source: Box::new(source),
            })
    }
}

pub(crate) fn timed_out(limit: Duration) -> object_store::Error {
    object_store::Error::Generic {
        store: "object storage",
        source: Box::new(AttemptTimedOut(limit)),
    }
}

/// The waits between the attempts of one request.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    max: Duration,
    random: Random,
}

impl Backoff {
    pub(crate) fn new(first: Duration, max: Duration, random: &Random) -> Self {
        Self {
            next: first,
            max,
            random: random.clone(),
        }
    }

    /// Anything from nothing to the current ceiling ("full jitter"), so that those who failed together
    /// don't come back together; the ceiling doubles.
    pub(crate) fn next(&mut self) -> Duration {
        let ceiling = self.next;
        self.next = (self.next * 2).min(self.max);
        let micros = u64::try_from(ceiling.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.random.below(micros))
    }
}
