//! EndTxn. From version 5 on each end raises the producer's epoch, and the answer carries the new one (KIP-890).

use kafka_protocol::messages::{EndTxnRequest, EndTxnResponse, ProducerId as WireProducerId};
use tidegate_coordinator::transactions::{
    EndRequest, EndedTransaction, TransactionError, TransactionReply, TransactionVersion,
    TransactionalId,
};

use super::{ask, code_for, init, mixed_up, producer};
use crate::broker::Broker;
use crate::error_code::ErrorCode;

/// The first version whose answer carries the next epoch.
const RAISES_EPOCH: i16 = 5;

pub(super) async fn end(broker: &Broker, request: EndTxnRequest, version: i16) -> EndTxnResponse {
    answer(ended(broker, request, version).await, version)
}

pub(super) fn answer(ended: Result<EndedTransaction, ErrorCode>, version: i16) -> EndTxnResponse {
    let none = EndTxnResponse::default()
        .with_producer_id(WireProducerId(-1))
        .with_producer_epoch(-1);
    match ended {
        Ok(ended) if version >= RAISES_EPOCH => none
            .with_producer_id(WireProducerId(ended.producer.id.to_wire()))
            .with_producer_epoch(ended.producer.epoch.to_wire()),
        Ok(_) => none,
        Err(code) => none.with_error_code(code.code()),
    }
}

async fn ended(
    broker: &Broker,
    request: EndTxnRequest,
    version: i16,
) -> Result<EndedTransaction, ErrorCode> {
    let code = |error: TransactionError| code_for(&error, version, 2);
    let id = TransactionalId::new(request.transactional_id.0.as_str()).map_err(code)?;
    let mut request = EndRequest {
        transactional_id: id.clone(),
        producer: producer(request.producer_id.0, request.producer_epoch).map_err(code)?,
        commit: request.committed,
        version: if version >= RAISES_EPOCH {
            TransactionVersion::V2
        } else {
            TransactionVersion::V0
        },
        fresh: None,
    };
    loop {
        let asked = request.clone();
        let reply = ask(broker, &id, move |c, now, token| c.end(now, token, &asked)).await;
        match reply.map_err(code)? {
            TransactionReply::End(Err(TransactionError::ProducerIdNeeded))
                if request.fresh.is_none() =>
            {
                request.fresh = Some(init::fresh(broker).await?);
            }
            TransactionReply::End(result) => return result.map_err(code),
            other => return Err(code(mixed_up(&other))),
        }
    }
}
