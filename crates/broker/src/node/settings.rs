//! Everything a broker process needs to know to start.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_metadata::Endpoint;
use tidegate_object_storage::{StoreOptions, StoreUrl};
use tidegate_partition_log::UploadLimits;
use tidegate_types::BrokerId;

use crate::broker::BrokerOptions;
use crate::compaction::CompactionSettings;
use crate::network::NetworkLimits;

/// The local WAL's limits, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct WalSettings {
    pub file_bytes: u64,
    /// What may lie on the disk before uploads free it.
    pub capacity_bytes: u64,
    /// What may wait to become durable.
    pub pending_bytes: u64,
}

/// The object WAL's limits.
#[derive(Debug, Clone, Copy)]
pub struct ObjectWalSettings {
    /// An object is sent when it holds so many bytes.
    pub object_bytes: u64,
    /// The longest a record waits for others while objects are on their way.
    pub linger: Duration,
    /// Objects on their way at once.
    pub in_flight: usize,
    /// What may wait to become durable, in bytes.
    pub pending_bytes: u64,
    /// How often the written objects are committed to metadata.
    pub commit_interval: Duration,
}

/// How the memory budget is shared, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct MemorySettings {
    /// Newest batches, for tail readers and uploads.
    pub tail_bytes: u64,
    /// Blocks read from object storage.
    pub block_cache_bytes: u64,
    /// Indexes of objects.
    pub index_cache_bytes: u64,
    /// Reads from object storage under way.
    pub catch_up_bytes: u64,
}

/// Times and switches of the cluster.
#[derive(Debug, Clone, Copy)]
pub struct ClusterSettings {
    /// A controller that doesn't renew its lease for so long is replaced.
    pub lease: Duration,
    /// A broker that isn't heard for so long is taken for dead.
    pub session_timeout: Duration,
    /// The controller evens out load by itself.
    pub balance: bool,
}

/// The settings of one broker process.
#[derive(Debug, Clone)]
pub struct NodeSettings {
    /// `None`: the one that the data folder keeps, or one that the cluster gives.
    pub broker_id: Option<BrokerId>,
    pub rack: Option<String>,
    pub data_dir: PathBuf,
    pub store: StoreUrl,
    pub store_options: StoreOptions,
    pub kafka_listen: SocketAddr,
    /// `None`: the address listened on.
    pub kafka_advertise: Option<Endpoint>,
    pub internal_listen: SocketAddr,
    /// `None`: the address listened on, or the host that clients are told.
    pub internal_advertise: Option<Endpoint>,
    pub cluster: ClusterSettings,
    pub network: NetworkLimits,
    pub broker: BrokerOptions,
    pub wal: WalSettings,
    pub object_wal: ObjectWalSettings,
    pub upload: UploadLimits,
    pub memory: MemorySettings,
    pub producer_expiration: Duration,
    pub retention_check: Duration,
    pub compaction: CompactionSettings,
    /// How long an object stays after its last reference was dropped (invariant I3).
    pub delete_grace: Duration,
    /// Lead also what is known to be incomplete, and report what is lost.
    pub accept_loss: bool,
}
