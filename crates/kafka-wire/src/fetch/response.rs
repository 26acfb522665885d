use bytes::{BufMut, Bytes};

use super::{FLEXIBLE_SINCE, TOPIC_IDS_SINCE};
use crate::topic::{CurrentLeader, NodeEndpoint, TopicRef};
use crate::write::{EncodeError, Writer};

/// Records shorter than this are copied between the fields around them: one more segment would cost the
/// vectored write more than the copy.
const COPY_BELOW_BYTES: usize = 512;

/// A fetch response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FetchResponse {
    /// How long the client was, or should be, held back by a quota.
    pub throttle_ms: i32,
    /// Kafka's error code for the whole request. Version 7 and up.
    pub error_code: i16,
    /// The session, or 0. Version 7 and up.
    pub session_id: i32,
    pub topics: Vec<FetchTopicResponse>,
    /// Where the leaders named in the partitions listen. Version 16 and up.
    pub node_endpoints: Vec<NodeEndpoint>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchTopicResponse {
    /// The topic as the request named it.
    pub topic: TopicRef,
    pub partitions: Vec<FetchPartitionResponse>,
}

/// The records of one partition. What a version has no field for isn't sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchPartitionResponse {
    pub index: i32,
    /// Kafka's error code; 0 is success.
    pub error_code: i16,
    /// End of the visible records, or -1.
    pub high_watermark: i64,
    /// End for read-committed consumers, or -1.
    pub last_stable_offset: i64,
    /// First readable offset, or -1. Version 5 and up.
    pub log_start_offset: i64,
    /// Where the log parted from what the client has read. Version 12 and up.
    pub diverging_epoch: Option<DivergingEpoch>,
    /// The leader to ask instead. Version 12 and up.
    pub current_leader: Option<CurrentLeader>,
    /// Transactions to hide from a read-committed consumer; none for others.
    pub aborted_transactions: Option<Vec<AbortedTransaction>>,
    /// A replica to read from instead, or -1. Version 11 and up.
    pub preferred_read_replica: i32,
    /// Record batches, in pieces that follow each other.
    pub records: Vec<Bytes>,
}

/// An aborted transaction's records, up to its marker, are to be skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedTransaction {
    pub producer_id: i64,
    pub first_offset: i64,
}

/// The last leader epoch before the client's, and where it ended (KIP-595).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DivergingEpoch {
    pub epoch: i32,
    pub end_offset: i64,
}

impl FetchPartitionResponse {
    /// An answer with an error code and nothing else.
    pub fn error(index: i32, error_code: i16) -> Self {
        Self {
            index,
            error_code,
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
            diverging_epoch: None,
            current_leader: None,
            aborted_transactions: None,
            preferred_read_replica: -1,
            records: Vec::new(),
        }
    }

    /// Bytes of the records.
    pub fn record_bytes(&self) -> usize {
        self.records.iter().map(Bytes::len).sum()
    }

    fn encode(&self, out: &mut Segments, version: i16) {
        let fields = &mut out.fields;
        fields.put_i32(self.index);
        fields.put_i16(self.error_code);
        fields.put_i64(self.high_watermark);
        fields.put_i64(self.last_stable_offset);
        if version >= 5 {
            fields.put_i64(self.log_start_offset);
        }
        let aborted = self.aborted_transactions.as_deref();
        fields.optional_count(aborted.map(<[_]>::len));
        for transaction in aborted.unwrap_or(&[]) {
            fields.put_i64(transaction.producer_id);
            fields.put_i64(transaction.first_offset);
            fields.no_tagged();
        }
        if version >= 11 {
            fields.put_i32(self.preferred_read_replica);
        }
        out.records(&self.records, self.record_bytes());
        if version >= FLEXIBLE_SINCE {
            self.encode_tagged(&mut out.fields);
        }
    }

    fn encode_tagged(&self, out: &mut Writer) {
        let count = usize::from(self.diverging_epoch.is_some())
            + usize::from(self.current_leader.is_some());
        out.tagged_count(count);
        if let Some(diverging) = self.diverging_epoch {
            out.tagged(0, |out| {
                out.put_i32(diverging.epoch);
                out.put_i64(diverging.end_offset);
                out.no_tagged();
            });
        }
        if let Some(leader) = self.current_leader {
            out.tagged(1, |out| leader.encode(out));
        }
    }
}

impl FetchResponse {
    /// Encodes the whole frame, length prefix and header included, in version 4 to 18. The segments follow
    /// each other on the wire; none is empty. Records are the response's own slices, except short ones.
    pub fn encode(&self, version: i16, correlation_id: i32) -> Result<Vec<Bytes>, EncodeError> {
        let mut out = Segments {
            fields: Writer::begin(
                self.estimate_bytes(),
                correlation_id,
                version >= FLEXIBLE_SINCE,
            ),
            slices: Vec::new(),
            slice_bytes: 0,
        };
        out.fields.put_i32(self.throttle_ms);
        if version >= 7 {
            out.fields.put_i16(self.error_code);
            out.fields.put_i32(self.session_id);
        }
        out.fields.count(self.topics.len());
        for topic in &self.topics {
            topic
                .topic
                .encode(&mut out.fields, version >= TOPIC_IDS_SINCE);
            out.fields.count(topic.partitions.len());
            for partition in &topic.partitions {
                partition.encode(&mut out, version);
            }
            out.fields.no_tagged();
        }
        if version >= 16 && !self.node_endpoints.is_empty() {
            out.fields.tagged_count(1);
            out.fields
                .tagged(0, |out| NodeEndpoint::encode_all(&self.node_endpoints, out));
        } else {
            out.fields.no_tagged();
        }
        out.finish()
    }

    /// About the size of the fields, with records short enough to be copied.
    fn estimate_bytes(&self) -> usize {
        let topics = self.topics.iter().map(|topic| {
            let name = topic.topic.name().map_or(16, |name| name.len());
            let partitions = topic.partitions.iter().map(|partition| {
                let records = partition.record_bytes();
                let aborted = partition.aborted_transactions.as_ref().map_or(0, Vec::len);
                64 + 17 * aborted
                    + if records < COPY_BELOW_BYTES {
                        records
                    } else {
                        0
                    }
            });
            name + 8 + partitions.sum::<usize>()
        });
        64 + topics.sum::<usize>()
    }
}

/// A response in pieces: all fields in one buffer, and the slices that belong between them.
struct Segments {
    fields: Writer,
    /// Each slice, and the position in `fields` before which it stands.
    slices: Vec<(usize, Bytes)>,
    slice_bytes: usize,
}

impl Segments {
    fn records(&mut self, records: &[Bytes], length: usize) {
        self.fields.count(length);
        if length < COPY_BELOW_BYTES {
            for piece in records {
                self.fields.put_slice(piece);
            }
            return;
        }
        let position = self.fields.len();
        for piece in records {
            if !piece.is_empty() {
                self.slices.push((position, piece.clone()));
                self.slice_bytes += piece.len();
            }
        }
    }

    fn finish(self) -> Result<Vec<Bytes>, EncodeError> {
        let mut fields = self.fields.finish(self.slice_bytes)?;
        let mut segments = Vec::with_capacity(2 * self.slices.len() + 1);
        let mut written = 0;
        for (position, slice) in self.slices {
            if position > written {
                segments.push(fields.split_to(position - written));
                written = position;
            }
            segments.push(slice);
        }
        if !fields.is_empty() {
            segments.push(fields);
        }
        Ok(segments)
    }
}
