//! Apache Kafka's own records of `__consumer_offsets`, so that its tools can read them.
//!
//! A key starts with a 16-bit version that is also the record's type: 0 and 1 are offset commits, 2 is group
//! metadata; anything else belongs to groups this build doesn't know and is skipped.
//!
//! ```text
//! key 1    int16 1 · string group · string topic · int32 partition
//! key 2    int16 2 · string group
//! offset commit, value
//!   v0,v2  int16 v · int64 offset · string metadata · int64 commit time
//!   v1     int16 v · int64 offset · string metadata · int64 commit time · int64 expiry time
//!   v3     int16 v · int64 offset · int32 leader epoch · string metadata · int64 commit time
//!   v4     v3 in flexible form (compact string, tag section); tag 0: 16 bytes, topic id
//! group metadata, value
//!   v0..3  int16 v · string protocol type · int32 generation · string? protocol · string? leader
//!          · (v2+) int64 time of the current state · int32 n · n members
//!   member string member id · (v3+) string? instance id · string client id · string client host
//!          · (v1+) int32 rebalance timeout · int32 session timeout · bytes subscription · bytes assignment
//!   v4     v3 in flexible form
//! ```
//!
//! Readers accept every version. Writers emit, as Kafka does, v3 for groups, and for offsets v1 with an
//! explicit expiry time, v4 if the topic's id is known, v3 otherwise. No version has a magic or checksum of
//! its own: the record batch around it has (KIP-98), and the format isn't ours to change.

pub(crate) mod codec;
mod group_metadata;
mod offset_commit;

pub(crate) use codec::Reader;
pub(crate) use group_metadata::{GroupMetadata, MemberMetadata};
pub(crate) use offset_commit::{decode_offset, encode_offset};

use bytes::{BufMut, Bytes, BytesMut};
use tidegate_types::{PartitionIndex, TopicName};

use crate::{GroupId, RecordError, TopicPartition};

/// What a record is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecordKey {
    Offset(GroupId, TopicPartition),
    Group(GroupId),
}

/// Decodes a key; `Ok(None)` for a type of record that is not known here.
pub(crate) fn decode_key(bytes: &[u8]) -> Result<Option<RecordKey>, RecordError> {
    let mut reader = Reader::new("record key", bytes);
    let key = match reader.i16("version")? {
        0 | 1 => {
            let group = group_id(&mut reader)?;
            let topic = reader.string(false, "topic")?;
            let topic = TopicName::new(topic).map_err(|_| reader.invalid("topic"))?;
            let partition = reader.i32("partition")?;
            let partition =
                PartitionIndex::from_wire(partition).map_err(|_| reader.invalid("partition"))?;
            RecordKey::Offset(group, TopicPartition { topic, partition })
        }
        2 => RecordKey::Group(group_id(&mut reader)?),
        _ => return Ok(None),
    };
    reader.finish()?;
    Ok(Some(key))
}

fn group_id(reader: &mut Reader<'_>) -> Result<GroupId, RecordError> {
    let id = reader.string(false, "group")?;
    GroupId::new(id).map_err(|_| reader.invalid("group"))
}

pub(crate) fn encode_key(key: &RecordKey) -> Bytes {
    let mut out = BytesMut::new();
    match key {
        RecordKey::Offset(group, target) => {
            out.put_i16(1);
            codec::put_string(&mut out, group.as_str());
            codec::put_string(&mut out, target.topic.as_str());
            out.put_i32(target.partition.to_wire());
        }
        RecordKey::Group(group) => {
            out.put_i16(2);
            codec::put_string(&mut out, group.as_str());
        }
    }
    out.freeze()
}

#[cfg(test)]
mod tests;
