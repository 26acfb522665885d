//! The cluster's image as coordinators see it.

use std::sync::Arc;

use tidegate_coordinator::{ClusterView, GroupId, GroupOverrides, TopicInfo};
use tidegate_metadata::ClusterImage;
use tidegate_types::{TopicId, TopicName};

use crate::config::{GROUP_HEARTBEAT_INTERVAL, GROUP_SESSION_TIMEOUT};

/// One version of the image.
#[derive(Debug)]
pub(super) struct ImageView(pub(super) Arc<ClusterImage>);

impl ClusterView for ImageView {
    fn topic(&self, name: &str) -> Option<TopicInfo> {
        let topic = self.0.topic(name)?;
        Some(TopicInfo {
            id: topic.id,
            partitions: u32::try_from(topic.partitions.len()).unwrap_or(u32::MAX),
        })
    }

    fn topic_name(&self, id: TopicId) -> Option<TopicName> {
        self.0.topic_by_id(id).map(|topic| topic.name.clone())
    }

    fn each_topic(&self, visit: &mut dyn FnMut(&TopicName)) {
        for topic in self.0.topics() {
            visit(&topic.name);
        }
    }

    fn overrides(&self, group: &GroupId) -> GroupOverrides {
        let Some(configs) = self.0.group_configs(group.as_str()) else {
            return GroupOverrides::default();
        };
        let number = |name: &str| configs.get(name)?.parse().ok();
        GroupOverrides {
            session_timeout_ms: number(GROUP_SESSION_TIMEOUT),
            heartbeat_interval_ms: number(GROUP_HEARTBEAT_INTERVAL),
        }
    }
}
