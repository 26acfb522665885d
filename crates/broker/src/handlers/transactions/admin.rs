//! DescribeTransactions and ListTransactions (KIP-664).

use std::collections::BTreeMap;

use kafka_protocol::messages::describe_transactions_response::{
    TopicData, TransactionState as DescribedState,
};
use kafka_protocol::messages::list_transactions_response::TransactionState as ListedState;
use kafka_protocol::messages::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, ListTransactionsRequest,
    ListTransactionsResponse, ProducerId as WireProducerId, TopicName as WireTopicName,
    TransactionalId as WireTransactionalId,
};
use tidegate_coordinator::transactions::{
    DescribedTransaction, TransactionError, TransactionFilter, TransactionState, TransactionalId,
};
use tidegate_coordinator::{Expression, InvalidExpression};
use tidegate_types::ProducerId;

use crate::broker::Broker;
use crate::error_code::ErrorCode;
use crate::handlers::text;

pub(super) async fn describe(
    broker: &Broker,
    request: DescribeTransactionsRequest,
) -> DescribeTransactionsResponse {
    let mut states = Vec::with_capacity(request.transactional_ids.len());
    for id in request.transactional_ids {
        let described = described(broker, id.0.as_str()).await;
        states.push(state_of(id, described));
    }
    DescribeTransactionsResponse::default().with_transaction_states(states)
}

async fn described(broker: &Broker, id: &str) -> Result<DescribedTransaction, TransactionError> {
    let id = TransactionalId::new(id)?;
    let coordinator = broker.transactions.coordinator(broker, id.as_str()).await?;
    coordinator
        .immediate(move |c, _| c.describe(&id))
        .await
        .ok_or(TransactionError::NotCoordinator)?
}

pub(super) fn state_of(
    id: WireTransactionalId,
    described: Result<DescribedTransaction, TransactionError>,
) -> DescribedState {
    let state = DescribedState::default().with_transactional_id(id);
    let described = match described {
        Ok(described) => described,
        Err(error) => return state.with_error_code(ErrorCode::from(&error).code()),
    };
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for partition in &described.partitions {
        let indexes = topics.entry(partition.topic.as_str()).or_default();
        indexes.push(partition.partition.to_wire());
    }
    let topics = topics.into_iter().map(|(name, indexes)| {
        TopicData::default()
            .with_topic(WireTopicName(text(name)))
            .with_partitions(indexes)
    });
    state
        .with_transaction_state(text(described.state.as_str()))
        .with_transaction_timeout_ms(described.timeout_ms)
        .with_transaction_start_time_ms(described.started_at.get())
        .with_producer_id(WireProducerId(described.producer.id.to_wire()))
        .with_producer_epoch(described.producer.epoch.to_wire())
        .with_topics(topics.collect())
}

/// All transactional ids that this broker coordinates.
pub(super) async fn list(
    broker: &Broker,
    request: ListTransactionsRequest,
) -> ListTransactionsResponse {
    let pattern = request.transactional_id_pattern.as_deref();
    let name = match pattern.filter(|pattern| !pattern.is_empty()) {
        None => None,
        Some(pattern) => match Expression::parse(pattern) {
            Ok(name) => Some(name),
            Err(InvalidExpression) => {
                return ListTransactionsResponse::default()
                    .with_error_code(ErrorCode::InvalidRegularExpression.code());
            }
        },
    };
    let mut unknown = Vec::new();
    let mut states = Vec::new();
    for name in request.state_filters {
        match TransactionState::from_name(name.as_str()) {
            Some(state) => states.push(state),
            // States of Kafka's that no id is ever seen in here.
            None if matches!(name.as_str(), "Dead" | "PrepareEpochFence") => {}
            None => unknown.push(name),
        }
    }
    let asked = !states.is_empty() || !unknown.is_empty();
    let producers: Vec<ProducerId> = request
        .producer_id_filters
        .iter()
        .filter_map(|id| ProducerId::from_wire(id.0))
        .collect();
    let response = ListTransactionsResponse::default().with_unknown_state_filters(unknown);
    if (asked && states.is_empty())
        || (producers.is_empty() && !request.producer_id_filters.is_empty())
    {
        return response;
    }
    let filter = TransactionFilter {
        states,
        producers,
        longer_than_ms: request.duration_filter,
        name,
    };
    let mut transactions = Vec::new();
    for coordinator in broker.transactions.coordinators() {
        let filter = filter.clone();
        let listed = coordinator.immediate(move |c, now| c.list(now, &filter));
        match listed.await {
            Some(Ok(listed)) => transactions.extend(listed),
            // It moved away while we asked; another broker lists its ids.
            None | Some(Err(TransactionError::NotCoordinator)) => {}
            // Half a list would look like a whole one.
            Some(Err(error)) => {
                return ListTransactionsResponse::default()
                    .with_error_code(ErrorCode::from(&error).code());
            }
        }
    }
    let transactions = transactions.into_iter().map(|listed| {
        ListedState::default()
            .with_transactional_id(WireTransactionalId(text(listed.transactional_id.as_str())))
            .with_producer_id(WireProducerId(listed.producer.to_wire()))
            .with_transaction_state(text(listed.state.as_str()))
    });
    response.with_transaction_states(transactions.collect())
}
