//! One member's next step towards its target: give up first, then get.
//!
//! ```text
//!            nothing to give up, all free
//!   Stable ---------------------------------------------> Stable, at the target's epoch
//!     |  \                                                  ^      ^
//!     |   \ something to give up     says it has given up   |      | the last one is free
//!     |    +-----> Unrevoked -------------------------------+      |
//!     |            (keeps its epoch)         |                     |
//!     | nothing to give up, but something    v                     |
//!     +---- that others have still got --> Unreleased, at the target's epoch
//! ```

use tidegate_types::{PartitionIndex, TopicId};

use super::member::{ConsumerMember, Current, MemberState};
use super::{Assignment, GroupEpoch, MemberEpoch};
use crate::GroupError;

/// What a member moves towards, and what it said of itself.
pub(crate) struct Step<'a> {
    pub(crate) target_epoch: GroupEpoch,
    pub(crate) target: &'a Assignment,
    /// What the member says it owns; `None` if it didn't say.
    pub(crate) owned: Option<&'a Assignment>,
}

impl Step<'_> {
    /// The member's next state; the present one if it can't move. `is_taken` tells whether another member owns
    /// a partition.
    ///
    /// # Errors
    /// [`GroupError::FencedMemberEpoch`] if only a fresh start helps.
    pub(crate) fn next(
        &self,
        member: &ConsumerMember,
        is_taken: impl Fn(TopicId, PartitionIndex) -> bool,
    ) -> Result<Current, GroupError> {
        let current = &member.current;
        if member.is_reconciled_to(self.target_epoch) {
            return Ok(current.clone());
        }
        match current.state {
            MemberState::Stable | MemberState::Unreleased => {
                Ok(self.advance(current, current.epoch, is_taken))
            }
            MemberState::Unrevoked if self.still_owns(&current.revoking) => Ok(current.clone()),
            MemberState::Unrevoked => Ok(self.advance(current, current.epoch.next(), is_taken)),
            MemberState::Unknown => {
                if self.owned.is_none_or(|owned| !owned.is_empty()) {
                    return Err(GroupError::FencedMemberEpoch);
                }
                let epoch = MemberEpoch::at(self.target_epoch);
                Ok(self.advance(current, epoch, is_taken))
            }
        }
    }

    /// Without a word from the member it still owns everything.
    fn still_owns(&self, partitions: &Assignment) -> bool {
        self.owned
            .is_none_or(|owned| owned.shares_any_with(partitions))
    }

    /// `waiting_epoch` is the member's epoch if it has to give something up.
    fn advance(
        &self,
        current: &Current,
        waiting_epoch: MemberEpoch,
        is_taken: impl Fn(TopicId, PartitionIndex) -> bool,
    ) -> Current {
        let in_target =
            |&(topic, index): &(TopicId, PartitionIndex)| self.target.contains(topic, index);
        let (mut assigned, revoking): (Assignment, Assignment) =
            current.assigned.partitions().partition(in_target);
        if self.still_owns_any_of(&revoking) {
            return Current {
                epoch: waiting_epoch,
                previous_epoch: current.epoch,
                state: MemberState::Unrevoked,
                assigned,
                revoking,
            };
        }
        let mut waits = false;
        for (topic, index) in self.target.partitions() {
            if assigned.contains(topic, index) {
                continue;
            }
            if is_taken(topic, index) {
                waits = true;
            } else {
                assigned.insert(topic, index);
            }
        }
        Current {
            epoch: MemberEpoch::at(self.target_epoch),
            previous_epoch: current.epoch,
            state: if waits {
                MemberState::Unreleased
            } else {
                MemberState::Stable
            },
            assigned,
            revoking: Assignment::default(),
        }
    }

    fn still_owns_any_of(&self, revoking: &Assignment) -> bool {
        !revoking.is_empty() && self.still_owns(revoking)
    }
}
