//! The contract over every store in this process, faults, and real answers of S3.

mod answers;
mod contract;
mod faults;

use std::sync::Arc;

use bytes::Bytes;
use prometheus_client::registry::Registry;
use tidegate_runtime::{Random, SystemClock, Tasks};
use tidegate_types::{BrokerEpoch, BrokerId};

use crate::testing::ScriptedStore;
use crate::{ObjectKey, ObjectStorage, StoreOptions, StoreSeams};

fn seams() -> StoreSeams {
    StoreSeams {
        clock: SystemClock::shared(),
        random: Random::seeded(7),
        tasks: Tasks::new("test"),
    }
}

fn scripted() -> (ScriptedStore, ObjectStorage) {
    let store = ScriptedStore::new();
    let storage = ObjectStorage::from_store(
        Arc::new(store.clone()),
        "bucket",
        StoreOptions::default(),
        &seams(),
        &mut Registry::default(),
    );
    (store, storage)
}

fn key(sequence: u64) -> ObjectKey {
    ObjectKey::data(
        BrokerId::from_wire(1).unwrap(),
        BrokerEpoch::new(2),
        sequence,
    )
}

fn payload(text: &'static str) -> Vec<Bytes> {
    let (head, tail) = text.split_at(text.len() / 2);
    vec![
        Bytes::from_static(head.as_bytes()),
        Bytes::from_static(tail.as_bytes()),
    ]
}
