//! The cluster as every broker's Metadata answers see it: an immutable picture, shared by `Arc`.
//!
//! A new picture shares all that didn't change with the one before it: topics are behind an `Arc` each, and
//! so are the three tables.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_types::{
    BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, PartitionIndex, TopicId, TopicName,
};

use crate::api::{QuotaEntity, QuotaLimits};
use crate::model::Endpoint;

mod delta;

pub use delta::{DeltaMismatch, ImageDelta};

/// The explicitly set configs of one resource.
pub type Configs = BTreeMap<String, String>;

/// Orders pictures: a later controller's are newer than any of an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ImageVersion {
    /// Whose picture it is.
    pub controller_epoch: ControllerEpoch,
    /// The number of changes that controller has published.
    pub change: u64,
}

/// One partition, as Metadata answers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionImage {
    /// `None` while nobody can serve it (Kafka's leader −1).
    pub leader: Option<BrokerId>,
    /// Never goes back.
    pub leader_epoch: LeaderEpoch,
    /// The brokers that may lead, the preferred first. On the wire: the replicas.
    pub placement: Vec<BrokerId>,
}

/// One topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicImage {
    /// Its identity.
    pub id: TopicId,
    /// Its name.
    pub name: TopicName,
    /// Only what was explicitly set.
    pub configs: Configs,
    /// By index.
    pub partitions: Vec<PartitionImage>,
}

impl TopicImage {
    /// The partition of this index.
    pub fn partition(&self, index: PartitionIndex) -> Option<&PartitionImage> {
        self.partitions.get(usize::try_from(index.get()).ok()?)
    }
}

/// One broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerImage {
    /// Its number.
    pub id: BrokerId,
    /// Its present registration.
    pub broker_epoch: BrokerEpoch,
    /// Where Kafka clients connect.
    pub kafka: Endpoint,
    /// Where other brokers connect, if it serves them.
    pub internal: Option<Endpoint>,
    /// Its rack or zone (KIP-392, KIP-881).
    pub rack: Option<String>,
    /// It has a session with this controller, or is presumed to have one still.
    pub alive: bool,
    /// It gives its partitions away and gets none.
    #[serde(default)]
    pub draining: bool,
}

/// All topics, found by name and by id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Topics {
    pub(crate) by_name: BTreeMap<TopicName, Arc<TopicImage>>,
    pub(crate) by_id: HashMap<TopicId, Arc<TopicImage>>,
    pub(crate) partition_count: u64,
}

impl Topics {
    pub(crate) fn insert(&mut self, topic: TopicImage) {
        let topic = Arc::new(topic);
        self.partition_count += topic.partitions.len() as u64;
        self.by_name.insert(topic.name.clone(), Arc::clone(&topic));
        self.by_id.insert(topic.id, topic);
    }

    pub(crate) fn remove(&mut self, id: TopicId) -> Option<Arc<TopicImage>> {
        let old = self.by_id.remove(&id)?;
        self.partition_count -= old.partitions.len() as u64;
        // A new topic may have taken the name.
        if self.by_name.get(&old.name).is_some_and(|t| t.id == id) {
            self.by_name.remove(&old.name);
        }
        Some(old)
    }
}

/// The whole cluster at one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterImage {
    pub(crate) cluster_id: Arc<str>,
    pub(crate) version: ImageVersion,
    pub(crate) controller: Option<BrokerId>,
    pub(crate) topics: Arc<Topics>,
    pub(crate) brokers: Arc<BTreeMap<BrokerId, BrokerImage>>,
    pub(crate) broker_default_configs: Arc<Configs>,
    pub(crate) broker_configs: Arc<BTreeMap<BrokerId, Configs>>,
    pub(crate) group_configs: Arc<BTreeMap<String, Configs>>,
    pub(crate) quotas: Arc<BTreeMap<QuotaEntity, QuotaLimits>>,
}

impl ClusterImage {
    /// A cluster without brokers or topics: what a broker knows before it has heard of a controller.
    pub fn empty(cluster_id: &str) -> Self {
        Self {
            cluster_id: cluster_id.into(),
            version: ImageVersion {
                controller_epoch: ControllerEpoch::new(0),
                change: 0,
            },
            controller: None,
            topics: Arc::default(),
            brokers: Arc::default(),
            broker_default_configs: Arc::default(),
            broker_configs: Arc::default(),
            group_configs: Arc::default(),
            quotas: Arc::default(),
        }
    }

    /// The cluster's identity: 22 characters, made at its first start.
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// Which picture this is.
    pub fn version(&self) -> ImageVersion {
        self.version
    }

    /// The broker that is the active controller.
    pub fn controller(&self) -> Option<BrokerId> {
        self.controller
    }

    /// Looks a topic up by name.
    pub fn topic(&self, name: &str) -> Option<&Arc<TopicImage>> {
        let name = TopicName::new(name).ok()?;
        self.topics.by_name.get(&name)
    }

    /// Looks a topic up by id.
    pub fn topic_by_id(&self, id: TopicId) -> Option<&Arc<TopicImage>> {
        self.topics.by_id.get(&id)
    }

    /// All topics in the order of their names.
    pub fn topics(&self) -> impl ExactSizeIterator<Item = &Arc<TopicImage>> {
        self.topics.by_name.values()
    }

    /// The number of partitions of all topics.
    pub fn partition_count(&self) -> u64 {
        self.topics.partition_count
    }

    /// One broker.
    pub fn broker(&self, id: BrokerId) -> Option<&BrokerImage> {
        self.brokers.get(&id)
    }

    /// All registered brokers in the order of their numbers, also those that aren't alive.
    pub fn brokers(&self) -> impl ExactSizeIterator<Item = &BrokerImage> {
        self.brokers.values()
    }

    /// The cluster-wide dynamic broker configs.
    pub fn broker_default_configs(&self) -> &Configs {
        &self.broker_default_configs
    }

    /// The client quotas of the cluster. The same `Arc` as long as nothing changes.
    pub fn quotas(&self) -> &Arc<BTreeMap<QuotaEntity, QuotaLimits>> {
        &self.quotas
    }

    /// One broker's own dynamic configs; `None` if none are set.
    pub fn broker_configs(&self, id: BrokerId) -> Option<&Configs> {
        self.broker_configs.get(&id)
    }

    /// One group's configs; `None` if none are set.
    pub fn group_configs(&self, group: &str) -> Option<&Configs> {
        self.group_configs.get(group)
    }

    /// The groups that have configs of their own.
    pub fn configured_groups(&self) -> impl ExactSizeIterator<Item = &String> {
        self.group_configs.keys()
    }
}
