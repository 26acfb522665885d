//! The value of an offset commit. The byte table is in the parent module.

use bytes::{BufMut, Bytes, BytesMut};
use tidegate_types::{LeaderEpoch, TimestampMs, TopicId};

use super::Reader;
use super::codec::{put_compact_string, put_string, put_unsigned_varint};
use crate::{CommittedOffset, OffsetAndMetadata, RecordError};

const TOPIC_ID_TAG: u32 = 0;

pub(crate) fn decode_offset(bytes: &[u8]) -> Result<OffsetAndMetadata, RecordError> {
    let mut reader = Reader::new("offset commit value", bytes);
    let version = reader.i16("version")?;
    if !(0..=4).contains(&version) {
        return Err(reader.unsupported(version));
    }
    let flexible = version >= 4;
    let offset = CommittedOffset::from_wire(reader.i64("offset")?);
    let leader_epoch = match version {
        3.. => LeaderEpoch::from_wire(reader.i32("leader epoch")?),
        _ => None,
    };
    let metadata = reader.string(flexible, "metadata")?.into();
    let committed_at = TimestampMs::new(reader.i64("commit timestamp")?);
    let expires_at = match version {
        1 => Some(reader.i64("expire timestamp")?)
            .filter(|at| *at != -1)
            .map(TimestampMs::new),
        _ => None,
    };
    let mut topic_id = None;
    reader.tags(flexible, |tag, field| {
        if tag == TOPIC_ID_TAG {
            let invalid = RecordError::Invalid {
                record: "offset commit value",
                field: "topic id",
            };
            let id: [u8; 16] = field.try_into().map_err(|_| invalid)?;
            topic_id = TopicId::from_bytes(id).ok();
        }
        Ok(())
    })?;
    reader.finish()?;
    Ok(OffsetAndMetadata {
        offset,
        leader_epoch,
        metadata,
        committed_at,
        expires_at,
        topic_id,
    })
}

pub(crate) fn encode_offset(value: &OffsetAndMetadata) -> Bytes {
    let mut out = BytesMut::with_capacity(64 + value.metadata.len());
    let leader_epoch = value.leader_epoch.map_or(-1, LeaderEpoch::to_wire);
    match (value.expires_at, value.topic_id) {
        (Some(expires_at), _) => {
            out.put_i16(1);
            out.put_i64(value.offset.to_wire());
            put_string(&mut out, &value.metadata);
            out.put_i64(value.committed_at.get());
            out.put_i64(expires_at.get());
        }
        (None, None) => {
            out.put_i16(3);
            out.put_i64(value.offset.to_wire());
            out.put_i32(leader_epoch);
            put_string(&mut out, &value.metadata);
            out.put_i64(value.committed_at.get());
        }
        (None, Some(topic_id)) => {
            out.put_i16(4);
            out.put_i64(value.offset.to_wire());
            out.put_i32(leader_epoch);
            put_compact_string(&mut out, &value.metadata);
            out.put_i64(value.committed_at.get());
            put_unsigned_varint(&mut out, 1);
            put_unsigned_varint(&mut out, TOPIC_ID_TAG);
            put_unsigned_varint(&mut out, 16);
            out.put_slice(topic_id.as_bytes());
        }
    }
    out.freeze()
}
