//! What people and tools ask, answered from the metadata and the table of moves.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::FuturesOrdered;
use tidegate_metadata::ClusterImage;
use tidegate_metadata::api::{
    BrokerChangeError, BrokerView, CancelTarget, SetDraining, WantedMove, WishRefused,
};
use tidegate_types::{BrokerId, PartitionId, PartitionIndex};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::moves::Origin;
use super::moves::wishes::Wanted;
use super::{ConductorHandle, Core, liveness, sessions};
use crate::admin::{
    AdminError, BrokerStatus, ClusterAdmin, ClusterStatus, DrainStatus, ElectError, Elected,
    ElectionKind, MoveError, MoveReport, MoveRequest, OfflinePartition, PlacementChange,
    PlacementError, Reassignment,
};
use crate::session::{HEARTBEAT_QUEUE, Hello, HelloRefused, OpenSession, SessionHost, Welcome};

/// Wishes stored in one change.
const CHUNK: usize = 512;
/// Offline partitions that are named.
const NAMED_OFFLINE: usize = 1_000;
/// A broker that registers anew again and again isn't drained.
const DRAIN_TRIES: u32 = 3;

#[async_trait]
impl SessionHost for ConductorHandle {
    async fn open(&self, hello: Hello) -> Result<OpenSession, HelloRefused> {
        let opened = self.open_session(hello);
        match &opened {
            Ok(_) => self.core.metrics.sessions_opened.inc(),
            Err(_) => self.core.metrics.hellos_refused.inc(),
        };
        opened
    }
}

impl ConductorHandle {
    fn open_session(&self, hello: Hello) -> Result<OpenSession, HelloRefused> {
        hello.check_version()?;
        let core = &self.core;
        let image = core.image();
        let registered = image
            .broker(hello.broker)
            .ok_or(HelloRefused::UnknownBroker(hello.broker))?
            .broker_epoch;
        if registered > hello.broker_epoch {
            return Err(tidegate_metadata::api::StaleBrokerEpoch {
                broker: hello.broker,
                broker_epoch: hello.broker_epoch,
                current: Some(registered),
            }
            .into());
        }
        if registered < hello.broker_epoch {
            // Registrations are shown before they are answered, so this one isn't of this cluster's metadata.
            return Err(HelloRefused::Unreachable(format!(
                "broker epoch {} of broker {} isn't known here yet",
                hello.broker_epoch, hello.broker
            )));
        }
        let opened = core.sessions.open(
            hello.broker,
            hello.broker_epoch,
            hello.software_version,
            core.clock.now(),
        )?;
        let (heartbeats, received) = mpsc::channel(HEARTBEAT_QUEUE);
        let (ack, acks) = watch::channel(0);
        let feed = sessions::feed(core.handle.image(), acks, opened.end.clone());
        let (witness, serial) = (std::sync::Arc::clone(core), opened.serial);
        let receive = sessions::receive_heartbeats(
            std::sync::Arc::clone(&core.sessions),
            core.clock.clone(),
            hello.broker,
            opened,
            received,
            ack,
        );
        core.spawn("session", async move {
            if receive.await {
                liveness::session_broke(&witness, hello.broker, serial).await;
            }
        });
        tracing::info!(
            broker = %hello.broker,
            broker_epoch = %hello.broker_epoch,
            "a broker opened its session"
        );
        Ok(OpenSession {
            welcome: Welcome {
                controller_epoch: core.controller_epoch(),
                session_timeout: core.options.session_timeout,
            },
            heartbeats,
            feed,
        })
    }
}

fn move_error(refused: WishRefused, wanted: MoveRequest) -> MoveError {
    match refused {
        WishRefused::UnknownPartition(partition) => MoveError::UnknownPartition(partition),
        WishRefused::UnknownBroker(broker) => MoveError::UnknownBroker(broker),
        WishRefused::NotAlive(broker) => MoveError::BrokerNotAlive(broker),
        WishRefused::Draining(broker) => MoveError::Draining(broker),
        WishRefused::NoLeader(_) => MoveError::NoLeader,
        WishRefused::EmptyPlacement | WishRefused::RepeatedBroker(_) => MoveError::Failed {
            cause: format!("broker {} can't be wanted: {refused}", wanted.to),
        },
    }
}

fn placement_error(refused: WishRefused) -> PlacementError {
    match refused {
        WishRefused::UnknownPartition(partition) => PlacementError::UnknownPartition(partition),
        WishRefused::EmptyPlacement
        | WishRefused::RepeatedBroker(_)
        | WishRefused::UnknownBroker(_)
        | WishRefused::NotAlive(_)
        | WishRefused::Draining(_) => PlacementError::Invalid {
            reason: refused.to_string(),
        },
        WishRefused::NoLeader(_) => PlacementError::Failed {
            cause: refused.to_string(),
        },
    }
}

impl Core {
    /// Why a move that wasn't done in time isn't done.
    fn unfinished(&self, partition: PartitionId) -> MoveError {
        match self.moves.standing(partition).and_then(|s| s.last_failure) {
            Some(cause) => MoveError::Failed { cause },
            None => MoveError::TimedOut,
        }
    }

    async fn move_all(
        &self,
        moves: &[MoveRequest],
        wait: Duration,
    ) -> Result<Vec<Result<MoveReport, MoveError>>, AdminError> {
        let deadline = Instant::now() + wait;
        let mut ends = FuturesOrdered::new();
        for chunk in moves.chunks(CHUNK) {
            let wanted = chunk
                .iter()
                .map(|one| WantedMove {
                    partition: one.partition,
                    to: one.to,
                    prefer: true,
                })
                .collect();
            let stored = self.wishes.want(wanted, Origin::Operator).await?;
            for (one, stored) in chunk.iter().zip(stored) {
                ends.push_back(async move {
                    match stored {
                        Err(refused) => Err(move_error(refused, *one)),
                        Ok(Wanted::There(leader, leader_epoch)) => Err(MoveError::AlreadyThere {
                            leader,
                            leader_epoch,
                        }),
                        Ok(Wanted::UnderWay(end)) => {
                            match tokio::time::timeout_at(deadline, end).await {
                                Ok(Ok(end)) => end,
                                // Not done yet, or the controller ends and the next one goes on.
                                Ok(Err(_)) => Err(MoveError::TimedOut),
                                Err(_) => Err(self.unfinished(one.partition)),
                            }
                        }
                    }
                });
            }
        }
        Ok(ends.collect().await)
    }

    async fn view(&self, broker: BrokerId) -> Result<BrokerView, AdminError> {
        let views = self.handle.brokers().await?;
        views
            .into_iter()
            .find(|view| view.id == broker)
            .ok_or(AdminError::UnknownBroker(broker))
    }

    async fn set_draining(&self, broker: BrokerId, draining: bool) -> Result<(), AdminError> {
        for _ in 0..DRAIN_TRIES {
            let view = self.view(broker).await?;
            let request = SetDraining {
                broker,
                broker_epoch: view.broker_epoch,
                draining,
            };
            match self.handle.set_draining(request).await {
                Ok(()) => return Ok(()),
                // It registered anew between the two steps.
                Err(BrokerChangeError::StaleBrokerEpoch(_)) => {}
                Err(BrokerChangeError::Unavailable(error)) => return Err(error.into()),
            }
        }
        Err(AdminError::Unsupported(format!(
            "broker {broker} keeps starting anew, which ends every drain"
        )))
    }

    async fn drain_standing(&self, broker: BrokerId) -> Result<DrainStatus, AdminError> {
        let views = self.handle.brokers().await?;
        let view = views
            .iter()
            .find(|view| view.id == broker)
            .ok_or(AdminError::UnknownBroker(broker))?;
        let image = self.image();
        let moves = self.moves.all();
        let leaves = |id: &&PartitionId| leader_of(&image, **id) == Some(broker);
        let moving = moves.keys().filter(leaves).count();
        let takers = views.iter().any(BrokerView::takes_partitions);
        let blocked = if !view.draining || view.leaders == 0 {
            None
        } else if !view.alive {
            Some("the broker isn't alive, so it can't hand anything over".to_owned())
        } else if !takers {
            Some("no other broker is alive that takes partitions".to_owned())
        } else {
            None
        };
        Ok(DrainStatus {
            broker,
            draining: view.draining,
            led_partitions: view.leaders,
            moving: moving as u64,
            blocked,
        })
    }

    /// Who the partitions without a serving leader wait for.
    async fn waiting_for(
        &self,
        views: &[BrokerView],
    ) -> Result<HashMap<PartitionId, BrokerId>, AdminError> {
        let mut waiting = HashMap::new();
        for view in views {
            if view.leaders > 0 && !(view.alive && view.leads) {
                for led in self.handle.partitions_of(view.id).await? {
                    waiting.insert(led.partition, view.id);
                }
            }
        }
        Ok(waiting)
    }

    /// Whom an election would make leader.
    fn electable(&self, image: &ClusterImage, id: PartitionId) -> Result<BrokerId, ElectError> {
        let one = image
            .topic_by_id(id.topic)
            .and_then(|topic| topic.partition(id.index))
            .ok_or(ElectError::UnknownPartition(id))?;
        let preferred = *one.placement.first().ok_or(ElectError::NoneEligible)?;
        if one.leader == Some(preferred) {
            return Err(ElectError::NotNeeded);
        }
        if !self.takes_partitions(preferred) {
            return Err(ElectError::PreferredUnavailable(preferred));
        }
        if one.leader.is_none() {
            return Err(ElectError::NoneEligible);
        }
        Ok(preferred)
    }
}

fn leader_of(image: &ClusterImage, id: PartitionId) -> Option<BrokerId> {
    image.topic_by_id(id.topic)?.partition(id.index)?.leader
}

/// All partitions, in the order of their topics' names.
fn partitions(image: &ClusterImage) -> impl Iterator<Item = PartitionId> {
    image.topics().flat_map(|topic| {
        let topic_id = topic.id;
        (0..).zip(&topic.partitions).filter_map(move |(index, _)| {
            Some(PartitionId {
                topic: topic_id,
                index: PartitionIndex::new(index).ok()?,
            })
        })
    })
}

#[async_trait]
impl ClusterAdmin for ConductorHandle {
    async fn reassign(
        &self,
        moves: Vec<MoveRequest>,
        wait: Duration,
    ) -> Result<Vec<Result<MoveReport, MoveError>>, AdminError> {
        self.core.move_all(&moves, wait).await
    }

    async fn alter_placements(
        &self,
        changes: Vec<PlacementChange>,
    ) -> Result<Vec<Result<(), PlacementError>>, AdminError> {
        let mut place = Vec::new();
        let mut cancel = Vec::new();
        for change in &changes {
            match &change.placement {
                Some(placement) => place.push((change.partition, placement.clone())),
                None => cancel.push(CancelTarget {
                    partition: change.partition,
                    to: None,
                }),
            }
        }
        let wishes = &self.core.wishes;
        let cancelled = if cancel.is_empty() {
            Vec::new()
        } else {
            wishes.withdraw(cancel, MoveError::Replaced).await?
        };
        let mut placed = Vec::new();
        for chunk in place.chunks(CHUNK) {
            placed.extend(wishes.place(chunk.to_vec()).await?);
        }
        let image = self.core.image();
        let (mut cancelled, mut placed) = (cancelled.into_iter(), placed.into_iter());
        let answers = changes.iter().map(|change| {
            let exists = image
                .topic_by_id(change.partition.topic)
                .is_some_and(|topic| topic.partition(change.partition.index).is_some());
            if change.placement.is_some() {
                return match placed.next() {
                    Some(Err(refused)) => Err(placement_error(refused)),
                    Some(Ok(_)) | None => Ok(()),
                };
            }
            match cancelled.next() {
                Some(true) => Ok(()),
                Some(false) | None if exists => Err(PlacementError::NoneInProgress),
                Some(false) | None => Err(PlacementError::UnknownPartition(change.partition)),
            }
        });
        Ok(answers.collect())
    }

    async fn list_reassignments(
        &self,
        partitions: Option<Vec<PartitionId>>,
    ) -> Result<Vec<Reassignment>, AdminError> {
        let core = &self.core;
        let pending = core.handle.pending_moves().await?;
        let asked: Option<std::collections::HashSet<PartitionId>> =
            partitions.map(|ids| ids.into_iter().collect());
        let listed = pending
            .into_iter()
            .filter(|one| {
                asked
                    .as_ref()
                    .is_none_or(|asked| asked.contains(&one.partition))
            })
            .map(|one| {
                let standing = core.moves.standing(one.partition);
                let phase = standing.as_ref().map_or("waiting", |s| s.phase.name());
                Reassignment {
                    partition: one.partition,
                    topic: core.topic_name(one.partition),
                    leader: one.from,
                    to: one.to,
                    placement: one.placement,
                    phase: phase.to_owned(),
                    last_failure: standing.and_then(|s| s.last_failure),
                }
            });
        Ok(listed.collect())
    }

    async fn elect_leaders(
        &self,
        kind: ElectionKind,
        asked: Option<Vec<PartitionId>>,
        wait: Duration,
    ) -> Result<Vec<Elected>, AdminError> {
        let core = &self.core;
        let image = core.image();
        let everywhere = asked.is_none();
        let ids = asked.unwrap_or_else(|| partitions(&image).collect());
        let mut elected = Vec::new();
        let mut moves = Vec::new();
        for id in ids {
            let to = match kind {
                ElectionKind::Preferred => core.electable(&image, id),
                // A leader that serves is as good as one that was elected; another one isn't to be had.
                ElectionKind::Unclean => match core.electable(&image, id) {
                    Err(error @ ElectError::UnknownPartition(_)) => Err(error),
                    Ok(_) | Err(_) if leader_of(&image, id).is_some() => Err(ElectError::NotNeeded),
                    Ok(_) | Err(_) => Err(ElectError::NoneEligible),
                },
            };
            if everywhere && to == Err(ElectError::NotNeeded) {
                continue;
            }
            if let Ok(to) = to {
                moves.push((elected.len(), MoveRequest { partition: id, to }));
            }
            elected.push(Elected {
                partition: id,
                topic: image.topic_by_id(id.topic).map(|topic| topic.name.clone()),
                result: to,
            });
        }
        let requests: Vec<MoveRequest> = moves.iter().map(|(_, request)| *request).collect();
        let ends = core.move_all(&requests, wait).await?;
        for ((place, request), end) in moves.into_iter().zip(ends) {
            elected[place].result = match end {
                Ok(report) => Ok(report.to),
                Err(MoveError::AlreadyThere { .. }) => Ok(request.to),
                Err(error) => Err(error.into()),
            };
        }
        Ok(elected)
    }

    async fn drain(&self, broker: BrokerId) -> Result<DrainStatus, AdminError> {
        self.core.set_draining(broker, true).await?;
        self.core.drain_standing(broker).await
    }

    async fn undrain(&self, broker: BrokerId) -> Result<DrainStatus, AdminError> {
        let core = &self.core;
        core.set_draining(broker, false).await?;
        let image = core.image();
        let partitions: Vec<CancelTarget> = core
            .moves
            .all()
            .into_iter()
            .filter(|(id, (_, origin))| {
                *origin == Origin::Drain && leader_of(&image, *id) == Some(broker)
            })
            .map(|(partition, (to, _))| CancelTarget {
                partition,
                to: Some(to),
            })
            .collect();
        if !partitions.is_empty() {
            core.wishes
                .withdraw(partitions, MoveError::Replaced)
                .await?;
        }
        core.drain_standing(broker).await
    }

    async fn drain_status(&self, broker: BrokerId) -> Result<DrainStatus, AdminError> {
        self.core.drain_standing(broker).await
    }

    async fn set_balance(&self, enabled: bool) -> Result<bool, AdminError> {
        Ok(self.core.planner.balance.swap(enabled, Ordering::Relaxed))
    }

    async fn cluster_status(&self) -> Result<ClusterStatus, AdminError> {
        let core = &self.core;
        let views = core.handle.brokers().await?;
        let waiting = core.waiting_for(&views).await?;
        let reassignments = core.handle.pending_moves().await?.len() as u64;
        let image = core.image();
        let mut offline_count = 0;
        let mut offline = Vec::new();
        for id in partitions(&image).filter(|id| leader_of(&image, *id).is_none()) {
            offline_count += 1;
            if offline.len() < NAMED_OFFLINE {
                offline.push(OfflinePartition {
                    partition: id,
                    topic: core.topic_name(id),
                    waits_for: waiting.get(&id).copied(),
                });
            }
        }
        Ok(ClusterStatus {
            cluster_id: image.cluster_id().to_owned(),
            controller: core.options.me,
            controller_epoch: image.version().controller_epoch,
            image: image.version(),
            brokers: views.into_iter().map(|view| status(core, view)).collect(),
            topics: image.topics().len() as u64,
            partitions: image.partition_count(),
            offline,
            offline_count,
            reassignments,
            balance: core.planner.balance.load(Ordering::Relaxed),
        })
    }
}

fn status(core: &Core, view: BrokerView) -> BrokerStatus {
    let reported = core.sessions.reported(view.id).unwrap_or_default();
    BrokerStatus {
        id: view.id,
        broker_epoch: view.broker_epoch,
        alive: view.alive,
        draining: view.draining,
        rack: view.rack,
        kafka: view.kafka,
        internal: view.internal,
        led_partitions: view.leaders,
        bytes_in_per_s: reported.heartbeat.bytes_in_per_s,
        bytes_out_per_s: reported.heartbeat.bytes_out_per_s,
        requests_per_s: reported.heartbeat.requests_per_s,
        software_version: reported.software_version,
    }
}
