//! The smallest Kafka client that can follow partitions from broker to broker.
//!
//! It speaks fixed versions, since it only ever talks to brokers of its own build. Requests are pipelined: a
//! [`Connection`] sends without waiting for earlier answers. A [`Cluster`] knows who leads: from Metadata, and from
//! the hints that refusals carry (KIP-951). Older news about a partition never replaces newer (KIP-320).
//!
//! It deliberately doesn't know groups, security, compression and old brokers. Use a real client for those.

mod cluster;
mod connection;

pub use cluster::{Cluster, Leader, Verdict};
pub use connection::Connection;
