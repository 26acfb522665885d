//! `tidegate-bench` measures a Kafka-compatible broker from a client's side.
//!
//! It promises that a latency counts from when a record *should* have been sent (so a stalled broker can't
//! hide its stall by stalling the client), that a report says what was asked for next to what was found, and
//! that exactly one JSON object is on standard output with `--json`. It doesn't know which broker it
//! measures: nothing in it is particular to Tidegate, and it never looks at a broker's process. The exception is
//! the module `cluster`: moves and failovers are asked of Tidegate's admin API and done to its processes.

mod cli;
mod client;
mod cluster;
mod consume;
mod drive;
mod histogram;
mod latency;
mod load;
mod payload;
mod plot;
mod produce;
mod raw_put;
mod recorder;
mod report;
mod timeline;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser as _;

use crate::cli::{Cli, Command, OutputArgs};
use crate::report::Report;

fn main() -> ExitCode {
    match run(&Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<()> {
    let report = match command {
        Command::Produce(args) => publish(produce::run(args)?, &args.output)?,
        Command::Latency(args) => publish(latency::run(args)?, &args.output)?,
        Command::Consume(args) => publish(consume::run_consume(args)?, &args.output)?,
        Command::Coldread(args) => publish(consume::run_coldread(args)?, &args.output)?,
        Command::RawPut(args) => publish(raw_put::run(args)?, &args.output)?,
        Command::Move(args) => print(cluster::run_move(args)?, args.json)?,
        Command::Failover(args) => print(cluster::run_failover(args)?, args.json)?,
        Command::Compaction(args) => print(cluster::run_compaction(args)?, args.json)?,
        Command::Coordinator(args) => print(cluster::run_coordinator(args)?, args.json)?,
    };
    match command {
        Command::Produce(_)
        | Command::Latency(_)
        | Command::RawPut(_)
        | Command::Move(_)
        | Command::Failover(_)
        | Command::Compaction(_)
        | Command::Coordinator(_) => produce::require_success(&report),
        Command::Consume(_) | Command::Coldread(_) => Ok(()),
    }
}

fn publish(report: Report, output: &OutputArgs) -> Result<Report> {
    if let Some(file) = &output.plot {
        std::fs::write(file, plot::svg(&report))
            .with_context(|| format!("could not write the chart to {}", file.display()))?;
    }
    print(report, output.json)
}

fn print(report: Report, json: bool) -> Result<Report> {
    if json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{}", report.table());
    }
    Ok(report)
}
