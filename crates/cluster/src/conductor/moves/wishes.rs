//! The one task that stores wishes and tells the table of them, so that the table takes them in the order in
//! which they were stored. And the task that looks for work in the table.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_metadata::ControllerUnavailable;
use tidegate_metadata::api::{
    CancelTarget, CancelTargets, SetPlacements, SetTargets, WantedMove, Wish, WishRefused,
};
use tidegate_types::{BrokerId, LeaderEpoch, PartitionId};
use tokio::sync::{mpsc, oneshot};

use super::super::Core;
use super::{Leader, MoveEnd, Origin, attempt};
use crate::admin::MoveError;

/// Changes that may wait; more wait at the door.
const QUEUE: usize = 64;

/// A stored wish, or that it was granted before.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// Tells how it ends.
    UnderWay(oneshot::Receiver<MoveEnd>),
    /// The broker leads already.
    There(BrokerId, LeaderEpoch),
}

type Answers = Result<Vec<Result<Wanted, WishRefused>>, ControllerUnavailable>;

enum WishChange {
    Want {
        moves: Vec<WantedMove>,
        origin: Origin,
        reply: oneshot::Sender<Answers>,
    },
    Place {
        placements: Vec<(PartitionId, Vec<BrokerId>)>,
        reply: oneshot::Sender<Answers>,
    },
    Withdraw {
        partitions: Vec<CancelTarget>,
        end: MoveError,
        reply: oneshot::Sender<Result<Vec<bool>, ControllerUnavailable>>,
    },
}

/// Asks for changes of wishes.
#[derive(Clone)]
pub(crate) struct Wishes(mpsc::Sender<WishChange>);

/// Where they arrive.
pub(crate) struct WishQueue(mpsc::Receiver<WishChange>);

impl Wishes {
    pub(crate) fn new() -> (Self, WishQueue) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self(sender), WishQueue(receiver))
    }

    async fn ask<T>(
        &self,
        change: impl FnOnce(oneshot::Sender<Result<T, ControllerUnavailable>>) -> WishChange,
    ) -> Result<T, ControllerUnavailable> {
        let (reply, answer) = oneshot::channel();
        if self.0.send(change(reply)).await.is_err() {
            return Err(ControllerUnavailable::Closed);
        }
        answer.await.unwrap_or(Err(ControllerUnavailable::Closed))
    }

    /// Stores moves that are wanted.
    pub(crate) async fn want(&self, moves: Vec<WantedMove>, origin: Origin) -> Answers {
        self.ask(|reply| WishChange::Want {
            moves,
            origin,
            reply,
        })
        .await
    }

    /// Stores placements.
    pub(crate) async fn place(&self, placements: Vec<(PartitionId, Vec<BrokerId>)>) -> Answers {
        self.ask(|reply| WishChange::Place { placements, reply })
            .await
    }

    /// Withdraws wishes; whoever waits for them is told `end`.
    pub(crate) async fn withdraw(
        &self,
        partitions: Vec<CancelTarget>,
        end: MoveError,
    ) -> Result<Vec<bool>, ControllerUnavailable> {
        self.ask(|reply| WishChange::Withdraw {
            partitions,
            end,
            reply,
        })
        .await
    }
}

/// Carries changes of wishes out, and reads the stored ones again now and then.
pub(crate) async fn keep(core: Arc<Core>, mut queue: WishQueue) {
    let mut relist = tokio::time::interval(core.options.moves.relist);
    relist.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        // Cancel-safe: both lose nothing.
        tokio::select! {
            biased;
            change = queue.0.recv() => match change {
                Some(change) => carry_out(&core, change).await,
                None => return,
            },
            _ = relist.tick() => align(&core).await,
        }
    }
}

/// The first time finds what former controllers left.
async fn align(core: &Core) {
    match core.handle.pending_moves().await {
        Ok(pending) => {
            let stored: HashMap<PartitionId, BrokerId> = pending
                .into_iter()
                .map(|one| (one.partition, one.to))
                .collect();
            core.moves.align(&stored, core.clock.now());
        }
        Err(error) => tracing::debug!(%error, "wanted moves can't be read at present"),
    }
}

async fn carry_out(core: &Core, change: WishChange) {
    match change {
        WishChange::Want {
            moves,
            origin,
            reply,
        } => {
            let ids: Vec<PartitionId> = moves.iter().map(|one| one.partition).collect();
            let answer = core.handle.set_targets(SetTargets { moves }).await;
            let answer = answer.map(|wishes| take_in(core, &ids, wishes, origin));
            // Who has gone away still has its wish carried out.
            let _ = reply.send(answer);
        }
        WishChange::Place { placements, reply } => {
            let ids: Vec<PartitionId> = placements.iter().map(|(id, _)| *id).collect();
            let answer = core
                .handle
                .set_placements(SetPlacements { placements })
                .await;
            let answer = answer.map(|wishes| take_in(core, &ids, wishes, Origin::Operator));
            let _ = reply.send(answer);
        }
        WishChange::Withdraw {
            partitions,
            end,
            reply,
        } => {
            let request = CancelTargets {
                partitions: partitions.clone(),
            };
            let answer = core.handle.cancel_targets(request).await;
            if answer.is_ok() {
                for one in &partitions {
                    core.moves.forget(one.partition, one.to, &Err(end.clone()));
                }
            }
            let _ = reply.send(answer);
        }
    }
}

fn take_in(
    core: &Core,
    ids: &[PartitionId],
    wishes: Vec<Result<Wish, WishRefused>>,
    origin: Origin,
) -> Vec<Result<Wanted, WishRefused>> {
    let now = core.clock.now();
    ids.iter()
        .zip(wishes)
        .map(|(partition, wish)| match wish? {
            Wish::Pending(pending) => {
                let (end, ended) = oneshot::channel();
                core.moves
                    .want(*partition, pending.to, origin, now, Some(end));
                Ok(Wanted::UnderWay(ended))
            }
            Wish::Fulfilled {
                leader,
                leader_epoch,
            } => {
                core.moves
                    .forget(*partition, None, &Err(MoveError::Replaced));
                if origin == Origin::Operator {
                    core.moves.pin(*partition, now + core.options.operator_pin);
                }
                Ok(Wanted::There(leader, leader_epoch))
            }
        })
        .collect()
}

/// How long the table may stay unlooked at: pauses end, brokers come back.
const LOOK: Duration = Duration::from_millis(100);

/// Begins whatever can begin.
pub(crate) async fn drive(core: Arc<Core>) {
    let mut images = core.handle.image();
    loop {
        let due = {
            let image = core.image();
            core.moves.take_due(
                &core.options.moves,
                core.clock.now(),
                |id| match image
                    .topic_by_id(id.topic)
                    .and_then(|t| t.partition(id.index))
                {
                    None => Leader::NoPartition,
                    Some(partition) => partition.leader.map_or(Leader::None, Leader::Broker),
                },
                |broker| core.takes_partitions(broker),
            )
        };
        for batch in due.batches {
            core.spawn("move", attempt::run(Arc::clone(&core), batch));
        }
        for (partition, to) in due.there {
            // It came there by another way, such as a failover.
            let image = core.image();
            let epoch = image
                .topic_by_id(partition.topic)
                .and_then(|t| t.partition(partition.index))
                .map(|p| p.leader_epoch);
            let end = match epoch {
                Some(leader_epoch) => MoveError::AlreadyThere {
                    leader: to,
                    leader_epoch,
                },
                None => MoveError::UnknownPartition(partition),
            };
            withdraw(&core, partition, to, end).await;
        }
        for (partition, to, end) in due.hopeless {
            tracing::info!(partition = %partition, to = %to, reason = %end, "a wanted move is given up");
            core.metrics.moved("given_up");
            withdraw(&core, partition, to, end).await;
        }
        core.metrics
            .reassignments
            .set(super::super::metrics::gauge(core.moves.len()));
        // Cancel-safe: all of them only wake.
        tokio::select! {
            () = core.moves.rung() => {}
            changed = images.changed() => if changed.is_err() {
                return;
            },
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

async fn withdraw(core: &Core, partition: PartitionId, to: BrokerId, end: MoveError) {
    let one = CancelTarget {
        partition,
        to: Some(to),
    };
    if let Err(error) = core.wishes.withdraw(vec![one], end).await {
        tracing::debug!(%error, "a wanted move can't be withdrawn at present");
    }
}
