//! What the conductor measures.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// How an attempt to move a partition ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct MoveResult {
    pub(crate) result: &'static str,
}

/// A step of a move.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct MovePhase {
    pub(crate) phase: &'static str,
}

/// Made once per process: a broker that becomes controller again goes on counting.
#[derive(Debug, Clone)]
pub struct ConductorMetrics {
    pub(crate) sessions: Gauge,
    pub(crate) sessions_opened: Counter,
    pub(crate) hellos_refused: Counter,
    pub(crate) dead_brokers: Gauge,
    pub(crate) offline_partitions: Gauge,
    pub(crate) reassignments: Gauge,
    pub(crate) seals_to_undo: Gauge,
    pub(crate) moves: Family<MoveResult, Counter>,
    pub(crate) move_seconds: Family<MovePhase, Histogram>,
    pub(crate) moves_per_commit: Histogram,
    pub(crate) failovers: Counter,
    pub(crate) failover_attempts_failed: Counter,
    pub(crate) failover_partitions: Counter,
    pub(crate) failover_seconds: Histogram,
    pub(crate) balance_moves: Counter,
}

impl ConductorMetrics {
    /// Registers all of them.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            sessions: Gauge::default(),
            sessions_opened: Counter::default(),
            hellos_refused: Counter::default(),
            dead_brokers: Gauge::default(),
            offline_partitions: Gauge::default(),
            reassignments: Gauge::default(),
            seals_to_undo: Gauge::default(),
            moves: Family::default(),
            move_seconds: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.000_5, 2.0, 17))
            }),
            moves_per_commit: Histogram::new(exponential_buckets(1.0, 2.0, 11)),
            failovers: Counter::default(),
            failover_attempts_failed: Counter::default(),
            failover_partitions: Counter::default(),
            failover_seconds: Histogram::new(exponential_buckets(0.01, 2.0, 14)),
            balance_moves: Counter::default(),
        };
        let r = registry.sub_registry_with_prefix("conductor");
        r.register(
            "sessions",
            "Brokers whose last heartbeat is younger than the session time-out",
            metrics.sessions.clone(),
        );
        r.register(
            "sessions_opened",
            "Sessions that brokers opened",
            metrics.sessions_opened.clone(),
        );
        r.register(
            "hellos_refused",
            "Sessions that were refused",
            metrics.hellos_refused.clone(),
        );
        r.register(
            "dead_brokers",
            "Registered brokers that are taken for dead",
            metrics.dead_brokers.clone(),
        );
        r.register(
            "offline_partitions",
            "Partitions that nobody serves",
            metrics.offline_partitions.clone(),
        );
        r.register(
            "reassignments",
            "Moves that are wanted and not done",
            metrics.reassignments.clone(),
        );
        r.register(
            "seals_to_undo",
            "Partitions that may be sealed by a move that failed, until their leader has taken it back",
            metrics.seals_to_undo.clone(),
        );
        r.register(
            "moves",
            "Attempts to move a partition, by how they ended",
            metrics.moves.clone(),
        );
        r.register_with_unit(
            "move",
            "Time of the steps of a move that took place",
            Unit::Seconds,
            metrics.move_seconds.clone(),
        );
        r.register(
            "moves_per_commit",
            "Moves that shared one change of the metadata",
            metrics.moves_per_commit.clone(),
        );
        r.register(
            "failovers",
            "Dead brokers whose partitions others have taken over",
            metrics.failovers.clone(),
        );
        r.register(
            "failover_attempts_failed",
            "Tries of a failover that failed and were repeated",
            metrics.failover_attempts_failed.clone(),
        );
        r.register(
            "failover_partitions",
            "Partitions that moved by a failover",
            metrics.failover_partitions.clone(),
        );
        r.register_with_unit(
            "failover",
            "From the broker's death being noticed to the new leaders being stored",
            Unit::Seconds,
            metrics.failover_seconds.clone(),
        );
        r.register(
            "balance_moves",
            "Moves that were begun to even out load",
            metrics.balance_moves.clone(),
        );
        metrics
    }

    pub(crate) fn moved(&self, result: &'static str) {
        self.moves.get_or_create(&MoveResult { result }).inc();
    }

    pub(crate) fn phase(&self, phase: &'static str, seconds: f64) {
        self.move_seconds
            .get_or_create(&MovePhase { phase })
            .observe(seconds);
    }
}

/// A number of things as a gauge's value.
pub(crate) fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
