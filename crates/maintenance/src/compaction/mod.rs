//! Compaction by key as plain rules: when a partition is due, what is mapped, and what becomes of each batch.
//!
//! A pass reads the dirty part into a [`KeyMap`] with a [`Mapper`], then all of the log up to where the map ends
//! through a [`Filter`]. See `docs/protocols/compaction.md`.

mod filter;
mod key_map;
mod mapper;
mod plan;
#[cfg(test)]
mod tests;
mod transactions;

pub use filter::{CompactionStats, Filter, FilterRules, LastRecord};
pub use key_map::{KeyMap, KeyMapFull};
pub use mapper::{MapEnd, Mapper};
pub use plan::{CompactionDue, CompactionPlan, CompactionPolicy, plan_compaction};
pub use transactions::{AbortedRange, Transactions};

/// A compressed batch is opened up to this size; a larger one stays as it is.
const MAX_UNCOMPRESSED_BYTES: usize = 64 << 20;
