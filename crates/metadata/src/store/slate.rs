//! The store on SlateDB: an LSM tree on object storage whose writers fence each other by creating numbered
//! objects.
//!
//! Settings are for a database of megabytes in a process of tens of megabytes that is idle most of the time:
//! no flush timer (each batch flushes itself), polls of many seconds, caches and buffers of a few MiB.
//! Collection never overwrites an object (`boundary_files_enabled = false`), since create-only is the one
//! condition Tidegate relies on, and never removes fences.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use slatedb::config::{
    CloseOptions, CompactionWorkerOptions, CompactorOptions, DurabilityLevel, FlushOptions,
    FlushType, GarbageCollectorDirectoryOptions, GarbageCollectorOptions, ReadOptions, ScanOptions,
};
use slatedb::db_cache::foyer::{FoyerCache, FoyerCacheOptions};
use slatedb::{CloseReason, Db, ErrorKind, Settings};
use tidegate_runtime::SharedClock;
use tokio::time::Instant;

use super::{MetadataStore, StoreError, StoreOpener, WriteBatch};

/// How SlateDB runs.
#[derive(Debug, Clone)]
pub struct SlateOptions {
    /// Interval of background polls: compaction, and news of the manifest.
    pub poll_interval: Duration,
    /// Memory of decoded blocks, indexes and filters, in bytes.
    pub cache_bytes: u64,
    /// Size at which what was written is sorted into a table, in bytes.
    pub table_bytes: usize,
    /// Sorts what was written into a table after so many batches, if `table_interval` has passed too: bounds
    /// what a takeover has to replay.
    pub table_batches: u64,
    /// The least time between two tables made for their number of batches.
    pub table_interval: Duration,
    /// Age below which nothing is collected; longer than any stalled process may live.
    pub collect_min_age: Duration,
}

impl Default for SlateOptions {
    fn default() -> Self {
        Self {
            poll_interval: Duration::from_secs(15),
            cache_bytes: 4 * 1024 * 1024,
            table_bytes: 4 * 1024 * 1024,
            table_batches: 256,
            table_interval: Duration::from_secs(30),
            collect_min_age: Duration::from_secs(30 * 60),
        }
    }
}

impl SlateOptions {
    fn settings(&self) -> Settings {
        let directory = || {
            Some(GarbageCollectorDirectoryOptions {
                interval: Some(Duration::from_secs(10 * 60)),
                min_age: self.collect_min_age,
                dry_run: false,
            })
        };
        Settings {
            flush_interval: None,
            manifest_poll_interval: self.poll_interval,
            l0_sst_size_bytes: self.table_bytes,
            max_unflushed_bytes: self.table_bytes.saturating_mul(8),
            l0_max_ssts: 32,
            l0_max_ssts_per_key: 32,
            l0_flush_parallelism: 1,
            compactor_options: Some(CompactorOptions {
                poll_interval: self.poll_interval,
                commit_compacted_interval: self.poll_interval,
                max_concurrent_compactions: 1,
                worker: Some(CompactionWorkerOptions {
                    max_concurrent_compactions: 1,
                    compactions_poll_interval: self.poll_interval,
                    max_sst_size: 16 * 1024 * 1024,
                    max_fetch_tasks: 1,
                    bytes_to_fetch: 256 * 1024,
                    max_subcompactions: 1,
                    ..CompactionWorkerOptions::default()
                }),
                worker_heartbeat_timeout: self.poll_interval.saturating_mul(4),
                ..CompactorOptions::default()
            }),
            garbage_collector_options: Some(GarbageCollectorOptions {
                manifest_options: directory(),
                wal_options: directory(),
                wal_fence_options: None,
                compacted_options: directory(),
                compactions_options: directory(),
                detach_options: None,
                boundary_files_enabled: false,
                ..GarbageCollectorOptions::default()
            }),
            ..Settings::default()
        }
    }
}

/// Opens the database at one path of an object store.
pub struct SlateOpener {
    objects: Arc<dyn object_store::ObjectStore>,
    path: String,
    options: SlateOptions,
    clock: SharedClock,
}

impl SlateOpener {
    /// `path` is relative to the object store's root: the cluster's prefix and `meta`.
    pub fn new(
        objects: Arc<dyn object_store::ObjectStore>,
        path: impl Into<String>,
        options: SlateOptions,
        clock: SharedClock,
    ) -> Self {
        Self {
            objects,
            path: path.into(),
            options,
            clock,
        }
    }
}

#[async_trait]
impl StoreOpener for SlateOpener {
    async fn open(&self) -> Result<Arc<dyn MetadataStore>, StoreError> {
        let cache = FoyerCache::new_with_opts(FoyerCacheOptions {
            max_capacity: self.options.cache_bytes,
            shards: 1,
        });
        let builder = Db::builder(self.path.as_str(), Arc::clone(&self.objects))
            .with_settings(self.options.settings())
            .with_db_cache(Arc::new(cache), 0);
        let db = Box::pin(builder.build()).await.map_err(classify)?;
        Ok(Arc::new(SlateStore {
            db,
            options: self.options.clone(),
            since_table: Mutex::new(SinceTable {
                batches: 0,
                at: self.clock.now(),
            }),
            clock: Arc::clone(&self.clock),
        }))
    }
}

struct SinceTable {
    batches: u64,
    at: Instant,
}

struct SlateStore {
    db: Db,
    options: SlateOptions,
    since_table: Mutex<SinceTable>,
    clock: SharedClock,
}

impl SlateStore {
    /// Whether it is time to sort what was written into a table.
    fn table_due(&self) -> bool {
        let now = self.clock.now();
        let mut since = self.since_table.lock();
        since.batches += 1;
        let due = since.batches >= self.options.table_batches
            && now.saturating_duration_since(since.at) >= self.options.table_interval;
        if due {
            *since = SinceTable {
                batches: 0,
                at: now,
            };
        }
        due
    }
}

#[async_trait]
impl MetadataStore for SlateStore {
    async fn apply(&self, batch: WriteBatch) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut writes = slatedb::WriteBatch::new();
        for (key, value) in batch.writes {
            match value {
                Some(value) => writes.put_bytes(key, value),
                None => writes.delete(key),
            }
        }
        self.db.write(writes).await.map_err(classify)?;
        self.db.flush().await.map_err(classify)?;
        if self.table_due() {
            let table = FlushOptions {
                flush_type: FlushType::MemTable,
            };
            // The batch is durable whatever becomes of the table.
            if let Err(error) = self.db.flush_with_options(table).await {
                tracing::debug!(%error, "metadata table not written");
            }
        }
        Ok(())
    }

    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let options = ReadOptions {
            durability_filter: DurabilityLevel::Remote,
            ..ReadOptions::default()
        };
        self.db
            .get_with_options(key, &options)
            .await
            .map_err(classify)
    }

    async fn scan(
        &self,
        range: Range<Bytes>,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        if range.start >= range.end {
            return Ok(Vec::new());
        }
        let options = ScanOptions {
            durability_filter: DurabilityLevel::Remote,
            read_ahead_bytes: 256 * 1024,
            ..ScanOptions::default()
        };
        let scan = self.db.scan_with_options(range, &options);
        let mut rows = Box::pin(scan).await.map_err(classify)?;
        let mut found = Vec::new();
        while found.len() < limit {
            match rows.next().await.map_err(classify)? {
                Some(row) => found.push((row.key, row.value)),
                None => break,
            }
        }
        Ok(found)
    }

    async fn close(&self) {
        // What isn't durable was answered to nobody; making a table speeds the next opening up.
        if let Err(error) = self.db.close_with_options(CloseOptions::default()).await {
            tracing::debug!(%error, "metadata store not closed cleanly");
        }
    }
}

/// Whether the object store gave the error, at whatever depth.
fn comes_from_store(error: &slatedb::Error) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(cause) = next {
        if cause.is::<object_store::Error>()
            || cause.is::<Arc<object_store::Error>>()
            || cause.to_string().contains("object store error")
        {
            return true;
        }
        next = cause.source();
    }
    false
}

fn classify(error: slatedb::Error) -> StoreError {
    match error.kind() {
        ErrorKind::Closed(CloseReason::Fenced) => StoreError::Fenced,
        // Data that can't be read because the object store refuses is not damaged: it may be back in a moment.
        ErrorKind::Data if !comes_from_store(&error) => {
            StoreError::Damaged(error.to_string().into())
        }
        _ => StoreError::Failed(error.to_string().into()),
    }
}
