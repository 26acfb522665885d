//! What was measured: samples by scenario, metric and column, and their medians.

use std::collections::BTreeMap;

use serde_json::Value;

use super::scenario::Scenario;
use super::system::System;

/// A column of the table: a system, or Kafka made to sync as Tidegate does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Column {
    Kafka,
    KafkaFlush,
    Local,
    Object,
}

impl Column {
    pub const ALL: [Self; 4] = [Self::Kafka, Self::KafkaFlush, Self::Local, Self::Object];

    pub fn of(system: System) -> Self {
        match system {
            System::Kafka => Self::Kafka,
            System::TidegateLocal => Self::Local,
            System::TidegateObject => Self::Object,
        }
    }

    pub fn label(self) -> &'static str {
        match self {
            Self::Kafka => "Kafka",
            Self::KafkaFlush => "Kafka, flush.messages=1",
            Self::Local => "Tidegate local",
            Self::Object => "Tidegate object",
        }
    }
}

/// What a figure is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Metric {
    Start,
    Restart,
    Throughput,
    PlainThroughput,
    ReadUncommitted,
    ReadCommitted,
    FirstRecord,
    AckP50,
    AckP99,
    AckP999,
    AckMax,
    EndToEndP50,
    EndToEndP99,
    EndToEndP999,
    RawPutP50,
    RawPutP99,
    ObjectSize,
    CpuPerGb,
    ClientCpuPerGb,
    PeakMemory,
    IdleMemory,
    IdleCpu,
    Stored,
}

impl Metric {
    /// Name and unit.
    pub fn label(self) -> (&'static str, &'static str) {
        match self {
            Self::Start => ("start → first Metadata answer", "ms"),
            Self::Restart => ("restart with data → first Metadata answer", "ms"),
            Self::Throughput => ("throughput", "MB/s"),
            Self::PlainThroughput => ("throughput without transactions", "MB/s"),
            Self::ReadUncommitted => ("read, read_uncommitted", "MB/s"),
            Self::ReadCommitted => ("read, read_committed", "MB/s"),
            Self::FirstRecord => ("time to first record", "ms"),
            Self::AckP50 => ("acknowledge p50", "ms"),
            Self::AckP99 => ("acknowledge p99", "ms"),
            Self::AckP999 => ("acknowledge p99.9", "ms"),
            Self::AckMax => ("acknowledge max", "ms"),
            Self::EndToEndP50 => ("end to end p50", "ms"),
            Self::EndToEndP99 => ("end to end p99", "ms"),
            Self::EndToEndP999 => ("end to end p99.9", "ms"),
            Self::RawPutP50 => ("raw PUT of the same size p50", "ms"),
            Self::RawPutP99 => ("raw PUT of the same size p99", "ms"),
            Self::ObjectSize => ("object size", "kB"),
            Self::CpuPerGb => ("broker CPU", "s/GB"),
            Self::ClientCpuPerGb => ("client CPU", "s/GB"),
            Self::PeakMemory => ("peak resident memory", "MB"),
            Self::IdleMemory => ("idle resident memory", "MB"),
            Self::IdleCpu => ("idle CPU", "% of a core"),
            Self::Stored => ("bytes stored per byte produced", ""),
        }
    }
}

struct Sample {
    round: u32,
    scenario: Scenario,
    metric: Metric,
    column: Column,
    value: f64,
}

/// Median and range over the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

#[derive(Default)]
pub struct Results(Vec<Sample>);

impl Results {
    pub fn add(
        &mut self,
        round: u32,
        scenario: Scenario,
        column: Column,
        metric: Metric,
        value: f64,
    ) {
        self.0.push(Sample {
            round,
            scenario,
            metric,
            column,
            value,
        });
    }

    pub fn spread(&self, scenario: Scenario, metric: Metric, column: Column) -> Option<Spread> {
        let mut values: Vec<f64> = self
            .0
            .iter()
            .filter(|sample| {
                sample.scenario == scenario && sample.metric == metric && sample.column == column
            })
            .map(|sample| sample.value)
            .collect();
        values.sort_by(f64::total_cmp);
        Some(Spread {
            median: median(&values)?,
            low: *values.first()?,
            high: *values.last()?,
        })
    }

    pub fn median(&self, scenario: Scenario, metric: Metric, column: Column) -> Option<f64> {
        self.spread(scenario, metric, column)
            .map(|spread| spread.median)
    }

    /// Every scenario and metric that was measured, in order.
    pub fn rows(&self) -> Vec<(Scenario, Metric)> {
        let rows: BTreeMap<_, ()> = self
            .0
            .iter()
            .map(|sample| ((sample.scenario, sample.metric), ()))
            .collect();
        rows.into_keys().collect()
    }

    pub fn json(&self) -> Value {
        self.0
            .iter()
            .map(|sample| {
                let (metric, unit) = sample.metric.label();
                serde_json::json!({
                    "round": sample.round,
                    "scenario": sample.scenario.key(),
                    "system": sample.column.label(),
                    "metric": metric,
                    "unit": unit,
                    "value": sample.value,
                })
            })
            .collect()
    }
}

/// Of sorted values; the mean of the two in the middle if there is no one middle.
pub fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        even if even.is_multiple_of(2) => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
        _ => Some(sorted[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_outlier_doesnt_move_the_median() {
        let mut results = Results::default();
        for (round, value) in [(1, 10.0), (2, 1_000.0), (3, 11.0)] {
            results.add(
                round,
                Scenario::Produce,
                Column::Kafka,
                Metric::Throughput,
                value,
            );
        }
        let spread = results.spread(Scenario::Produce, Metric::Throughput, Column::Kafka);
        assert_eq!(
            spread,
            Some(Spread {
                median: 11.0,
                low: 10.0,
                high: 1_000.0
            })
        );
        assert_eq!(
            results.median(Scenario::Produce, Metric::Throughput, Column::Local),
            None
        );
    }

    #[test]
    fn an_even_count_has_its_median_between() {
        assert_eq!(median(&[1.0, 2.0, 4.0, 8.0]), Some(3.0));
    }
}
