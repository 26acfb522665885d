//! The schemas against `kafka-protocol`, in both directions.

mod support;

use bytes::{Buf, BytesMut};
use support::Rng;
use tidegate_kafka_wire::Malformed;
use tidegate_kafka_wire::api::supported_versions;
use tidegate_kafka_wire::bounds::{DecodeLimits, check_body};
use tidegate_kafka_wire::messages::{ApiKey, RequestKind};
use tidegate_kafka_wire::schema::{self, RequestSchema};

fn versions(schema: &RequestSchema) -> impl Iterator<Item = i16> + use<> {
    schema.min_version..=schema.max_version
}

#[test]
fn generated_bodies_of_every_version_decode_to_their_last_byte() {
    let mut bodies = 0;
    for schema in schema::all() {
        for version in versions(schema) {
            for seed in 0..100 {
                let api = schema.api_key;
                let body = support::body(schema, version, &mut Rng::new(seed)).freeze();
                let context = format!("{api:?} version {version} seed {seed}");
                let checked = check_body(schema, version, &body, &DecodeLimits::default());
                let checked = checked.unwrap_or_else(|error| panic!("{context}: {error}"));
                assert_eq!(checked.body_bytes, body.len(), "{context}");
                let mut rest = body.clone();
                RequestKind::decode(api, &mut rest, version)
                    .unwrap_or_else(|error| panic!("{context}: {error:#}"));
                assert_eq!(rest.remaining(), 0, "{context}");
                bodies += 1;
            }
        }
    }
    // 61 APIs in 250 versions at the time of writing.
    assert!(bodies >= 25_000, "{bodies}");
}

#[test]
fn what_kafka_protocol_encodes_passes_the_check() {
    for schema in schema::all() {
        for version in versions(schema) {
            for seed in 0..30 {
                let api = schema.api_key;
                let context = format!("{api:?} version {version} seed {seed}");
                let mut body = support::body(schema, version, &mut Rng::new(seed)).freeze();
                let request = RequestKind::decode(api, &mut body, version).expect("generated");
                let mut encoded = BytesMut::new();
                request.encode(&mut encoded, version).expect("decoded");
                let checked = check_body(schema, version, &encoded, &DecodeLimits::default())
                    .unwrap_or_else(|error| panic!("{context}: {error}"));
                assert_eq!(checked.body_bytes, encoded.len(), "{context}");
            }
        }
    }
}

#[test]
fn every_truncation_of_a_body_is_refused() {
    for schema in schema::all() {
        for version in versions(schema) {
            let body = support::body(schema, version, &mut Rng::new(7));
            for length in 0..body.len() {
                let cut = check_body(schema, version, &body[..length], &DecodeLimits::default());
                assert!(
                    cut.is_err(),
                    "{:?} version {version} cut to {length} of {}",
                    schema.api_key,
                    body.len()
                );
            }
        }
    }
}

#[test]
fn bytes_after_the_last_field_are_not_counted() {
    let schema = schema::of(ApiKey::Heartbeat).expect("known");
    let mut body = support::body(schema, 4, &mut Rng::new(1));
    let length = body.len();
    body.extend_from_slice(b"more");
    let checked = check_body(schema, 4, &body, &DecodeLimits::default()).expect("valid");
    assert_eq!(checked.body_bytes, length);
}

#[test]
fn an_array_can_not_claim_more_than_the_bytes_that_follow() {
    let schema = schema::of(ApiKey::Metadata).expect("known");
    let classic = check_body(
        schema,
        0,
        &[0x7f, 0xff, 0xff, 0xff, 0, 0],
        &DecodeLimits::default(),
    );
    assert_eq!(
        classic,
        Err(Malformed::TooManyElements {
            field: "topics",
            position: 0,
            count: 0x7fff_ffff,
            possible: 1,
        })
    );
    let compact = check_body(
        schema,
        9,
        &[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0],
        &DecodeLimits::default(),
    );
    assert_eq!(
        compact,
        Err(Malformed::TooManyElements {
            field: "topics",
            position: 0,
            count: 0xffff_fffe,
            possible: 1,
        })
    );
}

#[test]
fn many_small_elements_are_refused_for_the_memory_they_would_take() {
    let schema = schema::of(ApiKey::Metadata).expect("known");
    let limits = DecodeLimits {
        max_decoded_bytes: 100 * 256,
    };
    let with_topics = |count: u32| {
        let mut body = count.to_be_bytes().to_vec();
        body.resize(4 + 2 * usize::try_from(count).expect("small"), 0);
        check_body(schema, 0, &body, &limits)
    };
    assert!(with_topics(100).is_ok());
    assert!(matches!(
        with_topics(101),
        Err(Malformed::TooLarge {
            field: "topics",
            limit_bytes: 25600,
            ..
        })
    ));
}

#[test]
fn many_unknown_tagged_fields_are_refused_for_the_memory_they_would_take() {
    let schema = schema::of(ApiKey::ApiVersions).expect("known");
    // Two empty strings, then tags 1000, 1001, … without content.
    let mut body = BytesMut::from(&[1, 1][..]);
    support::put_unsigned_varint(&mut body, 10_000);
    for tag in 0..10_000 {
        support::put_unsigned_varint(&mut body, 1000 + tag);
        support::put_unsigned_varint(&mut body, 0);
    }
    assert!(check_body(schema, 3, &body, &DecodeLimits::default()).is_ok());
    let limits = DecodeLimits {
        max_decoded_bytes: 1 << 20,
    };
    assert!(matches!(
        check_body(schema, 3, &body, &limits),
        Err(Malformed::TooLarge { .. })
    ));
}

#[test]
fn null_is_refused_where_the_version_has_none() {
    let schema = schema::of(ApiKey::Metadata).expect("known");
    let null = [0xff; 4];
    assert!(matches!(
        check_body(schema, 0, &null, &DecodeLimits::default()),
        Err(Malformed::Null {
            field: "topics",
            ..
        })
    ));
    assert!(check_body(schema, 1, &null, &DecodeLimits::default()).is_ok());
}

#[test]
fn a_known_tag_must_take_exactly_its_announced_bytes() {
    let schema = schema::of(ApiKey::Fetch).expect("known");
    // Version 12: replica, wait, min, max, isolation, session, epoch; no topics; rack; cluster id "ab".
    let mut body = vec![0; 25];
    body.extend_from_slice(&[1, 1, 1, 1, 0, 3, 3, b'a', b'b']);
    assert!(check_body(schema, 12, &body, &DecodeLimits::default()).is_ok());
    for announced in [2, 4] {
        let mut wrong = body.clone();
        let at = wrong.len() - 4;
        wrong[at] = announced;
        wrong.push(0);
        assert!(
            matches!(
                check_body(schema, 12, &wrong, &DecodeLimits::default()),
                Err(Malformed::TagSize {
                    field: "cluster_id",
                    taken: 3,
                    ..
                })
            ),
            "{announced}"
        );
    }
}

/// The versions of Apache Kafka 4.4.0, as its ApiVersions answer has them, or up to the last one that
/// `kafka-protocol` decodes.
#[test]
fn versions_are_those_of_kafka_or_as_far_as_the_codec_goes() {
    use ApiKey::*;
    let expected = [
        (Produce, 3, 13),
        (Fetch, 4, 18),
        (ListOffsets, 1, 10),
        (Metadata, 0, 13),
        (OffsetCommit, 2, 9),
        (OffsetFetch, 1, 9),
        (FindCoordinator, 0, 6),
        (JoinGroup, 0, 9),
        (Heartbeat, 0, 4),
        (LeaveGroup, 0, 5),
        (SyncGroup, 0, 5),
        (DescribeGroups, 0, 6),
        (ListGroups, 0, 5),
        (SaslHandshake, 0, 1),
        (ApiVersions, 0, 4),
        (CreateTopics, 2, 7),
        (DeleteTopics, 1, 6),
        (DeleteRecords, 0, 2),
        (InitProducerId, 0, 5),
        (OffsetForLeaderEpoch, 2, 4),
        (AddPartitionsToTxn, 0, 5),
        (AddOffsetsToTxn, 0, 4),
        (EndTxn, 0, 5),
        (WriteTxnMarkers, 1, 1),
        (TxnOffsetCommit, 0, 5),
        (DescribeAcls, 1, 3),
        (CreateAcls, 1, 3),
        (DeleteAcls, 1, 3),
        (DescribeConfigs, 1, 4),
        (AlterConfigs, 0, 2),
        (AlterReplicaLogDirs, 1, 2),
        (DescribeLogDirs, 1, 4),
        (SaslAuthenticate, 0, 2),
        (CreatePartitions, 0, 3),
        (CreateDelegationToken, 1, 3),
        (RenewDelegationToken, 1, 2),
        (ExpireDelegationToken, 1, 2),
        (DescribeDelegationToken, 1, 3),
        (DeleteGroups, 0, 2),
        (ElectLeaders, 0, 2),
        (IncrementalAlterConfigs, 0, 1),
        (AlterPartitionReassignments, 0, 1),
        (ListPartitionReassignments, 0, 0),
        (OffsetDelete, 0, 0),
        (DescribeClientQuotas, 0, 1),
        (AlterClientQuotas, 0, 1),
        (DescribeUserScramCredentials, 0, 0),
        (AlterUserScramCredentials, 0, 0),
        (DescribeQuorum, 0, 2),
        (UpdateFeatures, 0, 2),
        (DescribeCluster, 0, 2),
        (DescribeProducers, 0, 0),
        (UnregisterBroker, 0, 0),
        (DescribeTransactions, 0, 0),
        (ListTransactions, 0, 2),
        (ConsumerGroupHeartbeat, 0, 1),
        (ConsumerGroupDescribe, 0, 1),
        (GetTelemetrySubscriptions, 0, 0),
        (PushTelemetry, 0, 0),
        (ListConfigResources, 0, 1),
        (DescribeTopicPartitions, 0, 0),
    ];
    for (api, min, max) in expected {
        let versions = supported_versions(api).map(|versions| (versions.min, versions.max));
        assert_eq!(versions, Some((min, max)), "{api:?}");
    }
    assert_eq!(schema::all().count(), expected.len());
}
