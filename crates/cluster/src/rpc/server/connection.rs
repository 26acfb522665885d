//! A connection that another broker, or anybody, has opened.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use prometheus_client::metrics::gauge::Gauge;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

use super::ServerOptions;
use crate::rpc::metrics::Counted;

/// How many bytes HTTP/2 begins with: who hasn't sent as many is nobody we know.
const PREFACE_BYTES: usize = 24;

/// How long to wait when the operating system can't give a connection: it is out of descriptors or memory.
const AFTER_ACCEPT_ERROR: Duration = Duration::from_millis(100);

/// Takes connections, as many as are allowed at a time.
pub(super) fn accept(
    listener: TcpListener,
    options: ServerOptions,
    gauge: Gauge,
    cut: CancellationToken,
) -> impl Stream<Item = Result<Connection, Infallible>> {
    let slots = Arc::new(Semaphore::new(options.connections));
    futures::stream::unfold(listener, move |listener| {
        let (slots, gauge, cut) = (Arc::clone(&slots), gauge.clone(), cut.clone());
        async move {
            // Closed never: nobody closes it.
            let slot = slots.acquire_owned().await.ok()?;
            let stream = loop {
                match listener.accept().await {
                    Ok((stream, _)) => break stream,
                    Err(error) => {
                        tracing::warn!(%error, "a connection of another broker can't be taken");
                        tokio::time::sleep(AFTER_ACCEPT_ERROR).await;
                    }
                }
            };
            // Only latency is at stake.
            let _ = stream.set_nodelay(true);
            let connection = Connection {
                stream,
                cut: Box::pin(cut.cancelled_owned()),
                greeting: Some(Greeting {
                    missing: PREFACE_BYTES,
                    deadline: Box::pin(tokio::time::sleep(options.greeting)),
                }),
                _slot: slot,
                _counted: Counted::new(&gauge),
            };
            Some((Ok(connection), listener))
        }
    })
}

/// A TCP connection that is closed if it doesn't speak soon, or when the server is cut off.
pub(super) struct Connection {
    stream: TcpStream,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    greeting: Option<Greeting>,
    _slot: OwnedSemaphorePermit,
    _counted: Counted,
}

struct Greeting {
    missing: usize,
    deadline: Pin<Box<Sleep>>,
}

impl Connection {
    /// Registers for the cut, too.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.cut.as_mut().poll(context).is_ready() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if let Some(greeting) = &mut self.greeting
            && greeting.deadline.as_mut().poll(context).is_ready()
        {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    fn heard(&mut self, bytes: usize) {
        if let Some(greeting) = &mut self.greeting {
            greeting.missing = greeting.missing.saturating_sub(bytes);
            if greeting.missing == 0 {
                self.greeting = None;
            }
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.heard(buffer.filled().len() - before);
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}
