//! Asking a transaction's coordinator before its first records are appended to a partition (KIP-890).
//!
//! A transaction that its coordinator doesn't know of in a partition gets no marker there: it would hang, and with it
//! every read-committed consumer. So a producer's first batch waits until the coordinator has said that the partition
//! belongs to the transaction. Meanwhile the transaction may end, and another may begin that doesn't know of the
//! partition; then the coordinator's answer is out of date. Hence the ticket: it is given out before the coordinator
//! is asked, and a marker that can be of this transaction's end makes those given out before it worthless. Does each
//! transaction have its own epoch, then the marker of the one before may come now, with the epoch that this one has.
//!
//! Tickets are in memory only. Whoever opens the log anew has given none out.

use std::collections::HashMap;

use tidegate_record_batch::ProducerIdentity;
use tidegate_types::{
    LeaderEpoch, ProducerEpoch, ProducerId, Sequence, TimestampMs, VerificationTicket,
};

use super::SequenceError;

/// A producer whose coordinator is being asked.
#[derive(Debug)]
struct Verifying {
    ticket: VerificationTicket,
    epoch: ProducerEpoch,
    /// The lowest sequence that asked. Until it is in the log no higher one may be, or the partition, which may not
    /// know the producer, would refuse the lower one for ever.
    lowest: Option<Sequence>,
    /// The producer gets a new epoch for each transaction, so it begins at sequence 0.
    epoch_rises: bool,
    since: TimestampMs,
}

/// Who waits for a coordinator's word.
#[derive(Debug, Default)]
pub(crate) struct Verifications {
    waiting: HashMap<ProducerId, Verifying>,
    given: u32,
}

impl Verifications {
    /// Gives out a ticket for a batch; retries of one producer epoch share theirs.
    pub(crate) fn begin(
        &mut self,
        identity: ProducerIdentity,
        epoch_rises: bool,
        leader_epoch: LeaderEpoch,
        now: TimestampMs,
    ) -> VerificationTicket {
        let sequence = identity.first_sequence;
        if let Some(verifying) = self.waiting.get_mut(&identity.id)
            && verifying.epoch == identity.epoch
        {
            verifying.lowest = match (verifying.lowest, sequence) {
                (Some(known), Some(new)) if is_above(known, new) => Some(new),
                (known, new) => known.or(new),
            };
            verifying.epoch_rises = epoch_rises;
            return verifying.ticket;
        }
        self.given = self.given.wrapping_add(1);
        // With the leader epoch a ticket of an earlier opening of the log is none of this one's.
        let epoch = u64::from(leader_epoch.to_wire().cast_unsigned());
        let ticket = VerificationTicket::new(epoch << 32 | u64::from(self.given));
        let verifying = Verifying {
            ticket,
            epoch: identity.epoch,
            lowest: sequence,
            epoch_rises,
            since: now,
        };
        self.waiting.insert(identity.id, verifying);
        ticket
    }

    /// Whether a batch may open a transaction.
    pub(crate) fn accept(
        &self,
        identity: ProducerIdentity,
        ticket: Option<VerificationTicket>,
    ) -> bool {
        self.of(identity)
            .is_some_and(|verifying| Some(verifying.ticket) == ticket)
    }

    /// Refuses a batch behind one that is still being asked for.
    pub(crate) fn check_sequence(
        &self,
        identity: ProducerIdentity,
        first: Sequence,
    ) -> Result<(), SequenceError> {
        match self.of(identity).and_then(|verifying| verifying.lowest) {
            Some(lowest) if is_above(first, lowest) => Err(SequenceError::OutOfOrder {
                producer: identity.id,
                found: first,
                expected: lowest,
            }),
            Some(_) | None => Ok(()),
        }
    }

    pub(crate) fn begins_at_zero(&self, identity: ProducerIdentity) -> bool {
        self.of(identity).is_some_and(|v| v.epoch_rises)
    }

    fn of(&self, identity: ProducerIdentity) -> Option<&Verifying> {
        self.waiting
            .get(&identity.id)
            .filter(|verifying| verifying.epoch == identity.epoch)
    }

    /// A batch of the producer's transaction was appended: nobody needs to ask any more.
    pub(crate) fn opened(&mut self, producer: ProducerId) {
        self.waiting.remove(&producer);
    }

    /// A marker of the producer came, for the first time or once more: what was asked about its transaction is over.
    pub(crate) fn ended(&mut self, producer: ProducerId, epoch: ProducerEpoch) {
        let of_the_one_before =
            |verifying: &Verifying| verifying.epoch_rises && epoch <= verifying.epoch;
        if self
            .waiting
            .get(&producer)
            .is_some_and(|verifying| !of_the_one_before(verifying))
        {
            self.waiting.remove(&producer);
        }
    }

    /// Forgets those that asked before `before` and never came back.
    pub(crate) fn expire(&mut self, before: TimestampMs) {
        self.waiting
            .retain(|_, verifying| verifying.since >= before);
    }
}

/// As numbers, though sequences wrap: a transaction that begins right before the end of its numbers, and has two batches
/// asked for at once, is only held up.
fn is_above(one: Sequence, other: Sequence) -> bool {
    one.to_wire() > other.to_wire()
}
