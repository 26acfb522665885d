//! Transactions: the coordinators that this broker hosts, one for each partition of `__transaction_state` that it
//! leads, and what it does for coordinators elsewhere.
//!
//! The rules are in `tidegate-coordinator`, and how they are hosted in [`crate::coordinators`]. This module gives each
//! coordinator the way to the leaders of other partitions, and brings requests to the right one.

pub(crate) mod apply;
mod host;
mod machine;
mod markers;
mod outside;
mod remote;
mod verify;
pub(crate) mod vouch;

pub(crate) use host::TransactionHost;
pub(crate) use remote::TransactionServices;
