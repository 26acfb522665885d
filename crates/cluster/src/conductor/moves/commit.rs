//! Joins sealed partitions into few changes of the metadata.
//!
//! While one change is on its way to the store, what is sealed meanwhile gathers and shares the next. From the
//! moment a group is handed over, it is given up only on a definite answer: a change whose outcome isn't known may
//! still take effect, and unsealing the source then would let it acknowledge records under an epoch that has
//! ended.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_metadata::api::{CommitMove, CommitMoves, MoveRefused, SourceObjects};
use tidegate_metadata::{ControllerApi, ControllerUnavailable, ObjectCommit};
use tidegate_types::{BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, PartitionId};
use tokio::sync::{mpsc, oneshot};

use super::super::Core;
use super::pause;

/// Groups that may wait; more wait at the door.
const QUEUE: usize = 256;

/// One attempt's sealed partitions.
pub(crate) struct Group {
    /// Under which epoch they were sealed.
    pub(crate) controller_epoch: ControllerEpoch,
    pub(crate) moves: Vec<CommitMove>,
    pub(crate) source: SourceObjects,
    pub(crate) reply: oneshot::Sender<GroupEnd>,
}

/// What became of a group.
#[derive(Debug)]
pub(crate) enum GroupEnd {
    /// Per move, in order: the new leader epoch, or why it wasn't (and never will be) carried out.
    Answered(Vec<Result<LeaderEpoch, String>>),
    /// This controller has ended. Whether it was carried out is for the next one to see.
    ControllerGone,
}

/// Hands groups over.
#[derive(Clone)]
pub(crate) struct Committer(mpsc::Sender<Group>);

impl Committer {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Group>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self(sender), receiver)
    }

    pub(crate) async fn commit(
        &self,
        controller_epoch: ControllerEpoch,
        moves: Vec<CommitMove>,
        source: SourceObjects,
    ) -> GroupEnd {
        let (reply, answer) = oneshot::channel();
        let group = Group {
            controller_epoch,
            moves,
            source,
            reply,
        };
        if self.0.send(group).await.is_err() {
            return GroupEnd::ControllerGone;
        }
        answer.await.unwrap_or(GroupEnd::ControllerGone)
    }
}

/// Commits groups until the conductor stops.
pub(crate) async fn run(core: Arc<Core>, mut receiver: mpsc::Receiver<Group>) {
    while let Some(first) = receiver.recv().await {
        let mut groups = vec![first];
        let mut count = groups[0].moves.len();
        while count < core.options.moves.per_commit {
            let Ok(group) = receiver.try_recv() else {
                break;
            };
            count += group.moves.len();
            groups.push(group);
        }
        core.metrics.moves_per_commit.observe(count as f64);
        commit(&core, groups).await;
    }
}

async fn commit(core: &Core, groups: Vec<Group>) {
    let controller_epoch = core.controller_epoch();
    // Sealed before the metadata was opened again: the source may have taken the seal back since.
    let (groups, old): (Vec<Group>, Vec<Group>) = groups
        .into_iter()
        .partition(|group| group.controller_epoch == controller_epoch);
    for group in old {
        refuse(group, "the metadata was opened again since the seal");
    }
    if groups.is_empty() {
        return;
    }
    let request = CommitMoves {
        controller_epoch,
        objects: merged(&groups),
        moves: groups
            .iter()
            .flat_map(|group| group.moves.clone())
            .collect(),
    };
    let moves = request.moves.clone();
    match core.handle.commit_moves(request).await {
        Ok(committed) => {
            for refusal in committed.objects.iter().filter_map(|o| o.as_ref().err()) {
                tracing::warn!(error = %refusal, "a source's WAL objects weren't committed with its moves");
            }
            let ends = committed.moves.into_iter().map(|one| match one {
                Ok(state) => Ok(state.leader_epoch),
                Err(refused) => Err(explain(&refused)),
            });
            answer(groups, ends.collect());
        }
        Err(ControllerUnavailable::OutcomeUnknown) => find_out(core, groups, &moves).await,
        Err(
            unavailable @ (ControllerUnavailable::StoreUnavailable
            | ControllerUnavailable::Busy
            | ControllerUnavailable::NoController),
        ) => {
            // Nothing was carried out, and nothing of it is left to be.
            for group in groups {
                refuse(group, &unavailable.to_string());
            }
        }
        Err(ControllerUnavailable::Deposed | ControllerUnavailable::Closed) => abandon(groups),
    }
}

/// One list of objects per source. Lists of one source overlap, since each names all that aren't committed yet.
fn merged(groups: &[Group]) -> Vec<SourceObjects> {
    type Row = BTreeMap<(Option<u64>, String), ObjectCommit>;
    let mut sources: BTreeMap<(BrokerId, BrokerEpoch), Row> = BTreeMap::new();
    for group in groups {
        let source = &group.source;
        let row = sources
            .entry((source.broker, source.broker_epoch))
            .or_default();
        for object in &source.objects {
            let place = (object.wal_sequence, object.key.as_str().to_owned());
            row.insert(place, object.clone());
        }
    }
    sources
        .into_iter()
        .filter(|(_, row)| !row.is_empty())
        .map(|((broker, broker_epoch), row)| SourceObjects {
            broker,
            broker_epoch,
            objects: row.into_values().collect(),
        })
        .collect()
}

/// Waits until the partitions can be read: by then the change took effect or never will.
async fn find_out(core: &Core, groups: Vec<Group>, moves: &[CommitMove]) {
    let ids: Vec<PartitionId> = moves.iter().map(|one| one.partition).collect();
    let mut tries = 0;
    let states = loop {
        match core.handle.partition_states(ids.clone()).await {
            Ok(states) => break states,
            Err(ControllerUnavailable::Deposed | ControllerUnavailable::Closed) => {
                abandon(groups);
                return;
            }
            Err(
                ControllerUnavailable::StoreUnavailable
                | ControllerUnavailable::OutcomeUnknown
                | ControllerUnavailable::Busy
                | ControllerUnavailable::NoController,
            ) => {
                tries += 1;
                tokio::time::sleep(pause(core.options.moves.backoff, tries)).await;
            }
        }
    };
    let ends = moves.iter().zip(states).map(|(one, state)| match state {
        None => Err(explain(&MoveRefused::UnknownPartition(one.partition))),
        // A leader that isn't alive isn't named.
        Some(state)
            if state.leader_epoch == one.leader_epoch.next()
                && state.leader.is_none_or(|leader| leader == one.to) =>
        {
            Ok(state.leader_epoch)
        }
        Some(_) => Err("the metadata store failed before the move was stored".to_owned()),
    });
    let ends = ends.collect();
    answer(groups, ends);
}

fn answer(groups: Vec<Group>, ends: Vec<Result<LeaderEpoch, String>>) {
    let mut ends = ends.into_iter();
    for group in groups {
        let own = ends.by_ref().take(group.moves.len()).collect();
        let _ = group.reply.send(GroupEnd::Answered(own));
    }
}

fn refuse(group: Group, why: &str) {
    let ends = group.moves.iter().map(|_| Err(why.to_owned())).collect();
    let _ = group.reply.send(GroupEnd::Answered(ends));
}

fn abandon(groups: Vec<Group>) {
    for group in groups {
        let _ = group.reply.send(GroupEnd::ControllerGone);
    }
}

fn explain(refused: &MoveRefused) -> String {
    refused.to_string()
}
