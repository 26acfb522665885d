//! Transaction markers: the control batches that end a transaction in a partition (KIP-98).
//!
//! A marker is a control batch of one record. Its key is a version (i16, 0) and a type (i16: 0 abort, 1 commit),
//! its value a version (i16, 0) and the coordinator's epoch (i32). Later versions only add fields.

use bytes::{Buf, BufMut, BytesMut};
use tidegate_types::{Offset, ProducerEpoch, ProducerId, TimestampMs};

use crate::builder::BatchBuilder;
use crate::header::{Codec, ProducerIdentity, TimestampType};
use crate::record::{RecordsError, records};
use crate::stored::StoredBatch;

const ABORT: i16 = 0;
const COMMIT: i16 = 1;
/// Markers take some thirty bytes; a compressed control batch that grows past this is none.
const MAX_MARKER_BYTES: usize = 4096;

/// How a transaction ended, in the words of its coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ControlMarker {
    pub commit: bool,
    /// The leader epoch of the coordinator's partition, by which a stale coordinator is fenced.
    pub coordinator_epoch: i32,
}

/// Why a batch isn't a transaction marker.
#[derive(Debug, thiserror::Error)]
pub enum MarkerError {
    #[error("the batch isn't a control batch")]
    NotControl,
    #[error("a marker is one record, the batch has {record_count}")]
    RecordCount { record_count: u32 },
    #[error("the control record is of type {kind}, which ends no transaction")]
    OtherType { kind: i16 },
    #[error("the control record's {part} is malformed")]
    Malformed { part: &'static str },
    #[error(transparent)]
    Records(#[from] RecordsError),
}

impl ControlMarker {
    /// The marker's batch, ready for [`crate::ProducedBatch::from_broker`].
    pub fn encode(
        &self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        timestamp: TimestampMs,
    ) -> BytesMut {
        let mut key = Vec::with_capacity(4);
        key.put_i16(0);
        key.put_i16(if self.commit { COMMIT } else { ABORT });
        let mut value = Vec::with_capacity(6);
        value.put_i16(0);
        value.put_i32(self.coordinator_epoch);
        let producer = ProducerIdentity {
            id: producer_id,
            epoch: producer_epoch,
            first_sequence: None,
        };
        let mut builder = BatchBuilder::new(
            Offset::ZERO,
            Codec::None,
            TimestampType::CreateTime,
            Some(producer),
            true,
        )
        .control();
        builder.push(timestamp, Some(&key), Some(&value), &[]);
        builder
            .finish()
            .expect("one small record at offset 0 can always be built")
    }

    /// Reads a marker. Control batches of other types exist (a broker that didn't write them skips them).
    ///
    /// # Errors
    /// When the batch is no marker; see [`MarkerError`].
    pub fn decode(batch: &StoredBatch) -> Result<Self, MarkerError> {
        if !batch.header().is_control() {
            return Err(MarkerError::NotControl);
        }
        let record_count = batch.header().record_count();
        let mut records = records(batch, MAX_MARKER_BYTES)?;
        let (Some(record), None) = (records.next(), records.next()) else {
            return Err(MarkerError::RecordCount { record_count });
        };
        let mut key = record.key.unwrap_or_default();
        let kind = versioned(&mut key)
            .and_then(|()| key.try_get_i16().ok())
            .ok_or(MarkerError::Malformed { part: "key" })?;
        if kind != ABORT && kind != COMMIT {
            return Err(MarkerError::OtherType { kind });
        }
        let mut value = record.value.unwrap_or_default();
        let coordinator_epoch = versioned(&mut value)
            .and_then(|()| value.try_get_i32().ok())
            .ok_or(MarkerError::Malformed { part: "value" })?;
        Ok(Self {
            commit: kind == COMMIT,
            coordinator_epoch,
        })
    }
}

/// Takes a version off; any that isn't negative is readable, since later ones only add fields.
fn versioned(input: &mut bytes::Bytes) -> Option<()> {
    input
        .try_get_i16()
        .ok()
        .filter(|version| *version >= 0)
        .map(|_| ())
}
