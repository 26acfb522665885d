//! Follows tails of another broker's logs.

use async_trait::async_trait;
use futures::{StreamExt, stream};
use tidegate_metadata::Endpoint;
use tonic::Streaming;

use super::{CallFailed, Connections, Lane, next};
use crate::orders::{FollowError, FollowItem, FollowRequest, Tail, TailSource};
use crate::rpc::codec::{Incoming, Outgoing};
use crate::rpc::wire::TailMessage;

const PATH: &str = "/tidegate.cluster.Tails/follow";

pub(super) struct RemoteTails {
    pub(super) connections: Connections,
    pub(super) endpoint: Endpoint,
}

#[async_trait]
impl TailSource for RemoteTails {
    async fn follow(&self, request: FollowRequest) -> Result<Tail, FollowError> {
        let opening = async {
            let messages = stream::iter([Outgoing::new(request)]);
            let mut answers = self
                .connections
                .stream(&self.endpoint, Lane::Tails, PATH, messages)
                .await?;
            let first: Option<TailMessage> = next(PATH, &mut answers).await?;
            Ok((first, answers))
        };
        let deadline = self.connections.deadlines().open;
        let (first, answers) = self
            .connections
            .in_time(&self.endpoint, PATH, deadline, opening)
            .await?;
        match first {
            Some(TailMessage::Opened) => Ok(items(answers)),
            Some(TailMessage::Ended(refused)) => Err(refused),
            Some(TailMessage::Item(_)) | None => Err(FollowError::Failed(
                "the source answered out of turn".into(),
            )),
        }
    }
}

/// Ends with the first error.
fn items(answers: Streaming<Incoming>) -> Tail {
    stream::unfold(Some(answers), |answers| async move {
        let mut answers = answers?;
        match next::<TailMessage>(PATH, &mut answers).await {
            Ok(Some(TailMessage::Item(item))) => Some((Ok(item), Some(answers))),
            Ok(Some(TailMessage::Ended(error))) => Some((Err(error), None)),
            Ok(Some(TailMessage::Opened)) => {
                let error = FollowError::Failed("the source answered out of turn".into());
                Some((Err(error), None))
            }
            Ok(None) => None,
            Err(failed) => Some((broken(failed), None)),
        }
    })
    .boxed()
}

fn broken(failed: CallFailed) -> Result<FollowItem, FollowError> {
    Err(failed.into())
}
