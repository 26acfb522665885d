//! How a conductor runs.

use std::time::Duration;

use tidegate_types::BrokerId;

use super::balance::BalanceOptions;

/// Times and limits. All of them only decide when something is tried; none is what safety rests on.
#[derive(Debug, Clone)]
pub struct ConductorOptions {
    /// The broker this controller runs on.
    pub me: BrokerId,
    /// Without a heartbeat for so long a broker is taken for dead.
    pub session_timeout: Duration,
    /// Brokers that get no grace at the start, because their death is known: the former lease holder.
    pub presumed_dead: Vec<BrokerId>,
    /// Evening out leaders.
    pub balance: BalanceOptions,
    /// How long an operator's move, or an election, is left alone by the balance.
    pub operator_pin: Duration,
    /// How moves are driven.
    pub moves: MoveOptions,
    /// How often the table of sessions is looked at.
    pub tick: Duration,
    /// Pauses between tries of a failover: the first, doubled up to the second.
    pub failover_backoff: (Duration, Duration),
}

impl ConductorOptions {
    /// The defaults for a broker.
    pub fn new(me: BrokerId) -> Self {
        Self {
            me,
            session_timeout: Duration::from_secs(2),
            presumed_dead: Vec::new(),
            balance: BalanceOptions::default(),
            operator_pin: Duration::from_secs(300),
            moves: MoveOptions::default(),
            tick: Duration::from_millis(100),
            failover_backoff: (Duration::from_millis(100), Duration::from_secs(2)),
        }
    }
}

/// Limits of moves.
#[derive(Debug, Clone)]
pub struct MoveOptions {
    /// Partitions that are moved away from one broker at once.
    pub per_source: usize,
    /// Partitions in one order.
    pub per_order: usize,
    /// Moves in one change of the metadata.
    pub per_commit: usize,
    /// How long the new leader may take to catch up.
    pub prepare_timeout: Duration,
    /// How long sealing and holding may take: the partition takes no appends meanwhile.
    pub seal_timeout: Duration,
    /// How long one try to take a seal back may take.
    pub undo_timeout: Duration,
    /// Pauses between tries of a move, and of taking one back: the first, doubled up to the second.
    pub backoff: (Duration, Duration),
    /// A wish to move to a broker that isn't alive is kept for so long.
    pub target_patience: Duration,
    /// How often the stored wishes are read again, in case one was stored that nobody told of.
    pub relist: Duration,
}

impl Default for MoveOptions {
    fn default() -> Self {
        Self {
            per_source: 128,
            per_order: 64,
            per_commit: 512,
            prepare_timeout: Duration::from_secs(30),
            seal_timeout: Duration::from_secs(5),
            undo_timeout: Duration::from_secs(2),
            backoff: (Duration::from_millis(50), Duration::from_secs(2)),
            target_patience: Duration::from_secs(10),
            relist: Duration::from_secs(2),
        }
    }
}
