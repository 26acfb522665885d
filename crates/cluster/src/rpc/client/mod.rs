//! Asks other brokers: connections that are kept and made anew as needed, and the implementations of the traits
//! over them.

mod admin;
mod controller;
mod failure;
mod orders;
mod peers;
mod queries;
mod session;
mod tails;
mod transactions;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_metadata::{Endpoint, ImageVersion};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint as Target};
use tonic::{Request, Streaming};

pub use self::admin::RemoteAdmin;
pub use self::controller::RemoteController;
use self::failure::CallFailed;
pub use self::peers::RemotePeers;
pub use self::session::RemoteSessionHost;
use super::codec::{Incoming, MessagePack, Outgoing};
use super::wire::image_of;
use super::{MAX_MESSAGE_BYTES, RpcMetrics};

/// How long answers are waited for. The work may go on at the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// The controller's answers.
    pub controller: Duration,
    /// The answers of the administration, beyond what the request itself allows to wait.
    pub admin: Duration,
    /// `prepare`: must be longer than the controller's own patience.
    pub prepare: Duration,
    /// All other orders.
    pub order: Duration,
    /// The first answer of a session or a followed tail.
    pub open: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            controller: Duration::from_secs(30),
            admin: Duration::from_secs(15),
            prepare: Duration::from_secs(40),
            order: Duration::from_secs(10),
            open: Duration::from_secs(5),
        }
    }
}

/// How to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientOptions {
    /// How long connecting may take.
    pub connect: Duration,
    /// A connection on which nothing was heard is asked for a sign after this time, and is given as much again.
    pub keepalive: Duration,
    /// How long answers are waited for.
    pub deadlines: Deadlines,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(1),
            keepalive: Duration::from_secs(5),
            deadlines: Deadlines::default(),
        }
    }
}

/// What has a connection of its own to each broker, so that nothing waits behind something larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Lane {
    Session,
    Calls,
    Orders,
    Tails,
}

/// The most connections kept; the least recently used one goes first. Calls that run on it keep it until they end.
const KEPT: usize = 1_024;

/// What one connection may send before anything of it was read, in bytes. A follower that stops reading stops its
/// own stream after [`STREAM_WINDOW`] of them, so it takes 256 such followers to hold up the others.
const CONNECTION_WINDOW: u32 = 64 << 20;

/// What one stream may send before anything of it was read, in bytes.
const STREAM_WINDOW: u32 = 256 << 10;

/// The connections of this process to other brokers. Clones share them.
#[derive(Clone)]
pub struct Connections(Arc<Shared>);

struct Shared {
    options: ClientOptions,
    metrics: RpcMetrics,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    uses: u64,
    channels: HashMap<(Endpoint, Lane), (Channel, u64)>,
}

/// An answer, with the version of the controller's picture that shows its effect.
struct Answer {
    message: Incoming,
    image: Option<ImageVersion>,
}

impl Connections {
    /// Connects to nobody yet.
    pub fn new(options: ClientOptions, metrics: RpcMetrics) -> Self {
        Self(Arc::new(Shared {
            options,
            metrics,
            kept: Mutex::default(),
        }))
    }

    fn deadlines(&self) -> Deadlines {
        self.0.options.deadlines
    }

    fn channel(&self, endpoint: &Endpoint, lane: Lane) -> Result<Channel, CallFailed> {
        let mut kept = self.0.kept.lock();
        kept.uses += 1;
        let now = kept.uses;
        let key = (endpoint.clone(), lane);
        if let Some((channel, used)) = kept.channels.get_mut(&key) {
            *used = now;
            return Ok(channel.clone());
        }
        let channel = self.target(endpoint)?.connect_lazy();
        if kept.channels.len() >= KEPT {
            let oldest = kept.channels.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                kept.channels.remove(&oldest);
            }
        }
        kept.channels.insert(key, (channel.clone(), now));
        Ok(channel)
    }

    fn target(&self, endpoint: &Endpoint) -> Result<Target, CallFailed> {
        let options = self.0.options;
        let Endpoint { host, port } = endpoint;
        // An IPv6 address stands in brackets in a URI.
        let uri = if host.contains(':') && !host.starts_with('[') {
            format!("http://[{host}]:{port}")
        } else {
            format!("http://{host}:{port}")
        };
        let target = Target::from_shared(uri)
            .map_err(|error| CallFailed::NotSent(format!("{host}:{port}: {error}")))?;
        Ok(target
            .connect_timeout(options.connect)
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .http2_keep_alive_interval(options.keepalive)
            .keep_alive_timeout(options.keepalive))
    }

    async fn grpc(&self, endpoint: &Endpoint, lane: Lane) -> Result<Grpc<Channel>, CallFailed> {
        let mut grpc = Grpc::new(self.channel(endpoint, lane)?)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        // Fails only if the connection's task is gone; nothing was handed to it.
        grpc.ready()
            .await
            .map_err(|error| CallFailed::NotSent(error.to_string()))?;
        Ok(grpc)
    }

    /// One message each way.
    async fn call(
        &self,
        endpoint: &Endpoint,
        lane: Lane,
        path: &'static str,
        message: Outgoing,
        deadline: Duration,
    ) -> Result<Answer, CallFailed> {
        let call = async {
            let mut grpc = self.grpc(endpoint, lane).await?;
            let path = PathAndQuery::from_static(path);
            let answered = grpc.unary(Request::new(message), path, MessagePack);
            answered.await.map_err(|status| CallFailed::of(&status))
        };
        let answered = self.in_time(endpoint, path, deadline, call).await?;
        Ok(Answer {
            image: image_of(answered.metadata()),
            message: answered.into_inner(),
        })
    }

    /// One message each way, read as `R`.
    async fn ask<R: DeserializeOwned>(
        &self,
        endpoint: &Endpoint,
        lane: Lane,
        path: &'static str,
        request: impl Serialize + Send + Sync + 'static,
        deadline: Duration,
    ) -> Result<(R, Option<ImageVersion>), CallFailed> {
        let answer = self
            .call(endpoint, lane, path, Outgoing::new(request), deadline)
            .await?;
        let read = answer.message.decode().map_err(|error| {
            let failed = CallFailed::undecodable(path, &error);
            self.failed(endpoint, path, &failed);
            failed
        })?;
        Ok((read, answer.image))
    }

    /// Messages each way; answers when the first of theirs can be waited for.
    async fn stream(
        &self,
        endpoint: &Endpoint,
        lane: Lane,
        path: &'static str,
        messages: impl Stream<Item = Outgoing> + Send + 'static,
    ) -> Result<Streaming<Incoming>, CallFailed> {
        let mut grpc = self.grpc(endpoint, lane).await?;
        let path = PathAndQuery::from_static(path);
        let answered = grpc.streaming(Request::new(messages), path, MessagePack);
        match answered.await {
            Ok(answers) => Ok(answers.into_inner()),
            Err(status) => Err(CallFailed::of(&status)),
        }
    }

    async fn in_time<T>(
        &self,
        endpoint: &Endpoint,
        path: &'static str,
        deadline: Duration,
        call: impl Future<Output = Result<T, CallFailed>>,
    ) -> Result<T, CallFailed> {
        let result = tokio::time::timeout(deadline, call)
            .await
            .unwrap_or(Err(CallFailed::TimedOut));
        if let Err(failed) = &result {
            self.failed(endpoint, path, failed);
        }
        result
    }

    fn failed(&self, endpoint: &Endpoint, path: &'static str, failed: &CallFailed) {
        self.0.metrics.calls_failed.inc();
        let Endpoint { host, port } = endpoint;
        match failed {
            // The errors of the traits can't all carry the sentence, so it is said here.
            CallFailed::Unsupported(_) | CallFailed::Undecodable(_) | CallFailed::Malformed(_) => {
                tracing::warn!(%failed, host, port, path, "another broker's version doesn't fit");
            }
            CallFailed::NotSent(_)
            | CallFailed::Broken(_)
            | CallFailed::TimedOut
            | CallFailed::NotController { .. }
            | CallFailed::Busy
            | CallFailed::NotServing => {
                tracing::debug!(%failed, host, port, path, "a call to another broker failed");
            }
        }
    }
}

/// The next message of a stream, read as `R`. `None`: the stream has ended in order.
async fn next<R: DeserializeOwned>(
    path: &'static str,
    messages: &mut Streaming<Incoming>,
) -> Result<Option<R>, CallFailed> {
    match messages.message().await {
        Ok(None) => Ok(None),
        Ok(Some(message)) => match message.decode() {
            Ok(read) => Ok(Some(read)),
            Err(error) => Err(CallFailed::undecodable(path, &error)),
        },
        Err(status) => Err(CallFailed::of(&status)),
    }
}
