//! From a frame to the handler of its API, and to the bytes of the answer.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, RequestKind, ResponseKind,
};
use tidegate_kafka_wire::EncodeError;
use tidegate_kafka_wire::api::{AdvertiseError, Advertised, is_valid_client_software};
use tidegate_kafka_wire::bounds::DecodeLimits;
use tidegate_kafka_wire::produce::ProduceRequest;
use tidegate_kafka_wire::request::{
    Request, RequestBody, RequestError, RequestHeader, UndecodedRequest,
};
use tidegate_kafka_wire::response::{encode_message, encode_response};
use tracing::{debug, error, info};

use super::connection::{Answer, ClientInfo};
use crate::broker::Broker;
use crate::error_code::ErrorCode;
use crate::handlers::{
    cluster, configs, fetch, groups, metadata, offsets, produce, producer_id, reassignment, topics,
};
use crate::metrics::BrokerMetrics;

/// Every API this broker answers.
const SERVED: &[ApiKey] = &[
    ApiKey::Produce,
    ApiKey::Fetch,
    ApiKey::ListOffsets,
    ApiKey::Metadata,
    ApiKey::OffsetCommit,
    ApiKey::OffsetFetch,
    ApiKey::FindCoordinator,
    ApiKey::JoinGroup,
    ApiKey::Heartbeat,
    ApiKey::LeaveGroup,
    ApiKey::SyncGroup,
    ApiKey::DescribeGroups,
    ApiKey::ListGroups,
    ApiKey::ApiVersions,
    ApiKey::CreateTopics,
    ApiKey::DeleteTopics,
    ApiKey::DeleteRecords,
    ApiKey::InitProducerId,
    ApiKey::OffsetForLeaderEpoch,
    ApiKey::DescribeConfigs,
    ApiKey::AlterConfigs,
    ApiKey::DescribeLogDirs,
    ApiKey::CreatePartitions,
    ApiKey::DeleteGroups,
    ApiKey::IncrementalAlterConfigs,
    ApiKey::OffsetDelete,
    ApiKey::DescribeCluster,
    ApiKey::ListConfigResources,
    ApiKey::DescribeTopicPartitions,
    ApiKey::ElectLeaders,
    ApiKey::AlterPartitionReassignments,
    ApiKey::ListPartitionReassignments,
];

/// What ApiVersions lists, and what is accepted.
fn advertised() -> Result<Advertised, AdvertiseError> {
    Advertised::new(SERVED.iter().copied())
}

/// What becomes of a request.
pub(super) enum Handled {
    Answer(Vec<Bytes>),
    Later(Answer),
    NoAnswer,
    /// It can't be answered in a way that the client understands, or mustn't be.
    Close,
}

/// Hands requests to their handlers.
pub(crate) struct Dispatcher {
    broker: Arc<Broker>,
    advertised: Advertised,
    limits: DecodeLimits,
}

impl Dispatcher {
    pub(crate) fn new(broker: Arc<Broker>, limits: DecodeLimits) -> Result<Self, AdvertiseError> {
        Ok(Self {
            broker,
            advertised: advertised()?,
            limits,
        })
    }

    pub(super) fn metrics(&self) -> &BrokerMetrics {
        &self.broker.metrics
    }

    /// Handles one frame.
    pub(super) async fn handle(&self, frame: BytesMut, client: &mut ClientInfo) -> Handled {
        let request =
            UndecodedRequest::new(frame, &self.advertised).and_then(|r| r.decode(&self.limits));
        let request = match request {
            Ok(request) => request,
            Err(error) => return self.unusable(error, client),
        };
        if client.id.as_deref() != request.header.client_id.as_ref().map(|id| id.as_str()) {
            client.id = request
                .header
                .client_id
                .as_ref()
                .map(|id| id.as_str().into());
        }
        let Request { header, body } = request;
        let api_key = header.api_key;
        let started = self.broker.clock.now();
        let handled = match body {
            RequestBody::Produce(request) => self.produce(&header, request).await,
            RequestBody::Fetch(request) => {
                let response = fetch::fetch(&self.broker, request, header.version).await;
                self.encoded(
                    &header,
                    response.encode(header.version, header.correlation_id),
                )
            }
            RequestBody::Other(kind) => match self.other(&header, *kind, client).await {
                Some(response) => {
                    let encoded =
                        encode_response(api_key, header.version, header.correlation_id, &response);
                    self.encoded(&header, encoded.map(|bytes| vec![bytes]))
                }
                None => Handled::Close,
            },
        };
        self.broker.metrics.handled(
            api_key,
            self.broker.clock.now().saturating_duration_since(started),
        );
        handled
    }

    fn encoded(&self, header: &RequestHeader, encoded: Result<Vec<Bytes>, EncodeError>) -> Handled {
        match encoded {
            Ok(pieces) => Handled::Answer(pieces),
            Err(error) => {
                error!(api = ?header.api_key, version = header.version, error = &error as &dyn std::error::Error, "answer can't be encoded");
                Handled::Close
            }
        }
    }

    async fn produce(&self, header: &RequestHeader, request: ProduceRequest) -> Handled {
        let silent = request.acks == 0;
        let pending = produce::append(&self.broker, request, header.version).await;
        if silent {
            return if pending.any_refused() {
                Handled::Close
            } else {
                Handled::NoAnswer
            };
        }
        let (version, correlation_id, broker) =
            (header.version, header.correlation_id, self.broker.clone());
        let started = broker.clock.now();
        Handled::Later(Box::pin(async move {
            let response = pending.finish(&broker).await;
            broker
                .metrics
                .acknowledged(broker.clock.now().saturating_duration_since(started));
            match response.encode(version, correlation_id) {
                Ok(bytes) => Some(vec![bytes]),
                Err(error) => {
                    error!(
                        error = &error as &dyn std::error::Error,
                        "produce answer can't be encoded"
                    );
                    None
                }
            }
        }))
    }

    /// `None` if the connection is to be closed.
    async fn other(
        &self,
        header: &RequestHeader,
        request: RequestKind,
        client: &ClientInfo,
    ) -> Option<ResponseKind> {
        let (broker, version) = (&*self.broker, header.version);
        Some(match request {
            RequestKind::ApiVersions(r) => {
                ResponseKind::ApiVersions(self.api_versions(&r, version))
            }
            RequestKind::Metadata(r) => {
                ResponseKind::Metadata(metadata::metadata(broker, r, version).await)
            }
            RequestKind::AlterPartitionReassignments(r) => {
                ResponseKind::AlterPartitionReassignments(
                    reassignment::alter(broker, r, version).await,
                )
            }
            RequestKind::ListPartitionReassignments(r) => {
                ResponseKind::ListPartitionReassignments(reassignment::list(broker, r).await)
            }
            RequestKind::ElectLeaders(r) => {
                ResponseKind::ElectLeaders(reassignment::elect(broker, r, version).await)
            }
            RequestKind::DescribeTopicPartitions(r) => ResponseKind::DescribeTopicPartitions(
                metadata::describe_topic_partitions(broker, r),
            ),
            RequestKind::ListOffsets(r) => {
                ResponseKind::ListOffsets(offsets::list_offsets(broker, r, version).await)
            }
            RequestKind::OffsetForLeaderEpoch(r) => ResponseKind::OffsetForLeaderEpoch(
                offsets::offset_for_leader_epoch(broker, r).await,
            ),
            RequestKind::DeleteRecords(r) => {
                ResponseKind::DeleteRecords(offsets::delete_records(broker, r).await)
            }
            RequestKind::InitProducerId(r) => {
                ResponseKind::InitProducerId(producer_id::init_producer_id(broker, r).await)
            }
            RequestKind::CreateTopics(r) => {
                ResponseKind::CreateTopics(topics::create_topics(broker, r).await)
            }
            RequestKind::DeleteTopics(r) => {
                ResponseKind::DeleteTopics(topics::delete_topics(broker, r, version).await)
            }
            RequestKind::CreatePartitions(r) => {
                ResponseKind::CreatePartitions(topics::create_partitions(broker, r).await)
            }
            RequestKind::DescribeConfigs(r) => {
                ResponseKind::DescribeConfigs(configs::describe_configs(broker, r))
            }
            RequestKind::AlterConfigs(r) => {
                ResponseKind::AlterConfigs(configs::alter_configs(broker, r).await)
            }
            RequestKind::IncrementalAlterConfigs(r) => ResponseKind::IncrementalAlterConfigs(
                configs::incremental_alter_configs(broker, r).await,
            ),
            RequestKind::ListConfigResources(r) => ResponseKind::ListConfigResources(
                configs::list_config_resources(broker, r, version),
            ),
            RequestKind::DescribeCluster(r) => {
                ResponseKind::DescribeCluster(cluster::describe_cluster(broker, r, version))
            }
            RequestKind::DescribeLogDirs(r) => {
                ResponseKind::DescribeLogDirs(cluster::describe_log_dirs(broker, r))
            }
            other => return groups::handle(broker, header, other, client.peer).await,
        })
    }

    fn api_versions(&self, request: &ApiVersionsRequest, version: i16) -> ApiVersionsResponse {
        let software = [
            request.client_software_name.as_str(),
            request.client_software_version.as_str(),
        ];
        if version >= 3 && !software.into_iter().all(is_valid_client_software) {
            return ApiVersionsResponse::default()
                .with_error_code(ErrorCode::InvalidRequest.code());
        }
        ApiVersionsResponse::default().with_api_keys(self.advertised.response_rows())
    }

    /// Answers what can be answered of a request that can't be used, or closes the connection with a line in the
    /// log that names the client, the key and the version.
    fn unusable(&self, error: RequestError, client: &ClientInfo) -> Handled {
        self.broker.metrics.requests_refused.inc();
        let peer = client.peer;
        match error {
            RequestError::ApiVersionsUnsupported { header } => {
                debug!(peer = %peer, version = header.version, "ApiVersions answered in version 0");
                let response = ApiVersionsResponse::default()
                    .with_error_code(ErrorCode::UnsupportedVersion.code())
                    .with_api_keys(self.advertised.response_rows());
                match encode_message(0, header.correlation_id, &response) {
                    Ok(bytes) => Handled::Answer(vec![bytes]),
                    Err(error) => {
                        error!(
                            error = &error as &dyn std::error::Error,
                            "ApiVersions answer can't be encoded"
                        );
                        Handled::Close
                    }
                }
            }
            RequestError::UnknownApi { header } => {
                let client_id = header.client_id.as_ref().map_or("", |id| id.as_str());
                info!(peer = %peer, client_id, api_key = header.api_key, version = header.version, "connection closed: unknown api key");
                Handled::Close
            }
            RequestError::UnsupportedVersion { header, supported } => {
                let client_id = header.client_id.as_ref().map_or("", |id| id.as_str());
                info!(peer = %peer, client_id, api = ?header.api_key, version = header.version, supported = %supported, "connection closed: unsupported version");
                Handled::Close
            }
            RequestError::Malformed { header, cause } => {
                let client_id = header.client_id.as_ref().map_or("", |id| id.as_str());
                info!(peer = %peer, client_id, api = ?header.api_key, version = header.version, error = &cause as &dyn std::error::Error, "connection closed: malformed request");
                Handled::Close
            }
            RequestError::Header { cause } => {
                info!(peer = %peer, error = &cause as &dyn std::error::Error, "connection closed: unreadable request header");
                Handled::Close
            }
        }
    }
}

#[cfg(test)]
mod tests;
