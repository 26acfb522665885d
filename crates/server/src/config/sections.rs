//! The sections and their keys. What stands here is the whole configuration: the structs, the table of keys, the
//! reference page and the checks of single values are made from it.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_broker::MigrationPolicy;
use tidegate_object_storage::StoreUrl;
use tidegate_types::{BrokerId, DurabilityMode};

use super::keys::Key;
use super::read::Reader;
use super::value::{ByteSize, HostPort, LogFilter, LogFormat, Secret, Setting};

macro_rules! optional {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}

/// Makes a section's struct, its part of the table of keys and its reader from one list.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $section:ident($prefix:literal) {
            $(
                $(#[doc = $doc:literal])+
                $field:ident: $type:ty = $default:literal
                $(, range $least:literal to $most:literal)? $(, flag $flag:literal)? ;
            )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone)]
        pub struct $section {
            $( $(#[doc = $doc])+ pub $field: $type, )+
        }

        impl $section {
            pub(super) const KEYS: &[Key] = &[$( Key {
                name: Cow::Borrowed(concat!($prefix, stringify!($field))),
                kind: Cow::Borrowed(<$type as Setting>::KIND),
                bare: <$type as Setting>::BARE,
                default: Cow::Borrowed($default),
                range: optional!($( ($least, $most) )?),
                flag: optional!($( $flag )?),
                doc: Cow::Borrowed(concat!($( $doc, "\n" ),+)),
            } ),+];

            pub(super) fn read(reader: &mut Reader<'_>) -> Option<Self> {
                let mut keys = Self::KEYS.iter();
                // All keys are read before the first that is wrong ends it, so that all errors are told.
                $( let $field = keys.next().and_then(|key| reader.read::<$type>(key)); )+
                Some(Self { $( $field: $field?, )+ })
            }
        }
    };
}

section! {
    /// Keys outside of sections.
    Top("") {
        /// The folder of this broker's own files: its identity and the local write-ahead log. One process at a
        /// time uses it.
        data_dir: PathBuf = "./tidegate-data", flag "--data-dir";
        /// What must have stored a record before it is acknowledged, for topics that don't say
        /// (`tidegate.durability`): `local`, this broker's disk, synced; or `object`, object storage.
        durability: DurabilityMode = "local", flag "--durability";
        /// Serve also partitions of which acknowledged records are known to be lost with a broker's disk, and
        /// log what is lost. Leave it off unless the disk is gone for good.
        accept_loss: bool = "false", flag "--accept-loss";
        /// How long a stop in order may take: finish what was accepted, upload, sign off. What is left then
        /// stays in the write-ahead log for the next start.
        stop_timeout: Duration = "25s", range "1s" to "1h";
    }
}

section! {
    /// Who this broker is.
    BrokerSection("broker.") {
        /// This broker's number in the cluster. `auto`: the one its data folder keeps, or a free one that the
        /// cluster gives it.
        id: Option<BrokerId> = "auto", flag "--broker-id";
        /// The rack or zone it runs in: placements are spread over racks; empty for none.
        rack: String = "", flag "--rack";
    }
}

section! {
    /// The listener for Kafka clients, and its limits.
    Kafka("kafka.") {
        /// The address for Kafka clients.
        listen: SocketAddr = "127.0.0.1:9092", flag "--kafka-listen";
        /// The host and port that clients are told to connect to. `auto`: the address listened on, which must
        /// then be a real one.
        advertise: Option<HostPort> = "auto", flag "--kafka-advertise";
        /// Connections at once; further ones are closed at once.
        max_connections: usize = "10000", range "1" to "1000000";
        /// The largest request.
        max_request_bytes: ByteSize = "100MiB", range "64KiB" to "1GiB";
        /// The most memory that one request may take once it is decoded, beyond its own bytes.
        max_decoded_bytes: ByteSize = "64MiB", range "1MiB" to "1GiB";
        /// The most a fetch answers, whatever it asks for.
        fetch_max_bytes: ByteSize = "55MiB", range "64KiB" to "1GiB";
        /// Reserved at most for a request of which nothing has arrived yet.
        first_reserve_bytes: ByteSize = "64KiB", range "1KiB" to "16MiB";
        /// The same on a connection that has sent good requests before.
        trusted_reserve_bytes: ByteSize = "1MiB", range "1KiB" to "64MiB";
        /// The buffer that every connection keeps for small requests.
        staging_bytes: ByteSize = "4KiB", range "512" to "1MiB";
        /// Requests of one connection that are handled at once; answers keep their order.
        max_pipelined: usize = "64", range "1" to "10000";
        /// A connection without a request for so long is closed.
        idle_timeout: Duration = "10m", range "1s" to "30d";
        /// A request that has begun must arrive whole within this time.
        request_timeout: Duration = "30s", range "1s" to "1h";
        /// How long a produce request waits for room in the write-ahead log before it is refused, for the
        /// client to try again.
        back_pressure_wait: Duration = "10s", range "0s" to "10m";
    }
}

section! {
    /// The HTTP listener for operators.
    Admin("admin.") {
        /// The address of the admin API: the cluster's administration, health, readiness and metrics.
        listen: SocketAddr = "127.0.0.1:9640", flag "--admin-listen";
        /// The bearer token that everything under `/v1` asks for; empty: nobody is asked for one. Set it in the file
        /// or the environment, not where others can read it.
        token: Secret = "";
    }
}

section! {
    /// The listener for other brokers.
    Internal("internal.") {
        /// The address for the other brokers of the cluster.
        listen: SocketAddr = "127.0.0.1:9641", flag "--internal-listen";
        /// The host and port at which other brokers reach this one. `auto`: the address listened on, or, where
        /// that means all addresses, the host that Kafka clients are told.
        advertise: Option<HostPort> = "auto", flag "--internal-advertise";
    }
}

section! {
    /// Being one of several brokers: all those that are given the same store.
    Cluster("cluster.") {
        /// A controller that doesn't renew its lease for so long is replaced by another broker.
        lease: Duration = "2s", range "500ms" to "1m";
        /// A broker that isn't heard for so long is taken for dead: its `object` partitions go to others, its
        /// `local` ones wait for it.
        session_timeout: Duration = "2s", range "500ms" to "5m";
        /// The controller evens out the load of the brokers by itself.
        balance: bool = "true";
    }
}

section! {
    /// The object store, the only durable home of all data. Credentials and endpoint come from the standard
    /// variables (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, …).
    Store("store.") {
        /// Where it is: a folder, `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` or
        /// `memory:///` (gone with the process, for tests). `auto`: the folder `store` in the data folder.
        url: Option<StoreUrl> = "auto", flag "--store";
        /// The most requests at once. Throttling lowers the limit that is in force, success raises it again.
        max_requests: usize = "256", range "1" to "10000";
        /// How long a connection may take to be made.
        connect_timeout: Duration = "3s", range "100ms" to "10m";
        /// The wait before the second attempt of a request; it doubles from attempt to attempt, with jitter.
        first_backoff: Duration = "50ms", range "1ms" to "1m";
        /// The longest wait between two attempts.
        max_backoff: Duration = "5s", range "1ms" to "10m";
        /// How long requests must have failed to reach the store before it counts as inaccessible.
        unreachable_after: Duration = "1s", range "0s" to "10m";
        /// The first wait between two probes of an inaccessible store; it doubles.
        first_probe: Duration = "1s", range "10ms" to "10m";
        /// The longest wait between two probes of an inaccessible store.
        max_probe: Duration = "5s", range "10ms" to "1h";
        /// Leave uploaded bytes out of the request's signature. They have checksums of their own. `false` for
        /// stores that insist on signed contents.
        unsigned_payload: bool = "true";
    }
}

section! {
    /// Requests to the store that a producer waits for.
    StoreWal("store.wal.") {
        /// What one attempt may take, beside moving its bytes.
        attempt_timeout: Duration = "3s", range "10ms" to "1h";
        /// The slowest rate a second at which moving the bytes counts as going on.
        min_bytes_per_second: ByteSize = "2MiB", range "1KiB" to "1TiB";
        /// All attempts of one request together.
        total_timeout: Duration = "10s", range "10ms" to "1d";
    }
}

section! {
    /// Requests to the store that a consumer waits for.
    StoreRead("store.read.") {
        /// What one attempt may take, beside moving its bytes.
        attempt_timeout: Duration = "5s", range "10ms" to "1h";
        /// The slowest rate a second at which moving the bytes counts as going on.
        min_bytes_per_second: ByteSize = "2MiB", range "1KiB" to "1TiB";
        /// All attempts of one request together.
        total_timeout: Duration = "20s", range "10ms" to "1d";
    }
}

section! {
    /// Requests to the store that nobody waits for: uploads, deletes.
    StoreBackground("store.background.") {
        /// What one attempt may take, beside moving its bytes.
        attempt_timeout: Duration = "15s", range "10ms" to "1h";
        /// The slowest rate a second at which moving the bytes counts as going on.
        min_bytes_per_second: ByteSize = "512KiB", range "1KiB" to "1TiB";
        /// All attempts of one request together.
        total_timeout: Duration = "3m", range "10ms" to "1d";
    }
}

section! {
    /// The write-ahead log on the local disk, for topics whose durability is `local`.
    Wal("wal.") {
        /// The length of each file. Files are kept and written again.
        file_bytes: ByteSize = "64MiB", range "16KiB" to "4GiB";
        /// The most disk that all files together take: what may wait to be uploaded. When it is full, producers
        /// wait and are then told to try again.
        capacity_bytes: ByteSize = "1GiB", range "32KiB" to "1TiB";
        /// The most memory that records waiting for their sync take.
        pending_bytes: ByteSize = "32MiB", range "64KiB" to "4GiB";
    }
}

section! {
    /// The write-ahead log in object storage, for topics whose durability is `object`.
    ObjectWal("object_wal.") {
        /// An object is sent when it holds so many bytes.
        object_bytes: ByteSize = "4MiB", range "4KiB" to "256MiB";
        /// The longest that a record waits for others while objects are on their way. It adapts: with few
        /// records it is shorter.
        linger: Duration = "50ms", range "5ms" to "10s";
        /// Objects on their way at once.
        in_flight: usize = "8", range "1" to "256";
        /// The most memory that records take which aren't stored yet.
        pending_bytes: ByteSize = "32MiB", range "64KiB" to "4GiB";
        /// How often stored objects are committed to the metadata. A start after a crash reads those that
        /// weren't.
        commit_interval: Duration = "1s", range "10ms" to "1m";
    }
}

section! {
    /// Uploads of what the local write-ahead log holds.
    Upload("upload.") {
        /// An upload is due when so many bytes wait, over all partitions.
        size_bytes: ByteSize = "16MiB", range "4KiB" to "1GiB";
        /// A partition with so many waiting bytes gets an object of its own. `auto`: half of `size_bytes`.
        own_object_bytes: Option<ByteSize> = "auto", range "4KiB" to "1GiB";
        /// An upload is due when bytes have waited for so long.
        age: Duration = "10s", range "100ms" to "1d";
        /// Uploads at once.
        in_flight: usize = "3", range "1" to "64";
        /// The size of an object's blocks, the unit of reading and of the block cache.
        block_bytes: ByteSize = "256KiB", range "4KiB" to "16MiB";
    }
}

section! {
    /// One memory budget, and how it is shared. The shares that aren't set follow from the total.
    Memory("memory.") {
        /// What the process should take at most, 40 MiB for itself included. `auto`: half of the memory of the
        /// container or the machine, at most 256 MiB.
        total_bytes: Option<ByteSize> = "auto", range "64MiB" to "1TiB";
        /// The newest records, for consumers at the end of the log and for uploads. `auto`: 10/27 of the rest.
        tail_bytes: Option<ByteSize> = "auto", range "1MiB" to "1TiB";
        /// Blocks read from object storage. `auto`: 2/9 of the rest.
        block_cache_bytes: Option<ByteSize> = "auto", range "1MiB" to "1TiB";
        /// Reads from object storage under way, for consumers that catch up. `auto`: 4/27 of the rest.
        catch_up_bytes: Option<ByteSize> = "auto", range "1MiB" to "1TiB";
        /// Requests of clients that are read or handled; connections wait when it is used up. `auto`: 4/27 of
        /// the rest.
        request_bytes: Option<ByteSize> = "auto", range "1MiB" to "1TiB";
        /// Indexes of objects. `auto`: 1/27 of the rest.
        index_cache_bytes: Option<ByteSize> = "auto", range "512KiB" to "1TiB";
        /// Compaction by key. Half of it is the map of keys, 24 bytes each: a log with more changed keys needs
        /// several passes. `auto`: 2/27 of the rest.
        compaction_bytes: Option<ByteSize> = "auto", range "512KiB" to "1TiB";
    }
}

section! {
    /// Topics.
    Topics("topics.") {
        /// Create topics that a client asks for and that don't exist (`auto.create.topics.enable`).
        auto_create: bool = "true";
        /// Partitions of topics that don't say (`num.partitions`).
        default_partitions: u32 = "1", range "1" to "10000";
        /// Replication factor of topics that don't say (`default.replication.factor`). It is kept and shown;
        /// object storage does the replication.
        default_replication_factor: u16 = "1", range "1" to "32767";
        /// How often the retention of topics is looked at.
        retention_check: Duration = "1m", range "100ms" to "1d";
        /// How long an object stays in the store after the last reference to it is gone.
        delete_grace: Duration = "10m", range "0s" to "365d";
        /// How long the sequence numbers of an idempotent producer that is silent are kept.
        producer_expiration: Duration = "1d", range "1s" to "3650d";
    }
}

section! {
    /// Compaction by key of topics with `compact` in their `cleanup.policy`, the internal ones among them.
    Compaction("compaction.") {
        /// How often partitions that are due are looked for (`log.cleaner.backoff.ms`).
        check: Duration = "15s", range "100ms" to "1d";
        /// The most that is read from the store in a second (`log.cleaner.io.max.bytes.per.second`).
        bytes_per_second: ByteSize = "64MiB", range "1KiB" to "1TiB";
        /// A partition with fewer uncompacted bytes waits, unless they lie in many objects or a topic's
        /// `segment.bytes` is less.
        min_dirty_bytes: ByteSize = "1MiB", range "1KiB" to "1TiB";
    }
}

section! {
    /// Consumer groups.
    Groups("groups.") {
        /// Partitions of `__consumer_offsets`, when it is created (`offsets.topic.num.partitions`).
        offsets_partitions: u32 = "50", range "1" to "10000";
        /// How long committed offsets of a group without members are kept (`offsets.retention.minutes`).
        offsets_retention: Duration = "7d", range "1m" to "3650d";
        /// How often expired offsets are looked for (`offsets.retention.check.interval.ms`).
        offsets_retention_check: Duration = "10m", range "100ms" to "1d";
        /// How long a commit of offsets may take to become durable (`offsets.commit.timeout.ms`).
        commit_timeout: Duration = "5s", range "100ms" to "5m";
        /// The longest metadata of a committed offset, in characters (`offset.metadata.max.bytes`).
        max_offset_metadata: usize = "4096", range "0" to "1000000";
        /// How long a new group waits for more members (`group.initial.rebalance.delay.ms`).
        initial_rebalance_delay: Duration = "3s", range "0s" to "10m";
        /// The shortest session timeout that members may ask for (`group.min.session.timeout.ms`).
        min_session_timeout: Duration = "6s", range "1ms" to "1d";
        /// The longest session timeout that members may ask for (`group.max.session.timeout.ms`).
        max_session_timeout: Duration = "30m", range "1ms" to "1d";
        /// How long a new member may wait for its group.
        new_member_timeout: Duration = "5m", range "1s" to "1h";
        /// Members of a group (`group.max.size`).
        max_members: usize = "100000", range "1" to "1000000";
        /// Members of a group that were given an id and haven't come back with it.
        max_pending_members: usize = "10000", range "1" to "1000000";
        /// What one member may tell the group about itself.
        max_member_bytes: ByteSize = "1MiB", range "1KiB" to "64MiB";
        /// How long a member of the consumer protocol may be silent (`group.consumer.session.timeout.ms`).
        consumer_session_timeout: Duration = "45s", range "1ms" to "1d";
        /// How often members of the consumer protocol are told to send heartbeats
        /// (`group.consumer.heartbeat.interval.ms`).
        consumer_heartbeat_interval: Duration = "5s", range "1ms" to "1h";
        /// Members of a group of the consumer protocol (`group.consumer.max.size`).
        consumer_max_members: usize = "100000", range "1" to "1000000";
        /// Which groups may change between the classic and the consumer protocol while they have members
        /// (`group.consumer.migration.policy`).
        consumer_migration: MigrationPolicy = "bidirectional";
        /// Groups in each partition of `__consumer_offsets`.
        max_groups: usize = "100000", range "1" to "10000000";
        /// Changes of a partition's groups that may wait to become durable.
        max_pending_appends: usize = "10000", range "1" to "1000000";
    }
}

section! {
    /// Transactions.
    Transactions("transactions.") {
        /// Partitions of `__transaction_state`, when it is created (`transaction.state.log.num.partitions`).
        state_partitions: u32 = "50", range "1" to "10000";
        /// The longest time-out that producers may ask for (`transaction.max.timeout.ms`).
        max_timeout: Duration = "15m", range "1ms" to "20d";
        /// How long a transactional id that isn't used is kept (`transactional.id.expiration.ms`).
        id_expiration: Duration = "7d", range "1ms" to "3650d";
        /// How often expired ids are looked for (`transaction.remove.expired.transaction.cleanup.interval.ms`).
        expiration_check: Duration = "1h", range "100ms" to "1d";
        /// Transactional ids in each partition of `__transaction_state`.
        max_ids: usize = "100000", range "1" to "10000000";
        /// Changes of a partition's transactions that may wait to become durable.
        max_pending_appends: usize = "10000", range "1" to "1000000";
    }
}

section! {
    /// The log of what the broker does, on standard error.
    Log("log.") {
        /// `text` for people, `json` for machines: one object a line.
        format: LogFormat = "text", flag "--log-format";
        /// `error`, `warn`, `info`, `debug` or `trace`, or directives such as `info,tidegate_wal=debug`.
        level: LogFilter = "info", flag "--log-level";
    }
}
