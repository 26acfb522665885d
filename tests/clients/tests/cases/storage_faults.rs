//! A store that can't be used: what is wrong is said, nothing is acknowledged, and it heals by itself.
//!
//! Of O-ST-03 (a), two skewed answers in a row are among the retried faults in `storage.rs`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tidegate_harness::{
    Action, BrokerOptions, CredentialService, Durability, Operation, TestBatch, wait_for,
};

use crate::ops::{create_topic, produce, produce_ok, read_all};
use crate::storage_lab::{BUCKET, Lab, expect_numbered, numbered, produce_numbered};
use crate::support::{errors, is_kafka, now_ms};

/// O-ST-03 (c): the broker lives, says what is wrong, doesn't spin, and heals.
fn unusable_then_healed(
    lab: &mut Lab,
    cause: &[&str],
    heal: impl FnOnce(&Lab) -> Result<()>,
) -> Result<()> {
    lab.broker.launch()?;
    wait_for("the liveness page", Duration::from_secs(5), || {
        lab.broker.is_alive().then_some(())
    })?;
    std::thread::sleep(Duration::from_secs(3));
    lab.broker.process()?.check_alive()?;
    ensure!(!lab.broker.is_ready(), "ready without its store");
    let log = lab.broker.log();
    let told = log.lines().any(|line| {
        line.contains(BUCKET) && cause.iter().any(|word| line.to_lowercase().contains(word))
    });
    ensure!(
        told,
        "no line of the log names bucket and cause ({cause:?})"
    );
    assert_eq!(
        lab.broker.metric("tidegate_object_store_accessible")?,
        Some(0.0)
    );

    let before = lab.broker.process()?.cpu_time()?;
    std::thread::sleep(Duration::from_secs(5));
    let used = lab.broker.process()?.cpu_time()?.saturating_sub(before);
    ensure!(
        used < Duration::from_millis(500),
        "{used:?} of CPU in 5 s of waiting"
    );

    heal(lab)?;
    lab.broker.wait_ready(Duration::from_secs(60))?;
    assert_eq!(
        lab.broker.metric("tidegate_object_store_accessible")?,
        Some(1.0)
    );
    Ok(())
}

/// O-ST-03 (c).
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_missing_bucket_is_named_and_waited_for() -> Result<()> {
    if is_kafka() {
        return Ok(());
    }
    let mut lab = Lab::prepare(Durability::Object, BrokerOptions::default())?;
    lab.s3.hide_bucket(BUCKET)?;
    unusable_then_healed(
        &mut lab,
        &[
            "no such bucket",
            "nosuchbucket",
            "does not exist",
            "missing",
        ],
        |lab| lab.s3.restore_bucket(BUCKET),
    )?;
    let mut client = lab.connect().await?;
    let topic = create_topic(&mut client, "healed", 1, &[]).await?;
    produce_numbered(&mut client, &topic, 10).await?;
    expect_numbered(&mut client, &topic, 10).await
}

/// O-ST-03 (c).
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_bucket_that_refuses_is_named_and_waited_for() -> Result<()> {
    if is_kafka() {
        return Ok(());
    }
    let mut lab = Lab::prepare(Durability::Object, BrokerOptions::default())?;
    let rule = lab.proxy.add(Action::DENIED, |_| true);
    unusable_then_healed(&mut lab, &["denied", "forbidden", "refused"], |lab| {
        lab.proxy.remove(rule);
        Ok(())
    })?;
    let mut client = lab.connect().await?;
    let topic = create_topic(&mut client, "healed", 1, &[]).await?;
    produce_numbered(&mut client, &topic, 10).await
}

/// O-ST-03 (a).
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_skewed_clock_is_measured_logged_and_shown_until_it_is_right_again() -> Result<()> {
    if is_kafka() {
        return Ok(());
    }
    let lab = Lab::start(Durability::Object)?;
    let mut client = lab.connect().await?;
    let topic = create_topic(&mut client, "skewed", 1, &[]).await?;
    produce_numbered(&mut client, &topic, 3).await?;
    assert_eq!(clock_skew_ms(&lab), Some(0.0), "one machine, one clock");

    let wrong = Action::WrongClock {
        date: "Sun, 06 Nov 1994 08:49:37 GMT",
    };
    let rule = lab.proxy.add(wrong, |_| true);
    // No answer comes while the store refuses: nothing is acknowledged.
    let waiting = produce(&mut client, 9, &topic, 0, numbered(3));
    ensure!(
        tokio::time::timeout(Duration::from_secs(3), waiting)
            .await
            .is_err(),
        "answered although no signature is accepted"
    );
    let skew = clock_skew_ms(&lab).context("no skew is shown")?;
    let is_of_1994 = |skew: f64| (skew - (784_111_777_000_i64 - now_ms()) as f64).abs() < 60_000.0;
    ensure!(is_of_1994(skew), "the skew is shown as {skew} ms");
    let log = lab.broker.log();
    let told = log.lines().find_map(|line| {
        let (_, skew) = line.split_once("clock_skew_ms=")?;
        line.contains("clock_skew")
            .then_some(skew.split(' ').next())
    });
    let told = told.flatten().context("the log doesn't name the skew")?;
    ensure!(is_of_1994(told.parse()?), "the log names {told} ms");

    lab.proxy.remove(rule);
    wait_for("the clock to be right", Duration::from_secs(30), || {
        let accessible = lab.broker.metric("tidegate_object_store_accessible");
        (clock_skew_ms(&lab) == Some(0.0) && accessible.ok()? == Some(1.0)).then_some(())
    })?;
    let mut client = lab.connect().await?;
    assert_eq!(produce_ok(&mut client, &topic, 0, numbered(4)).await?, 4);
    assert_eq!(read_all(&mut client, &topic, 0).await?.len(), 5);
    Ok(())
}

fn clock_skew_ms(lab: &Lab) -> Option<f64> {
    let name = "tidegate_object_store_clock_skew_milliseconds";
    lab.broker.metric(name).ok().flatten()
}

/// O-ST-03 (b), with a life of five seconds instead of a minute. The client asks a container's credential service; the
/// other services it knows share the code that decides when to ask again, but want HTTPS or fixed addresses.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn credentials_are_renewed_before_they_expire_and_expired_ones_are_waited_out() -> Result<()>
{
    if is_kafka() {
        return Ok(());
    }
    let lifetime = Duration::from_secs(5);
    let service = CredentialService::start(lifetime)?;
    let options = BrokerOptions::default().credentials(&service);
    let mut lab = Lab::prepare(Durability::Object, options)?;
    let expired = service.expired();
    let refused = lab.proxy.add(Action::EXPIRED_TOKEN, move |_| expired());
    lab.broker.launch()?;
    lab.broker.wait_ready(Duration::from_secs(30))?;
    let mut client = lab.connect().await?;
    let topic = create_topic(&mut client, "renewed", 1, &[]).await?;
    let start = Instant::now();
    let mut next = 0;
    while start.elapsed() < 5 * lifetime {
        let offset = produce_ok(&mut client, &topic, 0, numbered(next)).await?;
        assert_eq!(offset, i64::try_from(next)?);
        next += 1;
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    ensure!(service.handed_out() >= 5, "{}", service.handed_out());
    assert_eq!(
        lab.proxy.uses(refused),
        0,
        "requests with expired credentials"
    );

    service.renew(false);
    tokio::time::sleep(lifetime).await;
    let waiting = produce(&mut client, 9, &topic, 0, numbered(next));
    ensure!(
        tokio::time::timeout(Duration::from_secs(3), waiting)
            .await
            .is_err(),
        "answered although no credentials are valid"
    );
    ensure!(!lab.broker.is_ready(), "ready with expired credentials");
    ensure!(
        lab.broker.log().contains("credentials_expired"),
        "the log doesn't name the cause"
    );

    service.renew(true);
    lab.broker.wait_ready(Duration::from_secs(30))?;
    let mut client = lab.connect().await?;
    let offset = produce_ok(&mut client, &topic, 0, numbered(next + 1)).await?;
    assert_eq!(
        offset,
        i64::try_from(next + 1)?,
        "the waiting one is stored"
    );
    expect_numbered(&mut client, &topic, next + 2).await
}

/// A wrong prefix of a bucket looks like an empty store: it must not become a second cluster. A store that gives no
/// answer isn't empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_clusters_data_folder_waits_for_a_faulty_store_and_refuses_an_empty_one() -> Result<()> {
    if is_kafka() {
        return Ok(());
    }
    let mut lab = Lab::start(Durability::Local)?;
    let patience = Duration::from_secs(30);
    let topic = create_topic(&mut lab.connect().await?, "mine", 1, &[]).await?;
    produce_numbered(&mut lab.connect().await?, &topic, 10).await?;

    lab.broker.stop(patience)?;
    let denied = lab.proxy.add(Action::DENIED, |request| {
        request.operation == Operation::List
    });
    lab.broker.launch()?;
    wait_for("a listing", patience, || {
        (lab.proxy.uses(denied) > 1).then_some(())
    })?;
    lab.broker.process()?.check_alive()?;
    ensure!(!lab.broker.is_ready(), "ready without knowing its store");
    lab.proxy.remove(denied);
    lab.broker.wait_ready(patience)?;
    expect_numbered(&mut lab.connect().await?, &topic, 10).await?;

    lab.broker.stop(patience)?;
    let before = lab.proxy.requests().len();
    let empty = Action::HideFromListing(Arc::new(|_| true));
    let rule = lab
        .proxy
        .add(empty, |request| request.operation == Operation::List);
    lab.broker.launch()?;
    let status = wait_for("the end of the process", patience, || {
        lab.broker.process().ok()?.exit_status()
    })?;
    assert_eq!(status.code(), Some(1));
    let log = lab.broker.log();
    ensure!(
        log.contains("belongs to cluster") && log.contains("s3://tidegate/cluster is empty"),
        "{log}"
    );
    let requests = lab.proxy.requests();
    let written = requests[before..]
        .iter()
        .find(|logged| logged.request.operation != Operation::List);
    ensure!(written.is_none(), "more than a look: {written:?}");

    lab.proxy.remove(rule);
    lab.broker.launch()?;
    lab.broker.wait_ready(patience)?;
    expect_numbered(&mut lab.connect().await?, &topic, 10).await
}

/// O-ST-03 (d).
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_bucket_deleted_under_a_running_broker_stops_acknowledging_until_it_is_back() -> Result<()>
{
    if is_kafka() {
        return Ok(());
    }
    let mut lab = Lab::start(Durability::Object)?;
    let mut client = lab.connect().await?;
    let topic = create_topic(&mut client, "orphaned", 1, &[]).await?;
    produce_numbered(&mut client, &topic, 20).await?;

    lab.s3.hide_bucket(BUCKET)?;
    let value = || TestBatch::of_values(now_ms(), ["while away"]).encode();
    let deadline = Instant::now() + Duration::from_secs(8);
    while Instant::now() < deadline {
        let mut writer = lab.connect().await?;
        // No answer at all within two seconds is allowed; an acknowledgement isn't.
        let waiting = tokio::time::timeout(
            Duration::from_secs(2),
            produce(&mut writer, 9, &topic, 0, value()),
        );
        if let Ok(answer) = waiting.await {
            let code = answer?.error_code;
            ensure!(
                [6, 7, 56, 89].contains(&code),
                "produce answered {code} without a bucket"
            );
        }
    }
    wait_for("the gauge to flip", Duration::from_secs(15), || {
        (lab.broker
            .metric("tidegate_object_store_accessible")
            .ok()
            .flatten()
            == Some(0.0))
        .then_some(())
    })?;
    lab.broker.process()?.check_alive()?;

    lab.s3.restore_bucket(BUCKET)?;
    wait_for("the gauge to flip back", Duration::from_secs(30), || {
        (lab.broker
            .metric("tidegate_object_store_accessible")
            .ok()
            .flatten()
            == Some(1.0))
        .then_some(())
    })?;
    let deadline = Instant::now() + Duration::from_secs(30);
    let offset = loop {
        let answer = produce(&mut client, 9, &topic, 0, value()).await?;
        if answer.error_code == errors::NONE {
            break answer.base_offset;
        }
        ensure!(
            Instant::now() < deadline,
            "production didn't resume: {}",
            answer.error_code
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    let stored = read_all(&mut client, &topic, 0).await?;
    ensure!(
        stored.iter().any(|record| record.offset == offset),
        "the acknowledged record is missing"
    );
    for (number, record) in stored.iter().enumerate() {
        assert_eq!(record.offset, i64::try_from(number)?, "offsets are dense");
    }
    Ok(())
}
