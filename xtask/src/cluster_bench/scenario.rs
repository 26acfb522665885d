//! What is run, with which arguments, and what it should reach.

use clap::ValueEnum;

/// What happens to the cluster.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(super) enum Scenario {
    /// A partition that holds 2 GB goes round the brokers.
    MoveLarge,
    /// The same with 10 MB.
    MoveSmall,
    /// An empty one beside 100 idle partitions.
    MoveBesideFew,
    /// The same beside 10,000.
    MoveBesideMany,
    /// 1,000 partitions leave a broker.
    Drain,
    /// 500 and 500 partitions swap.
    Swap,
    /// A fourth broker joins.
    Join,
    /// Brokers are killed.
    KillBroker,
    /// Controllers are killed.
    KillController,
}

/// Where acknowledgements come from.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(super) enum Durability {
    /// The broker's disk.
    Local,
    /// The object store.
    Object,
}

/// How far the store is.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(super) enum Store {
    /// On the same machine.
    Near,
    /// As far as `--far-latency-ms` says.
    Far,
}

/// One run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub(super) scenario: Scenario,
    pub(super) durability: Durability,
    pub(super) store: Store,
}

/// How much is done.
pub(super) struct Scale {
    moves: u32,
    kills: u32,
    quick: bool,
}

/// A figure of the table: what it is, where it is in a report, and its limits near and far.
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) pointer: &'static str,
    pub(super) near: Option<f64>,
    pub(super) far: Option<f64>,
}

impl Scale {
    pub(super) fn new(quick: bool, moves: Option<u32>, kills: Option<u32>) -> Self {
        Self {
            moves: moves.unwrap_or(if quick { 20 } else { 200 }),
            kills: kills.unwrap_or(if quick { 3 } else { 20 }),
            quick,
        }
    }
}

/// All runs: brokers are killed in `object` mode only, because a `local` partition waits for its broker.
pub(super) fn all() -> Vec<Run> {
    let mut runs = Vec::new();
    for scenario in Scenario::value_variants() {
        for durability in [Durability::Local, Durability::Object] {
            for store in [Store::Near, Store::Far] {
                let run = Run {
                    scenario: *scenario,
                    durability,
                    store,
                };
                if run.is_of_interest() {
                    runs.push(run);
                }
            }
        }
    }
    runs
}

impl Run {
    fn is_of_interest(self) -> bool {
        match self.scenario {
            Scenario::KillBroker | Scenario::KillController | Scenario::Join => {
                self.durability == Durability::Object
            }
            Scenario::MoveBesideFew | Scenario::MoveBesideMany => {
                self.durability == Durability::Object && self.store == Store::Near
            }
            Scenario::MoveLarge | Scenario::MoveSmall | Scenario::Drain | Scenario::Swap => true,
        }
    }

    /// Its name in files and folders.
    pub(super) fn key(self) -> String {
        format!("{:?}-{:?}-{:?}", self.scenario, self.durability, self.store).to_lowercase()
    }

    /// What `tidegate-bench` is asked.
    pub(super) fn arguments(self, scale: &Scale) -> Vec<String> {
        let text = match self.scenario {
            Scenario::MoveLarge => format!(
                "move --moves {} --fill {}",
                scale.moves,
                if scale.quick { "200MB" } else { "2GB" }
            ),
            Scenario::MoveSmall => format!("move --moves {} --fill 10MB", scale.moves),
            Scenario::MoveBesideFew => {
                format!("move --moves {} --idle-partitions 100", scale.moves)
            }
            Scenario::MoveBesideMany => {
                format!("move --moves {} --idle-partitions 10000", scale.moves)
            }
            Scenario::Drain => "move --pattern drain --partitions 1000".to_owned(),
            Scenario::Swap => "move --pattern swap --partitions 1000".to_owned(),
            Scenario::Join => "move --pattern join --partitions 300".to_owned(),
            Scenario::KillBroker => format!("failover --kills {} --partitions 100", scale.kills),
            Scenario::KillController => format!(
                "failover --victim controller --kills {} --partitions 100",
                scale.kills.div_ceil(2)
            ),
        };
        let durability = match self.durability {
            Durability::Local => "local",
            Durability::Object => "object",
        };
        text.split(' ')
            .chain(["--background-mb", "20", "--durability", durability])
            .chain(["--timeout", "180s"])
            .map(str::to_owned)
            .collect()
    }
}

impl Scenario {
    /// Its name for people.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::MoveLarge => "moves of a partition of 2 GB",
            Self::MoveSmall => "moves of a partition of 10 MB",
            Self::MoveBesideFew => "moves beside 100 partitions",
            Self::MoveBesideMany => "moves beside 10,000 partitions",
            Self::Drain => "1,000 partitions drained",
            Self::Swap => "500 + 500 partitions swapped",
            Self::Join => "a fourth broker joins 300 partitions",
            Self::KillBroker => "kill -9 of a broker, 100 partitions",
            Self::KillController => "kill -9 of the controller",
        }
    }

    /// What is shown of it.
    pub(super) fn figures(self) -> Vec<Figure> {
        let figure = |name, pointer, near, far| Figure {
            name,
            pointer,
            near,
            far,
        };
        let plain = |name, pointer| figure(name, pointer, None, None);
        let within = |name, pointer, limit| figure(name, pointer, Some(limit), Some(limit));
        let mut figures = match self {
            Self::MoveLarge | Self::MoveSmall => vec![
                figure("gap p50, ms", GAP_P50, Some(20.0), Some(120.0)),
                figure("gap p99, ms", GAP_P99, Some(80.0), Some(300.0)),
                figure("gap max, ms", GAP_MAX, Some(200.0), None),
                plain("calm gap p50, ms", "/latency_ms/calm_gap/p50"),
                plain("calm gap p99, ms", "/latency_ms/calm_gap/p99"),
            ],
            Self::MoveBesideFew | Self::MoveBesideMany => vec![
                plain("gap p50, ms", GAP_P50),
                plain("gap p99, ms", GAP_P99),
                plain("server total p99, ms", TOTAL_P99),
            ],
            Self::Drain => vec![
                within("all led elsewhere after, s", "/findings/drained_in_s", 5.0),
                plain("gap p50, ms", GAP_P50),
                plain("gap p99, ms", GAP_P99),
                within("gap max, ms", GAP_MAX, 500.0),
                plain("calm gap max, ms", "/latency_ms/calm_gap/max"),
            ],
            Self::Swap => vec![
                within("all done after, s", "/findings/swapped_in_s", 10.0),
                plain("gap p50, ms", GAP_P50),
                plain("gap p99, ms", GAP_P99),
                plain("gap max, ms", GAP_MAX),
                plain("calm gap max, ms", "/latency_ms/calm_gap/max"),
            ],
            Self::Join => vec![
                within(
                    "leads its share after, s",
                    "/findings/share_reached_in_s",
                    10.0,
                ),
                plain("gap p99, ms", GAP_P99),
            ],
            Self::KillBroker => vec![
                plain("writable again p50, ms", "/latency_ms/silence/p50"),
                within("writable again p99, ms", "/latency_ms/silence/p99", 3_000.0),
                plain("writable again max, ms", "/latency_ms/silence/max"),
                plain("readable again p99, ms", "/latency_ms/fetch_gap/p99"),
                plain(
                    "other partitions' gap p99, ms",
                    "/latency_ms/unaffected_gap/p99",
                ),
                plain("calm gap p99, ms", "/latency_ms/calm_gap/p99"),
            ],
            Self::KillController => vec![
                within(
                    "new controller max, ms",
                    "/latency_ms/new_controller/max",
                    4_000.0,
                ),
                plain(
                    "other partitions' gap p50, ms",
                    "/latency_ms/unaffected_gap/p50",
                ),
                plain(
                    "other partitions' gap p99, ms",
                    "/latency_ms/unaffected_gap/p99",
                ),
                plain(
                    "other partitions' fetch gap p99, ms",
                    "/latency_ms/unaffected_fetch/p99",
                ),
                plain("calm gap p99, ms", "/latency_ms/calm_gap/p99"),
                plain(
                    "its own partitions writable again p99, ms",
                    "/latency_ms/silence/p99",
                ),
            ],
        };
        if matches!(self, Self::MoveLarge | Self::MoveSmall | Self::Swap) {
            figures.extend([
                plain("server: prepare p50, ms", "/latency_ms/server_prepare/p50"),
                plain("server: seal p50, ms", "/latency_ms/server_seal/p50"),
                plain("server: hold p50, ms", "/latency_ms/server_hold/p50"),
                plain("server: commit p50, ms", "/latency_ms/server_commit/p50"),
                plain("server: total p50, ms", "/latency_ms/server_total/p50"),
                plain("server: total p99, ms", TOTAL_P99),
                within("moves failed", "/findings/moves_failed", 0.0),
            ]);
        }
        figures.extend([
            within("acknowledged and lost", "/findings/lost", 0.0),
            within("duplicates", "/findings/duplicates", 0.0),
            within("out of order", "/findings/out_of_order", 0.0),
        ]);
        figures
    }
}

pub(super) const GAP_P50: &str = "/latency_ms/gap/p50";
const GAP_P99: &str = "/latency_ms/gap/p99";
const GAP_MAX: &str = "/latency_ms/gap/max";
pub(super) const TOTAL_P99: &str = "/latency_ms/server_total/p99";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_has_a_key_of_its_own() {
        let mut keys: Vec<String> = all().into_iter().map(Run::key).collect();
        let count = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count);
        assert!(keys.contains(&"killbroker-object-far".to_owned()));
        assert!(!keys.contains(&"killbroker-local-near".to_owned()));
    }
}
