//! How much memory requests may take before they are handled.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes per permit.
const UNIT: usize = 1024;

/// Admits requests by their size. A connection whose request doesn't fit waits, unread, until others are done.
#[derive(Clone)]
pub struct Admission {
    permits: Arc<Semaphore>,
    total: u32,
}

/// The memory of one admitted request; given back when dropped.
pub(super) struct Admitted {
    _permit: OwnedSemaphorePermit,
}

impl Admission {
    pub fn new(limit_bytes: usize) -> Self {
        let total = u32::try_from((limit_bytes / UNIT).max(1))
            .unwrap_or(u32::MAX)
            .min(u32::MAX >> 4);
        Self {
            permits: Arc::new(Semaphore::new(total as usize)),
            total,
        }
    }

    /// Waits for room for a request of so many bytes. One that is larger than everything takes everything.
    pub(super) async fn admit(&self, bytes: usize) -> Admitted {
        let wanted = u32::try_from(bytes.div_ceil(UNIT))
            .unwrap_or(u32::MAX)
            .clamp(1, self.total);
        let permit = self
            .permits
            .clone()
            .acquire_many_owned(wanted)
            .await
            .expect("the semaphore is never closed");
        Admitted { _permit: permit }
    }
}
