//! What compaction counts.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// Counters of compaction by key.
#[derive(Clone, Default)]
pub struct CompactionMetrics {
    pub(crate) due: Gauge,
    pub(crate) passes: Counter,
    pub(crate) failures: Counter,
    pub(crate) bytes_read: Counter,
    pub(crate) bytes_filtered: Counter,
    pub(crate) bytes_kept: Counter,
    pub(crate) records_removed: Counter,
    pub(crate) unreadable_batches: Counter,
    pub(crate) swaps: Counter,
    pub(crate) swaps_refused: Counter,
    pub(crate) swaps_withdrawn: Counter,
}

impl CompactionMetrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "compaction_due_partitions",
            "Partitions that were due for compaction when it last looked",
            self.due.clone(),
        );
        registry.register(
            "compaction_passes",
            "Passes of compaction that came to their end",
            self.passes.clone(),
        );
        registry.register(
            "compaction_failures",
            "Passes of compaction that an error ended",
            self.failures.clone(),
        );
        registry.register_with_unit(
            "compaction_read",
            "Batches that compaction read, those to map keys and those to rewrite",
            Unit::Bytes,
            self.bytes_read.clone(),
        );
        registry.register_with_unit(
            "compaction_filtered",
            "Batches that compaction went through to rewrite them",
            Unit::Bytes,
            self.bytes_filtered.clone(),
        );
        registry.register_with_unit(
            "compaction_kept",
            "Batches that compaction left of them",
            Unit::Bytes,
            self.bytes_kept.clone(),
        );
        registry.register(
            "compaction_records_removed",
            "Records that compaction left out",
            self.records_removed.clone(),
        );
        registry.register(
            "compaction_unreadable_batches",
            "Batches that compaction couldn't open and left as they are",
            self.unreadable_batches.clone(),
        );
        registry.register(
            "compaction_swaps",
            "Runs of segments that compacted ones took the place of",
            self.swaps.clone(),
        );
        registry.register(
            "compaction_swaps_refused",
            "Runs of segments that had changed when compaction wanted to replace them",
            self.swaps_refused.clone(),
        );
        registry.register(
            "compaction_swaps_withdrawn",
            "Runs of segments that compaction gave up because the partition or its policy had changed",
            self.swaps_withdrawn.clone(),
        );
    }
}
