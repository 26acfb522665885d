//! Client quotas: what tools set and read, and what they do to clients that don't heed them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use kafka_protocol::messages::alter_client_quotas_request::{EntityData, EntryData, OpData};
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::describe_client_quotas_request::ComponentData;
use kafka_protocol::messages::describe_user_scram_credentials_request::UserName;
use kafka_protocol::messages::{
    AlterClientQuotasRequest, CreateTopicsRequest, DescribeClientQuotasRequest,
    DescribeClientQuotasResponse, DescribeUserScramCredentialsRequest, MetadataRequest, TopicName,
};
use tidegate_harness::{Broker, BrokerOptions, RawClient, TestBatch};

use crate::ops::{create_topic, fetch_request, fetched, produce_request};
use crate::support::{errors, text, unique};

const THROTTLING_QUOTA_EXCEEDED: i16 = 89;
const RESOURCE_NOT_FOUND: i16 = 91;
const EXACT: i8 = 0;
const DEFAULT: i8 = 1;
const ANY: i8 = 2;

/// Types with names; no name is the default.
type Entity<'a> = &'a [(&'a str, Option<&'a str>)];

/// Sets limits, or takes them away, and gives the code of the entity.
async fn alter(
    client: &mut RawClient,
    version: i16,
    entity: Entity<'_>,
    limits: &[(&str, Option<f64>)],
    dry: bool,
) -> Result<i16> {
    let entity = entity.iter().map(|(kind, name)| {
        EntityData::default()
            .with_entity_type(text(kind))
            .with_entity_name(name.map(text))
    });
    let ops = limits.iter().map(|(key, value)| {
        OpData::default()
            .with_key(text(key))
            .with_value(value.unwrap_or(0.0))
            .with_remove(value.is_none())
    });
    let entry = EntryData::default()
        .with_entity(entity.collect())
        .with_ops(ops.collect());
    let request = AlterClientQuotasRequest::default()
        .with_entries(vec![entry])
        .with_validate_only(dry);
    let answer = client.call(version, &request).await?;
    let entry = answer.entries.first().context("no answer for the entity")?;
    Ok(entry.error_code)
}

async fn set(client: &mut RawClient, entity: Entity<'_>, key: &str, limit: f64) -> Result<()> {
    let code = alter(client, 1, entity, &[(key, Some(limit))], false).await?;
    ensure!(code == errors::NONE, "setting {key} answered {code}");
    Ok(())
}

async fn describe(
    client: &mut RawClient,
    version: i16,
    filter: &[(&str, i8, Option<&str>)],
    strict: bool,
) -> Result<DescribeClientQuotasResponse> {
    let components = filter.iter().map(|(kind, match_type, name)| {
        ComponentData::default()
            .with_entity_type(text(kind))
            .with_match_type(*match_type)
            .with_match(name.map(text))
    });
    let request = DescribeClientQuotasRequest::default()
        .with_components(components.collect())
        .with_strict(strict);
    client.call(version, &request).await
}

/// What a filter finds, as sorted lines.
async fn found(
    client: &mut RawClient,
    filter: &[(&str, i8, Option<&str>)],
    strict: bool,
) -> Result<Vec<String>> {
    let answer = describe(client, 1, filter, strict).await?;
    ensure!(answer.error_code == errors::NONE, "{}", answer.error_code);
    let mut lines = Vec::new();
    for entry in answer.entries.context("no entries")? {
        let mut words: Vec<String> = entry
            .entity
            .iter()
            .map(|part| match &part.entity_name {
                Some(name) => format!("{}={}", part.entity_type.as_str(), name.as_str()),
                None => format!("{} default", part.entity_type.as_str()),
            })
            .collect();
        words.sort();
        let mut limits: Vec<String> = entry
            .values
            .iter()
            .map(|value| format!("{}={}", value.key.as_str(), value.value))
            .collect();
        limits.sort();
        lines.push(format!("{}: {}", words.join(" "), limits.join(" ")));
    }
    lines.sort();
    Ok(lines)
}

#[tokio::test]
async fn quotas_are_set_found_by_their_entities_and_taken_away() -> Result<()> {
    let broker = Broker::start(BrokerOptions::default())?;
    let client = &mut RawClient::connect(&broker.bootstrap()).await?;
    let pair = &[("user", Some("u")), ("client-id", None)][..];
    let both = [
        ("producer_byte_rate", Some(1e6)),
        ("request_percentage", Some(250.5)),
    ];
    assert_eq!(alter(client, 0, pair, &both, true).await?, errors::NONE);
    assert!(found(client, &[], false).await?.is_empty(), "a dry run");
    assert_eq!(alter(client, 0, pair, &both, false).await?, errors::NONE);
    set(client, &[("user", Some("u"))], "consumer_byte_rate", 7.0).await?;
    set(client, &[("ip", None)], "connection_creation_rate", 9_000.0).await?;
    let of_pair = "client-id default user=u: producer_byte_rate=1000000 request_percentage=250.5";
    let of_user = "user=u: consumer_byte_rate=7";
    let of_ip = "ip default: connection_creation_rate=9000";
    assert_eq!(found(client, &[], false).await?, [of_pair, of_ip, of_user]);
    let user = [("user", EXACT, Some("u"))];
    assert_eq!(found(client, &user, false).await?, [of_pair, of_user]);
    assert_eq!(found(client, &user, true).await?, [of_user]);
    let pairs = [("user", ANY, None), ("client-id", DEFAULT, None)];
    assert_eq!(found(client, &pairs, true).await?, [of_pair]);
    let other = [("user", DEFAULT, None)];
    assert!(found(client, &other, false).await?.is_empty());
    let removed = [("producer_byte_rate", None), ("request_percentage", None)];
    assert_eq!(alter(client, 1, pair, &removed, false).await?, errors::NONE);
    assert_eq!(found(client, &user, false).await?, [of_user]);
    Ok(())
}

#[tokio::test]
async fn entities_limits_and_filters_that_make_no_sense_are_refused() -> Result<()> {
    let broker = Broker::start(BrokerOptions::default())?;
    let client = &mut RawClient::connect(&broker.bootstrap()).await?;
    let user = &[("user", Some("u"))][..];
    let refused: &[(Entity<'_>, &str, f64)] = &[
        (&[], "producer_byte_rate", 1.0),
        (&[("group", Some("g"))], "producer_byte_rate", 1.0),
        (&[("user", Some(""))], "producer_byte_rate", 1.0),
        (
            &[("ip", None), ("user", None)],
            "connection_creation_rate",
            1.0,
        ),
        (&[("ip", Some("10.0.0.1"))], "producer_byte_rate", 1.0),
        (user, "connection_creation_rate", 1.0),
        (user, "producer_byte_rate", 0.5),
        (user, "producer_byte_rate", 0.0),
        (user, "producer_byte_rate", -1.0),
        (user, "producer_rate", 1.0),
    ];
    for (entity, key, limit) in refused {
        let code = alter(client, 1, entity, &[(key, Some(*limit))], false).await?;
        assert_eq!(code, errors::INVALID_REQUEST, "{entity:?} {key}={limit}");
    }
    for (kind, match_type, name, code) in [
        ("user", EXACT, None, errors::INVALID_REQUEST),
        ("user", DEFAULT, Some("u"), errors::INVALID_REQUEST),
        ("user", ANY, Some("u"), errors::INVALID_REQUEST),
        ("user", 9, None, errors::INVALID_REQUEST),
        ("", ANY, None, errors::INVALID_REQUEST),
        ("group", ANY, None, errors::UNSUPPORTED_VERSION),
    ] {
        let answer = describe(client, 1, &[(kind, match_type, name)], false).await?;
        assert_eq!(answer.error_code, code, "{kind} {match_type} {name:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_producer_over_its_rate_is_answered_at_once_and_read_late() -> Result<()> {
    let broker = Broker::start(BrokerOptions::default())?;
    let client = &mut RawClient::connect(&broker.bootstrap()).await?;
    let admin = &mut RawClient::connect(&broker.bootstrap()).await?;
    let topic = create_topic(client, "over", 1, &[]).await?;
    let batch = TestBatch::of_values(0, [Bytes::from(vec![b'x'; 12_000])]).encode();
    let request = produce_request(9, &topic, -1, vec![(0, batch)]);
    let answer = client.call(9, &request).await?;
    assert_eq!(answer.throttle_time_ms, 0);
    // Half of it would be let through in ten seconds.
    set(admin, &[("user", None)], "producer_byte_rate", 1_000.0).await?;
    let asked = Instant::now();
    let answer = client.call(9, &request).await?;
    let throttle = Duration::from_millis(u64::try_from(answer.throttle_time_ms)?);
    assert!(asked.elapsed() < Duration::from_secs(1), "answered at once");
    assert_eq!(
        answer.responses[0].partition_responses[0].error_code,
        errors::NONE
    );
    // 12,100 bytes in ten seconds and what has gone of the eleventh; a rate of 1,000 needs 12.1 s.
    let expected = Duration::from_millis(900)..Duration::from_secs(4);
    assert!(expected.contains(&throttle), "{throttle:?}");
    // It doesn't heed it.
    client.call(9, &MetadataRequest::default()).await?;
    let waited = asked.elapsed();
    assert!(waited + Duration::from_millis(50) >= throttle, "{waited:?}");
    // Others aren't held back, and with the quota it ends.
    let removed = [("producer_byte_rate", None)];
    alter(admin, 1, &[("user", None)], &removed, false).await?;
    let answer = client.call(9, &request).await?;
    assert_eq!(answer.throttle_time_ms, 0);
    Ok(())
}

#[tokio::test]
async fn a_consumer_over_its_rate_gets_nothing_and_later_everything() -> Result<()> {
    let broker = Broker::start(BrokerOptions::default())?;
    let client = &mut RawClient::connect(&broker.bootstrap()).await?;
    let topic = create_topic(client, "over", 1, &[]).await?;
    let batch = TestBatch::of_values(0, [Bytes::from(vec![b'x'; 8_000])]).encode();
    let request = produce_request(9, &topic, -1, vec![(0, batch)]);
    client.call(9, &request).await?;
    let who = [("client-id", Some("raw-test-client"))];
    set(client, &who, "consumer_byte_rate", 1_000.0).await?;
    let fetch = fetch_request(11, &topic, &[(0, 0)]);
    let first = client.call(11, &fetch).await?;
    assert_eq!(first.throttle_time_ms, 0);
    assert!(
        fetched(first)[0]
            .records
            .as_ref()
            .is_some_and(|r| r.len() > 8_000)
    );
    let asked = Instant::now();
    let second = client.call(11, &fetch).await?;
    let throttle = u64::try_from(second.throttle_time_ms)?;
    assert!(throttle > 1_000, "{throttle} ms");
    assert_eq!(second.error_code, errors::NONE);
    assert!(fetched(second).is_empty());
    assert!(asked.elapsed() < Duration::from_secs(1));
    // Held back, then served: once the window has moved on.
    loop {
        let answer = client.call(11, &fetch).await?;
        let throttled = answer.throttle_time_ms > 0;
        if !throttled {
            assert_eq!(fetched(answer).len(), 1);
            break;
        }
        ensure!(asked.elapsed() < Duration::from_secs(40), "never served");
    }
    assert!(asked.elapsed() + Duration::from_millis(50) >= Duration::from_millis(throttle));
    Ok(())
}

#[tokio::test]
async fn busy_clients_are_held_back_by_the_time_their_requests_take() -> Result<()> {
    let broker = Broker::start(BrokerOptions::default())?;
    let client = &mut RawClient::connect(&broker.bootstrap()).await?;
    let who = [("user", Some("ANONYMOUS"))];
    set(client, &who, "request_percentage", 0.000_001).await?;
    let mut told = 0;
    for _ in 0..3 {
        let answer = client.call(9, &MetadataRequest::default()).await?;
        told = told.max(answer.throttle_time_ms);
    }
    assert!((1..=1_000).contains(&told), "{told} ms");
    Ok(())
}

#[tokio::test]
async fn creating_partitions_over_the_rate_is_refused_or_held_back_by_version() -> Result<()> {
    let broker = Broker::start(BrokerOptions::default())?;
    let client = &mut RawClient::connect(&broker.bootstrap()).await?;
    let who = [("user", None)];
    set(client, &who, "controller_mutation_rate", 1.0).await?;
    let create = |partitions| {
        let topic = CreatableTopic::default()
            .with_name(TopicName(text(&unique("many"))))
            .with_num_partitions(partitions)
            .with_replication_factor(1);
        CreateTopicsRequest::default()
            .with_topics(vec![topic])
            .with_timeout_ms(30_000)
    };
    // A burst, and what goes below zero.
    let first = client.call(7, &create(14)).await?;
    assert_eq!((first.topics[0].error_code, first.throttle_time_ms), (0, 0));
    let refused = client.call(7, &create(1)).await?;
    assert_eq!(refused.topics[0].error_code, THROTTLING_QUOTA_EXCEEDED);
    assert!(refused.throttle_time_ms > 0);
    let waits = refused.throttle_time_ms;
    assert!(waits <= 3_000, "{waits} ms");
    // This one is read after that time.
    let passes = client.call(7, &create(3)).await?;
    assert_eq!(passes.topics[0].error_code, errors::NONE);
    let held_back = client.call(5, &create(1)).await?;
    assert_eq!(held_back.topics[0].error_code, errors::NONE);
    assert!(held_back.throttle_time_ms > 0);
    Ok(())
}

#[tokio::test]
async fn an_address_that_connects_too_fast_is_closed_late_and_unanswered() -> Result<()> {
    let broker = Broker::start(BrokerOptions::default())?;
    let bootstrap = broker.bootstrap();
    let client = &mut RawClient::connect(&bootstrap).await?;
    let who = [("ip", Some("127.0.0.1"))];
    set(client, &who, "connection_creation_rate", 1.0).await?;
    let mut closed = 0;
    for _ in 0..30 {
        let other = &mut RawClient::connect(&bootstrap).await?;
        if other.call(9, &MetadataRequest::default()).await.is_err() {
            closed += 1;
            if closed == 2 {
                break;
            }
        }
    }
    assert_eq!(closed, 2);
    // Connections that were there before go on.
    client.call(9, &MetadataRequest::default()).await?;
    let removed = [("connection_creation_rate", None)];
    alter(client, 1, &who, &removed, false).await?;
    for _ in 0..20 {
        let other = &mut RawClient::connect(&bootstrap).await?;
        other.call(9, &MetadataRequest::default()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn nobody_has_scram_credentials_and_it_is_said_politely() -> Result<()> {
    let broker = Broker::start(BrokerOptions::default())?;
    let client = &mut RawClient::connect(&broker.bootstrap()).await?;
    let all = DescribeUserScramCredentialsRequest::default().with_users(None);
    let answer = client.call(0, &all).await?;
    assert_eq!((answer.error_code, answer.results.len()), (errors::NONE, 0));
    let user = UserName::default().with_name(text("u"));
    let one = DescribeUserScramCredentialsRequest::default().with_users(Some(vec![user]));
    let answer = client.call(0, &one).await?;
    assert_eq!(answer.error_code, errors::NONE);
    assert_eq!(answer.results[0].error_code, RESOURCE_NOT_FOUND);
    Ok(())
}
