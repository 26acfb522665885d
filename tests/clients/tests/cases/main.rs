//! Bug reports from the field as tests, by raw protocol. A test's name is the claim; its comment names the case.
//!
//! With `TIDEGATE_TEST_TARGET=kafka` the same tests run against Apache Kafka 4.4.0, which proves their
//! expectations. Where the products differ on purpose, the test says so.

mod admin;
mod admin_configs;
mod fetch;
mod fetch_sessions;
mod fetch_topics;
mod group_offsets;
mod groups;
mod moves;
mod ops;
mod produce;
mod produce_formats;
mod protocol;
mod quotas;
mod storage;
mod storage_faults;
mod storage_full;
mod storage_lab;
mod support;
mod txn;
mod txn_coordinator;
mod txn_fencing;
mod txn_offsets;
mod txn_ops;
mod txn_read;
