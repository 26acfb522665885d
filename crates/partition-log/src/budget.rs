//! The memory that the tails of all partitions may keep together.
//!
//! Batches are remembered in the order in which they were appended, over all partitions; above the limit the
//! oldest give way first. What isn't durable yet can't give way: the WAL's own limit bounds that.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tidegate_types::Offset;

use crate::log::PartitionLog;

struct Held {
    log: Weak<PartitionLog>,
    end: Offset,
}

#[derive(Default)]
struct Queue {
    held: VecDeque<Held>,
    bytes: u64,
}

/// One call sets aside at most so many batches that can't give way now, which bounds its work. They come again
/// after all others, so that the next calls get past them.
const MOST_STUCK: usize = 32;

/// The tail cache's limit and what counts against it.
pub struct TailBudget {
    limit_bytes: u64,
    queue: Mutex<Queue>,
}

impl TailBudget {
    pub fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            queue: Mutex::new(Queue::default()),
        }
    }

    /// Bytes of batches that tails hold in memory.
    pub fn used_bytes(&self) -> u64 {
        self.queue.lock().bytes
    }

    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Counts a batch that `log` now holds up to `end`, and evicts the oldest ones above the limit.
    pub(crate) fn added(&self, log: &Arc<PartitionLog>, end: Offset, bytes: u64) {
        let mut queue = self.queue.lock();
        queue.bytes += bytes;
        queue.held.push_back(Held {
            log: Arc::downgrade(log),
            end,
        });
        if queue.bytes <= self.limit_bytes {
            return;
        }
        drop(queue);
        self.shrink();
    }

    /// Evicts until the limit holds or nothing more can be evicted now. A part of the budget is freed at once,
    /// so that this doesn't run for each append.
    pub(crate) fn shrink(&self) {
        let target = self.limit_bytes - self.limit_bytes / 16;
        let mut stuck = Vec::new();
        while stuck.len() < MOST_STUCK {
            let mut queue = self.queue.lock();
            if queue.bytes <= target {
                break;
            }
            let Some(oldest) = queue.held.pop_front() else {
                break;
            };
            drop(queue);
            let Some(log) = oldest.log.upgrade() else {
                continue;
            };
            let freed = log.evict(oldest.end);
            let mut queue = self.queue.lock();
            queue.bytes = queue.bytes.saturating_sub(freed);
            drop(queue);
            if log.holds_in_memory(oldest.end) {
                // Not durable yet. Batches of other logs may be: a silent object store must not pin them.
                stuck.push(oldest);
            }
        }
        self.queue.lock().held.extend(stuck);
    }

    /// A log that is dropped gives back what it held.
    pub(crate) fn released(&self, bytes: u64) {
        let mut queue = self.queue.lock();
        queue.bytes = queue.bytes.saturating_sub(bytes);
    }
}
