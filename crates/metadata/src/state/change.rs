//! Changes: how a decision is stored, and how it enters memory.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tidegate_types::{BrokerId, PartitionId, TimestampMs, TopicId};

use super::{Contradiction, State, TopicState, folded};
use crate::api::{QuotaEntity, QuotaLimits};
use crate::image::Configs;
use crate::keys::{self, SegmentKey, Table};
use crate::model::StoredObjectKey;
use crate::rows::{
    BrokerRow, ConfigsRow, DeletedTopicRow, DroppedRow, ObjectRow, PartitionRow, ProducerIdsRow,
    QuotasRow, Row, SegmentRow, TopicRow,
};

/// One changed row. `None` removes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// Removing a topic removes its partitions from memory; their rows stay until they are cleaned.
    Topic(TopicId, Option<TopicRow>),
    DeletedTopic(TopicId, Option<DeletedTopicRow>),
    Partition(PartitionId, Option<PartitionRow>),
    Broker(BrokerId, BrokerRow),
    /// Of one broker, or the default of all.
    Configs(Option<BrokerId>, Configs),
    /// Of one entity; without limits its row goes.
    Quotas(QuotaEntity, QuotaLimits),
    /// Of one group of consumers.
    GroupConfigs(String, Configs),
    ProducerIds(ProducerIdsRow),
    Segment(SegmentKey, Option<SegmentRow>),
    Object(StoredObjectKey, Option<ObjectRow>),
    /// Whether the object dropped at that time is in the list of deletable ones.
    Dropped(TimestampMs, StoredObjectKey, bool),
    /// A broker has a session. Not stored.
    Alive(BrokerId, bool),
}

impl Change {
    /// Key and value to store; `None` as value removes the key. Nothing for what isn't stored.
    pub(crate) fn encode(&self) -> Option<(Bytes, Option<Bytes>)> {
        fn row<R: Row>(key: Bytes, row: Option<&R>) -> Option<(Bytes, Option<Bytes>)> {
            let value = row.map(|row| row.seal(&key));
            Some((key, value))
        }
        match self {
            Self::Topic(id, topic) => row(keys::topic(Table::Topic, *id), topic.as_ref()),
            Self::DeletedTopic(id, topic) => {
                row(keys::topic(Table::DeletedTopic, *id), topic.as_ref())
            }
            Self::Partition(id, partition) => row(keys::partition(*id), partition.as_ref()),
            Self::Broker(id, broker) => row(keys::broker(*id), Some(broker)),
            Self::Configs(id, configs) => {
                let stored = ConfigsRow {
                    configs: configs.clone(),
                };
                row(keys::configs(*id), (!configs.is_empty()).then_some(&stored))
            }
            Self::Quotas(entity, limits) => {
                let stored = QuotasRow {
                    limits: limits.clone(),
                };
                row(
                    keys::quotas(entity),
                    (!limits.is_empty()).then_some(&stored),
                )
            }
            Self::GroupConfigs(group, configs) => {
                let stored = ConfigsRow {
                    configs: configs.clone(),
                };
                let key = keys::group_configs(group);
                row(key, (!configs.is_empty()).then_some(&stored))
            }
            Self::ProducerIds(ids) => row(keys::single(Table::ProducerIds), Some(ids)),
            Self::Segment(key, segment) => row(keys::segment(*key), segment.as_ref()),
            Self::Object(key, object) => row(keys::object(key), object.as_ref()),
            Self::Dropped(at, key, listed) => {
                row(keys::dropped(*at, key), listed.then_some(&DroppedRow))
            }
            Self::Alive(..) => None,
        }
    }
}

impl State {
    /// Puts a change into memory.
    ///
    /// # Errors
    /// It doesn't fit: only for rows read from a damaged store.
    pub(crate) fn absorb(&mut self, change: &Change) -> Result<(), Contradiction> {
        match change {
            Change::Topic(id, Some(row)) => self.absorb_topic(*id, row),
            Change::Topic(id, None) => {
                self.remove_topic(*id);
                Ok(())
            }
            Change::DeletedTopic(id, row) => {
                match row {
                    Some(row) => self.deleted.insert(*id, row.clone()),
                    None => self.deleted.remove(id),
                };
                Ok(())
            }
            Change::Partition(id, Some(row)) => self.absorb_partition(*id, row),
            Change::Broker(id, row) => {
                self.absorb_broker(*id, row);
                Ok(())
            }
            Change::Configs(id, configs) => {
                if configs.is_empty() {
                    self.configs.remove(id);
                } else {
                    self.configs.insert(*id, configs.clone());
                }
                self.picture.touch_configs();
                Ok(())
            }
            Change::Quotas(entity, limits) => {
                if limits.is_empty() {
                    self.quotas.remove(entity);
                } else {
                    self.quotas.insert(entity.clone(), limits.clone());
                }
                self.picture.touch_quotas();
                Ok(())
            }
            Change::GroupConfigs(group, configs) => {
                if configs.is_empty() {
                    self.group_configs.remove(group);
                } else {
                    self.group_configs.insert(group.clone(), configs.clone());
                }
                self.picture.touch_configs();
                Ok(())
            }
            Change::ProducerIds(row) => {
                self.producer_ids = *row;
                Ok(())
            }
            Change::Alive(id, alive) => {
                let changed = if *alive {
                    self.alive.insert(*id)
                } else {
                    self.alive.remove(id)
                };
                if changed {
                    self.touch_broker(*id);
                }
                Ok(())
            }
            // These live in the store only; partition rows are removed after their topic.
            Change::Partition(_, None)
            | Change::Segment(..)
            | Change::Object(..)
            | Change::Dropped(..) => Ok(()),
        }
    }

    fn absorb_topic(&mut self, id: TopicId, row: &TopicRow) -> Result<(), Contradiction> {
        match self.topics.get_mut(&id) {
            Some(topic) => topic.row = row.clone(),
            None => {
                if let Some(other) = self.names.insert(row.name.clone(), id) {
                    return Err(Contradiction(format!(
                        "topics {id} and {other} are both named {}",
                        row.name
                    )));
                }
                self.folded_names
                    .insert(folded(&row.name), row.name.clone());
                self.topics.insert(
                    id,
                    TopicState {
                        row: row.clone(),
                        partitions: Vec::new(),
                    },
                );
            }
        }
        self.picture.touch_topic(id);
        Ok(())
    }

    fn remove_topic(&mut self, id: TopicId) {
        let Some(topic) = self.topics.remove(&id) else {
            return;
        };
        self.names.remove(&topic.row.name);
        let folded = folded(&topic.row.name);
        if self.folded_names.get(&folded) == Some(&topic.row.name) {
            self.folded_names.remove(&folded);
        }
        self.trims.retain(|partition| partition.topic != id);
        for (partition, row) in topic.partition_ids(id).zip(&topic.partitions) {
            self.targets.remove(&partition);
            forget_led(&mut self.led, row.leader, partition);
        }
        self.partition_count -= topic.partitions.len() as u64;
        self.picture.touch_topic(id);
    }

    fn absorb_partition(
        &mut self,
        id: PartitionId,
        row: &PartitionRow,
    ) -> Result<(), Contradiction> {
        let Some(topic) = self.topics.get_mut(&id.topic) else {
            if self.deleted.contains_key(&id.topic) {
                return Ok(());
            }
            return Err(Contradiction(format!("partition {id} has no topic")));
        };
        let index = id.index.get() as usize;
        let count = topic.partitions.len();
        let visible = match topic.partitions.get_mut(index) {
            Some(old) => {
                let visible = old.leader != row.leader
                    || old.leader_epoch != row.leader_epoch
                    || old.placement != row.placement;
                if old.leader != row.leader {
                    forget_led(&mut self.led, old.leader, id);
                }
                *old = row.clone();
                visible
            }
            None if index == count => {
                topic.partitions.push(row.clone());
                self.partition_count += 1;
                true
            }
            None => {
                return Err(Contradiction(format!("a partition before {id} is missing")));
            }
        };
        if visible {
            self.picture.touch_topic(id.topic);
        }
        self.led.entry(row.leader).or_default().insert(id);
        mark(&mut self.trims, id, row.trim_pending);
        mark(&mut self.targets, id, row.target.is_some());
        Ok(())
    }

    fn absorb_broker(&mut self, id: BrokerId, row: &BrokerRow) {
        let old = if row.unregistered {
            self.unregistered.insert(id, row.clone());
            self.alive.remove(&id);
            self.brokers.remove(&id)
        } else {
            self.unregistered.remove(&id);
            self.brokers.insert(id, row.clone())
        };
        if old.as_ref() != Some(row) {
            self.touch_broker(id);
        }
    }

    /// The broker, and the leader of all it leads, may look different now.
    fn touch_broker(&mut self, id: BrokerId) {
        self.picture.touch_brokers();
        for partition in self.led.get(&Some(id)).into_iter().flatten() {
            self.picture.touch_topic(partition.topic);
        }
    }

    /// Checks what only the whole can show, after all rows were read.
    pub(crate) fn check_complete(&self) -> Result<(), Contradiction> {
        for (id, topic) in &self.topics {
            if topic.partitions.len() as u64 != u64::from(topic.row.partition_count) {
                return Err(Contradiction(format!(
                    "topic {id} has {} partitions of {}",
                    topic.partitions.len(),
                    topic.row.partition_count
                )));
            }
        }
        Ok(())
    }
}

fn mark(marked: &mut BTreeSet<PartitionId>, id: PartitionId, wanted: bool) {
    if wanted {
        marked.insert(id);
    } else {
        marked.remove(&id);
    }
}

fn forget_led(
    led: &mut BTreeMap<Option<BrokerId>, BTreeSet<PartitionId>>,
    leader: Option<BrokerId>,
    id: PartitionId,
) {
    if let Some(partitions) = led.get_mut(&leader) {
        partitions.remove(&id);
        if partitions.is_empty() {
            led.remove(&leader);
        }
    }
}
