//! What the local WAL holds, by partition, for opening the logs.

use std::collections::HashMap;

use tidegate_metadata::api::RecoveredEnd;
use tidegate_partition_log::RecoveredBatch;
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

    /// Where the WAL ends for each partition.
    pub(super) fn ends(&self) -> Vec<RecoveredEnd> {
        let last = |(partition, batches): (&PartitionId, &Vec<RecoveredBatch>)| {
            let last = batches.last()?;
            Some(RecoveredEnd {
                partition: *partition,
                leader_epoch: last.leader_epoch,
                end: last.header.end_offset(),
            })
        };
        self.by_partition.iter().filter_map(last).collect()
    }

    /// Where the WAL's oldest entry of each partition lies.
    pub(super) fn oldest(&self) -> Vec<(PartitionId, WalPosition)> {
        let first = |(partition, batches): (&PartitionId, &Vec<RecoveredBatch>)| {
            Some((*partition, batches.first()?.position))
        };
        self.by_partition.iter().filter_map(first).collect()
    }

    pub(super) fn take(&mut self, partition: PartitionId) -> Vec<RecoveredBatch> {
        self.by_partition.remove(&partition).unwrap_or_default()
    }
}
