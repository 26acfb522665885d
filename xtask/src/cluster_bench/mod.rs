//! `cargo xtask cluster-bench`: what clients notice of moves and failovers, on this machine.
//!
//! Each run is a fresh cluster of three brokers over a fresh S3 server, measured by `tidegate-bench`, once with the
//! server as near as it is and once behind a proxy that makes it as slow as a far one.

mod scenario;
mod table;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::Value;

use crate::command::{output_of, root};
use crate::tools;
use crate::versus::conditions;
use crate::versus::s3::S3;

use scenario::{Durability, Run, Scale, Scenario, Store};

/// What to run.
#[derive(Args)]
pub(crate) struct ClusterBenchArgs {
    /// Only these scenarios; all unless given.
    #[arg(long, value_enum, value_delimiter = ',')]
    scenario: Vec<Scenario>,
    /// Only these stores; both unless given.
    #[arg(long, value_enum, value_delimiter = ',')]
    store: Vec<Store>,
    /// Only acknowledged from there; both unless given.
    #[arg(long, value_enum, value_delimiter = ',')]
    durability: Vec<Durability>,
    /// Few moves and kills, little data: to see that everything works, not to quote.
    #[arg(long)]
    quick: bool,
    /// How many moves, 200 unless given.
    #[arg(long)]
    moves: Option<u32>,
    /// How many kills, 20 unless given.
    #[arg(long)]
    kills: Option<u32>,
    /// Median and 99th percentile of the far store, in milliseconds.
    #[arg(long, default_value = "60,140", value_name = "P50,P99")]
    far_latency_ms: String,
    /// Where the raw results go; results of runs that aren't repeated stay in it.
    #[arg(long, default_value = "target/cluster-bench.json", value_name = "FILE")]
    json: PathBuf,
    /// Also write the table to this file.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Where the clusters keep their data meanwhile.
    #[arg(long, default_value = "target/cluster-bench", value_name = "FOLDER")]
    work_dir: PathBuf,
    /// A `tidegate` to use instead of building one.
    #[arg(long, value_name = "FILE")]
    tidegate_bin: Option<PathBuf>,
    /// A `tidegate-bench` to use instead of building one.
    #[arg(long, value_name = "FILE")]
    bench_bin: Option<PathBuf>,
    /// Run nothing: print the table of the results that are there.
    #[arg(long)]
    table_only: bool,
}

/// Programs that take part.
struct Programs {
    tidegate: PathBuf,
    bench: PathBuf,
    versitygw: PathBuf,
}

/// Runs what is asked for and prints the table.
pub(crate) fn run(args: &ClusterBenchArgs) -> Result<()> {
    let json = root().join(&args.json);
    let mut results: Value = std::fs::read(&json)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_else(|| serde_json::json!({"conditions": {}, "runs": {}}));
    let mut failures = Vec::new();
    if !args.table_only {
        failures = run_all(args, &json, &mut results)?;
    }
    let text = table::markdown(&results);
    println!("{text}");
    if let Some(file) = &args.markdown {
        std::fs::write(root().join(file), &text)
            .with_context(|| format!("can't write {}", file.display()))?;
    }
    if failures.is_empty() {
        return Ok(());
    }
    bail!("{} runs failed:\n{}", failures.len(), failures.join("\n"))
}

fn run_all(args: &ClusterBenchArgs, json: &Path, results: &mut Value) -> Result<Vec<String>> {
    tools::install_s3()?;
    let programs = Programs {
        tidegate: args
            .tidegate_bin
            .clone()
            .map_or_else(|| crate::versus::build("tidegate"), Ok)?,
        bench: args
            .bench_bin
            .clone()
            .map_or_else(|| crate::versus::build("tidegate-bench"), Ok)?,
        versitygw: tools::folder()?.join("bin/versitygw"),
    };
    let work = root().join(&args.work_dir);
    std::fs::create_dir_all(&work)?;
    results["conditions"] = conditions::observe(&work, args.quick)?.json();
    results["far_latency_ms"] = Value::from(args.far_latency_ms.clone());
    let scale = Scale::new(args.quick, args.moves, args.kills);
    let mut failures = Vec::new();
    for run in scenario::all() {
        let wanted = (args.scenario.is_empty() || args.scenario.contains(&run.scenario))
            && (args.store.is_empty() || args.store.contains(&run.store))
            && (args.durability.is_empty() || args.durability.contains(&run.durability));
        if !wanted {
            continue;
        }
        let begun = Instant::now();
        eprint!("{} … ", run.key());
        match one(args, &programs, &work, run, &scale) {
            Ok(mut report) => {
                // Thousands of lines that no table shows.
                if let Some(fields) = report.as_object_mut() {
                    fields.remove("timeline");
                }
                results["runs"][run.key()] = report;
                std::fs::write(json, format!("{results:#}\n"))
                    .with_context(|| format!("can't write {}", json.display()))?;
                eprintln!("{:.0} s", begun.elapsed().as_secs_f64());
            }
            Err(error) => {
                // One that fails shall not cost the others.
                eprintln!("failed: {error:#}");
                failures.push(format!("{}: {error:#}", run.key()));
            }
        }
    }
    Ok(failures)
}

fn one(
    args: &ClusterBenchArgs,
    programs: &Programs,
    work: &Path,
    run: Run,
    scale: &Scale,
) -> Result<Value> {
    let folder = work.join(run.key());
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    let s3 = S3::start(&programs.versitygw, &folder)?;
    let mut command = Command::new(&programs.bench);
    command
        .args(run.arguments(scale))
        .arg("--json")
        .arg("--tidegate-bin")
        .arg(&programs.tidegate)
        .args(["--store", &s3.url("tidegate")])
        .arg("--work-dir")
        .arg(folder.join("brokers"))
        .envs(s3.environment());
    if run.store == Store::Far {
        command.args(["--s3-latency-ms", &args.far_latency_ms]);
    }
    let text = output_of(&mut command)?;
    drop(s3);
    let report =
        serde_json::from_str(&text).context("tidegate-bench didn't answer with one JSON object")?;
    std::fs::remove_dir_all(&folder)?;
    Ok(report)
}
