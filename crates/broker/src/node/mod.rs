//! One broker process: from its settings to a running broker, and back.
//!
//! Start-up has two halves. The first is about this machine (data folder, ports, local WAL): what fails there an
//! operator must mend, so it ends the process with a message. The second needs object storage: what fails there
//! heals by itself, so it is tried again for as long as it takes, and readiness says why.

mod identity;
mod join;
mod leaving;
mod parts;
mod reconcile;
mod recovery;
mod retention;
mod serving;
mod settings;
mod start;
mod startup;

pub use identity::{Identity, IdentityError};
pub use settings::{ClusterSettings, MemorySettings, NodeSettings, ObjectWalSettings, WalSettings};
pub use start::{Node, NodeSummary, Readiness, StartError};
