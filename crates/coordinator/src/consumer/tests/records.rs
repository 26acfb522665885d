//! The records, byte by byte, and what damaged ones do.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::consumer::{ClassicDetails, Current, MemberState, Profile, ResolvedRegex};
use crate::records::{
    ConsumerKey, GroupRecord, RecordKey, decode_key, decode_target, decode_target_epoch,
    encode_key, encode_target, encode_target_epoch,
};

fn key(key: ConsumerKey) -> Vec<u8> {
    encode_key(&RecordKey::Consumer(group("g"), key)).to_vec()
}

#[test]
fn keys_are_kafkas() {
    let m = member("m");
    assert_eq!(key(ConsumerKey::Group), b"\0\x03\0\x01g");
    assert_eq!(key(ConsumerKey::PartitionMetadata), b"\0\x04\0\x01g");
    assert_eq!(key(ConsumerKey::Member(m.clone())), b"\0\x05\0\x01g\0\x01m");
    assert_eq!(key(ConsumerKey::TargetEpoch), b"\0\x06\0\x01g");
    assert_eq!(
        key(ConsumerKey::TargetOf(m.clone())),
        b"\0\x07\0\x01g\0\x01m"
    );
    assert_eq!(
        key(ConsumerKey::Current(m.clone())),
        b"\0\x08\0\x01g\0\x01m"
    );
    assert_eq!(
        key(ConsumerKey::Regex("t.*".into())),
        b"\0\x10\0\x01g\0\x03t.*"
    );
    for one in [
        ConsumerKey::Group,
        ConsumerKey::PartitionMetadata,
        ConsumerKey::Member(m.clone()),
        ConsumerKey::TargetEpoch,
        ConsumerKey::TargetOf(m.clone()),
        ConsumerKey::Current(m),
        ConsumerKey::Regex("t.*".into()),
    ] {
        let bytes = key(one.clone());
        assert_eq!(
            decode_key(&bytes),
            Ok(Some(RecordKey::Consumer(group("g"), one)))
        );
    }
}

#[test]
fn values_are_kafkas() {
    let plain = GroupRecord {
        epoch: 5,
        metadata_hash: 0,
    };
    assert_eq!(&plain.encode()[..], b"\0\0\0\0\0\x05\0");
    let hashed = GroupRecord {
        epoch: 5,
        metadata_hash: 9,
    };
    assert_eq!(
        &hashed.encode()[..],
        b"\0\0\0\0\0\x05\x01\0\x08\0\0\0\0\0\0\0\x09"
    );
    assert_eq!(&encode_target_epoch(7)[..], b"\0\0\0\0\0\x07\0");
    let mut target = b"\0\0\x02".to_vec();
    target.extend(topic_id("t").as_bytes());
    target.extend(b"\x03\0\0\0\0\0\0\0\x02\0\0");
    assert_eq!(&encode_target(&of("t", &[0, 2]))[..], &target[..]);
    let current = Current {
        state: MemberState::Unrevoked,
        epoch: MemberEpoch::from_wire(3),
        previous_epoch: MemberEpoch::from_wire(2),
        assigned: Assignment::default(),
        revoking: Assignment::default(),
    };
    assert_eq!(
        &current.encode()[..],
        b"\0\0\0\0\0\x03\0\0\0\x02\x01\x01\x01\0"
    );
    let regex = ResolvedRegex {
        topics: ["a".to_owned()].into(),
        version: 1,
        resolved_at_ms: 2,
    };
    assert_eq!(
        &regex.encode()[..],
        b"\0\0\x02\x02a\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0"
    );
    let profile = Profile {
        client_id: "c".to_owned(),
        client_host: "/h".to_owned(),
        topics: ["t".to_owned()].into(),
        rebalance_timeout_ms: 1,
        ..Profile::default()
    };
    assert_eq!(
        &profile.encode()[..],
        b"\0\0\0\0\x02c\x03/h\x02\x02t\0\0\0\0\x01\0\0"
    );
}

fn profile() -> Profile {
    Profile {
        instance_id: Some(InstanceId::new("i").unwrap()),
        rack_id: Some("r".to_owned()),
        client_id: "c".to_owned(),
        client_host: "/h".to_owned(),
        topics: ["t".to_owned(), "u".to_owned()].into(),
        regex: Some("x.*".to_owned()),
        rebalance_timeout_ms: 300_000,
        server_assignor: Some("range".to_owned()),
        classic: Some(ClassicDetails {
            session_timeout_ms: 45_000,
            protocols: vec![Protocol {
                name: "range".into(),
                metadata: Bytes::from_static(b"meta"),
            }],
        }),
    }
}

#[test]
fn what_is_written_is_read_back() {
    let profile = profile();
    assert_eq!(Profile::decode(&profile.encode()), Ok(profile));
    let target = of("t", &[0, 5]);
    assert_eq!(decode_target(&encode_target(&target)), Ok(target.clone()));
    assert_eq!(decode_target_epoch(&encode_target_epoch(4)), Ok(4));
    let current = Current {
        epoch: MemberEpoch::LEFT_FOR_A_WHILE,
        previous_epoch: MemberEpoch::from_wire(3),
        state: MemberState::Unreleased,
        assigned: target,
        revoking: of("u", &[1]),
    };
    assert_eq!(Current::decode(&current.encode()), Ok(current));
}

#[test]
fn fields_of_later_versions_are_read_over() {
    // A partition's epochs (KIP-1251) and a group's creation time (KIP-1282).
    let mut current = b"\0\0\0\0\0\x03\0\0\0\x02\0\x02".to_vec();
    current.extend(topic_id("t").as_bytes());
    current.extend(b"\x02\0\0\0\x04\x01\0\x05\x02\0\0\0\x03\x01\0");
    assert_eq!(
        Current::decode(&current).map(|c| c.assigned),
        Ok(of("t", &[4]))
    );
    let group = b"\0\0\0\0\0\x05\x01\x01\x08\0\0\0\0\0\0\0\x09";
    assert_eq!(
        GroupRecord::decode(group),
        Ok(GroupRecord {
            epoch: 5,
            metadata_hash: 0
        })
    );
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoders_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut versioned = vec![0, 0];
        versioned.extend(&bytes);
        for bytes in [&bytes, &versioned] {
            let _ = Profile::decode(bytes);
            let _ = Current::decode(bytes);
            let _ = GroupRecord::decode(bytes);
            let _ = ResolvedRegex::decode(bytes);
            let _ = decode_target(bytes);
            let _ = decode_target_epoch(bytes);
        }
    }

    #[test]
    fn damaged_profiles_never_panic(at in 0_usize..200, flip in 1_u8..) {
        let mut bytes = profile().encode().to_vec();
        let at = at % bytes.len();
        bytes[at] ^= flip;
        let _ = Profile::decode(&bytes);
    }
}
