//! The controller's metrics.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

#[derive(Clone)]
/// Made once per process: a controller that is opened again goes on counting.
pub struct ControllerMetrics {
    pub(crate) commit_seconds: Histogram,
    pub(crate) batch_commands: Histogram,
    pub(crate) commits_failed: Counter,
    pub(crate) openings: Counter,
    pub(crate) refused: Counter,
    pub(crate) topics: Gauge,
    pub(crate) partitions: Gauge,
    pub(crate) segments_committed: Counter,
    pub(crate) objects_dropped: Counter,
    pub(crate) objects_forgotten: Counter,
    pub(crate) epoch: Gauge<u64, AtomicU64>,
}

impl ControllerMetrics {
    /// Registers all of them.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            commit_seconds: Histogram::new(exponential_buckets(0.000_5, 2.0, 16)),
            batch_commands: Histogram::new(exponential_buckets(1.0, 2.0, 10)),
            commits_failed: Counter::default(),
            openings: Counter::default(),
            refused: Counter::default(),
            topics: Gauge::default(),
            partitions: Gauge::default(),
            segments_committed: Counter::default(),
            objects_dropped: Counter::default(),
            objects_forgotten: Counter::default(),
            epoch: Gauge::default(),
        };
        let r = registry.sub_registry_with_prefix("controller");
        r.register_with_unit(
            "metadata_commit",
            "Time until a metadata batch is durable",
            Unit::Seconds,
            metrics.commit_seconds.clone(),
        );
        r.register(
            "batch_commands",
            "Commands that share one metadata batch",
            metrics.batch_commands.clone(),
        );
        r.register(
            "metadata_commits_failed",
            "Metadata batches that failed or whose outcome is unknown",
            metrics.commits_failed.clone(),
        );
        r.register(
            "metadata_openings",
            "Times the metadata store was opened",
            metrics.openings.clone(),
        );
        r.register(
            "requests_refused",
            "Requests refused because the queue was full or the store unavailable",
            metrics.refused.clone(),
        );
        r.register("topics", "Topics", metrics.topics.clone());
        r.register("partitions", "Partitions", metrics.partitions.clone());
        r.register(
            "segments_committed",
            "Segments that became visible by a commit",
            metrics.segments_committed.clone(),
        );
        r.register(
            "objects_dropped",
            "Objects whose last reference was dropped",
            metrics.objects_dropped.clone(),
        );
        r.register(
            "objects_forgotten",
            "Dropped objects that were deleted from the store",
            metrics.objects_forgotten.clone(),
        );
        r.register("epoch", "Controller epoch", metrics.epoch.clone());
        metrics
    }
}
