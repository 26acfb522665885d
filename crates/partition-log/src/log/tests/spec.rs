//! Batches as producers would send them.

use tidegate_record_batch::{BatchBuilder, Codec, ProducedBatch, ProducerIdentity, TimestampType};
use tidegate_types::{Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};

/// A batch to be made.
#[derive(Debug, Clone)]
pub(super) struct Spec {
    pub(super) first_tag: u64,
    pub(super) count: u64,
    /// Of each value, at least 8.
    pub(super) value_bytes: usize,
    /// Id, epoch, first sequence.
    pub(super) producer: Option<(i64, i16, i32)>,
    pub(super) transactional: bool,
    /// Of each record; none: all 0.
    pub(super) timestamps: Vec<i64>,
    pub(super) codec: Codec,
}

impl Spec {
    pub(super) fn tagged(first_tag: u64, count: u64, value_bytes: usize) -> Self {
        Self {
            first_tag,
            count,
            value_bytes,
            producer: None,
            transactional: false,
            timestamps: Vec::new(),
            codec: Codec::None,
        }
    }

    pub(super) fn by(mut self, id: i64, epoch: i16, first_sequence: i32) -> Self {
        self.producer = Some((id, epoch, first_sequence));
        self
    }

    pub(super) fn transactional(mut self) -> Self {
        self.transactional = true;
        self
    }

    pub(super) fn at(mut self, timestamps: &[i64]) -> Self {
        self.count = timestamps.len() as u64;
        self.timestamps = timestamps.to_vec();
        self
    }

    pub(super) fn codec(mut self, codec: Codec) -> Self {
        self.codec = codec;
        self
    }

    pub(super) fn build(&self) -> ProducedBatch {
        let identity = self.producer.map(|(id, epoch, first)| ProducerIdentity {
            id: ProducerId::from_wire(id).unwrap(),
            epoch: ProducerEpoch::from_wire(epoch).unwrap(),
            first_sequence: Sequence::from_wire(first),
        });
        let mut builder = BatchBuilder::new(
            Offset::ZERO,
            self.codec,
            TimestampType::CreateTime,
            identity,
            self.transactional,
        );
        for index in 0..self.count {
            let mut value = (self.first_tag + index).to_le_bytes().to_vec();
            value.resize(self.value_bytes.max(8), 0xEE);
            let timestamp = self.timestamps.get(index as usize).copied().unwrap_or(0);
            builder.push(TimestampMs::new(timestamp), None, Some(&value), &[]);
        }
        ProducedBatch::from_broker(builder.finish().unwrap()).unwrap()
    }
}

/// The tag that a record carries in its value.
pub(super) fn tag_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().unwrap())
}
