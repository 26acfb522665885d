//! Forgetting transactional ids that nobody uses any more.

use super::coordinator::Deadline;
use super::{TransactionCoordinator, TransactionNotice, TransactionState, TransactionalId};
use crate::Now;

impl TransactionCoordinator {
    pub(super) fn expire(&mut self, now: Now) {
        self.schedule(
            now,
            Deadline::Expiry,
            self.config.expiration_check_interval_ms,
        );
        let kept_ms = i64::try_from(self.config.id_expiration_ms).unwrap_or(i64::MAX);
        let unused: Vec<TransactionalId> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.pending.is_none())
            .filter_map(|(id, entry)| Some((id, entry.durable.as_ref()?)))
            .filter(|(_, transaction)| {
                let over = matches!(
                    transaction.state,
                    TransactionState::Empty
                        | TransactionState::CompleteCommit
                        | TransactionState::CompleteAbort
                );
                let ends = transaction.updated_at.get().saturating_add(kept_ms);
                over && ends <= now.wall.get()
            })
            .map(|(id, _)| id.clone())
            .collect();
        let mut ids = 0;
        for chunk in unused.chunks(self.config.max_cleanup_batch_records) {
            // What isn't begun now is at the next check.
            if self.admit_append().is_err() {
                break;
            }
            let gone = chunk.iter().map(|id| (id.clone(), None)).collect();
            self.append(now, gone, false, Vec::new());
            ids += chunk.len();
        }
        if ids > 0 {
            self.notice(TransactionNotice::Expired { ids });
        }
    }
}
