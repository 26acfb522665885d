//! The object WAL's store: its log objects are the data objects of this broker.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_object_storage::{ObjectKey, ObjectStorage, PutOutcome, StoreError};
use tidegate_segment_format::ByteRange;
use tidegate_wal::object::{CreateOutcome, LogObjectName, ObjectLogStore, StoreFailure};

/// Log objects in the cluster's store.
pub struct ObjectLog {
    storage: ObjectStorage,
}

impl ObjectLog {
    pub fn new(storage: ObjectStorage) -> Self {
        Self { storage }
    }
}

/// The key of a log object.
pub(crate) fn log_object_key(name: LogObjectName) -> ObjectKey {
    ObjectKey::data(name.broker, name.broker_epoch, name.sequence)
}

fn failure(error: StoreError) -> StoreFailure {
    StoreFailure(Arc::new(error))
}

#[async_trait]
impl ObjectLogStore for ObjectLog {
    async fn create(
        &self,
        name: LogObjectName,
        payload: Vec<Bytes>,
    ) -> Result<CreateOutcome, StoreFailure> {
        match self
            .storage
            .put_create(&log_object_key(name), payload)
            .await
            .map_err(failure)?
        {
            PutOutcome::Created => Ok(CreateOutcome::Created),
            PutOutcome::AlreadyExists => Ok(CreateOutcome::AlreadyExists),
        }
    }

    async fn read_tail(
        &self,
        name: LogObjectName,
        length: u64,
    ) -> Result<Option<(Bytes, u64)>, StoreFailure> {
        match self.storage.get_tail(&log_object_key(name), length).await {
            Ok(found) => Ok(Some(found)),
            Err(StoreError::NotFound(_)) => Ok(None),
            Err(error) => Err(failure(error)),
        }
    }

    async fn read_range(
        &self,
        name: LogObjectName,
        range: ByteRange,
    ) -> Result<Bytes, StoreFailure> {
        self.storage
            .get_range(&log_object_key(name), range.position..range.end())
            .await
            .map_err(failure)
    }

    async fn accessible_again(&self) {
        let mut health = self.storage.health();
        if health.borrow().is_accessible() {
            return std::future::pending().await;
        }
        if health.wait_for(|h| h.is_accessible()).await.is_err() {
            // The store's handles are gone: nobody will say.
            std::future::pending().await
        }
    }
}
