//! A full disk under the WAL.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use tidegate_harness::{Action, BrokerOptions, Durability, Setting, TestBatch};

use crate::ops::{create_topic, fetch, list_offset, produce, read_all, topic_metadata};
use crate::storage_lab::{Lab, is_data};
use crate::support::{errors, is_kafka, now_ms};

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
