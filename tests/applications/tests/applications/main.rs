//! Programs that people run on Apache Kafka, unchanged, while brokers move partitions and die: Kafka Streams, Kafka
//! Connect, Flink. Each is the real thing from its own project; only the few lines that say what it shall do are ours
//! (`java/`). Afterwards each record must have had its effect once.

mod connect;
mod flink;
mod stage;
mod streams;
mod topics;
