//! How fast compaction reads.

use std::time::Duration;

use tidegate_runtime::SharedClock;
use tokio::time::Instant;

/// The longest one wait.
const LONGEST: Duration = Duration::from_secs(10);

/// Spreads reading evenly over time: after each piece it waits until the piece's time is over.
pub(super) struct Pace {
    clock: SharedClock,
    bytes_per_second: u64,
    next: Instant,
}

impl Pace {
    pub(super) fn new(clock: SharedClock, bytes_per_second: u64) -> Self {
        let next = clock.now();
        Self {
            clock,
            bytes_per_second: bytes_per_second.max(1),
            next,
        }
    }

    /// `bytes` are to be read now.
    pub(super) async fn take(&mut self, bytes: usize) {
        let now = self.clock.now();
        if self.next > now {
            tokio::time::sleep((self.next - now).min(LONGEST)).await;
        }
        // What took longer isn't caught up with.
        let nanos = (bytes as u64).saturating_mul(1_000_000_000) / self.bytes_per_second;
        self.next = self.next.max(now) + Duration::from_nanos(nanos);
    }
}
