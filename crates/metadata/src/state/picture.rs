//! Keeps the cluster image in step with the state, redrawing only what was touched.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_types::{BrokerId, ControllerEpoch, TopicId};

use super::{State, TopicState};
use crate::image::{BrokerImage, ClusterImage, ImageVersion, PartitionImage, TopicImage};

/// The image as of the last publishing, and what was touched since.
#[derive(Debug)]
pub(crate) struct Picture {
    image: ClusterImage,
    topics: BTreeSet<TopicId>,
    brokers: bool,
    configs: bool,
    quotas: bool,
}

impl Picture {
    pub(crate) fn new(
        cluster_id: &str,
        controller: BrokerId,
        controller_epoch: ControllerEpoch,
    ) -> Self {
        Self {
            image: ClusterImage {
                version: ImageVersion {
                    controller_epoch,
                    change: 0,
                },
                controller: Some(controller),
                ..ClusterImage::empty(cluster_id)
            },
            topics: BTreeSet::new(),
            brokers: true,
            configs: true,
            quotas: true,
        }
    }

    pub(crate) fn controller_epoch(&self) -> ControllerEpoch {
        self.image.version.controller_epoch
    }

    pub(crate) fn touch_topic(&mut self, id: TopicId) {
        self.topics.insert(id);
    }

    pub(crate) fn touch_brokers(&mut self) {
        self.brokers = true;
    }

    pub(crate) fn touch_configs(&mut self) {
        self.configs = true;
    }

    pub(crate) fn touch_quotas(&mut self) {
        self.quotas = true;
    }

    fn touched(&self) -> bool {
        self.brokers || self.configs || self.quotas || !self.topics.is_empty()
    }
}

impl State {
    /// The image of the present state, if anything in it changed since the last call.
    pub(crate) fn publish(&mut self) -> Option<Arc<ClusterImage>> {
        if !self.picture.touched() {
            return None;
        }
        let mut image = self.picture.image.clone();
        image.version.change += 1;
        if self.picture.brokers {
            image.brokers = Arc::new(self.draw_brokers());
        }
        if self.picture.configs {
            image.broker_default_configs =
                Arc::new(self.configs(None).cloned().unwrap_or_default());
            image.broker_configs = Arc::new(
                self.configs
                    .iter()
                    .filter_map(|(id, configs)| Some(((*id)?, configs.clone())))
                    .collect(),
            );
            image.group_configs = Arc::new(self.group_configs.clone());
        }
        if self.picture.quotas {
            image.quotas = Arc::new(self.quotas.clone());
        }
        if !self.picture.topics.is_empty() {
            self.draw_topics(&mut image);
        }
        self.picture = Picture {
            image: image.clone(),
            topics: BTreeSet::new(),
            brokers: false,
            configs: false,
            quotas: false,
        };
        Some(Arc::new(image))
    }

    fn draw_topics(&self, image: &mut ClusterImage) {
        let topics = Arc::make_mut(&mut image.topics);
        for id in &self.picture.topics {
            topics.remove(*id);
            if let Some(topic) = self.topics.get(id) {
                topics.insert(self.draw_topic(*id, topic));
            }
        }
    }

    fn draw_topic(&self, id: TopicId, topic: &TopicState) -> TopicImage {
        TopicImage {
            id,
            name: topic.row.name.clone(),
            configs: topic.row.configs.clone(),
            partitions: topic
                .partitions
                .iter()
                .map(|row| PartitionImage {
                    leader: row.leader.filter(|broker| self.may_lead(*broker)),
                    leader_epoch: row.leader_epoch,
                    placement: row.placement.clone(),
                })
                .collect(),
        }
    }

    fn draw_brokers(&self) -> BTreeMap<BrokerId, BrokerImage> {
        let draw = |(id, row): (BrokerId, &crate::rows::BrokerRow)| {
            let image = BrokerImage {
                id,
                broker_epoch: row.broker_epoch,
                kafka: row.kafka.clone(),
                internal: row.internal.clone(),
                rack: row.rack.clone(),
                alive: self.is_alive(id),
                draining: row.draining,
            };
            (id, image)
        };
        self.brokers().map(draw).collect()
    }
}
