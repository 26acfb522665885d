//! What the partition logs count. The caller registers it under the prefix `tidegate`.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// Reads from object storage on behalf of consumers.
#[derive(Clone, Default)]
pub struct ReadMetrics {
    pub index_gets: Counter,
    pub block_gets: Counter,
    pub block_bytes: Counter,
    pub block_hits: Counter,
}

impl ReadMetrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "fetch_index_gets",
            "Object indexes read from object storage",
            self.index_gets.clone(),
        );
        registry.register(
            "fetch_block_gets",
            "Spans of blocks read from object storage",
            self.block_gets.clone(),
        );
        registry.register_with_unit(
            "fetch_block_read",
            "Bytes of blocks read from object storage",
            Unit::Bytes,
            self.block_bytes.clone(),
        );
        registry.register(
            "fetch_block_cache_hits",
            "Reads answered by the block cache",
            self.block_hits.clone(),
        );
    }
}

/// The way of the tail into object storage.
#[derive(Clone, Default)]
pub struct UploadMetrics {
    pub objects: Counter,
    pub bytes: Counter,
    pub commits: Counter,
    pub retries: Counter,
    pub waiting_bytes: Gauge,
    pub uncommitted_objects: Gauge,
}

impl UploadMetrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "upload_objects",
            "Objects uploaded from the local WAL's tail",
            self.objects.clone(),
        );
        registry.register_with_unit(
            "upload",
            "Bytes uploaded, whole objects",
            Unit::Bytes,
            self.bytes.clone(),
        );
        registry.register(
            "upload_commits",
            "Metadata commits of objects",
            self.commits.clone(),
        );
        registry.register(
            "upload_retries",
            "Uploads and commits tried again",
            self.retries.clone(),
        );
        registry.register_with_unit(
            "upload_waiting",
            "Bytes in the local WAL that no upload has taken yet",
            Unit::Bytes,
            self.waiting_bytes.clone(),
        );
        registry.register(
            "object_wal_uncommitted_objects",
            "Stored WAL objects that metadata doesn't know yet",
            self.uncommitted_objects.clone(),
        );
    }
}
