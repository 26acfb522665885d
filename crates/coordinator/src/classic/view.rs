//! DescribeGroups and ListGroups.

use bytes::Bytes;

use super::ClassicGroup;
use crate::{DescribedGroup, DescribedMember, GroupState, ListedGroup};

impl ClassicGroup {
    pub(crate) fn describe(&self) -> DescribedGroup {
        let stable = self.state == GroupState::Stable;
        DescribedGroup {
            state: self.state,
            generation: self.generation,
            protocol_type: self.protocol_type.as_deref().unwrap_or_default().to_owned(),
            protocol_name: self
                .protocol_name
                .as_deref()
                .filter(|_| stable)
                .unwrap_or_default()
                .to_owned(),
            members: self
                .members
                .values()
                .map(|member| DescribedMember {
                    member_id: member.id.clone(),
                    instance_id: member.instance_id.clone(),
                    client_id: member.client_id.clone(),
                    client_host: member.client_host.clone(),
                    metadata: if stable {
                        member.metadata(self.protocol_name.as_ref())
                    } else {
                        Bytes::new()
                    },
                    assignment: member.assignment.clone(),
                })
                .collect(),
        }
    }

    pub(crate) fn listed(&self) -> ListedGroup {
        ListedGroup {
            group_id: self.id.clone(),
            protocol_type: self.protocol_type.as_deref().unwrap_or_default().to_owned(),
            state: self.state.as_str(),
            group_type: "classic",
        }
    }
}
