//! What every request handler of this broker shares.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tidegate_cluster::admin::ClusterAdmin;
use tidegate_cluster::member::Member;
use tidegate_kafka_wire::{CurrentLeader, NodeEndpoint, StrBytes};
use tidegate_metadata::{ClusterImage, ControllerApi, ImageVersion, TopicImage};
use tidegate_partition_log::{LogReader, LogSet, PartitionLog};
use tidegate_runtime::SharedClock;
use tidegate_types::{BrokerEpoch, BrokerId, PartitionId, PartitionIndex};
use tokio::sync::watch;
use uuid::Uuid;

use crate::catalog::Catalog;
use crate::config::TopicDefaults;
use crate::error_code::ErrorCode;
use crate::fetch_session::FetchSessions;
use crate::groups::GroupHost;
use crate::handover::Handover;
use crate::metrics::BrokerMetrics;
use crate::producer_ids::ProducerIds;
use crate::quotas::Quotas;
use crate::transactions::TransactionHost;

/// Limits and defaults of the Kafka side, from the broker's configuration.
#[derive(Debug, Clone)]
pub struct BrokerOptions {
    /// Topics that a client asks for and that don't exist are created (`auto.create.topics.enable`).
    pub auto_create_topics: bool,
    /// Partitions of a topic that doesn't say (`num.partitions`).
    pub default_partitions: u32,
    /// Replication factor of a topic that doesn't say (`default.replication.factor`).
    pub default_replication_factor: u16,
    /// Partitions of `__consumer_offsets` (`offsets.topic.num.partitions`).
    pub offsets_partitions: u32,
    /// Partitions of `__transaction_state` (`transaction.state.log.num.partitions`).
    pub transactions_partitions: u32,
    /// The most a fetch answers, whatever it asks for (`fetch.max.bytes`).
    pub fetch_max_bytes: usize,
    /// Consumer groups.
    pub groups: tidegate_coordinator::GroupConfig,
    /// Transactions.
    pub transactions: tidegate_coordinator::transactions::TransactionConfig,
    /// Defaults of topic configs.
    pub topic_defaults: TopicDefaults,
    /// What DescribeConfigs shows of this broker: every key of its configuration, secrets left out.
    pub shown_configs: BTreeMap<String, String>,
    /// The folder shown as this broker's log directory.
    pub log_dir: String,
    /// How long a produce request waits for room in the WAL before it is refused.
    pub back_pressure_wait: Duration,
}

/// The running broker: what handlers need.
pub struct Broker {
    pub(crate) id: BrokerId,
    pub(crate) broker_epoch: BrokerEpoch,
    pub(crate) options: BrokerOptions,
    pub(crate) clock: SharedClock,
    pub(crate) catalog: Arc<ArcSwap<Catalog>>,
    /// The controller's feed.
    pub(crate) images: watch::Receiver<Arc<ClusterImage>>,
    /// The version of the image up to which logs were opened and closed.
    pub(crate) reconciled: watch::Receiver<ImageVersion>,
    pub(crate) logs: Arc<LogSet>,
    pub(crate) reader: LogReader,
    pub(crate) controller: Arc<dyn ControllerApi>,
    /// What people ask of the cluster, wherever the controller is.
    pub(crate) admin: Arc<dyn ClusterAdmin>,
    pub(crate) member: Member,
    /// Without a word of any controller for so long this broker doesn't know whether it still leads.
    pub(crate) lapse: Duration,
    pub(crate) handover: Arc<Handover>,
    pub(crate) sessions: FetchSessions,
    pub(crate) groups: GroupHost,
    pub(crate) transactions: TransactionHost,
    pub(crate) producer_ids: ProducerIds,
    pub(crate) quotas: Quotas,
    pub(crate) metrics: BrokerMetrics,
}

/// How a request names a topic.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TopicRef<'a> {
    Name(&'a str),
    Id(Uuid),
}

impl<'a> From<&'a tidegate_kafka_wire::TopicRef> for TopicRef<'a> {
    fn from(topic: &'a tidegate_kafka_wire::TopicRef) -> Self {
        match topic {
            tidegate_kafka_wire::TopicRef::Name(name) => Self::Name(name.as_str()),
            tidegate_kafka_wire::TopicRef::Id(id) => Self::Id(*id),
        }
    }
}

impl Broker {
    /// The topic, or the code that says why there is none.
    pub(crate) fn topic(
        &self,
        catalog: &Catalog,
        topic: TopicRef<'_>,
    ) -> Result<Arc<TopicImage>, ErrorCode> {
        match topic {
            TopicRef::Name(name) => catalog
                .image
                .topic(name)
                .cloned()
                .ok_or(ErrorCode::UnknownTopicOrPartition),
            TopicRef::Id(id) => tidegate_types::TopicId::new(id)
                .ok()
                .and_then(|id| catalog.image.topic_by_id(id).cloned())
                .ok_or(ErrorCode::UnknownTopicId),
        }
    }

    /// The log of a partition that this broker leads, or the code that says why it can't be used.
    pub(crate) fn led_log(
        &self,
        topic: &TopicImage,
        index: i32,
    ) -> Result<Arc<PartitionLog>, ErrorCode> {
        let index =
            PartitionIndex::from_wire(index).map_err(|_| ErrorCode::UnknownTopicOrPartition)?;
        let partition = topic
            .partition(index)
            .ok_or(ErrorCode::UnknownTopicOrPartition)?;
        if partition.leader != Some(self.id) || self.has_lapsed() {
            return Err(ErrorCode::NotLeaderOrFollower);
        }
        // A partition that was just created or assigned may not be open yet.
        self.logs
            .get(PartitionId {
                topic: topic.id,
                index,
            })
            .ok_or(ErrorCode::NotLeaderOrFollower)
    }

    /// Whether no controller was heard for so long that others may lead by now. In `object` mode this broker could
    /// acknowledge nothing then; its readers are better served elsewhere.
    pub(crate) fn has_lapsed(&self) -> bool {
        let heard = self.member.last_contact();
        heard.is_some_and(|at| self.clock.now().saturating_duration_since(at) > self.lapse)
    }

    /// Who leads a partition, for clients that asked the wrong broker (KIP-951).
    pub(crate) fn current_leader(topic: &TopicImage, index: i32) -> Option<CurrentLeader> {
        let partition = topic.partition(PartitionIndex::from_wire(index).ok()?)?;
        Some(CurrentLeader {
            leader_id: partition.leader.map_or(-1, BrokerId::to_wire),
            leader_epoch: partition.leader_epoch.to_wire(),
        })
    }

    /// Where the named leaders listen (KIP-951).
    pub(crate) fn endpoints_of(
        catalog: &Catalog,
        leaders: impl Iterator<Item = CurrentLeader>,
    ) -> Vec<NodeEndpoint> {
        let mut ids: Vec<BrokerId> = leaders
            .filter_map(|l| BrokerId::from_wire(l.leader_id).ok())
            .collect();
        ids.sort();
        ids.dedup();
        ids.into_iter()
            .filter_map(|id| catalog.image.broker(id))
            .map(|broker| NodeEndpoint {
                node_id: broker.id.to_wire(),
                host: StrBytes::from_string(broker.kafka.host.clone()),
                port: i32::from(broker.kafka.port),
                rack: broker.rack.clone().map(StrBytes::from_string),
            })
            .collect()
    }

    /// Waits until this broker's logs are those of the newest image, or for so long.
    pub(crate) async fn wait_until_open(&self, patience: Duration) {
        let newest = self.images.borrow().version();
        let mut reconciled = self.reconciled.clone();
        let done = reconciled.wait_for(|version| *version >= newest);
        if tokio::time::timeout(patience, done).await.is_err() {
            tracing::warn!(
                patience_ms = patience.as_millis(),
                "new partitions are not open yet"
            );
        }
    }

    /// Checks the leader epoch a client believes in (KIP-320).
    pub(crate) fn check_leader_epoch(
        &self,
        log: &PartitionLog,
        claimed: i32,
    ) -> Result<(), ErrorCode> {
        if claimed < 0 {
            return Ok(());
        }
        let current = log.leader_epoch().to_wire();
        match claimed.cmp(&current) {
            std::cmp::Ordering::Less => Err(ErrorCode::FencedLeaderEpoch),
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => Err(ErrorCode::UnknownLeaderEpoch),
        }
    }
}
