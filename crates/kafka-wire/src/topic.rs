//! How requests and responses name a topic, and where its leaders listen.

use bytes::BufMut;
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::read::{Malformed, Splitter, required};
use crate::write::Writer;

/// A topic as a request names it: by name, or since KIP-516 by id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TopicRef {
    Name(StrBytes),
    Id(Uuid),
}

impl TopicRef {
    pub fn name(&self) -> Option<&StrBytes> {
        match self {
            Self::Name(name) => Some(name),
            Self::Id(_) => None,
        }
    }

    pub fn id(&self) -> Option<Uuid> {
        match self {
            Self::Name(_) => None,
            Self::Id(id) => Some(*id),
        }
    }

    pub(crate) fn decode(
        body: &mut Splitter,
        field: &'static str,
        flexible: bool,
        by_id: bool,
    ) -> Result<Self, Malformed> {
        if by_id {
            return body.read(|reader| reader.uuid("topic_id")).map(Self::Id);
        }
        let position = body.position();
        let name = body.string(field, flexible)?;
        required(field, position, name).map(Self::Name)
    }

    /// The fewest bytes that a topic and the array of its partitions take in a request.
    pub(crate) fn smallest_bytes(flexible: bool, by_id: bool) -> usize {
        match (by_id, flexible) {
            (true, _) => size_of::<Uuid>() + 2,
            (false, true) => 3,
            (false, false) => 6,
        }
    }

    /// Writes the topic the way the version wants it. A response that has the other kind of name is a
    /// broker's mistake and is written with an empty one.
    pub(crate) fn encode(&self, out: &mut Writer, by_id: bool) {
        if by_id {
            out.put_slice(self.id().unwrap_or(Uuid::nil()).as_bytes());
        } else {
            out.string(Some(self.name().map_or("", StrBytes::as_str)));
        }
    }
}

/// The current leader of a partition, told to clients that asked another broker (KIP-951).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CurrentLeader {
    /// The leader, or -1 if there is none or it isn't known.
    pub leader_id: i32,
    /// The leader epoch, or -1.
    pub leader_epoch: i32,
}

/// Where a broker listens, for each leader named by a [`CurrentLeader`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEndpoint {
    pub node_id: i32,
    pub host: StrBytes,
    pub port: i32,
    pub rack: Option<StrBytes>,
}

impl CurrentLeader {
    pub(crate) fn encode(&self, out: &mut Writer) {
        out.put_i32(self.leader_id);
        out.put_i32(self.leader_epoch);
        out.no_tagged();
    }
}

impl NodeEndpoint {
    pub(crate) fn encode_all(endpoints: &[Self], out: &mut Writer) {
        out.count(endpoints.len());
        for endpoint in endpoints {
            out.put_i32(endpoint.node_id);
            out.string(Some(&endpoint.host));
            out.put_i32(endpoint.port);
            out.string(endpoint.rack.as_deref());
            out.no_tagged();
        }
    }
}
