//! Kafka's wire protocol, as a broker sees it: from a connection's bytes to requests, and from responses to
//! bytes.
//!
//! ```text
//! socket ─► frame::FrameReader ─► request::decode_request ─► Request { header, body }
//!                                    │ header, api::Advertised
//!                                    │ bounds::check_body, along schema::of(api key)
//!                                    └ produce, fetch: by hand; the rest: kafka-protocol
//! socket ◄─ Bytes, or segments ◄─ response::encode_response, produce, fetch
//! ```
//!
//! What it promises:
//!
//! - **Bounded memory.** Nothing is reserved for a length or count before the bytes that justify it have
//!   arrived, and one decoded request stays under [`bounds::DecodeLimits`].
//! - **No panic** on any bytes.
//! - **Records aren't copied.** The batches of a produce request are pieces of its frame, still mutable; the
//!   batches of a fetch response go to the socket as the slices they came in.
//! - **What it lists, it decodes.** [`api::Advertised`] can only hold APIs and versions that the schemas
//!   cover, and the tests decode every version of every schema with the `kafka-protocol` crate.
//!
//! What it doesn't know: brokers, topics that exist, storage, sockets, error codes and what they mean, or
//! what is in a record batch. It checks the form of a request, never its sense.
//!
//! The protocol's definitions are Apache Kafka's message schemas; KIP-482 has tagged fields and compact
//! lengths, KIP-511 the rules for ApiVersions.

#![deny(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]

pub mod api;
pub mod bounds;
pub mod fetch;
pub mod frame;
pub mod produce;
mod read;
pub mod request;
pub mod response;
pub mod schema;
mod topic;
mod write;

pub use kafka_protocol::messages;
pub use kafka_protocol::protocol::StrBytes;
pub use read::Malformed;
pub use topic::{CurrentLeader, NodeEndpoint, TopicRef};
pub use write::EncodeError;
