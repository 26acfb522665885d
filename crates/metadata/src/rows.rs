//! The values of the metadata store as Rust types, and their protobuf messages.
//!
//! Field numbers are for ever. A field that an older release doesn't know is skipped by it, so anything that
//! changes the meaning of a row raises the format number in [`ClusterRow`].

use bytes::Bytes;
use prost::Message;
use tidegate_types::{
    BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, Offset, OffsetRange, TimestampMs,
    TopicName,
};
use uuid::Uuid;

use crate::envelope::{self, DecodeError};
use crate::image::Configs;
use crate::model::{
    ByteSpan, CheckpointRef, Endpoint, EpochStart, StoredObjectKey, WalIdentity, WriterState,
};

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
    /// The local WAL it took leadership with.
    pub(crate) wal: Option<WalIdentity>,
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
    /// There are segments wholly below the log start.
    pub(crate) trim_pending: bool,
    /// The local WAL that may hold acknowledged records behind the committed end.
    pub(crate) wal: Option<WalIdentity>,
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

mod message {
    use prost::Message;
    use std::collections::BTreeMap;

    #[derive(Clone, PartialEq, Message)]
    pub struct Cluster {
        #[prost(string, tag = "1")]
        pub id: String,
        #[prost(uint32, tag = "2")]
        pub format: u32,
        #[prost(int64, tag = "3")]
        pub created_at_ms: i64,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct ControllerEpoch {
        #[prost(uint64, tag = "1")]
        pub epoch: u64,
        #[prost(bytes = "vec", tag = "2")]
        pub instance: Vec<u8>,
        #[prost(uint32, tag = "3")]
        pub broker: u32,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct ProducerIds {
        #[prost(int64, tag = "1")]
        pub next: i64,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Endpoint {
        #[prost(string, tag = "1")]
        pub host: String,
        #[prost(uint32, tag = "2")]
        pub port: u32,
    }

    #[derive(Clone, Copy, PartialEq, Message)]
    pub struct Writer {
        #[prost(uint64, tag = "1")]
        pub broker_epoch: u64,
        #[prost(uint64, tag = "2")]
        pub next_wal_sequence: u64,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Broker {
        #[prost(uint64, tag = "1")]
        pub broker_epoch: u64,
        #[prost(bytes = "vec", tag = "2")]
        pub incarnation: Vec<u8>,
        #[prost(message, optional, tag = "3")]
        pub kafka: Option<Endpoint>,
        #[prost(message, optional, tag = "4")]
        pub internal: Option<Endpoint>,
        #[prost(string, optional, tag = "5")]
        pub rack: Option<String>,
        #[prost(message, optional, tag = "6")]
        pub writer: Option<Writer>,
        #[prost(bytes = "vec", optional, tag = "7")]
        pub wal: Option<Vec<u8>>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Configs {
        #[prost(btree_map = "string, string", tag = "1")]
        pub configs: BTreeMap<String, String>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Topic {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(btree_map = "string, string", tag = "2")]
        pub configs: BTreeMap<String, String>,
        #[prost(uint32, tag = "3")]
        pub partition_count: u32,
        #[prost(uint32, tag = "4")]
        pub replication_factor: u32,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct DeletedTopic {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(int64, tag = "2")]
        pub deleted_at_ms: i64,
    }

    #[derive(Clone, Copy, PartialEq, Message)]
    pub struct EpochStart {
        #[prost(uint32, tag = "1")]
        pub epoch: u32,
        #[prost(uint64, tag = "2")]
        pub start: u64,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Checkpoint {
        #[prost(string, tag = "1")]
        pub object: String,
        #[prost(uint64, tag = "2")]
        pub position: u64,
        #[prost(uint64, tag = "3")]
        pub length: u64,
        #[prost(uint64, tag = "4")]
        pub as_of: u64,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Partition {
        #[prost(uint32, optional, tag = "1")]
        pub leader: Option<u32>,
        #[prost(uint32, tag = "2")]
        pub leader_epoch: u32,
        #[prost(message, repeated, tag = "3")]
        pub epochs: Vec<EpochStart>,
        #[prost(uint32, repeated, tag = "4")]
        pub placement: Vec<u32>,
        #[prost(uint64, tag = "5")]
        pub log_start: u64,
        #[prost(uint64, tag = "6")]
        pub committed_end: u64,
        #[prost(message, optional, tag = "7")]
        pub checkpoint: Option<Checkpoint>,
        #[prost(uint64, tag = "8")]
        pub segment_count: u64,
        #[prost(uint64, tag = "9")]
        pub segment_bytes: u64,
        #[prost(bool, tag = "10")]
        pub trim_pending: bool,
        #[prost(bytes = "vec", optional, tag = "11")]
        pub wal: Option<Vec<u8>>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Segment {
        #[prost(uint64, tag = "1")]
        pub start: u64,
        #[prost(uint32, tag = "2")]
        pub leader_epoch: u32,
        #[prost(string, tag = "3")]
        pub object: String,
        #[prost(uint64, tag = "4")]
        pub position: u64,
        #[prost(uint64, tag = "5")]
        pub length: u64,
        #[prost(uint64, tag = "6")]
        pub index_position: u64,
        #[prost(uint64, tag = "7")]
        pub index_length: u64,
        #[prost(sint64, tag = "8")]
        pub max_timestamp_ms: i64,
        #[prost(uint64, tag = "9")]
        pub record_count: u64,
        #[prost(sint64, tag = "10")]
        pub committed_at_ms: i64,
    }

    #[derive(Clone, Copy, PartialEq, Message)]
    pub struct Object {
        #[prost(uint64, tag = "1")]
        pub size_bytes: u64,
        #[prost(uint64, tag = "2")]
        pub references: u64,
        #[prost(int64, optional, tag = "3")]
        pub dropped_at_ms: Option<i64>,
    }

    #[derive(Clone, Copy, PartialEq, Message)]
    pub struct Dropped {}
}

/// A message that stands for a row.
trait Stored: Message + Default {
    type Row;
    fn from_row(row: &Self::Row) -> Self;
    fn into_row(self) -> Result<Self::Row, DecodeError>;
}

macro_rules! stored_as {
    ($row:ty, $message:ty) => {
        impl Row for $row {
            fn seal(&self, key: &[u8]) -> Bytes {
                envelope::seal(key, &<$message>::from_row(self))
            }
            fn open(key: &[u8], value: &[u8]) -> Result<Self, DecodeError> {
                envelope::open::<$message>(key, value)?.into_row()
            }
        }
    };
}

stored_as!(ClusterRow, message::Cluster);
stored_as!(ControllerEpochRow, message::ControllerEpoch);
stored_as!(ProducerIdsRow, message::ProducerIds);
stored_as!(BrokerRow, message::Broker);
stored_as!(ConfigsRow, message::Configs);
stored_as!(TopicRow, message::Topic);
stored_as!(DeletedTopicRow, message::DeletedTopic);
stored_as!(PartitionRow, message::Partition);
stored_as!(SegmentRow, message::Segment);
stored_as!(ObjectRow, message::Object);
stored_as!(DroppedRow, message::Dropped);

impl Stored for message::Cluster {
    type Row = ClusterRow;
    fn from_row(row: &ClusterRow) -> Self {
        Self {
            id: row.id.clone(),
            format: row.format,
            created_at_ms: row.created_at.get(),
        }
    }
    fn into_row(self) -> Result<ClusterRow, DecodeError> {
        Ok(ClusterRow {
            id: self.id,
            format: self.format,
            created_at: TimestampMs::new(self.created_at_ms),
        })
    }
}

impl Stored for message::ControllerEpoch {
    type Row = ControllerEpochRow;
    fn from_row(row: &ControllerEpochRow) -> Self {
        Self {
            epoch: row.epoch.get(),
            instance: row.instance.as_bytes().to_vec(),
            broker: row.broker.get(),
        }
    }
    fn into_row(self) -> Result<ControllerEpochRow, DecodeError> {
        Ok(ControllerEpochRow {
            epoch: ControllerEpoch::new(self.epoch),
            instance: uuid(&self.instance)?,
            broker: broker_id(self.broker)?,
        })
    }
}

impl Stored for message::ProducerIds {
    type Row = ProducerIdsRow;
    fn from_row(row: &ProducerIdsRow) -> Self {
        Self { next: row.next }
    }
    fn into_row(self) -> Result<ProducerIdsRow, DecodeError> {
        if self.next < 0 {
            return Err(DecodeError::Invalid("a negative producer id"));
        }
        Ok(ProducerIdsRow { next: self.next })
    }
}

impl Stored for message::Broker {
    type Row = BrokerRow;
    fn from_row(row: &BrokerRow) -> Self {
        Self {
            broker_epoch: row.broker_epoch.get(),
            incarnation: row.incarnation.as_bytes().to_vec(),
            kafka: Some(endpoint_message(&row.kafka)),
            internal: row.internal.as_ref().map(endpoint_message),
            rack: row.rack.clone(),
            writer: row.writer.map(|w| message::Writer {
                broker_epoch: w.broker_epoch.get(),
                next_wal_sequence: w.next_wal_sequence,
            }),
            wal: row.wal.map(|w| w.as_bytes().to_vec()),
        }
    }
    fn into_row(self) -> Result<BrokerRow, DecodeError> {
        Ok(BrokerRow {
            broker_epoch: BrokerEpoch::new(self.broker_epoch),
            incarnation: uuid(&self.incarnation)?,
            kafka: endpoint(
                self.kafka
                    .ok_or(DecodeError::Invalid("a broker without an endpoint"))?,
            )?,
            internal: self.internal.map(endpoint).transpose()?,
            rack: self.rack,
            writer: self.writer.map(|w| WriterState {
                broker_epoch: BrokerEpoch::new(w.broker_epoch),
                next_wal_sequence: w.next_wal_sequence,
            }),
            wal: self.wal.as_deref().map(uuid).transpose()?,
        })
    }
}

impl Stored for message::Configs {
    type Row = ConfigsRow;
    fn from_row(row: &ConfigsRow) -> Self {
        Self {
            configs: row.configs.clone(),
        }
    }
    fn into_row(self) -> Result<ConfigsRow, DecodeError> {
        Ok(ConfigsRow {
            configs: self.configs,
        })
    }
}

impl Stored for message::Topic {
    type Row = TopicRow;
    fn from_row(row: &TopicRow) -> Self {
        Self {
            name: row.name.as_str().to_owned(),
            configs: row.configs.clone(),
            partition_count: row.partition_count,
            replication_factor: row.replication_factor.into(),
        }
    }
    fn into_row(self) -> Result<TopicRow, DecodeError> {
        Ok(TopicRow {
            name: topic_name(&self.name)?,
            configs: self.configs,
            partition_count: self.partition_count,
            replication_factor: u16::try_from(self.replication_factor)
                .map_err(|_| DecodeError::Invalid("a replication factor above 65535"))?,
        })
    }
}

impl Stored for message::DeletedTopic {
    type Row = DeletedTopicRow;
    fn from_row(row: &DeletedTopicRow) -> Self {
        Self {
            name: row.name.as_str().to_owned(),
            deleted_at_ms: row.deleted_at.get(),
        }
    }
    fn into_row(self) -> Result<DeletedTopicRow, DecodeError> {
        Ok(DeletedTopicRow {
            name: topic_name(&self.name)?,
            deleted_at: TimestampMs::new(self.deleted_at_ms),
        })
    }
}

impl Stored for message::Partition {
    type Row = PartitionRow;
    fn from_row(row: &PartitionRow) -> Self {
        Self {
            leader: row.leader.map(BrokerId::get),
            leader_epoch: row.leader_epoch.get(),
            epochs: row
                .epochs
                .iter()
                .map(|e| message::EpochStart {
                    epoch: e.epoch.get(),
                    start: e.start.get(),
                })
                .collect(),
            placement: row.placement.iter().map(|b| b.get()).collect(),
            log_start: row.log_start.get(),
            committed_end: row.committed_end.get(),
            checkpoint: row.checkpoint.as_ref().map(|c| message::Checkpoint {
                object: c.object.as_str().to_owned(),
                position: c.span.position,
                length: c.span.length,
                as_of: c.as_of.get(),
            }),
            segment_count: row.segment_count,
            segment_bytes: row.segment_bytes,
            trim_pending: row.trim_pending,
            wal: row.wal.map(|w| w.as_bytes().to_vec()),
        }
    }
    fn into_row(self) -> Result<PartitionRow, DecodeError> {
        let epochs = self
            .epochs
            .iter()
            .map(epoch_start)
            .collect::<Result<Vec<_>, _>>()?;
        let rising = epochs
            .windows(2)
            .all(|pair| pair[0].epoch < pair[1].epoch && pair[0].start < pair[1].start);
        if !rising {
            return Err(DecodeError::Invalid("leader epochs that don't rise"));
        }
        Ok(PartitionRow {
            leader: self.leader.map(broker_id).transpose()?,
            leader_epoch: leader_epoch(self.leader_epoch)?,
            epochs,
            placement: self
                .placement
                .into_iter()
                .map(broker_id)
                .collect::<Result<_, _>>()?,
            log_start: offset(self.log_start)?,
            committed_end: offset(self.committed_end)?,
            checkpoint: self.checkpoint.map(checkpoint).transpose()?,
            segment_count: self.segment_count,
            segment_bytes: self.segment_bytes,
            trim_pending: self.trim_pending,
            wal: self.wal.as_deref().map(uuid).transpose()?,
        })
    }
}

impl Stored for message::Segment {
    type Row = SegmentRow;
    fn from_row(row: &SegmentRow) -> Self {
        Self {
            start: row.start.get(),
            leader_epoch: row.leader_epoch.get(),
            object: row.object.as_str().to_owned(),
            position: row.span.position,
            length: row.span.length,
            index_position: row.index.position,
            index_length: row.index.length,
            max_timestamp_ms: row.max_timestamp.get(),
            record_count: row.record_count,
            committed_at_ms: row.committed_at.get(),
        }
    }
    fn into_row(self) -> Result<SegmentRow, DecodeError> {
        Ok(SegmentRow {
            start: offset(self.start)?,
            leader_epoch: leader_epoch(self.leader_epoch)?,
            object: object_key(&self.object)?,
            span: ByteSpan {
                position: self.position,
                length: self.length,
            },
            index: ByteSpan {
                position: self.index_position,
                length: self.index_length,
            },
            max_timestamp: TimestampMs::new(self.max_timestamp_ms),
            record_count: self.record_count,
            committed_at: TimestampMs::new(self.committed_at_ms),
        })
    }
}

impl SegmentRow {
    /// The offsets, the end being in the key.
    pub(crate) fn range(&self, end: Offset) -> Result<OffsetRange, DecodeError> {
        OffsetRange::new(self.start, end)
            .filter(|range| !range.is_empty())
            .ok_or(DecodeError::Invalid("a segment that ends before it starts"))
    }
}

impl Stored for message::Object {
    type Row = ObjectRow;
    fn from_row(row: &ObjectRow) -> Self {
        Self {
            size_bytes: row.size_bytes,
            references: row.references,
            dropped_at_ms: row.dropped_at.map(TimestampMs::get),
        }
    }
    fn into_row(self) -> Result<ObjectRow, DecodeError> {
        if (self.references == 0) != self.dropped_at_ms.is_some() {
            return Err(DecodeError::Invalid(
                "an object both dropped and referred to",
            ));
        }
        Ok(ObjectRow {
            size_bytes: self.size_bytes,
            references: self.references,
            dropped_at: self.dropped_at_ms.map(TimestampMs::new),
        })
    }
}

impl Stored for message::Dropped {
    type Row = DroppedRow;
    fn from_row(_: &DroppedRow) -> Self {
        Self {}
    }
    fn into_row(self) -> Result<DroppedRow, DecodeError> {
        Ok(DroppedRow)
    }
}

fn uuid(bytes: &[u8]) -> Result<Uuid, DecodeError> {
    Uuid::from_slice(bytes).map_err(|_| DecodeError::Invalid("an id that isn't 16 bytes long"))
}

fn broker_id(id: u32) -> Result<BrokerId, DecodeError> {
    BrokerId::new(id).map_err(|_| DecodeError::Invalid("a broker id above 2^31-1"))
}

fn leader_epoch(epoch: u32) -> Result<LeaderEpoch, DecodeError> {
    LeaderEpoch::new(epoch).ok_or(DecodeError::Invalid("a leader epoch above 2^31-1"))
}

fn offset(offset: u64) -> Result<Offset, DecodeError> {
    Offset::new(offset).ok_or(DecodeError::Invalid("an offset above 2^63-1"))
}

fn topic_name(name: &str) -> Result<TopicName, DecodeError> {
    TopicName::new(name).map_err(|_| DecodeError::Invalid("a topic name"))
}

fn object_key(key: &str) -> Result<StoredObjectKey, DecodeError> {
    StoredObjectKey::new(key).map_err(|_| DecodeError::Invalid("an object key"))
}

fn endpoint_message(endpoint: &Endpoint) -> message::Endpoint {
    message::Endpoint {
        host: endpoint.host.clone(),
        port: endpoint.port.into(),
    }
}

fn endpoint(message: message::Endpoint) -> Result<Endpoint, DecodeError> {
    Ok(Endpoint {
        host: message.host,
        port: u16::try_from(message.port).map_err(|_| DecodeError::Invalid("a port"))?,
    })
}

fn epoch_start(message: &message::EpochStart) -> Result<EpochStart, DecodeError> {
    Ok(EpochStart {
        epoch: leader_epoch(message.epoch)?,
        start: offset(message.start)?,
    })
}

fn checkpoint(message: message::Checkpoint) -> Result<CheckpointRef, DecodeError> {
    Ok(CheckpointRef {
        object: object_key(&message.object)?,
        span: ByteSpan {
            position: message.position,
            length: message.length,
        },
        as_of: offset(message.as_of)?,
    })
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use tidegate_types::{PartitionId, PartitionIndex, TopicId};

    use super::*;
    use crate::keys::{self, SegmentKey, Table};

    /// One row per line: key and value in hexadecimal. Rows that release 1 wrote; never to be changed.
    const GOLDEN: &str = include_str!("../testdata/rows-v1.txt");

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn offset_of(offset: u64) -> Offset {
        Offset::new(offset).unwrap()
    }

    fn object_of() -> StoredObjectKey {
        StoredObjectKey::new("data/3/12/4711").unwrap()
    }

    /// Writes the row as a line, and checks that it reads back as it was.
    fn line<R: Row + PartialEq + Debug>(lines: &mut Vec<String>, key: &[u8], row: &R) {
        let value = row.seal(key);
        assert_eq!(&R::open(key, &value).unwrap(), row);
        lines.push(format!("{} {}", hex(key), hex(&value)));
    }

    fn partition_row() -> PartitionRow {
        PartitionRow {
            leader: BrokerId::new(3).ok(),
            leader_epoch: leader_epoch(5).unwrap(),
            epochs: vec![
                EpochStart {
                    epoch: leader_epoch(2).unwrap(),
                    start: offset_of(10),
                },
                EpochStart {
                    epoch: leader_epoch(5).unwrap(),
                    start: offset_of(900),
                },
            ],
            placement: vec![BrokerId::new(3).unwrap(), BrokerId::new(0).unwrap()],
            log_start: offset_of(12),
            committed_end: offset_of(1_000),
            checkpoint: Some(CheckpointRef {
                object: object_of(),
                span: ByteSpan {
                    position: 77,
                    length: 88,
                },
                as_of: offset_of(1_000),
            }),
            segment_count: 4,
            segment_bytes: 123_456,
            trim_pending: true,
            wal: Some(Uuid::from_u128(0xABC)),
        }
    }

    fn broker_row() -> BrokerRow {
        BrokerRow {
            broker_epoch: BrokerEpoch::new(12),
            incarnation: Uuid::from_u128(0x1234),
            kafka: Endpoint {
                host: "kafka.example".into(),
                port: 9092,
            },
            internal: Some(Endpoint {
                host: "10.0.0.3".into(),
                port: 9093,
            }),
            rack: Some("a".into()),
            writer: Some(WriterState {
                broker_epoch: BrokerEpoch::new(11),
                next_wal_sequence: 42,
            }),
            wal: Some(Uuid::from_u128(0xABC)),
        }
    }

    #[test]
    fn rows_are_written_as_release_1_wrote_them() {
        let topic = TopicId::new(Uuid::from_u128(0x1111_2222)).unwrap();
        let partition = PartitionId {
            topic,
            index: PartitionIndex::new(7).unwrap(),
        };
        let time = TimestampMs::new(1_700_000_000_000);
        let configs: Configs = [("retention.ms".to_owned(), "1".to_owned())].into();
        let name = TopicName::new("t").unwrap();
        let mut lines = Vec::new();
        let l = &mut lines;
        let cluster = ClusterRow {
            id: "AAECAwQFBgcICQoLDA0ODw".into(),
            format: 1,
            created_at: time,
        };
        line(l, &keys::single(Table::Cluster), &cluster);
        let controller = ControllerEpochRow {
            epoch: ControllerEpoch::new(9),
            instance: Uuid::from_u128(0x77),
            broker: BrokerId::new(3).unwrap(),
        };
        line(l, &keys::single(Table::ControllerEpoch), &controller);
        line(
            l,
            &keys::single(Table::ProducerIds),
            &ProducerIdsRow { next: 5_000 },
        );
        let broker = BrokerId::new(3).unwrap();
        line(l, &keys::broker(broker), &broker_row());
        let stored = ConfigsRow {
            configs: configs.clone(),
        };
        line(l, &keys::configs(None), &stored);
        line(l, &keys::configs(Some(broker)), &stored);
        let topic_row = TopicRow {
            name: name.clone(),
            configs,
            partition_count: 8,
            replication_factor: 3,
        };
        line(l, &keys::topic(Table::Topic, topic), &topic_row);
        let deleted = DeletedTopicRow {
            name,
            deleted_at: time,
        };
        line(l, &keys::topic(Table::DeletedTopic, topic), &deleted);
        line(l, &keys::partition(partition), &partition_row());
        let segment = SegmentRow {
            start: offset_of(900),
            leader_epoch: leader_epoch(5).unwrap(),
            object: object_of(),
            span: ByteSpan {
                position: 64,
                length: 8 << 20,
            },
            index: ByteSpan {
                position: 9 << 20,
                length: 4_000,
            },
            max_timestamp: time,
            record_count: 100,
            committed_at: time,
        };
        let segment_key = SegmentKey {
            partition,
            end: offset_of(1_000),
        };
        line(l, &keys::segment(segment_key), &segment);
        let object = ObjectRow {
            size_bytes: 9 << 20,
            references: 0,
            dropped_at: Some(time),
        };
        line(l, &keys::object(&object_of()), &object);
        line(l, &keys::dropped(time, &object_of()), &DroppedRow);
        let written = lines.join("\n") + "\n";
        assert_eq!(written, GOLDEN, "written now:\n{written}");
    }

    #[test]
    fn rows_that_cannot_be_are_refused() {
        let key = keys::object(&object_of());
        let both = message::Object {
            size_bytes: 1,
            references: 1,
            dropped_at_ms: Some(1),
        };
        assert!(ObjectRow::open(&key, &envelope::seal(&key, &both)).is_err());
        let mut falling = message::Partition::from_row(&partition_row());
        falling.epochs.reverse();
        assert!(PartitionRow::open(&key, &envelope::seal(&key, &falling)).is_err());
    }
}
