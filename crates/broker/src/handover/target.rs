//! Following what this broker shall lead, until it leads it or the move is given up.

use std::sync::{Arc, OnceLock};

use futures::StreamExt;
use futures::future::join_all;
use tidegate_cluster::orders::{
    Discard, FollowError, FollowItem, FollowRequest, HeldLog, Hold, OrderRefused, Prepare,
};
use tidegate_metadata::{ClusterImage, PartitionState};
use tidegate_partition_log::{
    ActivateError, IncomingLog, PartitionLog, PrepareRequest, SealedState, TailItem,
};
use tidegate_runtime::OnExit;
use tidegate_types::{BrokerId, LeaderEpoch, Offset, PartitionId};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::map::from_wire;
use super::{Handover, IncomingSet};
use crate::coordinators::Warm;

/// How far a copy is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Progress {
    Copying,
    /// It had everything when the source last spoke.
    CaughtUp,
    /// Everything up to the sealed end is as durable here as it was there.
    Held(Offset),
    Failed(String),
}

/// One copy, for one attempt to move a partition.
pub(super) struct Incoming {
    attempt: u64,
    leader_epoch: LeaderEpoch,
    progress: watch::Sender<Progress>,
    pub(super) log: watch::Sender<Option<Arc<IncomingLog>>>,
    /// The coordinator that reads along, if the partition is one of a coordinators' topic.
    pub(super) warm: OnceLock<Warm>,
    /// Ends the following.
    cancel: CancellationToken,
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl Incoming {
    async fn wait_for(&self, done: impl Fn(&Progress) -> bool) -> Result<Progress, OrderRefused> {
        let mut progress = self.progress.subscribe();
        let reached = progress
            .wait_for(|p| done(p) || matches!(p, Progress::Failed(_)))
            .await;
        match reached.as_deref() {
            Ok(Progress::Failed(cause)) => Err(OrderRefused::Failed {
                cause: cause.clone(),
            }),
            Ok(reached) => Ok(reached.clone()),
            Err(_) => Err(OrderRefused::NotPrepared),
        }
    }
}

impl IncomingSet {
    /// Whether there is a copy of the partition here, so that it may soon be led here.
    pub(crate) fn holds(&self, partition: PartitionId) -> bool {
        self.copies.lock().contains_key(&partition)
    }

    /// Resolves when a copy became a log or went, or an image came, from now on.
    pub(crate) fn rung(&self) -> tokio::sync::futures::Notified<'_> {
        self.settled.notified()
    }

    pub(super) fn get(&self, partition: PartitionId) -> Option<Arc<Incoming>> {
        self.copies.lock().get(&partition).cloned()
    }

    /// Removes the copy if it is still this one.
    fn remove(&self, partition: PartitionId, incoming: &Arc<Incoming>) {
        let mut copies = self.copies.lock();
        if copies
            .get(&partition)
            .is_some_and(|known| Arc::ptr_eq(known, incoming))
        {
            copies.remove(&partition);
        }
    }
}

impl Handover {
    /// Follows the partitions' leaders; answers when the copies have caught up.
    pub(super) async fn prepare(
        self: &Arc<Self>,
        orders: Vec<Prepare>,
    ) -> Vec<Result<(), OrderRefused>> {
        join_all(orders.into_iter().map(|order| self.prepare_one(order))).await
    }

    async fn prepare_one(self: &Arc<Self>, order: Prepare) -> Result<(), OrderRefused> {
        let partition = order.state.partition;
        // The log of an earlier leadership closes when its picture comes.
        if self.logs.get(partition).is_some() {
            return Err(OrderRefused::NotYet {
                cause: "the partition is still open here".to_owned(),
            });
        }
        let incoming = self.admit(order)?;
        incoming
            .wait_for(|p| matches!(p, Progress::CaughtUp | Progress::Held(_)))
            .await?;
        incoming.warmed().await;
        Ok(())
    }

    /// The copy of this attempt, begun now unless it was.
    fn admit(self: &Arc<Self>, order: Prepare) -> Result<Arc<Incoming>, OrderRefused> {
        let partition = order.state.partition;
        let catalog = self.catalog.load();
        let Some(topic) = catalog.image.topic_by_id(partition.topic) else {
            return Err(OrderRefused::NotYet {
                cause: "this broker doesn't know the topic yet".to_owned(),
            });
        };
        let durability = catalog.settings(topic).durability;
        let mut copies = self.incoming.copies.lock();
        if let Some(known) = copies.get(&partition) {
            if known.attempt > order.attempt {
                return Err(OrderRefused::Superseded {
                    newest: known.attempt,
                });
            }
            let failed = matches!(&*known.progress.borrow(), Progress::Failed(_));
            if known.attempt == order.attempt && !failed {
                return Ok(known.clone());
            }
        }
        let incoming = Arc::new(Incoming {
            attempt: order.attempt,
            leader_epoch: order.state.leader_epoch,
            progress: watch::Sender::new(Progress::Copying),
            log: watch::Sender::new(None),
            warm: OnceLock::new(),
            cancel: self.tasks.token().child_token(),
        });
        copies.insert(partition, incoming.clone());
        drop(copies);
        let request = PrepareRequest {
            topic: topic.name.clone(),
            durability,
            state: order.state.clone(),
        };
        let (handover, copy) = (self.clone(), incoming.clone());
        let cancel = incoming.cancel.clone();
        self.tasks.spawn("follow", OnExit::Expected, async move {
            // Cancel-safe: a copy that is given up leaves nothing that counts.
            tokio::select! {
                () = cancel.cancelled() => {}
                result = handover.copy(&copy, request, &order) => if let Err(cause) = result {
                    debug!(%partition, cause, "the copy for a move failed");
                    copy.progress.send_replace(Progress::Failed(cause));
                }
            }
        });
        Ok(incoming)
    }

    /// Copies until everything up to the sealed end is held.
    async fn copy(
        &self,
        incoming: &Incoming,
        request: PrepareRequest,
        order: &Prepare,
    ) -> Result<(), String> {
        let leader_epoch = request.state.leader_epoch;
        let topic = request.topic.clone();
        let source = self.peers.tails(order.source, &order.source_endpoint);
        let log = IncomingLog::prepare(&self.opener, &self.logs, request);
        incoming.log.send_replace(Some(log.clone()));
        incoming.read_along(self.replicas.follow(&topic, &log, &incoming.cancel));
        let request = FollowRequest {
            partition: log.id(),
            leader_epoch,
        };
        let mut tail = source.follow(request).await.map_err(|e| e.to_string())?;
        loop {
            let item = match tail.next().await {
                Some(item) => item.map_err(|e: FollowError| e.to_string())?,
                None => return Err("the source ended the stream".to_owned()),
            };
            let sealed = matches!(item, FollowItem::Sealed { .. });
            log.push(tail_item(item, leader_epoch))
                .await
                .map_err(|error| error.to_string())?;
            incoming.grown();
            if sealed {
                let end = log.held().await.map_err(|error| error.to_string())?;
                incoming.progress.send_replace(Progress::Held(end));
                return Ok(());
            }
            if log.caught_up() {
                incoming.progress.send_if_modified(|p| {
                    let first = *p == Progress::Copying;
                    if first {
                        *p = Progress::CaughtUp;
                    }
                    first
                });
            }
        }
    }

    /// Answers when the sealed ends are held here.
    pub(super) async fn hold(&self, holds: Vec<Hold>) -> Vec<Result<HeldLog, OrderRefused>> {
        join_all(holds.into_iter().map(|hold| self.hold_one(hold))).await
    }

    async fn hold_one(&self, hold: Hold) -> Result<HeldLog, OrderRefused> {
        let incoming = self
            .incoming
            .get(hold.partition)
            .filter(|i| i.attempt == hold.attempt && i.leader_epoch == hold.leader_epoch)
            .ok_or(OrderRefused::NotPrepared)?;
        match incoming
            .wait_for(|p| matches!(p, Progress::Held(_)))
            .await?
        {
            Progress::Held(end) => Ok(HeldLog {
                partition: hold.partition,
                end,
                broker_epoch: self.broker_epoch,
                held_in: incoming
                    .log
                    .borrow()
                    .as_ref()
                    .is_some_and(|log| log.is_in_local_wal())
                    .then_some(self.wal),
            }),
            _ => Err(OrderRefused::NotPrepared),
        }
    }

    pub(super) fn discard(&self, discards: Vec<Discard>) {
        for discard in discards {
            let Some(incoming) = self.incoming.get(discard.partition) else {
                continue;
            };
            // Once the picture says that the copied leadership is over, the picture decides what becomes of the copy.
            let catalog = self.catalog.load();
            let now = catalog.image.topic_by_id(discard.partition.topic);
            let over = now
                .and_then(|topic| topic.partition(discard.partition.index))
                .is_some_and(|now| now.leader_epoch > incoming.leader_epoch);
            if incoming.attempt <= discard.attempt && !over {
                self.give_up(discard.partition, &incoming);
            }
        }
        self.settled();
    }

    fn give_up(&self, partition: PartitionId, incoming: &Arc<Incoming>) {
        self.incoming.remove(partition, incoming);
        incoming.cancel.cancel();
        if let Some(log) = incoming.log.send_replace(None) {
            log.discard();
        }
    }

    /// Makes the copy of a partition the open log, after metadata made this broker its leader. `None` if there is no
    /// copy that fits.
    pub(crate) async fn activate(
        &self,
        state: &PartitionState,
    ) -> Option<Result<Arc<PartitionLog>, ActivateError>> {
        let partition = state.partition;
        let incoming = self.incoming.get(partition)?;
        let log = incoming.log.borrow().clone()?;
        let activated = loop {
            match log.activate(state).await {
                Err(error) if error.is_retriable() => {
                    debug!(%partition, error = &error as &dyn std::error::Error, "activated a little later");
                    tokio::task::yield_now().await;
                }
                done => break done,
            }
        };
        // Kept until the log is open: requests that came early wait for it.
        if activated.is_err() {
            self.give_up(partition, &incoming);
        }
        Some(activated)
    }

    /// Drops the copies that an image shows to be of the past: the leader epoch they copy has ended and this broker
    /// doesn't lead the next one, or the topic is gone, or the copy has become the log.
    pub(crate) fn retain(&self, image: &ClusterImage, me: BrokerId) {
        let copies: Vec<(PartitionId, Arc<Incoming>)> = {
            let copies = self.incoming.copies.lock();
            copies.iter().map(|(id, i)| (*id, i.clone())).collect()
        };
        for (partition, incoming) in copies {
            let now = image
                .topic_by_id(partition.topic)
                .and_then(|topic| topic.partition(partition.index));
            let wanted = now.is_some_and(|now| {
                now.leader_epoch <= incoming.leader_epoch
                    || (now.leader == Some(me) && self.logs.get(partition).is_none())
            });
            if !wanted {
                self.give_up(partition, &incoming);
            }
        }
    }

    /// Opened logs are in the set now: whoever waited for one looks again.
    pub(crate) fn settled(&self) {
        let opened: Vec<(PartitionId, Arc<Incoming>)> = {
            let copies = self.incoming.copies.lock();
            copies
                .iter()
                .filter(|(id, _)| self.logs.get(**id).is_some())
                .map(|(id, i)| (*id, i.clone()))
                .collect()
        };
        for (partition, incoming) in opened {
            self.incoming.remove(partition, &incoming);
        }
        self.incoming.settled.notify_waiters();
    }
}

fn tail_item(item: FollowItem, source_epoch: LeaderEpoch) -> TailItem {
    match item {
        FollowItem::Start {
            from,
            high_watermark,
            map,
        } => TailItem::Start {
            from,
            high_watermark,
            map: map.and_then(from_wire),
        },
        FollowItem::Batches {
            leader_epoch,
            bytes,
            high_watermark,
        } => TailItem::Batches {
            leader_epoch,
            batches: vec![bytes],
            high_watermark,
        },
        FollowItem::Sealed {
            end,
            checkpoint,
            map,
        } => TailItem::Sealed {
            state: SealedState {
                leader_epoch: source_epoch,
                end,
                checkpoint,
            },
            map: map.and_then(from_wire),
        },
    }
}
