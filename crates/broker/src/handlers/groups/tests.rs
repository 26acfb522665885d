//! Every answer can be encoded in every version that is served.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{
    DescribeGroupsResponse, FindCoordinatorResponse, GroupId as WireGroupId, JoinGroupResponse,
    LeaveGroupResponse, OffsetFetchResponse, SyncGroupResponse, TopicName as WireTopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, Message};
use tidegate_coordinator::{
    CommittedOffset, DescribedGroup, DescribedMember, FetchedOffset, Generation, GroupError,
    GroupState, InstanceId, JoinRefused, Joined, JoinedMember, LeftMember, MemberId,
    OffsetAndMetadata, Synced, TopicPartition,
};
use tidegate_types::{LeaderEpoch, PartitionIndex, TimestampMs, TopicName};

use super::{admin, find, membership, offset_fetch};
use crate::error_code::ErrorCode;
use crate::handlers::text;

/// What a client of this version gets.
fn sent<R: Encodable + Decodable>(answer: &R, version: i16) -> R {
    let mut bytes = BytesMut::new();
    if let Err(error) = answer.encode(&mut bytes, version) {
        panic!("version {version} can't be encoded: {error}");
    }
    R::decode(&mut bytes.freeze(), version).unwrap()
}

fn versions<R: Message>(first: i16, last: i16) -> impl Iterator<Item = i16> {
    assert!(R::VERSIONS.min <= first && R::VERSIONS.max >= last);
    first..=last
}

fn member() -> MemberId {
    MemberId::from_wire("m").unwrap()
}

fn instance() -> Option<InstanceId> {
    Some(InstanceId::new("i").unwrap())
}

#[test]
fn a_join_is_answered_in_every_version() {
    let joined = Joined {
        generation: Generation::from_wire(3).unwrap(),
        protocol_type: Some("consumer".to_owned()),
        protocol_name: Some("range".to_owned()),
        leader: Some(member()),
        member_id: member(),
        skip_assignment: false,
        members: vec![JoinedMember {
            member_id: member(),
            instance_id: instance(),
            metadata: Bytes::from_static(b"x"),
        }],
    };
    for version in versions::<JoinGroupResponse>(0, 9) {
        let skip_assignment = version >= 9;
        let joined = Joined {
            skip_assignment,
            ..joined.clone()
        };
        let answer = sent(&membership::joined_answer(joined, version), version);
        assert_eq!(answer.generation_id, 3);
        assert_eq!(answer.protocol_name.as_deref(), Some("range"));
        assert_eq!(answer.leader.as_str(), "m");
        assert_eq!(answer.skip_assignment, skip_assignment);
        assert_eq!(answer.members[0].metadata, Bytes::from_static(b"x"));
        let static_id = answer.members[0].group_instance_id.as_deref();
        assert_eq!(static_id, (version >= 5).then_some("i"));
    }
}

#[test]
fn a_refused_join_is_answered_in_every_version() {
    for version in versions::<JoinGroupResponse>(0, 9) {
        let refused = JoinRefused {
            error: GroupError::MemberIdRequired,
            member_id: Some(member()),
        };
        let answer = membership::refused_answer(refused, text("sent"), version);
        let answer = sent(&answer, version);
        assert_eq!(answer.error_code, ErrorCode::MemberIdRequired.code());
        assert_eq!(answer.member_id.as_str(), "m");
        assert_eq!(answer.generation_id, -1);
        let refused = JoinRefused {
            error: GroupError::NotCoordinator,
            member_id: None,
        };
        let answer = membership::refused_answer(refused, text("sent"), version);
        assert_eq!(sent(&answer, version).member_id.as_str(), "sent");
    }
}

#[test]
fn a_sync_is_answered_in_every_version() {
    for version in versions::<SyncGroupResponse>(0, 5) {
        let synced = Synced {
            protocol_type: Some("consumer".to_owned()),
            protocol_name: Some("range".to_owned()),
            assignment: Bytes::from_static(b"a"),
        };
        let answer = sent(&membership::synced_answer(synced, version), version);
        assert_eq!(answer.assignment, Bytes::from_static(b"a"));
        assert_eq!(
            answer.protocol_name.as_deref(),
            (version >= 5).then_some("range")
        );
    }
}

#[test]
fn the_one_member_that_leaves_below_version_3_has_its_error_at_the_top() {
    for version in versions::<LeaveGroupResponse>(0, 5) {
        let left = vec![LeftMember {
            member_id: Some(member()),
            instance_id: instance().filter(|_| version >= 3),
            result: Err(GroupError::UnknownMemberId),
        }];
        let answer = sent(&membership::left_answer(left, version), version);
        let unknown = ErrorCode::UnknownMemberId.code();
        if version < 3 {
            assert_eq!(answer.error_code, unknown);
        } else {
            assert_eq!(answer.error_code, 0);
            assert_eq!(answer.members[0].error_code, unknown);
            assert_eq!(answer.members[0].group_instance_id.as_deref(), Some("i"));
        }
    }
}

#[test]
fn a_group_is_described_in_every_version() {
    let described = DescribedGroup {
        state: GroupState::Stable,
        generation: Generation::ZERO,
        protocol_type: "consumer".to_owned(),
        protocol_name: "range".to_owned(),
        members: vec![DescribedMember {
            member_id: member(),
            instance_id: instance(),
            client_id: "c".to_owned(),
            client_host: "/127.0.0.1".to_owned(),
            metadata: Bytes::new(),
            assignment: Bytes::from_static(b"a"),
        }],
    };
    for version in versions::<DescribeGroupsResponse>(0, 6) {
        let group = admin::described_answer(described.clone(), version);
        let answer = DescribeGroupsResponse::default().with_groups(vec![group]);
        let answer = sent(&answer, version);
        assert_eq!(answer.groups[0].group_state.as_str(), "Stable");
        assert_eq!(
            answer.groups[0].members[0].client_host.as_str(),
            "/127.0.0.1"
        );
    }
}

#[test]
fn a_group_that_does_not_exist_is_dead_below_version_6_and_an_error_from_then_on() {
    for version in versions::<DescribeGroupsResponse>(0, 6) {
        let group = admin::not_described(&GroupError::GroupIdNotFound, "g", version);
        let answer = DescribeGroupsResponse::default().with_groups(vec![group]);
        let answer = sent(&answer, version);
        let expected = if version < 6 {
            ErrorCode::None
        } else {
            ErrorCode::GroupIdNotFound
        };
        assert_eq!(answer.groups[0].error_code, expected.code());
        assert_eq!(answer.groups[0].group_state.as_str(), "Dead");
    }
}

#[test]
fn offsets_are_given_in_every_version() {
    let fetched = || FetchedOffset {
        target: TopicPartition {
            topic: TopicName::new("t").unwrap(),
            partition: PartitionIndex::new(4).unwrap(),
        },
        topic_id: None,
        committed: Ok(Some(OffsetAndMetadata {
            offset: CommittedOffset::from_wire(7),
            leader_epoch: LeaderEpoch::from_wire(2),
            metadata: "note".into(),
            committed_at: TimestampMs::new(0),
            expires_at: None,
            topic_id: None,
        })),
    };
    for version in versions::<OffsetFetchResponse>(1, 9) {
        let topics = vec![(
            WireTopicName(text("t")),
            vec![offset_fetch::Place::of(fetched())],
        )];
        let epoch = if version >= 5 { 2 } else { -1 };
        if version < 8 {
            let answer = sent(
                &offset_fetch::single_answer(Ok(topics), Vec::new(), version),
                version,
            );
            let place = &answer.topics[0].partitions[0];
            assert_eq!((place.partition_index, place.committed_offset), (4, 7));
            assert_eq!(place.committed_leader_epoch, epoch);
            assert_eq!(place.metadata.as_deref(), Some("note"));
        } else {
            let group = offset_fetch::batched_answer(WireGroupId(text("g")), Ok(topics));
            let answer = OffsetFetchResponse::default().with_groups(vec![group]);
            let answer = sent(&answer, version);
            let place = &answer.groups[0].topics[0].partitions[0];
            assert_eq!((place.partition_index, place.committed_offset), (4, 7));
            assert_eq!(place.committed_leader_epoch, epoch);
        }
    }
}

#[test]
fn a_group_level_error_of_an_offset_fetch_is_never_an_empty_success() {
    let loading = || Err(GroupError::CoordinatorLoadInProgress);
    let code = ErrorCode::CoordinatorLoadInProgress.code();
    for version in versions::<OffsetFetchResponse>(1, 7) {
        let asked = vec![(WireTopicName(text("t")), vec![0])];
        let answer = sent(
            &offset_fetch::single_answer(loading(), asked, version),
            version,
        );
        if version < 2 {
            let place = &answer.topics[0].partitions[0];
            assert_eq!((place.error_code, place.committed_offset), (code, -1));
        } else {
            assert_eq!(answer.error_code, code);
        }
    }
    for version in versions::<OffsetFetchResponse>(8, 9) {
        let group = offset_fetch::batched_answer(WireGroupId(text("g")), loading());
        let answer = OffsetFetchResponse::default().with_groups(vec![group]);
        assert_eq!(sent(&answer, version).groups[0].error_code, code);
    }
}

#[test]
fn a_coordinator_that_is_not_available_is_answered_in_every_version() {
    let code = ErrorCode::CoordinatorNotAvailable;
    for version in versions::<FindCoordinatorResponse>(0, 3) {
        let answer = sent(&find::single_answer(Err(code)), version);
        assert_eq!((answer.error_code, answer.node_id.0), (code.code(), -1));
    }
    for version in versions::<FindCoordinatorResponse>(4, 6) {
        let answer = FindCoordinatorResponse::default()
            .with_coordinators(vec![find::batched_answer(text("g"), Err(code))]);
        let answer = sent(&answer, version);
        assert_eq!(answer.coordinators[0].error_code, code.code());
        assert_eq!(answer.coordinators[0].key.as_str(), "g");
    }
}
