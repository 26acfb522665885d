//! A topic's configs, parsed once for the hot path.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_record_batch::TimestampType;
use tidegate_types::DurabilityMode;

use super::definitions::{split_list, topic_config};

/// What becomes of old records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CleanupPolicy {
    pub delete: bool,
    pub compact: bool,
}

/// How a topic is compacted, if it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TopicCompaction {
    pub min_dirty_ratio: f64,
    pub min_lag: Duration,
    /// `None`: no limit.
    pub max_lag: Option<Duration>,
    pub delete_retention: Duration,
    /// Kafka would leave so much of the log's end alone.
    pub segment_bytes: u64,
}

/// The values that topics have where they set none: the broker's own configuration.
#[derive(Debug, Clone, Default)]
pub struct TopicDefaults {
    values: BTreeMap<String, String>,
}

impl TopicDefaults {
    /// `values` holds topic config names; whatever is missing has Apache Kafka's default.
    pub fn new(values: BTreeMap<String, String>) -> Self {
        Self { values }
    }

    pub(crate) fn into_values(self) -> BTreeMap<String, String> {
        self.values
    }

    /// The broker's own value, if it sets one.
    pub fn explicit(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// The value a topic has that doesn't set `name`.
    pub fn value(&self, name: &str) -> &str {
        match self.values.get(name) {
            Some(value) => value,
            None => topic_config(name).map_or("", |d| d.default),
        }
    }
}

/// A topic's effective settings.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicSettings {
    pub cleanup: CleanupPolicy,
    pub compaction: TopicCompaction,
    pub max_message_bytes: u32,
    pub timestamp_type: TimestampType,
    pub timestamp_before_max_ms: i64,
    pub timestamp_after_max_ms: i64,
    /// `None`: no limit.
    pub retention: Option<Duration>,
    /// `None`: no limit.
    pub retention_bytes: Option<u64>,
    pub durability: DurabilityMode,
}

impl TopicSettings {
    /// Reads the settings of a topic. Values that can't be read (written by a newer version) count as unset.
    pub fn new(configs: &BTreeMap<String, String>, defaults: &TopicDefaults) -> Self {
        let text = |name: &str| -> &str {
            let set = configs.get(name).map(String::as_str);
            set.filter(|v| topic_config(name).is_ok_and(|d| d.check(v).is_ok()))
                .unwrap_or_else(|| defaults.value(name))
        };
        let number = |name: &str| text(name).parse::<i64>().unwrap_or(i64::MAX);
        let policy = text("cleanup.policy");
        let milliseconds =
            |name: &str| Duration::from_millis(u64::try_from(number(name)).unwrap_or_default());
        Self {
            cleanup: CleanupPolicy {
                delete: split_list(policy).any(|p| p == "delete"),
                compact: split_list(policy).any(|p| p == "compact"),
            },
            compaction: TopicCompaction {
                min_dirty_ratio: text("min.cleanable.dirty.ratio").parse().unwrap_or(0.5),
                min_lag: milliseconds("min.compaction.lag.ms"),
                max_lag: Some(number("max.compaction.lag.ms"))
                    .filter(|lag| *lag < i64::MAX)
                    .map(|_| milliseconds("max.compaction.lag.ms")),
                delete_retention: milliseconds("delete.retention.ms"),
                segment_bytes: u64::try_from(number("segment.bytes")).unwrap_or(u64::MAX),
            },
            max_message_bytes: u32::try_from(number("max.message.bytes")).unwrap_or(u32::MAX),
            timestamp_type: match text("message.timestamp.type") {
                "LogAppendTime" => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
            },
            timestamp_before_max_ms: number("message.timestamp.before.max.ms"),
            timestamp_after_max_ms: number("message.timestamp.after.max.ms"),
            retention: u64::try_from(number("retention.ms"))
                .ok()
                .map(Duration::from_millis),
            retention_bytes: u64::try_from(number("retention.bytes")).ok(),
            durability: text("tidegate.durability")
                .parse()
                .unwrap_or(DurabilityMode::Local),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_has_its_own_values_then_the_brokers_then_kafkas() {
        let defaults = TopicDefaults::new([("retention.ms".to_owned(), "5000".to_owned())].into());
        let configs = [("retention.bytes".to_owned(), "7".to_owned())].into();
        let settings = TopicSettings::new(&configs, &defaults);
        assert_eq!(settings.retention, Some(Duration::from_secs(5)));
        assert_eq!(settings.retention_bytes, Some(7));
        assert_eq!(settings.max_message_bytes, 1_048_588);
        assert_eq!(
            settings.cleanup,
            CleanupPolicy {
                delete: true,
                compact: false
            }
        );
    }

    #[test]
    fn minus_one_means_no_limit_and_an_unreadable_value_counts_as_unset() {
        let configs = [
            ("retention.ms".to_owned(), "-1".to_owned()),
            ("max.message.bytes".to_owned(), "many".to_owned()),
        ]
        .into();
        let settings = TopicSettings::new(&configs, &TopicDefaults::default());
        assert_eq!(settings.retention, None);
        assert_eq!(settings.max_message_bytes, 1_048_588);
    }
}
