//! Putting the segments of a run into the map in the place of those it read, and taking in what came of it.

use tidegate_metadata::StoredObjectKey;
use tidegate_metadata::api::{SwapInput, SwapRefused, SwapSegments};
use tidegate_partition_log::Segment;
use tidegate_types::{Offset, OffsetRange};
use tracing::{debug, info};

use super::offer::{Settled, offer, withdrawal};
use super::plan::Planned;
use super::rewrite::Run;
use super::store::{FIRST_RETRY, LAST_RETRY};
use super::{Halt, Pass, still_wanted, stop};

impl Pass<'_> {
    /// Lets the controller put the run's new segments in the place of the old ones, and takes in what came of it.
    pub(super) async fn swap(
        &self,
        planned: &Planned,
        run: Run,
        cleaned_end: Option<Offset>,
    ) -> Result<(), Halt> {
        let range = run.range();
        let request = self.request(planned, &run, cleaned_end);
        let settled = offer(
            &*self.of.broker.controller,
            &request,
            || still_wanted(self.of, self.log, planned),
            || self.is_gone(),
        )
        .await?;
        match settled {
            Settled::Swapped => {
                self.of.metrics.swaps.inc();
                // Compaction doesn't make records younger.
                let stored_at = run.inputs.iter().map(|s| s.stored_at).max();
                let segments = run.segments.into_iter().map(|segment| Segment {
                    stored_at: stored_at.unwrap_or(segment.stored_at),
                    ..segment
                });
                let swapped = range.map(|range| (range, segments.collect()));
                self.log.compacted(swapped, cleaned_end);
                Ok(())
            }
            Settled::Refused(refused) => {
                self.of.metrics.swaps_refused.inc();
                info!(partition = %self.log.id(), reason = &refused as &dyn std::error::Error, "compacted segments are no longer wanted");
                self.reload(planned, range).await?;
                Err(stop(reason_of(&refused)))
            }
            Settled::Withdrawn(reason) => {
                self.of.metrics.swaps_withdrawn.inc();
                info!(partition = %self.log.id(), reason, "compacted segments are given up");
                self.reload(planned, range).await?;
                Err(stop(reason))
            }
            Settled::Abandoned => Err(stop("the partition was closed")),
        }
    }

    fn request(&self, planned: &Planned, run: &Run, cleaned_end: Option<Offset>) -> SwapSegments {
        SwapSegments {
            broker: self.of.writer.broker,
            broker_epoch: self.of.writer.broker_epoch,
            partition: self.log.id(),
            leader_epoch: planned.view.leader_epoch,
            inputs: run.inputs.iter().map(input_of).collect(),
            outputs: run.outputs.clone(),
            cleaned_end,
        }
    }

    /// Lets the objects of a run that was never offered be deleted. It is asked once: what isn't entered is an orphan.
    pub(super) async fn give_up(&self, planned: &Planned, run: Run) {
        let Some(request) = withdrawal(&self.request(planned, &run, None)) else {
            return;
        };
        if let Err(error) = self.of.broker.controller.swap_segments(request).await {
            debug!(partition = %self.log.id(), error = &error as &dyn std::error::Error, "compacted objects are left behind");
        }
    }

    /// Reads the run's part of the map again, as long as this broker leads: an earlier try may have been carried out,
    /// and been changed by retention since.
    async fn reload(&self, planned: &Planned, range: Option<OffsetRange>) -> Result<(), Halt> {
        let Some(range) = range else {
            return Ok(());
        };
        let controller = &*self.of.broker.controller;
        let mut pause = FIRST_RETRY;
        while !self.is_gone() && self.log.leader_epoch() == planned.view.leader_epoch {
            match self.log.reload_segments(controller, range).await {
                Ok(()) => break,
                Err(error) if error.is_retriable() => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LAST_RETRY);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

fn input_of(segment: &Segment) -> SwapInput {
    SwapInput {
        range: segment.range,
        object: StoredObjectKey::new(segment.object.key.as_str())
            .expect("object keys are short printable ASCII"),
    }
}

fn reason_of(refused: &SwapRefused) -> &'static str {
    match refused {
        SwapRefused::UnknownPartition(_) => "the topic is gone",
        SwapRefused::NotLeader { .. } => "another broker leads",
        SwapRefused::BelowLogStart { .. } => "the log start has moved",
        SwapRefused::OtherSegments => "the segments have changed",
        SwapRefused::NotCheckpointed { .. } => "the checkpoint is older",
        SwapRefused::ObjectDropped { .. } => "an object was dropped",
        SwapRefused::Malformed { .. } => "the request is malformed",
    }
}
