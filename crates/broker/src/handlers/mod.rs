//! One module for each group of requests; each function turns a request into its answer.

pub(crate) mod cluster;
pub(crate) mod configs;
pub(crate) mod features;
pub(crate) mod fetch;
pub(crate) mod groups;
pub(crate) mod metadata;
pub(crate) mod offsets;
pub(crate) mod produce;
pub(crate) mod producers;
pub(crate) mod quotas;
pub(crate) mod reassignment;
pub(crate) mod topics;
pub(crate) mod transactions;
pub(crate) mod unregister;

use kafka_protocol::protocol::StrBytes;

/// What authorised-operations fields hold when nobody asked (KIP-430).
pub(crate) const OPERATIONS_NOT_ASKED: i32 = i32::MIN;

/// A text for the wire.
pub(crate) fn text(value: impl Into<String>) -> StrBytes {
    StrBytes::from_string(value.into())
}

/// The operations that may be done to topics, as the bits of KIP-430 number them.
pub(crate) const TOPIC_OPERATIONS: i32 = bits(&[
    3,  /* read */
    4,  /* write */
    5,  /* create */
    6,  /* delete */
    7,  /* alter */
    8,  /* describe */
    10, /* describe configs */
    11, /* alter configs */
]);

/// The operations that may be done to the cluster.
pub(crate) const CLUSTER_OPERATIONS: i32 = bits(&[
    5,  /* create */
    7,  /* alter */
    8,  /* describe */
    9,  /* cluster action */
    10, /* describe configs */
    11, /* alter configs */
    12, /* idempotent write */
]);

/// The operations that may be done to consumer groups.
pub(crate) const GROUP_OPERATIONS: i32 = bits(&[
    3, /* read */
    6, /* delete */
    8, /* describe */
]);

const fn bits(operations: &[i32]) -> i32 {
    let mut field = 0;
    let mut at = 0;
    while at < operations.len() {
        field |= 1 << operations[at];
        at += 1;
    }
    field
}
