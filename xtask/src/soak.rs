//! `cargo xtask soak`: what takes longer than CI has. Run by hand; its output is kept in `docs/`.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::build::build;
use crate::command::{root, run_watched};
use crate::tools;

#[derive(Args)]
pub(crate) struct SoakOptions {
    /// Kills for each mode in one round.
    #[arg(long, default_value_t = 500)]
    kills: u32,
    /// Rounds, each with a seed of its own.
    #[arg(long, default_value_t = 4)]
    rounds: u32,
    /// First seed; the next rounds count on from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(options: &SoakOptions) -> Result<()> {
    tools::install_all()?;
    let built = build()?;
    let crash = built
        .tests
        .iter()
        .find(|program| program.package == "tests/cluster" && program.target == "crash")
        .context("the crash tests weren't built")?;
    let binary = built
        .tidegate
        .as_ref()
        .context("the binary tidegate wasn't built")?;
    let started = Instant::now();
    let mut failed_rounds = 0;
    for (round, seed) in (1..=options.rounds).zip(options.seed..) {
        println!(
            "\n=== round {round} of {}: {} kills for each mode, seed {seed}",
            options.rounds, options.kills
        );
        let mut command = Command::new(&crash.executable);
        command
            .args(["--test-threads=1", "--nocapture"])
            .env("TIDEGATE_CRASH_KILLS", options.kills.to_string())
            .env("TIDEGATE_TEST_SEED", seed.to_string())
            .env("TIDEGATE_BIN", binary)
            .env("TIDEGATE_TOOLS", tools::folder()?)
            .current_dir(root().join(&crash.package));
        let finished = run_watched(
            &mut command,
            Duration::from_secs(60 + u64::from(options.kills) * 60),
        )?;
        if !finished.success {
            failed_rounds += 1;
            println!("round {round} failed (seed {seed})");
        }
    }
    let minutes = started.elapsed().as_secs() / 60;
    println!(
        "\nsoak: {} rounds of 2 × {} kills in {minutes} min, {failed_rounds} rounds failed",
        options.rounds, options.kills
    );
    if failed_rounds > 0 {
        bail!("{failed_rounds} rounds failed");
    }
    Ok(())
}
