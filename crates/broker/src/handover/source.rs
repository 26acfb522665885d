//! Handing out what this broker leads: seal, unseal, and the tail for those who follow.

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::FuturesOrdered;
use tidegate_cluster::orders::{
    FollowError, FollowItem, FollowRequest, OrderRefused, Seal, SealAnswer, SealedLog, Tail, Unseal,
};
use tidegate_partition_log::{
    FollowError as TailError, PartitionLog, SealError, SealOrder, TailItem,
};
use tidegate_types::ControllerEpoch;
use tracing::debug;

use super::Handover;
use super::map::to_wire;

impl Handover {
    /// Seals, and answers when all that was admitted is durable.
    pub(super) async fn seal(&self, controller: ControllerEpoch, seals: Vec<Seal>) -> SealAnswer {
        let mut sealing: FuturesOrdered<_> = seals
            .into_iter()
            .map(|seal| self.seal_one(controller, seal))
            .collect();
        let mut results = Vec::with_capacity(sealing.len());
        while let Some(result) = sealing.next().await {
            results.push(result);
        }
        // After the seals: whatever holds a sealed end is in the backlog by now.
        let objects = if results.iter().any(Result::is_ok) {
            self.backlog.uncommitted()
        } else {
            Vec::new()
        };
        SealAnswer {
            results,
            objects,
            broker_epoch: self.broker_epoch,
        }
    }

    async fn seal_one(
        &self,
        controller_epoch: ControllerEpoch,
        seal: Seal,
    ) -> Result<SealedLog, OrderRefused> {
        let log = self
            .logs
            .get(seal.partition)
            .ok_or(OrderRefused::NotLeader)?;
        let order = SealOrder {
            controller_epoch,
            number: seal.order,
        };
        let sealed = log.seal(seal.leader_epoch, order).await.map_err(refused)?;
        Ok(SealedLog {
            partition: seal.partition,
            end: sealed.end,
        })
    }

    pub(super) fn unseal(&self, controller_epoch: ControllerEpoch, unseals: Vec<Unseal>) {
        for unseal in unseals {
            let order = SealOrder {
                controller_epoch,
                number: unseal.order,
            };
            let log = self.logs.get(unseal.partition);
            if let Some(Err(error)) = log.map(|log| log.unseal(unseal.leader_epoch, order)) {
                debug!(partition = %unseal.partition, error = &error as &dyn std::error::Error, "not unsealed");
            }
        }
    }

    /// The image of a controller shows that this broker leads `log`: what an earlier controller sealed is over. Its
    /// commit can't come any more, since the newer one has fenced it.
    pub(crate) fn unseal_for(&self, log: &PartitionLog, controller_epoch: ControllerEpoch) {
        // Below every order that the newer controller gives itself.
        let order = SealOrder {
            controller_epoch,
            number: 0,
        };
        if let Err(error) = log.unseal(log.leader_epoch(), order) {
            debug!(partition = %log.id(), error = &error as &dyn std::error::Error, "not unsealed");
        }
    }

    pub(super) fn follow(&self, request: FollowRequest) -> Result<Tail, FollowError> {
        let log = self
            .logs
            .get(request.partition)
            .ok_or(FollowError::NotLeader)?;
        let follower = self
            .reader
            .follow(&log, request.leader_epoch)
            .map_err(tail_failed)?;
        self.backlog.hurry();
        let items = follower.into_stream().map(|item| match item {
            Ok(item) => Ok(wire(item)),
            Err(error) => Err(tail_failed(error)),
        });
        Ok(items.boxed())
    }
}

fn wire(item: TailItem) -> FollowItem {
    match item {
        TailItem::Start {
            from,
            high_watermark,
            map,
        } => FollowItem::Start {
            from,
            high_watermark,
            map: map.as_ref().and_then(to_wire),
        },
        TailItem::Batches {
            leader_epoch,
            batches,
            high_watermark,
        } => FollowItem::Batches {
            leader_epoch,
            bytes: joined(batches),
            high_watermark,
        },
        TailItem::Sealed { state, map } => FollowItem::Sealed {
            end: state.end,
            checkpoint: state.checkpoint,
            map: map.as_ref().and_then(to_wire),
        },
    }
}

fn joined(mut batches: Vec<Bytes>) -> Bytes {
    if batches.len() == 1 {
        return batches.swap_remove(0);
    }
    let mut whole = BytesMut::with_capacity(batches.iter().map(Bytes::len).sum());
    batches.iter().for_each(|b| whole.extend_from_slice(b));
    whole.freeze()
}

fn tail_failed(error: TailError) -> FollowError {
    match error {
        TailError::NotLeader => FollowError::NotLeader,
        TailError::Failed(cause) => FollowError::Failed(cause.to_string()),
    }
}

fn refused(error: SealError) -> OrderRefused {
    match error {
        SealError::NotLeader => OrderRefused::NotLeader,
        SealError::NotYet => OrderRefused::NotYet {
            cause: error.to_string(),
        },
        SealError::Superseded { newest } => OrderRefused::Superseded {
            newest: newest.number,
        },
        SealError::Failed(cause) => OrderRefused::Failed {
            cause: cause.to_string(),
        },
    }
}
