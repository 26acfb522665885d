//! The write-ahead log: what makes a record durable before its producer is told so.
//!
//! Two kinds stand behind one trait, [`Wal`]: the local one ([`local`]) on preallocated files of this
//! broker's disk, and the object one ([`object`]) whose log files are immutable objects in the store.
//!
//! Promises: an entry reported durable survives what its mode promises and is found by recovery exactly once,
//! with the same bytes, and in order within its partition. An entry refused leaves no trace. An entry reported
//! failed may turn up after a restart, which its caller never acknowledged. Every byte read back was checked
//! by CRC32C. Every queue is limited in bytes and refuses the next append at the limit.
//!
//! It deliberately doesn't know: what is in a record batch, leader epochs' meaning, the high watermark, when
//! something was uploaded (it is told by a trim), metadata, and Kafka.

mod entry;
pub mod local;
pub mod object;

pub use entry::{
    AppendObserver, AppendRefused, Appended, Entry, FullCause, Location, Wal, WalFailure,
    WalPosition, WrittenObjectRef,
};
