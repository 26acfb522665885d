//! Where the metadata is kept: an ordered map of bytes with atomic, durable batches and a fence.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

mod memory;
mod slate;

#[cfg(test)]
pub(crate) mod contract;
#[cfg(test)]
pub(crate) mod faulty;

pub use memory::{Fault, MemoryOpener};
pub use slate::{SlateOpener, SlateOptions};

/// Why a store couldn't be opened, read or written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// A later opener owns the store. Nothing that this one writes takes effect.
    #[error("a newer writer has taken the metadata store over")]
    Fenced,
    /// It didn't answer, or is closed after a failure. A write's outcome is unknown; open the store again.
    #[error("the metadata store failed: {0}")]
    Failed(Arc<str>),
    /// What is stored can't be read. Trying again doesn't help.
    #[error("the metadata store is damaged: {0}")]
    Damaged(Arc<str>),
}

/// Puts and deletes that take effect together. A later change of a key replaces an earlier one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteBatch {
    writes: Vec<(Bytes, Option<Bytes>)>,
}

impl WriteBatch {
    /// Sets a key.
    pub fn put(&mut self, key: Bytes, value: Bytes) {
        self.writes.push((key, Some(value)));
    }

    /// Removes a key; one that isn't there is no error.
    pub fn delete(&mut self, key: Bytes) {
        self.writes.push((key, None));
    }

    /// `None` as value removes the key.
    pub fn writes(&self) -> &[(Bytes, Option<Bytes>)] {
        &self.writes
    }

    /// Number of puts and deletes.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Nothing to do.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }
}

/// An open store. It has one writer: the latest opener.
#[async_trait]
pub trait MetadataStore: Send + Sync {
    /// Applies the batch atomically; it is durable when this returns `Ok`. After `Failed` the outcome is
    /// unknown, and the store must be opened again before it is used. After `Fenced` nothing took effect.
    async fn apply(&self, batch: WriteBatch) -> Result<(), StoreError>;

    /// Reads one key, durable values only.
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError>;

    /// Reads at most `limit` pairs of the half-open range in the order of keys, durable values only.
    async fn scan(
        &self,
        range: Range<Bytes>,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError>;

    /// Lets go of the store. What is durable stays so.
    async fn close(&self);
}

/// Opens the store, any number of times; each opening fences all earlier ones.
#[async_trait]
pub trait StoreOpener: Send + Sync {
    /// # Errors
    /// `Failed` if the store can't be reached: try again later.
    async fn open(&self) -> Result<Arc<dyn MetadataStore>, StoreError>;
}
