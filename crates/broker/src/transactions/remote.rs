//! What this broker does for the transactions of other brokers.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use futures::future::join_all;
use tidegate_cluster::orders::OrderError;
use tidegate_cluster::transactions::{
    AddPartitions, BrokerTransactions, MarkerOutcome, TransactionMarker,
};
use tidegate_coordinator::TopicPartition;

use super::apply::write_marker;
use crate::broker::Broker;

/// Answers once the broker serves.
#[derive(Default)]
pub(crate) struct TransactionServices(ArcSwapOption<Broker>);

impl TransactionServices {
    /// From now on requests are carried out.
    pub(crate) fn open(&self, broker: Arc<Broker>) {
        self.0.store(Some(broker));
    }

    fn broker(&self) -> Result<Arc<Broker>, OrderError> {
        self.0
            .load_full()
            .ok_or_else(|| OrderError::Unreachable("the broker is starting".to_owned()))
    }
}

#[async_trait]
impl BrokerTransactions for TransactionServices {
    async fn write_markers(
        &self,
        markers: Vec<TransactionMarker>,
    ) -> Result<Vec<MarkerOutcome>, OrderError> {
        let broker = self.broker()?;
        let writes = markers.iter().flat_map(|marker| {
            let broker = &broker;
            marker
                .partitions
                .iter()
                .map(move |partition| write_marker(broker, *partition, marker))
        });
        let writes: Vec<_> = writes.collect();
        Ok(join_all(writes).await)
    }

    async fn add_partitions(&self, request: AddPartitions) -> Result<Vec<i16>, OrderError> {
        let broker = self.broker()?;
        let partitions: Vec<TopicPartition> = request
            .partitions
            .into_iter()
            .map(|(topic, partition)| TopicPartition { topic, partition })
            .collect();
        let codes = broker
            .transactions
            .add_here(
                &broker,
                &request.transactional_id,
                request.producer,
                request.epoch,
                &partitions,
                !request.verify_only,
            )
            .await;
        Ok(codes.into_iter().map(|code| code.code()).collect())
    }
}
