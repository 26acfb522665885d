//! InitProducerId for idempotent producers (KIP-98). Transactional producers need a transaction coordinator.

use kafka_protocol::messages::{
    InitProducerIdRequest, InitProducerIdResponse, ProducerId as WireProducerId,
};

use crate::broker::Broker;
use crate::error_code::ErrorCode;

pub(crate) async fn init_producer_id(
    broker: &Broker,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    let refused = |code: ErrorCode| {
        InitProducerIdResponse::default()
            .with_error_code(code.code())
            .with_producer_id(WireProducerId(-1))
            .with_producer_epoch(-1)
    };
    if request.transactional_id.is_some() {
        return refused(ErrorCode::UnsupportedVersion);
    }
    match broker.producer_ids.next().await {
        Ok(id) => InitProducerIdResponse::default()
            .with_producer_id(WireProducerId(id.to_wire()))
            .with_producer_epoch(0),
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "no producer id can be given out"
            );
            refused(ErrorCode::from(&error))
        }
    }
}
