//! What the local WAL holds, by partition, for opening the logs.
//!
//! It holds what this broker appended as leader and copies of what others did, some twice, some of no use any
//! more. What counts of it depends on what metadata has committed and on the leader epochs' history, so metadata
//! is asked before the controller is told where each log ends.

use std::collections::HashMap;

use tidegate_metadata::PartitionState;
use tidegate_metadata::api::RecoveredEnd;
use tidegate_partition_log::{RecoveredBatch, recovered_end};
use tidegate_record_batch::Batches;
use tidegate_types::PartitionId;
use tidegate_wal::WalPosition;
use tidegate_wal::local::RecoveredEntry;
use tracing::error;

/// Headers of all recovered batches; their bytes stay in the WAL.
#[derive(Default)]
pub(super) struct RecoveredLogs {
    by_partition: HashMap<PartitionId, Vec<RecoveredBatch>>,
}

impl RecoveredLogs {
    /// Takes in one entry, which holds the one batch of one append.
    pub(super) fn add(&mut self, recovered: &RecoveredEntry) {
        let entry = &recovered.entry;
        for batch in Batches::headers_only(entry.batches.clone()) {
            match batch {
                Ok(batch) => {
                    let batch = RecoveredBatch::new(&batch, entry.leader_epoch, recovered.position);
                    self.by_partition
                        .entry(entry.partition)
                        .or_default()
                        .push(batch);
                }
                // The frame's CRC was right, so this is what was written: a defect, never a torn write.
                Err(error) => {
                    error!(partition = %entry.partition, position = %recovered.position, error = &error as &dyn std::error::Error, "the write-ahead log holds something that is no record batch");
                }
            }
        }
    }

    /// Of which partitions the WAL holds something.
    pub(super) fn partitions(&self) -> Vec<PartitionId> {
        self.by_partition.keys().copied().collect()
    }

    /// Where each log ends that the WAL continues, given the partitions' states as of now. A state that is older
    /// is no harm as long as it was read after this broker registered: another broker may have committed more of
    /// a sealed range meanwhile, which the WAL holds too.
    pub(super) fn ends(&self, states: &[PartitionState]) -> Vec<RecoveredEnd> {
        let end = |state: &PartitionState| {
            let found = self.by_partition.get(&state.partition)?;
            recovered_end(state, found)
        };
        states.iter().filter_map(end).collect()
    }

    /// Where the WAL's oldest entry of each partition lies.
    pub(super) fn oldest(&self) -> Vec<(PartitionId, WalPosition)> {
        let first = |(partition, batches): (&PartitionId, &Vec<RecoveredBatch>)| {
            let positions = batches.iter().map(|batch| batch.position);
            Some((*partition, positions.min()?))
        };
        self.by_partition.iter().filter_map(first).collect()
    }

    pub(super) fn take(&mut self, partition: PartitionId) -> Vec<RecoveredBatch> {
        self.by_partition.remove(&partition).unwrap_or_default()
    }
}
