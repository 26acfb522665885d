//! Apache Kafka's own records of `__consumer_offsets`, so that its tools can read them.
//!
//! A key starts with a 16-bit version that is also the record's type: 0 and 1 are offset commits, 2 is a classic
//! group, 3 to 8 and 16 are of consumer groups; anything else belongs to groups this build doesn't know and is
//! skipped.
//!
//! ```text
//! key 1    int16 1 · string group · string topic · int32 partition
//! key 2    int16 2 · string group
//! key 3    int16 3 · string group                            consumer group
//! key 4    int16 4 · string group                            its topics (Kafka 4.0; only tombstones are written)
//! key 5    int16 5 · string group · string member            what a member says of itself
//! key 6    int16 6 · string group                            epoch of the target assignment
//! key 7    int16 7 · string group · string member            a member's target
//! key 8    int16 8 · string group · string member            what a member has
//! key 16   int16 16 · string group · string expression       the topics that it matched
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
//! consumer group's values, all v0, in flexible form; assignment = array of (16 bytes topic id · array of int32)
//!   3      int32 group epoch; tag 0: int64 hash of the topics
//!   5      string? instance id · string? rack · string client id · string client host · array of string topics
//!          · string? expression · int32 rebalance timeout · string? assignor; tag 0: classic member
//!          classic member: int8 1 · int32 session timeout · array of (string protocol · bytes metadata)
//!   6      int32 group epoch that it was computed for
//!   7      assignment
//!   8      int32 member epoch · int32 previous member epoch · int8 state · assignment · assignment to give up
//!   16     array of string topics · int64 version · int64 time
//! ```
//!
//! Readers accept every version. Writers emit, as Kafka does, v3 for groups, and for offsets v1 with an
//! explicit expiry time, v4 if the topic's id is known, v3 otherwise. No version has a magic or checksum of
//! its own: the record batch around it has (KIP-98), and the format isn't ours to change.

pub(crate) mod codec;
mod consumer;
mod group_metadata;
mod offset_commit;

pub(crate) use codec::{Reader, put_string};
pub(crate) use consumer::{
    ConsumerKey, GroupRecord, decode_target, decode_target_epoch, encode_target,
    encode_target_epoch,
};
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
    Consumer(GroupId, ConsumerKey),
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
        kind if ConsumerKey::is_kind(kind) => {
            let group = group_id(&mut reader)?;
            RecordKey::Consumer(group, ConsumerKey::decode(kind, &mut reader)?)
        }
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
        RecordKey::Consumer(group, key) => key.encode(group, &mut out),
    }
    out.freeze()
}

#[cfg(test)]
mod tests;
