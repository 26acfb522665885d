//! The two numbers that order a consumer group's changes.

use std::fmt;

/// Raised with each change of what a group subscribes to or of who is in it. The target assignment carries the
/// group epoch that it was computed for. Never negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct GroupEpoch(i32);

impl GroupEpoch {
    /// Of a group that nobody has joined.
    pub const ZERO: Self = Self(0);

    /// `None` below 0.
    pub fn from_wire(epoch: i32) -> Option<Self> {
        (epoch >= 0).then_some(Self(epoch))
    }

    pub fn to_wire(self) -> i32 {
        self.0
    }

    /// Stays at the last number, which no group reaches in practice: it would take a rebalance each second for
    /// 68 years.
    pub(crate) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for GroupEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The group epoch that a member has reached, or one of the signs below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberEpoch(i32);

impl MemberEpoch {
    /// In a request: joins, or joins again after it was fenced.
    pub const JOINING: Self = Self(0);
    /// In a request: leaves.
    pub const LEAVING: Self = Self(-1);
    /// A static member that left and will be back within its session (KIP-345, KIP-848).
    pub const LEFT_FOR_A_WHILE: Self = Self(-2);

    pub const fn from_wire(epoch: i32) -> Self {
        Self(epoch)
    }

    pub fn to_wire(self) -> i32 {
        self.0
    }

    pub(crate) fn at(epoch: GroupEpoch) -> Self {
        Self(epoch.0)
    }

    pub(crate) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    pub(crate) fn is_behind(self, epoch: GroupEpoch) -> bool {
        self.0 < epoch.0
    }
}

impl fmt::Display for MemberEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
