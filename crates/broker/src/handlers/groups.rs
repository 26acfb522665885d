use kafka_protocol::messages::{RequestKind, ResponseKind};
pub(crate) async fn handle(
    _: &crate::broker::Broker,
    _: &tidegate_kafka_wire::request::RequestHeader,
    _: RequestKind,
    _: std::net::SocketAddr,
) -> Option<ResponseKind> {
    None
}
