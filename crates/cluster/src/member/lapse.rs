//! When a lease has lapsed, by this process's own clock: rules without a runtime.

use std::time::Duration;

use tokio::time::Instant;

/// Watches the numbers of one holder's lease.
///
/// Only the *appearance* of numbers counts, by the watcher's own monotonic clock: it compares no clocks of two
/// machines. A watcher that looks late sees a lapse late, never early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LapseWatch {
    number: u64,
    since: Instant,
    lease: Duration,
}

impl LapseWatch {
    /// Starts with the number seen now. `lease` is the longer one of the holder's own and the watcher's.
    pub(super) fn new(number: u64, lease: Duration, now: Instant) -> Self {
        Self {
            number,
            since: now,
            lease,
        }
    }

    /// Takes in which number is the newest now. A number that goes back comes from a stale listing.
    pub(super) fn saw(&mut self, number: u64, now: Instant) {
        if number > self.number {
            self.number = number;
            self.since = now;
        }
    }

    /// Begins anew: for some time no number could be created, or none could be seen.
    pub(super) fn restart(&mut self, now: Instant) {
        self.since = now;
    }

    /// The newest number seen.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// When the lease lapses unless a new number is seen before. It has lapsed only if a look made at or after that
    /// time finds none.
    pub(super) fn lapses_at(&self) -> Instant {
        self.since + self.lease
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(2);

    #[test]
    fn only_a_higher_number_prolongs_a_lease() {
        let start = Instant::now();
        let mut watch = LapseWatch::new(7, LEASE, start);
        watch.saw(7, start + Duration::from_secs(1));
        watch.saw(6, start + Duration::from_secs(1));
        assert_eq!(watch.lapses_at(), start + LEASE);
        watch.saw(9, start + Duration::from_secs(1));
        assert_eq!(watch.lapses_at(), start + Duration::from_secs(3));
        assert_eq!(watch.number(), 9);
    }
}
