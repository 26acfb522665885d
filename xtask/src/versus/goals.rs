//! What Tidegate must reach, as figures of one comparison.

use super::results::{Column, Metric, Results};
use super::scenario::Scenario;

/// On which side of its limit a goal is met.
#[derive(Clone, Copy)]
enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

struct Goal {
    text: &'static str,
    limit: Limit,
    found: fn(&Results) -> Option<f64>,
}

/// A goal with what was found.
pub struct Verdict {
    pub text: &'static str,
    /// Such as `≥ 1.00`.
    pub limit: String,
    pub found: f64,
    pub met: bool,
}

/// The goals that this comparison has figures for.
pub fn verdicts(results: &Results) -> Vec<Verdict> {
    GOALS
        .iter()
        .filter_map(|goal| {
            let found = (goal.found)(results)?;
            let (limit, met) = match goal.limit {
                Limit::AtLeast(limit) => (format!("≥ {limit}"), found >= limit),
                Limit::AtMost(limit) => (format!("≤ {limit}"), found <= limit),
            };
            Some(Verdict {
                text: goal.text,
                limit,
                found,
                met,
            })
        })
        .collect()
}

const GOALS: [Goal; 22] = [
    Goal {
        text: "produce throughput, local ÷ Kafka",
        limit: Limit::AtLeast(1.0),
        found: |r| {
            ratio(
                r,
                Scenario::Produce,
                Metric::Throughput,
                Column::Local,
                Column::Kafka,
            )
        },
    },
    Goal {
        text: "produce broker CPU per GB, upload included, local ÷ Kafka",
        limit: Limit::AtMost(0.5),
        found: |r| {
            ratio(
                r,
                Scenario::Produce,
                Metric::CpuPerGb,
                Column::Local,
                Column::Kafka,
            )
        },
    },
    Goal {
        text: "produce throughput, local ÷ Kafka with flush.messages=1",
        limit: Limit::AtLeast(3.0),
        found: |r| {
            ratio(
                r,
                Scenario::Produce,
                Metric::Throughput,
                Column::Local,
                Column::KafkaFlush,
            )
        },
    },
    Goal {
        text: "produce throughput, Java client, local ÷ Kafka",
        limit: Limit::AtLeast(1.0),
        found: |r| {
            ratio(
                r,
                Scenario::ProduceJava,
                Metric::Throughput,
                Column::Local,
                Column::Kafka,
            )
        },
    },
    Goal {
        text: "produce broker CPU per GB, Java client, local ÷ Kafka",
        limit: Limit::AtMost(0.5),
        found: |r| {
            ratio(
                r,
                Scenario::ProduceJava,
                Metric::CpuPerGb,
                Column::Local,
                Column::Kafka,
            )
        },
    },
    Goal {
        text: "consume from the tail, local ÷ Kafka from its page cache",
        limit: Limit::AtLeast(1.0),
        found: |r| {
            ratio(
                r,
                Scenario::Tail,
                Metric::Throughput,
                Column::Local,
                Column::Kafka,
            )
        },
    },
    Goal {
        text: "consume from the store (cold), local ÷ Kafka from its page cache",
        limit: Limit::AtLeast(1.0),
        found: |r| {
            let cold = r.median(Scenario::Cold, Metric::Throughput, Column::Local)?;
            Some(cold / r.median(Scenario::Tail, Metric::Throughput, Column::Kafka)?)
        },
    },
    Goal {
        text: "acknowledge p50 at the fixed rate, local ÷ Kafka",
        limit: Limit::AtMost(1.0),
        found: |r| {
            ratio(
                r,
                Scenario::Latency,
                Metric::AckP50,
                Column::Local,
                Column::Kafka,
            )
        },
    },
    Goal {
        text: "acknowledge p99 at the fixed rate, local ÷ Kafka",
        limit: Limit::AtMost(1.0),
        found: |r| {
            ratio(
                r,
                Scenario::Latency,
                Metric::AckP99,
                Column::Local,
                Column::Kafka,
            )
        },
    },
    Goal {
        text: "acknowledge p99.9 at the fixed rate, local ÷ Kafka",
        limit: Limit::AtMost(1.0),
        found: |r| {
            ratio(
                r,
                Scenario::Latency,
                Metric::AckP999,
                Column::Local,
                Column::Kafka,
            )
        },
    },
    Goal {
        text: "acknowledge p50 at the fixed rate, object ÷ raw PUT",
        limit: Limit::AtMost(1.3),
        found: |r| of_raw_put(r, Metric::AckP50, Metric::RawPutP50),
    },
    Goal {
        text: "acknowledge p99 at the fixed rate, object ÷ raw PUT",
        limit: Limit::AtMost(1.5),
        found: |r| of_raw_put(r, Metric::AckP99, Metric::RawPutP99),
    },
    Goal {
        text: "transactional produce ÷ plain produce, local",
        limit: Limit::AtLeast(0.8),
        found: |r| of_itself(r, Metric::Throughput, Metric::PlainThroughput),
    },
    Goal {
        text: "read_committed ÷ read_uncommitted, local",
        limit: Limit::AtLeast(0.95),
        found: |r| of_itself(r, Metric::ReadCommitted, Metric::ReadUncommitted),
    },
    Goal {
        text: "end to end p99 − acknowledge p99, local, ms",
        limit: Limit::AtMost(5.0),
        found: |r| {
            let arrived = r.median(Scenario::EndToEnd, Metric::EndToEndP99, Column::Local)?;
            Some(arrived - r.median(Scenario::EndToEnd, Metric::AckP99, Column::Local)?)
        },
    },
    Goal {
        text: "idle resident memory, local, MB",
        limit: Limit::AtMost(60.0),
        found: |r| r.median(Scenario::Idle, Metric::IdleMemory, Column::Local),
    },
    Goal {
        text: "idle CPU, local, % of a core",
        limit: Limit::AtMost(1.0),
        found: |r| r.median(Scenario::Idle, Metric::IdleCpu, Column::Local),
    },
    Goal {
        text: "resident memory under full load, local ÷ Kafka",
        limit: Limit::AtMost(0.25),
        found: |r| {
            ratio(
                r,
                Scenario::Produce,
                Metric::PeakMemory,
                Column::Local,
                Column::Kafka,
            )
        },
    },
    Goal {
        text: "process start → first answer on an empty store, local, ms",
        limit: Limit::AtMost(150.0),
        found: |r| r.median(Scenario::Startup, Metric::Start, Column::Local),
    },
    Goal {
        text: "restart after a kill with 1,000 partitions and 256 MiB in the WAL, local, ms",
        limit: Limit::AtMost(1_000.0),
        found: |r| r.median(Scenario::Recovery, Metric::Restart, Column::Local),
    },
    Goal {
        text: "bytes stored per byte produced, local",
        limit: Limit::AtMost(1.05),
        found: |r| r.median(Scenario::Produce, Metric::Stored, Column::Local),
    },
    Goal {
        text: "bytes stored per byte produced, object",
        limit: Limit::AtMost(1.05),
        found: |r| r.median(Scenario::Produce, Metric::Stored, Column::Object),
    },
];

fn ratio(
    results: &Results,
    scenario: Scenario,
    metric: Metric,
    of: Column,
    to: Column,
) -> Option<f64> {
    let base = results
        .median(scenario, metric, to)
        .filter(|base| *base > 0.0)?;
    Some(results.median(scenario, metric, of)? / base)
}

/// Of the transactions' scenario, both by Tidegate.
fn of_itself(results: &Results, of: Metric, to: Metric) -> Option<f64> {
    let median = |metric| results.median(Scenario::Transactions, metric, Column::Local);
    let base = median(to).filter(|base| *base > 0.0)?;
    Some(median(of)? / base)
}

fn of_raw_put(results: &Results, ack: Metric, raw: Metric) -> Option<f64> {
    let base = results
        .median(Scenario::Latency, raw, Column::Object)
        .filter(|base| *base > 0.0)?;
    Some(results.median(Scenario::Latency, ack, Column::Object)? / base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_without_figures_has_no_verdict() {
        assert!(verdicts(&Results::default()).is_empty());
    }

    #[test]
    fn a_limit_is_judged_from_its_side() {
        let mut results = Results::default();
        for (column, cpu, throughput) in [(Column::Kafka, 4.0, 100.0), (Column::Local, 1.0, 90.0)] {
            results.add(1, Scenario::Produce, column, Metric::CpuPerGb, cpu);
            results.add(1, Scenario::Produce, column, Metric::Throughput, throughput);
        }
        let met: Vec<bool> = verdicts(&results)
            .iter()
            .map(|verdict| verdict.met)
            .collect();
        assert_eq!(met, [false, true]);
    }
}
