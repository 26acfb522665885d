//! The configs of a group (resource type GROUP), with Apache Kafka's names, types and ranges.

use super::definitions::{ConfigDefinition, ConfigKind, ConfigRange, InvalidConfig};

/// How long a consumer may be silent.
pub const GROUP_SESSION_TIMEOUT: &str = "consumer.session.timeout.ms";
/// How often consumers are told to send heartbeats.
pub const GROUP_HEARTBEAT_INTERVAL: &str = "consumer.heartbeat.interval.ms";

const fn group(
    name: &'static str,
    default: &'static str,
    range: ConfigRange,
    synonym: &'static str,
    doc: &'static str,
) -> ConfigDefinition {
    ConfigDefinition {
        name,
        kind: ConfigKind::Int,
        default,
        range,
        broker_synonym: Some(synonym),
        effective: true,
        doc,
    }
}

/// Every config that a group may have. The ranges are Kafka's defaults of `group.consumer.min.session.timeout.ms`
/// and its like.
pub const GROUP_CONFIGS: &[ConfigDefinition] = &[
    group(
        GROUP_HEARTBEAT_INTERVAL,
        "5000",
        ConfigRange::Between(5_000, 15_000),
        "group.consumer.heartbeat.interval.ms",
        "How often the members of the consumer protocol are told to send heartbeats, in milliseconds.",
    ),
    group(
        GROUP_SESSION_TIMEOUT,
        "45000",
        ConfigRange::Between(45_000, 60_000),
        "group.consumer.session.timeout.ms",
        "How long a member of the consumer protocol may be silent before it is dropped, in milliseconds.",
    ),
];

/// The definition of a group config.
pub fn group_config(name: &str) -> Result<&'static ConfigDefinition, InvalidConfig> {
    GROUP_CONFIGS
        .iter()
        .find(|definition| definition.name == name)
        .ok_or_else(|| InvalidConfig::UnknownOfGroup {
            name: name.to_owned(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_allowed_and_unknown_names_are_not() {
        for definition in GROUP_CONFIGS {
            assert_eq!(definition.check(definition.default), Ok(()));
        }
        assert!(group_config("consumer.session.timeout").is_err());
        assert!(group_config(GROUP_SESSION_TIMEOUT).is_ok_and(|d| d.check("44999").is_err()));
    }
}
