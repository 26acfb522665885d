//! Removing objects nobody refers to.

use std::sync::Arc;
use std::time::Duration;

use tidegate_metadata::api::DeletableQuery;
use tidegate_metadata::{ControllerApi, ControllerUnavailable};
use tidegate_object_storage::{InvalidKey, ObjectKey, ObjectStorage, StoreError};
use tidegate_runtime::SharedClock;
use tidegate_types::TimestampMs;

/// Objects in one round's step.
const STEP: usize = 256;

/// Why a round ended early. The next one goes on.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    #[error(transparent)]
    Controller(#[from] ControllerUnavailable),
    #[error("an object can't be deleted")]
    Store(#[from] StoreError),
    #[error("metadata names an object that is no key")]
    Key(#[from] InvalidKey),
}

/// Deletes objects whose last reference was dropped long enough ago.
pub struct ObjectDeleter {
    pub controller: Arc<dyn ControllerApi>,
    pub storage: ObjectStorage,
    pub clock: SharedClock,
    /// Longer than the longest read and upload.
    pub grace: Duration,
}

impl ObjectDeleter {
    /// Deletes all that may be deleted now; answers how many objects.
    pub async fn round(&self) -> Result<usize, DeleteError> {
        let grace = i64::try_from(self.grace.as_millis()).unwrap_or(i64::MAX);
        let dropped_before = TimestampMs::new(self.clock.wall().get().saturating_sub(grace));
        let mut deleted = 0;
        loop {
            let query = DeletableQuery {
                dropped_before,
                limit: STEP,
            };
            let objects = self.controller.deletable_objects(query).await?;
            let last = objects.len() < STEP;
            let mut gone = Vec::with_capacity(objects.len());
            for object in objects {
                // Absent is success: an earlier round may have deleted it and then died.
                self.storage
                    .delete(&ObjectKey::new(object.key.as_str())?)
                    .await?;
                gone.push(object.key);
            }
            deleted += gone.len();
            if !gone.is_empty() {
                self.controller.forget_objects(gone).await?;
            }
            if last {
                return Ok(deleted);
            }
        }
    }
}
