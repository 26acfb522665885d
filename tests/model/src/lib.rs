//! The handover and failover protocols as a model that a checker explores whole: every interleaving of small cases.
//!
//! For what: `docs/protocols/handover.md` and `docs/protocols/failover.md` argue why nothing acknowledged is lost and
//! why two leaders can't both acknowledge. This crate holds the same rules in a form in which the argument can be
//! refuted by a machine, and a switch for each guard that the argument rests on, so that a test can show what
//! breaks without it.
//!
//! What it promises: within the [`Bounds`] of a case, every order of steps, deliveries, repetitions, losses, crashes and
//! pauses is looked at. A message that was sent may be delivered at any later time, several times, or never. A paused
//! process is one that takes no step for long; since no step waits for a clock, every pause is among the orders.
//!
//! What it deliberately doesn't know: time, bytes, batches of several records, producers and transactions, more than one
//! durability mode at once, the store's outages, clients. Numbers are plain `u8`, for a small state; a record is a number.

mod broker;
mod check;
mod controller;
mod guards;
mod state;
mod step;

pub use check::{Cluster, claims};
pub use guards::Guards;
pub use state::{Bounds, Mode, State};
pub use step::Step;
