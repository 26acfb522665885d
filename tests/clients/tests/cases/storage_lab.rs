//! A broker behind a fault proxy before a real S3 server, and numbered records.

use std::time::Duration;

use anyhow::{Result, ensure};
use bytes::Bytes;
use tidegate_harness::{
    Broker, BrokerOptions, Durability, FaultProxy, RawClient, S3Request, S3Server, Store, TestBatch,
};

use crate::ops::{Topic, produce_ok, read_all};
use crate::support::now_ms;

pub(crate) const BUCKET: &str = "tidegate";
pub(crate) const PREFIX: &str = "cluster";

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
pub(crate) fn is_data(request: &S3Request) -> bool {
    ["data", "segments"]
        .iter()
        .any(|kind| request.key.starts_with(&format!("{PREFIX}/{kind}/")))
}

pub(crate) fn numbered(number: usize) -> Bytes {
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
