//! A store that throttles, loses replies, or lists what isn't there. None of it is about Kafka, so these
//! run against this product only.
//!
//! Of O-ST-02, multipart uploads (a, b, d) can't go wrong here because there are none: that is a test too.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use tidegate_harness::{
    Action, BrokerOptions, Durability, Operation, Setting, TestBatch, wait_for,
};

use crate::ops::{create_topic, fetch, produce, produce_ok, read_all};
use crate::storage_lab::{
    BUCKET, Lab, PREFIX, expect_numbered, is_data, numbered, produce_numbered,
};
use crate::support::{errors, is_kafka, now_ms};

/// How long the store throttles everything in O-ST-01.
const OUTAGE: Duration = Duration::from_secs(60);

/// O-ST-01 (1)–(3). Both modes recover at the same time, which saves a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_store_that_throttles_during_recovery_delays_the_start_and_loses_nothing() -> Result<()> {
    if is_kafka() {
        return Ok(());
    }
    let mut labs = Vec::new();
    for durability in [Durability::Local, Durability::Object] {
        let mut lab = Lab::start(durability)?;
        let mut client = lab.connect().await?;
        let topic = create_topic(&mut client, "throttled", 1, &[]).await?;
        produce_numbered(&mut client, &topic, 100).await?;
        lab.broker.kill()?;
        let throttle = lab.proxy.add(Action::SLOW_DOWN, |_| true);
        lab.broker.launch()?;
        wait_for("the liveness page", Duration::from_secs(5), || {
            lab.broker.is_alive().then_some(())
        })?;
        labs.push((durability, lab, topic, throttle));
    }
    let start = Instant::now();
    while start.elapsed() < OUTAGE {
        for (durability, lab, _, _) in &mut labs {
            lab.broker.process()?.check_alive()?;
            ensure!(lab.broker.is_alive(), "{durability:?}: liveness went away");
            ensure!(
                !lab.broker.is_ready(),
                "{durability:?}: ready without its store"
            );
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    for (durability, lab, topic, throttle) in &mut labs {
        let requests = lab.proxy.requests();
        let between = |from: Duration, to: Duration| {
            let window = start + from..start + to;
            requests
                .iter()
                .filter(|logged| window.contains(&logged.at))
                .count()
        };
        let part = OUTAGE / 6;
        let (early, late) = (
            between(Duration::ZERO, part),
            between(OUTAGE - part, OUTAGE),
        );
        ensure!(lab.proxy.uses(*throttle) > 0, "the store was never asked");
        ensure!(
            late <= early.max(10) && late < 200,
            "{durability:?}: {early} requests in {part:?}, later {late}: no back-off"
        );
        lab.proxy.remove(*throttle);
        lab.broker.wait_ready(Duration::from_secs(60))?;
        expect_numbered(&mut lab.connect().await?, topic, 100).await?;
    }
    Ok(())
}

/// O-ST-01 (4).
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_store_that_throttles_a_producer_delays_or_refuses_and_never_loses_what_it_acknowledged()
-> Result<()> {
    if is_kafka() {
        return Ok(());
    }
    let lab = Lab::start(Durability::Object)?;
    let mut client = lab.connect().await?;
    let topic = create_topic(&mut client, "throttled", 1, &[]).await?;
    let throttle = lab.proxy.add(Action::SLOW_DOWN, |_| true);
    let start = Instant::now();
    let unthrottle_at = start + OUTAGE;
    let mut throttled = true;
    let mut acknowledged = Vec::new();
    let mut number = 0_usize;
    while start.elapsed() < 2 * OUTAGE && acknowledged.len() < 50 {
        let value = format!("try-{number}").into_bytes();
        number += 1;
        let batch = TestBatch::of_values(now_ms(), [value.clone()]).encode();
        // The throttling ends while a produce may be waiting: both are driven by this one task.
        let answer = tokio::select! {
            answer = produce(&mut client, 9, &topic, 0, batch) => answer?,
            () = tokio::time::sleep_until(unthrottle_at.into()), if throttled => {
                throttled = false;
                lab.proxy.remove(throttle);
                client = lab.connect().await?;
                continue;
            }
        };
        match answer.error_code {
            errors::NONE => acknowledged.push((answer.base_offset, value)),
            // REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR, THROTTLING_QUOTA_EXCEEDED, NOT_LEADER_OR_FOLLOWER: retriable.
            6 | 7 | 56 | 89 => tokio::time::sleep(Duration::from_millis(100)).await,
            code => anyhow::bail!("produce answered {code}, which isn't retriable"),
        }
    }
    ensure!(
        !throttled && !acknowledged.is_empty(),
        "production never resumed"
    );
    let stored = read_all(&mut client, &topic, 0).await?;
    for (offset, value) in acknowledged {
        let record = stored.iter().find(|record| record.offset == offset);
        ensure!(
            record.is_some_and(|record| record.value.as_deref() == Some(&value[..])),
            "offset {offset} is lost"
        );
    }
    Ok(())
}

/// O-ST-02 (c), and the lost reply of one's own write.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_conflict_or_a_lost_reply_on_a_create_only_put_is_no_failure() -> Result<()> {
    if is_kafka() {
        return Ok(());
    }
    for action in [
        Action::CONFLICT,
        Action::DropReply,
        Action::Reset,
        Action::CLOCK_SKEW,
    ] {
        let mut lab = Lab::start(Durability::Object)?;
        let mut client = lab.connect().await?;
        let topic = create_topic(&mut client, "retried", 1, &[]).await?;
        let shown = format!("{action:?}");
        let rule = lab.proxy.add_times(2, action, |request| {
            is_data(request) && request.operation == Operation::Put
        });
        produce_numbered(&mut client, &topic, 20)
            .await
            .context(shown.clone())?;
        ensure!(
            lab.proxy.uses(rule) == 2,
            "{shown}: the fault never happened"
        );
        ensure!(
            lab.proxy
                .requests()
                .iter()
                .all(|logged| !is_data(&logged.request)
                    || logged.request.operation != Operation::Put
                    || logged.request.create_only),
            "a data object was written without If-None-Match"
        );
        lab.broker.process()?.check_alive()?;
        lab.broker.kill()?;
        lab.broker.wipe_data_dir()?;
        lab.broker.launch()?;
        lab.broker.wait_ready(Duration::from_secs(60))?;
        expect_numbered(&mut lab.connect().await?, &topic, 20)
            .await
            .context(shown)?;
    }
    Ok(())
}

/// O-ST-02 (a), (b), (d): no multipart upload, so none is left half-finished.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn objects_are_written_by_one_put_each() -> Result<()> {
    if is_kafka() {
        return Ok(());
    }
    let options = BrokerOptions::default().set(Setting::UploadAgeMs, 500);
    let mut lab = Lab::prepare(Durability::Local, options)?;
    lab.broker.launch()?;
    lab.broker.wait_ready(Duration::from_secs(30))?;
    let mut client = lab.connect().await?;
    let topic = create_topic(&mut client, "large", 1, &[]).await?;
    for _ in 0..40 {
        let batch = TestBatch::of_values(now_ms(), [Bytes::from(vec![3_u8; 900_000])]).encode();
        produce_ok(&mut client, &topic, 0, batch).await?;
    }
    wait_for("the data to be uploaded", Duration::from_secs(30), || {
        let uploaded: usize = lab
            .proxy
            .requests()
            .iter()
            .filter(|logged| is_data(&logged.request) && logged.request.operation == Operation::Put)
            .map(|logged| logged.request.body_bytes)
            .sum();
        (uploaded >= 36_000_000).then_some(())
    })?;
    let multipart = lab
        .proxy
        .requests()
        .iter()
        .any(|logged| logged.request.operation == Operation::CreateMultipart);
    ensure!(!multipart, "a multipart upload was begun");
    Ok(())
}

/// O-ST-05 (a), (b): far more objects than a listing's page, and the newest hidden from listings.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn recovery_finds_every_object_though_listings_are_paged_and_stale() -> Result<()> {
    if is_kafka() {
        return Ok(());
    }
    let mut lab = Lab::start(Durability::Object)?;
    let mut client = lab.connect().await?;
    let topic = create_topic(&mut client, "listed", 1, &[]).await?;
    produce_numbered(&mut client, &topic, 2_500).await?;
    lab.broker.kill()?;
    lab.broker.wipe_data_dir()?;
    let keys = lab.s3.keys(BUCKET, &format!("{PREFIX}/data/"))?;
    ensure!(keys.len() > 3, "only {} objects", keys.len());
    let newest: Vec<String> = keys[keys.len() - 3..].to_vec();
    let stale = Action::HideFromListing(Arc::new(move |key| {
        newest.iter().any(|hidden| key == hidden)
    }));
    lab.proxy
        .add(stale, |request| request.operation == Operation::List);
    lab.broker.launch()?;
    lab.broker.wait_ready(Duration::from_secs(60))?;
    let mut client = lab.connect().await?;
    expect_numbered(&mut client, &topic, 2_500).await?;
    assert_eq!(
        produce_ok(&mut client, &topic, 0, numbered(2_500)).await?,
        2_500,
        "the next offset"
    );
    Ok(())
}

/// O-ST-05 (c).
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_object_that_cannot_be_read_never_becomes_a_hole() -> Result<()> {
    if is_kafka() {
        return Ok(());
    }
    let mut lab = Lab::start(Durability::Object)?;
    let mut client = lab.connect().await?;
    let topic = create_topic(&mut client, "hole", 1, &[]).await?;
    produce_numbered(&mut client, &topic, 300).await?;
    lab.broker.kill()?;
    lab.broker.wipe_data_dir()?;
    let gone = Action::Answer {
        status: 404,
        code: "NoSuchKey",
    };
    let rule = lab.proxy.add(gone, |request| {
        is_data(request) && request.operation == Operation::Get
    });
    lab.broker.launch()?;
    // It may refuse to be ready, or be ready and refuse the partition; it may not skip.
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        lab.broker.process()?.check_alive()?;
        if let Ok(mut client) = lab.connect().await
            && let Ok(Ok(data)) =
                tokio::time::timeout(Duration::from_secs(2), fetch(&mut client, 11, &topic, 0, 0))
                    .await
        {
            let bytes = data.records.as_ref().map_or(0, Bytes::len);
            ensure!(bytes == 0, "records came although no object can be read");
            ensure!(
                data.error_code != errors::NONE || data.high_watermark == 300,
                "the partition pretends to end at {}",
                data.high_watermark
            );
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    lab.proxy.remove(rule);
    lab.broker.wait_ready(Duration::from_secs(60))?;
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let read = expect_numbered(&mut lab.connect().await?, &topic, 300).await;
        match read {
            Ok(()) => return Ok(()),
            Err(error) => ensure!(Instant::now() < deadline, "not healed: {error:#}"),
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
