//! From a frame to the handler of its API, and to the bytes of the answer.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, RequestKind, ResponseKind,
};
use prometheus_client::metrics::gauge::Gauge;
use tidegate_kafka_wire::EncodeError;
use tidegate_kafka_wire::api::{AdvertiseError, Advertised, is_valid_client_software};
use tidegate_kafka_wire::bounds::DecodeLimits;
use tidegate_kafka_wire::fetch::FetchResponse;
use tidegate_kafka_wire::request::{
    Request, RequestBody, RequestError, RequestHeader, UndecodedRequest,
};
use tidegate_kafka_wire::response::{encode_message, encode_response};
use tidegate_runtime::SharedClock;
use tracing::{debug, error, info};

use super::connection::{Answer, ClientInfo};
use super::throttle::throttle_time;
use crate::broker::Broker;
use crate::error_code::ErrorCode;
use crate::features::add_features;
use crate::handlers::produce::PendingProduce;
use crate::handlers::{
    cluster, configs, features, fetch, groups, metadata, offsets, produce, producers, quotas,
    reassignment, topics, transactions, unregister,
};
use crate::metrics::BrokerMetrics;
use crate::quotas::{QuotaKind, QuotaTable, Quoted, measured, wire_ms};

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
    ApiKey::AddPartitionsToTxn,
    ApiKey::AddOffsetsToTxn,
    ApiKey::EndTxn,
    ApiKey::DescribeTransactions,
    ApiKey::ListTransactions,
    ApiKey::OffsetForLeaderEpoch,
    ApiKey::WriteTxnMarkers,
    ApiKey::TxnOffsetCommit,
    ApiKey::DescribeConfigs,
    ApiKey::AlterConfigs,
    ApiKey::DescribeLogDirs,
    ApiKey::CreatePartitions,
    ApiKey::DeleteGroups,
    ApiKey::IncrementalAlterConfigs,
    ApiKey::OffsetDelete,
    ApiKey::DescribeClientQuotas,
    ApiKey::AlterClientQuotas,
    ApiKey::DescribeUserScramCredentials,
    ApiKey::UpdateFeatures,
    ApiKey::UnregisterBroker,
    ApiKey::DescribeCluster,
    ApiKey::DescribeProducers,
    ApiKey::ListConfigResources,
    ApiKey::DescribeTopicPartitions,
    ApiKey::ElectLeaders,
    ApiKey::AlterPartitionReassignments,
    ApiKey::ListPartitionReassignments,
    ApiKey::ConsumerGroupHeartbeat,
    ApiKey::ConsumerGroupDescribe,
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

/// What a handler made of a request.
enum Worked {
    /// It waits to be durable.
    Appended {
        pending: PendingProduce,
        silent: bool,
    },
    Fetched(FetchResponse),
    /// `None`: it can't be answered.
    Other(Option<ResponseKind>),
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

    pub(super) fn clock(&self) -> &SharedClock {
        &self.broker.clock
    }

    /// Connections of clients that are over a quota.
    pub(super) fn muted(&self) -> &Gauge {
        &self.broker.quotas.metrics().muted
    }

    /// Counts a new connection; answers for how long to hold it before it is closed, if it is one too many.
    pub(super) fn connected(&self, address: IpAddr) -> Duration {
        let catalog = self.broker.catalog.load();
        self.broker.quotas.connected(catalog.quotas(), address)
    }

    /// Handles one frame.
    pub(super) async fn handle(&self, frame: BytesMut, client: &mut ClientInfo) -> Handled {
        let frame_bytes = frame.len();
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
        let limits = self.broker.catalog.load().quotas().clone();
        let metered = limits.limits(QuotaKind::Request);
        let work = self.work(&header, body, client, &limits);
        let (worked, busy) = measured(&self.broker.clock, metered, work).await;
        let handled = self.answer(&header, worked, client, &limits, (frame_bytes, busy));
        self.broker.metrics.handled(
            api_key,
            self.broker.clock.now().saturating_duration_since(started),
        );
        handled
    }

    async fn work(
        &self,
        header: &RequestHeader,
        body: RequestBody,
        client: &ClientInfo,
        limits: &QuotaTable,
    ) -> Worked {
        let (broker, version) = (&*self.broker, header.version);
        let quota = Quoted {
            table: limits,
            asker: client.asker(),
        };
        match body {
            RequestBody::Produce(request) => {
                let silent = request.acks == 0;
                let pending = produce::append(broker, request, version).await;
                Worked::Appended { pending, silent }
            }
            RequestBody::Fetch(request) => {
                Worked::Fetched(fetch::fetch(broker, request, version, quota).await)
            }
            RequestBody::Other(kind) => {
                // All handlers together are too large to lie in each connection's task.
                Worked::Other(Box::pin(self.other(header, *kind, client, quota)).await)
            }
        }
    }

    /// Makes the answer, and mutes the client if it is over a quota.
    fn answer(
        &self,
        header: &RequestHeader,
        worked: Worked,
        client: &mut ClientInfo,
        table: &QuotaTable,
        (frame_bytes, busy): (usize, Duration),
    ) -> Handled {
        let (quotas, version) = (&self.broker.quotas, header.version);
        let asker = client.asker();
        let quota = Quoted { table, asker };
        let (handled, throttle) = match worked {
            Worked::Appended { pending, silent } => {
                let mut throttle = quotas.produced(quota, frame_bytes);
                if !silent {
                    throttle = throttle.max(quotas.ran(quota, busy));
                }
                (self.appended(header, pending, silent, throttle), throttle)
            }
            Worked::Fetched(mut response) => {
                let throttle = over(quotas.ran(quota, busy), &mut response.throttle_ms);
                let encoded = response.encode(version, header.correlation_id);
                (self.encoded(header, encoded), throttle)
            }
            Worked::Other(None) => return Handled::Close,
            Worked::Other(Some(mut response)) => {
                let mut throttle = quotas.ran(quota, busy);
                if let Some(field) = throttle_time(&mut response) {
                    throttle = over(throttle, field);
                }
                let encoded =
                    encode_response(header.api_key, version, header.correlation_id, &response);
                let encoded = encoded.map(|bytes| vec![bytes]);
                (self.encoded(header, encoded), throttle)
            }
        };
        if !throttle.is_zero() {
            client.muted_until = Some(self.broker.clock.now() + throttle);
        }
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

    fn appended(
        &self,
        header: &RequestHeader,
        pending: PendingProduce,
        silent: bool,
        throttle: Duration,
    ) -> Handled {
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
            let mut response = pending.finish(&broker).await;
            response.throttle_ms = wire_ms(throttle);
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
        quota: Quoted<'_>,
    ) -> Option<ResponseKind> {
        let (broker, version) = (&*self.broker, header.version);
        // Older clients don't know the error (KIP-599).
        let mutations = |strict_since| broker.quotas.mutations(quota, version >= strict_since);
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
            r @ (RequestKind::InitProducerId(_)
            | RequestKind::AddPartitionsToTxn(_)
            | RequestKind::AddOffsetsToTxn(_)
            | RequestKind::EndTxn(_)
            | RequestKind::DescribeTransactions(_)
            | RequestKind::ListTransactions(_)) => {
                return transactions::handle(broker, r, version).await;
            }
            RequestKind::DescribeProducers(r) => {
                ResponseKind::DescribeProducers(producers::describe_producers(broker, r).await)
            }
            RequestKind::WriteTxnMarkers(r) => {
                ResponseKind::WriteTxnMarkers(producers::write_txn_markers(broker, r).await)
            }
            RequestKind::CreateTopics(r) => {
                ResponseKind::CreateTopics(topics::create_topics(broker, r, mutations(6)).await)
            }
            RequestKind::DeleteTopics(r) => ResponseKind::DeleteTopics(
                topics::delete_topics(broker, r, version, mutations(5)).await,
            ),
            RequestKind::CreatePartitions(r) => ResponseKind::CreatePartitions(
                topics::create_partitions(broker, r, mutations(3)).await,
            ),
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
            RequestKind::DescribeClientQuotas(r) => {
                ResponseKind::DescribeClientQuotas(quotas::describe_client_quotas(broker, r))
            }
            RequestKind::AlterClientQuotas(r) => {
                ResponseKind::AlterClientQuotas(quotas::alter_client_quotas(broker, r).await)
            }
            RequestKind::DescribeUserScramCredentials(r) => {
                ResponseKind::DescribeUserScramCredentials(quotas::describe_user_scram_credentials(
                    r,
                ))
            }
            RequestKind::UpdateFeatures(r) => {
                ResponseKind::UpdateFeatures(features::update_features(r, version))
            }
            RequestKind::UnregisterBroker(r) => {
                ResponseKind::UnregisterBroker(unregister::unregister_broker(broker, r).await)
            }
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
        let answer = ApiVersionsResponse::default().with_api_keys(self.advertised.response_rows());
        add_features(answer, version)
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

/// The longer one of two times to hold a client back: one, and the one that is in the answer, where it belongs.
fn over(throttle: Duration, field: &mut i32) -> Duration {
    let told = Duration::from_millis(u64::try_from(*field).unwrap_or(0));
    let throttle = throttle.max(told);
    *field = wire_ms(throttle);
    throttle
}

#[cfg(test)]
mod tests;
