//! Shared by the tests: sample batches, and changing a field without leaving a wrong CRC behind.

mod codecs;
mod lookups;
mod produce;
mod properties;
mod stored;

use bytes::{Bytes, BytesMut};
use tidegate_types::{Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};

use crate::header::{ATTRIBUTES_AT, CRC_AT};
use crate::{
    BatchBuilder, Codec, HEADER_BYTES, ProduceError, ProduceRules, ProducedBatch, ProducerIdentity,
    StoredBatch, TimestampType, crc32c,
};

pub(crate) const NOW: TimestampMs = TimestampMs::new(1_700_000_000_000);
pub(crate) const LIMIT: usize = 1 << 20;

/// Three records at offsets 1000 to 1002 by producer 4242, epoch 7, from sequence 2^31-1 on, transactional,
/// leader epoch 3; written by an independent script after KIP-98.
pub(crate) const KNOWN_BATCH: &str = "00000000000003e80000009a0000000302e3402a210010000000020000018bcfe568000000018bcfe569f4000000000000109200077fffffff0000000314000000046b3104763100aa0100e80702018c01787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878780402680231026e010c000d04000100";

pub(crate) fn unhex(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

pub(crate) fn offset(value: i64) -> Offset {
    Offset::from_wire(value).unwrap()
}

pub(crate) fn producer(id: i64, epoch: i16, first_sequence: i32) -> ProducerIdentity {
    ProducerIdentity {
        id: ProducerId::from_wire(id).unwrap(),
        epoch: ProducerEpoch::from_wire(epoch).unwrap(),
        first_sequence: Sequence::from_wire(first_sequence),
    }
}

/// `count` records with keys, at `NOW` and the milliseconds after it.
pub(crate) fn sample(codec: Codec, count: i64) -> BytesMut {
    let mut builder =
        BatchBuilder::new(Offset::ZERO, codec, TimestampType::CreateTime, None, false);
    for i in 0..count {
        builder.push(
            TimestampMs::new(NOW.get() + i),
            Some(b"key"),
            Some(b"value value value"),
            &[(b"h", None)],
        );
    }
    builder.finish().unwrap()
}

pub(crate) fn rules() -> ProduceRules {
    ProduceRules {
        max_batch_bytes: 1 << 20,
        timestamp_type: TimestampType::CreateTime,
        before_max_ms: i64::MAX,
        after_max_ms: 3_600_000,
        now: NOW,
        keys_required: false,
        zstd_allowed: true,
        max_uncompressed_bytes: LIMIT,
    }
}

/// Writes the CRC that the bytes ask for.
pub(crate) fn reseal(bytes: &mut [u8]) {
    let crc = crc32c(&bytes[ATTRIBUTES_AT..]);
    bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
}

/// Overwrites a field and reseals.
pub(crate) fn edited(mut bytes: BytesMut, at: usize, field: &[u8]) -> BytesMut {
    bytes[at..at + field.len()].copy_from_slice(field);
    reseal(&mut bytes);
    bytes
}

/// Puts other records behind the header, with a right length and CRC.
pub(crate) fn with_body(header: &[u8], body: &[u8]) -> BytesMut {
    let mut bytes = BytesMut::from(&header[..HEADER_BYTES]);
    bytes.extend_from_slice(body);
    let length = i32::try_from(bytes.len() - 12).unwrap();
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    reseal(&mut bytes);
    bytes
}

pub(crate) fn refused(bytes: BytesMut, rules: &ProduceRules) -> ProduceError {
    ProducedBatch::validate(bytes, rules).expect_err("the batch should be refused")
}

pub(crate) fn stored(bytes: BytesMut) -> StoredBatch {
    StoredBatch::check(Bytes::from(bytes)).unwrap()
}
