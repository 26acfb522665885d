//! ListOffsets, OffsetForLeaderEpoch, DeleteRecords: where a log begins and ends.

use std::sync::Arc;

use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::list_offsets_request::ListOffsetsPartition;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{
    DeleteRecordsRequest, DeleteRecordsResponse, ListOffsetsRequest, ListOffsetsResponse,
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
};
use tidegate_metadata::api::AdvanceLogStart;
use tidegate_partition_log::{Isolation, PartitionLog};
use tidegate_types::{LeaderEpoch, Offset, TimestampMs};

use crate::broker::{Broker, TopicRef};
use crate::catalog::is_internal;
use crate::error_code::ErrorCode;
use crate::handover::Patience;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;

pub(crate) async fn list_offsets(
    broker: &Broker,
    request: ListOffsetsRequest,
    version: i16,
) -> ListOffsetsResponse {
    let isolation = if request.isolation_level == 1 {
        Isolation::ReadCommitted
    } else {
        Isolation::ReadUncommitted
    };
    let catalog = broker.catalog.load_full();
    let mut patience = Patience::default();
    let mut response = ListOffsetsResponse::default();
    for topic in request.topics {
        let found = broker.topic(&catalog, TopicRef::Name(topic.name.0.as_str()));
        let mut answer = ListOffsetsTopicResponse::default().with_name(topic.name);
        for wanted in &topic.partitions {
            let (index, epoch) = (wanted.partition_index, wanted.current_leader_epoch);
            let log = broker
                .log_for_read(&found, index, epoch, &mut patience)
                .await;
            let result = match log {
                Ok(log) => list_one(broker, &log, wanted, isolation, version).await,
                Err(code) => Err(code),
            };
            answer.partitions.push(match result {
                Ok(partition) => partition,
                Err(code) => ListOffsetsPartitionResponse::default()
                    .with_error_code(code.code())
                    .with_timestamp(-1)
                    .with_offset(-1)
                    .with_leader_epoch(-1)
                    .with_partition_index(wanted.partition_index),
            });
        }
        response.topics.push(answer);
    }
    response
}

async fn list_one(
    broker: &Broker,
    log: &Arc<PartitionLog>,
    wanted: &ListOffsetsPartition,
    isolation: Isolation,
    version: i16,
) -> Result<ListOffsetsPartitionResponse, ErrorCode> {
    let watermarks = log.watermarks().map_err(|e| ErrorCode::from(&e))?;
    let found = match wanted.timestamp {
        LATEST => Some((watermarks.visible_end(isolation), TimestampMs::NONE)),
        EARLIEST | EARLIEST_LOCAL => Some((watermarks.log_start, TimestampMs::NONE)),
        MAX_TIMESTAMP if version >= 7 => {
            let found = broker
                .reader
                .max_timestamp(log)
                .await
                .map_err(|e| ErrorCode::from(&e))?;
            // As in Apache Kafka: of a transaction that is open there is no answer, rather than an older record.
            let visible = watermarks.visible_end(isolation);
            found
                .filter(|f| f.offset < visible)
                .map(|f| (f.offset, f.timestamp))
        }
        // Nothing is tiered: everything is in object storage.
        LATEST_TIERED => None,
        time if time < 0 => return Err(ErrorCode::UnsupportedVersion),
        time => {
            let found = broker
                .reader
                .first_at_or_after(log, TimestampMs::new(time), isolation)
                .await;
            found
                .map_err(|e| ErrorCode::from(&e))?
                .map(|f| (f.offset, f.timestamp))
        }
    };
    let answer =
        ListOffsetsPartitionResponse::default().with_partition_index(wanted.partition_index);
    // Older versions have no place for the epoch, and one that is set can't be encoded.
    let epoch = |offset| match version {
        4.. => epoch_of(log, wanted.timestamp, offset),
        _ => -1,
    };
    Ok(match found {
        Some((offset, timestamp)) => answer
            .with_offset(offset.to_wire())
            .with_timestamp(timestamp.get())
            .with_leader_epoch(epoch(offset)),
        None => answer
            .with_offset(-1)
            .with_timestamp(-1)
            .with_leader_epoch(-1),
    })
}

/// The leader epoch beside an offset: the current one for the end, else the one it was written under.
fn epoch_of(log: &PartitionLog, asked: i64, offset: Offset) -> i32 {
    if asked == LATEST {
        return log.leader_epoch().to_wire();
    }
    log.epoch_at(offset).map_or(-1, LeaderEpoch::to_wire)
}

pub(crate) async fn offset_for_leader_epoch(
    broker: &Broker,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let catalog = broker.catalog.load_full();
    let mut patience = Patience::default();
    let mut response = OffsetForLeaderEpochResponse::default();
    for topic in request.topics {
        let found = broker.topic(&catalog, TopicRef::Name(topic.topic.0.as_str()));
        let mut answer = OffsetForLeaderTopicResult::default().with_topic(topic.topic);
        for wanted in &topic.partitions {
            let (index, epoch) = (wanted.partition, wanted.current_leader_epoch);
            let log = broker
                .log_for_read(&found, index, epoch, &mut patience)
                .await;
            let result = log.and_then(|log| epoch_end(&log, wanted));
            let partition = EpochEndOffset::default().with_partition(wanted.partition);
            answer.partitions.push(match result {
                Ok(Some((epoch, end))) => partition
                    .with_leader_epoch(epoch.to_wire())
                    .with_end_offset(end.to_wire()),
                Ok(None) => partition.with_leader_epoch(-1).with_end_offset(-1),
                Err(code) => partition
                    .with_error_code(code.code())
                    .with_leader_epoch(-1)
                    .with_end_offset(-1),
            });
        }
        response.topics.push(answer);
    }
    response
}

fn epoch_end(
    log: &PartitionLog,
    wanted: &OffsetForLeaderPartition,
) -> Result<Option<(LeaderEpoch, Offset)>, ErrorCode> {
    match LeaderEpoch::from_wire(wanted.leader_epoch) {
        // An epoch that nobody gave out yet has no end.
        Some(epoch) if epoch > log.leader_epoch() => Ok(None),
        Some(epoch) => log.epoch_end(epoch).map_err(|e| ErrorCode::from(&e)),
        None => Ok(None),
    }
}

pub(crate) async fn delete_records(
    broker: &Broker,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let catalog = broker.catalog.load_full();
    let mut patience = Patience::default();
    let mut response = DeleteRecordsResponse::default();
    for topic in request.topics {
        let found = broker
            .topic(&catalog, TopicRef::Name(topic.name.0.as_str()))
            .and_then(|t| {
                let settings = catalog.settings(&t);
                let deletable = settings.cleanup.delete && !is_internal(t.name.as_str());
                if deletable {
                    Ok(t)
                } else {
                    Err(ErrorCode::PolicyViolation)
                }
            });
        let mut answer = DeleteRecordsTopicResult::default().with_name(topic.name);
        for wanted in topic.partitions {
            let index = wanted.partition_index;
            let log = broker.log_for_read(&found, index, -1, &mut patience).await;
            let result = match log {
                Ok(log) => delete_before(broker, &log, wanted.offset).await,
                Err(code) => Err(code),
            };
            let partition = DeleteRecordsPartitionResult::default()
                .with_partition_index(wanted.partition_index);
            answer.partitions.push(match result {
                Ok(low_watermark) => partition.with_low_watermark(low_watermark.to_wire()),
                Err(code) => partition
                    .with_error_code(code.code())
                    .with_low_watermark(-1),
            });
        }
        response.topics.push(answer);
    }
    response
}

/// Moves a log's start; −1 means up to the high watermark.
async fn delete_before(
    broker: &Broker,
    log: &Arc<PartitionLog>,
    offset: i64,
) -> Result<Offset, ErrorCode> {
    let watermarks = log.watermarks().map_err(|e| ErrorCode::from(&e))?;
    let new_start = match offset {
        -1 => watermarks.high_watermark,
        other => Offset::from_wire(other).ok_or(ErrorCode::OffsetOutOfRange)?,
    };
    if new_start > watermarks.high_watermark {
        return Err(ErrorCode::OffsetOutOfRange);
    }
    broker.advance_log_start(log, new_start).await
}

impl Broker {
    /// Commits a new log start and takes it in. Answers the log start afterwards.
    pub(crate) async fn advance_log_start(
        &self,
        log: &Arc<PartitionLog>,
        new_start: Offset,
    ) -> Result<Offset, ErrorCode> {
        let request = AdvanceLogStart {
            broker: self.id,
            broker_epoch: self.broker_epoch,
            partition: log.id(),
            leader_epoch: log.leader_epoch(),
            new_start,
        };
        let start = self
            .controller
            .advance_log_start(request)
            .await
            .map_err(|e| ErrorCode::from(&e))?;
        log.advance_log_start(start);
        Ok(start)
    }
}
