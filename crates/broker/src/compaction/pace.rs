//! How fast compaction reads.

use std::time::Duration;

use tidegate_runtime::SharedClock;
use tokio::time::Instant;

/// After so long a wait it is asked whether anybody still wants what is waited for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Spreads the reading of all passes evenly over time: before each piece it waits until the time of those before is
/// over.
pub(super) struct Pace {
    clock: SharedClock,
    bytes_per_second: u64,
    /// When the time of what was read is over.
    free_at: Instant,
}

impl Pace {
    pub(super) fn new(clock: SharedClock, bytes_per_second: u64) -> Self {
        let free_at = clock.now();
        Self {
            clock,
            bytes_per_second: bytes_per_second.max(1),
            free_at,
        }
    }

    /// Waits until `bytes` may be read, however long that is. `wanted` is asked at least once, and ends the wait
    /// with its error.
    ///
    /// Cancel-safe: what is waited for takes no time of those behind it before it may be read.
    pub(super) async fn take<E>(
        &mut self,
        bytes: usize,
        wanted: impl Fn() -> Result<(), E>,
    ) -> Result<(), E> {
        let now = loop {
            wanted()?;
            let now = self.clock.now();
            if now >= self.free_at {
                break now;
            }
            tokio::time::sleep((self.free_at - now).min(LOOK_EVERY)).await;
        };
        // What took longer isn't caught up with.
        let nanos = (bytes as u64).saturating_mul(1_000_000_000) / self.bytes_per_second;
        self.free_at = now + Duration::from_nanos(nanos);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use tidegate_runtime::{Clock, SystemClock};

    use super::*;

    /// Time moves only when everybody waits.
    fn paused<F: Future>(test: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap()
            .block_on(test)
    }

    async fn read(pace: &mut Pace, bytes: usize) {
        let taken: Result<(), ()> = pace.take(bytes, || Ok(())).await;
        taken.unwrap();
    }

    #[test]
    fn pieces_that_take_longer_than_any_single_wait_still_come_at_the_pace() {
        paused(async {
            let clock = Arc::new(SystemClock);
            let begun = clock.now();
            let mut pace = Pace::new(clock.clone(), 1_000);
            for _ in 0..5 {
                read(&mut pace, 100_000).await;
            }
            // Four pieces are over when the fifth may be read.
            assert_eq!(begun.elapsed().as_secs(), 400);
        });
    }

    #[test]
    fn small_pieces_come_at_the_pace_and_idle_time_is_not_saved_up() {
        paused(async {
            let clock = Arc::new(SystemClock);
            let mut pace = Pace::new(clock.clone(), 1_000_000);
            tokio::time::sleep(Duration::from_secs(60)).await;
            let begun = clock.now();
            for _ in 0..1_001 {
                read(&mut pace, 10_000).await;
            }
            assert_eq!(begun.elapsed().as_secs(), 10);
        });
    }

    #[test]
    fn a_wait_for_what_nobody_wants_any_more_ends_at_once() {
        paused(async {
            let clock = Arc::new(SystemClock);
            let mut pace = Pace::new(clock.clone(), 1);
            read(&mut pace, 1_000_000).await;
            let begun = clock.now();
            let asked = Cell::new(0);
            let wanted = || {
                asked.set(asked.get() + 1);
                if asked.get() > 3 { Err("gone") } else { Ok(()) }
            };
            assert_eq!(pace.take(1_000_000, wanted).await, Err("gone"));
            assert_eq!(begun.elapsed(), 3 * LOOK_EVERY);
            // It was never read, so only the first one's time counts.
            let left = pace.free_at.saturating_duration_since(clock.now());
            assert!(left <= Duration::from_secs(1_000_000));
        });
    }
}
