//! A classic group to and from its record.

use bytes::Bytes;

use super::{ClassicGroup, Member};
use crate::records::{GroupMetadata, MemberMetadata};
use crate::{Generation, GroupId, GroupState, MemberId, Now, Protocol, RecordError};

impl ClassicGroup {
    /// The record's value, with the assignments that `assignment` gives.
    pub(crate) fn encode(&self, assignment: impl Fn(&Member) -> Bytes) -> Bytes {
        let members = self
            .members
            .values()
            .map(|member| MemberMetadata {
                member_id: member.id.clone(),
                instance_id: member.instance_id.clone(),
                client_id: member.client_id.clone(),
                client_host: member.client_host.clone(),
                rebalance_timeout_ms: i32::try_from(member.rebalance_timeout_ms)
                    .unwrap_or(i32::MAX),
                session_timeout_ms: i32::try_from(member.session_timeout_ms).unwrap_or(i32::MAX),
                subscription: member.metadata(self.protocol_name.as_ref()),
                assignment: assignment(member),
            })
            .collect();
        GroupMetadata {
            protocol_type: self.protocol_type.as_deref().unwrap_or_default().to_owned(),
            generation: self.generation.to_wire(),
            protocol: self.protocol_name.as_deref().map(str::to_owned),
            leader: self
                .leader
                .as_ref()
                .map(|leader| leader.as_str().to_owned()),
            state_since: self.state_since,
            members,
        }
        .encode()
    }

    /// The record of a group that was just created: no member of it is stored before its first assignment.
    pub(crate) fn encode_created(&self) -> Bytes {
        GroupMetadata {
            protocol_type: String::new(),
            generation: Generation::ZERO.to_wire(),
            protocol: None,
            leader: None,
            state_since: self.state_since,
            members: Vec::new(),
        }
        .encode()
    }

    /// Rebuilds a group: Stable with members, Empty without.
    pub(crate) fn decode(id: GroupId, value: &[u8], now: Now) -> Result<Self, RecordError> {
        let metadata = GroupMetadata::decode(value)?;
        let mut group = Self::new(id, now);
        group.state_since = metadata.state_since;
        group.protocol_type =
            (!metadata.protocol_type.is_empty()).then(|| metadata.protocol_type.as_str().into());
        group.protocol_name = metadata.protocol.as_deref().map(Into::into);
        group.generation = Generation::from_wire(metadata.generation).unwrap_or(Generation::ZERO);
        if !metadata.members.is_empty() {
            group.state = GroupState::Stable;
        }
        for member in metadata.members {
            let protocol = Protocol {
                name: group.protocol_name.clone().unwrap_or_default(),
                metadata: member.subscription,
            };
            let member = Member {
                id: member.member_id,
                instance_id: member.instance_id,
                client_id: member.client_id,
                client_host: member.client_host,
                rebalance_timeout_ms: u32::try_from(member.rebalance_timeout_ms).unwrap_or(0),
                session_timeout_ms: u32::try_from(member.session_timeout_ms).unwrap_or(0),
                protocols: vec![protocol],
                assignment: member.assignment,
                awaiting_join: None,
                awaiting_sync: None,
                is_new: false,
            };
            group.add(member, &metadata.protocol_type);
        }
        let leader = metadata.leader.as_deref().and_then(MemberId::from_wire);
        if let Some(leader) = leader.filter(|leader| group.members.contains_key(leader)) {
            group.leader = Some(leader);
        }
        group.refresh_subscribed();
        Ok(group)
    }
}
