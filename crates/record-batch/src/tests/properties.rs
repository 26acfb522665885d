use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tidegate_types::LeaderEpoch;

use super::*;
use crate::header::ATTRIBUTES_AT;
use crate::{
    BatchHeader, Batches, ControlMarker, Record, decompress, first_at_or_after,
    max_timestamp_record, records,
};

#[derive(Debug, Clone)]
struct Input {
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

fn input() -> impl Strategy<Value = Input> {
    let bytes = || vec(any::<u8>(), 0..80);
    let timestamp = prop_oneof![Just(-1i64), 0..4_000_000_000_000i64];
    (
        timestamp,
        option::of(bytes()),
        option::of(bytes()),
        vec((bytes(), option::of(bytes())), 0..3),
    )
        .prop_map(|(timestamp, key, value, headers)| Input {
            timestamp,
            key,
            value,
            headers,
        })
}

fn codec() -> impl Strategy<Value = Codec> {
    proptest::sample::select(&Codec::ALL[..])
}

fn build(codec: Codec, inputs: &[Input]) -> BytesMut {
    let identity = producer(5, 1, 2_147_483_600);
    let mut builder = BatchBuilder::new(
        offset(0),
        codec,
        TimestampType::CreateTime,
        Some(identity),
        true,
    );
    for input in inputs {
        let headers: Vec<_> = input
            .headers
            .iter()
            .map(|(k, v)| (&k[..], v.as_deref()))
            .collect();
        builder.push(
            TimestampMs::new(input.timestamp),
            input.key.as_deref(),
            input.value.as_deref(),
            &headers,
        );
    }
    builder.finish().unwrap()
}

fn expected(inputs: &[Input], base: i64) -> Vec<Record> {
    let owned = |part: &Option<Vec<u8>>| part.clone().map(Bytes::from);
    (base..)
        .zip(inputs)
        .map(|(at, input)| Record {
            offset: offset(at),
            timestamp: TimestampMs::new(input.timestamp),
            key: owned(&input.key),
            value: owned(&input.value),
            headers: input
                .headers
                .iter()
                .map(|(k, v)| (Bytes::from(k.clone()), owned(v)))
                .collect(),
        })
        .collect()
}

/// Calls everything that reads; the answers don't matter, only that there are some.
fn read_everything(bytes: &[u8]) {
    let open = ProduceRules {
        after_max_ms: i64::MAX,
        keys_required: true,
        ..rules()
    };
    for rules in [
        open,
        ProduceRules {
            keys_required: false,
            ..open
        },
    ] {
        if let Ok(batch) = ProducedBatch::validate(bytes.into(), &rules) {
            let placed = batch.place(offset(1), LeaderEpoch::FIRST);
            assert!(StoredBatch::check(placed.into_bytes()).is_ok());
        }
    }
    let _ = ProducedBatch::from_broker(bytes.into());
    let _ = BatchHeader::parse(bytes);
    for batch in Batches::headers_only(Bytes::copy_from_slice(bytes)).flatten() {
        if let Ok(found) = records(&batch, LIMIT) {
            for record in found {
                assert!(
                    record.offset >= batch.header().base_offset()
                        && record.offset < batch.header().end_offset()
                );
            }
        }
        let _ = first_at_or_after(&batch, NOW, Offset::ZERO, LIMIT);
        let _ = max_timestamp_record(&batch, LIMIT);
        let _ = ControlMarker::decode(&batch);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_built_is_accepted_placed_and_read_back(codec in codec(), inputs in vec(input(), 1..20), base in 0..1i64 << 60) {
        let open = ProduceRules { after_max_ms: i64::MAX, ..rules() };
        let batch = ProducedBatch::validate(build(codec, &inputs), &open).unwrap();
        let placed = batch.place(offset(base), LeaderEpoch::FIRST);
        let again = StoredBatch::check(placed.bytes().clone()).unwrap();
        let greatest = inputs.iter().map(|i| i.timestamp).max().unwrap();
        prop_assert_eq!(again.header().max_timestamp().get(), greatest);
        prop_assert_eq!(again.header().producer(), Some(producer(5, 1, 2_147_483_600)));
        let found: Vec<_> = records(&again, LIMIT).unwrap().collect();
        prop_assert_eq!(found, expected(&inputs, base));
    }

    #[test]
    fn changing_any_byte_under_the_crc_is_detected(codec in codec(), inputs in vec(input(), 1..4), at: prop::sample::Index, flip in 1u8..) {
        let mut bytes = build(codec, &inputs);
        let at = ATTRIBUTES_AT + at.index(bytes.len() - ATTRIBUTES_AT);
        bytes[at] ^= flip;
        prop_assert!(StoredBatch::check(bytes.clone().freeze()).is_err());
        prop_assert!(ProducedBatch::validate(bytes, &rules()).is_err());
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..300)) {
        read_everything(&bytes);
        for codec in Codec::ALL {
            let _ = decompress(codec, &bytes, LIMIT);
        }
    }

    #[test]
    fn damage_behind_a_right_checksum_never_panics(
        codec in codec(),
        inputs in vec(input(), 1..6),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        cut in option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = build(codec, &inputs);
        if let Some(cut) = cut {
            let length = HEADER_BYTES + cut.index(bytes.len() - HEADER_BYTES);
            bytes = with_body(&bytes, &bytes[HEADER_BYTES..length]);
        }
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        reseal(&mut bytes);
        read_everything(&bytes);
    }

    #[test]
    fn damaged_records_under_a_valid_stream_never_panic(
        codec in codec(),
        inputs in vec(input(), 1..6),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut body = build(Codec::None, &inputs).split_off(HEADER_BYTES);
        for (at, value) in damage {
            let at = at.index(body.len());
            body[at] = value;
        }
        let compressed = crate::compress(codec, &body).unwrap();
        read_everything(&with_body(&build(codec, &inputs), &compressed));
    }
}
