//! The broker: Kafka's protocol on top of partition logs, metadata and coordinators.
//!
//! Promises: requests of one connection are answered in order; what ApiVersions lists is answered as Apache Kafka
//! answers it; memory of requests, connections and sessions is bounded; a batch is acknowledged only when its
//! topic's durability mode says so. It deliberately doesn't know: how logs, WALs and objects are laid out, where its
//! settings come from, and the HTTP API.
//!
//! Where things are: `network` has connections and dispatch; `handlers` one function per request; `groups` and
//! `transactions` the coordinators it hosts, `coordinators` how; `handover` its part in moves; `quotas` how fast clients
//! may go; `node` start-up, recovery and the background work; `error_code` the only mapping to Kafka's codes.

mod broker;
mod catalog;
mod compaction;
pub mod config;
mod coordinators;
mod error_code;
mod features;
mod fetch_session;
mod groups;
mod handlers;
mod handover;
mod metrics;
mod network;
mod node;
mod principal;
mod producer_ids;
mod queries;
mod quotas;
mod transactions;

pub use broker::{Broker, BrokerOptions};
pub use compaction::{CompactionMetrics, CompactionSettings};
pub use network::{ListenError, NetworkLimits};
pub use node::{
    ClusterSettings, Identity, IdentityError, MemorySettings, Node, NodeSettings, NodeSummary,
    ObjectWalSettings, Readiness, StartError, WalSettings,
};
pub use tidegate_coordinator::transactions::TransactionConfig;
pub use tidegate_coordinator::{GroupConfig, MigrationPolicy};
pub use tidegate_kafka_wire::{bounds::DecodeLimits, frame::FrameLimits};
