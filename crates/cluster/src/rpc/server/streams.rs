//! The two methods that are streams: a followed tail and a session.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream;
use tidegate_runtime::OnExit;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::{Response, Status, Streaming};

use super::dispatch::{Admitted, Answers, Inner, read, single};
use crate::orders::{FollowError, FollowRequest};
use crate::rpc::codec::{Incoming, Outgoing};
use crate::rpc::wire::{Down, Refusal, TailMessage, Up};
use crate::session::{Heartbeat, Hello, HelloRefused, OpenSession};

/// Serves a tail until it ends, the follower leaves, or this server stops.
pub(super) async fn follow(
    inner: Arc<Inner>,
    path: String,
    admitted: Admitted,
    mut messages: Streaming<Incoming>,
) -> Result<Response<Answers>, Status> {
    let broker = inner.broker().map_err(Refusal::into_status)?;
    let message = single(&path, &mut messages).await?;
    let request: FollowRequest = read(&path, &message)?;
    let tail = match broker.tails.follow(request).await {
        Ok(tail) => tail,
        Err(refused) => return Ok(only(TailMessage::Ended(refused).into_outgoing())),
    };
    let items = tail.map(|item| match item {
        Ok(item) => TailMessage::Item(item),
        Err(error) => TailMessage::Ended(error),
    });
    let stopping = inner.tasks.token().clone();
    let stopped = stopping.clone();
    // Where the server stops, the follower shall know that the tail isn't at its end.
    let last_words = stream::once(async move {
        stopped.is_cancelled().then(|| {
            TailMessage::Ended(FollowError::Unreachable(
                "the source is stopping".to_owned(),
            ))
        })
    })
    .filter_map(std::future::ready);
    let answers = stream::iter([TailMessage::Opened])
        .chain(items)
        .take_until(stopping.cancelled_owned())
        .chain(last_words)
        .map(move |message| {
            let _held = &admitted;
            Ok(message.into_outgoing())
        });
    Ok(Response::new(answers.boxed()))
}

/// Serves a session: heartbeats go up in a task of their own, so that they arrive also while the broker is slow to
/// take the feed.
pub(super) async fn session(
    inner: Arc<Inner>,
    path: String,
    admitted: Admitted,
    mut messages: Streaming<Incoming>,
) -> Result<Response<Answers>, Status> {
    let greeting = tokio::time::timeout(inner.options.greeting, single(&path, &mut messages));
    let message = greeting
        .await
        .map_err(|_| Status::deadline_exceeded("no hello came"))??;
    let hello = match read::<Up>(&path, &message)? {
        Up::Hello(hello) => hello,
        Up::Heartbeat(_) => {
            return Err(Refusal::Malformed("a session must begin with hello".into()).into_status());
        }
    };
    let OpenSession {
        welcome,
        heartbeats,
        feed,
    } = match open(&inner, hello).await {
        Ok(session) => session,
        Err(refused) => return Ok(only(Outgoing::new(Down::Refused(refused)))),
    };
    let over = CancellationToken::new();
    let stopping = inner.tasks.token().clone();
    let pump = pump(messages, heartbeats, over.clone());
    inner.tasks.spawn("session heartbeats", OnExit::Expected, {
        let stopping = stopping.clone();
        async move {
            tokio::select! {
                () = stopping.cancelled() => {}
                () = pump => {}
            }
        }
    });
    let held = (admitted, over.drop_guard());
    let answers = stream::iter([Down::Welcome(welcome)])
        .chain(feed.map(Down::Item))
        .take_until(stopping.cancelled_owned())
        .map(move |message| {
            let _held = &held;
            Ok(Outgoing::new(message))
        });
    Ok(Response::new(answers.boxed()))
}

async fn open(inner: &Inner, hello: Hello) -> Result<OpenSession, HelloRefused> {
    hello.check_version()?;
    let active = match inner.controller() {
        Ok(active) => active,
        Err(Refusal::NotController { known }) => {
            return Err(HelloRefused::NotController { known });
        }
        Err(other) => return Err(HelloRefused::Unreachable(format!("{other:?}"))),
    };
    active.sessions.open(hello).await
}

async fn pump(
    mut messages: Streaming<Incoming>,
    heartbeats: mpsc::Sender<Heartbeat>,
    over: CancellationToken,
) {
    loop {
        let message = tokio::select! {
            () = over.cancelled() => return,
            () = heartbeats.closed() => return,
            message = messages.message() => message,
        };
        // The end of the stream, and its breaking: the silence that follows tells the controller.
        let Ok(Some(message)) = message else { return };
        match message.decode() {
            // If the queue is full, others wait that say as well that the broker lives.
            Ok(Up::Heartbeat(heartbeat)) => drop(heartbeats.try_send(heartbeat)),
            Ok(Up::Hello(hello)) => {
                tracing::warn!(broker = %hello.broker, "a session said hello twice");
                return;
            }
            // A later version's word that isn't needed here.
            Err(error) => tracing::debug!(%error, "a message of a session was skipped"),
        }
    }
}

fn only(outgoing: Outgoing) -> Response<Answers> {
    Response::new(stream::iter([Ok(outgoing)]).boxed())
}
