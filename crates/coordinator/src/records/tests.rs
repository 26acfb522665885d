use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use tidegate_types::{LeaderEpoch, TimestampMs, TopicId};

use super::*;
use crate::{CommittedOffset, InstanceId, MemberId, OffsetAndMetadata};

fn offset(expires_at: Option<i64>, topic_id: Option<u128>) -> OffsetAndMetadata {
    OffsetAndMetadata {
        offset: CommittedOffset::from_wire(258),
        leader_epoch: LeaderEpoch::new(3),
        metadata: Arc::from("m"),
        committed_at: TimestampMs::new(5),
        expires_at: expires_at.map(TimestampMs::new),
        topic_id: topic_id.map(|id| TopicId::new(uuid::Uuid::from_u128(id)).unwrap()),
    }
}

#[test]
fn keys_have_kafkas_bytes() {
    let target = TopicPartition {
        topic: TopicName::new("t").unwrap(),
        partition: PartitionIndex::new(7).unwrap(),
    };
    let group = GroupId::new("g").unwrap();
    let key = RecordKey::Offset(group.clone(), target);
    assert_eq!(
        &encode_key(&key)[..],
        [0, 1, 0, 1, b'g', 0, 1, b't', 0, 0, 0, 7]
    );
    assert_eq!(decode_key(&encode_key(&key)), Ok(Some(key.clone())));
    // Version 0 of the key has the same fields.
    assert_eq!(
        decode_key(&[0, 0, 0, 1, b'g', 0, 1, b't', 0, 0, 0, 7]),
        Ok(Some(key))
    );
    let key = RecordKey::Group(group);
    assert_eq!(&encode_key(&key)[..], [0, 2, 0, 1, b'g']);
    assert_eq!(decode_key(&encode_key(&key)), Ok(Some(key)));
}

#[test]
fn offset_commits_have_kafkas_bytes() {
    let v3 = [
        &[0, 3][..],
        &258_i64.to_be_bytes(),
        &[0, 0, 0, 3],
        &[0, 1, b'm'],
        &5_i64.to_be_bytes(),
    ]
    .concat();
    assert_eq!(&encode_offset(&offset(None, None))[..], v3);
    let v1 = [
        &[0, 1][..],
        &258_i64.to_be_bytes(),
        &[0, 1, b'm'],
        &5_i64.to_be_bytes(),
        &9_i64.to_be_bytes(),
    ]
    .concat();
    assert_eq!(&encode_offset(&offset(Some(9), None))[..], v1);
    let v4 = [
        &[0, 4][..],
        &258_i64.to_be_bytes(),
        &[0, 0, 0, 3],
        &[2, b'm'],
        &5_i64.to_be_bytes(),
        &[1, 0, 16],
        &1_u128.to_be_bytes(),
    ]
    .concat();
    assert_eq!(&encode_offset(&offset(None, Some(1)))[..], v4);
}

#[test]
fn offset_commits_of_every_version_can_be_read() {
    let no_epoch = OffsetAndMetadata {
        leader_epoch: None,
        ..offset(None, None)
    };
    for version in [0, 2] {
        let bytes = [
            &[0, version][..],
            &258_i64.to_be_bytes(),
            &[0, 1, b'm'],
            &5_i64.to_be_bytes(),
        ]
        .concat();
        assert_eq!(
            decode_offset(&bytes),
            Ok(no_epoch.clone()),
            "version {version}"
        );
    }
    let expiring = OffsetAndMetadata {
        leader_epoch: None,
        ..offset(Some(9), None)
    };
    assert_eq!(
        decode_offset(&encode_offset(&offset(Some(9), None))),
        Ok(expiring)
    );
    for value in [offset(None, None), offset(None, Some(1))] {
        assert_eq!(decode_offset(&encode_offset(&value)), Ok(value));
    }
    // Version 1 from before KIP-211 with −1 for "no expiry of its own".
    let bytes = [
        &[0, 1][..],
        &258_i64.to_be_bytes(),
        &[0, 1, b'm'],
        &5_i64.to_be_bytes(),
        &(-1_i64).to_be_bytes(),
    ]
    .concat();
    assert_eq!(decode_offset(&bytes), Ok(no_epoch));
    // Version 4 with a tag from the future.
    let bytes = [
        &[0, 4][..],
        &258_i64.to_be_bytes(),
        &[0, 0, 0, 3],
        &[2, b'm'],
        &5_i64.to_be_bytes(),
        &[1, 9, 2, 1, 1],
    ]
    .concat();
    assert_eq!(decode_offset(&bytes), Ok(offset(None, None)));
}

fn metadata() -> GroupMetadata {
    GroupMetadata {
        protocol_type: "consumer".to_owned(),
        generation: 6,
        protocol: Some("range".to_owned()),
        leader: Some("m".to_owned()),
        state_since: Some(TimestampMs::new(5)),
        members: vec![MemberMetadata {
            member_id: MemberId::from_wire("m").unwrap(),
            instance_id: Some(InstanceId::new("i").unwrap()),
            client_id: "c".to_owned(),
            client_host: "/h".to_owned(),
            rebalance_timeout_ms: 2,
            session_timeout_ms: 1,
            subscription: Bytes::from_static(b"s"),
            assignment: Bytes::from_static(b"a"),
        }],
    }
}

/// The fields as version `version` has them, up to 3.
fn encode_as(version: u8) -> Vec<u8> {
    let mut out = vec![0, version];
    out.extend(b"\x00\x08consumer\x00\x00\x00\x06\x00\x05range\x00\x01m");
    if version >= 2 {
        out.extend(5_i64.to_be_bytes());
    }
    out.extend(b"\x00\x00\x00\x01\x00\x01m");
    if version >= 3 {
        out.extend(b"\x00\x01i");
    }
    out.extend(b"\x00\x01c\x00\x02/h");
    if version >= 1 {
        out.extend([0, 0, 0, 2]);
    }
    out.extend(b"\x00\x00\x00\x01\x00\x00\x00\x01s\x00\x00\x00\x01a");
    out
}

#[test]
fn group_metadata_has_kafkas_bytes() {
    assert_eq!(&metadata().encode()[..], encode_as(3));
}

#[test]
fn group_metadata_of_every_version_can_be_read() {
    for version in 0..=3 {
        let mut expected = metadata();
        let member = &mut expected.members[0];
        if version < 3 {
            member.instance_id = None;
        }
        if version < 1 {
            member.rebalance_timeout_ms = 1;
        }
        if version < 2 {
            expected.state_since = None;
        }
        assert_eq!(
            GroupMetadata::decode(&encode_as(version)),
            Ok(expected),
            "version {version}"
        );
    }
    let mut v4 = vec![0, 4];
    v4.extend(b"\x09consumer\x00\x00\x00\x06\x06range\x02m");
    v4.extend(5_i64.to_be_bytes());
    v4.extend(b"\x02\x02m\x02i\x02c\x03/h\x00\x00\x00\x02\x00\x00\x00\x01\x02s\x02a\x00\x00");
    assert_eq!(GroupMetadata::decode(&v4), Ok(metadata()));
}

#[test]
fn records_that_go_on_after_their_end_are_refused() {
    let mut bytes = metadata().encode().to_vec();
    bytes.push(0);
    assert_eq!(
        GroupMetadata::decode(&bytes),
        Err(RecordError::TrailingBytes {
            record: "group metadata value",
            bytes: 1
        })
    );
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoders_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), version in 0_u8..5) {
        let mut versioned = vec![0, version];
        versioned.extend(&bytes);
        for bytes in [&bytes, &versioned] {
            let _ = decode_key(bytes);
            let _ = decode_offset(bytes);
            let _ = GroupMetadata::decode(bytes);
        }
    }

    #[test]
    fn damaged_records_never_panic(at in 0_usize..100, flip in 1_u8..) {
        let mut bytes = metadata().encode().to_vec();
        let at = at % bytes.len();
        bytes[at] ^= flip;
        let _ = GroupMetadata::decode(&bytes);
    }
}
