//! What values mean together.

use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};

use tidegate_object_storage::StoreUrl;

use super::memory::MemoryShares;
use super::read::Reader;
use super::sections::Memory;
use super::value::{ByteSize, Setting};
use super::{Config, TOPIC_DEFAULTS};

/// What a WAL file must hold beside one batch: its own header and the entry's.
const WAL_ENTRY_ROOM: u64 = 64 << 10;

/// Shares the memory budget and notes the shares.
pub fn memory(
    reader: &mut Reader<'_>,
    section: &Memory,
    available_bytes: Option<u64>,
) -> Option<MemoryShares> {
    match MemoryShares::new(section, available_bytes) {
        Ok(shares) => {
            for (key, bytes) in [
                ("memory.total_bytes", shares.total),
                ("memory.tail_bytes", shares.tail),
                ("memory.block_cache_bytes", shares.block_cache),
                ("memory.catch_up_bytes", shares.catch_up),
                ("memory.request_bytes", shares.request),
                ("memory.index_cache_bytes", shares.index_cache),
                ("memory.compaction_bytes", shares.compaction),
            ] {
                reader.resolve(key, ByteSize(bytes).show());
            }
            Some(shares)
        }
        Err(error) => {
            reader.refuse("memory.total_bytes", error.refusal);
            None
        }
    }
}

/// Checks what no single value shows, and notes what `auto` stands for.
pub fn together(reader: &mut Reader<'_>, config: &Config) {
    listeners(reader, config);
    store(reader, config);
    wal(reader, config);
    at_most(
        reader,
        ("store.first_backoff", config.store.first_backoff),
        ("store.max_backoff", config.store.max_backoff),
    );
    at_most(
        reader,
        ("store.first_probe", config.store.first_probe),
        ("store.max_probe", config.store.max_probe),
    );
    for (section, attempt, total) in [
        (
            "store.wal",
            config.store_wal.attempt_timeout,
            config.store_wal.total_timeout,
        ),
        (
            "store.read",
            config.store_read.attempt_timeout,
            config.store_read.total_timeout,
        ),
        (
            "store.background",
            config.store_background.attempt_timeout,
            config.store_background.total_timeout,
        ),
    ] {
        let (attempt_key, total_key) = (
            format!("{section}.attempt_timeout"),
            format!("{section}.total_timeout"),
        );
        at_most(reader, (&attempt_key, attempt), (&total_key, total));
    }
    let (kafka, groups) = (&config.kafka, &config.groups);
    at_most(
        reader,
        ("groups.min_session_timeout", groups.min_session_timeout),
        ("groups.max_session_timeout", groups.max_session_timeout),
    );
    at_most(
        reader,
        ("object_wal.object_bytes", config.object_wal.object_bytes),
        ("object_wal.pending_bytes", config.object_wal.pending_bytes),
    );
    at_most(
        reader,
        ("kafka.first_reserve_bytes", kafka.first_reserve_bytes),
        ("kafka.trusted_reserve_bytes", kafka.trusted_reserve_bytes),
    );
    let upload = &config.upload;
    match upload.own_object_bytes {
        Some(own) => at_most(
            reader,
            ("upload.own_object_bytes", own),
            ("upload.size_bytes", upload.size_bytes),
        ),
        None => reader.resolve("upload.own_object_bytes", config.own_object_bytes().show()),
    }
}

fn at_most<T: Setting + PartialOrd>(
    reader: &mut Reader<'_>,
    (key, value): (&str, T),
    (limit_key, limit): (&str, T),
) {
    if value > limit {
        reader.refuse(
            key,
            format!(
                "is more than {limit_key} = {:?}: lower it, or raise {limit_key}",
                limit.show()
            ),
        );
    }
}

fn listeners(reader: &mut Reader<'_>, config: &Config) {
    let kafka = config.kafka.listen;
    match &config.kafka.advertise {
        Some(_) => {}
        None if kafka.ip().is_unspecified() => reader.refuse(
            "kafka.listen",
            "listens on every address, and clients must be told one that they can reach: set kafka.advertise \
             (--kafka-advertise host:port)"
                .to_owned(),
        ),
        None => reader.resolve("kafka.advertise", kafka.to_string()),
    }
    let (admin, internal) = (config.admin.listen, config.internal.listen);
    for (key, address, other_key, other) in [
        ("admin.listen", admin, "kafka.listen", kafka),
        ("internal.listen", internal, "kafka.listen", kafka),
        ("internal.listen", internal, "admin.listen", admin),
    ] {
        if overlap(address, other) {
            reader.refuse(
                key,
                format!("takes the port of {other_key} = \"{other}\": give each listener its own"),
            );
        }
    }
}

fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    a.port() == b.port()
        && a.port() != 0
        && (a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified())
}

fn store(reader: &mut Reader<'_>, config: &Config) {
    if config.store.url.is_none() {
        reader.resolve("store.url", config.store_url().show());
    }
    let data_dir = plain(&config.top.data_dir);
    if let StoreUrl::Folder(folder) = config.store_url()
        && data_dir.starts_with(plain(&folder))
    {
        reader.refuse(
            "store.url",
            format!(
                "holds the data folder {}: the store's folder must be another one, or one inside of it",
                config.top.data_dir.display()
            ),
        );
    }
}

/// The path without `.` parts, so that `./data` and `data` are the same.
fn plain(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute
        .components()
        .filter(|part| !matches!(part, Component::CurDir))
        .collect()
}

fn wal(reader: &mut Reader<'_>, config: &Config) {
    let wal = &config.wal;
    let file = wal.file_bytes.bytes();
    if !file.is_multiple_of(4096) {
        reader.refuse(
            "wal.file_bytes",
            "isn't a multiple of 4096: write one, as 64MiB".to_owned(),
        );
    }
    if wal.capacity_bytes.bytes() / 2 < file {
        let least = ByteSize(file.saturating_mul(2)).show();
        reader.refuse(
            "wal.capacity_bytes",
            format!("holds less than two files of wal.file_bytes: write at least {least}"),
        );
    }
    let largest = config
        .topic_defaults
        .get("max.message.bytes")
        .and_then(|text| text.parse::<u64>().ok());
    let largest = largest.unwrap_or(1 << 20);
    let key = format!("{TOPIC_DEFAULTS}max.message.bytes");
    for (limit_key, limit) in [
        (
            "wal.file_bytes",
            file.saturating_sub(file.min(WAL_ENTRY_ROOM) / 2),
        ),
        ("wal.pending_bytes", wal.pending_bytes.bytes()),
        (
            "object_wal.pending_bytes",
            config.object_wal.pending_bytes.bytes(),
        ),
        (
            "kafka.max_request_bytes",
            config.kafka.max_request_bytes.bytes(),
        ),
    ] {
        if largest > limit {
            let (culprit, remedy) = if reader.is_set(limit_key) {
                (limit_key, "raise it")
            } else {
                (&*key, "lower it")
            };
            let other = if culprit == limit_key {
                &*key
            } else {
                limit_key
            };
            reader.refuse(
                culprit,
                format!(
                    "doesn't go with {other}: a record batch of {largest} bytes must fit; {remedy}"
                ),
            );
        }
    }
}

impl Config {
    /// What waits of one partition when it gets an object of its own.
    pub fn own_object_bytes(&self) -> ByteSize {
        let upload = &self.upload;
        upload
            .own_object_bytes
            .unwrap_or(ByteSize(upload.size_bytes.bytes() / 2))
    }

    /// The store: the one that is set, or the folder `store` in the data folder.
    pub fn store_url(&self) -> StoreUrl {
        self.store
            .url
            .clone()
            .unwrap_or_else(|| StoreUrl::Folder(self.top.data_dir.join("store")))
    }
}
