//! The identity of idempotent producers (KIP-98, KIP-360).

use std::fmt;

use serde::{Deserialize, Serialize};

/// An idempotent producer's number. Never negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProducerId(i64);

impl ProducerId {
    /// `None` for the wire's −1 ("none") and anything else below 0.
    pub fn from_wire(id: i64) -> Option<Self> {
        (id >= 0).then_some(Self(id))
    }
    pub fn to_wire(self) -> i64 {
        self.0
    }
}

impl fmt::Display for ProducerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The epoch of a producer id; a lower one is fenced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProducerEpoch(i16);

impl ProducerEpoch {
    pub const FIRST: Self = Self(0);

    pub fn from_wire(epoch: i16) -> Option<Self> {
        (epoch >= 0).then_some(Self(epoch))
    }
    pub fn to_wire(self) -> i16 {
        self.0
    }
}

impl fmt::Display for ProducerEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The sequence number of a record of an idempotent producer: 31 bits, and after 2^31−1 comes 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sequence(i32);

impl Sequence {
    pub const ZERO: Self = Self(0);

    pub fn from_wire(sequence: i32) -> Option<Self> {
        (sequence >= 0).then_some(Self(sequence))
    }
    pub fn to_wire(self) -> i32 {
        self.0
    }
    /// The sequence `count` records later, wrapping at 2^31.
    pub fn advance(self, count: u32) -> Self {
        let sum = (u64::from(self.0.cast_unsigned()) + u64::from(count)) % (1 << 31);
        Self(i32::try_from(sum).expect("a remainder of 2^31 fits 31 bits"))
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Says that a partition's log has seen a producer's batch that would open a transaction there, and that the
/// transaction's coordinator is being asked (KIP-890). The log that gave it out can tell whether it is still good;
/// to everybody else it is a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VerificationTicket(u64);

impl VerificationTicket {
    pub fn new(number: u64) -> Self {
        Self(number)
    }
    pub fn get(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_wraps_to_zero_after_its_last_value() {
        let last = Sequence::from_wire(i32::MAX).unwrap();
        assert_eq!(last.advance(1), Sequence::ZERO);
        let near = Sequence::from_wire(2_147_483_646).unwrap();
        assert_eq!(near.advance(3), Sequence::from_wire(1).unwrap());
    }
}
