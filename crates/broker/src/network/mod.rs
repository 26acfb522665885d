//! The Kafka listener: connections, frames, order of answers.

mod admission;
mod connection;
mod dispatch;
mod listener;
mod throttle;

pub(crate) use dispatch::Dispatcher;
pub use listener::{ListenError, Listener, NetworkLimits};
