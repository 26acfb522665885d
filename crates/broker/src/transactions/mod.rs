//! Transactions: the coordinators that this broker hosts, one for each partition of `__transaction_state` that it
//! leads, and what it does for coordinators elsewhere.
//!
//! The rules are in `tidegate-coordinator`. This module gives each coordinator a task, its partition's log, the clock and
//! the way to the leaders of other partitions, and brings requests to the right one.

mod actor;
mod append;
pub(crate) mod apply;
mod host;
mod load;
mod markers;
mod remote;
mod verify;
pub(crate) mod vouch;

pub(crate) use host::{TransactionHost, partition_of};
pub(crate) use remote::TransactionServices;
