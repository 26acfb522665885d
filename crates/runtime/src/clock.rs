//! Time as an argument.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tidegate_types::TimestampMs;
use tokio::time::Instant;

/// A monotonic clock for durations and deadlines, and a wall clock for what clients see.
///
/// Safety never rests on either (DESIGN.md, I2): clocks only decide when to try.
pub trait Clock: Send + Sync {
    /// Monotonic. Under tokio's paused time it stands still with it.
    fn now(&self) -> Instant;

    /// The time of day; it may jump either way.
    fn wall(&self) -> TimestampMs;
}

/// A clock that is passed around.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl SystemClock {
    pub fn shared() -> SharedClock {
        Arc::new(Self)
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall(&self) -> TimestampMs {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        TimestampMs::new(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// A clock that moves only when a test says so.
#[derive(Debug)]
pub struct ManualClock {
    start: Instant,
    state: Mutex<ManualState>,
}

#[derive(Debug)]
struct ManualState {
    elapsed: Duration,
    wall_ms: i64,
}

impl ManualClock {
    pub fn new(wall: TimestampMs) -> Self {
        Self {
            start: Instant::now(),
            state: Mutex::new(ManualState {
                elapsed: Duration::ZERO,
                wall_ms: wall.get(),
            }),
        }
    }

    /// Moves both clocks forward.
    pub fn advance(&self, by: Duration) {
        let mut state = self.state.lock();
        state.elapsed += by;
        state.wall_ms = state
            .wall_ms
            .saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX));
    }

    /// Makes the wall clock jump, as an operator or NTP would; the monotonic clock doesn't notice.
    pub fn set_wall(&self, wall: TimestampMs) {
        self.state.lock().wall_ms = wall.get();
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        self.start + self.state.lock().elapsed
    }

    fn wall(&self) -> TimestampMs {
        TimestampMs::new(self.state.lock().wall_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_of_the_wall_clock_leaves_the_monotonic_clock_alone() {
        let clock = ManualClock::new(TimestampMs::new(1_000));
        let before = clock.now();
        clock.set_wall(TimestampMs::new(5));
        assert_eq!(clock.now(), before);
        clock.advance(Duration::from_millis(7));
        assert_eq!(clock.now(), before + Duration::from_millis(7));
        assert_eq!(clock.wall(), TimestampMs::new(12));
    }
}
