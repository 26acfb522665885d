//! Transactions: what producers and admin tools ask of transaction coordinators.

mod add;
mod admin;
mod end;
mod init;
#[cfg(test)]
mod tests;

use kafka_protocol::messages::{RequestKind, ResponseKind};
use tidegate_coordinator::transactions::{
    ProducerIdentity, TransactionCoordinator, TransactionEffect, TransactionError,
    TransactionReply, TransactionalId,
};
use tidegate_coordinator::{Now, ReplyToken};
use tidegate_types::{ProducerEpoch, ProducerId};

use crate::broker::Broker;
use crate::error_code::ErrorCode;

/// `None` if the request isn't about transactions.
pub(crate) async fn handle(
    broker: &Broker,
    request: RequestKind,
    version: i16,
) -> Option<ResponseKind> {
    Some(match request {
        RequestKind::InitProducerId(r) => {
            ResponseKind::InitProducerId(init::init_producer_id(broker, r, version).await)
        }
        RequestKind::AddPartitionsToTxn(r) => {
            ResponseKind::AddPartitionsToTxn(add::add_partitions(broker, r, version).await)
        }
        RequestKind::AddOffsetsToTxn(r) => {
            ResponseKind::AddOffsetsToTxn(add::add_offsets(broker, r, version).await)
        }
        RequestKind::EndTxn(r) => ResponseKind::EndTxn(end::end(broker, r, version).await),
        RequestKind::DescribeTransactions(r) => {
            ResponseKind::DescribeTransactions(admin::describe(broker, r).await)
        }
        RequestKind::ListTransactions(r) => {
            ResponseKind::ListTransactions(admin::list(broker, r).await)
        }
        _ => return None,
    })
}

/// Hands a request to the coordinator of the id and waits for its reply.
async fn ask<F>(
    broker: &Broker,
    id: &TransactionalId,
    act: F,
) -> Result<TransactionReply, TransactionError>
where
    F: FnOnce(&mut TransactionCoordinator, Now, ReplyToken) -> Vec<TransactionEffect>
        + Send
        + 'static,
{
    let coordinator = broker.transactions.coordinator(broker, id.as_str()).await?;
    coordinator
        .answered(act)
        .await
        .ok_or(TransactionError::NotCoordinator)
}

/// The coordinator answered another request than was asked.
fn mixed_up(reply: &TransactionReply) -> TransactionError {
    tracing::error!(
        ?reply,
        "a transaction coordinator gave a reply of another kind"
    );
    TransactionError::UnknownServerError
}

/// The producer that a request names. What no producer can be called isn't the id's.
fn producer(id: i64, epoch: i16) -> Result<ProducerIdentity, TransactionError> {
    let id = ProducerId::from_wire(id).ok_or(TransactionError::InvalidProducerIdMapping)?;
    let epoch = ProducerEpoch::from_wire(epoch).ok_or(TransactionError::ProducerFenced)?;
    Ok(ProducerIdentity { id, epoch })
}

/// PRODUCER_FENCED is unknown to clients before these versions.
fn code_for(error: &TransactionError, version: i16, first_with_fenced: i16) -> ErrorCode {
    match error {
        TransactionError::ProducerFenced if version < first_with_fenced => {
            ErrorCode::InvalidProducerEpoch
        }
        other => ErrorCode::from(other),
    }
}
