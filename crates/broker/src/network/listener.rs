//! Accepting connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tidegate_kafka_wire::bounds::DecodeLimits;
use tidegate_kafka_wire::frame::FrameLimits;
use tidegate_runtime::{OnExit, Tasks};
use tokio::net::{TcpListener, TcpStream};
use tracing::{debug, warn};

use super::admission::Admission;
use super::connection;
use super::dispatch::Dispatcher;

/// Pending connections that the kernel keeps.
const BACKLOG: i32 = 1024;

/// Limits of the listener.
#[derive(Debug, Clone, Copy)]
pub struct NetworkLimits {
    pub frame: FrameLimits,
    pub decode: DecodeLimits,
    /// Memory of all requests that are being read or handled (`queued.max.request.bytes`).
    pub request_bytes: usize,
    /// Connections at once; further ones are closed at once (`max.connections`).
    pub connections: usize,
    /// A connection without a request for so long is closed (`connections.max.idle.ms`).
    pub idle: Duration,
    /// A request that has begun must arrive whole within this time.
    pub frame_timeout: Duration,
    /// Answers of one connection that may be outstanding.
    pub pipelined: usize,
}

/// The address can't be listened on.
#[derive(Debug, thiserror::Error)]
#[error("can't listen on {address}")]
pub struct ListenError {
    pub address: SocketAddr,
    pub source: io::Error,
}

/// A bound port. Connections wait in the kernel until [`Listener::serve`].
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    pub fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        let open = || {
            let socket = Socket::new(
                Domain::for_address(address),
                Type::STREAM,
                Some(Protocol::TCP),
            )?;
            // A broker that restarts takes its port back at once; two live ones still can't share it.
            socket.set_reuse_address(true)?;
            socket.set_nonblocking(true)?;
            socket.bind(&address.into())?;
            socket.listen(BACKLOG)?;
            let socket = TcpListener::from_std(socket.into())?;
            let address = socket.local_addr()?;
            Ok(Self { socket, address })
        };
        open().map_err(|source| ListenError { address, source })
    }

    /// The address in use: its port is a real one also if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves connections until the tasks are cancelled.
    pub(crate) async fn serve(
        self,
        dispatcher: Arc<Dispatcher>,
        limits: NetworkLimits,
        tasks: Tasks,
    ) {
        let admission = Admission::new(limits.request_bytes);
        let open = Arc::new(AtomicUsize::new(0));
        let token = tasks.token().clone();
        loop {
            // Cancel-safe: a connection that wasn't accepted stays in the kernel's queue.
            let accepted = tokio::select! {
                () = token.cancelled() => return,
                accepted = self.socket.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors or memory: it passes; don't spin on it.
                    warn!(
                        error = &error as &dyn std::error::Error,
                        "a connection can't be accepted"
                    );
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            if open.load(Ordering::Relaxed) >= limits.connections {
                debug!(peer = %peer, limit = limits.connections, "connection closed: too many are open");
                dispatcher.metrics().connections_refused.inc();
                continue;
            }
            let throttle = dispatcher.connected(peer.ip());
            if !throttle.is_zero() {
                debug!(peer = %peer, throttle_ms = throttle.as_millis(), "connection over its address's quota");
                let counted = Counted::new(&dispatcher, &open);
                tasks.spawn("throttled-connection", OnExit::Expected, async move {
                    // Closed at once it would only come back at once.
                    tokio::time::sleep(throttle).await;
                    drop((stream, counted));
                });
                continue;
            }
            self.spawn(stream, peer, &dispatcher, &admission, &open, limits, &tasks);
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one call site; a struct would only rename the arguments"
    )]
    fn spawn(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        dispatcher: &Arc<Dispatcher>,
        admission: &Admission,
        open: &Arc<AtomicUsize>,
        limits: NetworkLimits,
        tasks: &Tasks,
    ) {
        if let Err(error) = stream.set_nodelay(true) {
            debug!(peer = %peer, error = &error as &dyn std::error::Error, "connection is gone already");
            return;
        }
        let counted = Counted::new(dispatcher, open);
        let admission = admission.clone();
        tasks.spawn("connection", OnExit::Expected, async move {
            // Boxed, since it holds the largest request's handler.
            let run = connection::run(stream, peer, &counted.dispatcher, &admission, &limits);
            Box::pin(run).await;
        });
    }
}

/// One open connection, counted until it is dropped, also by a panic.
struct Counted {
    dispatcher: Arc<Dispatcher>,
    open: Arc<AtomicUsize>,
}

impl Counted {
    fn new(dispatcher: &Arc<Dispatcher>, open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        dispatcher.metrics().connections.inc();
        Self {
            dispatcher: dispatcher.clone(),
            open: open.clone(),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.dispatcher.metrics().connections.dec();
    }
}
