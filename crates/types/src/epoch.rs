//! Epochs: numbers that are raised on each change and so tell a stale party from a current one.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of a partition's leadership, raised on each change of leader (KIP-101, KIP-320).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeaderEpoch(u32);

impl LeaderEpoch {
    pub const FIRST: Self = Self(0);

    /// `None` for the wire's −1 ("unknown") and anything else below 0.
    pub fn from_wire(epoch: i32) -> Option<Self> {
        u32::try_from(epoch).ok().map(Self)
    }

    /// `None` above 2^31−1, which the wire can't carry.
    pub fn new(epoch: u32) -> Option<Self> {
        (epoch <= i32::MAX as u32).then_some(Self(epoch))
    }

    pub fn get(self) -> u32 {
        self.0
    }

    pub fn to_wire(self) -> i32 {
        i32::try_from(self.0).expect("constructors keep the epoch within 31 bits")
    }

    /// The epoch of the next leader. A partition would need 2^31 changes of leader to run out.
    pub fn next(self) -> Self {
        Self::new(self.0 + 1).expect("a partition changes its leader fewer than 2^31 times")
    }
}

impl fmt::Display for LeaderEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One registration of one broker process; raised when the broker registers again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BrokerEpoch(u64);

impl BrokerEpoch {
    pub const fn new(epoch: u64) -> Self {
        Self(epoch)
    }
    pub fn get(self) -> u64 {
        self.0
    }
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for BrokerEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of one broker's time as controller; checked by every broker on every order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ControllerEpoch(u64);

impl ControllerEpoch {
    pub const fn new(epoch: u64) -> Self {
        Self(epoch)
    }
    pub fn get(self) -> u64 {
        self.0
    }
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for ControllerEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
