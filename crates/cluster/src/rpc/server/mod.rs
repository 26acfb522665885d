//! Serves what other brokers may ask of this one.

mod connection;
mod dispatch;
mod streams;

use std::sync::Arc;
use std::time::Duration;

use tidegate_metadata::{ClusterImage, ControllerApi, Endpoint};
use tidegate_runtime::{OnExit, Tasks};
use tidegate_types::BrokerId;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use self::dispatch::{Inner, Rpc};
use super::RpcMetrics;
use crate::admin::ClusterAdmin;
use crate::orders::{BrokerOrders, TailSource};
use crate::queries::BrokerQueries;
use crate::session::SessionHost;
use crate::transactions::BrokerTransactions;

/// How long streams and calls have to end at a shutdown before their connections are cut.
const CLOSING: Duration = Duration::from_millis(500);

/// The controller that runs in this process.
pub struct ActiveController {
    /// Its requests.
    pub api: Arc<dyn ControllerApi>,
    /// Its sessions.
    pub sessions: Arc<dyn SessionHost>,
    /// Its administration.
    pub admin: Arc<dyn ClusterAdmin>,
    /// Its picture of the cluster: every answer names the version that it has then.
    pub images: watch::Receiver<Arc<ClusterImage>>,
}

/// The logs of this process.
pub struct LocalBroker {
    /// Takes the controller's orders.
    pub orders: Arc<dyn BrokerOrders>,
    /// Gives tails to followers.
    pub tails: Arc<dyn TailSource>,
    /// Answers about this broker.
    pub queries: Arc<dyn BrokerQueries>,
    /// Does this broker's part in transactions.
    pub transactions: Arc<dyn BrokerTransactions>,
}

/// What is served; each part may come and go.
#[derive(Clone)]
pub struct Services {
    /// The controller, while this process is it.
    pub controller: watch::Receiver<Option<Arc<ActiveController>>>,
    /// Whom this broker takes for the controller: told to those who ask the wrong one.
    pub known_controller: watch::Receiver<Option<(BrokerId, Endpoint)>>,
    /// The logs, once they are there.
    pub broker: watch::Receiver<Option<Arc<LocalBroker>>>,
}

/// Limits of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerOptions {
    /// Connections at a time; more wait in the listen queue.
    pub connections: usize,
    /// Streams of one connection at a time, followed tails among them.
    pub streams_per_connection: u32,
    /// Calls carried out at a time, of each kind: of the controller, orders, questions about this broker.
    pub calls: usize,
    /// Calls carried out at a time whose messages may be up to [`super::MAX_MESSAGE_BYTES`]: commits.
    pub large_calls: usize,
    /// The largest message of all other calls.
    pub call_bytes: usize,
    /// Sessions and followed tails at a time, of each kind.
    pub streams: usize,
    /// How long a call waits when as many as allowed are being carried out, before it is refused.
    pub wait: Duration,
    /// How long a new connection has for its first words, and a session for its hello.
    pub greeting: Duration,
    /// A connection on which nothing was heard is asked for a sign after this time, and is given as much again.
    pub keepalive: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            connections: 1_024,
            streams_per_connection: 4_096,
            calls: 256,
            large_calls: 8,
            call_bytes: 4 << 20,
            streams: 16_384,
            wait: Duration::from_secs(2),
            greeting: Duration::from_secs(5),
            keepalive: Duration::from_secs(10),
        }
    }
}

/// Serves until `tasks` is cancelled: then no connection is taken any more, streams end, calls are given up, and what
/// is still open after half a second is cut.
pub fn serve(
    listener: TcpListener,
    services: Services,
    options: ServerOptions,
    metrics: RpcMetrics,
    tasks: &Tasks,
) {
    let token = tasks.token().clone();
    let inner = Arc::new(Inner::new(
        services,
        options,
        metrics.clone(),
        tasks.clone(),
    ));
    tasks.spawn("rpc server", OnExit::StopProcess, async move {
        let cut = CancellationToken::new();
        let connections =
            connection::accept(listener, options, metrics.connections.clone(), cut.clone());
        let server = Server::builder()
            .max_concurrent_streams(options.streams_per_connection)
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(16 << 20)
            .http2_keepalive_interval(Some(options.keepalive))
            .http2_keepalive_timeout(Some(options.keepalive))
            .http2_max_header_list_size(16 << 10)
            // Who drops many tails at once isn't an attacker.
            .http2_max_pending_accept_reset_streams(Some(options.streams_per_connection as usize));
        let serving = server.serve_with_incoming_shutdown(
            Rpc::new(inner),
            connections,
            token.clone().cancelled_owned(),
        );
        let cutting = async {
            token.cancelled().await;
            tokio::time::sleep(CLOSING).await;
            cut.cancel();
            std::future::pending::<()>().await
        };
        tokio::select! {
            served = serving => if let Err(error) = served {
                tracing::error!(%error, "the server for other brokers ended");
            },
            () = cutting => {}
        }
    });
}
