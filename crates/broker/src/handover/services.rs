//! What other brokers and the controller reach of this one, from the moment its port is open.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use tidegate_cluster::orders::{
    BrokerOrders, Discard, FollowError, FollowRequest, HeldLog, Hold, OrderError, OrderRefused,
    Orders, Prepare, Seal, SealAnswer, Tail, TailSource, Unseal,
};

use super::Handover;

/// Orders and tails of this broker. Until it has opened its logs, it can't carry anything out.
#[derive(Default)]
pub(crate) struct BrokerServices(ArcSwapOption<Handover>);

impl BrokerServices {
    /// From now on orders are carried out.
    pub(crate) fn open(&self, handover: Arc<Handover>) {
        self.0.store(Some(handover));
    }

    /// How many logs are open here.
    pub(crate) fn led_partitions(&self) -> u64 {
        let handover = self.0.load();
        handover.as_ref().map_or(0, |h| h.logs.len() as u64)
    }

    fn handover(&self) -> Result<Arc<Handover>, OrderError> {
        self.0
            .load_full()
            .ok_or_else(|| OrderError::Unreachable("the broker is starting".to_owned()))
    }
}

#[async_trait]
impl BrokerOrders for BrokerServices {
    async fn prepare(
        &self,
        orders: Orders<Prepare>,
    ) -> Result<Vec<Result<(), OrderRefused>>, OrderError> {
        let handover = self.handover()?;
        if let Err(refused) = handover.controller.admit(orders.controller_epoch) {
            return Ok(orders.items.iter().map(|_| Err(refused.clone())).collect());
        }
        Ok(handover.prepare(orders.items).await)
    }

    async fn seal(&self, orders: Orders<Seal>) -> Result<SealAnswer, OrderError> {
        let handover = self.handover()?;
        if let Err(refused) = handover.controller.admit(orders.controller_epoch) {
            return Ok(SealAnswer {
                results: orders.items.iter().map(|_| Err(refused.clone())).collect(),
                objects: Vec::new(),
                broker_epoch: handover.broker_epoch,
            });
        }
        Ok(handover.seal(orders.controller_epoch, orders.items).await)
    }

    async fn hold(
        &self,
        orders: Orders<Hold>,
    ) -> Result<Vec<Result<HeldLog, OrderRefused>>, OrderError> {
        let handover = self.handover()?;
        if let Err(refused) = handover.controller.admit(orders.controller_epoch) {
            return Ok(orders.items.iter().map(|_| Err(refused.clone())).collect());
        }
        Ok(handover.hold(orders.items).await)
    }

    async fn unseal(&self, orders: Orders<Unseal>) -> Result<(), OrderError> {
        let handover = self.handover()?;
        if handover.controller.admit(orders.controller_epoch).is_ok() {
            handover.unseal(orders.controller_epoch, orders.items);
        }
        Ok(())
    }

    async fn discard(&self, orders: Orders<Discard>) -> Result<(), OrderError> {
        let handover = self.handover()?;
        if handover.controller.admit(orders.controller_epoch).is_ok() {
            handover.discard(orders.items);
        }
        Ok(())
    }
}

#[async_trait]
impl TailSource for BrokerServices {
    async fn follow(&self, request: FollowRequest) -> Result<Tail, FollowError> {
        let handover = self
            .handover()
            .map_err(|error| FollowError::Unreachable(error.to_string()))?;
        handover.follow(request)
    }
}
