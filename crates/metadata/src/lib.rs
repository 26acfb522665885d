//! The cluster's metadata and the controller that alone changes it.
//!
//! What it is for: topics, partitions with their leader epochs, the segment map, objects and their
//! references, brokers, configs and producer-id blocks, kept in a [`store::MetadataStore`] (SlateDB on object
//! storage) and changed by commands that [`ControllerApi`] offers and, for moves and failover, which the
//! controller's own process drives, [`ControllerHandle`]. Also the row of leases by which it is chosen. Protocol:
//! `docs/protocols/controller.md`; stored form: `docs/formats/metadata.md`.
//!
//! Promises:
//! * every change is one atomic batch, durable before its answer and before the [`ClusterImage`] shows it;
//! * every request may be repeated: nothing is done twice;
//! * a partition's segments cover the offsets from its log start to its committed end without hole or
//!   overlap, and a later leader epoch starts where the earlier one ended;
//! * an object that a segment or checkpoint refers to is never named as deletable, and one that was dropped is
//!   never referred to again;
//! * of a partition, each leader epoch has one leader; what is sealed, recovered or moved on starts exactly
//!   where everything acknowledged before ends;
//! * a controller that another one has fenced changes nothing any more;
//! * a store that fails is opened again; nothing but a newer or damaged format ends the controller.
//!
//! It deliberately doesn't know: Kafka's wire format and error codes, which configs exist and what they mean
//! (but for `tidegate.durability`), what lies inside objects, the object store that holds them, and when
//! retention or deletion should happen.

pub mod api;
mod controller;
mod envelope;
mod image;
mod keys;
pub mod lease;
mod model;
mod rows;
mod state;
pub mod store;

pub use api::{ControllerApi, ControllerUnavailable};
pub use controller::{
    Controller, ControllerExit, ControllerHandle, ControllerMetrics, ControllerOptions,
    ControllerTask, OpenError, RandomIds,
};
pub use image::{
    BrokerImage, ClusterImage, Configs, DeltaMismatch, ImageDelta, ImageVersion, PartitionImage,
    TopicImage,
};
pub use model::{
    ByteSpan, CheckpointRef, Endpoint, EpochStart, InvalidObjectKey, ObjectCommit, ObjectStatus,
    PartitionState, SegmentCommit, SegmentEntry, StoredObjectKey, WalIdentity, WriterState,
};
pub use state::Limits;
