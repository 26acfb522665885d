//! The value of a group metadata record. The byte table is in the parent module.

use bytes::{BufMut, Bytes, BytesMut};
use tidegate_types::TimestampMs;

use super::Reader;
use super::codec::{put_bytes, put_nullable_string, put_string};
use crate::{InstanceId, MemberId, RecordError};

/// A classic group as the log has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupMetadata {
    /// "" for a group that nobody has joined yet.
    pub(crate) protocol_type: String,
    pub(crate) generation: i32,
    pub(crate) protocol: Option<String>,
    pub(crate) leader: Option<String>,
    pub(crate) state_since: Option<TimestampMs>,
    pub(crate) members: Vec<MemberMetadata>,
}

/// A member as the log has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberMetadata {
    pub(crate) member_id: MemberId,
    pub(crate) instance_id: Option<InstanceId>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) rebalance_timeout_ms: i32,
    pub(crate) session_timeout_ms: i32,
    pub(crate) subscription: Bytes,
    pub(crate) assignment: Bytes,
}

const WRITTEN_VERSION: i16 = 3;

impl GroupMetadata {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_i16(WRITTEN_VERSION);
        put_string(&mut out, &self.protocol_type);
        out.put_i32(self.generation);
        put_nullable_string(&mut out, self.protocol.as_deref());
        put_nullable_string(&mut out, self.leader.as_deref());
        out.put_i64(self.state_since.unwrap_or(TimestampMs::NONE).get());
        out.put_i32(
            i32::try_from(self.members.len()).expect("a group has fewer than 2^31 members"),
        );
        for member in &self.members {
            put_string(&mut out, member.member_id.as_str());
            put_nullable_string(
                &mut out,
                member.instance_id.as_ref().map(InstanceId::as_str),
            );
            put_string(&mut out, &member.client_id);
            put_string(&mut out, &member.client_host);
            out.put_i32(member.rebalance_timeout_ms);
            out.put_i32(member.session_timeout_ms);
            put_bytes(&mut out, &member.subscription);
            put_bytes(&mut out, &member.assignment);
        }
        out.freeze()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = Reader::new("group metadata value", bytes);
        let version = reader.i16("version")?;
        if !(0..=4).contains(&version) {
            return Err(reader.unsupported(version));
        }
        let flexible = version >= 4;
        let protocol_type = reader.string(flexible, "protocol type")?.to_owned();
        let generation = reader.i32("generation")?;
        let protocol = reader
            .nullable_string(flexible, "protocol")?
            .map(str::to_owned);
        let leader = reader
            .nullable_string(flexible, "leader")?
            .map(str::to_owned);
        let state_since = match version {
            2.. => Some(reader.i64("state timestamp")?)
                .filter(|at| *at != -1)
                .map(TimestampMs::new),
            _ => None,
        };
        let count = reader.array_length(flexible, "members")?;
        let mut members = Vec::with_capacity(count.min(1_024));
        for _ in 0..count {
            members.push(decode_member(&mut reader, version)?);
        }
        reader.tags(flexible, |_, _| Ok(()))?;
        reader.finish()?;
        Ok(Self {
            protocol_type,
            generation,
            protocol,
            leader,
            state_since,
            members,
        })
    }
}

fn decode_member(reader: &mut Reader<'_>, version: i16) -> Result<MemberMetadata, RecordError> {
    let flexible = version >= 4;
    let member_id = reader.string(flexible, "member id")?;
    let member_id = MemberId::from_wire(member_id).ok_or_else(|| reader.invalid("member id"))?;
    let instance_id = match version {
        3.. => reader.nullable_string(flexible, "instance id")?,
        _ => None,
    };
    let instance_id = instance_id
        .map(|id| InstanceId::new(id).map_err(|_| reader.invalid("instance id")))
        .transpose()?;
    let client_id = reader.string(flexible, "client id")?.to_owned();
    let client_host = reader.string(flexible, "client host")?.to_owned();
    let rebalance_timeout_ms = match version {
        1.. => reader.i32("rebalance timeout")?,
        _ => -1,
    };
    let session_timeout_ms = reader.i32("session timeout")?;
    let subscription = reader.bytes(flexible, "subscription")?;
    let assignment = reader.bytes(flexible, "assignment")?;
    reader.tags(flexible, |_, _| Ok(()))?;
    Ok(MemberMetadata {
        member_id,
        instance_id,
        client_id,
        client_host,
        // Version 0 had one timeout for both.
        rebalance_timeout_ms: if rebalance_timeout_ms == -1 {
            session_timeout_ms
        } else {
            rebalance_timeout_ms
        },
        session_timeout_ms,
        subscription,
        assignment,
    })
}
