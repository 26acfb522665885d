//! What keeps the store from growing for ever: which segments a retention policy drops, compaction by key, and the
//! removal of objects nobody refers to.
//!
//! Promises: an object is deleted only after the commit that dropped its last reference is durable and the grace
//! period has passed (invariant I3); what was deleted is forgotten only after the delete was answered, so a crash
//! between the two repeats the delete. It deliberately doesn't know partitions' logs, Kafka, or who leads what.

mod compaction;
mod delete;
mod retention;

pub use compaction::{
    AbortedRange, CompactionDue, CompactionPlan, CompactionPolicy, CompactionStats, Filter,
    FilterRules, KeyMap, KeyMapFull, LastRecord, MapEnd, Mapper, Transactions, plan_compaction,
};
pub use delete::{DeleteError, ObjectDeleter};
pub use retention::{RetentionPolicy, StoredSegment, new_log_start};
