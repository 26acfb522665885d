//! What can be asked of `move`, `failover` and `coordinator`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::cli::{
    optional_seconds, parse_duration, parse_property, parse_rate, parse_size, seconds,
};

/// Where acknowledgements come from.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The broker's disk.
    Local,
    /// The object store.
    Object,
}

impl Durability {
    /// The value of the brokers' flag.
    pub fn flag(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Object => "object",
        }
    }
}

/// A median and a 99th percentile, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StoreLatency {
    pub p50_ms: f64,
    pub p99_ms: f64,
}

/// The cluster to measure: started here, or running already.
#[derive(Args, Clone, Serialize)]
pub struct ClusterArgs {
    /// How many brokers to start.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub brokers: u32,
    /// The `tidegate` to start; else the one beside this program, else the one on the path.
    #[arg(long, value_name = "FILE")]
    pub tidegate_bin: Option<PathBuf>,
    /// The store of the brokers started: a folder, or `s3://bucket/prefix` with the usual `AWS_*` variables.
    /// A temporary folder unless given. It should be empty.
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    /// Where the brokers started acknowledge from: `local` for `move` and `object` for `failover` unless given.
    #[arg(long, value_enum)]
    pub durability: Option<Durability>,
    /// Makes each answer of the S3 server take this long at least, by a proxy between it and the brokers:
    /// median and 99th percentile in milliseconds, e.g. `60,140`.
    #[arg(long, value_parser = parse_latency, value_name = "P50[,P99]")]
    pub s3_latency_ms: Option<StoreLatency>,
    /// Seed of the proxy's delays.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A setting of the brokers started, as an environment variable; may be repeated.
    #[arg(long, value_parser = parse_property, value_name = "KEY=VALUE")]
    pub broker_env: Vec<(String, String)>,
    /// Measure a cluster that runs already: its brokers, `host:port[,host:port..]`. Needs `--admin`.
    #[arg(long, value_name = "LIST", requires = "admin", conflicts_with_all = ["store", "durability", "s3_latency_ms", "tidegate_bin", "broker_env"])]
    pub bootstrap: Option<String>,
    /// The admin addresses of that cluster, `host:port[,host:port..]`.
    #[arg(long, value_name = "LIST", requires = "bootstrap")]
    pub admin: Option<String>,
    /// Where the brokers started keep logs and data; a temporary folder unless given. Emptied at the end of a
    /// run that succeeds; after any other one the logs stay.
    #[arg(long, value_name = "FOLDER")]
    pub work_dir: Option<PathBuf>,
    /// Leave logs and data behind.
    #[arg(long)]
    pub keep: bool,
    /// How long to wait for the cluster, and for acknowledgements that are still out at the end.
    #[arg(long, default_value = "60s", value_parser = parse_duration, value_name = "TIME")]
    #[serde(serialize_with = "seconds")]
    pub timeout: Duration,
    /// Any librdkafka property of the clients; may be repeated, wins over what this program sets.
    #[arg(long = "set", value_parser = parse_property, value_name = "KEY=VALUE")]
    pub properties: Vec<(String, String)>,
}

/// What the clients do meanwhile.
#[derive(Args, Clone, Serialize)]
pub struct WriterArgs {
    /// Name of the topic that is watched. It is created and must not exist yet.
    #[arg(long, default_value = "tidegate-bench-watched")]
    pub topic: String,
    /// Its partitions: 1 for `move` (1,000 for patterns of many), 100 for `failover` unless given.
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..=20_000))]
    pub partitions: Option<i32>,
    /// Each partition gets a record this often: 2 ms, and with more than 10 partitions as much longer as keeps
    /// the sum at 5,000 records/s, unless given.
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    #[serde(serialize_with = "optional_seconds")]
    pub interval: Option<Duration>,
    /// Bytes of each of these records.
    #[arg(long, default_value = "100B", value_parser = parse_size, value_name = "SIZE")]
    pub record_size: u64,
    /// Other load: records of 1 KiB to another topic with two partitions per broker.
    #[arg(long, value_parser = parse_rate, value_name = "MB/s")]
    pub background_mb: Option<f64>,
    /// Fill the watched topic with this many bytes first.
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    pub fill: Option<u64>,
    /// A further topic with so many partitions that nobody uses.
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..=100_000), value_name = "COUNT")]
    pub idle_partitions: Option<i32>,
    /// Time between the first record and the first measurement.
    #[arg(long, default_value = "5s", value_parser = parse_duration, value_name = "TIME")]
    #[serde(serialize_with = "seconds")]
    pub warmup: Duration,
    /// Time after that in which nothing is moved or killed: tells what is normal.
    #[arg(long, default_value = "15s", value_parser = parse_duration, value_name = "TIME")]
    #[serde(serialize_with = "seconds")]
    pub calm: Duration,
}

/// What is moved.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// One partition, round the brokers.
    Single,
    /// All partitions are on broker 1, which is drained.
    Drain,
    /// One half from broker 1 to 2 and the other half back, in one request.
    Swap,
    /// One more broker starts and gets its share.
    Join,
}

#[derive(Args, Clone, Serialize)]
pub struct MoveArgs {
    #[command(flatten)]
    #[serde(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub writer: WriterArgs,
    #[arg(long, value_enum, default_value_t = Pattern::Single)]
    pub pattern: Pattern,
    /// How many moves, one after another, of the pattern `single`.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub moves: u32,
    /// Time between the end of a move and the start of the next.
    #[arg(long, default_value = "1s", value_parser = parse_duration, value_name = "TIME")]
    #[serde(serialize_with = "seconds")]
    pub pause: Duration,
    /// Print one JSON object on standard output instead of the table.
    #[arg(long)]
    #[serde(skip)]
    pub json: bool,
}

/// Who is killed.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Victim {
    /// The brokers in turn, but never the controller.
    Broker,
    /// The controller.
    Controller,
}

#[derive(Args, Clone, Serialize)]
pub struct FailoverArgs {
    #[command(flatten)]
    #[serde(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub writer: WriterArgs,
    /// How many brokers are killed, one after another.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub kills: u32,
    #[arg(long, value_enum, default_value_t = Victim::Broker)]
    pub victim: Victim,
    /// How long a killed broker stays down.
    #[arg(long, default_value = "6s", value_parser = parse_duration, value_name = "TIME")]
    #[serde(serialize_with = "seconds")]
    pub down: Duration,
    /// Print one JSON object on standard output instead of the table.
    #[arg(long)]
    #[serde(skip)]
    pub json: bool,
}

#[derive(Args, Clone, Serialize)]
pub struct CoordinatorArgs {
    #[command(flatten)]
    #[serde(flatten)]
    pub cluster: ClusterArgs,
    /// How many groups have committed offsets, all at one coordinator.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub groups: u32,
    /// For how many partitions each of them.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(i32).range(1..=20_000))]
    pub partitions: i32,
    /// How often each offset is committed before anything is measured: what compaction hasn't removed is history.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// How often the coordinator is moved.
    #[arg(long, default_value_t = 20)]
    pub moves: u32,
    /// How often its broker is killed.
    #[arg(long, default_value_t = 3)]
    pub kills: u32,
    /// Time between two moves or kills, and how long a killed broker stays down.
    #[arg(long, default_value = "4s", value_parser = parse_duration, value_name = "TIME")]
    #[serde(serialize_with = "seconds")]
    pub pause: Duration,
    /// Time in which nothing is moved or killed: tells what is normal.
    #[arg(long, default_value = "10s", value_parser = parse_duration, value_name = "TIME")]
    #[serde(serialize_with = "seconds")]
    pub calm: Duration,
    /// Print one JSON object on standard output instead of the table.
    #[arg(long)]
    #[serde(skip)]
    pub json: bool,
}

impl WriterArgs {
    /// Time between two records of one partition.
    pub fn interval_of(&self, partitions: i32) -> Duration {
        const SHORTEST: Duration = Duration::from_millis(2);
        let tens = partitions.unsigned_abs().max(10);
        self.interval.unwrap_or(SHORTEST * tens / 10)
    }
}

/// `60,140`; without the second one, a 99th percentile as far off as S3's.
fn parse_latency(text: &str) -> Result<StoreLatency, String> {
    const P99_TO_P50: f64 = 140.0 / 60.0;
    let number = |text: &str| {
        text.trim()
            .parse::<f64>()
            .ok()
            .filter(|ms| ms.is_finite() && *ms > 0.0 && *ms < 60_000.0)
            .ok_or_else(|| format!("`{text}` isn't a number of milliseconds"))
    };
    let latency = match text.split_once(',') {
        Some((p50, p99)) => StoreLatency {
            p50_ms: number(p50)?,
            p99_ms: number(p99)?,
        },
        None => {
            let p50_ms = number(text)?;
            StoreLatency {
                p50_ms,
                p99_ms: p50_ms * P99_TO_P50,
            }
        }
    };
    if latency.p99_ms < latency.p50_ms {
        return Err("the 99th percentile can't be below the median".to_owned());
    }
    Ok(latency)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_one_number_or_two() {
        let latency = parse_latency("60,140").expect("two numbers are a latency");
        assert_eq!((latency.p50_ms, latency.p99_ms), (60.0, 140.0));
        let latency = parse_latency("30").expect("a number is a latency");
        assert!((latency.p99_ms - 70.0).abs() < 1e-9);
        assert!(parse_latency("140,60").is_err());
        assert!(parse_latency("x").is_err());
    }

    #[test]
    fn many_partitions_share_a_rate_unless_an_interval_is_asked_for() {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            writer: WriterArgs,
        }
        let interval =
            |line: &[&str], partitions| Line::parse_from(line).writer.interval_of(partitions);
        assert_eq!(interval(&["x"], 1), Duration::from_millis(2));
        assert_eq!(interval(&["x"], 100), Duration::from_millis(20));
        assert_eq!(
            interval(&["x", "--interval", "3ms"], 100),
            Duration::from_millis(3)
        );
    }
}
