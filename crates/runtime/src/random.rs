//! Randomness as an argument.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

/// A source of random numbers, shared by clones. Seeded, the same calls give the same numbers.
#[derive(Debug, Clone)]
pub struct Random(Arc<Mutex<StdRng>>);

impl Random {
    /// Seeded by the operating system.
    pub fn from_system() -> Self {
        Self(Arc::new(Mutex::new(rand::make_rng())))
    }

    /// Reproducible.
    pub fn seeded(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    pub fn next_u64(&self) -> u64 {
        self.0.lock().next_u64()
    }

    pub fn fill(&self, bytes: &mut [u8]) {
        self.0.lock().fill_bytes(bytes);
    }

    /// A number in `0..end`; 0 if `end` is 0.
    pub fn below(&self, end: u64) -> u64 {
        if end == 0 {
            return 0;
        }
        self.0.lock().random_range(0..end)
    }

    /// A duration in `longest / 2 ..= longest`, so that parties that wait for the same thing spread out.
    pub fn jitter(&self, longest: Duration) -> Duration {
        let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(nanos / 2 + self.below(nanos - nanos / 2 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides_the_numbers() {
        let (a, b, c) = (Random::seeded(1), Random::seeded(1), Random::seeded(2));
        let first = a.next_u64();
        assert_eq!(first, b.next_u64());
        assert_ne!(first, c.next_u64());
    }

    #[test]
    fn jitter_stays_between_half_and_whole() {
        let random = Random::seeded(7);
        let longest = Duration::from_millis(100);
        for _ in 0..1_000 {
            let jitter = random.jitter(longest);
            assert!(jitter >= longest / 2 && jitter <= longest, "{jitter:?}");
        }
    }
}
