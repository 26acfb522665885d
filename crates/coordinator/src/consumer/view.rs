//! ConsumerGroupDescribe and ListGroups.

use super::assignor::ServerAssignor;
use super::group::ConsumerGroup;
use super::member::ConsumerMember;
use super::{Assignment, DescribedConsumer, DescribedConsumerGroup, NamedAssignment};
use crate::classic::CONSUMER_PROTOCOL_TYPE;
use crate::{ClusterView, ListedGroup};

impl ConsumerGroup {
    pub(crate) fn describe(&self, view: &dyn ClusterView) -> DescribedConsumerGroup {
        let assignor = self
            .assignor()
            .unwrap_or_else(|| ServerAssignor::default().name());
        DescribedConsumerGroup {
            state: self.state(),
            epoch: self.epoch,
            assignment_epoch: self.target_epoch,
            assignor: assignor.to_owned(),
            members: self
                .members
                .values()
                .map(|member| self.describe_member(member, view))
                .collect(),
        }
    }

    fn describe_member(
        &self,
        member: &ConsumerMember,
        view: &dyn ClusterView,
    ) -> DescribedConsumer {
        let profile = &member.profile;
        DescribedConsumer {
            member_id: member.id.clone(),
            instance_id: profile.instance_id.clone(),
            rack_id: profile.rack_id.clone(),
            member_epoch: member.current.epoch,
            client_id: profile.client_id.clone(),
            client_host: profile.client_host.clone(),
            topics: profile.topics.iter().cloned().collect(),
            regex: profile.regex.clone(),
            assignment: named(&member.current.assigned, view),
            target: named(&self.target_of(&member.id), view),
            is_classic: member.uses_classic_protocol(),
        }
    }

    pub(crate) fn listed(&self) -> ListedGroup {
        ListedGroup {
            group_id: self.id.clone(),
            protocol_type: CONSUMER_PROTOCOL_TYPE.to_owned(),
            state: self.state().as_str(),
            group_type: "consumer",
        }
    }
}

/// Topics that are gone are left out: there is no name for them.
fn named(assignment: &Assignment, view: &dyn ClusterView) -> NamedAssignment {
    assignment
        .topics()
        .filter_map(|(id, partitions)| {
            let indexes = partitions.iter().map(|index| index.to_wire()).collect();
            Some((id, view.topic_name(id)?, indexes))
        })
        .collect()
}
