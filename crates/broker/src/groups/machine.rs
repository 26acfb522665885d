//! The group coordinator as a machine that is hosted.

use tidegate_coordinator::{
    AppendFailure, AppendId, Effect, GroupConfig, GroupCoordinator, Now, RecordError, Reply,
};
use tidegate_record_batch::{ControlMarker, StoredBatch, records};
use tidegate_types::{Offset, PartitionId};
use tracing::{debug, info, warn};

use crate::coordinators::{BATCH_BYTES, Machine, ReplayError};

impl Machine for GroupCoordinator {
    type Config = GroupConfig;
    type Effect = Effect;
    type Reply = Reply;
    const KIND: &'static str = "group";

    fn loading(config: &GroupConfig) -> Self {
        Self::new(config.clone())
    }

    fn replay(&mut self, batch: &StoredBatch, from: Offset) -> Result<(), ReplayError> {
        let header = batch.header();
        let producer = header.producer().map(|producer| producer.id);
        if header.is_control() {
            // Other kinds of control batches are skipped.
            if let (Ok(marker), Some(producer)) = (ControlMarker::decode(batch), producer) {
                self.replay_marker(producer, marker.commit);
            }
            return Ok(());
        }
        let transaction = producer.filter(|_| header.is_transactional());
        for record in records(batch, BATCH_BYTES)? {
            // The first batch may begin before the log's start.
            if record.offset >= from {
                let key = record.key.as_deref().ok_or(ReplayError::NoKey)?;
                let value = record.value.as_deref();
                match transaction {
                    Some(producer) => self.replay_transactional(producer, key, value)?,
                    None => self.replay(key, value)?,
                }
            }
        }
        Ok(())
    }

    fn loaded(&mut self, now: Now) -> Result<Vec<Effect>, RecordError> {
        self.loaded(now)
    }

    fn unload(&mut self, now: Now) -> Vec<Effect> {
        self.unload(now)
    }

    fn appended(
        &mut self,
        now: Now,
        id: AppendId,
        outcome: Result<(), AppendFailure>,
    ) -> Vec<Effect> {
        self.appended(now, id, outcome)
    }

    fn next_deadline(&self) -> Option<u64> {
        self.next_deadline()
    }

    fn tick(&mut self, now: Now) -> Vec<Effect> {
        self.tick(now)
    }

    fn report(&self, partition: PartitionId, took_ms: u64) {
        let (groups, skipped) = (self.group_count(), self.skipped_records());
        if skipped > 0 {
            warn!(%partition, skipped, "the log has group records of unknown types");
        }
        if groups > 0 {
            info!(%partition, groups, took_ms, "groups loaded");
        } else {
            debug!(%partition, took_ms, "no groups to load");
        }
    }
}
