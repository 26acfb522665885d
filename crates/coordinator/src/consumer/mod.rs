//! Consumer groups: the server assigns, and each member moves to its part on its own (KIP-848).
//!
//! ```text
//!   members' subscriptions, topics ──> group epoch
//!                                          │ an assignor computes
//!                                          v
//!                                      target assignment, of that epoch
//!                                          │ each member, step by step: give up, then get
//!                                          v
//!                                      current assignments, with member epochs
//! ```
//!
//! A partition has one owner at a time: it is given to a member only when no other has it, and a member has it until
//! it said that it gave it up, left, or was dropped. All of the state is in the log; a group is what its records say.

mod assignment;
mod assignor;
mod classic_member;
mod classic_protocol;
mod conflicts;
mod epoch;
mod group;
mod heartbeat;
mod leave;
mod member;
mod migration;
mod offsets;
mod pattern;
mod reconcile;
mod replay;
mod request;
mod requests;
mod target;
mod view;

pub use assignment::Assignment;
pub use epoch::{GroupEpoch, MemberEpoch};
pub use migration::MigrationPolicy;
pub use request::{
    ConsumerGroupState, ConsumerHeartbeat, ConsumerHeartbeatRequest, DescribedConsumer,
    DescribedConsumerGroup, NamedAssignment,
};

pub(crate) use group::ConsumerGroup;
pub(crate) use member::{ClassicDetails, Current, MemberState, Profile};
pub(crate) use pattern::ResolvedRegex;

#[cfg(test)]
mod tests;
