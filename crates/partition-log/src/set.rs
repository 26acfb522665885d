//! The logs that this broker leads.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use tidegate_types::PartitionId;

use crate::log::PartitionLog;

/// Open logs by partition. Reads take a shared lock for the time of one look-up.
#[derive(Default)]
pub struct LogSet {
    logs: RwLock<HashMap<PartitionId, Arc<PartitionLog>>>,
}

impl LogSet {
    pub fn get(&self, id: PartitionId) -> Option<Arc<PartitionLog>> {
        self.logs.read().get(&id).cloned()
    }

    /// Adds a log that was opened. Answers the one it replaced, closed.
    pub fn insert(&self, log: Arc<PartitionLog>) -> Option<Arc<PartitionLog>> {
        let former = self.logs.write().insert(log.id(), log);
        if let Some(former) = &former {
            former.close();
        }
        former
    }

    /// Closes a log and takes it out.
    pub fn remove(&self, id: PartitionId) -> Option<Arc<PartitionLog>> {
        let log = self.logs.write().remove(&id);
        if let Some(log) = &log {
            log.close();
        }
        log
    }

    pub fn all(&self) -> Vec<Arc<PartitionLog>> {
        self.logs.read().values().cloned().collect()
    }

    pub fn len(&self) -> usize {
        self.logs.read().len()
    }

    pub fn is_empty(&self) -> bool {
        self.logs.read().is_empty()
    }
}
