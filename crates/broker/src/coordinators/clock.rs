//! Time in the coordinators' terms.

use std::time::Duration;

use tidegate_coordinator::Now;
use tidegate_runtime::SharedClock;
use tokio::time::Instant;

/// The clock as milliseconds since the host began.
#[derive(Clone)]
pub(crate) struct HostClock {
    clock: SharedClock,
    base: Instant,
}

impl HostClock {
    pub(crate) fn new(clock: SharedClock) -> Self {
        let base = clock.now();
        Self { clock, base }
    }

    pub(crate) fn now(&self) -> Now {
        let since = self.clock.now().saturating_duration_since(self.base);
        Now {
            monotonic_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            wall: self.clock.wall(),
        }
    }

    /// Far deadlines come as "in an hour": the actor looks again then.
    pub(crate) fn instant(&self, at_ms: u64) -> Instant {
        self.base
            .checked_add(Duration::from_millis(at_ms))
            .unwrap_or_else(|| self.clock.now() + Duration::from_secs(3600))
    }
}
