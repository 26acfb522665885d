//! A member of a consumer group: what it says of itself, and how far it is with its assignment.

use std::collections::BTreeSet;

use super::{Assignment, GroupEpoch, MemberEpoch};
use crate::{InstanceId, MemberId, Protocol};

/// What a member says of itself; one record holds it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) instance_id: Option<InstanceId>,
    pub(crate) rack_id: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    /// Names as sent: a topic may come to exist later, or never.
    pub(crate) topics: BTreeSet<String>,
    /// "" is the client's way to withdraw it.
    pub(crate) regex: Option<String>,
    /// How long it may take to give partitions up.
    pub(crate) rebalance_timeout_ms: i32,
    pub(crate) server_assignor: Option<String>,
    /// Set while the member speaks the classic protocol (online migration).
    pub(crate) classic: Option<ClassicDetails>,
}

/// What only a member of the classic protocol says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClassicDetails {
    pub(crate) session_timeout_ms: i32,
    /// In order of preference, each name once.
    pub(crate) protocols: Vec<Protocol>,
}

/// How a member stands to its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberState {
    /// It has all that its epoch's target gives it.
    Stable,
    /// It must give partitions up first.
    Unrevoked,
    /// It waits for partitions that others have still got.
    Unreleased,
    /// Of a later version of Kafka.
    Unknown,
}

impl MemberState {
    pub(crate) fn to_record(self) -> u8 {
        match self {
            Self::Stable => 0,
            Self::Unrevoked => 1,
            Self::Unreleased => 2,
            Self::Unknown => 127,
        }
    }

    pub(crate) fn from_record(state: u8) -> Self {
        match state {
            0 => Self::Stable,
            1 => Self::Unrevoked,
            2 => Self::Unreleased,
            _ => Self::Unknown,
        }
    }
}

/// How far a member is with its assignment; one record holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Current {
    pub(crate) epoch: MemberEpoch,
    /// Accepted too, since the answer that raised the epoch may have been lost.
    pub(crate) previous_epoch: MemberEpoch,
    pub(crate) state: MemberState,
    /// What it may read.
    pub(crate) assigned: Assignment,
    /// What it must give up, and owns until it says that it has.
    pub(crate) revoking: Assignment,
}

impl Current {
    pub(crate) fn joining() -> Self {
        Self {
            epoch: MemberEpoch::JOINING,
            previous_epoch: MemberEpoch::JOINING,
            state: MemberState::Stable,
            assigned: Assignment::default(),
            revoking: Assignment::default(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConsumerMember {
    pub(crate) id: MemberId,
    pub(crate) profile: Profile,
    pub(crate) current: Current,
}

impl ConsumerMember {
    /// A member that the group hasn't got yet.
    pub(crate) fn new(id: MemberId) -> Self {
        Self {
            id,
            profile: Profile {
                rebalance_timeout_ms: -1,
                ..Profile::default()
            },
            current: Current::joining(),
        }
    }

    pub(crate) fn uses_classic_protocol(&self) -> bool {
        self.profile.classic.is_some()
    }

    /// The regular expression, unless it was withdrawn.
    pub(crate) fn regex(&self) -> Option<&str> {
        self.profile
            .regex
            .as_deref()
            .filter(|regex| !regex.is_empty())
    }

    pub(crate) fn is_reconciled_to(&self, target: GroupEpoch) -> bool {
        self.current.state == MemberState::Stable && self.current.epoch == MemberEpoch::at(target)
    }

    pub(crate) fn rebalance_timeout_ms(&self) -> u64 {
        u64::try_from(self.profile.rebalance_timeout_ms).unwrap_or(0)
    }

    pub(crate) fn session_timeout_ms(&self) -> Option<u32> {
        let classic = self.profile.classic.as_ref()?;
        u32::try_from(classic.session_timeout_ms).ok()
    }
}
