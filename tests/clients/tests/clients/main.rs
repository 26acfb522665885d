//! Real clients, each producing in every codec it has, consuming directly and through a consumer group.

mod command_clients;
mod compaction;
mod connect;
mod consumer_protocol;
mod java;
mod kcat;
mod librdkafka;
mod support;
mod transactions;
mod transactions_moves;
