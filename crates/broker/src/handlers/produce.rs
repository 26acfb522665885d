//! Produce: validate at the edge, append in order, answer when durable.
//!
//! A request is handled in two steps. Appending happens while the connection's later requests wait, so that one
//! connection's batches keep their order; waiting for durability doesn't hold anybody up.

mod transactional;

use std::sync::Arc;
use std::time::Duration;

use tidegate_kafka_wire::produce::{
    ProducePartition, ProducePartitionResponse, ProduceRequest, ProduceResponse,
    ProduceTopicResponse, RecordError,
};
use tidegate_metadata::TopicImage;
use tidegate_partition_log::{AppendError, Appended, Durability, PartitionLog};
use tidegate_record_batch::{ProduceError, ProduceRules, ProducedBatch};
use tidegate_types::{TopicId, VerificationTicket};
use tokio::time::Instant;

use super::text;
use crate::broker::Broker;
use crate::catalog::{Catalog, is_internal};
use crate::error_code::ErrorCode;
use crate::handover::Patience;

/// From this version on clients understand zstd (KIP-110).
const FIRST_WITH_ZSTD: i16 = 7;
/// From this version on answers name the current leader (KIP-951).
const FIRST_WITH_LEADER: i16 = 10;
/// A compressed batch of a compacted topic is decompressed up to this size, to look for its keys.
const KEY_CHECK_BYTES: usize = 128 << 20;
/// How often a full WAL is asked again.
const FULL_RETRY: Duration = Duration::from_millis(5);

/// What became of one partition's batch before it is durable.
enum Outcome {
    Appended(Appended),
    Refused(Refusal),
}

/// Why a batch was refused, in the words of the wire.
struct Refusal {
    code: ErrorCode,
    message: String,
    /// The record at fault, if it is known.
    record: Option<u32>,
}

impl Refusal {
    fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            record: None,
        }
    }

    fn unknown_topic(code: ErrorCode) -> Self {
        Self::new(code, "this server does not host this topic-partition")
    }
}

/// A topic as the client named it, what it is, and what became of each partition's batch.
type PendingTopic = (
    tidegate_kafka_wire::TopicRef,
    Option<TopicId>,
    Vec<(i32, Outcome)>,
);

/// A produce request whose batches have their offsets.
pub(crate) struct PendingProduce {
    topics: Vec<PendingTopic>,
    version: i16,
    deadline: Instant,
}

/// Appends everything a request holds.
pub(crate) async fn append(
    broker: &Broker,
    request: ProduceRequest,
    version: i16,
) -> PendingProduce {
    let catalog = broker.catalog.load_full();
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let deadline = broker.clock.now() + timeout;
    let acks_valid = matches!(request.acks, -1..=1);
    if let Some(transactional_id) = request.transactional_id.clone().filter(|_| acks_valid) {
        let topics =
            transactional::append(broker, &catalog, &transactional_id, request, version).await;
        return PendingProduce {
            topics,
            version,
            deadline,
        };
    }
    let mut patience = Patience::default();
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let found = broker.topic(&catalog, (&topic.topic).into());
        let mut outcomes = Vec::with_capacity(topic.partitions.len());
        for partition in topic.partitions {
            let index = partition.index;
            let outcome = match &found {
                _ if !acks_valid => Err(Refusal::new(
                    ErrorCode::InvalidRequiredAcks,
                    "acks must be -1, 0 or 1",
                )),
                Err(code) => Err(Refusal::unknown_topic(*code)),
                Ok(found) => {
                    append_one(broker, &catalog, found, partition, version, &mut patience).await
                }
            };
            outcomes.push((
                index,
                outcome.map_or_else(Outcome::Refused, Outcome::Appended),
            ));
        }
        topics.push((topic.topic, found.ok().map(|t| t.id), outcomes));
    }
    PendingProduce {
        topics,
        version,
        deadline,
    }
}

async fn append_one(
    broker: &Broker,
    catalog: &Catalog,
    topic: &TopicImage,
    partition: ProducePartition,
    version: i16,
    patience: &mut Patience,
) -> Result<Appended, Refusal> {
    let (log, batch) = prepare(broker, catalog, topic, partition, version, patience).await?;
    if batch.header().is_transactional() {
        return Err(Refusal::new(
            ErrorCode::TransactionalIdAuthorizationFailed,
            "transactional records need a transactional id",
        ));
    }
    append_prepared(broker, &log, batch, None).await
}

/// Finds the log and checks the batch against its topic's rules.
async fn prepare(
    broker: &Broker,
    catalog: &Catalog,
    topic: &TopicImage,
    partition: ProducePartition,
    version: i16,
    patience: &mut Patience,
) -> Result<(Arc<PartitionLog>, ProducedBatch), Refusal> {
    if is_internal(topic.name.as_str()) {
        return Err(Refusal::new(
            ErrorCode::InvalidTopicException,
            "clients can't write to an internal topic",
        ));
    }
    let log = broker
        .log_for_append(topic, partition.index, patience)
        .await
        .map_err(|code| Refusal::new(code, "this broker doesn't lead the partition"))?;
    let settings = catalog.settings(topic);
    let records = partition.records.unwrap_or_default();
    let rules = ProduceRules {
        max_batch_bytes: settings.max_message_bytes,
        timestamp_type: settings.timestamp_type,
        before_max_ms: settings.timestamp_before_max_ms,
        after_max_ms: settings.timestamp_after_max_ms,
        now: broker.clock.wall(),
        keys_required: settings.cleanup.compact,
        zstd_allowed: version >= FIRST_WITH_ZSTD,
        max_uncompressed_bytes: KEY_CHECK_BYTES,
    };
    let batch = ProducedBatch::validate(records, &rules).map_err(|error| Refusal {
        code: ErrorCode::from(&error),
        message: error.to_string(),
        record: record_at_fault(&error),
    })?;
    Ok((log, batch))
}

/// Appends; while the WAL is full this waits a while for room, which keeps the connection from being read.
async fn append_prepared(
    broker: &Broker,
    log: &Arc<PartitionLog>,
    batch: ProducedBatch,
    ticket: Option<VerificationTicket>,
) -> Result<Appended, Refusal> {
    let bytes = batch.header().total_bytes() as u64;
    let give_up = broker.clock.now() + broker.options.back_pressure_wait;
    while !log.has_room(bytes) && broker.clock.now() < give_up {
        broker.metrics.produce_throttled.inc();
        tokio::time::sleep(FULL_RETRY).await;
    }
    let appended = log.append_verified(batch, ticket);
    if appended.is_ok() {
        broker.metrics.bytes_in.inc_by(bytes);
    }
    appended.map_err(|error| {
        match &error {
            AppendError::Full(_) | AppendError::Failed(_) => {
                broker.metrics.produce_refused.inc();
                tracing::warn!(partition = %log.id(), topic = %log.topic(), error = &error as &dyn std::error::Error, "append refused");
            }
            AppendError::NotLeader
            | AppendError::Sealed
            | AppendError::Switching
            | AppendError::TooLarge { .. }
            | AppendError::Sequence(_)
            | AppendError::Marker(_)
            | AppendError::OutOfOffsets => {}
        }
        Refusal::new(ErrorCode::from(&error), error.to_string())
    })
}

/// The record that a batch was refused for, by its place in the batch.
fn record_at_fault(error: &ProduceError) -> Option<u32> {
    match error {
        ProduceError::NoKey { record_index } | ProduceError::Record { record_index, .. } => {
            Some(*record_index)
        }
        ProduceError::Timestamp { record_index, .. } => *record_index,
        _ => None,
    }
}

impl PendingProduce {
    /// Whether some batch was refused: with acks=0 the only way to tell the client is to hang up.
    pub(crate) fn any_refused(&self) -> bool {
        self.topics
            .iter()
            .flat_map(|(_, _, o)| o)
            .any(|(_, outcome)| matches!(outcome, Outcome::Refused(_)))
    }

    /// Waits until everything is durable, or for the client's time-out, and makes the answer.
    pub(crate) async fn finish(self, broker: &Broker) -> ProduceResponse {
        let Self {
            topics,
            version,
            deadline,
        } = self;
        let mut response = ProduceResponse::default();
        // From the last batch to the first: as a rule all become durable at once, in the order of appending, and so
        // this task is woken once instead of once for each.
        for (topic, id, outcomes) in topics.into_iter().rev() {
            let mut partitions = Vec::with_capacity(outcomes.len());
            for (index, outcome) in outcomes.into_iter().rev() {
                let answer = match outcome {
                    Outcome::Appended(appended) => acknowledged(index, appended, deadline).await,
                    Outcome::Refused(refusal) => refused(index, refusal),
                };
                partitions.push(answer);
            }
            // The newest picture: a move may be why a batch was refused.
            if version >= FIRST_WITH_LEADER {
                let catalog = broker.catalog.load();
                let image = id.and_then(|id| catalog.image.topic_by_id(id));
                partitions.iter_mut().for_each(|p| name_leader(p, image));
            }
            partitions.reverse();
            response
                .topics
                .push(ProduceTopicResponse { topic, partitions });
        }
        response.topics.reverse();
        let leaders = response
            .topics
            .iter()
            .flat_map(|t| &t.partitions)
            .filter_map(|p| p.current_leader);
        response.node_endpoints = Broker::endpoints_of(&broker.catalog.load(), leaders);
        response
    }
}

async fn acknowledged(
    index: i32,
    appended: Appended,
    deadline: Instant,
) -> ProducePartitionResponse {
    let code = match appended.durability {
        Durability::Durable => ErrorCode::None,
        Durability::Pending(durable) => match tokio::time::timeout_at(deadline, durable).await {
            Ok(Ok(())) => ErrorCode::None,
            // The log was closed or its WAL failed: the outcome is unknown, and a retry will tell.
            Ok(Err(_)) => ErrorCode::NotLeaderOrFollower,
            Err(_) => ErrorCode::RequestTimedOut,
        },
    };
    if code != ErrorCode::None {
        return ProducePartitionResponse::error(index, code.code());
    }
    ProducePartitionResponse {
        base_offset: appended.range.start().to_wire(),
        log_append_time_ms: appended.log_append_time.get(),
        log_start_offset: appended.log_start.to_wire(),
        ..ProducePartitionResponse::error(index, ErrorCode::None.code())
    }
}

fn refused(index: i32, refusal: Refusal) -> ProducePartitionResponse {
    let mut answer = ProducePartitionResponse::error(index, refusal.code.code());
    if let Some(record) = refusal.record {
        answer.record_errors = vec![RecordError {
            batch_index: i32::try_from(record).unwrap_or(i32::MAX),
            message: Some(text(refusal.message.as_str())),
        }];
    }
    answer.error_message = Some(text(refusal.message));
    answer
}

/// Tells a client that asked the wrong broker which one leads (KIP-951).
fn name_leader(answer: &mut ProducePartitionResponse, topic: Option<&Arc<TopicImage>>) {
    if answer.error_code == ErrorCode::NotLeaderOrFollower.code() {
        answer.current_leader = topic.and_then(|t| Broker::current_leader(t, answer.index));
    }
}
