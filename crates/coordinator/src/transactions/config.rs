//! Limits and times, with Apache Kafka's names and defaults.

use crate::InvalidConfig;

/// Settings of one transaction coordinator. The field's doc names the broker setting of Kafka it stands for; settings
/// without one are limits that Kafka hasn't got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionConfig {
    /// `transaction.max.timeout.ms`: the longest transaction time-out that a producer may ask for.
    pub max_timeout_ms: u32,
    /// `transactional.id.expiration.ms`: an id that isn't used for so long is forgotten.
    pub id_expiration_ms: u64,
    /// `transaction.remove.expired.transaction.cleanup.interval.ms`
    pub expiration_check_interval_ms: u64,
    /// How long a reply waits for its append.
    pub append_timeout_ms: u64,
    /// How long to wait before an append that was refused is tried again, where no client does it.
    pub retry_ms: u64,
    /// Transactional ids per partition of `__transaction_state`.
    pub max_transactional_ids: usize,
    /// Appends that may be open before requests that need one are told COORDINATOR_NOT_AVAILABLE.
    pub max_pending_appends: usize,
    /// Additions of partitions to one transaction that may wait for an earlier one.
    pub max_waiting_additions: usize,
    /// Records in one append of expiration, which need not be atomic.
    pub max_cleanup_batch_records: usize,
}

impl Default for TransactionConfig {
    fn default() -> Self {
        Self {
            max_timeout_ms: 15 * 60 * 1_000,
            id_expiration_ms: 7 * 24 * 60 * 60 * 1_000,
            expiration_check_interval_ms: 60 * 60 * 1_000,
            append_timeout_ms: 5_000,
            retry_ms: 100,
            max_transactional_ids: 100_000,
            max_pending_appends: 10_000,
            max_waiting_additions: 1_000,
            max_cleanup_batch_records: 1_000,
        }
    }
}

impl TransactionConfig {
    /// Checks what no single field's type can.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        let at_least_1 = [
            ("transaction.max.timeout.ms", u64::from(self.max_timeout_ms)),
            ("transactional.id.expiration.ms", self.id_expiration_ms),
            (
                "transaction.remove.expired.transaction.cleanup.interval.ms",
                self.expiration_check_interval_ms,
            ),
            ("append_timeout_ms", self.append_timeout_ms),
            ("retry_ms", self.retry_ms),
            ("max_transactional_ids", self.max_transactional_ids as u64),
            ("max_pending_appends", self.max_pending_appends as u64),
            (
                "max_cleanup_batch_records",
                self.max_cleanup_batch_records as u64,
            ),
        ];
        match at_least_1.into_iter().find(|(_, value)| *value == 0) {
            Some((setting, _)) => Err(InvalidConfig {
                setting,
                reason: "it must be at least 1",
            }),
            None => Ok(()),
        }
    }
}
