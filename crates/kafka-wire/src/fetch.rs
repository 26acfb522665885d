//! Fetch requests and responses, versions 4 to 18, decoded and encoded by hand.
//!
//! A response is encoded into segments for a vectored write: the record batches stand in it uncopied.
//! Versions from 13 on name topics by id (KIP-516), earlier ones by name.

mod request;
mod response;

pub use request::{FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, IsolationLevel};
pub use response::{
    AbortedTransaction, DivergingEpoch, FetchPartitionResponse, FetchResponse, FetchTopicResponse,
};

/// First version with compact lengths and tagged fields.
const FLEXIBLE_SINCE: i16 = 12;
/// First version that names topics by id.
const TOPIC_IDS_SINCE: i16 = 13;
