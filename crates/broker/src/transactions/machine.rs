//! The transaction coordinator as a machine that is hosted.

use tidegate_coordinator::transactions::{
    TransactionConfig, TransactionCoordinator, TransactionEffect, TransactionReply,
};
use tidegate_coordinator::{AppendFailure, AppendId, Now, RecordError};
use tidegate_record_batch::{StoredBatch, records};
use tidegate_types::{Offset, PartitionId};
use tracing::{debug, info, warn};

use crate::coordinators::{BATCH_BYTES, Machine, ReplayError};

impl Machine for TransactionCoordinator {
    type Config = TransactionConfig;
    type Effect = TransactionEffect;
    type Reply = TransactionReply;
    const KIND: &'static str = "transaction";

    fn loading(config: &TransactionConfig) -> Self {
        Self::new(config.clone())
    }

    fn replay(&mut self, batch: &StoredBatch, from: Offset) -> Result<(), ReplayError> {
        if batch.header().is_control() {
            return Ok(());
        }
        for record in records(batch, BATCH_BYTES)? {
            // The first batch may begin before the log's start.
            if record.offset >= from {
                let key = record.key.as_deref().ok_or(ReplayError::NoKey)?;
                self.replay(key, record.value.as_deref())?;
            }
        }
        Ok(())
    }

    fn loaded(&mut self, now: Now) -> Result<Vec<TransactionEffect>, RecordError> {
        Ok(self.loaded(now))
    }

    fn unload(&mut self, _: Now) -> Vec<TransactionEffect> {
        self.unload()
    }

    fn appended(
        &mut self,
        now: Now,
        id: AppendId,
        outcome: Result<(), AppendFailure>,
    ) -> Vec<TransactionEffect> {
        self.appended(now, id, outcome)
    }

    fn next_deadline(&self) -> Option<u64> {
        self.next_deadline()
    }

    fn tick(&mut self, now: Now) -> Vec<TransactionEffect> {
        self.tick(now)
    }

    fn report(&self, partition: PartitionId, took_ms: u64) {
        let (ids, open, skipped) = (self.id_count(), self.open_count(), self.skipped_records());
        if skipped > 0 {
            warn!(%partition, skipped, "the log has transaction records of unknown types");
        }
        if ids > 0 {
            info!(%partition, ids, open, took_ms, "transactional ids loaded");
        } else {
            debug!(%partition, took_ms, "no transactional ids to load");
        }
    }
}
