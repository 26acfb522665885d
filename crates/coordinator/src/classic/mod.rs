//! Classic groups: members vote for a protocol, one of them leads and computes the assignment.
//!
//! ```text
//!            join                    all joined, or time is up              leader's assignment stored
//!   Empty ----------> Preparing ------------------------------> Completing ---------------------------> Stable
//!     ^               |   ^ ^                                        |                                    |
//!     +---------------+   | +----------------------------------------+                                    |
//!      nobody is left     +-------------------------------------------------------------------------------+
//!                                    a member joins, leaves, changes or expires
//! ```

mod group;
mod heartbeat;
mod join;
mod leave;
mod member;
mod metadata;
mod rebalance;
mod static_member;
mod subscription;
mod sync;
mod view;

pub(crate) use group::{CONSUMER_PROTOCOL_TYPE, ClassicGroup};
pub(crate) use join::Join;
pub(crate) use member::Member;
