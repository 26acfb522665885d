//! What a group coordinator has to do with the world: its appends, and news of topics.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_coordinator::{ClusterView, Effect, EndTransaction, GroupCoordinator, Now, Reply};
use tidegate_partition_log::{Marker, PartitionLog};
use tidegate_types::{TopicId, TopicName};
use tokio::sync::Notify;
use tracing::info;

use super::notice;
use crate::coordinators::{Done, Outcome, Outside, append_records, outcome};

/// What changed of topics and is still to be told to the coordinator: those whose offsets are to be removed, each
/// once, and the newest view of all.
#[derive(Default)]
pub(super) struct Deletions {
    topics: Mutex<Vec<(TopicName, Option<TopicId>)>>,
    view: Mutex<Option<Arc<dyn ClusterView>>>,
    bell: Notify,
}

impl Deletions {
    pub(super) fn add(&self, deleted: &[(TopicName, Option<TopicId>)]) {
        self.topics.lock().extend_from_slice(deleted);
        self.bell.notify_one();
    }

    pub(super) fn show(&self, view: Arc<dyn ClusterView>) {
        *self.view.lock() = Some(view);
        self.bell.notify_one();
    }

    fn take(&self) -> Vec<(TopicName, Option<TopicId>)> {
        std::mem::take(&mut *self.topics.lock())
    }
}

/// The world of one group coordinator.
pub(super) struct GroupsOutside {
    pub(super) log: Arc<PartitionLog>,
    pub(super) deletions: Arc<Deletions>,
}

impl Outside<GroupCoordinator> for GroupsOutside {
    type News = ();

    fn carry_out(&mut self, effect: Effect) -> Done<Reply> {
        let log = &self.log;
        match effect {
            Effect::Reply(token, reply) => Done::Reply(token, reply),
            Effect::Append { id, at, records } => {
                Done::Appending(id, append_records(log, at, &records, None))
            }
            Effect::AppendTransactional {
                id,
                at,
                records,
                transaction,
            } => Done::Appending(id, append_records(log, at, &records, Some(transaction))),
            Effect::AppendMarker { id, end } => Done::Appending(id, append_marker(log, end)),
            Effect::Notice(notice) => {
                notice::log(&notice);
                Done::Nothing
            }
        }
    }

    /// The bell keeps one permit.
    async fn news(&mut self) {
        self.deletions.bell.notified().await;
    }

    fn tell(&mut self, machine: &mut GroupCoordinator, now: Now, (): ()) -> Vec<Effect> {
        self.prepare(machine);
        let topics = self.deletions.take();
        if topics.is_empty() {
            return Vec::new();
        }
        machine.topics_deleted(now, &topics)
    }

    /// Shows the newest view, if there is one that the coordinator hasn't seen.
    fn prepare(&mut self, machine: &mut GroupCoordinator) {
        let view = self.deletions.view.lock().take();
        if let Some(view) = view {
            machine.see(view);
        }
    }

    fn give_up(&mut self) {}
}

fn append_marker(log: &Arc<PartitionLog>, end: EndTransaction) -> Outcome {
    let marker = Marker {
        producer: end.producer,
        epoch: end.epoch,
        coordinator_epoch: end.coordinator_epoch,
        commit: end.commit,
        epoch_rises: end.epoch_rises,
    };
    match log.append_marker(marker) {
        Ok(durability) => outcome(Ok(durability)),
        Err(error) => {
            info!(partition = %log.id(), producer = %end.producer, error = &error as &dyn std::error::Error, "transaction marker was not written");
            outcome(Err(&error))
        }
    }
}
