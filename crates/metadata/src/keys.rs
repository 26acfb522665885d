//! The keys of the metadata store. Layout: `docs/formats/metadata.md`.
//!
//! The first byte is the table. Numbers are big-endian, so that a scan gives the order of the numbers.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use tidegate_types::{BrokerId, Offset, PartitionId, PartitionIndex, TimestampMs, TopicId};

use crate::api::{ConfigResource, QuotaEntity, QuotaName};
use crate::model::StoredObjectKey;

/// A table: the first byte of its keys, and part of its values' envelopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Table {
    Cluster,
    ControllerEpoch,
    ProducerIds,
    Broker,
    Configs,
    Quotas,
    Topic,
    DeletedTopic,
    Partition,
    Segment,
    Object,
    Dropped,
}

impl Table {
    pub(crate) const fn tag(self) -> u8 {
        match self {
            Self::Cluster => b'a',
            Self::ControllerEpoch => b'e',
            Self::ProducerIds => b'i',
            Self::Broker => b'b',
            Self::Configs => b'c',
            Self::Quotas => b'q',
            Self::Topic => b't',
            Self::DeletedTopic => b'x',
            Self::Partition => b'p',
            Self::Segment => b's',
            Self::Object => b'o',
            Self::Dropped => b'd',
        }
    }

    /// All keys of the table.
    pub(crate) fn range(self) -> Range<Bytes> {
        Bytes::copy_from_slice(&[self.tag()])..Bytes::copy_from_slice(&[self.tag() + 1])
    }
}

/// A key that isn't of its table's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MalformedKey;

/// The identity of a segment in the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SegmentKey {
    pub(crate) partition: PartitionId,
    pub(crate) end: Offset,
}

pub(crate) fn single(table: Table) -> Bytes {
    Bytes::copy_from_slice(&[table.tag()])
}

pub(crate) fn broker(id: BrokerId) -> Bytes {
    let mut key = BytesMut::with_capacity(5);
    key.put_u8(Table::Broker.tag());
    key.put_u32(id.get());
    key.freeze()
}

/// Topic configs live in the topic's row and have no key of their own.
pub(crate) fn configs(id: Option<BrokerId>) -> Bytes {
    let mut key = BytesMut::with_capacity(6);
    key.put_u8(Table::Configs.tag());
    match id {
        None => key.put_u8(b'd'),
        Some(id) => {
            key.put_u8(b'b');
            key.put_u32(id.get());
        }
    }
    key.freeze()
}

/// The parts of the entity that are set, each with its length, so that no name can look like another part.
pub(crate) fn quotas(entity: &QuotaEntity) -> Bytes {
    let mut key = BytesMut::new();
    key.put_u8(Table::Quotas.tag());
    let parts = [
        (b'u', &entity.user),
        (b'c', &entity.client_id),
        (b'i', &entity.ip),
    ];
    for (tag, part) in parts {
        match part {
            None => {}
            Some(QuotaName::Default) => {
                key.put_u8(tag);
                key.put_u8(0);
            }
            Some(QuotaName::Named(name)) => {
                key.put_u8(tag);
                key.put_u8(1);
                key.put_u16(u16::try_from(name.len()).expect("names are at most 4096 bytes"));
                key.put_slice(name.as_bytes());
            }
        }
    }
    key.freeze()
}

pub(crate) fn group_configs(group: &str) -> Bytes {
    let mut key = BytesMut::with_capacity(2 + group.len());
    key.put_u8(Table::Configs.tag());
    key.put_u8(b'g');
    key.put_slice(group.as_bytes());
    key.freeze()
}

pub(crate) fn topic(table: Table, id: TopicId) -> Bytes {
    let mut key = BytesMut::with_capacity(17);
    key.put_u8(table.tag());
    key.put_slice(id.as_bytes());
    key.freeze()
}

pub(crate) fn partition(id: PartitionId) -> Bytes {
    partition_in(Table::Partition, id, 21).freeze()
}

pub(crate) fn segment(key: SegmentKey) -> Bytes {
    let mut bytes = partition_in(Table::Segment, key.partition, 29);
    bytes.put_u64(key.end.get());
    bytes.freeze()
}

pub(crate) fn object(key: &StoredObjectKey) -> Bytes {
    let mut bytes = BytesMut::with_capacity(1 + key.as_str().len());
    bytes.put_u8(Table::Object.tag());
    bytes.put_slice(key.as_str().as_bytes());
    bytes.freeze()
}

pub(crate) fn dropped(at: TimestampMs, key: &StoredObjectKey) -> Bytes {
    let mut bytes = BytesMut::with_capacity(9 + key.as_str().len());
    bytes.put_u8(Table::Dropped.tag());
    bytes.put_u64(time_bits(at));
    bytes.put_slice(key.as_str().as_bytes());
    bytes.freeze()
}

/// The rows of all partitions of one topic.
pub(crate) fn partitions_of(topic_id: TopicId) -> Range<Bytes> {
    prefix_range(&topic(Table::Partition, topic_id))
}

/// The segments of one partition that end behind `from` and at or before `to`.
pub(crate) fn segments_between(partition: PartitionId, from: Offset, to: Offset) -> Range<Bytes> {
    let bound = |offset: Offset| {
        let mut bytes = partition_in(Table::Segment, partition, 29);
        bytes.put_u64(offset.get() + 1);
        bytes.freeze()
    };
    bound(from)..bound(to)
}

/// The objects dropped at or before a time.
pub(crate) fn dropped_until(at: TimestampMs) -> Range<Bytes> {
    let mut end = BytesMut::with_capacity(9);
    end.put_u8(Table::Dropped.tag());
    end.put_u64(time_bits(at).saturating_add(1));
    single(Table::Dropped)..end.freeze()
}

pub(crate) fn parse_broker(key: &[u8]) -> Result<BrokerId, MalformedKey> {
    BrokerId::new(parse_u32(key.get(1..).ok_or(MalformedKey)?)?).map_err(|_| MalformedKey)
}

pub(crate) fn parse_configs(key: &[u8]) -> Result<ConfigResource, MalformedKey> {
    match key.get(1) {
        Some(b'd') if key.len() == 2 => Ok(ConfigResource::BrokerDefault),
        Some(b'b') => parse_broker(&key[1..]).map(ConfigResource::Broker),
        Some(b'g') => String::from_utf8(key[2..].to_vec())
            .map(ConfigResource::Group)
            .map_err(|_| MalformedKey),
        _ => Err(MalformedKey),
    }
}

pub(crate) fn parse_quotas(key: &[u8]) -> Result<QuotaEntity, MalformedKey> {
    let mut entity = QuotaEntity::default();
    let mut rest = key.get(1..).ok_or(MalformedKey)?;
    while let [tag, form, tail @ ..] = rest {
        let part = match tag {
            b'u' => &mut entity.user,
            b'c' => &mut entity.client_id,
            b'i' => &mut entity.ip,
            _ => return Err(MalformedKey),
        };
        let (name, after) = match form {
            0 => (QuotaName::Default, tail),
            1 => {
                let (length, tail) = tail.split_first_chunk().ok_or(MalformedKey)?;
                let (name, after) = tail
                    .split_at_checked(u16::from_be_bytes(*length).into())
                    .ok_or(MalformedKey)?;
                let name = std::str::from_utf8(name).map_err(|_| MalformedKey)?;
                (QuotaName::Named(name.to_owned()), after)
            }
            _ => return Err(MalformedKey),
        };
        if part.replace(name).is_some() {
            return Err(MalformedKey);
        }
        rest = after;
    }
    if rest.is_empty() {
        Ok(entity)
    } else {
        Err(MalformedKey)
    }
}

pub(crate) fn parse_topic(key: &[u8]) -> Result<TopicId, MalformedKey> {
    let bytes: [u8; 16] = key
        .get(1..)
        .and_then(|b| b.try_into().ok())
        .ok_or(MalformedKey)?;
    TopicId::from_bytes(bytes).map_err(|_| MalformedKey)
}

pub(crate) fn parse_partition(key: &[u8]) -> Result<PartitionId, MalformedKey> {
    if key.len() != 21 {
        return Err(MalformedKey);
    }
    Ok(PartitionId {
        topic: parse_topic(&key[..17])?,
        index: PartitionIndex::new(parse_u32(&key[17..])?).map_err(|_| MalformedKey)?,
    })
}

pub(crate) fn parse_segment(key: &[u8]) -> Result<SegmentKey, MalformedKey> {
    if key.len() != 29 {
        return Err(MalformedKey);
    }
    let end: [u8; 8] = key[21..].try_into().map_err(|_| MalformedKey)?;
    Ok(SegmentKey {
        partition: parse_partition(&key[..21])?,
        end: Offset::new(u64::from_be_bytes(end)).ok_or(MalformedKey)?,
    })
}

pub(crate) fn parse_dropped(key: &[u8]) -> Result<(TimestampMs, StoredObjectKey), MalformedKey> {
    let time: [u8; 8] = key
        .get(1..9)
        .and_then(|b| b.try_into().ok())
        .ok_or(MalformedKey)?;
    let ms = i64::try_from(u64::from_be_bytes(time)).map_err(|_| MalformedKey)?;
    let text = std::str::from_utf8(&key[9..]).map_err(|_| MalformedKey)?;
    let object = StoredObjectKey::new(text).map_err(|_| MalformedKey)?;
    Ok((TimestampMs::new(ms), object))
}

fn partition_in(table: Table, id: PartitionId, capacity: usize) -> BytesMut {
    let mut bytes = BytesMut::with_capacity(capacity);
    bytes.put_u8(table.tag());
    bytes.put_slice(id.topic.as_bytes());
    bytes.put_u32(id.index.get());
    bytes
}

/// Times before 1970 sort as 1970.
fn time_bits(at: TimestampMs) -> u64 {
    u64::try_from(at.get()).unwrap_or(0)
}

fn parse_u32(bytes: &[u8]) -> Result<u32, MalformedKey> {
    bytes
        .try_into()
        .map(u32::from_be_bytes)
        .map_err(|_| MalformedKey)
}

/// The greatest offset there is.
pub(crate) fn last_offset() -> Offset {
    Offset::from_wire(i64::MAX).expect("the greatest offset isn't negative")
}

/// All keys with this prefix. Prefixes here start with a table's tag, so they aren't all 0xFF.
fn prefix_range(prefix: &[u8]) -> Range<Bytes> {
    let mut end = prefix.to_vec();
    while end.last() == Some(&0xFF) {
        end.pop();
    }
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    Bytes::copy_from_slice(prefix)..Bytes::from(end)
}
