//! The log of a partition on the broker that leads it: append, read, upload, open, and hand over.
//!
//! Promises: offsets are given once and in order; a record is visible only when its durability mode's promise
//! holds; `log_start <= last_stable <= high_watermark <= log_end`, each monotone under one leader epoch; a batch
//! that an idempotent producer sends again is answered with its first offsets. Data and aborted transactions come
//! from one state, and a transaction is decided only once its marker is durable. Memory is bounded by the tail budget, the caches and the WALs' own limits. A log that is handed
//! over goes on at exactly its sealed end, and the broker that takes it over holds everything below before it leads.
//!
//! It deliberately doesn't know: Kafka's requests and error codes, who may lead (metadata decides), topics'
//! configs beyond the durability mode, and how WALs and objects are laid out.

mod budget;
mod checkpoint;
mod committer;
mod epochs;
mod fetch;
mod follow;
mod incoming;
mod log;
mod metrics;
mod object_log_store;
mod open;
mod producers;
mod read_ahead;
mod reader;
mod recovered;
mod segments;
mod set;
mod tail;
mod uploader;

pub use budget::TailBudget;
pub use checkpoint::CheckpointError;
pub use committer::{ObjectBacklog, ObjectCommitter, recovered_commit};
pub use epochs::EpochHistory;
pub use fetch::{LogReader, ReadRequest, ReadResult, TimedOffset};
pub use follow::{FollowError, TailFollower, TailItem};
pub use incoming::{ActivateError, CopyRead, IncomingError, IncomingLog, PrepareRequest};
pub use log::{
    AppendError, Appended, CompactionView, Durability, Isolation, LastOfProducer, LogContext,
    Ownership, PartitionLog, ReadError, SealError, SealOrder, SealedState, TransactionCheck,
    Watermarks,
};
pub use metrics::{ReadMetrics, UploadMetrics};
pub use object_log_store::ObjectLog;
pub use open::{LogOpener, OpenError, OpenRequest};
pub use producers::{AbortedTransaction, Marker, MarkerRefused, ProducerView, SequenceError};
pub use reader::{ReaderLimits, SegmentReader, SegmentScan, StoreReadError};
pub use recovered::{RecoveredBatch, RecoveredRun, recovered_end};
pub use segments::{MapPart, Segment, SegmentObject};
pub use set::LogSet;
pub use uploader::{UploadLimits, UploadStopped, Uploader, Writer, object_commit, segment_of};
