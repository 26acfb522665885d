//! InitProducerId: a number for an idempotent producer, or a transactional id for one that has it until the next asks
//! (KIP-98, KIP-360).

use kafka_protocol::messages::{
    InitProducerIdRequest, InitProducerIdResponse, ProducerId as WireProducerId,
};
use tidegate_coordinator::transactions::{
    InitRequest, ProducerIdentity, TransactionError, TransactionReply, TransactionalId,
};
use tidegate_types::{ProducerEpoch, ProducerId};

use super::{ask, code_for, mixed_up};
use crate::broker::Broker;
use crate::error_code::ErrorCode;

pub(super) async fn init_producer_id(
    broker: &Broker,
    request: InitProducerIdRequest,
    version: i16,
) -> InitProducerIdResponse {
    match given(broker, request, version).await {
        Ok(producer) => InitProducerIdResponse::default()
            .with_producer_id(WireProducerId(producer.id.to_wire()))
            .with_producer_epoch(producer.epoch.to_wire()),
        Err(code) => InitProducerIdResponse::default()
            .with_error_code(code.code())
            .with_producer_id(WireProducerId(-1))
            .with_producer_epoch(-1),
    }
}

async fn given(
    broker: &Broker,
    request: InitProducerIdRequest,
    version: i16,
) -> Result<ProducerIdentity, ErrorCode> {
    let Some(id) = request.transactional_id else {
        return Ok(ProducerIdentity {
            id: fresh(broker).await?,
            epoch: ProducerEpoch::FIRST,
        });
    };
    let expected = expected(request.producer_id.0, request.producer_epoch)?;
    let code = |error: TransactionError| code_for(&error, version, 4);
    let id = TransactionalId::new(id.0.as_str()).map_err(code)?;
    let mut request = InitRequest {
        transactional_id: id.clone(),
        timeout_ms: request.transaction_timeout_ms,
        expected,
        fresh: None,
    };
    loop {
        let asked = request.clone();
        let reply = ask(broker, &id, move |c, now, token| c.init(now, token, &asked)).await;
        match reply.map_err(code)? {
            TransactionReply::Init(Err(TransactionError::ProducerIdNeeded))
                if request.fresh.is_none() =>
            {
                request.fresh = Some(fresh(broker).await?);
            }
            TransactionReply::Init(result) => return result.map_err(code),
            other => return Err(code(mixed_up(&other))),
        }
    }
}

/// A producer id that nobody has.
pub(super) async fn fresh(broker: &Broker) -> Result<ProducerId, ErrorCode> {
    broker.producer_ids.next().await.map_err(|error| {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "no producer id can be given out"
        );
        ErrorCode::from(&error)
    })
}

/// What the producer says that it had before: both or nothing.
fn expected(id: i64, epoch: i16) -> Result<Option<ProducerIdentity>, ErrorCode> {
    match (ProducerId::from_wire(id), ProducerEpoch::from_wire(epoch)) {
        (None, None) => Ok(None),
        (Some(id), Some(epoch)) => Ok(Some(ProducerIdentity { id, epoch })),
        (Some(_), None) | (None, Some(_)) => Err(ErrorCode::InvalidRequest),
    }
}
