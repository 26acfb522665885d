//! The topic configs that tools set and read, with Apache Kafka's names, types and defaults.
//!
//! Those that have no effect, on a single-copy log in object storage or until what they steer is built, are accepted,
//! kept and shown, because tools set them and compare what they read back; `effective` says which do something.

/// How a value is written, by Kafka's type codes in DescribeConfigs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigKind {
    Boolean,
    String,
    Int,
    Long,
    Double,
    List,
}

impl ConfigKind {
    /// The type's number in DescribeConfigs (KIP-569).
    pub fn wire_type(self) -> i8 {
        match self {
            Self::Boolean => 1,
            Self::String => 2,
            Self::Int => 3,
            Self::Long => 5,
            Self::Double => 6,
            Self::List => 7,
        }
    }
}

/// Which values are allowed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ConfigRange {
    Any,
    AtLeast(i64),
    Between(i64, i64),
    Fraction,
    OneOf(&'static [&'static str]),
}

/// One config.
#[derive(Debug, Clone, Copy)]
pub struct ConfigDefinition {
    pub name: &'static str,
    pub kind: ConfigKind,
    pub default: &'static str,
    pub range: ConfigRange,
    /// The broker config whose value is the default, as Kafka's synonyms name it.
    pub broker_synonym: Option<&'static str>,
    /// Whether it changes what this broker does.
    pub effective: bool,
    pub doc: &'static str,
}

/// A name that isn't known or a value that isn't allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidConfig {
    #[error("Unknown topic config name: {name}{}", nearest.map(|n| format!(" (did you mean {n}?)")).unwrap_or_default())]
    Unknown {
        name: String,
        nearest: Option<&'static str>,
    },
    #[error("Unknown group config name: {name}")]
    UnknownOfGroup { name: String },
    #[error("Invalid value {value} for configuration {name}: {reason}")]
    Value {
        name: &'static str,
        value: String,
        reason: String,
    },
    #[error("Configuration {name} isn't a list, so values can't be appended or subtracted")]
    NotAList { name: &'static str },
}

/// Broker configs without a topic config behind them that Kafka's tools set and take back: the throttles of a
/// reassignment, which copies nothing here.
pub const THROTTLE_CONFIGS: &[ConfigDefinition] = &[
    throttle("follower.replication.throttled.rate"),
    throttle("leader.replication.throttled.rate"),
    throttle("replica.alter.log.dirs.io.max.bytes.per.second"),
];

const fn throttle(name: &'static str) -> ConfigDefinition {
    config(
        name,
        ConfigKind::Long,
        "9223372036854775807",
        ConfigRange::AtLeast(0),
        None,
        false,
        "Kept for tools: nothing is copied between brokers.",
    )
}

/// Every topic config, in the order of their names.
pub const TOPIC_CONFIGS: &[ConfigDefinition] = &[
    config(
        "cleanup.policy",
        ConfigKind::List,
        "delete",
        ConfigRange::OneOf(&["delete", "compact"]),
        Some("log.cleanup.policy"),
        true,
        "Whether old segments are deleted, compacted by key, or both. `compact` alone keeps retention and DeleteRecords off.",
    ),
    config(
        "compression.gzip.level",
        ConfigKind::Int,
        "-1",
        ConfigRange::Between(-1, 9),
        Some("compression.gzip.level"),
        false,
        "Kept for tools: batches are stored as their producer compressed them.",
    ),
    config(
        "compression.lz4.level",
        ConfigKind::Int,
        "9",
        ConfigRange::Between(1, 17),
        Some("compression.lz4.level"),
        false,
        "Kept for tools: batches are stored as their producer compressed them.",
    ),
    config(
        "compression.type",
        ConfigKind::String,
        "producer",
        ConfigRange::OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]),
        Some("compression.type"),
        false,
        "Kept for tools: batches are stored as their producer compressed them, whatever this says.",
    ),
    config(
        "compression.zstd.level",
        ConfigKind::Int,
        "3",
        ConfigRange::Between(-131_072, 22),
        Some("compression.zstd.level"),
        false,
        "Kept for tools: batches are stored as their producer compressed them.",
    ),
    config(
        "delete.retention.ms",
        ConfigKind::Long,
        "86400000",
        ConfigRange::AtLeast(0),
        Some("log.cleaner.delete.retention.ms"),
        true,
        "How long tombstones and transaction markers of compacted topics are kept after the first pass that met them, in milliseconds.",
    ),
    config(
        "errors.deadletterqueue.group.enable",
        ConfigKind::Boolean,
        "false",
        ConfigRange::Any,
        None,
        false,
        "Kept for tools: there are no share groups.",
    ),
    config(
        "file.delete.delay.ms",
        ConfigKind::Long,
        "60000",
        ConfigRange::AtLeast(0),
        Some("log.segment.delete.delay.ms"),
        false,
        "Kept for tools: objects are deleted after the store's own grace period.",
    ),
    config(
        "flush.messages",
        ConfigKind::Long,
        "9223372036854775807",
        ConfigRange::AtLeast(1),
        Some("log.flush.interval.messages"),
        false,
        "Kept for tools: every acknowledged record is durable already.",
    ),
    config(
        "flush.ms",
        ConfigKind::Long,
        "9223372036854775807",
        ConfigRange::AtLeast(0),
        Some("log.flush.interval.ms"),
        false,
        "Kept for tools: every acknowledged record is durable already.",
    ),
    config(
        "follower.replication.throttled.replicas",
        ConfigKind::List,
        "",
        ConfigRange::Any,
        None,
        false,
        "Kept for tools: nothing is copied between brokers.",
    ),
    config(
        "index.interval.bytes",
        ConfigKind::Int,
        "4096",
        ConfigRange::AtLeast(0),
        Some("log.index.interval.bytes"),
        false,
        "Kept for tools: objects are indexed by block.",
    ),
    config(
        "leader.replication.throttled.replicas",
        ConfigKind::List,
        "",
        ConfigRange::Any,
        None,
        false,
        "Kept for tools: nothing is copied between brokers.",
    ),
    config(
        "local.retention.bytes",
        ConfigKind::Long,
        "-2",
        ConfigRange::AtLeast(-2),
        Some("log.local.retention.bytes"),
        false,
        "Kept for tools: all data is in object storage.",
    ),
    config(
        "local.retention.ms",
        ConfigKind::Long,
        "-2",
        ConfigRange::AtLeast(-2),
        Some("log.local.retention.ms"),
        false,
        "Kept for tools: all data is in object storage.",
    ),
    config(
        "max.compaction.lag.ms",
        ConfigKind::Long,
        "9223372036854775807",
        ConfigRange::AtLeast(1),
        Some("log.cleaner.max.compaction.lag.ms"),
        true,
        "The longest a record may stay uncompacted, in milliseconds: then its partition is compacted whatever its dirty ratio.",
    ),
    config(
        "max.decompressed.message.bytes",
        ConfigKind::Int,
        "2147483639",
        ConfigRange::Between(1, 2_147_483_639),
        Some("max.decompressed.message.bytes"),
        false,
        "Kept for tools: compressed batches are stored as they come, and decompressed within limits of their own.",
    ),
    config(
        "max.message.bytes",
        ConfigKind::Int,
        "1048588",
        ConfigRange::AtLeast(0),
        Some("message.max.bytes"),
        true,
        "The largest record batch, in bytes as sent.",
    ),
    config(
        "message.timestamp.after.max.ms",
        ConfigKind::Long,
        "3600000",
        ConfigRange::AtLeast(0),
        Some("log.message.timestamp.after.max.ms"),
        true,
        "How far a record's timestamp may lie ahead of the broker's clock, in milliseconds.",
    ),
    config(
        "message.timestamp.before.max.ms",
        ConfigKind::Long,
        "9223372036854775807",
        ConfigRange::AtLeast(0),
        Some("log.message.timestamp.before.max.ms"),
        true,
        "How far a record's timestamp may lie behind the broker's clock, in milliseconds.",
    ),
    config(
        "message.timestamp.type",
        ConfigKind::String,
        "CreateTime",
        ConfigRange::OneOf(&["CreateTime", "LogAppendTime"]),
        Some("log.message.timestamp.type"),
        true,
        "Whether a record keeps its producer's timestamp or gets the broker's.",
    ),
    config(
        "min.cleanable.dirty.ratio",
        ConfigKind::Double,
        "0.5",
        ConfigRange::Fraction,
        Some("log.cleaner.min.cleanable.ratio"),
        true,
        "The part of a compacted log that must be uncompacted before it is compacted again.",
    ),
    config(
        "min.compaction.lag.ms",
        ConfigKind::Long,
        "0",
        ConfigRange::AtLeast(0),
        Some("log.cleaner.min.compaction.lag.ms"),
        true,
        "How long a record stays uncompacted at least, in milliseconds.",
    ),
    config(
        "min.insync.replicas",
        ConfigKind::Int,
        "1",
        ConfigRange::AtLeast(1),
        Some("min.insync.replicas"),
        false,
        "Kept for tools: a record is acknowledged when its durability mode's promise holds.",
    ),
    config(
        "preallocate",
        ConfigKind::Boolean,
        "false",
        ConfigRange::Any,
        Some("log.preallocate"),
        false,
        "Kept for tools: partitions have no files.",
    ),
    config(
        "remote.copy.lag.bytes",
        ConfigKind::Long,
        "-1",
        ConfigRange::AtLeast(-1),
        Some("log.remote.copy.lag.bytes"),
        false,
        "Kept for tools: all data is in object storage.",
    ),
    config(
        "remote.copy.lag.ms",
        ConfigKind::Long,
        "0",
        ConfigRange::AtLeast(-1),
        Some("log.remote.copy.lag.ms"),
        false,
        "Kept for tools: all data is in object storage.",
    ),
    config(
        "remote.log.copy.disable",
        ConfigKind::Boolean,
        "false",
        ConfigRange::Any,
        None,
        false,
        "Kept for tools: all data is in object storage.",
    ),
    config(
        "remote.log.delete.on.disable",
        ConfigKind::Boolean,
        "false",
        ConfigRange::Any,
        None,
        false,
        "Kept for tools: all data is in object storage.",
    ),
    config(
        "remote.storage.enable",
        ConfigKind::Boolean,
        "false",
        ConfigRange::Any,
        None,
        false,
        "Kept for tools: all data is in object storage.",
    ),
    config(
        "retention.bytes",
        ConfigKind::Long,
        "-1",
        ConfigRange::AtLeast(-1),
        Some("log.retention.bytes"),
        true,
        "The size of a partition above which its oldest segments are deleted; -1 for no limit.",
    ),
    config(
        "retention.ms",
        ConfigKind::Long,
        "604800000",
        ConfigRange::AtLeast(-1),
        Some("log.retention.ms"),
        true,
        "The age above which segments are deleted, in milliseconds; -1 for no limit.",
    ),
    config(
        "segment.bytes",
        ConfigKind::Int,
        "1073741824",
        ConfigRange::AtLeast(14),
        Some("log.segment.bytes"),
        false,
        "Kept for tools: segments follow the uploads.",
    ),
    config(
        "segment.index.bytes",
        ConfigKind::Int,
        "10485760",
        ConfigRange::AtLeast(4),
        Some("log.index.size.max.bytes"),
        false,
        "Kept for tools: objects are indexed by block.",
    ),
    config(
        "segment.jitter.ms",
        ConfigKind::Long,
        "0",
        ConfigRange::AtLeast(0),
        Some("log.roll.jitter.ms"),
        false,
        "Kept for tools: segments follow the uploads.",
    ),
    config(
        "segment.ms",
        ConfigKind::Long,
        "604800000",
        ConfigRange::AtLeast(1),
        Some("log.roll.ms"),
        false,
        "Kept for tools: segments follow the uploads.",
    ),
    config(
        "tidegate.durability",
        ConfigKind::String,
        "local",
        ConfigRange::OneOf(&["local", "object"]),
        Some("tidegate.durability"),
        true,
        "What must have stored a record before it is acknowledged: this broker's disk, or object storage.",
    ),
    config(
        "unclean.leader.election.enable",
        ConfigKind::Boolean,
        "false",
        ConfigRange::Any,
        Some("unclean.leader.election.enable"),
        false,
        "Kept for tools: a leader never starts below what was acknowledged, except by an operator's explicit --accept-loss.",
    ),
];

const fn config(
    name: &'static str,
    kind: ConfigKind,
    default: &'static str,
    range: ConfigRange,
    broker_synonym: Option<&'static str>,
    effective: bool,
    doc: &'static str,
) -> ConfigDefinition {
    ConfigDefinition {
        name,
        kind,
        default,
        range,
        broker_synonym,
        effective,
        doc,
    }
}

/// The definition of a topic config, or an error that names the nearest one.
pub fn topic_config(name: &str) -> Result<&'static ConfigDefinition, InvalidConfig> {
    if let Ok(at) = TOPIC_CONFIGS.binary_search_by(|d| d.name.cmp(name)) {
        return Ok(&TOPIC_CONFIGS[at]);
    }
    let nearest = TOPIC_CONFIGS
        .iter()
        .map(|d| (strsim::damerau_levenshtein(d.name, name), d.name))
        .min()
        .filter(|(distance, _)| *distance <= 4)
        .map(|(_, name)| name);
    Err(InvalidConfig::Unknown {
        name: name.to_owned(),
        nearest,
    })
}

impl ConfigDefinition {
    /// Checks a value.
    pub fn check(&self, value: &str) -> Result<(), InvalidConfig> {
        let invalid = |reason: &str| {
            Err(InvalidConfig::Value {
                name: self.name,
                value: value.to_owned(),
                reason: reason.to_owned(),
            })
        };
        match self.kind {
            ConfigKind::Boolean if !matches!(value, "true" | "false") => {
                invalid("Expected value to be either true or false")
            }
            ConfigKind::Int => match value.parse::<i32>() {
                Ok(number) => self.check_number(value, i64::from(number)),
                Err(_) => invalid("Not a number of type INT"),
            },
            ConfigKind::Long => match value.parse::<i64>() {
                Ok(number) => self.check_number(value, number),
                Err(_) => invalid("Not a number of type LONG"),
            },
            ConfigKind::Double => match value.parse::<f64>() {
                Ok(number) if (0.0..=1.0).contains(&number) => Ok(()),
                Ok(_) => invalid("Value must be between 0 and 1"),
                Err(_) => invalid("Not a number of type DOUBLE"),
            },
            ConfigKind::List => split_list(value).try_for_each(|item| self.check_word(value, item)),
            ConfigKind::String => self.check_word(value, value),
            ConfigKind::Boolean => Ok(()),
        }
    }

    fn check_number(&self, value: &str, number: i64) -> Result<(), InvalidConfig> {
        let reason = match self.range {
            ConfigRange::AtLeast(least) if number < least => {
                format!("Value must be at least {least}")
            }
            ConfigRange::Between(least, most) if !(least..=most).contains(&number) => {
                format!("Value must be between {least} and {most}")
            }
            _ => return Ok(()),
        };
        Err(InvalidConfig::Value {
            name: self.name,
            value: value.to_owned(),
            reason,
        })
    }

    fn check_word(&self, value: &str, word: &str) -> Result<(), InvalidConfig> {
        match self.range {
            ConfigRange::OneOf(words) if !words.contains(&word) => Err(InvalidConfig::Value {
                name: self.name,
                value: value.to_owned(),
                reason: format!("String must be one of: {}", words.join(", ")),
            }),
            _ => Ok(()),
        }
    }
}

/// The items of a comma-separated list.
pub fn split_list(value: &str) -> impl Iterator<Item = &str> {
    value
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_sorted_and_every_default_is_allowed() {
        assert!(TOPIC_CONFIGS.is_sorted_by(|a, b| a.name < b.name));
        for definition in TOPIC_CONFIGS {
            assert_eq!(
                definition.check(definition.default),
                Ok(()),
                "{}",
                definition.name
            );
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest_one() {
        let error = topic_config("retention.mss").unwrap_err();
        assert!(
            error.to_string().contains("did you mean retention.ms?"),
            "{error}"
        );
        assert!(
            topic_config("no.such.thing.at.all")
                .unwrap_err()
                .to_string()
                .ends_with("no.such.thing.at.all")
        );
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for (name, value) in [
            ("cleanup.policy", "compact,forget"),
            ("retention.ms", "-2"),
            ("retention.ms", "a day"),
            ("min.cleanable.dirty.ratio", "1.5"),
            ("compression.type", "zip"),
            ("preallocate", "yes"),
        ] {
            assert!(
                topic_config(name).unwrap().check(value).is_err(),
                "{name}={value}"
            );
        }
    }
}
