//! How a broker is started: product, durability, store, settings.

use std::path::{Path, PathBuf};

use crate::credentials::CredentialService;

/// Which product a broker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The `tidegate` binary: `TIDEGATE_BIN`, else `target/debug/tidegate`.
    Tidegate,
    /// Apache Kafka, to prove an expectation.
    ApacheKafka,
}

impl Target {
    /// `TIDEGATE_TEST_TARGET`: `tidegate` (default) or `kafka`.
    pub fn from_environment() -> Self {
        match std::env::var("TIDEGATE_TEST_TARGET").as_deref() {
            Ok("kafka") => Self::ApacheKafka,
            _ => Self::Tidegate,
        }
    }
}

/// The broker's default durability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Acknowledged from the local disk.
    Local,
    /// Acknowledged from object storage.
    Object,
}

impl Durability {
    pub(crate) fn flag(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Object => "object",
        }
    }
}

/// Where the broker keeps its objects.
#[derive(Debug, Clone)]
pub enum Store {
    /// A folder in the data dir: the embedded default.
    Folder,
    /// A bucket and prefix of an S3 server, reached through `endpoint` (host:port).
    S3 {
        /// The server itself or a fault proxy before it.
        endpoint: String,
        /// Bucket name.
        bucket: String,
        /// Prefix within the bucket.
        prefix: String,
    },
}

/// A setting that a test turns, with its name in either product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// How long committed offsets of an empty group are kept, in minutes.
    OffsetsRetentionMinutes,
    /// How often expired offsets are looked for, in milliseconds.
    OffsetsRetentionCheckIntervalMs,
    /// How long a new group waits for more members, in milliseconds.
    GroupInitialRebalanceDelayMs,
    /// Whether Metadata creates topics, `true` or `false`.
    AutoCreateTopics,
    /// Partitions of a topic created with −1.
    DefaultPartitions,
    /// Biggest request frame in bytes.
    MaxRequestBytes,
    /// Not-yet-uploaded bytes at which an object is cut.
    UploadSizeBytes,
    /// Age at which not-yet-uploaded records are cut into an object, in milliseconds.
    UploadAgeMs,
    /// How often the retention of topics is looked at, in milliseconds.
    RetentionCheckMs,
    /// How often partitions that are due for compaction are looked for, in milliseconds.
    CompactionCheckMs,
    /// Bytes below which a partition isn't worth compacting.
    CompactionMinDirtyBytes,
    /// Bytes of local disk that the WAL may take.
    WalCapacityBytes,
    /// Bytes of one WAL file.
    WalFileBytes,
    /// Whether the controller evens out load by itself, `true` or `false`.
    Balance,
    /// Partitions of `__consumer_offsets`.
    OffsetsPartitions,
    /// Partitions of `__transaction_state`.
    TransactionStatePartitions,
}

impl Setting {
    pub(crate) fn kafka_property(self) -> Option<&'static str> {
        Some(match self {
            Self::OffsetsRetentionMinutes => "offsets.retention.minutes",
            Self::OffsetsRetentionCheckIntervalMs => "offsets.retention.check.interval.ms",
            Self::GroupInitialRebalanceDelayMs => "group.initial.rebalance.delay.ms",
            Self::AutoCreateTopics => "auto.create.topics.enable",
            Self::DefaultPartitions => "num.partitions",
            Self::MaxRequestBytes => "socket.request.max.bytes",
            Self::RetentionCheckMs => "log.retention.check.interval.ms",
            Self::CompactionCheckMs => "log.cleaner.backoff.ms",
            Self::OffsetsPartitions => "offsets.topic.num.partitions",
            Self::TransactionStatePartitions => "transaction.state.log.num.partitions",
            Self::UploadSizeBytes
            | Self::UploadAgeMs
            | Self::CompactionMinDirtyBytes
            | Self::WalCapacityBytes
            | Self::WalFileBytes
            | Self::Balance => return None,
        })
    }

    /// The environment variable and the text for a value in the setting's own unit.
    pub(crate) fn tidegate_variable(self, value: &str) -> (&'static str, String) {
        let (name, unit) = match self {
            Self::OffsetsRetentionMinutes => ("TIDEGATE_GROUPS_OFFSETS_RETENTION", "m"),
            Self::OffsetsRetentionCheckIntervalMs => {
                ("TIDEGATE_GROUPS_OFFSETS_RETENTION_CHECK", "ms")
            }
            Self::GroupInitialRebalanceDelayMs => ("TIDEGATE_GROUPS_INITIAL_REBALANCE_DELAY", "ms"),
            Self::AutoCreateTopics => ("TIDEGATE_TOPICS_AUTO_CREATE", ""),
            Self::DefaultPartitions => ("TIDEGATE_TOPICS_DEFAULT_PARTITIONS", ""),
            Self::MaxRequestBytes => ("TIDEGATE_KAFKA_MAX_REQUEST_BYTES", ""),
            Self::UploadSizeBytes => ("TIDEGATE_UPLOAD_SIZE_BYTES", ""),
            Self::UploadAgeMs => ("TIDEGATE_UPLOAD_AGE", "ms"),
            Self::RetentionCheckMs => ("TIDEGATE_TOPICS_RETENTION_CHECK", "ms"),
            Self::CompactionCheckMs => ("TIDEGATE_COMPACTION_CHECK", "ms"),
            Self::CompactionMinDirtyBytes => ("TIDEGATE_COMPACTION_MIN_DIRTY_BYTES", ""),
            Self::WalCapacityBytes => ("TIDEGATE_WAL_CAPACITY_BYTES", ""),
            Self::WalFileBytes => ("TIDEGATE_WAL_FILE_BYTES", ""),
            Self::Balance => ("TIDEGATE_CLUSTER_BALANCE", ""),
            Self::OffsetsPartitions => ("TIDEGATE_GROUPS_OFFSETS_PARTITIONS", ""),
            Self::TransactionStatePartitions => ("TIDEGATE_TRANSACTIONS_STATE_PARTITIONS", ""),
        };
        (name, format!("{value}{unit}"))
    }
}

/// How a broker is started.
#[derive(Debug, Clone)]
pub struct BrokerOptions {
    pub(crate) target: Target,
    pub(crate) durability: Durability,
    pub(crate) store: Store,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) broker_id: Option<u32>,
    pub(crate) settings: Vec<(Setting, String)>,
    pub(crate) credentials: Option<Vec<(String, String)>>,
}

impl Default for BrokerOptions {
    fn default() -> Self {
        Self {
            target: Target::from_environment(),
            durability: Durability::Local,
            store: Store::Folder,
            data_dir: None,
            broker_id: Some(1),
            settings: vec![(Setting::GroupInitialRebalanceDelayMs, "0".into())],
            credentials: None,
        }
    }
}

impl BrokerOptions {
    /// The default durability of topics.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// The object store.
    pub fn store(mut self, store: Store) -> Self {
        self.store = store;
        self
    }

    /// Credentials for the store from a service instead of the environment.
    pub fn credentials(mut self, service: &CredentialService) -> Self {
        self.credentials = Some(service.client_environment());
        self
    }

    /// A data dir of the test's choice (a small file system, say).
    pub fn data_dir(mut self, data_dir: &Path) -> Self {
        self.data_dir = Some(data_dir.to_owned());
        self
    }

    /// The broker's number; `None` lets the cluster assign one.
    pub fn broker_id(mut self, id: Option<u32>) -> Self {
        self.broker_id = id;
        self
    }

    /// Turns one setting.
    pub fn set(mut self, setting: Setting, value: impl ToString) -> Self {
        self.settings.retain(|(known, _)| *known != setting);
        self.settings.push((setting, value.to_string()));
        self
    }

    /// This product, whatever the environment says: for tests of what Kafka hasn't got.
    pub fn tidegate_only(mut self) -> Self {
        self.target = Target::Tidegate;
        self
    }
}
