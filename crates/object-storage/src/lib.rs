//! Object storage: the only durable home of a cluster.
//!
//! One handle, [`ObjectStorage`], over S3 and what speaks its protocol, Google Cloud Storage, Azure Blob
//! Storage, a local folder, or memory.
//!
//! It promises:
//!
//! * The only condition is create-only ([`ObjectStorage::put_create`]), which every store has. "Exists"
//!   may mean our own earlier attempt; the caller puts an identity into the object and reads it back.
//! * A success is durable. In a local folder that includes the names of files and folders.
//! * Whatever a retry may cure is retried, with capped exponential back-off and full jitter, within a
//!   time that depends on who waits ([`RequestClass`]). Each attempt is signed anew and limited by the
//!   bytes it moves. While a store throttles, the rate of requests falls for all, the WAL's last.
//! * A time-out isn't a failure: [`StoreError::TimedOut`] names an unknown outcome.
//! * A bucket that is missing, denied or out of reach is told once, in [`StoreHealth`], in a gauge and in
//!   one log line, and told again when a probe has found it usable.
//!
//! It deliberately doesn't know what objects hold, who refers to them and when they may go. Data objects
//! are single PUTs; multipart uploads are for callers that don't need create-only, through
//! [`ObjectStorage::raw`].

mod backend;
mod error;
mod fault;
mod folder;
mod gate;
mod health;
mod http;
mod key;
mod limiter;
mod metrics;
mod options;
mod probe;
mod raw;
mod storage;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod url;

pub use backend::OpenError;
pub use error::{FailedRequest, Operation, StoreError};
pub use fault::{FaultKind, StoreFault};
pub use health::StoreHealth;
pub use key::{InvalidKey, ObjectKey};
pub use options::{RequestClass, StoreOptions, TimeLimits};
pub use storage::{ListedObject, ObjectStorage, PutOutcome, StorePlan, StoreSeams};
pub use url::{BucketUrl, InvalidStoreUrl, StoreUrl};
