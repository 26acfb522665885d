//! What the local WAL shows of itself.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// The local WAL's metrics. Clones share the values.
#[derive(Debug, Clone)]
pub struct LocalWalMetrics {
    pub(super) sync_seconds: Histogram,
    pub(super) group_entries: Histogram,
    pub(super) appended_bytes: Counter,
    pub(super) pending_bytes: Gauge,
    pub(super) live_bytes: Gauge,
    pub(super) recycled_files: Counter,
    pub(super) refused_full: Counter,
    pub(super) file_system_full: Gauge,
    pub(super) failed: Gauge,
}

impl Default for LocalWalMetrics {
    fn default() -> Self {
        Self {
            sync_seconds: Histogram::new(exponential_buckets(0.000_05, 2.0, 18)),
            group_entries: Histogram::new(exponential_buckets(1.0, 2.0, 14)),
            appended_bytes: Counter::default(),
            pending_bytes: Gauge::default(),
            live_bytes: Gauge::default(),
            recycled_files: Counter::default(),
            refused_full: Counter::default(),
            file_system_full: Gauge::default(),
            failed: Gauge::default(),
        }
    }
}

impl LocalWalMetrics {
    /// Registers all of them under `wal_local_…`; call it once.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("wal_local");
        registry.register_with_unit(
            "sync",
            "How long a sync of the WAL takes",
            Unit::Seconds,
            self.sync_seconds.clone(),
        );
        registry.register(
            "group_entries",
            "Entries made durable by one sync",
            self.group_entries.clone(),
        );
        registry.register_with_unit(
            "appended",
            "Bytes made durable, with frame headers",
            Unit::Bytes,
            self.appended_bytes.clone(),
        );
        registry.register_with_unit(
            "pending",
            "Bytes taken and not yet durable",
            Unit::Bytes,
            self.pending_bytes.clone(),
        );
        registry.register_with_unit(
            "live",
            "Bytes of WAL files that can't be recycled yet",
            Unit::Bytes,
            self.live_bytes.clone(),
        );
        registry.register(
            "recycled_files",
            "WAL files recycled after a trim",
            self.recycled_files.clone(),
        );
        registry.register(
            "refused_full",
            "Appends refused for want of room",
            self.refused_full.clone(),
        );
        registry.register(
            "file_system_full",
            "1 while the file system has no room for the WAL",
            self.file_system_full.clone(),
        );
        registry.register(
            "failed",
            "1 once the WAL has failed and must be reopened",
            self.failed.clone(),
        );
    }
}
