//! A session with a controller that is another broker.

use async_trait::async_trait;
use futures::{StreamExt, stream};
use tidegate_metadata::Endpoint;
use tokio::sync::mpsc;
use tonic::Streaming;

use super::{CallFailed, Connections, Lane, next};
use crate::rpc::codec::{Incoming, Outgoing};
use crate::rpc::wire::{Down, Up};
use crate::session::{FeedItem, HEARTBEAT_QUEUE, Hello, HelloRefused, OpenSession, SessionHost};

const PATH: &str = "/tidegate.cluster.Sessions/open";

/// Opens sessions with the controller at one endpoint.
#[derive(Clone)]
pub struct RemoteSessionHost {
    connections: Connections,
    endpoint: Endpoint,
}

impl RemoteSessionHost {
    /// Connects when a session is opened.
    pub fn new(connections: Connections, endpoint: Endpoint) -> Self {
        Self {
            connections,
            endpoint,
        }
    }
}

#[async_trait]
impl SessionHost for RemoteSessionHost {
    async fn open(&self, hello: Hello) -> Result<OpenSession, HelloRefused> {
        let (heartbeats, mut beating) = mpsc::channel(HEARTBEAT_QUEUE);
        let beats = stream::poll_fn(move |context| beating.poll_recv(context)).map(Up::Heartbeat);
        let messages = stream::iter([Up::Hello(hello)])
            .chain(beats)
            .map(Outgoing::new);
        let opening = async {
            let mut answers = self
                .connections
                .stream(&self.endpoint, Lane::Session, PATH, messages)
                .await?;
            let first: Option<Down> = next(PATH, &mut answers).await?;
            Ok((first, answers))
        };
        let deadline = self.connections.deadlines().open;
        let (first, answers) = self
            .connections
            .in_time(&self.endpoint, PATH, deadline, opening)
            .await?;
        match first {
            Some(Down::Welcome(welcome)) => Ok(OpenSession {
                welcome,
                heartbeats,
                feed: feed(answers),
            }),
            Some(Down::Refused(refused)) => Err(refused),
            Some(Down::Item(_)) | None => Err(HelloRefused::Unreachable(
                "the controller answered out of turn".to_owned(),
            )),
        }
    }
}

fn feed(answers: Streaming<Incoming>) -> stream::BoxStream<'static, FeedItem> {
    stream::unfold(Some(answers), |answers| async move {
        let mut answers = answers?;
        let ended = match next::<Down>(PATH, &mut answers).await {
            Ok(Some(Down::Item(item))) => return Some((item, Some(answers))),
            Ok(None) => return None,
            Ok(Some(Down::Refused(refused))) => refused,
            Ok(Some(Down::Welcome(_))) => {
                HelloRefused::Unreachable("the controller answered out of turn".to_owned())
            }
            // Without what this item says the picture would be wrong from here on.
            Err(failed @ CallFailed::Undecodable(_)) => failed.into(),
            Err(failed) => {
                tracing::debug!(%failed, "the session with the controller broke");
                return None;
            }
        };
        Some((FeedItem::Ended(ended), None))
    })
    .boxed()
}
