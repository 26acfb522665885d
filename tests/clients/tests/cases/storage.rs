//! A store that throttles, loses replies, or lists what isn't there; a full disk. None of it is about Kafka, so these
//! run against this product only.
//!
//! Of O-ST-02, multipart uploads (a, b, d) can't go wrong here because there are none: that is a test too.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use tidegate_harness::{
    Action, Broker, BrokerOptions, Durability, FaultProxy, Operation, RawClient, S3Request,
    S3Server, Setting, Store, TestBatch, wait_for,
};

use crate::ops::{
    Topic, create_topic, fetch, list_offset, produce, produce_ok, read_all, topic_metadata,
};
use crate::support::{errors, is_kafka, now_ms};

pub(crate) const BUCKET: &str = "tidegate";
const PREFIX: &str = "cluster";

/// A broker behind a fault proxy before a real S3 server.
pub(crate) struct Lab {
    pub(crate) broker: Broker,
    pub(crate) proxy: FaultProxy,
    pub(crate) s3: S3Server,
}

impl Lab {
    /// Bucket made, broker not yet started.
    pub(crate) fn prepare(durability: Durability, options: BrokerOptions) -> Result<Self> {
        let s3 = S3Server::start_with_bucket(BUCKET)?;
        let proxy = FaultProxy::start(&s3.address())?;
        let store = Store::S3 {
            endpoint: proxy.address(),
            bucket: BUCKET.into(),
            prefix: PREFIX.into(),
        };
        let broker = Broker::prepare(options.tidegate_only().durability(durability).store(store))?;
        Ok(Self { broker, proxy, s3 })
    }

    /// A running broker.
    pub(crate) fn start(durability: Durability) -> Result<Self> {
        let mut lab = Self::prepare(durability, BrokerOptions::default())?;
        lab.broker.launch()?;
        lab.broker.wait_ready(Duration::from_secs(30))?;
        Ok(lab)
    }

    pub(crate) async fn connect(&self) -> Result<RawClient> {
        RawClient::connect(&self.broker.bootstrap()).await
    }
}

/// Whether a request is about records (and not about metadata): objects of the object WAL, or uploaded ones.
fn is_data(request: &S3Request) -> bool {
    ["data", "segments"]
        .iter()
        .any(|kind| request.key.starts_with(&format!("{PREFIX}/{kind}/")))
}

fn numbered(number: usize) -> Bytes {
    TestBatch::of_values(now_ms(), [format!("record-{number:06}").into_bytes()]).encode()
}

/// Produces `count` numbered records one by one.
pub(crate) async fn produce_numbered(
    client: &mut RawClient,
    topic: &Topic,
    count: usize,
) -> Result<()> {
    for number in 0..count {
        let offset = produce_ok(client, topic, 0, numbered(number)).await?;
        ensure!(
            offset == i64::try_from(number)?,
            "record {number} got offset {offset}"
        );
    }
    Ok(())
}

/// Reads the partition and expects exactly the numbered records, each at its offset.
pub(crate) async fn expect_numbered(
    client: &mut RawClient,
    topic: &Topic,
    count: usize,
) -> Result<()> {
    let records = read_all(client, topic, 0).await?;
    ensure!(
        records.len() == count,
        "{} records instead of {count}",
        records.len()
    );
    for (number, record) in records.iter().enumerate() {
        ensure!(
            record.offset == i64::try_from(number)?,
            "offset {} where {number} was due",
            record.offset
        );
        let value = record.value.as_deref().unwrap_or_default();
        ensure!(
            value == format!("record-{number:06}").as_bytes(),
            "a wrong record at {number}"
        );
    }
    Ok(())
}

/// O-ST-01 (1)–(3).
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_store_that_throttles_during_recovery_delays_the_start_and_loses_nothing() -> Result<()> {
    if is_kafka() {
        return Ok(());
    }
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
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(20) {
            lab.broker.process()?.check_alive()?;
            ensure!(lab.broker.is_alive(), "{durability:?}: liveness went away");
            ensure!(
                !lab.broker.is_ready(),
                "{durability:?}: ready without its store"
            );
            std::thread::sleep(Duration::from_millis(500));
        }
        let requests = lab.proxy.requests();
        let between = |from: u64, to: u64| {
            let window = start + Duration::from_secs(from)..start + Duration::from_secs(to);
            requests
                .iter()
                .filter(|logged| window.contains(&logged.at))
                .count()
        };
        let (early, late) = (between(0, 5), between(15, 20));
        ensure!(lab.proxy.uses(throttle) > 0, "the store was never asked");
        ensure!(
            late <= early.max(5) && late < 100,
            "{durability:?}: {early} requests in 5 s, later {late}: no back-off"
        );

        lab.proxy.remove(throttle);
        lab.broker.wait_ready(Duration::from_secs(60))?;
        expect_numbered(&mut lab.connect().await?, &topic, 100).await?;
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
    let unthrottle_at = start + Duration::from_secs(15);
    let mut throttled = true;
    let mut acknowledged = Vec::new();
    let mut number = 0_usize;
    while start.elapsed() < Duration::from_secs(30) && acknowledged.len() < 50 {
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

/// A file system of 64 MiB, when we may mount one.
struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    fn mount() -> Result<Option<Self>> {
        let folder = tempfile::tempdir()?;
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=64m", "tmpfs"])
            .arg(folder.path());
        Ok(mount.output()?.status.success().then_some(Self { folder }))
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazy: the broker may still be ending.
        let _ = Command::new("umount")
            .arg("-l")
            .arg(self.folder.path())
            .status();
    }
}

/// O-ST-04. On a 64 MiB file system where one may be mounted (root), else with a WAL capacity of 48 MiB.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_full_wal_disk_refuses_writes_retriably_and_resumes_by_itself() -> Result<()> {
    if is_kafka() {
        return Ok(());
    }
    let disk = SmallDisk::mount()?;
    let options = BrokerOptions::default().set(Setting::WalFileBytes, 8 << 20);
    let options = match &disk {
        Some(disk) => options.data_dir(&disk.path().join("data")),
        None => options.set(Setting::WalCapacityBytes, 48 << 20),
    };
    let mut lab = Lab::prepare(Durability::Local, options)?;
    lab.broker.launch()?;
    lab.broker.wait_ready(Duration::from_secs(30))?;
    let mut client = lab.connect().await?;
    let topic = create_topic(&mut client, "full", 1, &[]).await?;
    let blocked = lab.proxy.add(Action::SLOW_DOWN, |request| {
        is_data(request) && request.operation.is_upload()
    });

    let batch = || TestBatch::of_values(now_ms(), [Bytes::from(vec![5_u8; 900_000])]).encode();
    let mut acknowledged = Vec::new();
    let refusal = loop {
        ensure!(acknowledged.len() < 200, "200 MB fit on a disk of 64 MiB");
        let mut writer = lab.connect().await?;
        let answer = produce(&mut writer, 9, &topic, 0, batch()).await?;
        if answer.error_code != errors::NONE {
            break answer.error_code;
        }
        acknowledged.push(answer.base_offset);
    };
    ensure!(
        acknowledged.len() >= 10,
        "refused after {} MB already",
        acknowledged.len()
    );
    ensure!([7, 56].contains(&refusal), "refused with {refusal}");
    lab.broker.process()?.check_alive()?;

    // Reads and admin calls go on.
    let data = fetch(&mut client, 11, &topic, 0, 0).await?;
    ensure!(
        data.error_code == errors::NONE && data.records.is_some_and(|records| !records.is_empty()),
        "no reads"
    );
    let end = list_offset(&mut client, 7, &topic, 0, -1).await?;
    assert_eq!(
        (end.error_code, end.offset),
        (errors::NONE, i64::try_from(acknowledged.len())?)
    );
    assert_eq!(
        topic_metadata(&mut client, &topic.name).await?.error_code,
        errors::NONE
    );

    lab.proxy.remove(blocked);
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let answer = produce(&mut client, 9, &topic, 0, batch()).await?;
        if answer.error_code == errors::NONE {
            break;
        }
        ensure!(
            Instant::now() < deadline,
            "production didn't resume: {}",
            answer.error_code
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let stored = read_all(&mut client, &topic, 0).await?;
    ensure!(
        stored.len() > acknowledged.len(),
        "{} of {} records",
        stored.len(),
        acknowledged.len()
    );
    for (number, record) in stored.iter().enumerate() {
        assert_eq!(record.offset, i64::try_from(number)?);
    }
    Ok(())
}
