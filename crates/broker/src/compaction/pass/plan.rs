//! What a pass finds out before it reads.

use std::collections::HashMap;

use tidegate_maintenance::{
    AbortedRange, CompactionDue, Filter, FilterRules, KeyMap, LastRecord, Transactions,
    plan_compaction,
};
use tidegate_metadata::PartitionState;
use tidegate_partition_log::CompactionView;
use tidegate_types::{Offset, OffsetRange, TimestampMs};

use super::{Halt, Pass, PassEnd, stop};
use crate::compaction::stored_segments;
use crate::compaction::watch::{Known, Rest};
use crate::config::TopicCompaction;

/// What a pass goes by.
pub(super) struct Planned {
    pub(super) view: CompactionView,
    pub(super) settings: TopicCompaction,
    pub(super) dirty: OffsetRange,
    pub(super) aborted: Vec<AbortedRange>,
}

impl Planned {
    pub(super) fn filter(&self, map: KeyMap, map_end: Offset, now: TimestampMs) -> Filter {
        let producers = self.view.producers.iter().map(|last| {
            let record = match last.data_end {
                Some(end) => LastRecord::Data { end },
                None => LastRecord::Marker { epoch: last.epoch },
            };
            (last.producer, record)
        });
        let rules = FilterRules {
            now,
            delete_retention: self.settings.delete_retention,
            producers: producers.collect::<HashMap<_, _>>(),
        };
        let transactions = Transactions::new(self.aborted.clone());
        Filter::new(map, map_end, transactions, rules)
    }
}

impl Pass<'_> {
    /// Looks at the partition as metadata and log have it now.
    pub(super) async fn plan(&self) -> Result<Planned, Halt> {
        let settings = self
            .of
            .topic_settings(self.log)
            .ok_or(stop("the topic isn't compacted"))?;
        let id = self.log.id();
        let states = self.of.broker.controller.partition_states(vec![id]).await?;
        let state = states.into_iter().flatten().next();
        let state = state.ok_or(stop("the topic is gone"))?;
        if !self.log.leads_under(state.leader_epoch) || state.leader != Some(self.of.broker.id) {
            return Err(stop("another broker leads"));
        }
        // An answer about the end of the last pass may have been lost.
        self.log.compacted(None, Some(state.cleaned_end));
        let watermarks = self.log.watermarks().ok();
        let view = self
            .log
            .compaction_view()
            .filter(|view| view.leader_epoch == state.leader_epoch)
            .ok_or(stop("the log isn't open"))?;
        let checkpointed = state.checkpoint.as_ref().map_or(Offset::ZERO, |c| c.as_of);
        let limit = view
            .last_stable
            .min(view.stored_end)
            .min(state.committed_end)
            .min(checkpointed);
        let policy = self.of.policy(&settings);
        let due = plan_compaction(
            &stored_segments(&view),
            state.cleaned_end.max(view.log_start),
            limit,
            &policy,
            self.of.broker.clock.wall(),
        );
        let plan = match due {
            CompactionDue::Now(plan) => plan,
            CompactionDue::NotBefore(until) => {
                let rest = watermarks.map(|watermarks| Rest {
                    watermarks,
                    policy,
                    until,
                });
                let known = Known {
                    leader_epoch: view.leader_epoch,
                    cleaned_end: state.cleaned_end,
                    rest: rest.filter(|rest| is_all_committed(rest, &view, &state)),
                };
                return Err(Halt::End(PassEnd::NotDue(known)));
            }
        };
        let aborted = view.aborted.iter().map(|t| AbortedRange {
            producer: t.producer,
            start: t.start,
            marker: t.marker,
        });
        Ok(Planned {
            aborted: aborted.collect(),
            dirty: plan.dirty,
            settings,
            view,
        })
    }
}

/// Whether metadata and the map have everything that was appended when the watermarks were read. Otherwise the limit of
/// what may be compacted moves without them.
fn is_all_committed(rest: &Rest, view: &CompactionView, state: &PartitionState) -> bool {
    let end = rest.watermarks.log_end;
    view.stored_end >= end && state.committed_end >= end
}
