//! What the end-to-end tests stand on: real processes, a real S3 server, faults, and a raw Kafka client.
//!
//! * [`Broker`] runs the real `tidegate` binary (or, with `TIDEGATE_TEST_TARGET=kafka`, an Apache Kafka broker, so
//!   that a test's expectation can be proven by Kafka itself), and kills, pauses, stops and restarts it.
//! * [`S3Server`] runs versitygw on loopback; [`FaultProxy`] stands between a broker and it and misbehaves by rule;
//!   [`CredentialService`] hands out credentials that expire.
//! * [`RawClient`] sends any request at any version, or bytes that no client would send; [`TestBatch`] builds and
//!   [`decode_batches`] reads record batches with code of its own, so that no test checks the product with itself.
//! * [`Tools`] finds what `cargo xtask tools` installed.
//!
//! It doesn't know any crate of the product: it talks to the binary from outside, as a user does.

mod batch;
mod broker;
mod cluster;
mod connect;
mod credentials;
mod fault_proxy;
mod http;
mod kafka;
mod options;
mod ports;
mod process;
mod s3;
mod scratch;
mod tools;
mod wire;

pub use batch::{DecodedBatch, DecodedRecord, TestBatch, TestCodec, TestRecord, decode_batches};
pub use broker::{Broker, tidegate_binary};
pub use cluster::Cluster;
pub use connect::ConnectWorker;
pub use credentials::CredentialService;
pub use fault_proxy::{Action, FaultProxy, LoggedRequest, Operation, RuleId, S3Request};
pub use http::{HttpResponse, http_get, http_post};
pub use options::{BrokerOptions, Durability, Setting, Store, Target};
pub use ports::free_port;
pub use process::Process;
pub use s3::S3Server;
pub use tools::Tools;
pub use wire::RawClient;

use std::time::{Duration, Instant};

/// Asks `condition` every 50 ms until it answers `Some`, or fails naming what was waited for.
pub fn wait_for<T>(
    what: &str,
    timeout: Duration,
    mut condition: impl FnMut() -> Option<T>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(value) = condition() {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            anyhow::bail!("waited {timeout:?} for {what}, in vain");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
