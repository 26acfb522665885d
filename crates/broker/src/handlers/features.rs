//! UpdateFeatures: the levels are those of the build, so what is asked for is either so or can't be.

use kafka_protocol::messages::update_features_request::FeatureUpdateKey;
use kafka_protocol::messages::update_features_response::UpdatableFeatureResult;
use kafka_protocol::messages::{UpdateFeaturesRequest, UpdateFeaturesResponse};

use super::text;
use crate::error_code::ErrorCode;
use crate::features::level;

/// From this version on one refusal refuses the whole request, and answers name no single features (KIP-1022).
const FIRST_AS_A_WHOLE: i16 = 2;

pub(crate) fn update_features(
    request: UpdateFeaturesRequest,
    version: i16,
) -> UpdateFeaturesResponse {
    let refusals = request.feature_updates.iter().map(refusal);
    if version >= FIRST_AS_A_WHOLE {
        let answer = UpdateFeaturesResponse::default().with_error_message(None);
        return match refusals.flatten().next() {
            None => answer,
            Some(message) => answer
                .with_error_code(ErrorCode::InvalidUpdateVersion.code())
                .with_error_message(Some(text(message))),
        };
    }
    let results = request
        .feature_updates
        .iter()
        .zip(refusals)
        .map(|(update, refusal)| {
            let result = UpdatableFeatureResult::default().with_feature(update.feature.clone());
            match refusal {
                None => result.with_error_message(None),
                Some(message) => result
                    .with_error_code(ErrorCode::InvalidUpdateVersion.code())
                    .with_error_message(Some(text(message))),
            }
        });
    UpdateFeaturesResponse::default()
        .with_error_message(None)
        .with_results(results.collect())
}

/// Why a feature can't have the level that is asked for.
fn refusal(update: &FeatureUpdateKey) -> Option<String> {
    let (name, wanted) = (update.feature.as_str(), update.max_version_level);
    match level(name) {
        Some(level) if level == wanted => None,
        Some(level) => Some(format!(
            "the level of {name} is {level}, as this release has it, and can't become {wanted}"
        )),
        None => Some(format!("there is no feature {name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(updates: &[(&str, i16)], version: i16) -> UpdateFeaturesResponse {
        let updates = updates.iter().map(|(name, level)| {
            FeatureUpdateKey::default()
                .with_feature(text(*name))
                .with_max_version_level(*level)
        });
        let request = UpdateFeaturesRequest::default().with_feature_updates(updates.collect());
        update_features(request, version)
    }

    #[test]
    fn only_the_level_that_is_in_force_can_be_asked_for() {
        let group = level("group.version").unwrap();
        let answer = asked(&[("group.version", group)], 2);
        assert_eq!((answer.error_code, answer.results.len()), (0, 0));
        let wrong = [("group.version", group), ("group.version", group + 1)];
        assert_eq!(asked(&wrong, 2).error_code, 95);
        let answer = asked(&[("group.version", group), ("no.such", 1)], 1);
        let codes: Vec<i16> = answer.results.iter().map(|r| r.error_code).collect();
        assert_eq!((answer.error_code, codes), (0, vec![0, 95]));
    }
}
