//! Handing out producer ids from blocks that the controller gives.

use std::sync::Arc;

use tidegate_metadata::ControllerApi;
use tidegate_metadata::api::{AllocateProducerIds, AllocateProducerIdsError};
use tidegate_types::{BrokerEpoch, BrokerId, ProducerId};
use tokio::sync::Mutex;

struct Block {
    next: i64,
    end: i64,
}

/// Gives every idempotent producer an id that nobody else ever gets.
pub(crate) struct ProducerIds {
    controller: Arc<dyn ControllerApi>,
    broker: BrokerId,
    broker_epoch: BrokerEpoch,
    // A tokio mutex: whoever finds the block empty fetches the next one while the others wait for it.
    block: Mutex<Block>,
}

impl ProducerIds {
    pub(crate) fn new(
        controller: Arc<dyn ControllerApi>,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
    ) -> Self {
        Self {
            controller,
            broker,
            broker_epoch,
            block: Mutex::new(Block { next: 0, end: 0 }),
        }
    }

    pub(crate) async fn next(&self) -> Result<ProducerId, AllocateProducerIdsError> {
        let mut block = self.block.lock().await;
        if block.next == block.end {
            let request = AllocateProducerIds {
                broker: self.broker,
                broker_epoch: self.broker_epoch,
            };
            let fresh = self.controller.allocate_producer_ids(request).await?;
            block.next = fresh.first.to_wire();
            block.end = block.next.saturating_add(i64::from(fresh.count));
        }
        let id = ProducerId::from_wire(block.next).ok_or(AllocateProducerIdsError::Exhausted)?;
        block.next += 1;
        Ok(id)
    }
}
