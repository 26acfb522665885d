//! Rows to messages and back.

use bytes::Bytes;
use prost::Message;
use tidegate_types::{
    BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, Offset, TimestampMs, TopicName,
};
use uuid::Uuid;

use super::{
    BrokerRow, ClusterRow, ConfigsRow, ControllerEpochRow, DeletedTopicRow, DroppedRow, ObjectRow,
    PartitionRow, ProducerIdsRow, QuotasRow, Row, SegmentRow, Target, TopicRow, message,
};
use crate::api::QuotaLimit;
use crate::envelope::{self, DecodeError};
use crate::model::{ByteSpan, CheckpointRef, Endpoint, EpochStart, StoredObjectKey, WriterState};

/// A message that stands for a row.
pub(super) trait Stored: Message + Default {
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
stored_as!(QuotasRow, message::Quotas);
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
            draining: row.draining,
            unregistered: row.unregistered,
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
            draining: self.draining,
            unregistered: self.unregistered,
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

impl Stored for message::Quotas {
    type Row = QuotasRow;
    fn from_row(row: &QuotasRow) -> Self {
        let limits = row.limits.iter();
        Self {
            limits: limits.map(|(key, l)| (key.clone(), l.get())).collect(),
        }
    }
    fn into_row(self) -> Result<QuotasRow, DecodeError> {
        let limits = self.limits.into_iter().map(|(key, value)| {
            let limit = QuotaLimit::try_from(value);
            Ok((key, limit.map_err(|_| DecodeError::Invalid("a quota"))?))
        });
        Ok(QuotasRow {
            limits: limits.collect::<Result<_, DecodeError>>()?,
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
            cleaned_end: row.cleaned_end.get(),
            swaps: row.swaps,
            trim_pending: row.trim_pending,
            wal: row.wal.map(|w| w.as_bytes().to_vec()),
            target: row.target.as_ref().map(|target| message::Target {
                to: target.to.get(),
                placement: target.placement.iter().map(|b| b.get()).collect(),
            }),
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
            placement: broker_ids(self.placement)?,
            log_start: offset(self.log_start)?,
            committed_end: offset(self.committed_end)?,
            checkpoint: self.checkpoint.map(checkpoint).transpose()?,
            segment_count: self.segment_count,
            segment_bytes: self.segment_bytes,
            cleaned_end: offset(self.cleaned_end)?,
            swaps: self.swaps,
            trim_pending: self.trim_pending,
            wal: self.wal.as_deref().map(uuid).transpose()?,
            target: self.target.map(target).transpose()?,
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

fn broker_ids(ids: Vec<u32>) -> Result<Vec<BrokerId>, DecodeError> {
    ids.into_iter().map(broker_id).collect()
}

fn target(message: message::Target) -> Result<Target, DecodeError> {
    Ok(Target {
        to: broker_id(message.to)?,
        placement: broker_ids(message.placement)?,
    })
}

pub(super) fn leader_epoch(epoch: u32) -> Result<LeaderEpoch, DecodeError> {
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
