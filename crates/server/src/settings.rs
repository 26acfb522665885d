//! From the configuration to the settings of the node.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_broker::config::{
    ConfigDefinition, ConfigKind, ConfigRange, InvalidConfig, TOPIC_CONFIGS, TopicDefaults,
    topic_config,
};
use tidegate_broker::{
    BrokerOptions, ClusterSettings, CompactionSettings, DecodeLimits, FrameLimits, GroupConfig,
    MemorySettings, NetworkLimits, NodeSettings, ObjectWalSettings, TransactionConfig, WalSettings,
};
use tidegate_metadata::Endpoint;
use tidegate_object_storage::{StoreOptions, TimeLimits};
use tidegate_partition_log::UploadLimits;

use crate::config::{
    ByteSize, Config, Groups, Setting, TOPIC_DEFAULTS, TopicConfig, TopicConfigs, Transactions,
};

/// The topic config that `durability` is the default of.
const DURABILITY: &str = "tidegate.durability";

/// The topic configs whose defaults can be set: those that do something, save for the one that has its own key.
pub fn topic_configs() -> TopicConfigs {
    let settable = TOPIC_CONFIGS
        .iter()
        .filter(|config| config.effective && config.name != DURABILITY);
    TopicConfigs {
        all: settable
            .map(|config| TopicConfig {
                name: config.name,
                default: config.default,
                kind: kind_of(config),
                bare: matches!(
                    config.kind,
                    ConfigKind::Boolean | ConfigKind::Int | ConfigKind::Long | ConfigKind::Double
                ),
                doc: config.doc,
            })
            .collect(),
        check: |name, value| match topic_config(name).and_then(|config| config.check(value)) {
            Ok(()) => Ok(()),
            Err(InvalidConfig::Value { reason, .. }) => Err(format!("isn't allowed: {reason}")),
            Err(other) => Err(format!("isn't allowed: {other}")),
        },
    }
}

fn kind_of(config: &ConfigDefinition) -> String {
    match (config.kind, config.range) {
        (_, ConfigRange::OneOf(words)) => words.join(" or "),
        (ConfigKind::Boolean, _) => "boolean".to_owned(),
        (ConfigKind::Int | ConfigKind::Long | ConfigKind::Double, _) => "number".to_owned(),
        (ConfigKind::String, _) => "text".to_owned(),
        (ConfigKind::List, _) => "list".to_owned(),
    }
}

/// The settings of this process's broker.
pub fn node_settings(config: &Config) -> NodeSettings {
    NodeSettings {
        broker_id: config.broker.id,
        rack: Some(config.broker.rack.clone()).filter(|rack| !rack.is_empty()),
        data_dir: config.top.data_dir.clone(),
        store: config.store_url(),
        store_options: store_options(config),
        kafka_listen: config.kafka.listen,
        kafka_advertise: config.kafka.advertise.as_ref().map(|address| Endpoint {
            host: address.host.clone(),
            port: address.port,
        }),
        internal_listen: config.internal.listen,
        internal_advertise: config.internal.advertise.as_ref().map(|address| Endpoint {
            host: address.host.clone(),
            port: address.port,
        }),
        cluster: ClusterSettings {
            lease: config.cluster.lease,
            session_timeout: config.cluster.session_timeout,
            balance: config.cluster.balance,
        },
        network: network_limits(config),
        broker: broker_options(config),
        wal: WalSettings {
            file_bytes: config.wal.file_bytes.bytes(),
            capacity_bytes: config.wal.capacity_bytes.bytes(),
            pending_bytes: config.wal.pending_bytes.bytes(),
        },
        object_wal: ObjectWalSettings {
            object_bytes: config.object_wal.object_bytes.bytes(),
            linger: config.object_wal.linger,
            in_flight: config.object_wal.in_flight,
            pending_bytes: config.object_wal.pending_bytes.bytes(),
            commit_interval: config.object_wal.commit_interval,
        },
        upload: UploadLimits {
            size_bytes: config.upload.size_bytes.bytes(),
            own_object_bytes: config.own_object_bytes().bytes(),
            age: config.upload.age,
            in_flight: config.upload.in_flight,
            block_bytes: config.upload.block_bytes.in_memory(),
        },
        memory: MemorySettings {
            tail_bytes: config.memory.tail,
            block_cache_bytes: config.memory.block_cache,
            index_cache_bytes: config.memory.index_cache,
            catch_up_bytes: config.memory.catch_up,
        },
        producer_expiration: config.topics.producer_expiration,
        retention_check: config.topics.retention_check,
        delete_grace: config.topics.delete_grace,
        compaction: CompactionSettings {
            check: config.compaction.check,
            memory_bytes: config.memory.compaction,
            bytes_per_second: config.compaction.bytes_per_second.bytes(),
            min_dirty_bytes: config.compaction.min_dirty_bytes.bytes(),
        },
        accept_loss: config.top.accept_loss,
    }
}

fn network_limits(config: &Config) -> NetworkLimits {
    let kafka = &config.kafka;
    NetworkLimits {
        frame: FrameLimits {
            max_frame_bytes: u32::try_from(kafka.max_request_bytes.bytes()).unwrap_or(u32::MAX),
            first_reserve_bytes: kafka.first_reserve_bytes.in_memory(),
            trusted_reserve_bytes: kafka.trusted_reserve_bytes.in_memory(),
            staging_bytes: kafka.staging_bytes.in_memory(),
        },
        decode: DecodeLimits {
            max_decoded_bytes: kafka.max_decoded_bytes.in_memory(),
        },
        request_bytes: ByteSize(config.memory.request).in_memory(),
        connections: kafka.max_connections,
        idle: kafka.idle_timeout,
        frame_timeout: kafka.request_timeout,
        pipelined: kafka.max_pipelined,
    }
}

fn broker_options(config: &Config) -> BrokerOptions {
    let topics = &config.topics;
    let mut defaults = config.topic_defaults.clone();
    defaults.insert(DURABILITY.to_owned(), config.top.durability.to_string());
    BrokerOptions {
        auto_create_topics: topics.auto_create,
        default_partitions: topics.default_partitions,
        default_replication_factor: topics.default_replication_factor,
        offsets_partitions: config.groups.offsets_partitions,
        transactions_partitions: config.transactions.state_partitions,
        fetch_max_bytes: config.kafka.fetch_max_bytes.in_memory(),
        groups: group_config(&config.groups),
        transactions: transaction_config(&config.transactions),
        topic_defaults: TopicDefaults::new(defaults),
        shown_configs: shown_configs(config),
        log_dir: config.top.data_dir.show(),
        back_pressure_wait: config.kafka.back_pressure_wait,
    }
}

fn group_config(groups: &Groups) -> GroupConfig {
    GroupConfig {
        min_session_timeout_ms: milliseconds(groups.min_session_timeout),
        max_session_timeout_ms: milliseconds(groups.max_session_timeout),
        initial_rebalance_delay_ms: milliseconds(groups.initial_rebalance_delay),
        new_member_join_timeout_ms: milliseconds(groups.new_member_timeout),
        max_group_size: groups.max_members,
        consumer_session_timeout_ms: milliseconds(groups.consumer_session_timeout),
        consumer_heartbeat_interval_ms: milliseconds(groups.consumer_heartbeat_interval),
        max_consumer_group_size: groups.consumer_max_members,
        consumer_migration_policy: groups.consumer_migration,
        offsets_retention_minutes: u32::try_from(groups.offsets_retention.as_secs().div_ceil(60))
            .unwrap_or(u32::MAX),
        offsets_retention_check_interval_ms: u64::from(milliseconds(
            groups.offsets_retention_check,
        )),
        offset_metadata_max_bytes: groups.max_offset_metadata,
        offset_commit_timeout_ms: milliseconds(groups.commit_timeout),
        max_groups: groups.max_groups,
        max_pending_members: groups.max_pending_members,
        max_member_metadata_bytes: groups.max_member_bytes.in_memory(),
        max_pending_appends: groups.max_pending_appends,
        ..GroupConfig::default()
    }
}

fn transaction_config(transactions: &Transactions) -> TransactionConfig {
    TransactionConfig {
        max_timeout_ms: milliseconds(transactions.max_timeout),
        id_expiration_ms: u64::try_from(transactions.id_expiration.as_millis()).unwrap_or(u64::MAX),
        expiration_check_interval_ms: u64::from(milliseconds(transactions.expiration_check)),
        max_transactional_ids: transactions.max_ids,
        max_pending_appends: transactions.max_pending_appends,
        ..TransactionConfig::default()
    }
}

fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

fn store_options(config: &Config) -> StoreOptions {
    let limits = |attempt, total, rate: ByteSize| TimeLimits {
        attempt,
        total,
        min_bytes_per_second: rate.bytes(),
    };
    let (store, wal, read, background) = (
        &config.store,
        &config.store_wal,
        &config.store_read,
        &config.store_background,
    );
    StoreOptions {
        wal: limits(
            wal.attempt_timeout,
            wal.total_timeout,
            wal.min_bytes_per_second,
        ),
        read: limits(
            read.attempt_timeout,
            read.total_timeout,
            read.min_bytes_per_second,
        ),
        background: limits(
            background.attempt_timeout,
            background.total_timeout,
            background.min_bytes_per_second,
        ),
        first_backoff: store.first_backoff,
        max_backoff: store.max_backoff,
        max_concurrency: store.max_requests,
        connect_timeout: store.connect_timeout,
        unsigned_payload: store.unsigned_payload,
        first_probe: store.first_probe,
        max_probe: store.max_probe,
        unreachable_after: store.unreachable_after,
    }
}

/// What DescribeConfigs shows of the broker: Kafka's names of what Kafka's tools ask for, and every key of ours
/// with `tidegate.` before it. The defaults of topic configs have Kafka's names, which the broker adds.
fn shown_configs(config: &Config) -> BTreeMap<String, String> {
    let kafka = [
        (
            "auto.create.topics.enable",
            config.topics.auto_create.show(),
        ),
        ("num.partitions", config.topics.default_partitions.show()),
        (
            "default.replication.factor",
            config.topics.default_replication_factor.show(),
        ),
        (
            "group.consumer.session.timeout.ms",
            milliseconds(config.groups.consumer_session_timeout).to_string(),
        ),
        (
            "group.consumer.heartbeat.interval.ms",
            milliseconds(config.groups.consumer_heartbeat_interval).to_string(),
        ),
        (
            "group.consumer.migration.policy",
            config.groups.consumer_migration.show(),
        ),
        (
            "offsets.topic.num.partitions",
            config.groups.offsets_partitions.show(),
        ),
        (
            "transaction.state.log.num.partitions",
            config.transactions.state_partitions.show(),
        ),
        ("log.dirs", config.top.data_dir.show()),
    ];
    let own = config
        .effective
        .iter()
        .filter(|(key, _)| !key.starts_with(TOPIC_DEFAULTS) && *key != "durability");
    let own = own.map(|(key, effective)| (format!("tidegate.{key}"), effective.text.clone()));
    kafka
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .chain(own)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Inputs, load};

    fn settings(variables: &[(&str, &str)]) -> NodeSettings {
        let variables = variables
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        let inputs = Inputs {
            variables: variables.collect(),
            ..Inputs::default()
        };
        node_settings(&load(&topic_configs(), inputs).unwrap())
    }

    #[test]
    fn a_topic_without_a_durability_of_its_own_has_the_brokers() {
        let set = settings(&[
            ("TIDEGATE_DURABILITY", "object"),
            ("TIDEGATE_TOPICS_DEFAULTS_RETENTION_MS", "5"),
        ]);
        assert_eq!(
            set.broker.topic_defaults.explicit("tidegate.durability"),
            Some("object")
        );
        assert_eq!(
            set.broker.topic_defaults.explicit("retention.ms"),
            Some("5")
        );
        assert_eq!(set.broker.topic_defaults.explicit("retention.bytes"), None);
    }

    #[test]
    fn defaults_of_topic_configs_are_checked_like_topic_configs() {
        let variables = vec![(
            "TIDEGATE_TOPICS_DEFAULTS_CLEANUP_POLICY".to_owned(),
            "shred".to_owned(),
        )];
        let error = load(
            &topic_configs(),
            Inputs {
                variables,
                ..Inputs::default()
            },
        )
        .unwrap_err()
        .to_string();
        assert!(
            error.contains("topics.defaults.cleanup.policy = \"shred\" isn't allowed: "),
            "{error}"
        );
        assert!(error.contains("delete, compact"), "{error}");
    }

    #[test]
    fn defaults_are_those_of_the_crates_that_own_them() {
        // What differs on purpose is written here, so that a new default down there is noticed.
        let set = settings(&[]);
        let expected = GroupConfig {
            max_group_size: 100_000,
            max_consumer_group_size: 100_000,
            ..GroupConfig::default()
        };
        assert_eq!(format!("{:?}", set.broker.groups), format!("{expected:?}"));
        assert_eq!(
            format!("{:?}", set.store_options),
            format!("{:?}", StoreOptions::default())
        );
        assert_eq!(set.network.frame, FrameLimits::default());
        assert_eq!(set.network.decode, DecodeLimits::default());
    }

    #[test]
    fn nothing_is_shown_twice() {
        let set = settings(&[]);
        for config in TOPIC_CONFIGS {
            if let Some(synonym) = config.broker_synonym {
                assert!(!set.broker.shown_configs.contains_key(synonym), "{synonym}");
            }
        }
        assert_eq!(
            set.broker.shown_configs["tidegate.wal.capacity_bytes"],
            "1GiB"
        );
    }
}
