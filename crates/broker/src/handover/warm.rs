//! Coordinators that read along in the copies of their partitions.

use std::sync::Arc;

use tidegate_coordinator::GroupCoordinator;
use tidegate_coordinator::transactions::TransactionCoordinator;
use tidegate_partition_log::PartitionLog;

use super::Handover;
use super::target::Incoming;
use crate::coordinators::{Warm, Warmed};

impl Incoming {
    /// Keeps what has begun to read along.
    pub(super) fn read_along(&self, warm: Option<Warm>) {
        if let Some(warm) = warm {
            // A copy is made once; a second try to move the partition has a copy of its own.
            let _ = self.warm.set(warm);
        }
    }

    /// The copy has more.
    pub(super) fn grown(&self) {
        if let Some(warm) = self.warm.get() {
            warm.grown();
        }
    }

    /// Waits until the coordinator has read what the copy has now, but not for long: a move goes on without.
    pub(super) async fn warmed(&self) {
        let log = self.log.borrow().clone();
        if let (Some(warm), Some(log)) = (self.warm.get(), log) {
            warm.reached(log.end()).await;
        }
    }
}

impl Handover {
    /// The group coordinator that read along in the copy that became `log`.
    pub(crate) fn warm_groups(&self, log: &Arc<PartitionLog>) -> Option<Warmed<GroupCoordinator>> {
        match self.copy_of(log)?.warm.get()? {
            Warm::Groups(warming) => warming.take(),
            Warm::Transactions(_) => None,
        }
    }

    /// The transaction coordinator that read along in the copy that became `log`.
    pub(crate) fn warm_transactions(
        &self,
        log: &Arc<PartitionLog>,
    ) -> Option<Warmed<TransactionCoordinator>> {
        match self.copy_of(log)?.warm.get()? {
            Warm::Transactions(warming) => warming.take(),
            Warm::Groups(_) => None,
        }
    }

    fn copy_of(&self, log: &Arc<PartitionLog>) -> Option<Arc<Incoming>> {
        let incoming = self.incoming.get(log.id())?;
        let copy = incoming.log.borrow().clone();
        copy.is_some_and(|copy| copy.became(log))
            .then_some(incoming)
    }
}
