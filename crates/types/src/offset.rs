//! Record addresses.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An offset or a span left the range 0..=2^63−1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("offset arithmetic left the 63-bit range: {base} + {delta}")]
pub struct OffsetOverflow {
    pub base: i64,
    pub delta: i64,
}

/// The address of a record in its partition, or an exclusive end. Never negative.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Offset(i64);

impl Offset {
    pub const ZERO: Self = Self(0);

    /// `None` below 0: the wire's special values (−1, −2, …) are no offsets.
    pub fn from_wire(offset: i64) -> Option<Self> {
        (offset >= 0).then_some(Self(offset))
    }

    /// For literals and counters that are known to fit 63 bits; `None` above.
    pub fn new(offset: u64) -> Option<Self> {
        i64::try_from(offset).ok().map(Self)
    }

    pub const fn to_wire(self) -> i64 {
        self.0
    }

    /// The value as unsigned, for keys and counters.
    pub fn get(self) -> u64 {
        self.0.cast_unsigned()
    }

    pub fn checked_add(self, delta: i64) -> Result<Self, OffsetOverflow> {
        match self.0.checked_add(delta) {
            Some(sum) if sum >= 0 => Ok(Self(sum)),
            _ => Err(OffsetOverflow {
                base: self.0,
                delta,
            }),
        }
    }

    /// The number of offsets from `earlier` to here; 0 if `earlier` is behind this one.
    pub fn saturating_since(self, earlier: Self) -> u64 {
        u64::try_from(self.0 - earlier.0).unwrap_or(0)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A half-open range of offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OffsetRange {
    start: Offset,
    end: Offset,
}

impl OffsetRange {
    /// `None` if `end` lies before `start`.
    pub fn new(start: Offset, end: Offset) -> Option<Self> {
        (start <= end).then_some(Self { start, end })
    }
    pub fn start(self) -> Offset {
        self.start
    }
    pub fn end(self) -> Offset {
        self.end
    }
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
    pub fn contains(self, offset: Offset) -> bool {
        self.start <= offset && offset < self.end
    }
    pub fn span(self) -> u64 {
        self.end.saturating_since(self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_wire_values_are_no_offsets() {
        assert_eq!(Offset::from_wire(-1), None);
        assert_eq!(Offset::from_wire(0), Some(Offset::ZERO));
    }

    #[test]
    fn addition_past_63_bits_is_an_error() {
        let last = Offset::from_wire(i64::MAX).unwrap();
        assert_eq!(
            last.checked_add(1),
            Err(OffsetOverflow {
                base: i64::MAX,
                delta: 1
            })
        );
        assert_eq!(
            Offset::ZERO.checked_add(-1),
            Err(OffsetOverflow { base: 0, delta: -1 })
        );
    }
}
