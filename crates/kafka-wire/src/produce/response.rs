use bytes::{BufMut, Bytes};
use kafka_protocol::protocol::StrBytes;

use super::{FLEXIBLE_SINCE, TOPIC_IDS_SINCE};
use crate::topic::{CurrentLeader, NodeEndpoint, TopicRef};
use crate::write::{EncodeError, Writer};

/// A produce response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProduceResponse {
    pub topics: Vec<ProduceTopicResponse>,
    /// How long the client was, or should be, held back by a quota.
    pub throttle_ms: i32,
    /// Where the leaders named in the partitions listen. Version 10 and up.
    pub node_endpoints: Vec<NodeEndpoint>,
}

/// What became of the records for one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProduceTopicResponse {
    /// The topic as the request named it.
    pub topic: TopicRef,
    pub partitions: Vec<ProducePartitionResponse>,
}

/// What became of the records for one partition. What a version has no field for isn't sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducePartitionResponse {
    pub index: i32,
    /// Kafka's error code; 0 is success.
    pub error_code: i16,
    /// Offset given to the first record, or -1.
    pub base_offset: i64,
    /// The broker's time given to the records if the topic wants that, else -1.
    pub log_append_time_ms: i64,
    /// First readable offset, or -1. Version 5 and up.
    pub log_start_offset: i64,
    /// The records that made the batch be refused. Version 8 and up.
    pub record_errors: Vec<RecordError>,
    /// Why the batch was refused. Version 8 and up.
    pub error_message: Option<StrBytes>,
    /// The leader to ask instead. Version 10 and up.
    pub current_leader: Option<CurrentLeader>,
}

/// Why one record was refused (KIP-467).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordError {
    /// Index of the record in its batch.
    pub batch_index: i32,
    pub message: Option<StrBytes>,
}

impl ProducePartitionResponse {
    /// An answer with an error code and nothing else.
    pub fn error(index: i32, error_code: i16) -> Self {
        Self {
            index,
            error_code,
            base_offset: -1,
            log_append_time_ms: -1,
            log_start_offset: -1,
            record_errors: Vec::new(),
            error_message: None,
            current_leader: None,
        }
    }

    fn encode(&self, out: &mut Writer, version: i16) {
        out.put_i32(self.index);
        out.put_i16(self.error_code);
        out.put_i64(self.base_offset);
        out.put_i64(self.log_append_time_ms);
        if version >= 5 {
            out.put_i64(self.log_start_offset);
        }
        if version >= 8 {
            out.count(self.record_errors.len());
            for error in &self.record_errors {
                out.put_i32(error.batch_index);
                out.string(error.message.as_deref());
                out.no_tagged();
            }
            out.string(self.error_message.as_deref());
        }
        match self.current_leader {
            Some(leader) if version >= 10 => {
                out.tagged_count(1);
                out.tagged(0, |out| leader.encode(out));
            }
            Some(_) | None => out.no_tagged(),
        }
    }
}

impl ProduceResponse {
    /// Encodes the whole frame, length prefix and header included, in version 3 to 13.
    pub fn encode(&self, version: i16, correlation_id: i32) -> Result<Bytes, EncodeError> {
        let mut out = Writer::begin(
            self.estimate_bytes(),
            correlation_id,
            version >= FLEXIBLE_SINCE,
        );
        out.count(self.topics.len());
        for topic in &self.topics {
            topic.topic.encode(&mut out, version >= TOPIC_IDS_SINCE);
            out.count(topic.partitions.len());
            for partition in &topic.partitions {
                partition.encode(&mut out, version);
            }
            out.no_tagged();
        }
        out.put_i32(self.throttle_ms);
        if version >= 10 && !self.node_endpoints.is_empty() {
            out.tagged_count(1);
            out.tagged(0, |out| NodeEndpoint::encode_all(&self.node_endpoints, out));
        } else {
            out.no_tagged();
        }
        out.finish(0)
    }

    /// About the size of a response without errors; a larger one grows.
    fn estimate_bytes(&self) -> usize {
        let topics = self.topics.iter().map(|topic| {
            let name = topic.topic.name().map_or(16, |name| name.len());
            name + 8 + 48 * topic.partitions.len()
        });
        32 + topics.sum::<usize>()
    }
}
