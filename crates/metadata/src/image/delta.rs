//! What changed between two pictures: how brokers that aren't the controller keep theirs up to date.
//!
//! A delta names single partitions, so that a move in a large topic costs about a hundred bytes. It travels
//! between brokers of neighbouring releases with its fields named; what is empty is left out.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_types::{BrokerId, ControllerEpoch, PartitionIndex, TopicId};

use crate::api::{QuotaEntity, QuotaLimits};

use super::{BrokerImage, ClusterImage, Configs, ImageVersion, PartitionImage, TopicImage, Topics};

/// A version in few bytes.
type Version = (ControllerEpoch, u64);

fn short(version: ImageVersion) -> Version {
    (version.controller_epoch, version.change)
}

fn long((controller_epoch, change): Version) -> ImageVersion {
    ImageVersion {
        controller_epoch,
        change,
    }
}

/// The change from one picture to a later one, or a whole picture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageDelta {
    /// `None`: it is a whole picture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<Version>,
    to: Version,
    /// Only in a whole picture: it never changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cluster_id: Option<String>,
    #[serde(default)]
    controller: Option<BrokerId>,
    /// New or changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    brokers: Vec<BrokerImage>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gone_brokers: Vec<BrokerId>,
    /// Deleted topics, applied before the new ones: those may have their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gone_topics: Vec<TopicId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    new_topics: Vec<TopicImage>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    topics: Vec<TopicDelta>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    broker_default_configs: Option<Configs>,
    /// All of them, if any changed: they are few.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    broker_configs: Option<BTreeMap<BrokerId, Configs>>,
    /// All of them, as above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group_configs: Option<BTreeMap<String, Configs>>,
    /// Entities whose quotas changed; those without limits are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    quotas: Vec<(QuotaEntity, QuotaLimits)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct TopicDelta {
    id: TopicId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    configs: Option<Configs>,
    /// Changed ones, then those that were added, in the order of their indexes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    partitions: Vec<(PartitionIndex, PartitionImage)>,
}

/// A delta that doesn't continue a picture. Ask for a whole one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeltaMismatch {
    /// It continues another picture.
    #[error("the delta continues {from:?}, not {present:?}")]
    Version {
        /// What it continues.
        from: ImageVersion,
        /// What it was applied to.
        present: ImageVersion,
    },
    /// It changes what isn't there.
    #[error("the delta changes what isn't in the picture: {0}")]
    Contradiction(String),
}

impl ImageDelta {
    /// The picture it continues; `None` if it is a whole one.
    pub fn from(&self) -> Option<ImageVersion> {
        self.from.map(long)
    }

    /// The picture it leads to.
    pub fn to(&self) -> ImageVersion {
        long(self.to)
    }

    /// The topics in which something changed, or that came or went.
    pub fn changed_topics(&self) -> impl Iterator<Item = TopicId> {
        let changed = self.topics.iter().map(|topic| topic.id);
        let new = self.new_topics.iter().map(|topic| topic.id);
        changed.chain(new).chain(self.gone_topics.iter().copied())
    }
}

impl ClusterImage {
    /// The whole picture in the form of a delta, which can be applied to any other.
    pub fn snapshot(&self) -> ImageDelta {
        let empty = Self::empty(self.cluster_id());
        ImageDelta {
            from: None,
            cluster_id: Some(self.cluster_id().to_owned()),
            ..empty.delta_to(self)
        }
    }

    /// What changed from this picture to a newer one of the same cluster.
    pub fn delta_to(&self, newer: &Self) -> ImageDelta {
        let mut delta = ImageDelta {
            from: Some(short(self.version)),
            to: short(newer.version),
            cluster_id: None,
            controller: newer.controller,
            brokers: Vec::new(),
            gone_brokers: Vec::new(),
            gone_topics: Vec::new(),
            new_topics: Vec::new(),
            topics: Vec::new(),
            broker_default_configs: (self.broker_default_configs != newer.broker_default_configs)
                .then(|| (*newer.broker_default_configs).clone()),
            broker_configs: (self.broker_configs != newer.broker_configs)
                .then(|| (*newer.broker_configs).clone()),
            group_configs: (self.group_configs != newer.group_configs)
                .then(|| (*newer.group_configs).clone()),
            quotas: Vec::new(),
        };
        if !Arc::ptr_eq(&self.brokers, &newer.brokers) {
            let changed = newer.brokers.iter();
            let changed = changed.filter(|(id, broker)| self.brokers.get(id) != Some(broker));
            delta.brokers = changed.map(|(_, broker)| broker.clone()).collect();
            let gone = self.brokers.keys().copied();
            delta.gone_brokers = gone.filter(|id| !newer.brokers.contains_key(id)).collect();
        }
        if !Arc::ptr_eq(&self.quotas, &newer.quotas) {
            let changed = newer.quotas.iter();
            let changed =
                changed.filter(|(entity, limits)| self.quotas.get(entity) != Some(limits));
            delta.quotas = changed.map(|(e, l)| (e.clone(), l.clone())).collect();
            let gone = self.quotas.keys();
            let gone = gone.filter(|entity| !newer.quotas.contains_key(entity));
            delta
                .quotas
                .extend(gone.map(|e| (e.clone(), QuotaLimits::new())));
        }
        if !Arc::ptr_eq(&self.topics, &newer.topics) {
            delta.compare_topics(&self.topics, &newer.topics);
        }
        delta
    }

    /// The picture after the change. What didn't change is shared with this one; of a changed topic the list of
    /// partitions is copied.
    ///
    /// # Errors
    /// The delta continues another picture than this one.
    pub fn apply(&self, delta: &ImageDelta) -> Result<Self, DeltaMismatch> {
        let mut image = match delta.from() {
            None => Self::empty(delta.cluster_id.as_deref().unwrap_or(self.cluster_id())),
            Some(from) if from == self.version => self.clone(),
            Some(from) => {
                return Err(DeltaMismatch::Version {
                    from,
                    present: self.version,
                });
            }
        };
        image.version = delta.to();
        image.controller = delta.controller;
        if let Some(configs) = &delta.broker_default_configs {
            image.broker_default_configs = Arc::new(configs.clone());
        }
        if let Some(configs) = &delta.broker_configs {
            image.broker_configs = Arc::new(configs.clone());
        }
        if let Some(configs) = &delta.group_configs {
            image.group_configs = Arc::new(configs.clone());
        }
        if !delta.quotas.is_empty() {
            let quotas = Arc::make_mut(&mut image.quotas);
            for (entity, limits) in &delta.quotas {
                if limits.is_empty() {
                    quotas.remove(entity);
                } else {
                    quotas.insert(entity.clone(), limits.clone());
                }
            }
        }
        if !delta.brokers.is_empty() || !delta.gone_brokers.is_empty() {
            let brokers = Arc::make_mut(&mut image.brokers);
            for id in &delta.gone_brokers {
                brokers.remove(id);
            }
            brokers.extend(delta.brokers.iter().map(|b| (b.id, b.clone())));
        }
        if delta.changed_topics().next().is_some() {
            delta.apply_topics(Arc::make_mut(&mut image.topics))?;
        }
        Ok(image)
    }
}

impl ImageDelta {
    fn compare_topics(&mut self, old: &Topics, new: &Topics) {
        for topic in new.by_name.values() {
            match old.by_id.get(&topic.id) {
                Some(before) if Arc::ptr_eq(before, topic) => {}
                Some(before) if is_continued(before, topic) => {
                    self.topics.extend(compare_topic(before, topic));
                }
                Some(_) => {
                    self.gone_topics.push(topic.id);
                    self.new_topics.push(TopicImage::clone(topic));
                }
                None => self.new_topics.push(TopicImage::clone(topic)),
            }
        }
        let gone = old.by_id.keys().copied();
        self.gone_topics
            .extend(gone.filter(|id| !new.by_id.contains_key(id)));
        self.gone_topics.sort_unstable();
    }

    fn apply_topics(&self, topics: &mut Topics) -> Result<(), DeltaMismatch> {
        let contradiction = |what: String| Err(DeltaMismatch::Contradiction(what));
        for id in &self.gone_topics {
            if topics.remove(*id).is_none() {
                return contradiction(format!("no topic {id} to remove"));
            }
        }
        for topic in &self.new_topics {
            if topics.by_id.contains_key(&topic.id) || topics.by_name.contains_key(&topic.name) {
                return contradiction(format!("topic {} is there already", topic.name));
            }
            topics.insert(topic.clone());
        }
        for change in &self.topics {
            let Some(topic) = topics.remove(change.id) else {
                return contradiction(format!("no topic {}", change.id));
            };
            let mut topic = Arc::unwrap_or_clone(topic);
            if let Some(configs) = &change.configs {
                topic.configs = configs.clone();
            }
            for (index, partition) in &change.partitions {
                let position = index.get() as usize;
                let count = topic.partitions.len();
                match topic.partitions.get_mut(position) {
                    Some(old) => *old = partition.clone(),
                    None if position == count => topic.partitions.push(partition.clone()),
                    None => {
                        return contradiction(format!(
                            "topic {} has no partition before {index}",
                            topic.name
                        ));
                    }
                }
            }
            topics.insert(topic);
        }
        Ok(())
    }
}

/// Whether only configs, partitions and their number differ.
fn is_continued(old: &TopicImage, new: &TopicImage) -> bool {
    old.name == new.name && old.partitions.len() <= new.partitions.len()
}

fn compare_topic(old: &TopicImage, new: &TopicImage) -> Option<TopicDelta> {
    let partitions: Vec<_> = (0u32..)
        .zip(&new.partitions)
        .filter(|(index, partition)| old.partitions.get(*index as usize) != Some(partition))
        .filter_map(|(index, partition)| {
            Some((PartitionIndex::new(index).ok()?, partition.clone()))
        })
        .collect();
    let delta = TopicDelta {
        id: new.id,
        configs: (old.configs != new.configs).then(|| new.configs.clone()),
        partitions,
    };
    (delta.configs.is_some() || !delta.partitions.is_empty()).then_some(delta)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_types::{BrokerEpoch, LeaderEpoch, TopicName};
    use uuid::Uuid;

    use super::*;
    use crate::api::{QuotaLimit, QuotaName};
    use crate::model::Endpoint;

    fn broker(id: u8) -> BrokerId {
        BrokerId::new(id.into()).unwrap()
    }

    fn partition_image() -> impl Strategy<Value = PartitionImage> {
        let placement = prop::collection::vec((0..3u8).prop_map(broker), 0..3);
        (prop::option::of(0..3u8), 0..3u32, placement).prop_map(|(leader, epoch, placement)| {
            PartitionImage {
                leader: leader.map(broker),
                leader_epoch: LeaderEpoch::new(epoch).unwrap(),
                placement,
            }
        })
    }

    fn configs() -> impl Strategy<Value = Configs> {
        prop::collection::btree_map("[ab]", "[12]", 0..2)
    }

    fn topics() -> impl Strategy<Value = Topics> {
        let topic = (
            0..5u128,
            configs(),
            prop::collection::vec(partition_image(), 1..4),
        );
        // Names are unique by the map, ids by the check.
        prop::collection::btree_map("[a-c]", topic, 0..4).prop_map(|drawn| {
            let mut topics = Topics::default();
            for (name, (id, configs, partitions)) in drawn {
                let id = TopicId::new(Uuid::from_u128(id + 100)).unwrap();
                if !topics.by_id.contains_key(&id) {
                    topics.insert(TopicImage {
                        id,
                        name: TopicName::new(&name).unwrap(),
                        configs,
                        partitions,
                    });
                }
            }
            topics
        })
    }

    fn quota_entity() -> impl Strategy<Value = QuotaEntity> {
        prop::option::of("[ab]").prop_map(|name| QuotaEntity {
            user: Some(name.map_or(QuotaName::Default, QuotaName::Named)),
            ..QuotaEntity::default()
        })
    }

    fn quota_limits() -> impl Strategy<Value = QuotaLimits> {
        let limit = (1..3u8).prop_map(|n| QuotaLimit::try_from(f64::from(n)).unwrap());
        prop::collection::btree_map("[xy]", limit, 1..3)
    }

    fn image() -> impl Strategy<Value = ClusterImage> {
        let broker_image = (0..3u64, any::<bool>(), any::<bool>());
        (
            (1..3u64, 0..100u64),
            prop::option::of(0..3u8),
            topics(),
            prop::collection::btree_map(0..4u8, broker_image, 0..4),
            configs(),
            prop::collection::btree_map((0..3u8).prop_map(broker), configs(), 0..3),
            prop::collection::btree_map(quota_entity(), quota_limits(), 0..4),
            prop::collection::btree_map("[gh]", configs(), 0..2),
        )
            .prop_map(
                |(version, controller, topics, brokers, default, own, quotas, groups)| {
                    let brokers = brokers.into_iter().map(|(id, (epoch, alive, draining))| {
                        let kafka = Endpoint {
                            host: format!("b{id}"),
                            port: 9092,
                        };
                        let image = BrokerImage {
                            id: broker(id),
                            broker_epoch: BrokerEpoch::new(epoch),
                            internal: Some(kafka.clone()),
                            kafka,
                            rack: None,
                            alive,
                            draining,
                        };
                        (image.id, image)
                    });
                    ClusterImage {
                        cluster_id: "c".into(),
                        version: long((ControllerEpoch::new(version.0), version.1)),
                        controller: controller.map(broker),
                        topics: Arc::new(topics),
                        brokers: Arc::new(brokers.collect()),
                        broker_default_configs: Arc::new(default),
                        broker_configs: Arc::new(own),
                        group_configs: Arc::new(groups),
                        quotas: Arc::new(quotas),
                    }
                },
            )
    }

    /// As brokers send it to each other.
    fn sent(delta: &ImageDelta) -> (usize, ImageDelta) {
        let bytes = rmp_serde::to_vec_named(delta).unwrap();
        (bytes.len(), rmp_serde::from_slice(&bytes).unwrap())
    }

    proptest! {
        #[test]
        fn a_picture_and_the_delta_give_the_newer_picture(old in image(), new in image()) {
            let (_, delta) = sent(&old.delta_to(&new));
            prop_assert_eq!(old.apply(&delta).unwrap(), new);
        }

        #[test]
        fn a_whole_picture_replaces_any_other(old in image(), new in image()) {
            let (_, whole) = sent(&new.snapshot());
            prop_assert_eq!(old.apply(&whole).unwrap(), new);
        }

        #[test]
        fn a_delta_of_another_picture_is_refused(old in image(), new in image(), third in image()) {
            prop_assume!(third.version != old.version);
            let refused = matches!(
                third.apply(&old.delta_to(&new)),
                Err(DeltaMismatch::Version { .. })
            );
            prop_assert!(refused);
        }
    }

    #[test]
    fn a_move_in_a_topic_of_10_000_partitions_costs_about_a_hundred_bytes() {
        let partition = PartitionImage {
            leader: Some(broker(1)),
            leader_epoch: LeaderEpoch::FIRST,
            placement: vec![broker(1), broker(2), broker(3)],
        };
        let mut topic = TopicImage {
            id: TopicId::new(Uuid::from_u128(u128::MAX - 5)).unwrap(),
            name: TopicName::new("large").unwrap(),
            configs: Configs::new(),
            partitions: vec![partition; 10_000],
        };
        let mut old = ClusterImage::empty("c");
        Arc::make_mut(&mut old.topics).insert(topic.clone());
        topic.partitions[9_000].leader = Some(broker(2));
        topic.partitions[9_000].leader_epoch = LeaderEpoch::new(77).unwrap();
        let mut new = old.clone();
        new.version = long((ControllerEpoch::new(70_000), 1_000_000));
        let topics = Arc::make_mut(&mut new.topics);
        topics.remove(topic.id);
        topics.insert(topic);
        let (bytes, delta) = sent(&old.delta_to(&new));
        assert!(bytes <= 130, "{bytes} bytes");
        assert_eq!(old.apply(&delta).unwrap(), new);
    }
}
