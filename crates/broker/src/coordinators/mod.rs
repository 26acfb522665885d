//! What the coordinators of groups and of transactions have in common.
//!
//! Each is a state machine ([`Machine`]) that lives in one partition of an internal topic. An [`actor`] owns it while
//! this broker leads the partition: it gives it a log, time and its callers. The machine is rebuilt from the log
//! ([`load`]); over a planned move that happens while the former leader still serves ([`warm`]), so that only the last
//! records are left to read. `docs/adr/0011-coordinators-warm-up-from-the-log.md` says why.

mod actor;
mod append;
mod clock;
mod handle;
mod hosting;
mod load;
mod machine;
mod replica;
mod warm;

pub(crate) use actor::{Actor, Done, Outside, Parts};
pub(crate) use append::{Outcome, append_records, outcome};
pub(crate) use clock::HostClock;
pub(crate) use handle::Handle;
pub(crate) use hosting::{Hosted, Hosting, partition_of};
pub(crate) use load::OfLog;
pub(crate) use machine::Machine;
pub(crate) use replica::{BATCH_BYTES, ReplayError, Replica};
pub(crate) use warm::{Replicas, Warm, Warmed};
