//! What the cluster can do as a whole, in Kafka's terms (KIP-584): clients and tools read it from ApiVersions.
//!
//! A feature is listed as finalized once every API behind it works. There is nothing to upgrade step by step, so the
//! levels are those of the build.

use kafka_protocol::messages::ApiVersionsResponse;
use kafka_protocol::messages::api_versions_response::{FinalizedFeatureKey, SupportedFeatureKey};
use kafka_protocol::protocol::StrBytes;

/// Names with the level in force, which is also the highest one; the lowest is 0.
const FEATURES: &[(&str, i16)] = &[
    // Consumer groups by the new protocol (KIP-848).
    ("group.version", 1),
    // Each end of a transaction raises its producer's epoch (KIP-890).
    ("transaction.version", 2),
];

/// The level of a feature that is in force.
pub(crate) fn level(feature: &str) -> Option<i16> {
    let found = FEATURES.iter().find(|(name, _)| *name == feature);
    found.map(|(_, level)| *level)
}

/// Adds the features to an answer. Versions below 3 leave them out.
pub(crate) fn add_features(answer: ApiVersionsResponse, version: i16) -> ApiVersionsResponse {
    if version < 3 {
        return answer;
    }
    // Version 3 can't carry a range that begins with 0 (KAFKA-17011).
    let lowest = if version >= 4 { 0 } else { 1 };
    let supported = FEATURES.iter().map(|(name, level)| {
        SupportedFeatureKey::default()
            .with_name(StrBytes::from_static_str(name))
            .with_min_version(lowest)
            .with_max_version(*level)
    });
    let finalized = FEATURES.iter().map(|(name, level)| {
        FinalizedFeatureKey::default()
            .with_name(StrBytes::from_static_str(name))
            .with_min_version_level(*level)
            .with_max_version_level(*level)
    });
    answer
        .with_supported_features(supported.collect())
        .with_finalized_features(finalized.collect())
        .with_finalized_features_epoch(1)
}
