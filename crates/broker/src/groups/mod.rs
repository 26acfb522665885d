//! The group coordinators that this broker hosts: one for each partition of `__consumer_offsets` that it leads.
//!
//! The rules are in `tidegate-coordinator`, and how they are hosted in [`crate::coordinators`]. This module says what is
//! particular to groups, and brings requests to the right coordinator.

mod host;
mod machine;
mod notice;
mod outside;
mod view;

pub(crate) use host::GroupHost;
