//! Server-side assignors: who shall have which partition. Pure functions; two calls with the same input agree.

mod range;
#[cfg(test)]
mod tests;
mod uniform;

use std::collections::{BTreeMap, BTreeSet};

use tidegate_types::{PartitionIndex, TopicId};

use super::Assignment;
use crate::{InstanceId, MemberId};

/// One member, with topics that exist.
#[derive(Debug, Clone)]
pub(crate) struct MemberSpec {
    pub(crate) id: MemberId,
    pub(crate) instance_id: Option<InstanceId>,
    pub(crate) topics: BTreeSet<TopicId>,
    /// The last target, to stay close to.
    pub(crate) target: Assignment,
}

#[derive(Debug, Clone)]
pub(crate) struct GroupSpec {
    /// In the order of their ids.
    pub(crate) members: Vec<MemberSpec>,
    /// How many partitions each of the topics has.
    pub(crate) partitions: BTreeMap<TopicId, u32>,
}

impl GroupSpec {
    fn has_one_subscription(&self) -> bool {
        self.members
            .windows(2)
            .all(|pair| pair[0].topics == pair[1].topics)
    }

    fn partition_count(&self, topic: TopicId) -> u32 {
        self.partitions.get(&topic).copied().unwrap_or(0)
    }
}

/// Each partition of a topic, from 0.
fn indexes(count: u32) -> impl Iterator<Item = PartitionIndex> {
    (0..count).map_while(|index| PartitionIndex::new(index).ok())
}

/// The assignors that clients may name in `group.remote.assignor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ServerAssignor {
    /// Even, and close to what was.
    #[default]
    Uniform,
    /// Topic by topic, in contiguous ranges, so that equal topics go together.
    Range,
}

impl ServerAssignor {
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        match name {
            "uniform" => Some(Self::Uniform),
            "range" => Some(Self::Range),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Range => "range",
        }
    }

    /// A target for each member. Every partition that somebody subscribes to is in exactly one.
    pub(crate) fn assign(self, spec: &GroupSpec) -> BTreeMap<MemberId, Assignment> {
        match self {
            Self::Uniform => uniform::assign(spec),
            Self::Range => range::assign(spec),
        }
    }
}
