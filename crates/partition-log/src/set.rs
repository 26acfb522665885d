//! The logs that this broker leads.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use tidegate_types::PartitionId;

use crate::log::PartitionLog;

/// Open logs by partition, and those that are copied to be led soon. Reads take a shared lock for the time of one
/// look-up.
#[derive(Default)]
pub struct LogSet {
    logs: RwLock<HashMap<PartitionId, Arc<PartitionLog>>>,
    /// Locked after `logs`, by those who need both.
    incoming: RwLock<HashMap<PartitionId, Arc<PartitionLog>>>,
}

impl LogSet {
    pub fn get(&self, id: PartitionId) -> Option<Arc<PartitionLog>> {
        self.logs.read().get(&id).cloned()
    }

    /// Adds a log that was opened or activated. Answers the one it replaced, closed.
    pub fn insert(&self, log: Arc<PartitionLog>) -> Option<Arc<PartitionLog>> {
        let mut logs = self.logs.write();
        self.incoming
            .write()
            .retain(|_, incoming| !Arc::ptr_eq(incoming, &log));
        let former = logs.insert(log.id(), log.clone());
        drop(logs);
        let former = former.filter(|former| !Arc::ptr_eq(former, &log));
        if let Some(former) = &former {
            former.close();
        }
        former
    }

    /// Closes a log and takes it out: another broker leads, or the topic is gone. What only the local WAL holds of
    /// it isn't kept from here on, so this must be known of metadata, not guessed.
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

    /// Adds a log that is being copied. One that was before it is given up.
    pub(crate) fn expect(&self, log: Arc<PartitionLog>) {
        let former = self.incoming.write().insert(log.id(), log);
        if let Some(former) = former {
            former.abandon();
        }
    }

    /// Takes out a log that was being copied.
    pub(crate) fn forget(&self, log: &Arc<PartitionLog>) {
        let mut incoming = self.incoming.write();
        if incoming
            .get(&log.id())
            .is_some_and(|known| Arc::ptr_eq(known, log))
        {
            incoming.remove(&log.id());
        }
    }

    /// The log of a partition that this broker is about to lead: its [`PartitionLog::ownership`] tells when.
    pub fn incoming(&self, id: PartitionId) -> Option<Arc<PartitionLog>> {
        self.incoming.read().get(&id).cloned()
    }

    /// All logs, also those being copied, at one moment.
    pub(crate) fn all_with_incoming(&self) -> Vec<Arc<PartitionLog>> {
        let logs = self.logs.read();
        let incoming = self.incoming.read();
        logs.values().chain(incoming.values()).cloned().collect()
    }
}
