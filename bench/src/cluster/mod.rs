//! `move`, `failover` and `coordinator`: what clients notice when partitions change their broker.
//!
//! The figure is the longest time between two acknowledgements of a partition around the event, less the usual
//! one: what an application that writes all the time would see as a pause. Beside it stands the same figure of
//! windows in which nothing happened, because a busy machine makes pauses of its own. At the end every record is
//! read back: acknowledged and absent is lost, present twice is a duplicate.

mod admin;
pub mod args;
mod committer;
mod compaction;
mod coordinator;
mod delay_proxy;
mod deployment;
mod failover;
mod http;
mod moves;
mod process;
mod readback;
mod silence;
mod spread;
mod stage;
mod writer;

pub use compaction::{CompactionArgs, run as run_compaction};
pub use coordinator::run as run_coordinator;
pub use failover::run as run_failover;
pub use moves::run as run_move;
