//! The group coordinators that this broker hosts: one for each partition of `__consumer_offsets` that it leads.
//!
//! The rules are in `tidegate-coordinator`. This module gives each coordinator a task, its partition's log and the
//! clock, and brings requests to the right one.

mod actor;
mod host;
mod load;
mod notice;
mod view;

pub(crate) use actor::HostClock;
pub(crate) use host::{GroupHost, partition_of};
