//! A store in memory, for tests and simulation: what is applied outlives its openers, like a bucket.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;

use super::{MetadataStore, StoreError, StoreOpener, WriteBatch};

/// What goes wrong with the next write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails and takes no effect.
    Before,
    /// It takes effect and its answer is lost.
    After,
}

#[derive(Default)]
struct Bucket {
    rows: BTreeMap<Bytes, Bytes>,
    writer: u64,
    fault: Option<Fault>,
    unreachable: bool,
    batches: u64,
}

/// A bucket in memory. Clones share it.
#[derive(Clone, Default)]
pub struct MemoryOpener {
    bucket: Arc<Mutex<Bucket>>,
}

impl MemoryOpener {
    /// An empty bucket.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the next write fail.
    pub fn inject(&self, fault: Fault) {
        self.bucket.lock().fault = Some(fault);
    }

    /// While unreachable, everything fails and nothing takes effect.
    pub fn set_unreachable(&self, unreachable: bool) {
        self.bucket.lock().unreachable = unreachable;
    }

    /// How many batches took effect.
    pub fn batches(&self) -> u64 {
        self.bucket.lock().batches
    }

    /// All that is stored.
    pub fn rows(&self) -> BTreeMap<Bytes, Bytes> {
        self.bucket.lock().rows.clone()
    }

    /// Puts something into the bucket past every writer: damage, or another version's data.
    pub fn overwrite(&self, key: Bytes, value: Bytes) {
        self.bucket.lock().rows.insert(key, value);
    }
}

#[async_trait]
impl StoreOpener for MemoryOpener {
    async fn open(&self) -> Result<Arc<dyn MetadataStore>, StoreError> {
        let mut bucket = self.bucket.lock();
        if bucket.unreachable {
            return Err(failed("unreachable"));
        }
        bucket.writer += 1;
        Ok(Arc::new(MemoryStore {
            writer: bucket.writer,
            closed: Mutex::new(false),
            bucket: Arc::clone(&self.bucket),
        }))
    }
}

struct MemoryStore {
    bucket: Arc<Mutex<Bucket>>,
    writer: u64,
    closed: Mutex<bool>,
}

impl MemoryStore {
    fn check_open(&self, bucket: &Bucket) -> Result<(), StoreError> {
        if bucket.writer != self.writer {
            return Err(StoreError::Fenced);
        }
        if *self.closed.lock() {
            return Err(failed("closed"));
        }
        if bucket.unreachable {
            return Err(failed("unreachable"));
        }
        Ok(())
    }
}

fn failed(reason: &str) -> StoreError {
    StoreError::Failed(reason.into())
}

#[async_trait]
impl MetadataStore for MemoryStore {
    async fn apply(&self, batch: WriteBatch) -> Result<(), StoreError> {
        // Like a real store under load, it lets others run before the write is through.
        tokio::task::yield_now().await;
        let mut bucket = self.bucket.lock();
        let open = self.check_open(&bucket);
        if open.is_err() {
            *self.closed.lock() = true;
        }
        open?;
        let fault = bucket.fault.take();
        if fault.is_some() {
            *self.closed.lock() = true;
        }
        if fault == Some(Fault::Before) {
            return Err(failed("injected before the write"));
        }
        for (key, value) in batch.writes {
            match value {
                Some(value) => bucket.rows.insert(key, value),
                None => bucket.rows.remove(&key),
            };
        }
        bucket.batches += 1;
        match fault {
            Some(_) => Err(failed("injected after the write")),
            None => Ok(()),
        }
    }

    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let bucket = self.bucket.lock();
        self.check_open(&bucket)?;
        Ok(bucket.rows.get(key).cloned())
    }

    async fn scan(
        &self,
        range: Range<Bytes>,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let bucket = self.bucket.lock();
        self.check_open(&bucket)?;
        if range.start >= range.end {
            return Ok(Vec::new());
        }
        Ok(bucket
            .rows
            .range(range)
            .take(limit)
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect())
    }

    async fn close(&self) {
        *self.closed.lock() = true;
    }
}
