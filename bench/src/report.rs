//! What a run found, as one JSON object or as a table.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use serde::Serialize;

use crate::histogram::{Latencies, LatencySummary};
use crate::recorder::{Counts, Recorded};
use crate::timeline::Point;

/// Records and bytes over the measured time.
#[derive(Clone, Debug, Serialize)]
pub struct Throughput {
    pub records: u64,
    pub bytes: u64,
    pub elapsed_s: f64,
    pub records_per_s: f64,
    /// Bytes of record values, in units of 1,000,000.
    pub mb_per_s: f64,
}

impl Throughput {
    pub fn of(counts: Counts, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        Self {
            records: counts.records,
            bytes: counts.bytes,
            elapsed_s: elapsed.as_secs_f64(),
            records_per_s: counts.records as f64 / seconds,
            mb_per_s: counts.bytes as f64 / seconds / 1e6,
        }
    }
}

/// Everything of a run including its warm-up: what CPU time is to be divided by.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Total {
    pub records: u64,
    pub bytes: u64,
    pub elapsed_s: f64,
}

/// What the client itself cost.
#[derive(Clone, Debug, Serialize)]
pub struct ClientCost {
    pub version: &'static str,
    pub librdkafka: String,
    /// User and system time of this process, if the platform tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_s_per_gb: Option<f64>,
}

/// The outcome of one run.
#[derive(Serialize)]
pub struct Report {
    pub bench: &'static str,
    /// The brokers or the store measured.
    pub target: String,
    pub started_unix_ms: u64,
    pub settings: serde_json::Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<Throughput>,
    pub total: Total,
    /// Each pass of a reader.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub passes_mb_per_s: Vec<f64>,
    /// Percentiles by what they measure: `ack`, `end_to_end`, `first_record`, `put`.
    pub latency_ms: BTreeMap<&'static str, LatencySummary>,
    /// Failed records by kind of failure.
    pub errors: BTreeMap<String, u64>,
    pub notes: Vec<String>,
    pub client: ClientCost,
    pub timeline: Vec<Point>,
    /// What else was found, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub findings: BTreeMap<&'static str, serde_json::Value>,
    /// Each move or kill.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<serde_json::Value>,
    #[serde(skip)]
    begun: Instant,
}

impl Report {
    /// Begins a report; the time until `finish` counts as the whole run.
    pub fn begin(bench: &'static str, target: &str, settings: &impl Serialize) -> Result<Self> {
        let started = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Ok(Self {
            bench,
            target: target.to_owned(),
            started_unix_ms: u64::try_from(started.as_millis())?,
            settings: without_secrets(serde_json::to_value(settings)?),
            throughput: None,
            total: Total::default(),
            passes_mb_per_s: Vec::new(),
            latency_ms: BTreeMap::new(),
            errors: BTreeMap::new(),
            notes: Vec::new(),
            client: ClientCost {
                version: env!("CARGO_PKG_VERSION"),
                librdkafka: rdkafka::util::get_rdkafka_version().1,
                cpu_s: None,
                cpu_s_per_gb: None,
            },
            timeline: Vec::new(),
            findings: BTreeMap::new(),
            events: Vec::new(),
            begun: Instant::now(),
        })
    }

    /// Ends the run: `all` is everything that was moved in it.
    pub fn finish(&mut self, all: Counts) {
        self.total = Total {
            records: all.records,
            bytes: all.bytes,
            elapsed_s: self.begun.elapsed().as_secs_f64(),
        };
        self.client.cpu_s = cpu_seconds("self");
        self.client.cpu_s_per_gb = self
            .client
            .cpu_s
            .filter(|_| all.bytes > 0)
            .map(|cpu_s| cpu_s / (all.bytes as f64 / 1e9));
    }

    pub fn add_acks(&mut self, acks: &Recorded) {
        self.add_latency("ack", &acks.latencies);
        self.errors.clone_from(&acks.errors);
    }

    pub fn add_latency(&mut self, name: &'static str, latencies: &Latencies) {
        if let Some(summary) = latencies.summary() {
            self.latency_ms.insert(name, summary);
        }
    }

    /// Notes a figure that has no place of its own.
    pub fn find(&mut self, name: &'static str, value: impl Into<serde_json::Value>) {
        self.findings.insert(name, value.into());
    }

    /// The table for people.
    pub fn table(&self) -> String {
        let mut rows: Vec<(String, String)> = Vec::new();
        let mut row = |name: &str, value: String| rows.push((name.to_owned(), value));
        row("target", self.target.clone());
        if let Some(throughput) = &self.throughput {
            row("throughput", format!("{:.1} MB/s", throughput.mb_per_s));
            row(
                "records",
                format!("{:.0} records/s", throughput.records_per_s),
            );
            row(
                "measured",
                format!(
                    "{} records, {:.1} MB in {:.2} s",
                    throughput.records,
                    throughput.bytes as f64 / 1e6,
                    throughput.elapsed_s
                ),
            );
        }
        if self.passes_mb_per_s.len() > 1 {
            let passes: Vec<String> = self
                .passes_mb_per_s
                .iter()
                .map(|rate| format!("{rate:.1}"))
                .collect();
            row("passes", format!("{} MB/s", passes.join(", ")));
        }
        for (name, value) in &self.findings {
            row(&name.replace('_', " "), shown(value));
        }
        if let Some(cpu_s) = self.client.cpu_s {
            let per_gb = self
                .client
                .cpu_s_per_gb
                .map_or_else(String::new, |per_gb| format!(", {per_gb:.2} s/GB"));
            row("client CPU", format!("{cpu_s:.2} s{per_gb}"));
        }
        row("errors", self.errors.values().sum::<u64>().to_string());
        for (kind, count) in &self.errors {
            row("", format!("{count} × {kind}"));
        }

        let mut text = format!("{}\n", self.bench);
        for (name, value) in rows {
            let _ = writeln!(text, "  {name:<20} {value}");
        }
        self.latency_table(&mut text);
        for note in &self.notes {
            let _ = writeln!(text, "\nnote: {note}");
        }
        text
    }

    fn latency_table(&self, text: &mut String) {
        if self.latency_ms.is_empty() {
            return;
        }
        let _ = writeln!(
            text,
            "\n  {:<18} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9}",
            "latency, ms", "mean", "p50", "p90", "p99", "p99.9", "max", "count"
        );
        for (name, latency) in &self.latency_ms {
            let _ = writeln!(
                text,
                "  {:<18} {:>9.2} {:>9.2} {:>9.2} {:>9.2} {:>9.2} {:>10.2} {:>9}",
                name.replace('_', " "),
                latency.mean,
                latency.p50,
                latency.p90,
                latency.p99,
                latency.p999,
                latency.max,
                latency.count
            );
        }
    }
}

/// A finding as people read it.
fn shown(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Number(number) if number.is_f64() => {
            format!("{:.2}", number.as_f64().unwrap_or_default())
        }
        serde_json::Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, value)| format!("{name}: {}", shown(value)))
                .collect();
            fields.join(", ")
        }
        other => other.to_string(),
    }
}

/// Values of properties and of environment variables may be passwords; a report is shown around.
fn without_secrets(mut settings: serde_json::Value) -> serde_json::Value {
    for name in ["properties", "broker_env"] {
        let pairs = settings.get_mut(name).and_then(|list| list.as_array_mut());
        for pair in pairs.into_iter().flatten() {
            let key = pair.get(0).and_then(|key| key.as_str()).unwrap_or_default();
            let key = key.to_ascii_lowercase();
            let secret = ["password", "secret", "jaas", "key.pem", "token"]
                .iter()
                .any(|word| key.contains(word));
            if secret && let Some(value) = pair.get_mut(1) {
                *value = "***".into();
            }
        }
    }
    settings
}

/// User and system time of a process, named as below `/proc`. Linux counts them in ticks of 10 ms.
pub fn cpu_seconds(process: &str) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The command name, in parentheses, may hold spaces; the fields are counted from behind it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(ticks as f64 / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_never_shows_a_password() {
        let settings = serde_json::json!({"properties": [["sasl.password", "hush"], ["a", "b"]],
            "broker_env": [["AWS_SECRET_ACCESS_KEY", "hush"]]});
        let report = Report::begin("produce", "x", &settings).expect("a report begins");
        let json = serde_json::to_string(&report).expect("a report is JSON");
        assert!(!json.contains("hush"), "{json}");
        assert!(json.contains("\"b\""), "{json}");
    }

    #[test]
    fn throughput_counts_decimal_megabytes() {
        let counts = Counts {
            records: 10,
            bytes: 4_000_000,
        };
        let throughput = Throughput::of(counts, Duration::from_secs(2));
        assert!((throughput.mb_per_s - 2.0).abs() < 1e-9);
        assert!((throughput.records_per_s - 5.0).abs() < 1e-9);
    }
}
