//! The controller's lease: a row of numbered objects, of which whoever creates the next holds the lease.
//!
//! It decides who *tries* to be controller. That only one changes anything doesn't depend on it, nor on any
//! clock: opening the metadata store fences whoever had it open before. So a lease that two believe they hold
//! costs time and nothing else.
//!
//! * [`LeaseRow`] reads, takes and trims the row; its only condition is create-only.
//! * [`Candidate`] decides from what was read, and from the time that passed on this process's own monotonic
//!   clock, whether to take over.

mod body;
mod candidate;
mod row;

pub use body::{LeaseBody, LeaseKind};
pub use candidate::{Candidate, Verdict};
pub use row::{Claim, Lease, LeaseError, LeaseRow};
