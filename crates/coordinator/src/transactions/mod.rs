//! The coordinator of transactions, as a state machine beside that of groups: requests, time and the outcome of
//! appends and markers go in, replies, records and orders to write markers come out.
//!
//! One [`TransactionCoordinator`] holds the transactional ids of one partition of `__transaction_state` and moves
//! with it. It follows Apache Kafka 4 (KIP-98, KIP-360, KIP-588, KIP-664, KIP-890 with transaction.version 2);
//! `docs/protocols/transactions.md` has the states and what happens when anything fails.
//!
//! # Driving it
//! As the group coordinator, and besides: send the markers of each [`TransactionEffect::SendMarkers`] until every
//! partition has it, and report with [`TransactionCoordinator::markers_written`], in any order and any number of times.
//!
//! # Promises
//! - Every token is answered exactly once, at the latest by `unload`.
//! - An outcome is announced, and markers are ordered, only after the decision was reported durable; no other
//!   outcome of that transaction is possible from then on, also after a new load.
//! - A call that comes late or twice never touches a transaction other than the one it was made for, as far as the
//!   caller's protocol version allows to tell them apart.
//!
//! # What it doesn't know
//! Clocks, tasks, the log, the wire format, how to reach the leaders of partitions, and how producer ids are made: it
//! answers [`TransactionError::ProducerIdNeeded`] and is asked again with one.

mod add;
mod appended;
mod config;
mod coordinator;
mod effects;
mod end;
mod error;
mod expiry;
mod init;
mod record;
mod request;
mod state;
mod view;

pub use config::TransactionConfig;
pub use coordinator::TransactionCoordinator;
pub use effects::{
    EndedTransaction, MarkerOrder, Markers, TransactionEffect, TransactionNotice, TransactionReply,
};
pub use error::TransactionError;
pub use request::{
    AddPartitionsRequest, EndRequest, InitRequest, ProducerIdentity, TransactionFilter,
    TransactionalId,
};
pub use state::{TransactionState, TransactionVersion};
pub use view::{DescribedTransaction, ListedTransaction};

#[cfg(test)]
mod tests;
