//! Our produce codec against that of `kafka-protocol`, for every version.

mod support;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::produce_request as theirs_request;
use kafka_protocol::messages::produce_response as theirs;
use kafka_protocol::messages::{BrokerId, TopicName};
use kafka_protocol::protocol::{Decodable, Encodable};
use support::Rng;
use tidegate_kafka_wire::bounds::{DecodeLimits, check_body};
use tidegate_kafka_wire::messages::ApiKey;
use tidegate_kafka_wire::produce::{
    ProducePartitionResponse, ProduceRequest, ProduceResponse, ProduceTopicResponse, RecordError,
};
use tidegate_kafka_wire::response::encode_message;
use tidegate_kafka_wire::{CurrentLeader, NodeEndpoint, TopicRef, schema};
use uuid::Uuid;

fn decode(body: &[u8], version: i16) -> ProduceRequest {
    ProduceRequest::decode(BytesMut::from(body), version, &DecodeLimits::default())
        .unwrap_or_else(|error| panic!("version {version}: {error}"))
}

/// Their request in our types.
fn converted(request: &theirs_request::ProduceRequest, version: i16) -> ProduceRequest {
    let topic =
        |topic: &theirs_request::TopicProduceData| tidegate_kafka_wire::produce::ProduceTopic {
            topic: if version >= 13 {
                TopicRef::Id(topic.topic_id)
            } else {
                TopicRef::Name(topic.name.0.clone())
            },
            partitions: topic
                .partition_data
                .iter()
                .map(|partition| tidegate_kafka_wire::produce::ProducePartition {
                    index: partition.index,
                    records: partition
                        .records
                        .as_ref()
                        .map(|records| BytesMut::from(&records[..])),
                })
                .collect(),
        };
    ProduceRequest {
        transactional_id: request.transactional_id.as_ref().map(|id| id.0.clone()),
        acks: request.acks,
        timeout_ms: request.timeout_ms,
        topics: request.topic_data.iter().map(topic).collect(),
    }
}

#[test]
fn requests_decode_as_kafka_protocol_decodes_them() {
    let schema = schema::of(ApiKey::Produce).expect("known");
    for version in 3..=13 {
        for seed in 0..300 {
            let body = support::body(schema, version, &mut Rng::new(seed));
            let request =
                theirs_request::ProduceRequest::decode(&mut body.clone().freeze(), version)
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
    let schema = schema::of(ApiKey::Produce).expect("known");
    for version in 3..=13 {
        for seed in 0..2000 {
            let mut rng = Rng::new(seed);
            let mut body = support::body(schema, version, &mut rng);
            support::damage(&mut body, &mut rng);
            let checked = check_body(schema, version, &body, &DecodeLimits::default());
            let decoded = ProduceRequest::decode(body, version, &DecodeLimits::default());
            let agree = match (&checked, &decoded) {
                (Ok(_), Ok(_)) | (Err(_), Err(_)) => true,
                // The check doesn't look into strings.
                (Ok(_), Err(tidegate_kafka_wire::Malformed::NotUtf8 { .. })) => true,
                (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
            };
            assert!(
                agree,
                "version {version} seed {seed}: {checked:?} {decoded:?}"
            );
        }
    }
}

#[test]
fn records_are_mutable_pieces_of_the_frame() {
    let partition = |index, records: &'static [u8]| {
        theirs_request::PartitionProduceData::default()
            .with_index(index)
            .with_records(Some(Bytes::from_static(records)))
    };
    let request = theirs_request::ProduceRequest::default().with_topic_data(vec![
        theirs_request::TopicProduceData::default()
            .with_name(TopicName("t".to_owned().into()))
            .with_partition_data(vec![partition(0, &[1; 100]), partition(1, &[2; 100])]),
    ]);
    let mut body = BytesMut::new();
    request.encode(&mut body, 9).expect("valid");
    let allocation = body.as_ptr_range();
    let mut request =
        ProduceRequest::decode(body, 9, &DecodeLimits::default()).expect("just encoded");
    for partition in &mut request.topics[0].partitions {
        let records = partition.records.as_mut().expect("given");
        assert!(allocation.contains(&records.as_ptr()));
        records[..8].fill(9);
    }
    let records: Vec<_> = request.topics[0]
        .partitions
        .iter()
        .map(|partition| partition.records.clone().expect("given"))
        .collect();
    assert_eq!(records[0][..9], [9, 9, 9, 9, 9, 9, 9, 9, 1]);
    assert_eq!(records[1][..9], [9, 9, 9, 9, 9, 9, 9, 9, 2]);
}

fn response(rng: &mut Rng, by_id: bool) -> ProduceResponse {
    let leader = |rng: &mut Rng| {
        rng.one_in(2).then(|| CurrentLeader {
            leader_id: rng.i32(),
            leader_epoch: 3,
        })
    };
    let partition = |rng: &mut Rng| ProducePartitionResponse {
        index: rng.i32(),
        error_code: rng.i16(),
        base_offset: rng.i64(),
        log_append_time_ms: rng.i64(),
        log_start_offset: rng.i64(),
        record_errors: (0..rng.below(3))
            .map(|_| RecordError {
                batch_index: rng.i32(),
                message: rng.one_in(2).then(|| rng.str_bytes()),
            })
            .collect(),
        error_message: rng.one_in(2).then(|| rng.str_bytes()),
        current_leader: leader(rng),
    };
    ProduceResponse {
        topics: (0..rng.below(4))
            .map(|_| ProduceTopicResponse {
                topic: if by_id {
                    TopicRef::Id(Uuid::from_bytes(rng.bytes()))
                } else {
                    TopicRef::Name(rng.str_bytes())
                },
                partitions: (0..rng.below(4)).map(|_| partition(rng)).collect(),
            })
            .collect(),
        throttle_ms: rng.i32(),
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

/// Our response in their types, with what `version` has.
fn theirs_of(response: &ProduceResponse, version: i16) -> theirs::ProduceResponse {
    let partition = |ours: &ProducePartitionResponse| {
        let mut partition = theirs::PartitionProduceResponse::default()
            .with_index(ours.index)
            .with_error_code(ours.error_code)
            .with_base_offset(ours.base_offset)
            .with_log_append_time_ms(ours.log_append_time_ms);
        if version >= 5 {
            partition.log_start_offset = ours.log_start_offset;
        }
        if version >= 8 {
            partition.record_errors = ours
                .record_errors
                .iter()
                .map(|error| {
                    theirs::BatchIndexAndErrorMessage::default()
                        .with_batch_index(error.batch_index)
                        .with_batch_index_error_message(error.message.clone())
                })
                .collect();
            partition.error_message = ours.error_message.clone();
        }
        if let Some(leader) = ours.current_leader
            && version >= 10
        {
            partition.current_leader = theirs::LeaderIdAndEpoch::default()
                .with_leader_id(BrokerId(leader.leader_id))
                .with_leader_epoch(leader.leader_epoch);
        }
        partition
    };
    let topic = |ours: &ProduceTopicResponse| {
        let topic = theirs::TopicProduceResponse::default()
            .with_partition_responses(ours.partitions.iter().map(partition).collect());
        match &ours.topic {
            TopicRef::Id(id) => topic.with_topic_id(*id),
            TopicRef::Name(name) => topic.with_name(TopicName(name.clone())),
        }
    };
    let mut converted = theirs::ProduceResponse::default()
        .with_responses(response.topics.iter().map(topic).collect())
        .with_throttle_time_ms(response.throttle_ms);
    if version >= 10 {
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
    for version in 3..=13 {
        for seed in 0..300 {
            let response = response(&mut Rng::new(seed), version >= 13);
            let ours = response.encode(version, 77).expect("short");
            let theirs = theirs_of(&response, version);
            let expected = encode_message(version, 77, &theirs).expect("valid");
            assert_eq!(ours, expected, "version {version} seed {seed}");
            let mut body = ours.slice(if version >= 9 { 9.. } else { 8.. });
            let decoded = theirs::ProduceResponse::decode(&mut body, version).expect("encoded");
            assert!(body.is_empty());
            assert_eq!(decoded, theirs, "version {version} seed {seed}");
        }
    }
}
