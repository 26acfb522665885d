//! What can be configured of topics and of the broker over Kafka's protocol: names, types, defaults, checks.

mod definitions;
mod group;
mod topic;

pub use definitions::{
    ConfigDefinition, ConfigKind, ConfigRange, InvalidConfig, THROTTLE_CONFIGS, TOPIC_CONFIGS,
    split_list, topic_config,
};
pub use group::{GROUP_CONFIGS, GROUP_HEARTBEAT_INTERVAL, GROUP_SESSION_TIMEOUT, group_config};
pub use topic::{CleanupPolicy, TopicCompaction, TopicDefaults, TopicSettings};
