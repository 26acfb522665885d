//! Whether the partitions that a transactional producer writes to are in its transaction (KIP-890). The leader of the
//! partitions asks the coordinator, wherever it is.

use std::time::Duration;

use tidegate_cluster::transactions::AddPartitions;
use tidegate_coordinator::TopicPartition;
use tidegate_coordinator::transactions::{
    AddPartitionsRequest, ProducerIdentity, TransactionError, TransactionReply, TransactionalId,
};
use tidegate_types::{ProducerEpoch, ProducerId};

use super::TransactionHost;
use crate::broker::Broker;
use crate::catalog::TRANSACTIONS_TOPIC;
use crate::coordinators::partition_of;
use crate::error_code::ErrorCode;

/// Pauses between tries while the id's last transaction is being ended, or the coordinator is moving. Together half a
/// second: then the producer is asked to come again.
const PAUSES_MS: [u64; 9] = [2, 5, 10, 20, 40, 80, 100, 120, 140];

impl TransactionHost {
    /// Has partitions added to the producer's transaction, or only looks whether they are in it. One code per
    /// partition, in their order.
    pub(crate) async fn verify_or_add(
        &self,
        broker: &Broker,
        transactional_id: &str,
        producer: ProducerId,
        epoch: ProducerEpoch,
        partitions: &[TopicPartition],
        add: bool,
    ) -> Vec<ErrorCode> {
        let mut codes = self
            .ask(broker, transactional_id, producer, epoch, partitions, add)
            .await;
        for pause in PAUSES_MS {
            if !codes.iter().any(|code| passes(*code)) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(pause)).await;
            codes = self
                .ask(broker, transactional_id, producer, epoch, partitions, add)
                .await;
        }
        codes
    }

    /// Asks the coordinator once.
    async fn ask(
        &self,
        broker: &Broker,
        transactional_id: &str,
        producer: ProducerId,
        epoch: ProducerEpoch,
        partitions: &[TopicPartition],
        add: bool,
    ) -> Vec<ErrorCode> {
        let everywhere = |code| vec![code; partitions.len()];
        let catalog = broker.catalog.load_full();
        let leader = catalog.image.topic(TRANSACTIONS_TOPIC).and_then(|topic| {
            let partition = partition_of(topic, transactional_id)?;
            topic.partition(partition.index)?.leader
        });
        let Some(leader) = leader else {
            return everywhere(ErrorCode::CoordinatorNotAvailable);
        };
        if leader == broker.id {
            return self
                .add_here(broker, transactional_id, producer, epoch, partitions, add)
                .await;
        }
        let endpoint = catalog
            .image
            .broker(leader)
            .and_then(|leader| leader.internal.clone());
        let Some(endpoint) = endpoint else {
            return everywhere(ErrorCode::CoordinatorNotAvailable);
        };
        let request = AddPartitions {
            transactional_id: transactional_id.to_owned(),
            producer,
            epoch,
            partitions: partitions
                .iter()
                .map(|p| (p.topic.clone(), p.partition))
                .collect(),
            verify_only: !add,
        };
        let peer = broker.handover.peers.transactions(leader, &endpoint);
        match peer.add_partitions(request).await {
            Ok(codes) if codes.len() == partitions.len() => codes
                .into_iter()
                .map(|code| ErrorCode::from_code(code).unwrap_or(ErrorCode::UnknownServerError))
                .collect(),
            Ok(_) => everywhere(ErrorCode::UnknownServerError),
            Err(error) => {
                tracing::debug!(%leader, error = &error as &dyn std::error::Error, "a transaction coordinator can't be asked");
                everywhere(ErrorCode::CoordinatorNotAvailable)
            }
        }
    }

    /// As its coordinator.
    pub(super) async fn add_here(
        &self,
        broker: &Broker,
        transactional_id: &str,
        producer: ProducerId,
        epoch: ProducerEpoch,
        partitions: &[TopicPartition],
        add: bool,
    ) -> Vec<ErrorCode> {
        let everywhere = |error: &TransactionError| {
            let code = match error {
                // Producers know this one; CONCURRENT_TRANSACTIONS they must be told as it is.
                TransactionError::ProducerFenced => ErrorCode::InvalidProducerEpoch,
                other => ErrorCode::from(other),
            };
            vec![code; partitions.len()]
        };
        let request = TransactionalId::new(transactional_id).map(|id| AddPartitionsRequest {
            transactional_id: id,
            producer: ProducerIdentity {
                id: producer,
                epoch,
            },
            partitions: partitions.to_vec(),
        });
        let request = match request {
            Ok(request) => request,
            Err(error) => return everywhere(&error),
        };
        if add {
            // The leader knows a topic that this broker hasn't heard of yet; its markers must find it.
            let catalog = broker.catalog.load_full();
            let known = |p: &TopicPartition| {
                let topic = catalog.image.topic(p.topic.as_str());
                topic.is_some_and(|topic| topic.partition(p.partition).is_some())
            };
            if !partitions.iter().all(known) {
                return vec![ErrorCode::CoordinatorNotAvailable; partitions.len()];
            }
        }
        match self.answer(broker, request, add).await {
            Ok(results) => results
                .iter()
                .map(|result| match result {
                    Ok(()) => ErrorCode::None,
                    Err(error) => ErrorCode::from(error),
                })
                .collect(),
            Err(error) => everywhere(&error),
        }
    }

    async fn answer(
        &self,
        broker: &Broker,
        request: AddPartitionsRequest,
        add: bool,
    ) -> Result<Vec<Result<(), TransactionError>>, TransactionError> {
        let id = request.transactional_id.as_str();
        let coordinator = self.coordinator(broker, id).await?;
        if !add {
            let verified = coordinator.immediate(move |c, _| c.verify_partitions(&request));
            return verified.await.ok_or(TransactionError::NotCoordinator)?;
        }
        let count = request.partitions.len();
        let added =
            coordinator.answered(move |c, now, token| c.add_partitions(now, token, request));
        match added.await {
            Some(TransactionReply::Add(result)) => result.map(|()| vec![Ok(()); count]),
            Some(_) => Err(TransactionError::UnknownServerError),
            None => Err(TransactionError::NotCoordinator),
        }
    }
}

/// What passes by itself.
fn passes(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::ConcurrentTransactions
            | ErrorCode::NotCoordinator
            | ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::CoordinatorNotAvailable
    )
}
