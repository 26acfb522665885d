//! The controller's lease: a row of numbered objects, of which whoever creates the next holds the lease.
//!
//! It decides who *tries* to be controller. That only one changes anything doesn't depend on it, nor on any
//! clock: opening the metadata store fences whoever had it open before. So a lease that two believe they hold
//! costs time and nothing else.
//!
//! Here is the stored row; its only condition is create-only. When to take over is for the cluster's election.

mod body;
mod row;

pub use body::{LeaseBody, LeaseKind};
pub use row::{Claim, Lease, LeaseError, LeaseRow};
