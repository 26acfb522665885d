//! Fetch: sessions, limits, long poll.
//!
//! A fetch is answered as soon as `min_bytes` are there, some partition has an error or something else that the
//! client must hear, or after `max_wait`. Between rounds it sleeps until one of its partitions moves its high
//! watermark. The first batch of the answer comes whole, however small the limits are (KIP-74).

use std::sync::Arc;
use std::time::Duration;

use tidegate_kafka_wire::TopicRef;
use tidegate_kafka_wire::fetch::{
    AbortedTransaction, DivergingEpoch, FetchPartitionResponse, FetchRequest, FetchResponse,
    FetchTopicResponse, IsolationLevel,
};
use tidegate_partition_log::{Isolation, PartitionLog, ReadError, ReadRequest, ReadResult};
use tidegate_record_batch::{BatchHeader, Codec};
use tidegate_types::{LeaderEpoch, Offset};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::text;
use crate::broker::Broker;
use crate::catalog::Catalog;
use crate::error_code::ErrorCode;
use crate::fetch_session::{Context, FetchKey, SessionRequest, Target, Told, Want};
use crate::handover::Patience;
use crate::quotas::{Quoted, wire_ms};

/// From this version on clients understand zstd (KIP-110).
const FIRST_WITH_ZSTD: i16 = 10;
/// From this version on topics are named by id.
const FIRST_BY_ID: i16 = 13;
/// The longest a fetch may wait, whatever it asks for.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// One round's answer for one target.
struct Answer {
    at: usize,
    key: FetchKey,
    response: FetchPartitionResponse,
    /// Whether an incremental answer must hold it.
    changed: bool,
}

/// What is the same for all partitions of a request.
struct Round<'a> {
    broker: &'a Broker,
    catalog: &'a Catalog,
    isolation: Isolation,
    version: i16,
    max_bytes: usize,
}

pub(crate) async fn fetch(
    broker: &Broker,
    request: FetchRequest,
    version: i16,
    quota: Quoted<'_>,
) -> FetchResponse {
    let session = session_request(&request, version);
    let context = match broker.sessions.begin(session, broker.clock.now()) {
        Ok(context) => context,
        Err(code) => {
            return FetchResponse {
                error_code: code.code(),
                ..FetchResponse::default()
            };
        }
    };
    let wait =
        Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0)).min(LONGEST_WAIT);
    let deadline = broker.clock.now() + wait;
    let max_bytes = usize::try_from(request.max_bytes)
        .unwrap_or(0)
        .min(broker.options.fetch_max_bytes)
        .min(broker.quotas.most_fetched(quota));
    // More than the most can't be waited for.
    let min_bytes = usize::try_from(request.min_bytes)
        .unwrap_or(0)
        .min(max_bytes);
    let (session_id, targets, start, incremental) = match context {
        Context::Full {
            session_id,
            targets,
        } => (session_id, Arc::new(targets), 0, false),
        Context::Incremental {
            session_id,
            targets,
            start,
        } => (session_id, targets, start, true),
    };
    let mut patience = Patience::default();
    loop {
        // Before the look: what changes after it rings.
        let rung = broker.leadership_changed();
        let catalog = broker.catalog.load_full();
        let round = Round {
            broker,
            catalog: &catalog,
            isolation: match request.isolation {
                IsolationLevel::ReadUncommitted => Isolation::ReadUncommitted,
                IsolationLevel::ReadCommitted => Isolation::ReadCommitted,
            },
            version,
            max_bytes,
        };
        let answers = round.run(&targets, start).await;
        if round.came_early(&targets, &answers) && broker.wait(rung, &mut patience).await {
            continue;
        }
        let bytes: usize = answers.iter().map(|a| a.response.record_bytes()).sum();
        let urgent = answers
            .iter()
            .any(|a| a.response.error_code != 0 || a.response.diverging_epoch.is_some());
        let done =
            bytes >= min_bytes || urgent || targets.is_empty() || broker.clock.now() >= deadline;
        if done {
            let throttle = broker.quotas.fetched(quota, bytes);
            if !throttle.is_zero() {
                return held_back(broker, session_id, incremental, throttle);
            }
            return respond(broker, &catalog, session_id, incremental, &targets, answers);
        }
        wait_for_more(&round, &targets, &answers, deadline).await;
    }
}

/// Over its quota a client gets nothing for now (KIP-219). One that asked for a new session asks again for it, as it
/// can't take an answer without partitions for one.
fn held_back(
    broker: &Broker,
    session_id: i32,
    incremental: bool,
    throttle: Duration,
) -> FetchResponse {
    if !incremental {
        broker.sessions.discard(session_id);
    }
    FetchResponse {
        session_id: if incremental { session_id } else { 0 },
        throttle_ms: wire_ms(throttle),
        ..FetchResponse::default()
    }
}

fn session_request(request: &FetchRequest, version: i16) -> SessionRequest {
    let key = |topic: &TopicRef, index: i32| FetchKey {
        topic: owned(topic),
        index,
    };
    SessionRequest {
        session_id: request.session_id,
        epoch: request.session_epoch,
        by_id: version >= FIRST_BY_ID,
        named: request
            .topics
            .iter()
            .flat_map(|t| t.partitions.iter().map(move |p| (t, p)))
            .map(|(topic, p)| {
                let want = Want {
                    current_leader_epoch: p.current_leader_epoch,
                    offset: p.fetch_offset,
                    last_fetched_epoch: p.last_fetched_epoch,
                    max_bytes: p.max_bytes,
                };
                (key(&topic.topic, p.index), want)
            })
            .collect(),
        forgotten: request
            .forgotten
            .iter()
            .flat_map(|t| t.partitions.iter().map(move |index| key(&t.topic, *index)))
            .collect(),
    }
}

/// A name that doesn't keep the request's frame in memory.
fn owned(topic: &TopicRef) -> TopicRef {
    match topic {
        TopicRef::Name(name) => TopicRef::Name(text(name.as_str())),
        TopicRef::Id(id) => TopicRef::Id(*id),
    }
}

impl Round<'_> {
    /// Reads every target once, beginning with `start`, until the limit is used up.
    async fn run(&self, targets: &[Target], start: usize) -> Vec<Answer> {
        let mut answers = Vec::with_capacity(targets.len());
        let mut bytes = 0usize;
        for step in 0..targets.len() {
            let at = (start + step) % targets.len();
            let target = &targets[at];
            let room = self.max_bytes.saturating_sub(bytes);
            let response = self.read(target, room, bytes == 0).await;
            bytes += response.record_bytes();
            let told = told_of(&response);
            let changed = response.error_code != 0
                || response.record_bytes() > 0
                || response.diverging_epoch.is_some()
                || told != target.told;
            answers.push(Answer {
                at,
                key: target.key.clone(),
                response,
                changed,
            });
        }
        answers
    }

    /// Whether a partition was refused that is about to be led here, or that the client knows more about.
    fn came_early(&self, targets: &[Target], answers: &[Answer]) -> bool {
        let refused = [
            ErrorCode::NotLeaderOrFollower.code(),
            ErrorCode::UnknownLeaderEpoch.code(),
        ];
        let early = answers
            .iter()
            .filter(|answer| refused.contains(&answer.response.error_code));
        early.map(|answer| &targets[answer.at]).any(|target| {
            let topic = self.broker.topic(self.catalog, (&target.key.topic).into());
            topic.is_ok_and(|topic| {
                let claimed = target.want.current_leader_epoch;
                self.broker.may_lead_soon(&topic, target.key.index, claimed)
            })
        })
    }

    fn log(&self, target: &Target) -> Result<Arc<PartitionLog>, ErrorCode> {
        let topic = self
            .broker
            .topic(self.catalog, (&target.key.topic).into())?;
        let claimed = target.want.current_leader_epoch;
        self.broker.readable(&topic, target.key.index, claimed)
    }

    async fn read(
        &self,
        target: &Target,
        room: usize,
        nothing_yet: bool,
    ) -> FetchPartitionResponse {
        let index = target.key.index;
        match self.try_read(target, room, nothing_yet).await {
            Ok(response) => response,
            Err(code) => {
                let mut response = FetchPartitionResponse::error(index, code.code());
                if code == ErrorCode::NotLeaderOrFollower || code == ErrorCode::FencedLeaderEpoch {
                    let topic = self
                        .broker
                        .topic(self.catalog, (&target.key.topic).into())
                        .ok();
                    response.current_leader = topic.and_then(|t| Broker::current_leader(&t, index));
                }
                response
            }
        }
    }

    async fn try_read(
        &self,
        target: &Target,
        room: usize,
        nothing_yet: bool,
    ) -> Result<FetchPartitionResponse, ErrorCode> {
        let log = self.log(target)?;
        if let Some(diverging) = self.diverging(&log, &target.want)? {
            let mut response =
                FetchPartitionResponse::error(target.key.index, ErrorCode::None.code());
            let watermarks = log.watermarks().map_err(|e| ErrorCode::from(&e))?;
            response.high_watermark = watermarks.high_watermark.to_wire();
            response.last_stable_offset = watermarks.last_stable.to_wire();
            response.log_start_offset = watermarks.log_start.to_wire();
            response.diverging_epoch = Some(diverging);
            return Ok(response);
        }
        let partition_room = usize::try_from(target.want.max_bytes).unwrap_or(0);
        let request = ReadRequest {
            offset: Offset::from_wire(target.want.offset).ok_or(ErrorCode::OffsetOutOfRange)?,
            max_bytes: partition_room.min(room),
            first_whole: nothing_yet,
            isolation: self.isolation,
        };
        let result = self.broker.reader.read(&log, request).await.map_err(|error| {
            if let ReadError::Store(_) | ReadError::Wal(_) = &error {
                tracing::warn!(partition = %log.id(), topic = %log.topic(), offset = target.want.offset, error = &error as &dyn std::error::Error, "read failed");
            }
            ErrorCode::from(&error)
        })?;
        if self.version < FIRST_WITH_ZSTD && result.batches.iter().any(|b| holds_zstd(b)) {
            return Err(ErrorCode::UnsupportedCompressionType);
        }
        Ok(self.response(target.key.index, result))
    }

    fn response(&self, index: i32, result: ReadResult) -> FetchPartitionResponse {
        let aborted = match self.isolation {
            Isolation::ReadUncommitted => None,
            Isolation::ReadCommitted => Some(
                result
                    .aborted
                    .iter()
                    .map(|a| AbortedTransaction {
                        producer_id: a.producer.to_wire(),
                        first_offset: a.start.to_wire(),
                    })
                    .collect(),
            ),
        };
        FetchPartitionResponse {
            high_watermark: result.watermarks.high_watermark.to_wire(),
            last_stable_offset: result.watermarks.last_stable.to_wire(),
            log_start_offset: result.watermarks.log_start.to_wire(),
            aborted_transactions: aborted,
            records: result.batches,
            ..FetchPartitionResponse::error(index, ErrorCode::None.code())
        }
    }

    /// Whether the client's log has gone another way than ours (KIP-595): then it must truncate.
    fn diverging(
        &self,
        log: &PartitionLog,
        want: &Want,
    ) -> Result<Option<DivergingEpoch>, ErrorCode> {
        let Some(last_fetched) = LeaderEpoch::from_wire(want.last_fetched_epoch) else {
            return Ok(None);
        };
        let end = log
            .epoch_end(last_fetched)
            .map_err(|e| ErrorCode::from(&e))?;
        Ok(match end {
            Some((epoch, end)) if epoch < last_fetched || end.to_wire() < want.offset => {
                Some(DivergingEpoch {
                    epoch: epoch.to_wire(),
                    end_offset: end.to_wire(),
                })
            }
            _ => None,
        })
    }
}

fn told_of(response: &FetchPartitionResponse) -> Told {
    Told {
        high_watermark: response.high_watermark,
        log_start: response.log_start_offset,
    }
}

fn holds_zstd(batches: &[u8]) -> bool {
    let mut rest = batches;
    while let Ok(header) = BatchHeader::parse(rest) {
        if header.codec() == Codec::Zstd {
            return true;
        }
        rest = rest.get(header.total_bytes()..).unwrap_or_default();
    }
    false
}

/// Sleeps until a target moves beyond what this round has seen, the cluster changes, or the deadline comes.
async fn wait_for_more(
    round: &Round<'_>,
    targets: &[Target],
    answers: &[Answer],
    deadline: Instant,
) {
    let bell = Arc::new(Notify::new());
    let mut watched = Watched {
        bell: bell.clone(),
        logs: Vec::with_capacity(targets.len()),
    };
    let mut images = round.broker.images.clone();
    images.mark_unchanged();
    for answer in answers {
        let seen = match round.isolation {
            Isolation::ReadUncommitted => answer.response.high_watermark,
            Isolation::ReadCommitted => answer.response.last_stable_offset,
        };
        let (Ok(log), Some(seen)) = (round.log(&targets[answer.at]), Offset::from_wire(seen))
        else {
            return;
        };
        if !log.watch(seen, round.isolation, &bell) {
            return;
        }
        watched.logs.push(log);
    }
    // Cancel-safe: nothing but the wait itself is lost.
    tokio::select! {
        () = bell.notified() => {}
        () = tokio::time::sleep_until(deadline) => {}
        // A deleted or moved partition is answered at once.
        _ = images.changed() => {}
    }
}

/// Takes the bell back from all logs when the wait is over, however it ends.
struct Watched {
    bell: Arc<Notify>,
    logs: Vec<Arc<PartitionLog>>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        for log in &self.logs {
            log.unwatch(&self.bell);
        }
    }
}

fn respond(
    broker: &Broker,
    catalog: &Catalog,
    session_id: i32,
    incremental: bool,
    targets: &[Target],
    mut answers: Vec<Answer>,
) -> FetchResponse {
    if session_id != 0 {
        let told: Vec<(FetchKey, Told)> = answers
            .iter()
            .filter(|a| a.changed)
            .map(|a| {
                let failed = a.response.error_code != 0;
                // An error is told again each time until it is gone.
                let nothing = Told {
                    high_watermark: -1,
                    log_start: -1,
                };
                (
                    a.key.clone(),
                    if failed {
                        nothing
                    } else {
                        told_of(&a.response)
                    },
                )
            })
            .collect();
        let served = answers
            .iter()
            .filter(|a| a.response.record_bytes() > 0)
            .map(|a| a.at)
            .next_back();
        broker.sessions.told(
            session_id,
            &told,
            served.map(|at| (at + 1) % targets.len().max(1)),
        );
    }
    if incremental {
        answers.retain(|a| a.changed);
    }
    let bytes: usize = answers.iter().map(|a| a.response.record_bytes()).sum();
    broker.metrics.bytes_out.inc_by(bytes as u64);
    let leaders = answers.iter().filter_map(|a| a.response.current_leader);
    let node_endpoints = Broker::endpoints_of(catalog, leaders);
    let mut topics: Vec<FetchTopicResponse> = Vec::new();
    for answer in answers {
        match topics.last_mut() {
            Some(last) if last.topic == answer.key.topic => last.partitions.push(answer.response),
            _ => topics.push(FetchTopicResponse {
                topic: answer.key.topic,
                partitions: vec![answer.response],
            }),
        }
    }
    FetchResponse {
        session_id,
        topics,
        node_endpoints,
        ..FetchResponse::default()
    }
}
