//! How requests behave: time limits, back-off, concurrency.

use std::time::Duration;

/// Why a request is made. It decides how long the request may take and who goes first when the store
/// asks for less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestClass {
    /// A producer waits for it: short attempts, first in the queue.
    Wal,
    /// A consumer waits for it.
    Read,
    /// Nobody waits: uploads, merging, deletes, sweeps.
    Background,
}

/// The time limits of one [`RequestClass`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimits {
    /// What one attempt may take beside moving its bytes.
    pub attempt: Duration,
    /// The slowest rate at which moving the bytes still counts as going on, bytes per second.
    pub min_bytes_per_second: u64,
    /// All attempts of one request together, from the call to the error.
    pub total: Duration,
}

impl TimeLimits {
    /// The limit of one attempt that moves `bytes`.
    pub fn attempt_for(&self, bytes: u64) -> Duration {
        let moving = Duration::from_micros(
            bytes.saturating_mul(1_000_000) / self.min_bytes_per_second.max(1),
        );
        self.attempt + moving
    }
}

/// Settings of an [`crate::ObjectStorage`].
#[derive(Debug, Clone)]
pub struct StoreOptions {
    pub wal: TimeLimits,
    pub read: TimeLimits,
    pub background: TimeLimits,
    /// The waits between attempts grow from here, doubling, with full jitter …
    pub first_backoff: Duration,
    /// … to here.
    pub max_backoff: Duration,
    /// The most requests in flight at once. Throttling lowers the limit that is in force, success
    /// raises it again.
    pub max_concurrency: usize,
    pub connect_timeout: Duration,
    /// Leaves the SHA-256 of uploaded bytes out of the signature (`UNSIGNED-PAYLOAD`). It saves about
    /// 2 ms of CPU per MiB; the formats' own checksums and TLS still guard the bytes. Stores that insist
    /// on signed payloads need `false`, or AWS_UNSIGNED_PAYLOAD=false in the environment.
    pub unsigned_payload: bool,
    /// The waits between probes of an inaccessible store grow from here …
    pub first_probe: Duration,
    /// … to here.
    pub max_probe: Duration,
    /// How long requests must have failed to reach the store before it counts as inaccessible.
    pub unreachable_after: Duration,
}

impl StoreOptions {
    pub(crate) fn limits(&self, class: RequestClass) -> &TimeLimits {
        match class {
            RequestClass::Wal => &self.wal,
            RequestClass::Read => &self.read,
            RequestClass::Background => &self.background,
        }
    }
}

impl Default for StoreOptions {
    fn default() -> Self {
        const MIB: u64 = 1024 * 1024;
        Self {
            wal: TimeLimits {
                attempt: Duration::from_secs(3),
                min_bytes_per_second: 2 * MIB,
                total: Duration::from_secs(10),
            },
            read: TimeLimits {
                attempt: Duration::from_secs(5),
                min_bytes_per_second: 2 * MIB,
                total: Duration::from_secs(20),
            },
            background: TimeLimits {
                attempt: Duration::from_secs(15),
                min_bytes_per_second: MIB / 2,
                total: Duration::from_secs(180),
            },
            first_backoff: Duration::from_millis(50),
            max_backoff: Duration::from_secs(5),
            max_concurrency: 256,
            connect_timeout: Duration::from_secs(3),
            unsigned_payload: true,
            first_probe: Duration::from_secs(1),
            max_probe: Duration::from_secs(5),
            unreachable_after: Duration::from_secs(1),
        }
    }
}
