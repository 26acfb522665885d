//! Our fetch codec against that of `kafka-protocol`, for every version.

mod support;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::fetch_request as theirs_request;
use kafka_protocol::messages::fetch_response as theirs;
use kafka_protocol::messages::{BrokerId, ProducerId, TopicName};
use kafka_protocol::protocol::{Decodable, Encodable};
use support::Rng;
use tidegate_kafka_wire::bounds::{DecodeLimits, check_body};
use tidegate_kafka_wire::fetch::{
    AbortedTransaction, DivergingEpoch, FetchPartition, FetchPartitionResponse, FetchRequest,
    FetchResponse, FetchTopic, FetchTopicResponse, ForgottenTopic, IsolationLevel,
};
use tidegate_kafka_wire::messages::ApiKey;
use tidegate_kafka_wire::response::encode_message;
use tidegate_kafka_wire::{CurrentLeader, Malformed, NodeEndpoint, StrBytes, TopicRef, schema};
use uuid::Uuid;

fn decode(body: &[u8], version: i16) -> FetchRequest {
    FetchRequest::decode(BytesMut::from(body), version, &DecodeLimits::default())
        .unwrap_or_else(|error| panic!("version {version}: {error}"))
}

/// Their request in our types.
fn converted(request: &theirs_request::FetchRequest, version: i16) -> FetchRequest {
    let name = |name: &TopicName, id: Uuid| {
        if version >= 13 {
            TopicRef::Id(id)
        } else {
            TopicRef::Name(name.0.clone())
        }
    };
    let partition = |partition: &theirs_request::FetchPartition| FetchPartition {
        index: partition.partition,
        current_leader_epoch: partition.current_leader_epoch,
        fetch_offset: partition.fetch_offset,
        last_fetched_epoch: partition.last_fetched_epoch,
        log_start_offset: partition.log_start_offset,
        max_bytes: partition.partition_max_bytes,
    };
    FetchRequest {
        replica_id: if version >= 15 {
            request.replica_state.replica_id.0
        } else {
            request.replica_id.0
        },
        max_wait_ms: request.max_wait_ms,
        min_bytes: request.min_bytes,
        max_bytes: request.max_bytes,
        isolation: match request.isolation_level {
            0 => IsolationLevel::ReadUncommitted,
            1 => IsolationLevel::ReadCommitted,
            other => panic!("generated isolation level {other}"),
        },
        session_id: request.session_id,
        session_epoch: request.session_epoch,
        topics: request
            .topics
            .iter()
            .map(|topic| FetchTopic {
                topic: name(&topic.topic, topic.topic_id),
                partitions: topic.partitions.iter().map(partition).collect(),
            })
            .collect(),
        forgotten: request
            .forgotten_topics_data
            .iter()
            .map(|topic| ForgottenTopic {
                topic: name(&topic.topic, topic.topic_id),
                partitions: topic.partitions.clone(),
            })
            .collect(),
        rack: request.rack_id.clone(),
    }
}

#[test]
fn requests_decode_as_kafka_protocol_decodes_them() {
    let schema = schema::of(ApiKey::Fetch).expect("known");
    for version in 4..=18 {
        for seed in 0..300 {
            let body = support::body(schema, version, &mut Rng::new(seed));
            let request = theirs_request::FetchRequest::decode(&mut body.clone().freeze(), version)
                .expect("generated");
            assert_eq!(
                decode(&body, version),
                converted(&request, version),
                "version {version} seed {seed}"
            );
            let mut encoded = BytesMut::new();
            request.encode(&mut encoded, version).expect("decoded");
            assert_eq!(
                decode(&encoded, version),
                converted(&request, version),
                "version {version} seed {seed}"
            );
        }
    }
}

#[test]
fn damaged_requests_are_refused_exactly_when_the_schema_refuses_them() {
    let schema = schema::of(ApiKey::Fetch).expect("known");
    for version in 4..=18 {
        for seed in 0..2000 {
            let mut rng = Rng::new(seed);
            let mut body = support::body(schema, version, &mut rng);
            support::damage(&mut body, &mut rng);
            let checked = check_body(schema, version, &body, &DecodeLimits::default());
            let decoded = FetchRequest::decode(body, version, &DecodeLimits::default());
            let agree = match (&checked, &decoded) {
                (Ok(_), Ok(_)) | (Err(_), Err(_)) => true,
                // The check looks neither into strings nor at the isolation level.
                (Ok(_), Err(Malformed::NotUtf8 { .. } | Malformed::BadValue { .. })) => true,
                (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
            };
            assert!(
                agree,
                "version {version} seed {seed}: {checked:?} {decoded:?}"
            );
        }
    }
}

fn records(rng: &mut Rng) -> Vec<Bytes> {
    (0..rng.below(3))
        .map(|_| {
            let length = [0, 10, 300, 511, 512, 2000][rng.below(6)];
            Bytes::from(vec![rng.bytes::<1>()[0]; length])
        })
        .collect()
}

fn response(rng: &mut Rng, by_id: bool) -> FetchResponse {
    let partition = |rng: &mut Rng| FetchPartitionResponse {
        index: rng.i32(),
        error_code: rng.i16(),
        high_watermark: rng.i64(),
        last_stable_offset: rng.i64(),
        log_start_offset: rng.i64(),
        diverging_epoch: rng.one_in(3).then(|| DivergingEpoch {
            epoch: rng.i32(),
            end_offset: 12,
        }),
        current_leader: rng.one_in(3).then(|| CurrentLeader {
            leader_id: rng.i32(),
            leader_epoch: 4,
        }),
        aborted_transactions: rng.one_in(2).then(|| {
            (0..rng.below(3))
                .map(|_| AbortedTransaction {
                    producer_id: rng.i64(),
                    first_offset: rng.i64(),
                })
                .collect()
        }),
        preferred_read_replica: rng.i32(),
        records: records(rng),
    };
    FetchResponse {
        throttle_ms: rng.i32(),
        error_code: rng.i16(),
        session_id: rng.i32(),
        topics: (0..rng.below(4))
            .map(|_| FetchTopicResponse {
                topic: if by_id {
                    TopicRef::Id(Uuid::from_bytes(rng.bytes()))
                } else {
                    TopicRef::Name(rng.str_bytes())
                },
                partitions: (0..rng.below(4)).map(|_| partition(rng)).collect(),
            })
            .collect(),
        node_endpoints: (0..rng.below(3))
            .map(|_| NodeEndpoint {
                node_id: rng.i32(),
                host: rng.str_bytes(),
                port: rng.i32(),
                rack: rng.one_in(2).then(|| rng.str_bytes()),
            })
            .collect(),
    }
}

fn theirs_partition(ours: &FetchPartitionResponse, version: i16) -> theirs::PartitionData {
    let mut partition = theirs::PartitionData::default()
        .with_partition_index(ours.index)
        .with_error_code(ours.error_code)
        .with_high_watermark(ours.high_watermark)
        .with_last_stable_offset(ours.last_stable_offset)
        .with_records(Some(ours.records.concat().into()))
        .with_aborted_transactions(ours.aborted_transactions.as_ref().map(|transactions| {
            transactions
                .iter()
                .map(|transaction| {
                    theirs::AbortedTransaction::default()
                        .with_producer_id(ProducerId(transaction.producer_id))
                        .with_first_offset(transaction.first_offset)
                })
                .collect()
        }));
    if version >= 5 {
        partition.log_start_offset = ours.log_start_offset;
    }
    if version >= 11 {
        partition.preferred_read_replica = BrokerId(ours.preferred_read_replica);
    }
    if version >= 12 {
        if let Some(diverging) = ours.diverging_epoch {
            partition.diverging_epoch = theirs::EpochEndOffset::default()
                .with_epoch(diverging.epoch)
                .with_end_offset(diverging.end_offset);
        }
        if let Some(leader) = ours.current_leader {
            partition.current_leader = theirs::LeaderIdAndEpoch::default()
                .with_leader_id(BrokerId(leader.leader_id))
                .with_leader_epoch(leader.leader_epoch);
        }
    }
    partition
}

/// Our response in their types, with what `version` has.
fn theirs_of(response: &FetchResponse, version: i16) -> theirs::FetchResponse {
    let topic = |ours: &FetchTopicResponse| {
        let partitions = ours.partitions.iter();
        let topic = theirs::FetchableTopicResponse::default().with_partitions(
            partitions
                .map(|ours| theirs_partition(ours, version))
                .collect(),
        );
        match &ours.topic {
            TopicRef::Id(id) => topic.with_topic_id(*id),
            TopicRef::Name(name) => topic.with_topic(TopicName(name.clone())),
        }
    };
    let mut converted = theirs::FetchResponse::default()
        .with_throttle_time_ms(response.throttle_ms)
        .with_responses(response.topics.iter().map(topic).collect());
    if version >= 7 {
        converted.error_code = response.error_code;
        converted.session_id = response.session_id;
    }
    if version >= 16 {
        converted.node_endpoints = response
            .node_endpoints
            .iter()
            .map(|ours| {
                theirs::NodeEndpoint::default()
                    .with_node_id(BrokerId(ours.node_id))
                    .with_host(ours.host.clone())
                    .with_port(ours.port)
                    .with_rack(ours.rack.clone())
            })
            .collect();
    }
    converted
}

#[test]
fn responses_are_byte_for_byte_those_of_kafka_protocol() {
    for version in 4..=18 {
        for seed in 0..300 {
            let response = response(&mut Rng::new(seed), version >= 13);
            let segments = response.encode(version, 77).expect("short");
            assert!(segments.iter().all(|segment| !segment.is_empty()));
            let theirs = theirs_of(&response, version);
            let expected = encode_message(version, 77, &theirs).expect("valid");
            assert_eq!(segments.concat(), expected, "version {version} seed {seed}");
            let mut body = expected.slice(if version >= 12 { 9.. } else { 8.. });
            let decoded = theirs::FetchResponse::decode(&mut body, version).expect("encoded");
            assert!(body.is_empty());
            assert_eq!(decoded, theirs, "version {version} seed {seed}");
        }
    }
}

#[test]
fn records_are_sent_as_the_slices_given() {
    let first = Bytes::from(vec![1; 700]);
    let second = Bytes::from(vec![2; 900]);
    let third = Bytes::from(vec![3; 600]);
    let mut partitions = vec![
        FetchPartitionResponse::error(0, 0),
        FetchPartitionResponse::error(1, 0),
    ];
    partitions[0].records = vec![first.clone(), second.clone()];
    partitions[1].records = vec![third.clone()];
    let response = FetchResponse {
        topics: vec![FetchTopicResponse {
            topic: TopicRef::Name(StrBytes::from_static_str("t")),
            partitions,
        }],
        ..FetchResponse::default()
    };
    let segments = response.encode(11, 1).expect("short");
    let pointers: Vec<_> = segments.iter().map(|segment| segment.as_ptr()).collect();
    for slice in [&first, &second, &third] {
        assert!(pointers.contains(&slice.as_ptr()));
    }
    // Fields, two slices that follow each other, fields, a slice; version 11 ends with the records.
    assert_eq!(segments.len(), 5);
}
