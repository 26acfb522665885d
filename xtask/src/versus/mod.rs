//! `cargo xtask versus`: Tidegate and Apache Kafka on this machine, same client, same work, in turn.
//!
//! Every round starts each system afresh on an empty folder and puts it through the same scenarios; the order
//! of the systems is reversed every other round, so that neither always has the cooler machine. What is
//! compared are medians over the rounds. Apache Kafka acknowledges without fsync, Tidegate doesn't: the table
//! says so, and shows Kafka with `flush.messages=1` beside it.

mod client;
pub(crate) mod conditions;
mod files;
mod goals;
mod kafka;
mod probe;
mod process;
mod results;
pub(crate) mod s3;
mod scenario;
mod system;
mod table;
mod tidegate;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};

use crate::build::cargo;
use crate::command::root;
use crate::tools;

use client::Client;
use conditions::Conditions;
use results::Results;
use scenario::{Scale, Scenario};
use system::{Installed, System};

/// What to compare, how often, how long.
#[derive(Args)]
pub struct VersusArgs {
    /// Only these scenarios; all unless given.
    #[arg(long, value_enum, value_delimiter = ',')]
    scenario: Vec<Scenario>,
    /// Only these systems; all unless given.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Only>,
    /// How often each system runs; the figures are medians.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Short runs and little data: to see that everything works, not to quote.
    #[arg(long)]
    quick: bool,
    /// Fixed rate of the latency scenarios, in MB/s.
    #[arg(long, default_value_t = 20.0)]
    rate_mb: f64,
    /// Also produce with Apache Kafka's own performance client.
    #[arg(long)]
    java_client: bool,
    /// Empty the operating system's page cache before cold reads (needs root).
    #[arg(long)]
    drop_caches: bool,
    /// Where the raw results go.
    #[arg(long, default_value = "target/versus.json", value_name = "FILE")]
    json: PathBuf,
    /// Also write the table to this file.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Where the systems keep their data meanwhile; emptied before and removed after.
    #[arg(long, default_value = "target/versus", value_name = "FOLDER")]
    work_dir: PathBuf,
    /// Leave the folder with data and logs behind.
    #[arg(long)]
    keep: bool,
    /// A `tidegate` to use instead of building one.
    #[arg(long, value_name = "FILE")]
    tidegate_bin: Option<PathBuf>,
    /// A `tidegate-bench` to use instead of building one.
    #[arg(long, value_name = "FILE")]
    bench_bin: Option<PathBuf>,
}

/// A system, as it is named on the command line.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Only {
    /// Apache Kafka, with its default and with `flush.messages=1`.
    Kafka,
    /// Tidegate in both modes.
    Tidegate,
    /// Tidegate, acknowledging from its disk.
    TidegateLocal,
    /// Tidegate, acknowledging from a real S3 server.
    TidegateObject,
}

impl VersusArgs {
    fn systems(&self) -> Vec<System> {
        System::ALL
            .into_iter()
            .filter(|system| {
                self.only.is_empty()
                    || self.only.iter().any(|only| match only {
                        Only::Kafka => *system == System::Kafka,
                        Only::Tidegate => *system != System::Kafka,
                        Only::TidegateLocal => *system == System::TidegateLocal,
                        Only::TidegateObject => *system == System::TidegateObject,
                    })
            })
            .collect()
    }

    fn scenarios(&self) -> Vec<Scenario> {
        Scenario::value_variants()
            .iter()
            .copied()
            .filter(|scenario| self.scenario.is_empty() || self.scenario.contains(scenario))
            .filter(|scenario| {
                *scenario != Scenario::ProduceJava || self.java_client || !self.scenario.is_empty()
            })
            .collect()
    }
}

/// Runs the comparison and prints its table.
pub fn run(args: VersusArgs) -> Result<()> {
    let systems = args.systems();
    let installed = install(&args, &systems)?;
    let work = root().join(&args.work_dir);
    empty(&work)?;
    let conditions = conditions::observe(&work, args.quick)?;
    let results = rounds(&args, &systems, &installed, &work, &conditions)
        .with_context(|| format!("logs are below {}", work.display()))?;
    if !args.keep {
        std::fs::remove_dir_all(&work)
            .with_context(|| format!("can't remove {}", work.display()))?;
    }
    let text = table::markdown(&results, &conditions, args.rounds);
    println!("{text}");
    if let Some(file) = &args.markdown {
        std::fs::write(file, &text).with_context(|| format!("can't write {}", file.display()))?;
    }
    eprintln!("raw results: {}", root().join(&args.json).display());
    Ok(())
}

/// A folder whose data is removed system by system, since a full disk would slow down who comes later.
fn empty(work: &Path) -> Result<()> {
    if work.exists() {
        std::fs::remove_dir_all(work).with_context(|| format!("can't empty {}", work.display()))?;
    }
    std::fs::create_dir_all(work).with_context(|| format!("can't create {}", work.display()))
}

fn rounds(
    args: &VersusArgs,
    systems: &[System],
    installed: &Installed,
    work: &Path,
    conditions: &Conditions,
) -> Result<Results> {
    let scenarios = args.scenarios();
    let scale = Scale::new(args.quick, args.rate_mb, args.drop_caches);
    let mut results = Results::default();
    for round in 1..=args.rounds {
        let mut order = systems.to_vec();
        if round % 2 == 0 {
            order.reverse();
        }
        for system in order {
            eprintln!("round {round} of {}: {}", args.rounds, system.label());
            let folder = work.join(format!("{round}-{}", system.key()));
            scenario::run_all(
                installed,
                system,
                &folder,
                &scenarios,
                &scale,
                round,
                &mut results,
            )
            .with_context(|| format!("round {round}, {}", system.label()))?;
            if !args.keep {
                std::fs::remove_dir_all(&folder)
                    .with_context(|| format!("can't remove {}", folder.display()))?;
            }
            // After each system, so that an error later doesn't lose what is known.
            write_json(args, conditions, &results)?;
        }
    }
    Ok(results)
}

fn write_json(args: &VersusArgs, conditions: &Conditions, results: &Results) -> Result<()> {
    let file = root().join(&args.json);
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let json = serde_json::json!({
        "conditions": conditions.json(),
        "rate_mb_per_s": args.rate_mb,
        "rounds": args.rounds,
        "quick": args.quick,
        "samples": results.json(),
    });
    std::fs::write(&file, format!("{json:#}\n"))
        .with_context(|| format!("can't write {}", file.display()))
}

/// Builds and fetches what the comparison needs.
fn install(args: &VersusArgs, systems: &[System]) -> Result<Installed> {
    tools::install_peers()?;
    let bench = match &args.bench_bin {
        Some(file) => file.clone(),
        None => build("tidegate-bench")?,
    };
    let tidegate = match &args.tidegate_bin {
        Some(file) => Some(file.clone()),
        None if systems.iter().any(|system| *system != System::Kafka) => Some(build("tidegate")?),
        None => None,
    };
    let folder = tools::folder()?;
    for file in [Some(&bench), tidegate.as_ref()].into_iter().flatten() {
        if !file.is_file() {
            bail!("{} isn't there", file.display());
        }
    }
    Ok(Installed {
        client: Client::new(bench),
        tidegate,
        kafka_library: folder.join("kafka-4.4.0/lib"),
        versitygw: folder.join("bin/versitygw"),
    })
}

/// Builds a package's binary for release; it has the package's name.
pub(crate) fn build(package: &str) -> Result<PathBuf> {
    eprintln!("building {package} (release)");
    let status = cargo(&["build", "--release", "-p", package])
        .status()
        .context("can't run cargo")?;
    if !status.success() {
        bail!("building {package} failed");
    }
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    Ok(target.join("release").join(package))
}
