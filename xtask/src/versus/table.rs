//! The comparison as Markdown.

use std::fmt::Write as _;

use super::conditions::Conditions;
use super::goals::verdicts;
use super::results::{Column, Metric, Results, Spread};
use super::scenario::{self, Scenario};

pub fn markdown(results: &Results, conditions: &Conditions, rounds: u32) -> String {
    let mut text = String::from("## Tidegate versus Apache Kafka 4.4.0\n\n");
    let plural = if rounds == 1 { "" } else { "s" };
    let _ = writeln!(
        text,
        "Medians of {rounds} round{plural}, lowest and highest in parentheses. Client and broker share the machine. \
         1 MB is 1,000,000 bytes of record values.\n"
    );
    for (name, fact) in conditions.facts() {
        let _ = writeln!(text, "- {name}: {fact}");
    }
    let _ = writeln!(text, "\n{}", scenario::REMARKS);
    figures(&mut text, results);
    goals(&mut text, results);
    text
}

fn figures(text: &mut String, results: &Results) {
    let rows = results.rows();
    let columns: Vec<Column> = Column::ALL
        .into_iter()
        .filter(|column| {
            rows.iter()
                .any(|(scenario, metric)| results.median(*scenario, *metric, *column).is_some())
        })
        .collect();
    let ratios: Vec<Column> = [Column::Local, Column::Object]
        .into_iter()
        .filter(|column| columns.contains(column) && columns.contains(&Column::Kafka))
        .collect();
    let mut head = String::from("| scenario | figure |");
    let mut rule = String::from("|---|---|");
    for column in &columns {
        let _ = write!(head, " {} |", column.label());
        rule.push_str("---:|");
    }
    for column in &ratios {
        let _ = write!(head, " {} ÷ Kafka |", column.label());
        rule.push_str("---:|");
    }
    let _ = writeln!(text, "{head}\n{rule}");
    let mut last = None;
    for (scenario, metric) in rows {
        let name = if last == Some(scenario) {
            ""
        } else {
            scenario.label()
        };
        last = Some(scenario);
        let _ = write!(text, "| {name} | {} |", named(metric));
        for column in &columns {
            let spread = results.spread(scenario, metric, *column);
            let _ = write!(text, " {} |", spread.map_or_else(String::new, shown));
        }
        for column in &ratios {
            let ratio = ratio(results, scenario, metric, *column);
            let _ = write!(
                text,
                " {} |",
                ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"))
            );
        }
        text.push('\n');
    }
}

fn ratio(results: &Results, scenario: Scenario, metric: Metric, column: Column) -> Option<f64> {
    let base = results
        .median(scenario, metric, Column::Kafka)
        .filter(|base| *base > 0.0)?;
    Some(results.median(scenario, metric, column)? / base)
}

fn goals(text: &mut String, results: &Results) {
    let verdicts = verdicts(results);
    if verdicts.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\n| goal | limit | found | met |\n|---|---:|---:|---|"
    );
    for verdict in verdicts {
        let met = if verdict.met { "yes" } else { "**no**" };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {met} |",
            verdict.text,
            verdict.limit,
            digits(verdict.found)
        );
    }
}

fn named(metric: Metric) -> String {
    match metric.label() {
        (name, "") => name.to_owned(),
        (name, unit) => format!("{name}, {unit}"),
    }
}

fn shown(spread: Spread) -> String {
    if spread.low < spread.high {
        format!(
            "{} ({}–{})",
            digits(spread.median),
            digits(spread.low),
            digits(spread.high)
        )
    } else {
        digits(spread.median)
    }
}

/// About three digits.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_a_cell_for_each_column_and_ratio() {
        let mut results = Results::default();
        for (column, value) in [(Column::Kafka, 100.0), (Column::Local, 250.0)] {
            results.add(1, Scenario::Produce, column, Metric::Throughput, value);
        }
        let mut text = String::new();
        figures(&mut text, &results);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "| scenario | figure | Kafka | Tidegate local | Tidegate local ÷ Kafka |"
        );
        assert!(
            lines[2].ends_with("| throughput, MB/s | 100 | 250 | 2.50 |"),
            "{text}"
        );
    }

    #[test]
    fn digits_follow_the_size() {
        assert_eq!(digits(1234.5), "1234");
        assert_eq!(digits(12.34), "12.3");
        assert_eq!(digits(0.123), "0.12");
    }
}
