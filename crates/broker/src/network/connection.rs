//! One connection: frames in, answers out, in order.
//!
//! Two halves run side by side. The reading half takes one request after the other and handles it; an answer
//! that must wait (a produce that isn't durable yet) is handed on as a future, so that the next request is read
//! meanwhile. The writing half awaits the answers in the order of the requests and writes them.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;

use bytes::{Buf, Bytes, BytesMut};
use futures::FutureExt;
use tidegate_kafka_wire::frame::{FrameError, FrameReader, Step};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tracing::{debug, info};

use super::admission::{Admission, Admitted};
use super::dispatch::{Dispatcher, Handled};
use super::listener::NetworkLimits;
use super::throttle::mute;
use crate::principal::Principal;
use crate::quotas::Asker;

/// An answer on its way: the pieces of one response frame. `None` for requests that have no answer.
pub(super) type Answer = Pin<Box<dyn Future<Output = Option<Vec<Bytes>>> + Send>>;

/// What the writing half has to do next.
pub(super) enum Outgoing {
    Ready(Vec<Bytes>),
    Later(Answer),
}

/// Pieces written by one system call at most.
const SLICES: usize = 64;

/// Read at once at most: what a connection may hold that isn't admitted yet.
const READ_BYTES: usize = 64 << 10;

/// Why a connection ended, if not because the client closed it.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("the client closed the connection")]
    ByClient,
    #[error("it was idle")]
    Idle,
    #[error("a request didn't arrive whole in time")]
    Stalled,
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the request can't be answered")]
    Refused,
}

/// Serves a connection until it ends.
pub(super) async fn run(
    stream: TcpStream,
    peer: SocketAddr,
    dispatcher: &Dispatcher,
    admission: &Admission,
    limits: &NetworkLimits,
) {
    let (reading, writing) = stream.into_split();
    let (outgoing, answers) = mpsc::channel(limits.pipelined);
    let mut client = ClientInfo {
        peer,
        id: None,
        principal: Principal::anonymous(),
        muted_until: None,
    };
    // The writing half ends when the reading half has dropped its sender and all answers are written, or at once
    // when the client no longer reads. Cancel-safe: both are dropped with the connection.
    let read = read_requests(
        reading,
        outgoing,
        dispatcher,
        admission,
        limits,
        &mut client,
    );
    let write = write_answers(writing, answers);
    tokio::pin!(write);
    let ended = tokio::select! {
        ended = read => {
            // What was appended is still answered.
            let _ = timeout(limits.frame_timeout, &mut write).await;
            ended
        }
        written = &mut write => match written {
            Ok(()) => Ended::ByClient,
            Err(error) => Ended::Io(error),
        },
    };
    match ended {
        Ended::ByClient | Ended::Idle | Ended::Refused => {
            debug!(peer = %peer, reason = %ended, "connection closed")
        }
        Ended::Stalled | Ended::Frame(_) => {
            dispatcher.metrics().connections_broken.inc();
            info!(peer = %peer, client_id = client.id.as_deref().unwrap_or(""), reason = %ended, "connection closed");
        }
        Ended::Io(error) => {
            debug!(peer = %peer, error = &error as &dyn std::error::Error, "connection lost")
        }
    }
}

/// Who is at the other end.
pub(super) struct ClientInfo {
    pub(super) peer: SocketAddr,
    pub(super) id: Option<Box<str>>,
    pub(super) principal: Principal,
    /// It is over a quota: no further request is read until then.
    pub(super) muted_until: Option<Instant>,
}

impl ClientInfo {
    /// As quotas know it.
    pub(super) fn asker(&self) -> Asker<'_> {
        Asker {
            user: self.principal.name(),
            client_id: self.id.as_deref().unwrap_or_default(),
        }
    }
}

async fn read_requests(
    mut socket: OwnedReadHalf,
    outgoing: mpsc::Sender<Outgoing>,
    dispatcher: &Dispatcher,
    admission: &Admission,
    limits: &NetworkLimits,
    client: &mut ClientInfo,
) -> Ended {
    let mut frames = FrameReader::new(limits.frame);
    loop {
        let (frame, admitted) = match next_frame(&mut socket, &mut frames, admission, limits).await
        {
            Ok(frame) => frame,
            Err(ended) => return ended,
        };
        let handled = dispatcher.handle(frame, client).await;
        drop(admitted);
        frames.trust();
        let sent = match handled {
            Handled::Answer(pieces) => outgoing.send(Outgoing::Ready(pieces)).await,
            Handled::Later(answer) => outgoing.send(Outgoing::Later(answer)).await,
            Handled::NoAnswer => Ok(()),
            Handled::Close => return Ended::Refused,
        };
        if sent.is_err() {
            return Ended::ByClient;
        }
        if let Some(until) = client.muted_until.take() {
            let muted = mute(&mut socket, until, dispatcher.clock(), dispatcher.muted());
            if muted.await.is_err() {
                return Ended::ByClient;
            }
        }
    }
}

/// Reads one frame. What has arrived of it is admitted before more is read, so that too many large requests wait in
/// the kernel's buffers instead of ours.
async fn next_frame(
    socket: &mut OwnedReadHalf,
    frames: &mut FrameReader,
    admission: &Admission,
    limits: &NetworkLimits,
) -> Result<(BytesMut, Admitted), Ended> {
    let mut admitted = Admitted::default();
    loop {
        let arrived = frames.arrived_bytes();
        if let Some(bytes) = arrived {
            admission.cover(&mut admitted, bytes).await;
        }
        match frames.step()? {
            Step::Frame(frame) => {
                admission.cover(&mut admitted, frame.len()).await;
                return Ok((frame, admitted));
            }
            Step::Read(mut target) => {
                target.set_limit(target.limit().min(READ_BYTES));
                let (patience, late) = match arrived {
                    Some(_) => (limits.frame_timeout, Ended::Stalled),
                    None => (limits.idle, Ended::Idle),
                };
                match timeout(patience, socket.read_buf(&mut target)).await {
                    Ok(Ok(0)) => return Err(Ended::ByClient),
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => return Err(error.into()),
                    Err(_) => return Err(late),
                }
            }
        }
    }
}

async fn write_answers(
    mut socket: OwnedWriteHalf,
    mut answers: mpsc::Receiver<Outgoing>,
) -> io::Result<()> {
    while let Some(next) = answers.recv().await {
        let mut pieces = VecDeque::new();
        match next {
            Outgoing::Ready(answer) => pieces.extend(answer),
            Outgoing::Later(answer) => pieces.extend(answer.await.into_iter().flatten()),
        }
        // Answers that are ready as well go out by the same system call: what one sync made durable, for example.
        while pieces.len() < SLICES
            && let Ok(next) = answers.try_recv()
        {
            match next {
                Outgoing::Ready(answer) => pieces.extend(answer),
                Outgoing::Later(mut answer) => match (&mut answer).now_or_never() {
                    Some(answer) => pieces.extend(answer.into_iter().flatten()),
                    None => {
                        write_pieces(&mut socket, &mut pieces).await?;
                        pieces.extend(answer.await.into_iter().flatten());
                    }
                },
            }
        }
        write_pieces(&mut socket, &mut pieces).await?;
    }
    socket.shutdown().await
}

async fn write_pieces(socket: &mut OwnedWriteHalf, pieces: &mut VecDeque<Bytes>) -> io::Result<()> {
    while !pieces.is_empty() {
        let mut written = {
            let slices: Vec<IoSlice<'_>> = pieces
                .iter()
                .take(SLICES)
                .map(|p| IoSlice::new(p))
                .collect();
            socket.write_vectored(&slices).await?
        };
        if written == 0 && pieces.iter().any(|p| !p.is_empty()) {
            return Err(io::ErrorKind::WriteZero.into());
        }
        while let Some(front) = pieces.front_mut() {
            if front.len() > written {
                front.advance(written);
                break;
            }
            written -= front.len();
            pieces.pop_front();
        }
    }
    Ok(())
}
