//! One connection: requests go out as they come, answers come back in the same order.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::{RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use tidegate_runtime::{OnExit, Tasks};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// The first answer that is due may take so long. Longer than any wait that a request asks for.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Requests that may be under way.
const IN_FLIGHT: usize = 64;
/// The longest answer.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// There is no answer, and there won't be one: whether the request was carried out isn't known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the connection ended before the answer")]
pub struct Lost;

#[derive(Debug)]
struct Call {
    correlation_id: i32,
    /// With its length in front.
    frame: Bytes,
    answer: oneshot::Sender<Bytes>,
}

/// A handle; clones share the connection. It ends when a request isn't answered, or with the last handle.
#[derive(Debug, Clone)]
pub struct Connection {
    calls: mpsc::Sender<Call>,
    next_correlation_id: Arc<AtomicI32>,
}

impl Connection {
    /// Begins to connect to host:port, and doesn't wait.
    pub fn open(address: String, tasks: &Tasks) -> Self {
        let (calls, waiting) = mpsc::channel(IN_FLIGHT);
        let token = tasks.token().clone();
        tasks.spawn("kafka connection", OnExit::Expected, async move {
            // Cancel-safe: a connection that ends in the middle of anything is just lost.
            tokio::select! {
                () = token.cancelled() => {}
                () = run(address, waiting) => {}
            }
        });
        Self {
            calls,
            next_correlation_id: Arc::default(),
        }
    }

    /// Whether it may still carry requests.
    pub fn is_open(&self) -> bool {
        !self.calls.is_closed()
    }

    /// Sends a request and waits for its answer.
    pub async fn call<R: Request>(&self, version: i16, request: &R) -> Result<R::Response, Lost> {
        let correlation_id = self.next_correlation_id.fetch_add(1, Ordering::Relaxed);
        let frame = encode(version, correlation_id, request).map_err(|_| Lost)?;
        let (answer, answered) = oneshot::channel();
        let call = Call {
            correlation_id,
            frame,
            answer,
        };
        self.calls.send(call).await.map_err(|_| Lost)?;
        let mut frame = answered.await.map_err(|_| Lost)?;
        let header = R::Response::header_version(version);
        ResponseHeader::decode(&mut frame, header).map_err(|_| Lost)?;
        R::Response::decode(&mut frame, version).map_err(|_| Lost)
    }
}

fn encode<R: Request>(
    version: i16,
    correlation_id: i32,
    request: &R,
) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>> {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(correlation_id)
        .with_client_id(Some(StrBytes::from_static_str("tidegate-demo")));
    let mut frame = BytesMut::zeroed(4);
    header.encode(&mut frame, R::header_version(version))?;
    request.encode(&mut frame, version)?;
    let length = u32::try_from(frame.len() - 4)?;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    Ok(frame.freeze())
}

async fn run(address: String, calls: mpsc::Receiver<Call>) {
    let connected = tokio::time::timeout(CONNECT_LIMIT, TcpStream::connect(address)).await;
    let Ok(Ok(stream)) = connected else {
        return;
    };
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let (read, write) = stream.into_split();
    let (sent, due) = mpsc::channel(IN_FLIGHT);
    // Cancel-safe: when one half ends, the connection does.
    tokio::select! {
        () = send(write, calls, sent) => {}
        () = receive(read, due) => {}
    }
}

async fn send(
    mut stream: OwnedWriteHalf,
    mut calls: mpsc::Receiver<Call>,
    sent: mpsc::Sender<(i32, oneshot::Sender<Bytes>)>,
) {
    while let Some(call) = calls.recv().await {
        if sent.send((call.correlation_id, call.answer)).await.is_err() {
            return;
        }
        if stream.write_all(&call.frame).await.is_err() {
            return;
        }
    }
}

async fn receive(
    mut stream: OwnedReadHalf,
    mut due: mpsc::Receiver<(i32, oneshot::Sender<Bytes>)>,
) {
    while let Some((correlation_id, answer)) = due.recv().await {
        let read = tokio::time::timeout(ANSWER_LIMIT, frame(&mut stream)).await;
        let Ok(Some(frame)) = read else {
            return;
        };
        if (&frame[..]).get_i32() != correlation_id {
            return;
        }
        // Who doesn't wait any more doesn't want to know.
        let _ = answer.send(frame);
    }
}

/// One frame, at least as long as a correlation id.
async fn frame(stream: &mut OwnedReadHalf) -> Option<Bytes> {
    let length = usize::try_from(stream.read_i32().await.ok()?).ok()?;
    if !(4..=MAX_ANSWER_BYTES).contains(&length) {
        return None;
    }
    let mut frame = BytesMut::zeroed(length);
    stream.read_exact(&mut frame).await.ok()?;
    Some(frame.freeze())
}
