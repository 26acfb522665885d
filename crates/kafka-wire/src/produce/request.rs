use bytes::BytesMut;
use kafka_protocol::protocol::StrBytes;

use super::{FLEXIBLE_SINCE, TOPIC_IDS_SINCE};
use crate::bounds::DecodeLimits;
use crate::read::{Budget, Malformed, Splitter};
use crate::topic::TopicRef;

/// A produce request.
#[derive(Debug, Clone, PartialEq)]
pub struct ProduceRequest {
    /// Set by a transactional producer.
    pub transactional_id: Option<StrBytes>,
    /// 0: no answer; 1 and -1: when the records are durable. Not checked here.
    pub acks: i16,
    pub timeout_ms: i32,
    pub topics: Vec<ProduceTopic>,
}

/// The records for one topic.
#[derive(Debug, Clone, PartialEq)]
pub struct ProduceTopic {
    pub topic: TopicRef,
    pub partitions: Vec<ProducePartition>,
}

/// The records for one partition.
#[derive(Debug, Clone, PartialEq)]
pub struct ProducePartition {
    pub index: i32,
    /// Record batches as the client sent them, unchecked. A piece of the frame that may be changed in place.
    pub records: Option<BytesMut>,
}

impl ProduceRequest {
    /// Decodes a body of version 3 to 13. The caller has checked the version; others are read like the
    /// nearest of these.
    pub fn decode(body: BytesMut, version: i16, limits: &DecodeLimits) -> Result<Self, Malformed> {
        let flexible = version >= FLEXIBLE_SINCE;
        let mut body = Splitter::new(body, Budget::new(limits.max_decoded_bytes));
        let transactional_id = body.string("transactional_id", flexible)?;
        let (acks, timeout_ms) =
            body.read(|reader| Ok((reader.int16("acks")?, reader.int32("timeout_ms")?)))?;
        let smallest = TopicRef::smallest_bytes(flexible, version >= TOPIC_IDS_SINCE);
        let topics = body.array("topic_data", flexible, smallest, |body| {
            ProduceTopic::decode(body, version)
        })?;
        body.read(|reader| reader.skip_tagged(flexible))?;
        Ok(Self {
            transactional_id,
            acks,
            timeout_ms,
            topics,
        })
    }
}

impl ProduceTopic {
    fn decode(body: &mut Splitter, version: i16) -> Result<Self, Malformed> {
        let flexible = version >= FLEXIBLE_SINCE;
        let topic = TopicRef::decode(body, "name", flexible, version >= TOPIC_IDS_SINCE)?;
        let smallest = smallest_partition_bytes(version);
        let partitions = body.array("partition_data", flexible, smallest, |body| {
            let index = body.read(|reader| reader.int32("index"))?;
            let records = body.bytes("records", flexible)?;
            body.read(|reader| reader.skip_tagged(flexible))?;
            Ok(ProducePartition { index, records })
        })?;
        body.read(|reader| reader.skip_tagged(flexible))?;
        Ok(Self { topic, partitions })
    }
}

fn smallest_partition_bytes(version: i16) -> usize {
    if version >= FLEXIBLE_SINCE { 6 } else { 8 }
}
