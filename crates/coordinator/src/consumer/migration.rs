//! Groups that change their protocol while they run (KIP-848).
//!
//! A classic group becomes a consumer group with the first member that joins by the consumer protocol; its other
//! members go on with the classic requests (see [`super::classic_member`]). When the last member of the consumer
//! protocol goes, the group becomes a classic one again.

use super::classic_protocol::{Subscription, encode_assignment, parse_assignment};
use super::group::ConsumerGroup;
use super::member::{ClassicDetails, ConsumerMember, Current, MemberState, Profile};
use super::{GroupEpoch, MemberEpoch};
use crate::classic::{CONSUMER_PROTOCOL_TYPE, ClassicGroup, Member};
use crate::journal::Write;
use crate::{ClusterView, Generation, GroupConfig, GroupError, GroupState, MemberId, Now};

/// `group.consumer.migration.policy`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MigrationPolicy {
    /// Groups stay what they are.
    Disabled,
    /// From classic to consumer.
    Upgrade,
    /// From consumer to classic.
    Downgrade,
    /// Both ways.
    #[default]
    Bidirectional,
}

impl MigrationPolicy {
    /// By the name that Kafka's setting has, in any case.
    pub fn by_name(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "disabled" => Some(Self::Disabled),
            "upgrade" => Some(Self::Upgrade),
            "downgrade" => Some(Self::Downgrade),
            "bidirectional" => Some(Self::Bidirectional),
            _ => None,
        }
    }

    /// As Kafka writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Upgrade => "upgrade",
            Self::Downgrade => "downgrade",
            Self::Bidirectional => "bidirectional",
        }
    }

    pub(crate) fn allows_upgrade(self) -> bool {
        matches!(self, Self::Upgrade | Self::Bidirectional)
    }

    pub(crate) fn allows_downgrade(self) -> bool {
        matches!(self, Self::Downgrade | Self::Bidirectional)
    }
}

impl ConsumerGroup {
    /// A group with the classic one's members and its last assignment as the target. Fails if the metadata of a
    /// member isn't a consumer's.
    pub(super) fn from_classic(
        classic: &ClassicGroup,
        view: &dyn ClusterView,
    ) -> Result<Self, GroupError> {
        let mut group = Self::new(classic.id.clone());
        group.epoch = GroupEpoch::from_wire(classic.generation.to_wire()).unwrap_or_default();
        group.target_epoch = group.epoch;
        let unreadable = |_| GroupError::GroupIdNotFound;
        for member in classic.members.values() {
            let subscription =
                Subscription::parse(&subscription_of(classic, member)).map_err(unreadable)?;
            let assigned = parse_assignment(&member.assignment, view).map_err(unreadable)?;
            let epoch = MemberEpoch::at(group.epoch);
            let profile = Profile {
                instance_id: member.instance_id.clone(),
                rack_id: subscription.rack_id,
                client_id: member.client_id.clone(),
                client_host: member.client_host.clone(),
                topics: subscription.topics.into_iter().collect(),
                regex: None,
                rebalance_timeout_ms: i32::try_from(member.rebalance_timeout_ms)
                    .unwrap_or(i32::MAX),
                server_assignor: None,
                classic: Some(ClassicDetails {
                    session_timeout_ms: i32::try_from(member.session_timeout_ms)
                        .unwrap_or(i32::MAX),
                    protocols: member.protocols.clone(),
                }),
            };
            group.targets.insert(member.id.clone(), assigned.clone());
            group.put(ConsumerMember {
                id: member.id.clone(),
                profile,
                current: Current {
                    epoch,
                    previous_epoch: epoch,
                    state: MemberState::Stable,
                    assigned,
                    revoking: super::Assignment::default(),
                },
            });
        }
        // An assignor of the client's own may give one partition to two members.
        group.drop_shared();
        Ok(group)
    }

    /// Takes partitions that several members have from all but the first.
    fn drop_shared(&mut self) {
        let mut seen = std::collections::BTreeSet::new();
        let members: Vec<ConsumerMember> = self.members.values().cloned().collect();
        for mut member in members {
            let kept: super::Assignment = member
                .current
                .assigned
                .partitions()
                .filter(|place| seen.insert(*place))
                .collect();
            if kept != member.current.assigned {
                member.current.assigned = kept.clone();
                self.targets.insert(member.id.clone(), kept);
                self.put(member);
            }
        }
        // Replacing a member may have released what another has got.
        let members: Vec<ConsumerMember> = self.members.values().cloned().collect();
        for member in members {
            self.put(member);
        }
    }

    /// The records of a whole group, in Kafka's order.
    pub(super) fn creation(&self) -> Vec<Write> {
        let members = self.members.values();
        let mut writes: Vec<Write> = members.map(|member| self.write_member(member)).collect();
        writes.push(self.write_group());
        writes.extend(self.members.keys().map(|id| self.write_target(id)));
        writes.push(self.write_target_epoch());
        let members = self.members.values();
        writes.extend(members.map(|member| self.write_current(member)));
        writes
    }

    /// Whether the group becomes a classic one when `leaving` goes.
    pub(super) fn may_downgrade(&self, config: &GroupConfig, leaving: &MemberId) -> bool {
        let goes = self
            .members
            .get(leaving)
            .is_some_and(|member| !member.uses_classic_protocol());
        goes && self.are_classic(config, self.members.len().saturating_sub(1))
    }

    /// Whether `count` members are those of the classic protocol, and may be a classic group.
    pub(super) fn are_classic(&self, config: &GroupConfig, count: usize) -> bool {
        count > 0
            && self.classic_member_count() == count
            && count <= config.max_group_size
            && config.consumer_migration_policy.allows_downgrade()
    }

    /// The classic group of the members, all of whom use the classic protocol. Its generation is the group epoch,
    /// its assignment the target.
    pub(super) fn into_classic(self, view: &dyn ClusterView, now: Now) -> ClassicGroup {
        let mut classic = ClassicGroup::new(self.id.clone(), now);
        classic.generation =
            Generation::from_wire(self.epoch.to_wire()).unwrap_or(Generation::ZERO);
        for member in self.members.values() {
            let Some(details) = &member.profile.classic else {
                continue;
            };
            let assignment =
                encode_assignment(&self.target_of(&member.id), version_of(details), view);
            let timeout = |ms: i32| u32::try_from(ms).unwrap_or(0);
            let former = Member {
                id: member.id.clone(),
                instance_id: member.profile.instance_id.clone(),
                client_id: member.profile.client_id.clone(),
                client_host: member.profile.client_host.clone(),
                rebalance_timeout_ms: timeout(member.profile.rebalance_timeout_ms),
                session_timeout_ms: timeout(details.session_timeout_ms),
                protocols: details.protocols.clone(),
                assignment,
                awaiting_join: None,
                awaiting_sync: None,
                is_new: false,
            };
            classic.add(former, CONSUMER_PROTOCOL_TYPE);
        }
        classic.state = GroupState::Stable;
        classic.protocol_name = classic.select_protocol();
        classic.refresh_subscribed();
        classic
    }
}

/// The subscription of a classic member: that of the group's protocol, or of the first one before there is any.
fn subscription_of(classic: &ClassicGroup, member: &Member) -> bytes::Bytes {
    match &classic.protocol_name {
        Some(name) if member.protocols.iter().any(|p| p.name == *name) => {
            member.metadata(Some(name))
        }
        _ => member
            .protocols
            .first()
            .map(|protocol| protocol.metadata.clone())
            .unwrap_or_default(),
    }
}

/// The version of the consumer protocol that a classic member speaks.
pub(super) fn version_of(details: &ClassicDetails) -> i16 {
    details
        .protocols
        .first()
        .and_then(|protocol| Subscription::parse(&protocol.metadata).ok())
        .map_or(0, |subscription| subscription.version)
}
