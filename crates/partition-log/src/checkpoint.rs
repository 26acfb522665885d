//! A partition's derived state as of an offset, as it rides in objects.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | magic `TGCP` |
//! | 4..6 | version, little endian, 1 |
//! | 6..8 | zero |
//! | 8..12 | CRC32C of the payload, little endian |
//! | 12.. | payload: the protobuf message [`Payload`] |
//!
//! Opening a partition reads the newest checkpoint and replays only the batch headers behind it. A reader of
//! version 1 ignores fields it doesn't know, so fields may be added without a new version.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use tidegate_types::{Offset, OffsetRange, ProducerEpoch, ProducerId, Sequence, TimestampMs};

use crate::producers::{AbortedTransaction, ProducerEntry, Producers, RememberedBatch};

const MAGIC: [u8; 4] = *b"TGCP";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 12;

/// Why stored bytes are no checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("the checkpoint has {0} bytes, fewer than its header")]
    Short(usize),
    #[error("the checkpoint begins with {0:02x?} instead of its magic")]
    Magic([u8; 4]),
    #[error("the checkpoint has version {0}; this broker reads up to {VERSION}")]
    Version(u16),
    #[error("the checkpoint's CRC32C is {found:08x} where {stored:08x} is stored")]
    Checksum { found: u32, stored: u32 },
    #[error("the checkpoint's payload can't be decoded")]
    Payload(#[from] prost::DecodeError),
    #[error("the checkpoint holds an impossible value in {0}")]
    Value(&'static str),
}

#[derive(Clone, PartialEq, prost::Message)]
struct Payload {
    /// The state covers every record below this offset.
    #[prost(int64, tag = "1")]
    as_of: i64,
    #[prost(message, repeated, tag = "2")]
    producers: Vec<Producer>,
    #[prost(message, repeated, tag = "3")]
    aborted: Vec<Aborted>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Producer {
    #[prost(int64, tag = "1")]
    id: i64,
    #[prost(int32, tag = "2")]
    epoch: i32,
    #[prost(int64, tag = "3")]
    last_seen_ms: i64,
    #[prost(int64, optional, tag = "4")]
    transaction_start: Option<i64>,
    #[prost(int32, tag = "5")]
    coordinator_epoch: i32,
    #[prost(message, repeated, tag = "6")]
    batches: Vec<Batch>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Batch {
    #[prost(int32, tag = "1")]
    first_sequence: i32,
    #[prost(int32, tag = "2")]
    last_sequence: i32,
    #[prost(int64, tag = "3")]
    start: i64,
    #[prost(int64, tag = "4")]
    end: i64,
    #[prost(int64, tag = "5")]
    timestamp_ms: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Aborted {
    #[prost(int64, tag = "1")]
    producer: i64,
    #[prost(int64, tag = "2")]
    start: i64,
    #[prost(int64, tag = "3")]
    marker: i64,
    #[prost(int64, tag = "4")]
    stable_after: i64,
}

/// Encodes the state as of `as_of`.
pub(crate) fn encode(as_of: Offset, producers: &Producers) -> Bytes {
    let payload = Payload {
        as_of: as_of.to_wire(),
        producers: producers
            .entries
            .iter()
            .map(|(id, entry)| producer_to_wire(*id, entry))
            .collect(),
        aborted: producers
            .aborted
            .values()
            .map(|a| Aborted {
                producer: a.producer.to_wire(),
                start: a.start.to_wire(),
                marker: a.marker.to_wire(),
                stable_after: a.stable_after.to_wire(),
            })
            .collect(),
    }
    .encode_to_vec();
    let mut out = BytesMut::with_capacity(HEADER_BYTES + payload.len());
    out.put_slice(&MAGIC);
    out.put_u16_le(VERSION);
    out.put_u16_le(0);
    out.put_u32_le(tidegate_record_batch::crc32c(&payload));
    out.put_slice(&payload);
    out.freeze()
}

/// Decodes stored bytes to the offset they cover and the state.
pub(crate) fn decode(bytes: &[u8]) -> Result<(Offset, Producers), CheckpointError> {
    let (header, payload) = bytes
        .split_at_checked(HEADER_BYTES)
        .ok_or(CheckpointError::Short(bytes.len()))?;
    let field = |at: usize| {
        <[u8; 4]>::try_from(&header[at..at + 4]).expect("four bytes of a 12-byte header")
    };
    if field(0) != MAGIC {
        return Err(CheckpointError::Magic(field(0)));
    }
    let version = u16::from_le_bytes([header[4], header[5]]);
    if version != VERSION {
        return Err(CheckpointError::Version(version));
    }
    let (stored, found) = (
        u32::from_le_bytes(field(8)),
        tidegate_record_batch::crc32c(payload),
    );
    if stored != found {
        return Err(CheckpointError::Checksum { found, stored });
    }
    let payload = Payload::decode(payload)?;
    let mut producers = Producers::default();
    for wire in payload.producers {
        let (id, entry) = producer_from_wire(wire)?;
        if let Some(start) = entry.transaction_start {
            producers.open.insert(start, id);
        }
        producers.entries.insert(id, entry);
    }
    for wire in payload.aborted {
        let aborted = AbortedTransaction {
            producer: ProducerId::from_wire(wire.producer)
                .ok_or(CheckpointError::Value("aborted.producer"))?,
            start: offset(wire.start, "aborted.start")?,
            marker: offset(wire.marker, "aborted.marker")?,
            stable_after: offset(wire.stable_after, "aborted.stable_after")?,
        };
        producers.aborted.insert(aborted.marker, aborted);
    }
    Ok((offset(payload.as_of, "as_of")?, producers))
}

fn offset(wire: i64, field: &'static str) -> Result<Offset, CheckpointError> {
    Offset::from_wire(wire).ok_or(CheckpointError::Value(field))
}

fn producer_to_wire(id: ProducerId, entry: &ProducerEntry) -> Producer {
    Producer {
        id: id.to_wire(),
        epoch: i32::from(entry.epoch.to_wire()),
        last_seen_ms: entry.last_seen.get(),
        transaction_start: entry.transaction_start.map(Offset::to_wire),
        coordinator_epoch: entry.coordinator_epoch,
        batches: entry
            .batches
            .iter()
            .map(|b| Batch {
                first_sequence: b.first_sequence.to_wire(),
                last_sequence: b.last_sequence.to_wire(),
                start: b.range.start().to_wire(),
                end: b.range.end().to_wire(),
                timestamp_ms: b.timestamp.get(),
            })
            .collect(),
    }
}

fn producer_from_wire(wire: Producer) -> Result<(ProducerId, ProducerEntry), CheckpointError> {
    let id = ProducerId::from_wire(wire.id).ok_or(CheckpointError::Value("producer.id"))?;
    let epoch = i16::try_from(wire.epoch)
        .ok()
        .and_then(ProducerEpoch::from_wire)
        .ok_or(CheckpointError::Value("producer.epoch"))?;
    let transaction_start = wire
        .transaction_start
        .map(|o| offset(o, "producer.transaction_start"))
        .transpose()?;
    let batches = wire
        .batches
        .into_iter()
        .map(|b| {
            let sequence =
                |s| Sequence::from_wire(s).ok_or(CheckpointError::Value("batch.sequence"));
            let range =
                OffsetRange::new(offset(b.start, "batch.start")?, offset(b.end, "batch.end")?)
                    .ok_or(CheckpointError::Value("batch.range"))?;
            Ok(RememberedBatch {
                first_sequence: sequence(b.first_sequence)?,
                last_sequence: sequence(b.last_sequence)?,
                range,
                timestamp: TimestampMs::new(b.timestamp_ms),
            })
        })
        .collect::<Result<_, CheckpointError>>()?;
    let entry = ProducerEntry {
        epoch,
        batches,
        last_seen: TimestampMs::new(wire.last_seen_ms),
        transaction_start,
        coordinator_epoch: wire.coordinator_epoch,
    };
    Ok((id, entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Producers {
        let mut producers = Producers::default();
        let id = ProducerId::from_wire(9).unwrap();
        let range = OffsetRange::new(Offset::ZERO, Offset::new(3).unwrap()).unwrap();
        let batch = RememberedBatch {
            first_sequence: Sequence::ZERO,
            last_sequence: Sequence::from_wire(2).unwrap(),
            range,
            timestamp: TimestampMs::new(5),
        };
        producers.entries.insert(
            id,
            ProducerEntry {
                epoch: ProducerEpoch::from_wire(4).unwrap(),
                batches: [batch].into(),
                last_seen: TimestampMs::new(77),
                transaction_start: Some(Offset::ZERO),
                coordinator_epoch: 2,
            },
        );
        producers.open.insert(Offset::ZERO, id);
        let marker = Offset::new(9).unwrap();
        producers.aborted.insert(
            marker,
            AbortedTransaction {
                producer: id,
                start: Offset::ZERO,
                marker,
                stable_after: Offset::ZERO,
            },
        );
        producers
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        let state = sample();
        let as_of = Offset::new(10).unwrap();
        assert_eq!(decode(&encode(as_of, &state)).unwrap(), (as_of, state));
    }

    #[test]
    fn any_flipped_byte_is_noticed() {
        let bytes = encode(Offset::new(10).unwrap(), &sample());
        for at in (0..6).chain(8..bytes.len()) {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 1;
            assert!(decode(&damaged).is_err(), "byte {at}");
        }
        assert!(decode(&bytes[..7]).is_err());
    }
}
