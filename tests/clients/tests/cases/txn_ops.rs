//! A transactional producer, played by hand.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, BrokerId, EndTxnRequest,
    FindCoordinatorRequest, GroupId, InitProducerIdRequest, InitProducerIdResponse,
    ListOffsetsRequest, OffsetFetchRequest, ProducerId, TransactionalId, TxnOffsetCommitRequest,
};
use tidegate_harness::{DecodedRecord, RawClient, TestBatch, decode_batches};

use crate::ops::{Topic, fetch_request, fetched, produce_request};
use crate::support::{errors, now_ms, text};

pub(crate) const NOT_LEADER: i16 = 6;
const COORDINATOR_NOT_AVAILABLE: i16 = 15;
pub(crate) const NOT_ENOUGH_REPLICAS: i16 = 19;
pub(crate) const INVALID_PRODUCER_EPOCH: i16 = 47;
pub(crate) const INVALID_TXN_STATE: i16 = 48;
pub(crate) const CONCURRENT_TRANSACTIONS: i16 = 51;
pub(crate) const UNSTABLE_OFFSET_COMMIT: i16 = 88;
pub(crate) const PRODUCER_FENCED: i16 = 90;

/// What passes by itself.
const PASSING: [i16; 6] = [
    NOT_LEADER,
    errors::COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    errors::NOT_COORDINATOR,
    NOT_ENOUGH_REPLICAS,
    CONCURRENT_TRANSACTIONS,
];

/// Which of Kafka's two ways a producer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// It adds partitions by a request, and keeps its epoch.
    First,
    /// It adds partitions by writing to them, and gets a new epoch with each transaction (KIP-890).
    Second,
}

pub(crate) const BOTH: [Protocol; 2] = [Protocol::First, Protocol::Second];

/// Waits until the transactional id has a coordinator.
pub(crate) async fn find_transaction_coordinator(client: &mut RawClient, id: &str) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let request = FindCoordinatorRequest::default()
            .with_key(text(id))
            .with_key_type(1);
        let code = client.call(3, &request).await?.error_code;
        if code == errors::NONE {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "FindCoordinator answers {code}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// InitProducerId as it is answered once the coordinator is there.
pub(crate) async fn init(
    client: &mut RawClient,
    id: &str,
    timeout_ms: i32,
) -> Result<InitProducerIdResponse> {
    find_transaction_coordinator(client, id).await?;
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(TransactionalId(text(id))))
            .with_transaction_timeout_ms(timeout_ms)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1);
        let answer = client.call(4, &request).await?;
        if !PASSING.contains(&answer.error_code) || Instant::now() > deadline {
            return Ok(answer);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Producer {
    pub(crate) transactional_id: String,
    pub(crate) id: i64,
    pub(crate) epoch: i16,
    protocol: Protocol,
    /// The next sequence of each partition.
    sequences: HashMap<(String, i32), i32>,
}

impl Producer {
    pub(crate) async fn begin(
        client: &mut RawClient,
        transactional_id: &str,
        protocol: Protocol,
    ) -> Result<Self> {
        Self::with_timeout(client, transactional_id, protocol, 60_000).await
    }

    pub(crate) async fn with_timeout(
        client: &mut RawClient,
        transactional_id: &str,
        protocol: Protocol,
        timeout_ms: i32,
    ) -> Result<Self> {
        let answer = init(client, transactional_id, timeout_ms).await?;
        ensure!(
            answer.error_code == errors::NONE,
            "InitProducerId answered {}",
            answer.error_code
        );
        Ok(Self {
            transactional_id: transactional_id.to_owned(),
            id: answer.producer_id.0,
            epoch: answer.producer_epoch,
            protocol,
            sequences: HashMap::new(),
        })
    }

    /// AddPartitionsToTxn, as clients before KIP-890 send it. The code of the first partition.
    pub(crate) async fn add_partitions(
        &self,
        client: &mut RawClient,
        version: i16,
        topic: &Topic,
        partitions: &[i32],
    ) -> Result<i16> {
        let topics = AddPartitionsToTxnTopic::default()
            .with_name(topic.wire_name())
            .with_partitions(partitions.to_vec());
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(TransactionalId(text(&self.transactional_id)))
            .with_v3_and_below_producer_id(ProducerId(self.id))
            .with_v3_and_below_producer_epoch(self.epoch)
            .with_v3_and_below_topics(vec![topics]);
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let answer = client.call(version, &request).await?;
            let topic = answer.results_by_topic_v3_and_below.first();
            let partition = topic.and_then(|t| t.results_by_partition.first());
            let code = partition.context("no answer for the partition")?;
            let code = code.partition_error_code;
            if !PASSING.contains(&code) || Instant::now() > deadline {
                return Ok(code);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The produce version that this producer's way goes with.
    pub(crate) fn produce_version(&self) -> i16 {
        match self.protocol {
            Protocol::First => 9,
            Protocol::Second => 12,
        }
    }

    /// One batch of this producer's transaction, with the next sequence.
    pub(crate) fn batch(&mut self, topic: &Topic, partition: i32, values: &[&str]) -> Bytes {
        let key = (topic.name.clone(), partition);
        let sequence = self.sequences.entry(key).or_insert(0);
        let batch = transactional_batch(values, (self.id, self.epoch, *sequence));
        *sequence += i32::try_from(values.len()).expect("few values");
        batch
    }

    /// Sends one batch once.
    pub(crate) async fn send(
        &self,
        client: &mut RawClient,
        topic: &Topic,
        partition: i32,
        batch: Bytes,
    ) -> Result<PartitionProduceResponse> {
        let version = self.produce_version();
        send_as(
            client,
            &self.transactional_id,
            version,
            topic,
            partition,
            batch,
        )
        .await
    }

    /// Adds the partition if need be and writes values, for as long as the answer is a passing one. The base offset.
    pub(crate) async fn write(
        &mut self,
        client: &mut RawClient,
        topic: &Topic,
        partition: i32,
        values: &[&str],
    ) -> Result<i64> {
        if self.protocol == Protocol::First {
            let code = self.add_partitions(client, 3, topic, &[partition]).await?;
            ensure!(code == errors::NONE, "AddPartitionsToTxn answered {code}");
        }
        let batch = self.batch(topic, partition, values);
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let answer = self.send(client, topic, partition, batch.clone()).await?;
            if answer.error_code == errors::NONE {
                return Ok(answer.base_offset);
            }
            let passing = PASSING.contains(&answer.error_code) && Instant::now() < deadline;
            ensure!(passing, "Produce answered {}", answer.error_code);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// EndTxn, once. In the second protocol the answer brings the next epoch.
    pub(crate) async fn end_once(
        &mut self,
        client: &mut RawClient,
        version: i16,
        commit: bool,
    ) -> Result<i16> {
        let request = EndTxnRequest::default()
            .with_transactional_id(TransactionalId(text(&self.transactional_id)))
            .with_producer_id(ProducerId(self.id))
            .with_producer_epoch(self.epoch)
            .with_committed(commit);
        let answer = client.call(version, &request).await?;
        if version >= 5 && answer.error_code == errors::NONE {
            self.id = answer.producer_id.0;
            self.epoch = answer.producer_epoch;
            self.sequences.clear();
        }
        Ok(answer.error_code)
    }

    /// Ends the transaction and expects success.
    pub(crate) async fn end(&mut self, client: &mut RawClient, commit: bool) -> Result<()> {
        let version = match self.protocol {
            Protocol::First => 3,
            Protocol::Second => 5,
        };
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let code = self.end_once(client, version, commit).await?;
            if code == errors::NONE {
                return Ok(());
            }
            let passing = PASSING.contains(&code) && Instant::now() < deadline;
            ensure!(passing, "EndTxn answered {code}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// AddOffsetsToTxn, which only the first protocol needs.
    pub(crate) async fn add_offsets(&self, client: &mut RawClient, group: &str) -> Result<i16> {
        let request = AddOffsetsToTxnRequest::default()
            .with_transactional_id(TransactionalId(text(&self.transactional_id)))
            .with_producer_id(ProducerId(self.id))
            .with_producer_epoch(self.epoch)
            .with_group_id(GroupId(text(group)));
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let code = client.call(3, &request).await?.error_code;
            if !PASSING.contains(&code) || Instant::now() > deadline {
                return Ok(code);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// TxnOffsetCommit of one offset for partition 0 by a client that doesn't say who it is.
    pub(crate) fn offsets_request(
        &self,
        group: &str,
        topic: &Topic,
        offset: i64,
    ) -> TxnOffsetCommitRequest {
        let partition = TxnOffsetCommitRequestPartition::default()
            .with_partition_index(0)
            .with_committed_offset(offset)
            .with_committed_metadata(Some(text("")));
        let topic = TxnOffsetCommitRequestTopic::default()
            .with_name(topic.wire_name())
            .with_partitions(vec![partition]);
        TxnOffsetCommitRequest::default()
            .with_transactional_id(TransactionalId(text(&self.transactional_id)))
            .with_group_id(GroupId(text(group)))
            .with_producer_id(ProducerId(self.id))
            .with_producer_epoch(self.epoch)
            .with_topics(vec![topic])
    }

    /// The partition's code in the answer to a TxnOffsetCommit, asked again while it is a passing one.
    pub(crate) async fn commit_as(
        &self,
        client: &mut RawClient,
        version: i16,
        request: &TxnOffsetCommitRequest,
    ) -> Result<i16> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let answer = client.call(version, request).await?;
            let topic = answer.topics.first();
            let partition = topic.and_then(|topic| topic.partitions.first());
            let code = partition.context("no answer for the partition")?.error_code;
            if !PASSING.contains(&code) || Instant::now() > deadline {
                return Ok(code);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Adds an offset to the transaction, in the producer's way, and expects success.
    pub(crate) async fn commit_offset(
        &self,
        client: &mut RawClient,
        group: &str,
        topic: &Topic,
        offset: i64,
    ) -> Result<()> {
        let version = match self.protocol {
            Protocol::First => {
                let code = self.add_offsets(client, group).await?;
                ensure!(code == errors::NONE, "AddOffsetsToTxn answered {code}");
                3
            }
            Protocol::Second => 5,
        };
        let request = self.offsets_request(group, topic, offset);
        let code = self.commit_as(client, version, &request).await?;
        ensure!(code == errors::NONE, "TxnOffsetCommit answered {code}");
        Ok(())
    }
}

pub(crate) fn transactional_batch(values: &[&str], producer: (i64, i16, i32)) -> Bytes {
    let values = values.iter().map(|value| value.as_bytes().to_vec());
    let mut batch = TestBatch::of_values(now_ms(), values);
    batch.producer = producer;
    batch.attribute_bits = 16;
    batch.encode()
}

/// Sends one batch in a transaction, once.
pub(crate) async fn send_as(
    client: &mut RawClient,
    transactional_id: &str,
    version: i16,
    topic: &Topic,
    partition: i32,
    batch: Bytes,
) -> Result<PartitionProduceResponse> {
    let request = produce_request(version, topic, -1, vec![(partition, batch)])
        .with_transactional_id(Some(TransactionalId(text(transactional_id))));
    let answer = client.call(version, &request).await?;
    let topic = answer.responses.into_iter().next();
    let partition = topic.and_then(|t| t.partition_responses.into_iter().next());
    partition.context("no answer for the partition")
}

/// What a read of one partition gave.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) last_stable: i64,
    pub(crate) high_watermark: i64,
    /// Producer and first offset of each; `None` if the answer had no list.
    pub(crate) aborted: Option<Vec<(i64, i64)>>,
    /// Of data, as the answer holds them.
    pub(crate) records: Vec<DecodedRecord>,
    /// What a client keeps of them.
    pub(crate) valid: Vec<String>,
    /// Behind the last batch.
    pub(crate) position: i64,
}

/// Fetches once from `offset` on and drops what the list of aborted transactions names.
pub(crate) async fn read(
    client: &mut RawClient,
    topic: &Topic,
    offset: i64,
    committed: bool,
    wait: Duration,
) -> Result<Read> {
    let mut request = fetch_request(11, topic, &[(0, offset)]);
    request.isolation_level = i8::from(committed);
    request.max_wait_ms = i32::try_from(wait.as_millis())?;
    request.min_bytes = i32::from(!wait.is_zero());
    let data = fetched(client.call(11, &request).await?)
        .into_iter()
        .next()
        .context("no answer for the partition")?;
    ensure!(
        data.error_code == errors::NONE,
        "Fetch answered {}",
        data.error_code
    );
    let mut waiting: Vec<(i64, i64)> = data
        .aborted_transactions
        .iter()
        .flatten()
        .map(|t| (t.producer_id.0, t.first_offset))
        .collect();
    let aborted = data.aborted_transactions.is_some().then(|| waiting.clone());
    let (mut records, mut valid, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
    let mut position = offset;
    for batch in decode_batches(data.records.unwrap_or_default())? {
        position = batch.end_offset;
        waiting.retain(|(producer, first)| {
            let begins = *first < batch.end_offset;
            if begins {
                dropped.push(*producer);
            }
            !begins
        });
        if batch.attributes & 32 != 0 {
            dropped.retain(|producer| *producer != batch.producer.0);
            continue;
        }
        if batch.attributes & 16 == 0 || !dropped.contains(&batch.producer.0) {
            let values = batch.records.iter().filter_map(|r| r.value.as_deref());
            valid.extend(values.map(|v| String::from_utf8_lossy(v).into_owned()));
        }
        records.extend(batch.records);
    }
    Ok(Read {
        last_stable: data.last_stable_offset,
        high_watermark: data.high_watermark,
        aborted,
        records,
        valid,
        position,
    })
}

/// ListOffsets of partition 0 with an isolation level.
pub(crate) async fn list_isolated(
    client: &mut RawClient,
    topic: &Topic,
    timestamp: i64,
    committed: bool,
) -> Result<i64> {
    let partition = ListOffsetsPartition::default()
        .with_partition_index(0)
        .with_timestamp(timestamp);
    let topic = ListOffsetsTopic::default()
        .with_name(topic.wire_name())
        .with_partitions(vec![partition]);
    let request = ListOffsetsRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_isolation_level(i8::from(committed))
        .with_topics(vec![topic]);
    let answer = client.call(7, &request).await?;
    let topic = answer.topics.into_iter().next();
    let partition = topic.and_then(|t| t.partitions.into_iter().next());
    let partition = partition.context("no answer for the partition")?;
    ensure!(
        partition.error_code == errors::NONE,
        "ListOffsets answered {}",
        partition.error_code
    );
    Ok(partition.offset)
}

/// OffsetFetch of stable offsets: the code and the offset of partition 0.
pub(crate) async fn stable_offset(
    client: &mut RawClient,
    group: &str,
    topic: &Topic,
) -> Result<(i16, i64)> {
    let wanted = OffsetFetchRequestTopic::default()
        .with_name(topic.wire_name())
        .with_partition_indexes(vec![0]);
    let request = OffsetFetchRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_require_stable(true)
        .with_topics(Some(vec![wanted]));
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = client.call(7, &request).await?;
        if PASSING.contains(&answer.error_code) && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        }
        ensure!(
            answer.error_code == errors::NONE,
            "OffsetFetch answered {}",
            answer.error_code
        );
        let topic = answer.topics.first();
        let partition = topic.and_then(|topic| topic.partitions.first());
        let partition = partition.context("no answer for the partition")?;
        return Ok((partition.error_code, partition.committed_offset));
    }
}

/// Waits until something holds that comes by itself.
pub(crate) async fn until<F>(what: &str, within: Duration, mut holds: F) -> Result<()>
where
    F: AsyncFnMut() -> Result<bool>,
{
    let deadline = Instant::now() + within;
    while !holds().await? {
        ensure!(Instant::now() < deadline, "{what} within {within:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
