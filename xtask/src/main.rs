//! The project's chores: `cargo xtask test` is the only command that CI knows.
//!
//! It depends on three small crates and compiles in seconds. What it installs and runs is described in the modules.

mod build;
mod cluster_bench;
mod command;
mod results;
mod soak;
mod suites;
mod test;
mod tools;
mod versus;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's chores")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Installs what the tests need, builds once, runs all suites, prints a summary.
    Test(test::TestOptions),
    /// Installs what the tests need, and nothing else.
    Tools,
    /// The crash tests for hours: far more kills than CI has time for.
    Soak(soak::SoakOptions),
    /// Compares with Apache Kafka on this machine: throughput, CPU, latency, memory, start-up.
    Versus(versus::VersusArgs),
    /// Measures what clients notice of moves and failovers, on this machine.
    ClusterBench(cluster_bench::ClusterBenchArgs),
}

fn main() -> Result<()> {
    match Cli::parse().chore {
        Chore::Test(options) => test::run(&options),
        Chore::Tools => tools::install_all(),
        Chore::Soak(options) => soak::run(&options),
        Chore::Versus(args) => versus::run(args),
        Chore::ClusterBench(args) => cluster_bench::run(&args),
    }
}
