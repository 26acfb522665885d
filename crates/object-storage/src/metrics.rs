//! What the store's requests look like to an operator.

use std::sync::atomic::{AtomicI64, Ordering};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::error::Operation;
use crate::fault::FaultKind;
use crate::limiter::LimiterState;

type OperationLabel = [(&'static str, &'static str); 1];
type OutcomeLabels = [(&'static str, &'static str); 2];

#[derive(Debug)]
pub(crate) struct Metrics {
    requests: Family<OutcomeLabels, Counter>,
    seconds: Family<OperationLabel, Histogram>,
    sent_bytes: Counter,
    received_bytes: Counter,
    retries: Family<OperationLabel, Counter>,
    accessible: Gauge,
    limit: Gauge,
    in_flight: Gauge,
    waiting: Gauge,
    skew_ms: Gauge,
    /// `i64::MIN`: never measured.
    last_skew_ms: AtomicI64,
}

impl Metrics {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            // 1 ms to 33 s.
            seconds: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.001, 2.0, 16))
            }),
            sent_bytes: Counter::default(),
            received_bytes: Counter::default(),
            retries: Family::default(),
            accessible: Gauge::default(),
            limit: Gauge::default(),
            in_flight: Gauge::default(),
            waiting: Gauge::default(),
            skew_ms: Gauge::default(),
            last_skew_ms: AtomicI64::new(i64::MIN),
        };
        metrics.accessible.set(1);
        let registry = registry.sub_registry_with_prefix("object_store");
        registry.register(
            "requests",
            "Attempts at requests, by operation and outcome (throttled, timed_out, …)",
            metrics.requests.clone(),
        );
        registry.register(
            "request_seconds",
            "Duration of one attempt, by operation",
            metrics.seconds.clone(),
        );
        registry.register(
            "sent_bytes",
            "Bytes of objects sent, each attempt counted",
            metrics.sent_bytes.clone(),
        );
        registry.register(
            "received_bytes",
            "Bytes of objects received",
            metrics.received_bytes.clone(),
        );
        registry.register(
            "retries",
            "Attempts after the first of a request",
            metrics.retries.clone(),
        );
        registry.register(
            "accessible",
            "1 while the bucket can be read and written, else 0",
            metrics.accessible.clone(),
        );
        registry.register(
            "concurrency_limit",
            "Requests allowed in flight; falls while the store throttles",
            metrics.limit.clone(),
        );
        registry.register("in_flight", "Requests in flight", metrics.in_flight.clone());
        registry.register(
            "waiting",
            "Requests waiting for the concurrency limit",
            metrics.waiting.clone(),
        );
        registry.register(
            "clock_skew_milliseconds",
            "The store's clock minus this machine's, from the last answer; seconds' precision",
            metrics.skew_ms.clone(),
        );
        metrics
    }

    pub(crate) fn attempt(&self, operation: Operation, fault: Option<FaultKind>, seconds: f64) {
        let outcome = fault.map_or("ok", FaultKind::as_str);
        self.requests
            .get_or_create(&[("operation", operation.as_str()), ("outcome", outcome)])
            .inc();
        self.seconds
            .get_or_create(&[("operation", operation.as_str())])
            .observe(seconds);
    }

    pub(crate) fn sent(&self, bytes: u64) {
        self.sent_bytes.inc_by(bytes);
    }

    pub(crate) fn received(&self, bytes: u64) {
        self.received_bytes.inc_by(bytes);
    }

    pub(crate) fn retry(&self, operation: Operation) {
        self.retries
            .get_or_create(&[("operation", operation.as_str())])
            .inc();
    }

    pub(crate) fn accessible(&self, accessible: bool) {
        self.accessible.set(i64::from(accessible));
    }

    pub(crate) fn limiter(&self, state: LimiterState) {
        let gauge = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.limit.set(gauge(state.limit));
        self.in_flight.set(gauge(state.in_flight));
        self.waiting.set(gauge(state.waiting));
    }

    pub(crate) fn skew(&self, store_minus_local_ms: i64) {
        self.skew_ms.set(store_minus_local_ms);
        self.last_skew_ms
            .store(store_minus_local_ms, Ordering::Relaxed);
    }

    pub(crate) fn last_skew_ms(&self) -> Option<i64> {
        match self.last_skew_ms.load(Ordering::Relaxed) {
            i64::MIN => None,
            ms => Some(ms),
        }
    }
}
