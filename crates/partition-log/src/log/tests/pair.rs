//! Two brokers of one cluster, and the moves of a partition between them, step by step.

use std::collections::HashMap;
use std::sync::Arc;

use tidegate_metadata::PartitionState;
use tidegate_metadata::api::{CommitMove, CommitMoves, SetTargets, SourceObjects, WantedMove};
use tidegate_runtime::{OnExit, Tasks};
use tidegate_types::{ControllerEpoch, DurabilityMode, Offset, PartitionId, TopicId};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::rig::*;
use crate::log::{Isolation, PartitionLog, SealError, SealOrder, SealedState};
use crate::{IncomingError, IncomingLog, PrepareRequest};

pub(super) struct Pair {
    _host: Tasks,
    pub(super) rigs: Vec<Rig>,
    /// Who leads.
    pub(super) homes: HashMap<PartitionId, usize>,
    pub(super) orders: u64,
}

/// A partition that is being copied.
pub(super) struct Copy {
    pub(super) incoming: Arc<IncomingLog>,
    pub(super) from: usize,
    pub(super) to: usize,
    pump: CancellationToken,
    /// Why copying ended, if it wasn't by the seal.
    pub(super) ended: tokio::sync::oneshot::Receiver<Result<(), IncomingError>>,
}

impl Drop for Copy {
    fn drop(&mut self) {
        self.pump.cancel();
    }
}

impl Pair {
    pub(super) async fn new() -> Self {
        Self::with(RigOptions::default()).await
    }

    pub(super) async fn with(options: RigOptions) -> Self {
        let (host, rigs) = Rig::cluster(options, 2).await;
        Self {
            _host: host,
            rigs,
            homes: HashMap::new(),
            orders: 0,
        }
    }

    /// A topic whose partitions the first broker leads.
    pub(super) async fn topic(
        &mut self,
        mode: DurabilityMode,
        partitions: u32,
    ) -> Vec<PartitionId> {
        let ids = self.rigs[0].topic(mode, partitions).await;
        self.rigs[1].modes = self.rigs[0].modes.clone();
        self.homes.extend(ids.iter().map(|id| (*id, 0)));
        ids
    }

    pub(super) async fn one(&mut self, mode: DurabilityMode) -> PartitionId {
        self.topic(mode, 1).await[0]
    }

    pub(super) fn rig(&self, id: PartitionId) -> &Rig {
        &self.rigs[self.homes[&id]]
    }

    pub(super) fn log(&self, id: PartitionId) -> Arc<PartitionLog> {
        self.rig(id).log(id)
    }

    pub(super) async fn read_tags(
        &self,
        id: PartitionId,
        from: u64,
        max_bytes: usize,
    ) -> Vec<(u64, u64)> {
        let rig = self.rig(id);
        rig.read_tags(id, from, max_bytes, Isolation::ReadUncommitted)
            .await
    }

    pub(super) async fn all_tags(&self, id: PartitionId) -> Vec<(u64, u64)> {
        self.rig(id).all_tags(id).await
    }

    pub(super) async fn state(&self, id: PartitionId) -> PartitionState {
        self.rig(id).states(&[id]).await.remove(0)
    }

    pub(super) async fn all_uploaded(&self) {
        for rig in &self.rigs {
            rig.all_uploaded().await;
        }
    }

    pub(super) fn assert_running(&self) {
        self.rigs.iter().for_each(Rig::assert_running);
    }

    pub(super) async fn delete_topic(&mut self, topic: TopicId) {
        self.rigs[0].delete_topic(topic).await;
        self.rigs[1].modes.remove(&topic);
        self.homes.retain(|id, _| id.topic != topic);
    }

    /// A broker dies and starts again.
    pub(super) async fn restart(&mut self, broker: usize, crash: Crash) {
        self.rigs[broker].restart(crash).await;
    }

    pub(super) fn next_order(&mut self) -> SealOrder {
        self.orders += 1;
        SealOrder {
            controller_epoch: ControllerEpoch::new(1),
            number: self.orders,
        }
    }

    /// Begins to copy a partition to a broker, without waiting for it to catch up.
    pub(super) async fn prepare(&self, id: PartitionId, to: usize) -> Copy {
        let from = self.homes[&id];
        let (topic, durability) = self.rigs[from].modes[&id.topic].clone();
        let request = PrepareRequest {
            topic,
            durability,
            state: self.state(id).await,
        };
        let target = self.rigs[to].life();
        let incoming = IncomingLog::prepare(&target.opener, &target.logs, request);
        let log = self.rigs[from].log(id);
        let reader = self.rigs[from].life().reader.clone();
        let mut follower = reader.follow(&log, log.leader_epoch()).unwrap();
        let pump = CancellationToken::new();
        let (ended, why) = tokio::sync::oneshot::channel();
        let (copied, stop) = (incoming.clone(), pump.clone());
        let copying = async move {
            // A source that dies ends the stream; the copy stays as it is.
            while let Some(Ok(item)) = follower.next().await {
                copied.push(item).await?;
            }
            Ok(())
        };
        target.tasks.spawn("copy", OnExit::Expected, async move {
            let result = tokio::select! {
                () = stop.cancelled() => return,
                result = copying => result,
            };
            let _ = ended.send(result);
        });
        Copy {
            incoming,
            from,
            to,
            pump,
            ended: why,
        }
    }

    pub(super) async fn caught_up(&self, copy: &Copy) {
        for _ in 0..1_000 {
            settle().await;
            if copy.incoming.caught_up() && copy.incoming.end() > Offset::ZERO {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        panic!("the copy never catches up");
    }

    pub(super) async fn seal(&mut self, id: PartitionId) -> Result<SealedState, SealError> {
        let order = self.next_order();
        let log = self.log(id);
        log.seal(log.leader_epoch(), order).await
    }

    /// The moment of transfer.
    pub(super) async fn commit(
        &self,
        id: PartitionId,
        copy: &Copy,
        sealed: &SealedState,
    ) -> PartitionState {
        let (source, target) = (&self.rigs[copy.from], &self.rigs[copy.to]);
        let life = target.life();
        let wanted = SetTargets {
            moves: vec![WantedMove {
                partition: id,
                to: target.broker,
                prefer: true,
            }],
        };
        let wishes = again(|| life.controller.set_targets(wanted.clone())).await;
        wishes.into_iter().for_each(|wish| {
            wish.unwrap();
        });
        let objects = source.has_life().map(|life| SourceObjects {
            broker: source.broker,
            broker_epoch: life.writer.broker_epoch,
            objects: life.backlog.uncommitted(),
        });
        let request = CommitMoves {
            controller_epoch: life.controller.image().borrow().version().controller_epoch,
            objects: objects.into_iter().collect(),
            moves: vec![CommitMove {
                partition: id,
                leader_epoch: sealed.leader_epoch,
                sealed_end: sealed.end,
                from: source.broker,
                to: target.broker,
                to_broker_epoch: life.writer.broker_epoch,
                held_in: copy.incoming.is_in_local_wal().then(|| target.wal()),
            }],
        };
        let mut done = again(|| life.controller.commit_moves(request.clone())).await;
        done.objects.into_iter().for_each(|committed| {
            committed.unwrap();
        });
        done.moves.remove(0).unwrap()
    }

    /// What both brokers do when they see the move in the image.
    pub(super) async fn activate(&mut self, id: PartitionId, copy: &Copy, state: &PartitionState) {
        if let Some(source) = self.rigs[copy.from].has_life() {
            source.logs.remove(id);
        }
        let log = again(|| copy.incoming.activate(state)).await;
        assert!(self.rigs[copy.to].life().logs.insert(log).is_none());
        self.homes.insert(id, copy.to);
    }

    /// A whole planned move.
    pub(super) async fn move_to(&mut self, id: PartitionId, to: usize) -> SealedState {
        let copy = self.prepare(id, to).await;
        settle().await;
        let sealed = self.seal(id).await.unwrap();
        assert_eq!(copy.incoming.held().await.unwrap(), sealed.end);
        let state = self.commit(id, &copy, &sealed).await;
        self.activate(id, &copy, &state).await;
        sealed
    }
}

impl Rig {
    pub(super) fn wal(&self) -> Uuid {
        Uuid::from_u128(self.wal_number())
    }
}
