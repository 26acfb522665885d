//! The records of consumer groups (KIP-848). The byte tables are in the parent module.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use tidegate_types::{PartitionIndex, TopicId};

use super::Reader;
use super::codec::{
    put_compact_length, put_compact_string, put_nullable_compact_string, put_string,
    put_unsigned_varint,
};
use crate::consumer::{
    Assignment, ClassicDetails, Current, MemberEpoch, MemberState, Profile, ResolvedRegex,
};
use crate::{GroupId, InstanceId, MemberId, Protocol, RecordError};

/// Which record of a group. The order is the one in which a deleted group's tombstones are written: what refers
/// to a member goes before the member, and the group's own record goes last.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ConsumerKey {
    /// Type 8.
    Current(MemberId),
    /// Type 7.
    TargetOf(MemberId),
    /// Type 6.
    TargetEpoch,
    /// Type 5.
    Member(MemberId),
    /// Type 16.
    Regex(Arc<str>),
    /// Type 4, which Kafka 4.0 wrote; read over, and removed with the group.
    PartitionMetadata,
    /// Type 3.
    Group,
}

impl ConsumerKey {
    pub(super) fn decode(kind: i16, reader: &mut Reader<'_>) -> Result<Self, RecordError> {
        Ok(match kind {
            3 => Self::Group,
            4 => Self::PartitionMetadata,
            5 => Self::Member(member_id(reader)?),
            6 => Self::TargetEpoch,
            7 => Self::TargetOf(member_id(reader)?),
            8 => Self::Current(member_id(reader)?),
            16 => Self::Regex(reader.string(false, "regular expression")?.into()),
            _ => return Err(reader.unsupported(kind)),
        })
    }

    pub(super) fn encode(&self, group: &GroupId, out: &mut BytesMut) {
        let (kind, second): (i16, Option<&str>) = match self {
            Self::Group => (3, None),
            Self::PartitionMetadata => (4, None),
            Self::Member(member) => (5, Some(member.as_str())),
            Self::TargetEpoch => (6, None),
            Self::TargetOf(member) => (7, Some(member.as_str())),
            Self::Current(member) => (8, Some(member.as_str())),
            Self::Regex(regex) => (16, Some(regex)),
        };
        out.put_i16(kind);
        put_string(out, group.as_str());
        if let Some(second) = second {
            put_string(out, second);
        }
    }

    pub(super) fn is_kind(kind: i16) -> bool {
        matches!(kind, 3..=8 | 16)
    }
}

fn member_id(reader: &mut Reader<'_>) -> Result<MemberId, RecordError> {
    let id = reader.string(false, "member id")?;
    MemberId::from_wire(id).ok_or_else(|| reader.invalid("member id"))
}

const NO_TAGS: u32 = 0;
const METADATA_HASH_TAG: u32 = 0;
const CLASSIC_TAG: u32 = 0;

fn start() -> BytesMut {
    let mut out = BytesMut::new();
    out.put_i16(0);
    out
}

fn open<'a>(record: &'static str, bytes: &'a [u8]) -> Result<Reader<'a>, RecordError> {
    let mut reader = Reader::new(record, bytes);
    let version = reader.i16("version")?;
    if version != 0 {
        return Err(reader.unsupported(version));
    }
    Ok(reader)
}

/// The group's own record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupRecord {
    pub(crate) epoch: i32,
    /// Over the topics subscribed to, to see when one changes. 0 if there are none.
    pub(crate) metadata_hash: i64,
}

impl GroupRecord {
    pub(crate) fn encode(self) -> Bytes {
        let mut out = start();
        out.put_i32(self.epoch);
        if self.metadata_hash == 0 {
            put_unsigned_varint(&mut out, NO_TAGS);
        } else {
            put_unsigned_varint(&mut out, 1);
            put_unsigned_varint(&mut out, METADATA_HASH_TAG);
            put_unsigned_varint(&mut out, 8);
            out.put_i64(self.metadata_hash);
        }
        out.freeze()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        const RECORD: &str = "consumer group value";
        let mut reader = open(RECORD, bytes)?;
        let epoch = reader.i32("epoch")?;
        let mut metadata_hash = 0;
        reader.tags(true, |tag, field| {
            if tag == METADATA_HASH_TAG {
                metadata_hash = Reader::new(RECORD, field).i64("metadata hash")?;
            }
            Ok(())
        })?;
        reader.finish()?;
        Ok(Self {
            epoch,
            metadata_hash,
        })
    }
}

pub(crate) fn encode_target_epoch(epoch: i32) -> Bytes {
    let mut out = start();
    out.put_i32(epoch);
    put_unsigned_varint(&mut out, NO_TAGS);
    out.freeze()
}

pub(crate) fn decode_target_epoch(bytes: &[u8]) -> Result<i32, RecordError> {
    let mut reader = open("target assignment epoch value", bytes)?;
    let epoch = reader.i32("assignment epoch")?;
    reader.tags(true, |_, _| Ok(()))?;
    reader.finish()?;
    Ok(epoch)
}

pub(crate) fn encode_target(target: &Assignment) -> Bytes {
    let mut out = start();
    put_assignment(&mut out, target);
    put_unsigned_varint(&mut out, NO_TAGS);
    out.freeze()
}

pub(crate) fn decode_target(bytes: &[u8]) -> Result<Assignment, RecordError> {
    let mut reader = open("target assignment value", bytes)?;
    let target = read_assignment(&mut reader)?;
    reader.tags(true, |_, _| Ok(()))?;
    reader.finish()?;
    Ok(target)
}

fn put_assignment(out: &mut BytesMut, assignment: &Assignment) {
    put_compact_length(out, assignment.topic_count());
    for (topic, partitions) in assignment.topics() {
        out.put_slice(topic.as_bytes());
        put_compact_length(out, partitions.len());
        for index in partitions {
            out.put_i32(index.to_wire());
        }
        put_unsigned_varint(out, NO_TAGS);
    }
}

fn read_assignment(reader: &mut Reader<'_>) -> Result<Assignment, RecordError> {
    let mut assignment = Assignment::default();
    for _ in 0..reader.array_length(true, "topics")? {
        let id: [u8; 16] = reader
            .take(16, "topic id")?
            .try_into()
            .expect("take returns as many bytes as asked for");
        let topic = TopicId::from_bytes(id).map_err(|_| reader.invalid("topic id"))?;
        for _ in 0..reader.array_length(true, "partitions")? {
            let index = reader.i32("partition")?;
            let index =
                PartitionIndex::from_wire(index).map_err(|_| reader.invalid("partition"))?;
            assignment.insert(topic, index);
        }
        // The epoch of each partition (KIP-1251) may follow; it isn't needed to rebuild the group.
        reader.tags(true, |_, _| Ok(()))?;
    }
    Ok(assignment)
}

impl Current {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = start();
        out.put_i32(self.epoch.to_wire());
        out.put_i32(self.previous_epoch.to_wire());
        out.put_u8(self.state.to_record());
        put_assignment(&mut out, &self.assigned);
        put_assignment(&mut out, &self.revoking);
        put_unsigned_varint(&mut out, NO_TAGS);
        out.freeze()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = open("current assignment value", bytes)?;
        let epoch = MemberEpoch::from_wire(reader.i32("member epoch")?);
        let previous_epoch = MemberEpoch::from_wire(reader.i32("previous member epoch")?);
        let state = reader.take(1, "state")?.first().copied().unwrap_or(127);
        let assigned = read_assignment(&mut reader)?;
        let revoking = read_assignment(&mut reader)?;
        reader.tags(true, |_, _| Ok(()))?;
        reader.finish()?;
        Ok(Self {
            epoch,
            previous_epoch,
            state: MemberState::from_record(state),
            assigned,
            revoking,
        })
    }
}

impl Profile {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = start();
        let instance = self.instance_id.as_ref().map(InstanceId::as_str);
        put_nullable_compact_string(&mut out, instance);
        put_nullable_compact_string(&mut out, self.rack_id.as_deref());
        put_compact_string(&mut out, &self.client_id);
        put_compact_string(&mut out, &self.client_host);
        put_compact_length(&mut out, self.topics.len());
        for topic in &self.topics {
            put_compact_string(&mut out, topic);
        }
        put_nullable_compact_string(&mut out, self.regex.as_deref());
        out.put_i32(self.rebalance_timeout_ms);
        put_nullable_compact_string(&mut out, self.server_assignor.as_deref());
        match &self.classic {
            None => put_unsigned_varint(&mut out, NO_TAGS),
            Some(classic) => {
                let field = encode_classic(classic);
                put_unsigned_varint(&mut out, 1);
                put_unsigned_varint(&mut out, CLASSIC_TAG);
                let bytes = u32::try_from(field.len()).expect("requests are smaller than 2 GiB");
                put_unsigned_varint(&mut out, bytes);
                out.put_slice(&field);
            }
        }
        out.freeze()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        const RECORD: &str = "consumer group member value";
        let mut reader = open(RECORD, bytes)?;
        let instance_id = reader
            .nullable_string(true, "instance id")?
            .map(|id| InstanceId::new(id).map_err(|_| reader.invalid("instance id")))
            .transpose()?;
        let rack_id = reader.nullable_string(true, "rack id")?.map(str::to_owned);
        let client_id = reader.string(true, "client id")?.to_owned();
        let client_host = reader.string(true, "client host")?.to_owned();
        let mut topics = std::collections::BTreeSet::new();
        for _ in 0..reader.array_length(true, "topics")? {
            topics.insert(reader.string(true, "topic")?.to_owned());
        }
        let regex = reader
            .nullable_string(true, "regular expression")?
            .map(str::to_owned);
        let rebalance_timeout_ms = reader.i32("rebalance timeout")?;
        let server_assignor = reader
            .nullable_string(true, "server assignor")?
            .map(str::to_owned);
        let mut classic = None;
        reader.tags(true, |tag, field| {
            if tag == CLASSIC_TAG {
                classic = decode_classic(RECORD, field)?;
            }
            Ok(())
        })?;
        reader.finish()?;
        Ok(Self {
            instance_id,
            rack_id,
            client_id,
            client_host,
            topics,
            regex,
            rebalance_timeout_ms,
            server_assignor,
            classic,
        })
    }
}

/// A nullable structure in a tagged field: int8 1, its fields, its tags; int8 −1 would be null.
fn encode_classic(classic: &ClassicDetails) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_i8(1);
    out.put_i32(classic.session_timeout_ms);
    put_compact_length(&mut out, classic.protocols.len());
    for protocol in &classic.protocols {
        put_compact_string(&mut out, &protocol.name);
        put_compact_length(&mut out, protocol.metadata.len());
        out.put_slice(&protocol.metadata);
        put_unsigned_varint(&mut out, NO_TAGS);
    }
    put_unsigned_varint(&mut out, NO_TAGS);
    out
}

fn decode_classic(
    record: &'static str,
    field: &[u8],
) -> Result<Option<ClassicDetails>, RecordError> {
    let mut reader = Reader::new(record, field);
    if reader.take(1, "classic member")?.first() != Some(&1) {
        return Ok(None);
    }
    let session_timeout_ms = reader.i32("session timeout")?;
    let mut protocols = Vec::new();
    for _ in 0..reader.array_length(true, "protocols")? {
        let name = reader.string(true, "protocol")?.into();
        let metadata = reader.bytes(true, "protocol metadata")?;
        reader.tags(true, |_, _| Ok(()))?;
        protocols.push(Protocol { name, metadata });
    }
    reader.tags(true, |_, _| Ok(()))?;
    reader.finish()?;
    Ok(Some(ClassicDetails {
        session_timeout_ms,
        protocols,
    }))
}

impl ResolvedRegex {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = start();
        put_compact_length(&mut out, self.topics.len());
        for topic in &self.topics {
            put_compact_string(&mut out, topic);
        }
        out.put_i64(self.version);
        out.put_i64(self.resolved_at_ms);
        put_unsigned_varint(&mut out, NO_TAGS);
        out.freeze()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = open("regular expression value", bytes)?;
        let mut topics = std::collections::BTreeSet::new();
        for _ in 0..reader.array_length(true, "topics")? {
            topics.insert(reader.string(true, "topic")?.to_owned());
        }
        let version = reader.i64("version")?;
        let resolved_at_ms = reader.i64("timestamp")?;
        reader.tags(true, |_, _| Ok(()))?;
        reader.finish()?;
        Ok(Self {
            topics,
            version,
            resolved_at_ms,
        })
    }
}
