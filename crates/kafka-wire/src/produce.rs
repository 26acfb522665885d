//! Produce requests and responses, versions 3 to 13, decoded and encoded by hand.
//!
//! The records of a decoded request are split off the frame, not copied, and stay mutable: the broker writes
//! base offsets into the batches in place. Version 13 names topics by id (KIP-516), earlier ones by name.

mod request;
mod response;

pub use request::{ProducePartition, ProduceRequest, ProduceTopic};
pub use response::{ProducePartitionResponse, ProduceResponse, ProduceTopicResponse, RecordError};

/// First version with compact lengths and tagged fields.
const FLEXIBLE_SINCE: i16 = 9;
/// First version that names topics by id.
const TOPIC_IDS_SINCE: i16 = 13;
