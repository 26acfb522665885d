//! Waiting out a move: requests that come while a partition is between two leaders are kept for a moment, so that
//! clients feel milliseconds instead of a retry.

use std::sync::Arc;
use std::time::Duration;

use tidegate_metadata::TopicImage;
use tidegate_partition_log::{Ownership, PartitionLog};
use tidegate_types::{PartitionId, PartitionIndex};
use tokio::time::timeout_at;

use crate::broker::Broker;
use crate::error_code::ErrorCode;

/// The longest that a request is kept. A move takes milliseconds; one that takes longer is for the client to wait for.
const PATIENCE: Duration = Duration::from_secs(1);

impl Broker {
    /// The log to append to. While it is sealed, or is about to be led here, this waits for what becomes of it.
    pub(crate) async fn log_for_append(
        &self,
        topic: &TopicImage,
        index: i32,
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
        let deadline = self.clock.now() + PATIENCE;
        match timeout_at(deadline, self.settled(partition)).await {
            Ok(Some(log)) => Ok(log),
            Ok(None) | Err(_) => Err(refused),
        }
    }

    /// Waits until a partition that is about to be led here is, for readers.
    pub(crate) async fn await_incoming(&self, partition: PartitionId) {
        if self.logs.get(partition).is_none() && self.handover.incoming.holds(partition) {
            let deadline = self.clock.now() + PATIENCE;
            // In vain: the reader is then told who leads.
            let _ = timeout_at(deadline, self.settled(partition)).await;
        }
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
