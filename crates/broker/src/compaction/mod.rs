//! Compaction by key of the partitions that this broker leads: looks for those that are due and runs one pass after
//! the other. The protocol is in `docs/protocols/compaction.md`, the rules in `tidegate-maintenance`.

mod metrics;
mod output;
mod pace;
mod pass;
mod watch;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tidegate_maintenance::{CompactionDue, CompactionPolicy, StoredSegment, plan_compaction};
use tidegate_object_storage::ObjectStorage;
use tidegate_partition_log::{CompactionView, PartitionLog, SegmentReader, Writer};
use tidegate_types::PartitionId;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

pub use self::metrics::CompactionMetrics;
use self::pace::Pace;
use self::pass::{Pass, PassEnd};
use self::watch::{Known, Rest, Watch};
use crate::broker::Broker;
use crate::catalog::Catalog;
use crate::config::{TopicCompaction, TopicSettings};

/// Passes of one partition before others get their turn: its map was full so often.
const PASSES_IN_A_ROW: usize = 16;
/// After so many logs others get their turn on the thread.
const LOGS_IN_A_ROW: usize = 256;

/// Limits of compaction.
#[derive(Debug, Clone, Copy)]
pub struct CompactionSettings {
    /// How often partitions that are due are looked for (`log.cleaner.backoff.ms`).
    pub check: Duration,
    /// What all of it takes (`log.cleaner.dedupe.buffer.size` and the like).
    pub memory_bytes: u64,
    /// What is read in a second (`log.cleaner.io.max.bytes.per.second`).
    pub bytes_per_second: u64,
    /// Fewer dirty bytes aren't worth a pass.
    pub min_dirty_bytes: u64,
}

impl CompactionSettings {
    fn key_map_bytes(&self) -> usize {
        usize::try_from(self.memory_bytes / 2).unwrap_or(usize::MAX)
    }

    /// An object is cut when it has so many bytes.
    fn object_bytes(&self) -> u64 {
        (self.memory_bytes / 4).clamp(1 << 16, 32 << 20)
    }

    /// What its reader may take: a quarter, for GETs under way and small objects that many partitions share.
    pub(crate) fn reader_limits(&self) -> tidegate_partition_log::ReaderLimits {
        tidegate_partition_log::ReaderLimits {
            block_cache_bytes: self.memory_bytes / 8,
            index_cache_bytes: self.memory_bytes / 32,
            in_flight_bytes: self.memory_bytes / 16,
        }
    }
}

/// Runs over all compacted logs that this broker leads.
pub(crate) struct Compactor {
    pub(crate) broker: Arc<Broker>,
    pub(crate) storage: ObjectStorage,
    pub(crate) reader: SegmentReader,
    pub(crate) writer: Writer,
    pub(crate) block_bytes: usize,
    pub(crate) settings: CompactionSettings,
    pub(crate) metrics: CompactionMetrics,
    /// The number of the next object.
    pub(crate) next_object: AtomicU64,
}

/// A log that is due, by what is known without asking.
struct Due {
    log: Arc<PartitionLog>,
    dirty_ratio: f64,
}

impl Compactor {
    pub(crate) async fn run(self, cancel: CancellationToken) {
        let mut watch = Watch::default();
        let mut pace = Pace::new(self.broker.clock.clone(), self.settings.bytes_per_second);
        loop {
            // Cancel-safe: a pass that is dropped leaves objects that nobody refers to, nothing else.
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(self.settings.check) => {}
            }
            tokio::select! {
                () = cancel.cancelled() => return,
                () = Box::pin(self.round(&mut watch, &mut pace)) => {}
            }
        }
    }

    async fn round(&self, watch: &mut Watch, pace: &mut Pace) {
        let logs = self.compacted_logs();
        let led: HashSet<PartitionId> = logs.iter().map(|(log, _)| log.id()).collect();
        watch.retain(|id| led.contains(&id));
        self.learn_cleaned(&logs, watch).await;
        let mut due = Vec::new();
        for some in logs.chunks(LOGS_IN_A_ROW) {
            due.extend(
                some.iter()
                    .filter_map(|(log, settings)| self.due(log, settings, watch)),
            );
            tokio::task::yield_now().await;
        }
        self.metrics
            .due
            .set(i64::try_from(due.len()).unwrap_or(i64::MAX));
        due.sort_by(|a, b| b.dirty_ratio.total_cmp(&a.dirty_ratio));
        for due in due {
            self.compact(&due.log, watch, pace).await;
        }
    }

    async fn compact(&self, log: &Arc<PartitionLog>, watch: &mut Watch, pace: &mut Pace) {
        for _ in 0..PASSES_IN_A_ROW {
            // What is known of it may not be true any more.
            watch.forget(log.id());
            match Pass::new(self, log, pace).run().await {
                Ok(PassEnd::Done { leader_epoch, end }) => {
                    let known = Known {
                        leader_epoch,
                        cleaned_end: end,
                        rest: None,
                    };
                    watch.learn(log.id(), known);
                    return;
                }
                Ok(PassEnd::NotDue(known)) => {
                    watch.learn(log.id(), known);
                    return;
                }
                Ok(PassEnd::MapFull) => {}
                Ok(PassEnd::Stopped(reason)) => {
                    debug!(partition = %log.id(), reason, "compaction stopped");
                    return;
                }
                Err(error) => {
                    self.metrics.failures.inc();
                    warn!(partition = %log.id(), topic = %log.topic(), error = &error as &dyn std::error::Error, "compaction is tried again later");
                    return;
                }
            }
        }
        info!(partition = %log.id(), "compaction goes on later");
    }

    fn compacted_logs(&self) -> Vec<(Arc<PartitionLog>, TopicCompaction)> {
        let catalog = self.broker.catalog.load();
        let logs = self.broker.logs.all().into_iter();
        logs.filter_map(|log| {
            let settings = settings_of(&catalog, &log)?;
            Some((log, settings))
        })
        .collect()
    }

    /// A log's settings, if its topic is compacted.
    fn topic_settings(&self, log: &PartitionLog) -> Option<TopicCompaction> {
        settings_of(&self.broker.catalog.load(), log)
    }

    /// Asks up to where partitions are compacted that were led by others before, or never looked at.
    async fn learn_cleaned(
        &self,
        logs: &[(Arc<PartitionLog>, TopicCompaction)],
        watch: &mut Watch,
    ) {
        let unknown: Vec<PartitionId> = logs
            .iter()
            .filter(|(log, _)| watch.known(log.id(), log.leader_epoch()).is_none())
            .map(|(log, _)| log.id())
            .collect();
        if unknown.is_empty() {
            return;
        }
        match self.broker.controller.partition_states(unknown).await {
            Ok(states) => {
                for state in states.into_iter().flatten() {
                    let known = Known {
                        leader_epoch: state.leader_epoch,
                        cleaned_end: state.cleaned_end,
                        rest: None,
                    };
                    watch.learn(state.partition, known);
                }
            }
            Err(error) => {
                debug!(
                    error = &error as &dyn std::error::Error,
                    "compaction doesn't know yet what is compacted"
                );
            }
        }
    }

    /// Looks at a log, unless it is sure that it isn't due.
    fn due(
        &self,
        log: &Arc<PartitionLog>,
        settings: &TopicCompaction,
        watch: &mut Watch,
    ) -> Option<Due> {
        let policy = self.policy(settings);
        let now = self.broker.clock.wall();
        let watermarks = log.watermarks().ok()?;
        if !watch.is_worth_a_look(log.id(), watermarks, &policy, now) {
            return None;
        }
        let known = watch.known(log.id(), log.leader_epoch())?;
        let view = log
            .compaction_view()
            .filter(|view| view.leader_epoch == known.leader_epoch)?;
        let limit = view.last_stable.min(view.stored_end);
        let cleaned_end = known.cleaned_end.max(view.log_start);
        match plan_compaction(&stored_segments(&view), cleaned_end, limit, &policy, now) {
            CompactionDue::Now(plan) => Some(Due {
                log: log.clone(),
                dirty_ratio: plan.dirty_ratio,
            }),
            CompactionDue::NotBefore(until) => {
                let rest = Rest {
                    watermarks,
                    policy,
                    until,
                };
                // What isn't stored yet comes into the segment map without a move of the watermarks.
                let is_all_stored = view.stored_end >= watermarks.log_end;
                watch.rest(log.id(), is_all_stored.then_some(rest));
                None
            }
        }
    }

    fn policy(&self, settings: &TopicCompaction) -> CompactionPolicy {
        CompactionPolicy {
            min_dirty_ratio: settings.min_dirty_ratio,
            min_lag: settings.min_lag,
            max_lag: settings.max_lag,
            min_dirty_bytes: self.settings.min_dirty_bytes.min(settings.segment_bytes),
        }
    }
}

fn settings_of(catalog: &Catalog, log: &PartitionLog) -> Option<TopicCompaction> {
    let topic = catalog.image.topic_by_id(log.id().topic)?;
    let settings: &TopicSettings = catalog.settings(topic);
    settings.cleanup.compact.then_some(settings.compaction)
}

fn stored_segments(view: &CompactionView) -> Vec<StoredSegment> {
    let segments = view.segments.iter();
    segments
        .map(|s| StoredSegment {
            range: s.range,
            bytes: s.length,
            max_timestamp: s.max_timestamp,
            stored_at: s.stored_at,
        })
        .collect()
}
