//! What the coordinator sees of the cluster around it.

use std::fmt;

use tidegate_types::{TopicId, TopicName};

use crate::GroupId;

/// A topic that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicInfo {
    pub id: TopicId,
    /// How many partitions it has.
    pub partitions: u32,
}

/// Configs of one group that lie over the coordinator's own. `None` where the group has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupOverrides {
    /// `consumer.session.timeout.ms`
    pub session_timeout_ms: Option<u32>,
    /// `consumer.heartbeat.interval.ms`
    pub heartbeat_interval_ms: Option<u32>,
}

/// One unchanging picture of the cluster's topics and group configs. The host hands over a new one with
/// [`crate::GroupCoordinator::see`] when something has changed.
pub trait ClusterView: fmt::Debug + Send + Sync {
    /// The topic of that name now.
    fn topic(&self, name: &str) -> Option<TopicInfo>;
    /// The name of a topic that exists.
    fn topic_name(&self, id: TopicId) -> Option<TopicName>;
    /// Calls `visit` with the name of each topic.
    fn each_topic(&self, visit: &mut dyn FnMut(&TopicName));
    /// The configs set for a group.
    fn overrides(&self, group: &GroupId) -> GroupOverrides;
}

/// Before the host has shown anything.
#[derive(Debug)]
pub(crate) struct NothingSeen;

impl ClusterView for NothingSeen {
    fn topic(&self, _name: &str) -> Option<TopicInfo> {
        None
    }

    fn topic_name(&self, _id: TopicId) -> Option<TopicName> {
        None
    }

    fn each_topic(&self, _visit: &mut dyn FnMut(&TopicName)) {}

    fn overrides(&self, _group: &GroupId) -> GroupOverrides {
        GroupOverrides::default()
    }
}
