//! Waiting out a move: requests that come while a partition is between two leaders are kept for a moment, so that
//! clients feel milliseconds instead of a retry.

use std::sync::Arc;
use std::time::Duration;

use tidegate_metadata::TopicImage;
use tidegate_partition_log::{Ownership, PartitionLog};
use tidegate_runtime::Clock;
use tidegate_types::{PartitionId, PartitionIndex};
use tokio::sync::futures::Notified;
use tokio::time::{Instant, timeout_at};

use crate::broker::Broker;
use crate::error_code::ErrorCode;

/// The longest that a request is kept. A move takes milliseconds; one that takes longer is for the client to wait for.
const LONGEST: Duration = Duration::from_secs(1);

/// How long one request may still be kept, for all its partitions together: many that move at once hold it up no
/// longer than one. The time begins with the first wait.
#[derive(Debug, Default)]
pub(crate) struct Patience(Option<Instant>);

impl Patience {
    pub(crate) fn deadline(&mut self, clock: &dyn Clock) -> Instant {
        *self.0.get_or_insert_with(|| clock.now() + LONGEST)
    }
}

impl Broker {
    /// The log to append to. While it is sealed, or is about to be led here, this waits for what becomes of it.
    pub(crate) async fn log_for_append(
        &self,
        topic: &TopicImage,
        index: i32,
        patience: &mut Patience,
    ) -> Result<Arc<PartitionLog>, ErrorCode> {
        // The usual case, without a look at the clock.
        let refused = match self.led_log(topic, index) {
            Ok(log) if log.takes_appends() => return Ok(log),
            Ok(_) => ErrorCode::NotLeaderOrFollower,
            Err(code) => code,
        };
        let Ok(index) = PartitionIndex::from_wire(index) else {
            return Err(refused);
        };
        let partition = PartitionId {
            topic: topic.id,
            index,
        };
        let deadline = patience.deadline(&*self.clock);
        match timeout_at(deadline, self.settled(partition)).await {
            Ok(Some(log)) => Ok(log),
            Ok(None) | Err(_) => Err(refused),
        }
    }

    /// The log to read of a topic that was looked for, for a client that takes `claimed` for its leader epoch (−1: it
    /// doesn't say). Waits for what the client knows and this broker doesn't yet: a leader that is named must serve
    /// (KIP-320, KIP-951).
    pub(crate) async fn log_for_read(
        &self,
        found: &Result<Arc<TopicImage>, ErrorCode>,
        index: i32,
        claimed: i32,
        patience: &mut Patience,
    ) -> Result<Arc<PartitionLog>, ErrorCode> {
        let topic = found.as_ref().map_err(|code| *code)?;
        if let Ok(log) = self.readable(topic, index, claimed) {
            return Ok(log);
        }
        loop {
            // Before the look: what changes after it rings.
            let rung = self.leadership_changed();
            let catalog = self.catalog.load_full();
            let topic = catalog.image.topic_by_id(topic.id);
            let topic = topic.ok_or(ErrorCode::UnknownTopicOrPartition)?;
            let refused = match self.readable(topic, index, claimed) {
                Ok(log) => return Ok(log),
                Err(code) => code,
            };
            if !self.may_lead_soon(topic, index, claimed) || !self.wait(rung, patience).await {
                return Err(refused);
            }
        }
    }

    /// Whether a client that was refused here may only have been early: it knows of a leadership that this broker
    /// hasn't heard of, or that it is about to begin.
    pub(crate) fn may_lead_soon(&self, topic: &TopicImage, index: i32, claimed: i32) -> bool {
        let Ok(index) = PartitionIndex::from_wire(index) else {
            return false;
        };
        let partition = PartitionId {
            topic: topic.id,
            index,
        };
        let known = topic.partition(index).map(|p| p.leader_epoch.to_wire());
        known.is_some_and(|known| {
            claimed > known
                || (self.logs.get(partition).is_none() && self.handover.incoming.holds(partition))
        })
    }

    /// Whether this broker leads a partition that isn't open yet, or has a copy of it so that it may lead it soon.
    pub(crate) fn is_about_to_lead(&self, partition: PartitionId) -> bool {
        let catalog = self.catalog.load();
        let known = catalog.image.topic_by_id(partition.topic);
        let known = known.and_then(|topic| topic.partition(partition.index));
        known.is_some_and(|known| known.leader == Some(self.id))
            || self.handover.incoming.holds(partition)
    }

    /// Resolves when a log was opened or an image came, from now on.
    pub(crate) fn leadership_changed(&self) -> Notified<'_> {
        self.handover.incoming.rung()
    }

    /// Waits for the bell while there is patience; `false`: there is none left.
    pub(crate) async fn wait(&self, rung: Notified<'_>, patience: &mut Patience) -> bool {
        let deadline = patience.deadline(&*self.clock);
        timeout_at(deadline, rung).await.is_ok()
    }

    /// The log that this broker leads, under the leader epoch that a client takes for its own, as of now.
    pub(crate) fn readable(
        &self,
        topic: &TopicImage,
        index: i32,
        claimed: i32,
    ) -> Result<Arc<PartitionLog>, ErrorCode> {
        let log = self.led_log(topic, index)?;
        self.check_leader_epoch(&log, claimed)?;
        Ok(log)
    }

    /// Waits until this broker leads the partition (`Some`), or clearly doesn't.
    async fn settled(&self, partition: PartitionId) -> Option<Arc<PartitionLog>> {
        loop {
            // Before the look: what settles after it rings.
            let rung = self.handover.incoming.rung();
            match self.logs.get(partition) {
                Some(log) => match log.settled().await {
                    Ownership::Leading => return Some(log),
                    // Closed under another epoch; it may have come back meanwhile.
                    Ownership::Closed if self.handover.incoming.holds(partition) => rung.await,
                    _ => return None,
                },
                None if self.handover.incoming.holds(partition) => rung.await,
                None => return None,
            }
        }
    }
}
