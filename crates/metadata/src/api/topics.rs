//! Topics, their partitions, and configs.

use serde::{Deserialize, Serialize};
use tidegate_types::{BrokerId, TopicId, TopicName};

use crate::image::Configs;

/// Creates topics, each by itself: one that can't be created doesn't hinder the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateTopics {
    /// The wanted topics.
    pub topics: Vec<NewTopic>,
    /// Answer as if, but change nothing.
    pub validate_only: bool,
}

/// A wanted topic. Its configs were validated by the broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewTopic {
    /// Its name.
    pub name: TopicName,
    /// Its partitions.
    pub layout: TopicLayout,
    /// Explicitly set configs.
    pub configs: Configs,
}

/// How many partitions, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TopicLayout {
    /// The controller places them: on as many brokers as the factor says, or as there are.
    Count {
        /// Number of partitions, at least 1.
        partitions: u32,
        /// Wanted length of each placement, at least 1.
        replication_factor: u16,
    },
    /// The placement of each partition, by index.
    Assigned(Vec<Vec<BrokerId>>),
}

/// A topic that was created, or would have been.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedTopic {
    /// `None` if it was only validated.
    pub id: Option<TopicId>,
    /// Its name.
    pub name: TopicName,
    /// Number of partitions.
    pub partitions: u32,
    /// The replication factor asked for, also where there are fewer brokers.
    pub replication_factor: u16,
    /// Explicitly set configs.
    pub configs: Configs,
}

/// Why a placement isn't possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum AssignmentFault {
    /// A partition with no broker.
    #[error("partition {partition} has no broker")]
    Empty {
        /// Its index.
        partition: u32,
    },
    /// A broker named twice for one partition.
    #[error("partition {partition} names broker {broker} twice")]
    Repeated {
        /// Its index.
        partition: u32,
        /// The broker.
        broker: BrokerId,
    },
    /// A broker nobody knows.
    #[error("partition {partition} names broker {broker}, which isn't registered")]
    UnknownBroker {
        /// Its index.
        partition: u32,
        /// The broker.
        broker: BrokerId,
    },
    /// Placements of different lengths.
    #[error("partition {partition} has another number of brokers than partition 0")]
    Uneven {
        /// Its index.
        partition: u32,
    },
    /// As many placements as new partitions are wanted.
    #[error("{given} placements for {wanted} new partitions")]
    WrongCount {
        /// Placements in the request.
        given: usize,
        /// New partitions.
        wanted: u32,
    },
}

/// Why one topic wasn't created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum CreateTopicError {
    /// The name is taken.
    #[error("topic {name} exists with id {id}")]
    Exists {
        /// The name.
        name: TopicName,
        /// Who has it.
        id: TopicId,
    },
    /// The request names it more than once.
    #[error("topic {name} is named more than once in the request")]
    Repeated {
        /// The name.
        name: TopicName,
    },
    /// Names that differ only in '.' and '_' give metrics of the same name (as Apache Kafka has it).
    #[error("topic {name} differs only in '.' and '_' from {other}")]
    Collides {
        /// The name.
        name: TopicName,
        /// The topic that exists.
        other: TopicName,
    },
    /// No partition at all, or more than the limit.
    #[error("the number of partitions must lie between 1 and {limit}, not {partitions}")]
    PartitionCount {
        /// Asked for.
        partitions: u64,
        /// The most that one topic may have, or that fit into the cluster's limit.
        limit: u64,
    },
    /// A factor of 0.
    #[error("the replication factor must be at least 1")]
    ReplicationFactor,
    /// There is no broker to place it on.
    #[error("no broker is registered")]
    NoBroker,
    /// An explicit placement isn't possible.
    #[error(transparent)]
    Assignment(#[from] AssignmentFault),
}

/// Deletes topics, each by itself. The names are free at once; the segments go in the background.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteTopics {
    /// Which.
    pub topics: Vec<TopicId>,
}

/// No topic has this id (any more).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("no topic has the id {0}")]
pub struct UnknownTopic(pub TopicId);

/// Adds partitions, to each topic by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatePartitions {
    /// Which topics.
    pub topics: Vec<MorePartitions>,
    /// Answer as if, but change nothing.
    pub validate_only: bool,
}

/// More partitions for one topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MorePartitions {
    /// Which topic.
    pub topic: TopicId,
    /// Its new number of partitions.
    pub total: u32,
    /// Placements of the new ones only; `None`: the controller places them.
    pub assignments: Option<Vec<Vec<BrokerId>>>,
}

/// Why one topic got no more partitions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum CreatePartitionsError {
    /// No such topic.
    #[error(transparent)]
    UnknownTopic(#[from] UnknownTopic),
    /// The request names it more than once.
    #[error("topic {0} is named more than once in the request")]
    Repeated(TopicId),
    /// Partitions can only become more.
    #[error("the topic has {current} partitions, the request asks for {total}")]
    NotMore {
        /// What it has.
        current: u32,
        /// What was asked for.
        total: u32,
    },
    /// Above the limit.
    #[error("the number of partitions must lie between 1 and {limit}, not {partitions}")]
    PartitionCount {
        /// Asked for.
        partitions: u64,
        /// The most that one topic may have, or that fit into the cluster's limit.
        limit: u64,
    },
    /// There is no broker to place them on.
    #[error("no broker is registered")]
    NoBroker,
    /// An explicit placement isn't possible.
    #[error(transparent)]
    Assignment(#[from] AssignmentFault),
}

/// What configs belong to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ConfigResource {
    /// One topic.
    Topic(TopicId),
    /// One broker.
    Broker(BrokerId),
    /// All brokers: the cluster-wide default.
    BrokerDefault,
    /// One group of consumers, which needn't exist.
    Group(String),
}

/// One step of an incremental change (KIP-339).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConfigEdit {
    /// Sets it, also if the value equals the default.
    Set {
        /// Which config.
        name: String,
        /// Its new value.
        value: String,
    },
    /// Back to the default.
    Delete {
        /// Which config.
        name: String,
    },
    /// Adds values to a comma-separated list, those that aren't in it.
    Append {
        /// Which config.
        name: String,
        /// The values.
        values: Vec<String>,
        /// The list to add to if none is set.
        default: String,
    },
    /// Takes values from a comma-separated list.
    Subtract {
        /// Which config.
        name: String,
        /// The values.
        values: Vec<String>,
        /// The list to take from if none is set.
        default: String,
    },
}

/// How the configs of one resource change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConfigChange {
    /// Only what is named (IncrementalAlterConfigs).
    Edit(Vec<ConfigEdit>),
    /// These and no others (the older AlterConfigs).
    Replace(Configs),
}

/// Changes configs, of each resource by itself and atomically. The broker has validated names and values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlterConfigs {
    /// What changes how.
    pub changes: Vec<(ConfigResource, ConfigChange)>,
    /// Answer as if, but change nothing.
    pub validate_only: bool,
}
