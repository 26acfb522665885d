//! The command line: what can be asked for, in which units.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Serialize;

use crate::cluster::CompactionArgs;
use crate::cluster::args::{CoordinatorArgs, FailoverArgs, MoveArgs};

/// Measures a Kafka-compatible broker. MB is 1,000,000 bytes of record values; times are in milliseconds.
#[derive(Parser)]
#[command(name = "tidegate-bench", version, about)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Sends as fast as the broker takes it: throughput, and the acknowledge latencies that come with it.
    Produce(ProduceArgs),
    /// Sends at a fixed rate and measures from the planned send time (no coordinated omission).
    Latency(LatencyArgs),
    /// Reads a topic from its start, or follows its end.
    Consume(ConsumeArgs),
    /// Reads a topic from its start with several groups at once, e.g. after a broker restart.
    Coldread(ColdreadArgs),
    /// PUTs objects straight to an object store: the yardstick for a broker that acknowledges from there.
    RawPut(RawPutArgs),
    /// Moves partitions between Tidegate's brokers: how long clients that write are held up.
    Move(MoveArgs),
    /// Kills Tidegate's brokers: how long until each partition takes records again.
    Failover(FailoverArgs),
    /// Has a filled topic compacted: what that costs the broker, and how much longer acknowledgements take meanwhile.
    Compaction(CompactionArgs),
    /// Moves and kills the coordinator of a group with many committed offsets: how long commits are held up, and how
    /// long a coordinator takes to load.
    Coordinator(CoordinatorArgs),
}

#[derive(Args, Clone, Serialize)]
pub struct ConnectionArgs {
    /// Brokers to ask first, `host:port[,host:port..]`.
    #[arg(long, default_value = "127.0.0.1:9092", value_name = "LIST")]
    pub bootstrap: String,
    /// How long to wait for the cluster, for the last acknowledgements, or for a reader that has stalled.
    #[arg(long, default_value = "30s", value_parser = parse_duration, value_name = "TIME")]
    #[serde(serialize_with = "seconds")]
    pub timeout: Duration,
    /// Any librdkafka property, e.g. `security.protocol=ssl`; may be repeated, wins over other options.
    #[arg(long = "set", value_parser = parse_property, value_name = "KEY=VALUE")]
    pub properties: Vec<(String, String)>,
}

#[derive(Args, Clone, Serialize)]
pub struct TopicArgs {
    /// Name of the topic; with `--topics N` the prefix of N names.
    #[arg(long, default_value = "tidegate-bench")]
    pub topic: String,
    /// How many topics to spread the work over.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub topics: u32,
    /// Create the topics that don't exist.
    #[arg(long)]
    pub create: bool,
    /// Delete the topics at the end, also after a failed run.
    #[arg(long)]
    pub delete: bool,
    /// Partitions of each created topic.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(i32).range(1..))]
    pub partitions: i32,
    /// Replicas of each created partition; the cluster's default unless given.
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..))]
    pub replication_factor: Option<i32>,
    /// Configuration of each created topic, e.g. `flush.messages=1`; may be repeated.
    #[arg(long, value_parser = parse_property, value_name = "KEY=VALUE")]
    pub topic_config: Vec<(String, String)>,
}

impl TopicArgs {
    /// The names of the topics.
    pub fn names(&self) -> Vec<String> {
        if self.topics == 1 {
            return vec![self.topic.clone()];
        }
        (0..self.topics)
            .map(|index| format!("{}-{index}", self.topic))
            .collect()
    }
}

#[derive(Args, Clone, Serialize)]
pub struct OutputArgs {
    /// Print one JSON object on standard output instead of the table.
    #[arg(long)]
    pub json: bool,
    /// Write charts of throughput and latency over time.
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// Width of one point of the timeline.
    #[arg(long, default_value = "500ms", value_parser = parse_duration, value_name = "TIME")]
    #[serde(serialize_with = "seconds")]
    pub interval: Duration,
}

/// Who must have a record before it is acknowledged.
#[derive(Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Acks {
    All,
    Leader,
    None,
}

impl Acks {
    /// The value of the property `acks`.
    pub fn property(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Leader => "1",
            Self::None => "0",
        }
    }
}

#[derive(Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Compression {
    /// The value of the property `compression.type`.
    pub fn property(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// How records without a key choose their partition.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Partitioning {
    /// One partition for some milliseconds, then another: what clients do by default.
    Sticky,
    /// The next partition with each record: the smallest batches.
    RoundRobin,
}

/// What the producers send and how. The defaults are the Java client's (16 KiB batches, 5 ms linger, 5 requests
/// in flight, 32 MiB of buffer) with one exception, idempotence: librdkafka's idempotent producer keeps one
/// batch of a partition in flight and spins on a core while the next one waits, which a benchmark on the
/// broker's own machine would take for the broker's slowness.
#[derive(Args, Clone, Serialize)]
pub struct LoadArgs {
    /// Bytes of each record's value.
    #[arg(long, default_value = "1KiB", value_parser = parse_size, value_name = "SIZE")]
    pub record_size: u64,
    #[arg(long, value_enum, default_value_t = Acks::All)]
    pub acks: Acks,
    #[arg(long, value_enum, default_value_t = Compression::None)]
    pub compression: Compression,
    /// Share of each value that compresses away, 0 (random bytes) to 1.
    #[arg(long, default_value_t = 0.0, value_parser = parse_share, value_name = "SHARE")]
    pub compressibility: f64,
    /// Largest batch of one partition.
    #[arg(long, default_value = "16KiB", value_parser = parse_size, value_name = "SIZE")]
    pub batch_size: u64,
    /// How long a batch may wait for more records.
    #[arg(long, default_value_t = 5.0, value_name = "MS")]
    pub linger_ms: f64,
    /// Idempotent producer (needs acks=all; ignored with other acks). Costs the client a spinning core.
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub idempotence: bool,
    /// Requests in flight per connection.
    #[arg(long, default_value_t = 5)]
    pub in_flight: u32,
    /// Bytes a producer holds before it makes the sender wait.
    #[arg(long, default_value = "32MiB", value_parser = parse_size, value_name = "SIZE")]
    pub buffer: u64,
    #[arg(long, value_enum, default_value_t = Partitioning::Sticky)]
    pub partitioning: Partitioning,
    /// Producer instances, each with its own connection and sending thread.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub producers: u32,
}

#[derive(Args, Clone, Serialize)]
pub struct ProduceArgs {
    #[command(flatten)]
    #[serde(flatten)]
    pub connection: ConnectionArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub topic: TopicArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub load: LoadArgs,
    /// Measured time, after the warm-up.
    #[arg(long, default_value = "30s", value_parser = parse_duration, value_name = "TIME")]
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
    /// Time before measuring begins.
    #[arg(long, default_value = "3s", value_parser = parse_duration, value_name = "TIME")]
    #[serde(serialize_with = "seconds")]
    pub warmup: Duration,
    /// Send this many bytes of values instead of sending for a time; no warm-up then.
    #[arg(long, value_parser = parse_size, value_name = "SIZE", conflicts_with_all = ["duration", "warmup"])]
    pub bytes: Option<u64>,
    /// Send at most this many MB/s.
    #[arg(long, value_parser = parse_rate, value_name = "MB/s")]
    pub max_rate_mb: Option<f64>,
    #[command(flatten)]
    #[serde(skip)]
    pub output: OutputArgs,
}

#[derive(Args, Clone, Serialize)]
pub struct LatencyArgs {
    #[command(flatten)]
    #[serde(flatten)]
    pub connection: ConnectionArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub topic: TopicArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub load: LoadArgs,
    /// The fixed rate, over all producers.
    #[arg(long, default_value_t = 20.0, value_parser = parse_rate, value_name = "MB/s")]
    pub rate_mb: f64,
    /// Records are planned in bursts, one each tick; latency counts from the tick.
    #[arg(long, default_value = "1ms", value_parser = parse_duration, value_name = "TIME")]
    #[serde(serialize_with = "seconds")]
    pub tick: Duration,
    /// Also follow the topics with a consumer: latency from planned send to arrival there.
    #[arg(long)]
    pub end_to_end: bool,
    /// Measured time, after the warm-up.
    #[arg(long, default_value = "30s", value_parser = parse_duration, value_name = "TIME")]
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
    /// Time before measuring begins.
    #[arg(long, default_value = "5s", value_parser = parse_duration, value_name = "TIME")]
    #[serde(serialize_with = "seconds")]
    pub warmup: Duration,
    #[command(flatten)]
    #[serde(skip)]
    pub output: OutputArgs,
}

/// Where a reader begins.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum From {
    /// At the first record; the run ends at the end found when it began.
    Earliest,
    /// At the end; the run lasts `--duration`.
    Latest,
}

#[derive(Args, Clone, Serialize)]
pub struct FetchArgs {
    /// Consumers; the partitions are dealt out among them.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub consumers: u32,
    /// Most bytes of one fetch response.
    #[arg(long, default_value = "50MiB", value_parser = parse_size, value_name = "SIZE")]
    pub fetch_max: u64,
    /// Most bytes of one partition in a fetch response.
    #[arg(long, default_value = "1MiB", value_parser = parse_size, value_name = "SIZE")]
    pub partition_fetch_max: u64,
    /// Check each batch's CRC (the Java client does, librdkafka doesn't by default).
    #[arg(long)]
    pub check_crcs: bool,
}

#[derive(Args, Clone, Serialize)]
pub struct ConsumeArgs {
    #[command(flatten)]
    #[serde(flatten)]
    pub connection: ConnectionArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub topic: TopicArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub fetch: FetchArgs,
    #[arg(long, value_enum, default_value_t = From::Earliest)]
    pub from: From,
    /// How long to follow the end; with `--from earliest`, stop after this time even if more is there.
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    #[serde(serialize_with = "optional_seconds")]
    pub duration: Option<Duration>,
    /// Read the topics this many times, with new consumers each time.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub repeat: u32,
    #[command(flatten)]
    #[serde(skip)]
    pub output: OutputArgs,
}

#[derive(Args, Clone, Serialize)]
pub struct ColdreadArgs {
    #[command(flatten)]
    #[serde(flatten)]
    pub connection: ConnectionArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub topic: TopicArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub fetch: FetchArgs,
    /// Groups that each read everything, all at once.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub groups: u32,
    #[command(flatten)]
    #[serde(skip)]
    pub output: OutputArgs,
}

#[derive(Args, Clone, Serialize)]
pub struct RawPutArgs {
    /// `s3://bucket/prefix`, `gs://..`, `az://..` (with their usual environment variables) or a folder.
    #[arg(long, value_name = "URL")]
    pub store: String,
    /// Bytes of each object.
    #[arg(long, default_value = "512KiB", value_parser = parse_size, value_name = "SIZE")]
    pub size: u64,
    /// PUTs planned per second, latency from the planned time; one after another unless given.
    #[arg(long, value_parser = parse_rate, value_name = "PUT/s")]
    pub rate: Option<f64>,
    /// Most PUTs in flight at a fixed rate.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub in_flight: u32,
    /// Plain PUT instead of create-only (`If-None-Match: *`).
    #[arg(long)]
    pub overwrite: bool,
    #[arg(long, default_value = "10s", value_parser = parse_duration, value_name = "TIME")]
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
    #[arg(long, default_value = "1s", value_parser = parse_duration, value_name = "TIME")]
    #[serde(serialize_with = "seconds")]
    pub warmup: Duration,
    #[command(flatten)]
    #[serde(skip)]
    pub output: OutputArgs,
}

pub fn seconds<S: serde::Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(value.as_secs_f64())
}

pub fn optional_seconds<S: serde::Serializer>(
    value: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    value.map(|time| time.as_secs_f64()).serialize(serializer)
}

/// Splits `12.5MiB` into its number and its unit.
fn number_and_unit(text: &str) -> Result<(f64, &str), String> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number = number
        .parse::<f64>()
        .map_err(|_| format!("`{text}` doesn't begin with a number"))?;
    Ok((number, unit.trim()))
}

/// A byte count: `4096`, `16KiB`, `100MB`; a unit without `i` is decimal.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = number_and_unit(text)?;
    let factor = match unit {
        "" | "B" => 1.0,
        "KiB" | "Ki" => 1024.0,
        "MiB" | "Mi" => 1024.0 * 1024.0,
        "GiB" | "Gi" => 1024.0 * 1024.0 * 1024.0,
        "kB" | "KB" | "k" | "K" => 1e3,
        "MB" | "M" => 1e6,
        "GB" | "G" => 1e9,
        other => {
            return Err(format!(
                "unknown unit `{other}`: use B, kB, KiB, MB, MiB, GB or GiB"
            ));
        }
    };
    let bytes = number * factor;
    if !(1.0..=1e15).contains(&bytes) {
        return Err(format!("`{text}` is out of range"));
    }
    Ok(bytes as u64)
}

/// A time: `250us`, `500ms`, `30s`, `2m`; a bare number is seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = number_and_unit(text)?;
    let factor = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        other => return Err(format!("unknown unit `{other}`: use us, ms, s, m or h")),
    };
    let time = number * factor;
    if time > 1e6 {
        return Err(format!("`{text}` is out of range"));
    }
    Ok(Duration::from_secs_f64(time))
}

fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("`{text}` isn't a share between 0 and 1")),
    }
}

pub fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate.is_finite() => Ok(rate),
        _ => Err(format!("`{text}` isn't a rate above 0")),
    }
}

pub fn parse_property(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
        .filter(|(key, _)| !key.is_empty())
        .ok_or_else(|| format!("`{text}` isn't of the form key=value"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn binary_and_decimal_units_differ() {
        assert_eq!(parse_size("16KiB"), Ok(16_384));
        assert_eq!(parse_size("1.5MB"), Ok(1_500_000));
        assert_eq!(parse_size("7"), Ok(7));
        assert!(parse_size("7 parsecs").is_err());
        assert!(parse_size("0").is_err());
        assert!(parse_size("KiB").is_err());
    }

    #[test]
    fn a_bare_time_is_seconds() {
        assert_eq!(parse_duration("3"), Ok(Duration::from_secs(3)));
        assert_eq!(parse_duration("250us"), Ok(Duration::from_micros(250)));
        assert!(parse_duration("-1s").is_err());
    }

    #[test]
    fn a_property_may_hold_an_equals_sign() {
        assert_eq!(
            parse_property("a=b=c"),
            Ok(("a".to_owned(), "b=c".to_owned()))
        );
        assert!(parse_property("=b").is_err());
    }
}
