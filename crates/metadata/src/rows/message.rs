//! The protobuf messages behind the rows. Field numbers are for ever.

use prost::Message;
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Message)]
pub struct Cluster {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(uint32, tag = "2")]
    pub format: u32,
    #[prost(int64, tag = "3")]
    pub created_at_ms: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct ControllerEpoch {
    #[prost(uint64, tag = "1")]
    pub epoch: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub instance: Vec<u8>,
    #[prost(uint32, tag = "3")]
    pub broker: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct ProducerIds {
    #[prost(int64, tag = "1")]
    pub next: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Endpoint {
    #[prost(string, tag = "1")]
    pub host: String,
    #[prost(uint32, tag = "2")]
    pub port: u32,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Writer {
    #[prost(uint64, tag = "1")]
    pub broker_epoch: u64,
    #[prost(uint64, tag = "2")]
    pub next_wal_sequence: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Broker {
    #[prost(uint64, tag = "1")]
    pub broker_epoch: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub incarnation: Vec<u8>,
    #[prost(message, optional, tag = "3")]
    pub kafka: Option<Endpoint>,
    #[prost(message, optional, tag = "4")]
    pub internal: Option<Endpoint>,
    #[prost(string, optional, tag = "5")]
    pub rack: Option<String>,
    #[prost(message, optional, tag = "6")]
    pub writer: Option<Writer>,
    #[prost(bytes = "vec", optional, tag = "7")]
    pub wal: Option<Vec<u8>>,
    #[prost(bool, tag = "8")]
    pub draining: bool,
    #[prost(bool, tag = "9")]
    pub unregistered: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Configs {
    #[prost(btree_map = "string, string", tag = "1")]
    pub configs: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Quotas {
    #[prost(btree_map = "string, double", tag = "1")]
    pub limits: BTreeMap<String, f64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Topic {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(btree_map = "string, string", tag = "2")]
    pub configs: BTreeMap<String, String>,
    #[prost(uint32, tag = "3")]
    pub partition_count: u32,
    #[prost(uint32, tag = "4")]
    pub replication_factor: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct DeletedTopic {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(int64, tag = "2")]
    pub deleted_at_ms: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct EpochStart {
    #[prost(uint32, tag = "1")]
    pub epoch: u32,
    #[prost(uint64, tag = "2")]
    pub start: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Checkpoint {
    #[prost(string, tag = "1")]
    pub object: String,
    #[prost(uint64, tag = "2")]
    pub position: u64,
    #[prost(uint64, tag = "3")]
    pub length: u64,
    #[prost(uint64, tag = "4")]
    pub as_of: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Target {
    #[prost(uint32, tag = "1")]
    pub to: u32,
    #[prost(uint32, repeated, tag = "2")]
    pub placement: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Partition {
    #[prost(uint32, optional, tag = "1")]
    pub leader: Option<u32>,
    #[prost(uint32, tag = "2")]
    pub leader_epoch: u32,
    #[prost(message, repeated, tag = "3")]
    pub epochs: Vec<EpochStart>,
    #[prost(uint32, repeated, tag = "4")]
    pub placement: Vec<u32>,
    #[prost(uint64, tag = "5")]
    pub log_start: u64,
    #[prost(uint64, tag = "6")]
    pub committed_end: u64,
    #[prost(message, optional, tag = "7")]
    pub checkpoint: Option<Checkpoint>,
    #[prost(uint64, tag = "8")]
    pub segment_count: u64,
    #[prost(uint64, tag = "9")]
    pub segment_bytes: u64,
    #[prost(bool, tag = "10")]
    pub trim_pending: bool,
    #[prost(bytes = "vec", optional, tag = "11")]
    pub wal: Option<Vec<u8>>,
    #[prost(message, optional, tag = "12")]
    pub target: Option<Target>,
    #[prost(uint64, tag = "13")]
    pub cleaned_end: u64,
    #[prost(uint64, tag = "14")]
    pub swaps: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Segment {
    #[prost(uint64, tag = "1")]
    pub start: u64,
    #[prost(uint32, tag = "2")]
    pub leader_epoch: u32,
    #[prost(string, tag = "3")]
    pub object: String,
    #[prost(uint64, tag = "4")]
    pub position: u64,
    #[prost(uint64, tag = "5")]
    pub length: u64,
    #[prost(uint64, tag = "6")]
    pub index_position: u64,
    #[prost(uint64, tag = "7")]
    pub index_length: u64,
    #[prost(sint64, tag = "8")]
    pub max_timestamp_ms: i64,
    #[prost(uint64, tag = "9")]
    pub record_count: u64,
    #[prost(sint64, tag = "10")]
    pub committed_at_ms: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Object {
    #[prost(uint64, tag = "1")]
    pub size_bytes: u64,
    #[prost(uint64, tag = "2")]
    pub references: u64,
    #[prost(int64, optional, tag = "3")]
    pub dropped_at_ms: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Dropped {}
