//! What the object WAL shows of itself.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// The object WAL's metrics. Clones share the values.
#[derive(Debug, Clone)]
pub struct ObjectWalMetrics {
    durable_seconds: Histogram,
    put_seconds: Histogram,
    object_bytes: Histogram,
    object_entries: Histogram,
    under_way: Gauge,
    puts: Counter,
    repeated: Counter,
    pending_bytes: Gauge,
    refused_full: Counter,
    failed: Gauge,
}

impl Default for ObjectWalMetrics {
    fn default() -> Self {
        let seconds = || Histogram::new(exponential_buckets(0.001, 2.0, 16));
        Self {
            durable_seconds: seconds(),
            put_seconds: seconds(),
            object_bytes: Histogram::new(exponential_buckets(1024.0, 2.0, 16)),
            object_entries: Histogram::new(exponential_buckets(1.0, 2.0, 14)),
            under_way: Gauge::default(),
            puts: Counter::default(),
            repeated: Counter::default(),
            pending_bytes: Gauge::default(),
            refused_full: Counter::default(),
            failed: Gauge::default(),
        }
    }
}

impl ObjectWalMetrics {
    /// Registers all of them under `wal_object_…`; call it once.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("wal_object");
        registry.register_with_unit(
            "durable",
            "Time from an append to its being durable",
            Unit::Seconds,
            self.durable_seconds.clone(),
        );
        registry.register_with_unit(
            "put",
            "How long a PUT takes that succeeds at once",
            Unit::Seconds,
            self.put_seconds.clone(),
        );
        registry.register_with_unit(
            "object",
            "Size of the objects",
            Unit::Bytes,
            self.object_bytes.clone(),
        );
        registry.register(
            "object_entries",
            "Entries in one object",
            self.object_entries.clone(),
        );
        registry.register(
            "puts_under_way",
            "PUTs under way when the last object was sent",
            self.under_way.clone(),
        );
        registry.register("puts", "PUTs, repetitions included", self.puts.clone());
        registry.register(
            "puts_repeated",
            "PUTs repeated because their outcome was unknown or bad",
            self.repeated.clone(),
        );
        registry.register_with_unit(
            "pending",
            "Bytes taken and not yet durable",
            Unit::Bytes,
            self.pending_bytes.clone(),
        );
        registry.register(
            "refused_full",
            "Appends refused because a limit was reached",
            self.refused_full.clone(),
        );
        registry.register(
            "failed",
            "1 once this writer was fenced",
            self.failed.clone(),
        );
    }

    pub(super) fn put(&self) {
        self.puts.inc();
    }

    pub(super) fn repeated(&self) {
        self.repeated.inc();
    }

    pub(super) fn put_time(&self, time: Duration) {
        self.put_seconds.observe(time.as_secs_f64());
    }

    pub(super) fn durable(&self, time: Duration) {
        self.durable_seconds.observe(time.as_secs_f64());
    }

    pub(super) fn cut(&self, size_bytes: u64, entries: usize, under_way: usize) {
        self.object_bytes.observe(size_bytes as f64);
        self.object_entries.observe(entries as f64);
        self.under_way
            .set(i64::try_from(under_way).unwrap_or(i64::MAX));
    }

    pub(super) fn pending(&self, bytes: u64) {
        self.pending_bytes
            .set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub(super) fn refused_full(&self) {
        self.refused_full.inc();
    }

    pub(super) fn failed(&self) {
        self.failed.set(1);
    }
}
