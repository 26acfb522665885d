//! What the demo tells: lines for people, or one JSON object a line for programs.

use std::collections::VecDeque;
use std::fmt;
use std::io::Write;
use std::time::Duration;

use serde::Serialize;

use super::ledger::{Gap, Totals};

/// Gaps that are kept to tell the median.
const KEPT: usize = 10_000;

/// Milliseconds, to the tenth: what is behind that is noise.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize)]
#[serde(transparent)]
pub struct Ms(f64);

impl From<Duration> for Ms {
    fn from(time: Duration) -> Self {
        Self((time.as_secs_f64() * 10_000.0).round() / 10.0)
    }
}

impl From<f64> for Ms {
    fn from(ms: f64) -> Self {
        Self((ms * 10.0).round() / 10.0)
    }
}

impl fmt::Display for Ms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = if self.0 >= 1_000.0 {
            format!("{:.2} s", self.0 / 1_000.0)
        } else if self.0 >= 10.0 {
            format!("{:.0} ms", self.0)
        } else {
            format!("{:.1} ms", self.0)
        };
        f.pad(&text)
    }
}

/// Median and maximum of the gaps of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Spread {
    pub p50_ms: Ms,
    pub max_ms: Ms,
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (max {})", self.p50_ms, self.max_ms)
    }
}

/// Gaps of one kind: how many, their maximum, and the last of them.
#[derive(Debug, Default)]
pub struct Gaps {
    pub count: u64,
    write: Series,
    read: Series,
}

#[derive(Debug, Default)]
struct Series {
    last: VecDeque<Duration>,
    max: Duration,
}

impl Series {
    fn add(&mut self, gap: Duration) {
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(gap);
        self.max = self.max.max(gap);
    }

    fn spread(&self) -> Spread {
        Spread {
            p50_ms: super::ledger::median(self.last.iter().copied().collect()).into(),
            max_ms: self.max.into(),
        }
    }
}

impl Gaps {
    pub fn add(&mut self, gap: Gap) {
        self.count += 1;
        self.write.add(gap.write);
        self.read.add(gap.read);
    }

    /// Of the producer.
    pub fn write(&self) -> Spread {
        self.write.spread()
    }

    /// Of the consumer.
    pub fn read(&self) -> Spread {
        self.read.spread()
    }
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The brokers were started.
    Starting {
        brokers: u32,
        folder: String,
        kafka: Vec<String>,
        admin: Vec<String>,
    },
    /// They serve.
    Ready { controller: u32 },
    /// The clients run.
    Running {
        topic: String,
        partitions: u32,
        records_per_second: u64,
        normal_ms: Ms,
    },
    /// One partition has moved.
    Moved {
        partition: u32,
        from: u32,
        to: u32,
        write_gap_ms: Ms,
        read_gap_ms: Ms,
        prepare_ms: Ms,
        seal_ms: Ms,
        commit_ms: Ms,
    },
    /// Several partitions have moved by one request.
    MovedTogether {
        why: &'static str,
        partitions: u64,
        took_ms: Ms,
        write_gap_ms: Spread,
        read_gap_ms: Spread,
    },
    /// A move wasn't carried out.
    MoveFailed {
        partition: u32,
        to: u32,
        cause: String,
    },
    /// A broker was killed.
    Killed {
        broker: u32,
        partitions: u64,
        was_controller: bool,
    },
    /// All its partitions are written to again.
    FailedOver {
        broker: u32,
        partitions: u64,
        write_gap_ms: Spread,
        read_gap_ms: Spread,
        others_write_gap_ms: Ms,
    },
    /// It is back.
    Returned { broker: u32, after_ms: Ms },
    /// The end.
    Summary(Summary),
}

/// How it all went.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    pub seconds: f64,
    pub acknowledged: u64,
    pub read: u64,
    pub lost: u64,
    pub duplicates: u64,
    pub moves: u64,
    pub moves_failed: u64,
    pub move_write_gap_ms: Spread,
    pub move_read_gap_ms: Spread,
    pub failovers: u64,
    pub failover_write_gap_ms: Spread,
    pub failover_read_gap_ms: Spread,
    /// What the clients couldn't mend, or what kept the demo from going on.
    pub failures: Vec<String>,
}

impl Summary {
    pub fn new(took: Duration, totals: Totals, failures: Vec<String>) -> Self {
        Self {
            seconds: (took.as_secs_f64() * 10.0).round() / 10.0,
            acknowledged: totals.acknowledged,
            read: totals.read,
            lost: totals.lost,
            duplicates: totals.duplicates,
            moves: 0,
            moves_failed: 0,
            move_write_gap_ms: Spread::default(),
            move_read_gap_ms: Spread::default(),
            failovers: 0,
            failover_write_gap_ms: Spread::default(),
            failover_read_gap_ms: Spread::default(),
            failures,
        }
    }

    /// Nothing is lost or repeated, and nothing failed.
    pub fn is_good(&self) -> bool {
        self.lost == 0 && self.duplicates == 0 && self.moves_failed == 0 && self.failures.is_empty()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "after {:.1} s", self.seconds)?;
        writeln!(f)?;
        writeln!(
            f,
            "  records    {} acknowledged, {} read, {} lost, {} duplicates",
            self.acknowledged, self.read, self.lost, self.duplicates
        )?;
        let failed = match self.moves_failed {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        writeln!(f, "  moves      {}{failed}", self.moves)?;
        writeln!(f, "    write gap  {}", self.move_write_gap_ms)?;
        writeln!(f, "    read gap   {}", self.move_read_gap_ms)?;
        writeln!(f, "  kill -9    {}", self.failovers)?;
        writeln!(f, "    write gap  {}", self.failover_write_gap_ms)?;
        write!(f, "    read gap   {}", self.failover_read_gap_ms)?;
        for failure in &self.failures {
            write!(f, "\n  failed     {failure}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting {
                brokers,
                folder,
                kafka,
                admin,
            } => {
                writeln!(f, "{brokers} brokers start over one store in {folder}")?;
                writeln!(f, "          Kafka clients: {}", kafka.join(","))?;
                write!(f, "          tidegate cluster status --admin {}", admin[0])
            }
            Self::Ready { controller } => {
                write!(f, "all serve; broker {controller} is the controller")
            }
            Self::Running {
                topic,
                partitions,
                records_per_second,
                normal_ms,
            } => write!(
                f,
                "topic {topic}: {partitions} partitions, {records_per_second} records/s written and read, \
                 an acknowledgement every {normal_ms}"
            ),
            Self::Moved {
                partition,
                from,
                to,
                write_gap_ms,
                read_gap_ms,
                prepare_ms,
                seal_ms,
                commit_ms,
            } => write!(
                f,
                "partition {partition:>2} moved from {from} to {to}: write gap {write_gap_ms:>7}, \
                 read gap {read_gap_ms:>7}  (prepare {prepare_ms}, seal {seal_ms}, commit {commit_ms})"
            ),
            Self::MovedTogether {
                why,
                partitions,
                took_ms,
                write_gap_ms,
                read_gap_ms,
            } => write!(
                f,
                "{why}: {partitions} partitions moved in {took_ms}: write gap {write_gap_ms}, read gap {read_gap_ms}"
            ),
            Self::MoveFailed {
                partition,
                to,
                cause,
            } => write!(f, "partition {partition} didn't move to {to}: {cause}"),
            Self::Killed {
                broker,
                partitions,
                was_controller,
            } => {
                let controller = if *was_controller {
                    " and is the controller"
                } else {
                    ""
                };
                write!(
                    f,
                    "broker {broker}, which leads {partitions} partitions{controller}: kill -9"
                )
            }
            Self::FailedOver {
                broker,
                partitions,
                write_gap_ms,
                read_gap_ms,
                others_write_gap_ms,
            } => write!(
                f,
                "its {partitions} partitions go on without broker {broker}: write gap {write_gap_ms}, \
                 read gap {read_gap_ms}; the others' write gap at most {others_write_gap_ms}"
            ),
            Self::Returned { broker, after_ms } => {
                write!(
                    f,
                    "broker {broker} is started again, and back after {after_ms}"
                )
            }
            Self::Summary(summary) => summary.fmt(f),
        }
    }
}

/// Tells events as they happen.
#[derive(Debug, Clone, Copy)]
pub struct Teller {
    pub json: bool,
}

impl Teller {
    /// A closed output is nobody's error: what it is for goes on.
    pub fn tell(self, at: Duration, event: &Event) {
        let mut out = std::io::stdout().lock();
        if self.json {
            let mut line =
                serde_json::json!({ "t_s": (at.as_secs_f64() * 1_000.0).round() / 1_000.0 });
            if let (Some(line), Ok(serde_json::Value::Object(facts))) =
                (line.as_object_mut(), serde_json::to_value(event))
            {
                line.extend(facts);
            }
            let _ = writeln!(out, "{line}");
        } else {
            let _ = writeln!(out, "{:>6.1} s  {event}", at.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_the_unit_that_fits() {
        let told = |ms: f64| Ms::from(ms).to_string();
        assert_eq!(told(3.24), "3.2 ms");
        assert_eq!(told(31.4), "31 ms");
        assert_eq!(told(2_345.0), "2.35 s");
        assert_eq!(format!("{:>7}|", Ms::from(9.0)), " 9.0 ms|");
    }

    #[test]
    fn the_maximum_outlives_the_gaps_that_are_kept() {
        let mut gaps = Gaps::default();
        let gap = |ms| Gap {
            write: Duration::from_millis(ms),
            read: Duration::ZERO,
        };
        gaps.add(gap(900));
        for _ in 0..KEPT {
            gaps.add(gap(7));
        }
        assert_eq!(gaps.count, KEPT as u64 + 1);
        assert_eq!(gaps.write.last.len(), KEPT);
        let spread = gaps.write();
        assert_eq!((spread.p50_ms, spread.max_ms), (Ms(7.0), Ms(900.0)));
    }

    #[test]
    fn a_loss_a_duplicate_and_a_failure_are_each_no_success() {
        let good = Summary::new(Duration::ZERO, Totals::default(), Vec::new());
        assert!(good.is_good());
        let bad = [
            Summary {
                lost: 1,
                ..good.clone()
            },
            Summary {
                duplicates: 1,
                ..good.clone()
            },
            Summary {
                moves_failed: 1,
                ..good.clone()
            },
            Summary {
                failures: vec!["x".to_owned()],
                ..good
            },
        ];
        assert!(bad.iter().all(|summary| !summary.is_good()));
    }

    #[test]
    fn an_event_is_one_flat_object() {
        let summary = Summary::new(Duration::from_secs(2), Totals::default(), Vec::new());
        let json = serde_json::to_value(Event::Summary(summary)).unwrap();
        assert_eq!(json["event"], "summary");
        assert_eq!(json["lost"], 0);
        assert_eq!(json["move_write_gap_ms"]["max_ms"], 0.0);
    }
}
