//! What consumers of the classic protocol carry inside their groups' messages: ConsumerProtocolSubscription and
//! ConsumerProtocolAssignment. A consumer group reads and writes them for members that haven't migrated.
//!
//! ```text
//! subscription  int16 version · array of string topics · bytes? user data
//!               · (v1+) array of (string topic · array of int32 partitions) owned
//!               · (v2+) int32 generation · (v3+) string? rack
//! assignment    int16 version · array of (string topic · array of int32 partitions) · bytes? user data
//! ```

use bytes::{BufMut, Bytes, BytesMut};
use tidegate_types::PartitionIndex;

use super::Assignment;
use crate::records::Reader;
use crate::{ClusterView, RecordError};

/// The newest versions of both.
const NEWEST: i16 = 3;

/// What a member asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub(crate) version: i16,
    pub(crate) topics: Vec<String>,
    pub(crate) owned: Vec<(String, Vec<i32>)>,
    pub(crate) rack_id: Option<String>,
}

impl Subscription {
    /// Later versions only add fields behind, so whatever follows is left unread.
    pub(crate) fn parse(metadata: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader::new("subscription", metadata);
        let version = reader.i16("version")?;
        if version < 0 {
            return Err(reader.unsupported(version));
        }
        let mut topics = Vec::new();
        for _ in 0..reader.array_length(false, "topics")? {
            topics.push(reader.string(false, "topic")?.to_owned());
        }
        skip_nullable_bytes(&mut reader)?;
        let owned = if version >= 1 {
            read_partitions(&mut reader)?
        } else {
            Vec::new()
        };
        if version >= 2 {
            reader.i32("generation")?;
        }
        let rack_id = if version >= 3 {
            reader.nullable_string(false, "rack")?.map(str::to_owned)
        } else {
            None
        };
        Ok(Self {
            version: version.min(NEWEST),
            topics,
            owned,
            rack_id,
        })
    }

    pub(crate) fn owned_now(&self, view: &dyn ClusterView) -> Assignment {
        to_ids(&self.owned, view)
    }
}

fn skip_nullable_bytes(reader: &mut Reader<'_>) -> Result<(), RecordError> {
    let length = reader.i32("user data")?;
    if length != -1 {
        let length = usize::try_from(length).map_err(|_| reader.invalid("user data"))?;
        reader.take(length, "user data")?;
    }
    Ok(())
}

fn read_partitions(reader: &mut Reader<'_>) -> Result<Vec<(String, Vec<i32>)>, RecordError> {
    let mut topics = Vec::new();
    for _ in 0..reader.array_length(false, "partitions by topic")? {
        let topic = reader.string(false, "topic")?.to_owned();
        let mut partitions = Vec::new();
        for _ in 0..reader.array_length(false, "partitions")? {
            partitions.push(reader.i32("partition")?);
        }
        topics.push((topic, partitions));
    }
    Ok(topics)
}

/// Partitions of topics that exist.
fn to_ids(topics: &[(String, Vec<i32>)], view: &dyn ClusterView) -> Assignment {
    let mut assignment = Assignment::default();
    for (name, partitions) in topics {
        if let Some(topic) = view.topic(name) {
            let indexes = partitions
                .iter()
                .filter_map(|index| PartitionIndex::from_wire(*index).ok());
            assignment.extend(indexes.map(|index| (topic.id, index)));
        }
    }
    assignment
}

/// The assignment that a classic leader gave; nothing if it hasn't given one yet.
pub(crate) fn parse_assignment(
    bytes: &[u8],
    view: &dyn ClusterView,
) -> Result<Assignment, RecordError> {
    if bytes.is_empty() {
        return Ok(Assignment::default());
    }
    let mut reader = Reader::new("assignment", bytes);
    reader.i16("version")?;
    Ok(to_ids(&read_partitions(&mut reader)?, view))
}

/// An assignment as a member of the classic protocol reads it. Topics that are gone are left out.
pub(crate) fn encode_assignment(
    assignment: &Assignment,
    version: i16,
    view: &dyn ClusterView,
) -> Bytes {
    let named: Vec<_> = assignment
        .topics()
        .filter_map(|(id, partitions)| Some((view.topic_name(id)?, partitions)))
        .collect();
    let count = |length: usize| i32::try_from(length).unwrap_or(i32::MAX);
    let mut out = BytesMut::new();
    out.put_i16(version);
    out.put_i32(count(named.len()));
    for (name, partitions) in named {
        crate::records::put_string(&mut out, name.as_str());
        out.put_i32(count(partitions.len()));
        for index in partitions {
            out.put_i32(index.to_wire());
        }
    }
    out.put_i32(-1);
    out.freeze()
}
