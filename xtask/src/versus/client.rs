//! The client that does the work: `tidegate-bench` for every system, or Kafka's own performance client.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::command::output_of;

/// `tidegate-bench`, run and read.
pub struct Client {
    program: PathBuf,
}

/// What a run of the client answered.
pub struct Answer(pub Value);

impl Client {
    pub fn new(program: PathBuf) -> Self {
        Self { program }
    }

    /// Runs one subcommand against a broker.
    pub fn run(&self, bench: &str, bootstrap: &str, arguments: &[&str]) -> Result<Answer> {
        let mut command = Command::new(&self.program);
        command.args([
            bench,
            "--json",
            "--timeout",
            "60s",
            "--bootstrap",
            bootstrap,
        ]);
        Self::read(command.args(arguments))
    }

    /// PUTs to a store with this environment.
    pub fn raw_put(
        &self,
        store: &str,
        environment: Vec<(String, String)>,
        arguments: &[&str],
    ) -> Result<Answer> {
        let mut command = Command::new(&self.program);
        command
            .args(["raw-put", "--json", "--store", store])
            .envs(environment);
        Self::read(command.args(arguments))
    }

    fn read(command: &mut Command) -> Result<Answer> {
        let text = output_of(command)?;
        let json = serde_json::from_str(&text)
            .context("tidegate-bench didn't answer with one JSON object")?;
        Ok(Answer(json))
    }
}

impl Answer {
    /// A number by its JSON pointer.
    pub fn number(&self, pointer: &str) -> Result<f64> {
        self.0
            .pointer(pointer)
            .and_then(Value::as_f64)
            .with_context(|| format!("tidegate-bench's answer has no {pointer}"))
    }

    /// Records that failed.
    pub fn errors(&self) -> u64 {
        let errors = self.0.get("errors").and_then(Value::as_object);
        errors.map_or(0, |errors| errors.values().filter_map(Value::as_u64).sum())
    }
}

/// What Kafka's performance client says at its end.
#[derive(Debug)]
pub struct JavaAnswer {
    pub mb_per_s: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
}

/// Whether Kafka's performance client writes in transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transactions {
    None,
    EachTenthOfASecond,
}

/// Runs `org.apache.kafka.tools.ProducerPerformance` with its default batches.
pub fn java_produce(
    library: &Path,
    bootstrap: &str,
    topic: &str,
    records: u64,
    transactions: Transactions,
) -> Result<JavaAnswer> {
    let mut command = Command::new("java");
    command
        .args(["-Xmx512m", "-cp"])
        .arg(format!("{}/*", library.display()))
        .arg("org.apache.kafka.tools.ProducerPerformance")
        .args(["--bootstrap-server", bootstrap, "--topic", topic])
        .args(["--num-records", &records.to_string()])
        .args(["--record-size", "1024", "--throughput", "-1"])
        .args(["--command-property", "acks=all"]);
    if transactions == Transactions::EachTenthOfASecond {
        command
            .args(["--transactional-id", topic])
            .args(["--transaction-duration-ms", "100"]);
    }
    let text = output_of(&mut command)?;
    java_answer(&text)
        .with_context(|| format!("can't read the performance client's answer:\n{text}"))
}

/// The last line that sums up: `.. (95.37 MB/sec), .. ms avg latency, .. 3 ms 50th, .. 9 ms 99th, 12 ms 99.9th.`
/// Its MB are 1,048,576 bytes.
fn java_answer(text: &str) -> Option<JavaAnswer> {
    let line = text.lines().rev().find(|line| line.contains("99.9th"))?;
    let before = |mark: &str| -> Option<f64> {
        let head = &line[..line.find(mark)?];
        let start = head
            .rfind(|c: char| !c.is_ascii_digit() && c != '.')
            .map_or(0, |at| at + 1);
        head[start..].parse().ok()
    };
    Some(JavaAnswer {
        mb_per_s: before(" MB/sec")? * 1.048_576,
        p50_ms: before(" ms 50th")?,
        p99_ms: before(" ms 99th")?,
        p999_ms: before(" ms 99.9th")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_performance_clients_last_line_is_read_in_decimal_megabytes() {
        let text = "SLF4J: x\n100 records sent, 5.0 records/sec (100.00 MB/sec), 2.5 ms avg latency, \
                    40.00 ms max latency, 2 ms 50th, 6 ms 95th, 9 ms 99th, 12 ms 99.9th.\n";
        let answer = java_answer(text).expect("the line sums up");
        assert!((answer.mb_per_s - 104.857_6).abs() < 1e-6, "{answer:?}");
        assert_eq!(
            [answer.p50_ms, answer.p99_ms, answer.p999_ms],
            [2.0, 9.0, 12.0]
        );
        assert!(java_answer("Exception in thread main").is_none());
    }
}
