//! Retention by time and size, expiry of idle producers, and deletion of objects nobody refers to.

use std::sync::Arc;
use std::time::Duration;

use tidegate_maintenance::{ObjectDeleter, RetentionPolicy, StoredSegment, new_log_start};
use tidegate_object_storage::ObjectStorage;
use tidegate_partition_log::PartitionLog;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::broker::Broker;

/// Runs at an interval over all logs that this broker leads.
pub(super) struct Retention {
    pub(super) broker: Arc<Broker>,
    pub(super) storage: ObjectStorage,
    pub(super) interval: Duration,
    pub(super) grace: Duration,
}

impl Retention {
    pub(super) async fn run(self, cancel: CancellationToken) {
        let deleter = ObjectDeleter {
            controller: self.broker.controller.clone(),
            storage: self.storage.clone(),
            clock: self.broker.clock.clone(),
            grace: self.grace,
        };
        loop {
            // Cancel-safe: every step is repeated at the next round.
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(self.interval) => {}
            }
            tokio::select! {
                () = cancel.cancelled() => return,
                () = self.round(&deleter) => {}
            }
        }
    }

    async fn round(&self, deleter: &ObjectDeleter) {
        for log in self.broker.logs.all() {
            log.expire_producers();
            self.apply(&log).await;
        }
        // One broker deletes for all, whoever wrote the objects.
        let controller = self.broker.catalog.load().image.controller();
        if controller != Some(self.broker.id) {
            return;
        }
        match deleter.round().await {
            Ok(0) => {}
            Ok(objects) => info!(objects, "deleted objects that nobody refers to"),
            Err(error) => warn!(
                error = &error as &dyn std::error::Error,
                "deleting objects is tried again later"
            ),
        }
    }

    async fn apply(&self, log: &Arc<PartitionLog>) {
        let catalog = self.broker.catalog.load_full();
        let Some(topic) = catalog.image.topic_by_id(log.id().topic) else {
            return;
        };
        let settings = catalog.settings(topic);
        if !settings.cleanup.delete {
            return;
        }
        let policy = RetentionPolicy {
            age: settings.retention,
            bytes: settings.retention_bytes,
        };
        let segments = log.segments();
        let stored = segments.iter().map(|s| StoredSegment {
            range: s.range,
            bytes: s.length,
            max_timestamp: s.max_timestamp,
            stored_at: s.stored_at,
        });
        let Some(start) = new_log_start(stored, policy, self.broker.clock.wall()) else {
            return;
        };
        match self.broker.advance_log_start(log, start).await {
            Ok(start) => {
                info!(partition = %log.id(), topic = %log.topic(), log_start = %start, "retention moved the log start")
            }
            Err(code) => {
                warn!(partition = %log.id(), topic = %log.topic(), code = ?code, "retention is tried again later")
            }
        }
    }
}
