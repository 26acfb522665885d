use bytes::BytesMut;
use kafka_protocol::protocol::StrBytes;

use super::{FLEXIBLE_SINCE, TOPIC_IDS_SINCE};
use crate::bounds::DecodeLimits;
use crate::read::{Budget, Malformed, Reader, Splitter, Visited, required};
use crate::topic::TopicRef;

/// What a consumer may see of open transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsolationLevel {
    ReadUncommitted,
    ReadCommitted,
}

/// A fetch request. Fields that a version hasn't got have the value said here.
#[derive(Debug, Clone, PartialEq)]
pub struct FetchRequest {
    /// -1 from consumers; others claim to be replicas.
    pub replica_id: i32,
    pub max_wait_ms: i32,
    pub min_bytes: i32,
    pub max_bytes: i32,
    pub isolation: IsolationLevel,
    /// 0 without a session. Version 7 and up (KIP-227).
    pub session_id: i32,
    /// -1: no session; 0: make a new one. Version 7 and up, else -1.
    pub session_epoch: i32,
    pub topics: Vec<FetchTopic>,
    /// Partitions to take out of the session. Version 7 and up.
    pub forgotten: Vec<ForgottenTopic>,
    /// The consumer's rack. Version 11 and up, else empty.
    pub rack: StrBytes,
}

#[derive(Debug, Clone, PartialEq)]
pub struct FetchTopic {
    pub topic: TopicRef,
    pub partitions: Vec<FetchPartition>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchPartition {
    pub index: i32,
    /// The leader epoch the client believes in, or -1. Version 9 and up.
    pub current_leader_epoch: i32,
    pub fetch_offset: i64,
    /// The leader epoch of the last record fetched, or -1. Version 12 and up (KIP-595).
    pub last_fetched_epoch: i32,
    /// A replica's log start offset; -1 from consumers. Version 5 and up.
    pub log_start_offset: i64,
    pub max_bytes: i32,
}

/// Partitions that leave a fetch session.
#[derive(Debug, Clone, PartialEq)]
pub struct ForgottenTopic {
    pub topic: TopicRef,
    pub partitions: Vec<i32>,
}

impl FetchRequest {
    /// Decodes a body of version 4 to 18. The caller has checked the version; others are read like the
    /// nearest of these.
    pub fn decode(body: BytesMut, version: i16, limits: &DecodeLimits) -> Result<Self, Malformed> {
        let flexible = version >= FLEXIBLE_SINCE;
        let mut body = Splitter::new(body, Budget::new(limits.max_decoded_bytes));
        let mut request = body.read(|reader| Self::decode_start(reader, version))?;
        let smallest = TopicRef::smallest_bytes(flexible, version >= TOPIC_IDS_SINCE);
        request.topics = body.array("topics", flexible, smallest, |body| {
            FetchTopic::decode(body, version)
        })?;
        if version >= 7 {
            request.forgotten =
                body.array("forgotten_topics_data", flexible, smallest, |body| {
                    ForgottenTopic::decode(body, version)
                })?;
        }
        if version >= 11 {
            let position = body.position();
            let rack = body.string("rack_id", flexible)?;
            request.rack = required("rack_id", position, rack)?;
        }
        if flexible && let Some(replica_id) = body.read(|reader| decode_tagged(reader, version))? {
            request.replica_id = replica_id;
        }
        Ok(request)
    }

    fn decode_start(reader: &mut Reader<'_>, version: i16) -> Result<Self, Malformed> {
        Ok(Self {
            replica_id: match version {
                ..=14 => reader.int32("replica_id")?,
                _ => -1,
            },
            max_wait_ms: reader.int32("max_wait_ms")?,
            min_bytes: reader.int32("min_bytes")?,
            max_bytes: reader.int32("max_bytes")?,
            isolation: decode_isolation(reader)?,
            session_id: match version {
                ..=6 => 0,
                _ => reader.int32("session_id")?,
            },
            session_epoch: match version {
                ..=6 => -1,
                _ => reader.int32("session_epoch")?,
            },
            topics: Vec::new(),
            forgotten: Vec::new(),
            rack: StrBytes::new(),
        })
    }
}

fn decode_isolation(reader: &mut Reader<'_>) -> Result<IsolationLevel, Malformed> {
    let field = "isolation_level";
    let position = reader.position();
    match reader.int8(field)? {
        0 => Ok(IsolationLevel::ReadUncommitted),
        1 => Ok(IsolationLevel::ReadCommitted),
        value => Err(Malformed::BadValue {
            field,
            position,
            value,
        }),
    }
}

/// Reads the tagged fields at the end; returns the replica id, which moved here in version 15.
fn decode_tagged(reader: &mut Reader<'_>, version: i16) -> Result<Option<i32>, Malformed> {
    let mut replica_id = None;
    reader.tagged(|reader, tag| match tag {
        0 => {
            let length = reader.string_length("cluster_id", true)?;
            reader.take("cluster_id", length.unwrap_or(0))?;
            Ok(Visited::Read("cluster_id"))
        }
        1 if version >= 15 => {
            replica_id = Some(reader.int32("replica_id")?);
            reader.int64("replica_epoch")?;
            reader.skip_tagged(true)?;
            Ok(Visited::Read("replica_state"))
        }
        _ => Ok(Visited::Skipped),
    })?;
    Ok(replica_id)
}

impl FetchTopic {
    fn decode(body: &mut Splitter, version: i16) -> Result<Self, Malformed> {
        let flexible = version >= FLEXIBLE_SINCE;
        let topic = TopicRef::decode(body, "topic", flexible, version >= TOPIC_IDS_SINCE)?;
        let smallest = smallest_partition_bytes(version);
        let partitions = body.read(|reader| {
            let partitions = reader.array("partitions", flexible, smallest, |reader| {
                FetchPartition::decode(reader, version)
            })?;
            reader.skip_tagged(flexible)?;
            Ok(partitions)
        })?;
        Ok(Self { topic, partitions })
    }
}

impl FetchPartition {
    fn decode(reader: &mut Reader<'_>, version: i16) -> Result<Self, Malformed> {
        let partition = Self {
            index: reader.int32("partition")?,
            current_leader_epoch: match version {
                ..=8 => -1,
                _ => reader.int32("current_leader_epoch")?,
            },
            fetch_offset: reader.int64("fetch_offset")?,
            last_fetched_epoch: match version {
                ..=11 => -1,
                _ => reader.int32("last_fetched_epoch")?,
            },
            log_start_offset: match version {
                ..=4 => -1,
                _ => reader.int64("log_start_offset")?,
            },
            max_bytes: reader.int32("partition_max_bytes")?,
        };
        if version >= FLEXIBLE_SINCE {
            // Both are for replicas: a directory id and a high watermark.
            reader.tagged(|reader, tag| match tag {
                0 if version >= 17 => {
                    reader.uuid("replica_directory_id")?;
                    Ok(Visited::Read("replica_directory_id"))
                }
                1 if version >= 18 => {
                    reader.int64("high_watermark")?;
                    Ok(Visited::Read("high_watermark"))
                }
                _ => Ok(Visited::Skipped),
            })?;
        }
        Ok(partition)
    }
}

impl ForgottenTopic {
    fn decode(body: &mut Splitter, version: i16) -> Result<Self, Malformed> {
        let flexible = version >= FLEXIBLE_SINCE;
        let topic = TopicRef::decode(body, "topic", flexible, version >= TOPIC_IDS_SINCE)?;
        let partitions = body.read(|reader| {
            let partitions = reader.array("partitions", flexible, 4, |reader| {
                reader.int32("partitions")
            })?;
            reader.skip_tagged(flexible)?;
            Ok(partitions)
        })?;
        Ok(Self { topic, partitions })
    }
}

fn smallest_partition_bytes(version: i16) -> usize {
    match version {
        ..=4 => 16,
        5..=8 => 24,
        9..=11 => 28,
        _ => 33,
    }
}
