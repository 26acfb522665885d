//! Many brokers, one bucket: who is in the cluster, who leads what, and how that changes.
//!
//! What it is for: finding each other through the bucket alone (a lease), electing the controller, sessions
//! between brokers and controller, planned moves (handover), failover, drain and balance. Protocols:
//! `docs/protocols/{controller,handover,failover}.md`.
//!
//! It deliberately doesn't know: Kafka's wire format, how logs are laid out or opened (a broker implements
//! [`orders::BrokerOrders`] and [`orders::TailSource`] over its logs), and what lies in metadata rows (the
//! metadata crate's state machine decides; this crate drives it).

pub mod admin;
pub mod conductor;
mod desertion;
pub mod member;
pub mod orders;
pub mod queries;
pub mod rpc;
pub mod session;
pub mod transactions;
pub mod view;
