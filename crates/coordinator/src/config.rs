//! Limits and times, with Apache Kafka's names and defaults.

use crate::MigrationPolicy;

/// Settings of one coordinator. The field's doc names the broker setting of Kafka it stands for; settings
/// without one are limits that Kafka hasn't got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupConfig {
    /// `group.min.session.timeout.ms`
    pub min_session_timeout_ms: u32,
    /// `group.max.session.timeout.ms`
    pub max_session_timeout_ms: u32,
    /// `group.initial.rebalance.delay.ms`: how long an empty group waits for more members.
    pub initial_rebalance_delay_ms: u32,
    /// How long a new member may wait in JoinGroup before it is dropped; fixed at 5 minutes in Kafka.
    pub new_member_join_timeout_ms: u32,
    /// `group.max.size`: members per group.
    pub max_group_size: usize,
    /// `group.consumer.session.timeout.ms`
    pub consumer_session_timeout_ms: u32,
    /// `group.consumer.heartbeat.interval.ms`: what members are told.
    pub consumer_heartbeat_interval_ms: u32,
    /// `group.consumer.max.size`: members per consumer group.
    pub max_consumer_group_size: usize,
    /// `group.consumer.migration.policy`
    pub consumer_migration_policy: MigrationPolicy,
    /// `offsets.retention.minutes`
    pub offsets_retention_minutes: u32,
    /// `offsets.retention.check.interval.ms`
    pub offsets_retention_check_interval_ms: u64,
    /// `offset.metadata.max.bytes`. Kafka compares it with the count of UTF-16 units, so do we.
    pub offset_metadata_max_bytes: usize,
    /// `offsets.commit.timeout.ms`: how long a reply waits for its append.
    pub offset_commit_timeout_ms: u32,
    /// Groups per partition of `__consumer_offsets`.
    pub max_groups: usize,
    /// Members per group that were told MEMBER_ID_REQUIRED and haven't come back.
    pub max_pending_members: usize,
    /// Sum of the bytes of one member's protocol names and metadata.
    pub max_member_metadata_bytes: usize,
    /// Appends that may be open before requests that need one are told COORDINATOR_NOT_AVAILABLE.
    pub max_pending_appends: usize,
    /// Records in one append of expiry and of deleted topics, which need not be atomic.
    pub max_cleanup_batch_records: usize,
}

impl Default for GroupConfig {
    fn default() -> Self {
        Self {
            min_session_timeout_ms: 6_000,
            max_session_timeout_ms: 1_800_000,
            initial_rebalance_delay_ms: 3_000,
            new_member_join_timeout_ms: 5 * 60 * 1_000,
            max_group_size: i32::MAX as usize,
            consumer_session_timeout_ms: 45_000,
            consumer_heartbeat_interval_ms: 5_000,
            max_consumer_group_size: i32::MAX as usize,
            consumer_migration_policy: MigrationPolicy::Bidirectional,
            offsets_retention_minutes: 7 * 24 * 60,
            offsets_retention_check_interval_ms: 600_000,
            offset_metadata_max_bytes: 4_096,
            offset_commit_timeout_ms: 5_000,
            max_groups: 100_000,
            max_pending_members: 10_000,
            max_member_metadata_bytes: 1 << 20,
            max_pending_appends: 10_000,
            max_cleanup_batch_records: 1_000,
        }
    }
}

/// A setting that can't work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid {setting}: {reason}")]
pub struct InvalidConfig {
    pub setting: &'static str,
    pub reason: &'static str,
}

impl GroupConfig {
    /// Checks what no single field's type can.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        let at_least_1 = [
            ("group.max.size", self.max_group_size as u64),
            (
                "group.consumer.max.size",
                self.max_consumer_group_size as u64,
            ),
            (
                "group.consumer.heartbeat.interval.ms",
                u64::from(self.consumer_heartbeat_interval_ms),
            ),
            (
                "offsets.retention.minutes",
                u64::from(self.offsets_retention_minutes),
            ),
            (
                "offsets.retention.check.interval.ms",
                self.offsets_retention_check_interval_ms,
            ),
            (
                "offsets.commit.timeout.ms",
                u64::from(self.offset_commit_timeout_ms),
            ),
            ("max_groups", self.max_groups as u64),
            ("max_pending_members", self.max_pending_members as u64),
            (
                "max_cleanup_batch_records",
                self.max_cleanup_batch_records as u64,
            ),
        ];
        for (setting, value) in at_least_1 {
            if value == 0 {
                return Err(InvalidConfig {
                    setting,
                    reason: "it must be at least 1",
                });
            }
        }
        if self.min_session_timeout_ms > self.max_session_timeout_ms {
            return Err(InvalidConfig {
                setting: "group.min.session.timeout.ms",
                reason: "it is above group.max.session.timeout.ms",
            });
        }
        if self.consumer_session_timeout_ms <= self.consumer_heartbeat_interval_ms {
            return Err(InvalidConfig {
                setting: "group.consumer.session.timeout.ms",
                reason: "it is not above group.consumer.heartbeat.interval.ms",
            });
        }
        Ok(())
    }

    pub(crate) fn offsets_retention_ms(&self) -> i64 {
        i64::from(self.offsets_retention_minutes) * 60_000
    }
}
