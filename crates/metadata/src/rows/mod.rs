//! The values of the metadata store as Rust types, and their protobuf messages.
//!
//! Field numbers are for ever. A field that an older release doesn't know is skipped by it, so anything that
//! changes the meaning of a row raises the format number in [`ClusterRow`].

use bytes::Bytes;
use tidegate_types::{
    BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, Offset, OffsetRange, TimestampMs,
    TopicName,
};
use uuid::Uuid;

use crate::api::QuotaLimits;
use crate::envelope::DecodeError;
use crate::image::Configs;
use crate::model::{
    ByteSpan, CheckpointRef, Endpoint, EpochStart, StoredObjectKey, WalIdentity, WriterState,
};

mod message;
mod stored;

#[cfg(test)]
mod tests;

/// A row's type: how it goes into an envelope and comes out.
pub(crate) trait Row: Sized {
    fn seal(&self, key: &[u8]) -> Bytes;
    fn open(key: &[u8], value: &[u8]) -> Result<Self, DecodeError>;
}

/// Who the cluster is, written once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClusterRow {
    pub(crate) id: String,
    pub(crate) format: u32,
    pub(crate) created_at: TimestampMs,
}

/// Who is controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ControllerEpochRow {
    pub(crate) epoch: ControllerEpoch,
    pub(crate) instance: Uuid,
    pub(crate) broker: BrokerId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProducerIdsRow {
    pub(crate) next: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BrokerRow {
    pub(crate) broker_epoch: BrokerEpoch,
    pub(crate) incarnation: Uuid,
    pub(crate) kafka: Endpoint,
    pub(crate) internal: Option<Endpoint>,
    pub(crate) rack: Option<String>,
    /// The registration under which it last took leadership.
    pub(crate) writer: Option<WriterState>,
    /// The local WAL it runs on: named at registration, at the latest when it takes leadership.
    pub(crate) wal: Option<WalIdentity>,
    /// It gives its partitions away and gets none.
    pub(crate) draining: bool,
    /// The row stands only for its epoch, so that a broker of the same number never reuses one.
    pub(crate) unregistered: bool,
}

impl BrokerRow {
    /// It may act as leader: it took leadership under its present registration.
    pub(crate) fn leads(&self) -> bool {
        self.writer
            .is_some_and(|w| w.broker_epoch == self.broker_epoch)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ConfigsRow {
    pub(crate) configs: Configs,
}

/// The limits of one entity.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct QuotasRow {
    pub(crate) limits: QuotaLimits,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicRow {
    pub(crate) name: TopicName,
    pub(crate) configs: Configs,
    pub(crate) partition_count: u32,
    pub(crate) replication_factor: u16,
}

/// A topic whose segments are still to be dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeletedTopicRow {
    pub(crate) name: TopicName,
    pub(crate) deleted_at: TimestampMs,
}

/// A wanted move of leadership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) to: BrokerId,
    /// From the move on.
    pub(crate) placement: Vec<BrokerId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartitionRow {
    pub(crate) leader: Option<BrokerId>,
    pub(crate) leader_epoch: LeaderEpoch,
    pub(crate) epochs: Vec<EpochStart>,
    pub(crate) placement: Vec<BrokerId>,
    pub(crate) log_start: Offset,
    pub(crate) committed_end: Offset,
    pub(crate) checkpoint: Option<CheckpointRef>,
    pub(crate) segment_count: u64,
    pub(crate) segment_bytes: u64,
    /// Up to where the log has been compacted by key.
    pub(crate) cleaned_end: Offset,
    /// How often segments were put in the place of others.
    pub(crate) swaps: u64,
    /// There are segments wholly below the log start.
    pub(crate) trim_pending: bool,
    /// The local WAL that may hold acknowledged records behind the committed end.
    pub(crate) wal: Option<WalIdentity>,
    pub(crate) target: Option<Target>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentRow {
    pub(crate) start: Offset,
    pub(crate) leader_epoch: LeaderEpoch,
    pub(crate) object: StoredObjectKey,
    pub(crate) span: ByteSpan,
    pub(crate) index: ByteSpan,
    pub(crate) max_timestamp: TimestampMs,
    pub(crate) record_count: u64,
    pub(crate) committed_at: TimestampMs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ObjectRow {
    pub(crate) size_bytes: u64,
    /// Segments and checkpoints that refer to it.
    pub(crate) references: u64,
    /// When the last reference went; set exactly when there are none.
    pub(crate) dropped_at: Option<TimestampMs>,
}

/// Marks an object as deletable, in the order of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DroppedRow;

impl SegmentRow {
    /// The offsets, the end being in the key.
    pub(crate) fn range(&self, end: Offset) -> Result<OffsetRange, DecodeError> {
        OffsetRange::new(self.start, end)
            .filter(|range| !range.is_empty())
            .ok_or(DecodeError::Invalid("a segment that ends before it starts"))
    }
}
