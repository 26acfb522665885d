//! Transactions in one partition: what a batch must show before it may open one, and the markers that end them.

use std::sync::Arc;

use tidegate_record_batch::{ProducedBatch, ProducerIdentity};
use tidegate_types::{Offset, VerificationTicket};

use super::{AppendError, Durability, PartitionLog, ReadError, State};
use crate::producers::{Marker, MarkerAdmission, ProducerView};

/// A transaction whose marker has its offset and isn't durable.
#[derive(Debug)]
pub(super) struct Ending {
    start: Offset,
    marker_end: Offset,
}

/// What has to be done before a batch of a transaction is appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionCheck {
    /// Nothing: the transaction is open here, or the batch is stored already.
    Open,
    /// Ask the transaction's coordinator whether this partition belongs to it. If it does, append with the ticket.
    Ask(VerificationTicket),
}

impl PartitionLog {
    /// Looks at a batch of a transaction before it is appended. `last_offset_delta` is the batch's; `epoch_rises` says
    /// that the producer gets a new epoch for each transaction (KIP-890, second part).
    ///
    /// # Errors
    /// If the batch would be refused whatever the coordinator says.
    pub fn check_transaction(
        &self,
        producer: ProducerIdentity,
        last_offset_delta: u32,
        epoch_rises: bool,
    ) -> Result<TransactionCheck, AppendError> {
        let now = self.context.clock.wall();
        let mut state = self.state.lock();
        state.writable()?;
        if state.producers.has_open(producer.id, producer.epoch)
            || state
                .producers
                .duplicate(producer, last_offset_delta)
                .is_some()
        {
            return Ok(TransactionCheck::Open);
        }
        state.producers.check_epoch(producer)?;
        let leader_epoch = state.leader_epoch;
        Ok(TransactionCheck::Ask(state.verifications.begin(
            producer,
            epoch_rises,
            leader_epoch,
            now,
        )))
    }

    /// Appends the marker that ends a producer's transaction. One that was written before is as durable as the log; it
    /// isn't written again.
    ///
    /// # Errors
    /// [`AppendError::Marker`] if it comes too late for ever; else as for data.
    pub fn append_marker(self: &Arc<Self>, marker: Marker) -> Result<Durability, AppendError> {
        let now = self.context.clock.wall();
        let mut state = self.state.lock();
        state.writable()?;
        let admission = state.producers.admit_marker(&marker)?;
        if admission == MarkerAdmission::Duplicate {
            // What was asked before still is: the transaction is over.
            state.verifications.ended(marker.producer, marker.epoch);
            let end = state.log_end;
            return Ok(Durability::Pending(state.await_durable(end)));
        }
        let bytes = marker.control().encode(marker.producer, marker.epoch, now);
        let batch = ProducedBatch::from_broker(bytes).expect("a marker is one whole batch");
        let appended = self.enter(state, batch, |state, _, range| {
            state.verifications.ended(marker.producer, marker.epoch);
            let start = state.producers.apply_marker(
                marker.producer,
                marker.epoch,
                marker.control(),
                range.start(),
                now,
            );
            if let Some(start) = start {
                state.ending.push_back(Ending {
                    start,
                    marker_end: range.end(),
                });
            }
        })?;
        Ok(appended.durability)
    }

    /// What is known of this partition's producers.
    ///
    /// # Errors
    /// If another broker leads.
    pub fn producers(&self) -> Result<Vec<ProducerView>, ReadError> {
        let state = self.state.lock();
        state.watermarks()?;
        Ok(state.producers.views())
    }
}

impl State {
    /// Where read-committed readers must stop: at the first record of a transaction that isn't known, durably, to be
    /// committed or aborted. Records that were deleted need no decision.
    pub(super) fn last_stable(&self) -> Offset {
        let open = self.producers.first_open_transaction();
        let ending = self.ending.iter().map(|ending| ending.start).min();
        open.into_iter()
            .chain(ending)
            .fold(self.high_watermark, Offset::min)
            .max(self.log_start)
    }

    /// The high watermark has moved: markers below it are durable.
    pub(super) fn settle_endings(&mut self) {
        let is_durable = |ending: &mut Ending| ending.marker_end <= self.high_watermark;
        while self.ending.pop_front_if(is_durable).is_some() {}
    }
}
