//! Pauses between tries.

use std::time::Duration;

/// Doubles from the first pause up to the longest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Backoff {
    first: Duration,
    next: Duration,
    longest: Duration,
}

impl Backoff {
    pub(super) fn new((first, longest): (Duration, Duration)) -> Self {
        Self {
            first,
            next: first,
            longest,
        }
    }

    /// The pause to make now.
    pub(super) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause
    }

    pub(super) fn reset(&mut self) {
        self.next = self.first;
    }
}
