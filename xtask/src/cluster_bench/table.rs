//! The results as Markdown.

use std::fmt::Write as _;

use clap::ValueEnum as _;
use serde_json::Value;

use super::scenario::{Durability, Figure, GAP_P50, Run, Scenario, Store, TOTAL_P99};

/// All that has been run.
pub(super) fn markdown(results: &Value) -> String {
    let mut text = String::new();
    if let Some(facts) = results["conditions"].as_object() {
        for (name, fact) in facts.iter().filter(|(name, _)| *name != "Java") {
            let _ = writeln!(text, "- {name}: {}", fact.as_str().unwrap_or_default());
        }
    }
    let far = results["far_latency_ms"].as_str().unwrap_or("60,140");
    let _ = writeln!(
        text,
        "\n| scenario | mode | figure | near store | far store ({} ms) | goal | met |\n|---|---|---|---:|---:|---:|---|",
        far.replace(',', "/")
    );
    for scenario in Scenario::value_variants() {
        for durability in [Durability::Local, Durability::Object] {
            rows(&mut text, results, *scenario, durability);
        }
    }
    derived(&mut text, results);
    text
}

fn report(results: &Value, scenario: Scenario, durability: Durability, store: Store) -> &Value {
    let run = Run {
        scenario,
        durability,
        store,
    };
    &results["runs"][run.key()]
}

fn rows(text: &mut String, results: &Value, scenario: Scenario, durability: Durability) {
    let [near, far] =
        [Store::Near, Store::Far].map(|store| report(results, scenario, durability, store));
    if near.is_null() && far.is_null() {
        return;
    }
    let mode = format!("{durability:?}").to_lowercase();
    let mut names = (scenario.label(), mode.as_str());
    for figure in scenario.figures() {
        let [found_near, found_far] =
            [near, far].map(|report| report.pointer(figure.pointer).and_then(Value::as_f64));
        if found_near.is_none() && found_far.is_none() {
            continue;
        }
        let cells = [
            shown(found_near),
            shown(found_far),
            goal(&figure),
            met(&[(found_near, figure.near), (found_far, figure.far)]),
        ];
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            names.0,
            names.1,
            figure.name,
            cells.join(" | ")
        );
        names = ("", "");
    }
}

/// What follows from two runs, or isn't a plain number of one.
fn derived(text: &mut String, results: &Value) {
    for durability in [Durability::Local, Durability::Object] {
        let ratio = |store| {
            let of = |scenario| {
                report(results, scenario, durability, store)
                    .pointer(GAP_P50)
                    .and_then(Value::as_f64)
            };
            Some(of(Scenario::MoveLarge)? / of(Scenario::MoveSmall)?.max(0.001))
        };
        let mode = format!("{durability:?}").to_lowercase();
        line(
            text,
            "2 GB against 10 MB",
            &mode,
            "ratio of the gaps' medians",
            [ratio(Store::Near), ratio(Store::Far)],
            1.2,
        );
    }
    let beside = |scenario| report(results, scenario, Durability::Object, Store::Near);
    let total = |scenario| beside(scenario).pointer(TOTAL_P99).and_then(Value::as_f64);
    let ratio = || Some(total(Scenario::MoveBesideMany)? / total(Scenario::MoveBesideFew)?);
    let name = "10,000 partitions against 100";
    line(
        text,
        name,
        "object",
        "ratio of the moves' p99",
        [ratio(), None],
        2.0,
    );
    let memory = beside(Scenario::MoveBesideMany)
        .pointer("/findings/resident_mb")
        .and_then(Value::as_object)
        .and_then(|brokers| {
            let controller = brokers
                .iter()
                .find(|(name, _)| name.starts_with("controller"));
            controller?.1.as_f64()
        });
    line(
        text,
        "10,000 partitions",
        "object",
        "resident memory of the controller, MB",
        [memory, None],
        300.0,
    );
}

fn line(
    text: &mut String,
    name: &str,
    mode: &str,
    figure: &str,
    found: [Option<f64>; 2],
    limit: f64,
) {
    if found.iter().all(Option::is_none) {
        return;
    }
    let _ = writeln!(
        text,
        "| {name} | {mode} | {figure} | {} | {} | ≤ {} | {} |",
        shown(found[0]),
        shown(found[1]),
        digits(limit),
        met(&found.map(|found| (found, Some(limit))))
    );
}

fn goal(figure: &Figure) -> String {
    match (figure.near, figure.far) {
        (None, None) => String::new(),
        (Some(near), Some(far)) if near < far || far < near => {
            format!("≤ {}, far ≤ {}", digits(near), digits(far))
        }
        (Some(near), Some(_)) => format!("≤ {}", digits(near)),
        (Some(near), None) => format!("near ≤ {}", digits(near)),
        (None, Some(far)) => format!("far ≤ {}", digits(far)),
    }
}

/// Whether what was found is within what was asked for.
fn met(pairs: &[(Option<f64>, Option<f64>); 2]) -> String {
    let said = pairs.map(|(found, limit)| match (found, limit) {
        (Some(found), Some(limit)) => Some(found <= limit),
        _ => None,
    });
    let word = |met| if met { "yes" } else { "**no**" };
    match said {
        [None, None] => String::new(),
        [Some(near), Some(far)] if near != far => format!("near {}, far {}", word(near), word(far)),
        [Some(one), _] | [None, Some(one)] => word(one).to_owned(),
    }
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(String::new, digits)
}

/// About three digits.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 || size.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_goal_stands_out() {
        let results = serde_json::json!({"runs": {
            "movelarge-object-near": {"latency_ms": {"gap": {"p50": 30.0, "p99": 50.0, "max": 60.0}}, "findings": {"lost": 0}},
            "movesmall-object-near": {"latency_ms": {"gap": {"p50": 10.0}}},
            "movelarge-object-far": {"latency_ms": {"gap": {"p50": 100.0}}},
        }});
        let text = markdown(&results);
        assert!(
            text.contains("| moves of a partition of 2 GB | object | gap p50, ms | 30 | 100 | ≤ 20, far ≤ 120 | near **no**, far yes |"),
            "{text}"
        );
        assert!(
            text.contains("|  |  | gap p99, ms | 50 |  | ≤ 80, far ≤ 300 | yes |"),
            "{text}"
        );
        assert!(
            text.contains("| ratio of the gaps' medians | 3 |  | ≤ 1.20 | **no** |"),
            "{text}"
        );
        assert!(
            text.contains("| acknowledged and lost | 0 |  | ≤ 0 | yes |"),
            "{text}"
        );
    }
}
