//! Swaps of segments: compaction puts new ones in the place of those it read.
//!
//! Nothing that compaction knew when it began counts: the leader, the log start, the checkpoint and every single
//! segment are looked at again here, in the same step that changes them.

use std::borrow::Cow;

use tidegate_types::{Offset, OffsetRange, TimestampMs};

use super::workspace::Workspace;
use super::{Command, Decision, Environment, Facts, Need, State};
use crate::api::{StaleBrokerEpoch, SwapOutcome, SwapRefused, SwapSegments, SwapSegmentsError};
use crate::keys::SegmentKey;
use crate::model::{ObjectCommit, SegmentCommit};
use crate::rows::{PartitionRow, SegmentRow};

type Segments = [(SegmentKey, SegmentRow)];

impl SwapSegments {
    fn segments_need(&self) -> Option<Need> {
        let range = self.range()?;
        Some(Need::Segments {
            partition: self.partition,
            from: range.start(),
            to: range.end(),
            // One more than either side tells that there are too many.
            limit: self.inputs.len().max(self.outputs.len()) + 1,
        })
    }

    /// The form of the request, whatever the state.
    fn check_form(&self) -> Result<(), SwapRefused> {
        if self.inputs.len() > Self::MAX_SEGMENTS || self.outputs.len() > Self::MAX_SEGMENTS {
            return malformed("too many segments");
        }
        if self.inputs.is_empty() != self.outputs.is_empty() {
            return malformed("something is swapped for nothing");
        }
        if !follow_each_other(self.inputs.iter().map(|input| input.range)) {
            return malformed("the old segments don't follow each other");
        }
        let mut ranges = Vec::with_capacity(self.outputs.len());
        for output in &self.outputs {
            let [segment] = &output.segments[..] else {
                return malformed("an object has another number of segments than one");
            };
            if segment.partition != self.partition || output.wal_sequence.is_some() {
                return malformed("an object is of another partition, or of the WAL");
            }
            let end = segment.span.position.checked_add(segment.span.length);
            if end.is_none_or(|end| end > output.size_bytes) {
                return malformed("a segment reaches beyond its object's end");
            }
            ranges.push(segment.range);
        }
        if !follow_each_other(ranges.iter().copied()) {
            return malformed("the new segments don't follow each other");
        }
        let covered = ranges.first().zip(ranges.last());
        let covered = covered.and_then(|(first, last)| OffsetRange::new(first.start(), last.end()));
        if covered != self.range() {
            return malformed("the new segments cover other offsets than the old ones");
        }
        Ok(())
    }

    fn check_partition<'a>(&self, state: &'a State) -> Result<&'a PartitionRow, SwapRefused> {
        let row = state
            .partition(self.partition)
            .ok_or(SwapRefused::UnknownPartition(self.partition))?;
        if row.leader != Some(self.broker) || row.leader_epoch != self.leader_epoch {
            return Err(SwapRefused::NotLeader {
                leader: row.leader,
                leader_epoch: row.leader_epoch,
            });
        }
        let end = self.range().map(OffsetRange::end).max(self.cleaned_end);
        let as_of = row.checkpoint.as_ref().map(|checkpoint| checkpoint.as_of);
        if end.is_some() && end > as_of {
            return Err(SwapRefused::NotCheckpointed { as_of });
        }
        Ok(row)
    }

    fn check_inputs(&self, row: &PartitionRow, there: &Segments) -> Result<(), SwapRefused> {
        if self
            .inputs
            .first()
            .is_some_and(|first| first.range.end() <= row.log_start)
        {
            return Err(SwapRefused::BelowLogStart {
                log_start: row.log_start,
            });
        }
        let same = there.len() == self.inputs.len()
            && there.iter().zip(&self.inputs).all(|((key, row), input)| {
                row.start == input.range.start()
                    && key.end == input.range.end()
                    && row.object == input.object
            });
        if same {
            Ok(())
        } else {
            Err(SwapRefused::OtherSegments)
        }
    }

    /// Whether an earlier request of the same kind put these very segments there.
    fn is_done(&self, there: &Segments) -> bool {
        !self.outputs.is_empty()
            && there.len() == self.outputs.len()
            && there.iter().zip(&self.outputs).all(|((key, row), output)| {
                row.object == output.key
                    && output
                        .segments
                        .iter()
                        .all(|s| s.range.start() == row.start && s.range.end() == key.end)
            })
    }

    fn carry_out(&self, work: &mut Workspace<'_>, there: &Segments) -> Result<(), SwapRefused> {
        for output in &self.outputs {
            if work.check_referable(&output.key).is_err() {
                return Err(SwapRefused::ObjectDropped {
                    object: output.key.clone(),
                });
            }
        }
        // Compaction doesn't make records younger.
        let committed_at = there
            .iter()
            .map(|(_, row)| row.committed_at)
            .max()
            .unwrap_or(work.now());
        work.drop_segments(there);
        let bytes_before: u64 = there.iter().map(|(_, row)| row.span.length).sum();
        let mut bytes = 0;
        for (output, segment) in self.segments() {
            bytes += segment.span.length;
            work.refer(&output.key, output.size_bytes);
            let (key, row) = segment_row(output, segment, committed_at);
            work.put_segment(key, row);
        }
        let row = work
            .edit(self.partition)
            .expect("the caller has just read this partition's row");
        row.segment_count =
            row.segment_count.saturating_sub(there.len() as u64) + self.outputs.len() as u64;
        row.segment_bytes = row.segment_bytes.saturating_sub(bytes_before) + bytes;
        row.swaps += 1;
        row.cleaned_end = row
            .cleaned_end
            .max(self.cleaned_end.unwrap_or(Offset::ZERO));
        Ok(())
    }

    fn segments(&self) -> impl Iterator<Item = (&ObjectCommit, &SegmentCommit)> {
        self.outputs
            .iter()
            .flat_map(|output| output.segments.iter().map(move |segment| (output, segment)))
    }

    fn swap(
        &self,
        state: &State,
        facts: &Facts,
        work: &mut Workspace<'_>,
    ) -> Result<(), SwapRefused> {
        self.check_form()?;
        let need = self.segments_need();
        let there = need.as_ref().map_or(&[][..], |need| facts.segments(need));
        if self.is_done(there) {
            return Ok(());
        }
        let row = self.check_partition(state)?;
        self.check_inputs(row, there)?;
        self.carry_out(work, there)
    }
}

impl Command for SwapSegments {
    type Output = SwapOutcome;
    type Error = SwapSegmentsError;
    const NAME: &'static str = "swap_segments";

    fn needs(&self, _state: &State, facts: &Facts) -> Vec<Need> {
        if self.check_form().is_err() {
            return Vec::new();
        }
        let outputs = self.outputs.iter().map(|o| Need::Object(o.key.clone()));
        let mut needs: Vec<Need> = outputs.collect();
        if let Some(segments) = self.segments_need() {
            if facts.knows(&segments) {
                needs.extend(Workspace::objects_of(facts.segments(&segments)));
            } else {
                needs.push(segments);
            }
        }
        facts.missing(needs)
    }

    fn decide(
        &self,
        state: &State,
        facts: &Facts,
        environment: &mut Environment<'_>,
    ) -> Result<Decision<SwapOutcome>, SwapSegmentsError> {
        let broker = state.registered(self.broker, self.broker_epoch)?;
        if !broker.leads() {
            return Err(StaleBrokerEpoch {
                broker: self.broker,
                broker_epoch: self.broker_epoch,
                current: broker.writer.map(|w| w.broker_epoch),
            }
            .into());
        }
        let mut work = Workspace::new(state, facts, environment.now);
        let output = match self.swap(state, facts, &mut work) {
            Ok(()) => SwapOutcome::Swapped,
            Err(refused) => {
                work = Workspace::new(state, facts, environment.now);
                if self.check_form().is_ok() {
                    // What isn't known of is stored in vain.
                    for output in &self.outputs {
                        work.drop_unreferenced(&output.key, output.size_bytes);
                    }
                }
                SwapOutcome::Refused(refused)
            }
        };
        Ok(Decision {
            changes: work.into_changes(),
            output,
        })
    }
}

fn malformed<T>(reason: &'static str) -> Result<T, SwapRefused> {
    Err(SwapRefused::Malformed {
        reason: Cow::Borrowed(reason),
    })
}

fn follow_each_other(ranges: impl Iterator<Item = OffsetRange>) -> bool {
    let mut end = None;
    for range in ranges {
        if range.is_empty() || end.is_some_and(|end| end != range.start()) {
            return false;
        }
        end = Some(range.end());
    }
    true
}

fn segment_row(
    object: &ObjectCommit,
    segment: &SegmentCommit,
    committed_at: TimestampMs,
) -> (SegmentKey, SegmentRow) {
    let key = SegmentKey {
        partition: segment.partition,
        end: segment.range.end(),
    };
    let row = SegmentRow {
        start: segment.range.start(),
        leader_epoch: segment.leader_epoch,
        object: object.key.clone(),
        span: segment.span,
        index: object.index,
        max_timestamp: segment.max_timestamp,
        record_count: segment.record_count,
        committed_at,
    };
    (key, row)
}
