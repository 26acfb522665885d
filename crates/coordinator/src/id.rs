//! Names of groups and of their members, and the partition a group belongs to.

use std::fmt;
use std::sync::Arc;

use crate::GroupError;

/// Strings in the records of `__consumer_offsets` carry a 16-bit signed length.
pub(crate) const MAX_RECORD_STRING_BYTES: usize = i16::MAX as usize;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    };
}

name! {
    /// A group's name. The empty one exists: simple consumers may commit and fetch offsets under it, and it
    /// can be described and deleted; joining it is refused.
    GroupId
}
name! {
    /// A member's id, chosen by the coordinator. Never empty: the wire's "" is `None`.
    MemberId
}
name! {
    /// `group.instance.id` of a static member (KIP-345).
    InstanceId
}

impl GroupId {
    /// Fails with [`GroupError::InvalidGroupId`] above 32767 bytes, which the records can't carry.
    pub fn new(id: &str) -> Result<Self, GroupError> {
        if id.len() > MAX_RECORD_STRING_BYTES {
            return Err(GroupError::InvalidGroupId);
        }
        Ok(Self(id.into()))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl MemberId {
    /// `None` for the wire's "", which means "no id yet".
    pub fn from_wire(id: &str) -> Option<Self> {
        (!id.is_empty()).then(|| Self(id.into()))
    }

    /// For a member of the consumer protocol whose client leaves the choice to the coordinator.
    pub(crate) fn from_random(random: uuid::Uuid) -> Self {
        Self(random.to_string().into())
    }

    /// Kafka's form: the instance id, or else the client id, a dash, and a random UUID.
    pub(crate) fn generate(prefix: &str, random: uuid::Uuid) -> Self {
        Self(format!("{prefix}-{random}").into())
    }
}

impl InstanceId {
    /// Longest instance id accepted; a member id made from it must fit a record.
    pub const MAX_BYTES: usize = MAX_RECORD_STRING_BYTES - 64;

    /// Fails with [`GroupError::InvalidRequest`] above [`Self::MAX_BYTES`].
    pub fn new(id: &str) -> Result<Self, GroupError> {
        if id.len() > Self::MAX_BYTES {
            return Err(GroupError::InvalidRequest);
        }
        Ok(Self(id.into()))
    }
}

/// The round of a classic group, raised at each completed rebalance. Never negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(i32);

impl Generation {
    pub const ZERO: Self = Self(0);

    /// `None` for the wire's −1 ("no generation") and anything else below 0.
    pub fn from_wire(generation: i32) -> Option<Self> {
        (generation >= 0).then_some(Self(generation))
    }

    pub fn to_wire(self) -> i32 {
        self.0
    }

    /// Starts again at 0 after 2^31−1, so that it never looks like "no generation".
    pub(crate) fn next(self) -> Self {
        Self(self.0.checked_add(1).unwrap_or(0))
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The partition of `__consumer_offsets` that holds a group: Java's `abs(String.hashCode()) % count`, where
/// the absolute value of −2^31 counts as 0. `partition_count` must not be 0; 0 is taken for 1.
pub fn partition_for(group_id: &str, partition_count: u32) -> u32 {
    let hash = group_id.encode_utf16().fold(0_i32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    });
    hash.checked_abs().unwrap_or(0).unsigned_abs() % partition_count.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_for_is_javas_string_hash() {
        // "hello".hashCode() = 99162322 in Java; "polygenelubricants" hashes to −2^31.
        assert_eq!(partition_for("hello", 50), 99_162_322 % 50);
        assert_eq!(partition_for("polygenelubricants", 50), 0);
        assert_eq!(partition_for("", 50), 0);
    }

    #[test]
    fn partition_for_hashes_utf16_code_units() {
        // U+1F600 is the pair D83D DE00: 0xD83D × 31 + 0xDE00.
        assert_eq!(
            partition_for("\u{1F600}", 1_000_000_007),
            0xD83D * 31 + 0xDE00
        );
    }

    #[test]
    fn a_group_id_that_no_record_can_carry_is_refused() {
        assert!(GroupId::new(&"g".repeat(32_767)).is_ok());
        assert_eq!(
            GroupId::new(&"g".repeat(32_768)),
            Err(GroupError::InvalidGroupId)
        );
    }
}
