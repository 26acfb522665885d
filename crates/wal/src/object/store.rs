//! What the object WAL needs of a store. The crate that joins WAL and store implements it.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_segment_format::ByteRange;
use tidegate_types::{BrokerEpoch, BrokerId};

/// The name of an object of a writer's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogObjectName {
    pub broker: BrokerId,
    pub broker_epoch: BrokerEpoch,
    pub sequence: u64,
}

impl fmt::Display for LogObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            broker,
            broker_epoch,
            sequence,
        } = self;
        write!(
            f,
            "object {sequence} of broker {broker} epoch {broker_epoch}"
        )
    }
}

/// How a create ended; either way the object exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateOutcome {
    Created,
    /// It was there: perhaps our own, by an attempt whose answer was lost.
    AlreadyExists,
}

/// A request that failed. After a create that failed the object may exist, or may still appear.
#[derive(Debug, Clone, thiserror::Error)]
#[error(transparent)]
pub struct StoreFailure(pub Arc<dyn Error + Send + Sync>);

/// A store of log objects. Each method may retry within itself, for seconds, not for ever.
#[async_trait]
pub trait ObjectLogStore: Send + Sync {
    /// Stores an object, durably, unless one of that name exists. Of all creates of one name at most one is
    /// ever answered [`CreateOutcome::Created`].
    async fn create(
        &self,
        name: LogObjectName,
        payload: Vec<Bytes>,
    ) -> Result<CreateOutcome, StoreFailure>;

    /// The last `length` bytes of an object, or all if it is shorter, and its size. `None` if there is no such
    /// object, which is true of no object whose create was answered before the call.
    async fn read_tail(
        &self,
        name: LogObjectName,
        length: u64,
    ) -> Result<Option<(Bytes, u64)>, StoreFailure>;

    /// The bytes of a range, all of them.
    async fn read_range(
        &self,
        name: LogObjectName,
        range: ByteRange,
    ) -> Result<Bytes, StoreFailure>;

    /// Resolves when a store that was known to be inaccessible is accessible again, so that waiting requests
    /// may be repeated early. While the store isn't known to be inaccessible it doesn't resolve.
    async fn accessible_again(&self) {
        std::future::pending().await
    }
}
