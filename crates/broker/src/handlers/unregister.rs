//! UnregisterBroker: forgets a broker that is gone for good.

use kafka_protocol::messages::{UnregisterBrokerRequest, UnregisterBrokerResponse};
use tidegate_metadata::api::{UnregisterBroker, UnregisterBrokerError};
use tidegate_types::BrokerId;

use super::text;
use crate::broker::Broker;
use crate::error_code::ErrorCode;

/// Unlike Kafka, which fences a broker that lives, this is refused while the broker has a session, while partitions
/// need it, and while its WAL objects may hold records that nobody took in.
pub(crate) async fn unregister_broker(
    broker: &Broker,
    request: UnregisterBrokerRequest,
) -> UnregisterBrokerResponse {
    let answer = UnregisterBrokerResponse::default();
    let Ok(id) = BrokerId::from_wire(request.broker_id.0) else {
        return answer
            .with_error_code(ErrorCode::BrokerIdNotRegistered.code())
            .with_error_message(Some(text("a broker id isn't negative")));
    };
    let command = UnregisterBroker { broker: id };
    match broker.controller.unregister_broker(command).await {
        Ok(()) => answer.with_error_message(None),
        Err(error) => {
            let code = match &error {
                UnregisterBrokerError::UnknownBroker(_) => ErrorCode::BrokerIdNotRegistered,
                UnregisterBrokerError::Alive(_)
                | UnregisterBrokerError::Needed { .. }
                | UnregisterBrokerError::NotRecovered { .. } => ErrorCode::InvalidRequest,
                UnregisterBrokerError::Unavailable(unavailable) => ErrorCode::from(unavailable),
            };
            answer
                .with_error_code(code.code())
                .with_error_message(Some(text(error.to_string())))
        }
    }
}
