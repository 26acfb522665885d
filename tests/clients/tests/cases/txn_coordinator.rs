//! What a transaction coordinator answers: to the fenced, to those who come again, and to those who only look.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, DescribeTransactionsRequest, EndTxnRequest, FindCoordinatorRequest,
    InitProducerIdRequest, ListTransactionsRequest, TopicName, TransactionalId,
};
use tidegate_harness::RawClient;

use crate::ops::create_topic;
use crate::support::{connect, text, unique};

const PATIENCE: Duration = Duration::from_secs(30);
const CONCURRENT_TRANSACTIONS: i16 = 51;
const PRODUCER_FENCED: i16 = 90;
const INVALID_PRODUCER_EPOCH: i16 = 47;
/// CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator, ConcurrentTransactions.
const PASSING: [i16; 4] = [14, 15, 16, CONCURRENT_TRANSACTIONS];

type Producer = (i64, i16);

async fn init_once(
    client: &mut RawClient,
    id: &str,
    version: i16,
    before: Producer,
    timeout_ms: i32,
) -> Result<Result<Producer, i16>> {
    let request = InitProducerIdRequest::default()
        .with_transactional_id(Some(TransactionalId(text(id))))
        .with_transaction_timeout_ms(timeout_ms)
        .with_producer_id(before.0.into())
        .with_producer_epoch(before.1);
    let answer = client.call(version, &request).await?;
    Ok(match answer.error_code {
        0 => Ok((answer.producer_id.0, answer.producer_epoch)),
        code => Err(code),
    })
}

/// Asks again while that is what the answer says.
async fn init(client: &mut RawClient, id: &str) -> Result<Producer> {
    let find = FindCoordinatorRequest::default()
        .with_key(text(id))
        .with_key_type(1);
    let deadline = Instant::now() + PATIENCE;
    loop {
        client.call(3, &find).await?;
        match init_once(client, id, 4, (-1, -1), 60_000).await? {
            Ok(producer) => return Ok(producer),
            Err(code) => ensure!(
                PASSING.contains(&code) && Instant::now() < deadline,
                "InitProducerId answered {code}"
            ),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn add(
    client: &mut RawClient,
    id: &str,
    version: i16,
    producer: Producer,
    topic: &str,
) -> Result<i16> {
    let topics = vec![
        AddPartitionsToTxnTopic::default()
            .with_name(TopicName(text(topic)))
            .with_partitions(vec![0]),
    ];
    let request = AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(TransactionalId(text(id)))
        .with_v3_and_below_producer_id(producer.0.into())
        .with_v3_and_below_producer_epoch(producer.1)
        .with_v3_and_below_topics(topics);
    let answer = client.call(version, &request).await?;
    let topic = answer.results_by_topic_v3_and_below.first();
    let partition = topic.and_then(|topic| topic.results_by_partition.first());
    Ok(partition.context("no answer")?.partition_error_code)
}

/// The code, and who the producer is from then on.
async fn end(
    client: &mut RawClient,
    id: &str,
    version: i16,
    producer: Producer,
    commit: bool,
) -> Result<(i16, Producer)> {
    let request = EndTxnRequest::default()
        .with_transactional_id(TransactionalId(text(id)))
        .with_producer_id(producer.0.into())
        .with_producer_epoch(producer.1)
        .with_committed(commit);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = client.call(version, &request).await?;
        if answer.error_code != CONCURRENT_TRANSACTIONS || Instant::now() > deadline {
            let next = (answer.producer_id.0, answer.producer_epoch);
            return Ok((answer.error_code, next));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// O-TX-05 (a). The predecessor is told what its version knows, and never that something is wrong with the server.
#[tokio::test]
async fn a_fenced_producer_is_told_so_in_the_words_of_its_version() -> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(&mut client, "fenced", 1, &[]).await?.name;
    let id = unique("fenced");
    let first = init(&mut client, &id).await?;
    assert_eq!(add(&mut client, &id, 3, first, &topic).await?, 0);
    let second = init(&mut client, &id).await?;
    ensure!(
        second.0 == first.0 && second.1 > first.1,
        "{second:?} after {first:?}"
    );
    assert_eq!(
        add(&mut client, &id, 3, first, &topic).await?,
        PRODUCER_FENCED
    );
    assert_eq!(
        add(&mut client, &id, 1, first, &topic).await?,
        INVALID_PRODUCER_EPOCH
    );
    assert_eq!(
        end(&mut client, &id, 3, first, true).await?.0,
        PRODUCER_FENCED
    );
    assert_eq!(
        end(&mut client, &id, 1, first, true).await?.0,
        INVALID_PRODUCER_EPOCH
    );
    let again = init_once(&mut client, &id, 4, first, 60_000).await?;
    assert_eq!(again, Err(PRODUCER_FENCED));
    let again = init_once(&mut client, &id, 3, first, 60_000).await?;
    assert_eq!(again, Err(INVALID_PRODUCER_EPOCH));
    assert_eq!(add(&mut client, &id, 3, second, &topic).await?, 0);
    assert_eq!(end(&mut client, &id, 3, second, true).await?.0, 0);
    Ok(())
}

/// O-TX-05 (b). A process that restored a checkpoint ends the transaction of the one before it, twice.
#[tokio::test]
async fn a_restored_process_commits_what_its_predecessor_left_and_again_without_harm() -> Result<()>
{
    for version in [3, 5] {
        let mut client = connect().await?;
        let topic = create_topic(&mut client, "restored", 1, &[]).await?.name;
        let id = unique("restored");
        let producer = init(&mut client, &id).await?;
        assert_eq!(add(&mut client, &id, 3, producer, &topic).await?, 0);
        drop(client);
        let mut client = connect().await?;
        let (code, next) = end(&mut client, &id, version, producer, true).await?;
        assert_eq!(code, 0);
        let expected = match version {
            5 => (producer.0, producer.1 + 1),
            _ => (-1, -1),
        };
        assert_eq!(next, expected);
        assert_eq!(
            end(&mut client, &id, version, producer, true).await?,
            (0, expected)
        );
        let other = end(&mut client, &id, version, producer, false).await?;
        assert_eq!(other.0, 48, "INVALID_TXN_STATE");
    }
    Ok(())
}

/// O-TX-05 (c).
#[tokio::test]
async fn a_time_out_above_the_maximum_is_refused() -> Result<()> {
    let mut client = connect().await?;
    let id = unique("time-out");
    init(&mut client, &id).await?;
    let answer = init_once(&mut client, &id, 4, (-1, -1), 900_001).await?;
    assert_eq!(answer, Err(50), "INVALID_TRANSACTION_TIMEOUT");
    Ok(())
}

/// Of O-TX-04: what tools are told is true.
#[tokio::test]
async fn tools_see_the_open_transaction_and_its_partitions() -> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(&mut client, "seen", 1, &[]).await?.name;
    let id = unique("seen");
    let producer = init(&mut client, &id).await?;
    assert_eq!(add(&mut client, &id, 3, producer, &topic).await?, 0);
    let missing = add(&mut client, &id, 3, producer, "no-such-topic").await?;
    assert_eq!(missing, 3, "UNKNOWN_TOPIC_OR_PARTITION");
    let request = DescribeTransactionsRequest::default().with_transactional_ids(vec![
        TransactionalId(text(&id)),
        TransactionalId(text("nobody")),
    ]);
    let answer = client.call(0, &request).await?;
    let described = &answer.transaction_states[0];
    assert_eq!(described.error_code, 0);
    assert_eq!(described.transaction_state.as_str(), "Ongoing");
    assert_eq!(
        (described.producer_id.0, described.producer_epoch),
        producer
    );
    assert_eq!(described.topics.len(), 1);
    assert_eq!(described.topics[0].topic.0.as_str(), topic);
    assert_eq!(described.topics[0].partitions, [0]);
    assert_eq!(answer.transaction_states[1].error_code, 105);
    let request = ListTransactionsRequest::default()
        .with_state_filters(vec![text("Ongoing"), text("Sleeping")])
        .with_producer_id_filters(vec![producer.0.into()]);
    let answer = client.call(0, &request).await?;
    assert_eq!(answer.error_code, 0);
    assert_eq!(answer.unknown_state_filters, [text("Sleeping")]);
    let listed: Vec<_> = answer
        .transaction_states
        .iter()
        .map(|listed| listed.transactional_id.0.as_str())
        .collect();
    assert_eq!(listed, [id.as_str()]);
    Ok(())
}
