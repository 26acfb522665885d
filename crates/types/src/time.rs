//! Wall-clock time as Kafka has it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Milliseconds since 1970-01-01T00:00:00Z. Negative only for Kafka's −1, "no timestamp".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TimestampMs(i64);

impl TimestampMs {
    pub const NONE: Self = Self(-1);

    pub const fn new(ms: i64) -> Self {
        Self(ms)
    }
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for TimestampMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
