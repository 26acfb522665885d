//! The requests between brokers, over gRPC with MessagePack messages (ADR 0010).
//!
//! One port per broker serves, to the other brokers: the controller's interface, sessions and administration while
//! this broker is the controller ([`ActiveController`]), orders and tails always ([`LocalBroker`]).
//!
//! Promises:
//! * a caller learns whether nothing was carried out or whether that isn't known;
//! * a call that a server has begun is carried out to its end, also when the caller is gone;
//! * connections, streams, calls and messages are limited; what isn't this protocol costs a closed connection;
//! * heartbeats, calls, orders and tails have a connection each and don't wait for each other;
//! * a method or a variant that the other side's version doesn't know is named in a sentence with that version.
//!
//! It deliberately doesn't know: what the requests mean, when to ask again, and who the controller is.

mod client;
mod codec;
mod methods;
mod metrics;
mod server;
#[cfg(test)]
mod tests;
mod wire;

pub use client::{
    ClientOptions, Connections, Deadlines, RemoteAdmin, RemoteController, RemotePeers,
    RemoteSessionHost,
};
pub use metrics::RpcMetrics;
pub use server::{ActiveController, LocalBroker, ServerOptions, Services, serve};

/// The largest message either way. A followed batch, a commit and a picture of the cluster must fit.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;
