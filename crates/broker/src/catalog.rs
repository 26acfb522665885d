//! The cluster as the request handlers see it: the image, and each topic's settings parsed once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tidegate_metadata::{ClusterImage, TopicImage};
use tidegate_types::{BrokerId, TopicId};

use crate::config::{TOPIC_CONFIGS, TopicDefaults, TopicSettings};
use crate::quotas::QuotaTable;

/// The topics whose records are the broker's own.
pub(crate) const OFFSETS_TOPIC: &str = "__consumer_offsets";
pub(crate) const TRANSACTIONS_TOPIC: &str = "__transaction_state";

/// Whether clients may not write to a topic or create it themselves.
pub(crate) fn is_internal(topic: &str) -> bool {
    topic == OFFSETS_TOPIC || topic == TRANSACTIONS_TOPIC
}

/// One version of the cluster's image with what was derived from it.
pub(crate) struct Catalog {
    pub(crate) image: Arc<ClusterImage>,
    settings: HashMap<TopicId, Arc<TopicSettings>>,
    fallback: Arc<TopicSettings>,
    quotas: Arc<QuotaTable>,
}

impl Catalog {
    /// `defaults` are this broker's configured ones; changes made at run time lie over them.
    pub(crate) fn new(
        image: Arc<ClusterImage>,
        defaults: &TopicDefaults,
        broker: BrokerId,
    ) -> Self {
        let defaults = effective_defaults(&image, defaults, broker);
        let settings = image
            .topics()
            .map(|t| (t.id, Arc::new(TopicSettings::new(&t.configs, &defaults))))
            .collect();
        let fallback = Arc::new(TopicSettings::new(&BTreeMap::new(), &defaults));
        let quotas = Arc::new(QuotaTable::new(image.quotas()));
        Self {
            image,
            settings,
            fallback,
            quotas,
        }
    }

    /// The catalog of a newer image. Settings are parsed again only where configs changed: an image comes with
    /// every move, and a cluster may have thousands of topics.
    pub(crate) fn next(
        &self,
        image: Arc<ClusterImage>,
        defaults: &TopicDefaults,
        broker: BrokerId,
    ) -> Self {
        let same_defaults = image.broker_default_configs() == self.image.broker_default_configs()
            && image.broker_configs(broker) == self.image.broker_configs(broker);
        if !same_defaults {
            return Self::new(image, defaults, broker);
        }
        let mut effective = None;
        let mut settings = HashMap::with_capacity(image.topics().len());
        for topic in image.topics() {
            let known = self.image.topic_by_id(topic.id);
            let kept = known
                .filter(|known| Arc::ptr_eq(known, topic) || known.configs == topic.configs)
                .and_then(|_| self.settings.get(&topic.id));
            let parsed = match kept {
                Some(kept) => kept.clone(),
                None => {
                    let defaults = effective
                        .get_or_insert_with(|| effective_defaults(&image, defaults, broker));
                    Arc::new(TopicSettings::new(&topic.configs, defaults))
                }
            };
            settings.insert(topic.id, parsed);
        }
        let quotas = if Arc::ptr_eq(image.quotas(), self.image.quotas()) {
            self.quotas.clone()
        } else {
            Arc::new(QuotaTable::new(image.quotas()))
        };
        Self {
            image,
            settings,
            fallback: self.fallback.clone(),
            quotas,
        }
    }

    /// How fast clients may go.
    pub(crate) fn quotas(&self) -> &Arc<QuotaTable> {
        &self.quotas
    }

    pub(crate) fn settings(&self, topic: &TopicImage) -> &Arc<TopicSettings> {
        self.settings.get(&topic.id).unwrap_or(&self.fallback)
    }
}

fn effective_defaults(
    image: &ClusterImage,
    configured: &TopicDefaults,
    broker: BrokerId,
) -> TopicDefaults {
    let mut values = configured.clone().into_values();
    for dynamic in [
        Some(image.broker_default_configs()),
        image.broker_configs(broker),
    ]
    .into_iter()
    .flatten()
    {
        for definition in TOPIC_CONFIGS {
            if let Some(value) = definition
                .broker_synonym
                .and_then(|synonym| dynamic.get(synonym))
            {
                values.insert(definition.name.to_owned(), value.clone());
            }
        }
    }
    TopicDefaults::new(values)
}
