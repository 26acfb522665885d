//! `tidegate demo`, as a newcomer runs it.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tidegate_harness::{tidegate_binary, wait_for};

/// One round takes a fraction of it.
const PATIENCE: Duration = Duration::from_secs(180);

/// A running demo. It is killed when dropped.
struct Demo(Child);

impl Demo {
    fn start(arguments: &[&str], temporary: &Path) -> Result<Self> {
        let mut command = Command::new(tidegate_binary()?);
        let child = command
            .arg("demo")
            .args(arguments)
            .env("TMPDIR", temporary)
            // What a user has set for brokers of their own must not reach the demo's.
            .env("TIDEGATE_STORE_URL", "s3://nobody/nowhere")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()?;
        Ok(Self(child))
    }

    fn output(&mut self) -> Result<impl Read + use<>> {
        self.0.stdout.take().context("the output is taken")
    }

    fn ended(&mut self) -> Result<ExitStatus> {
        wait_for("the demo to end", PATIENCE, || {
            self.0.try_wait().ok().flatten()
        })
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // It may have ended; nothing is left to do then.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn events(output: impl Read) -> Result<Vec<Value>> {
    let started = Instant::now();
    let mut events = Vec::new();
    for line in BufReader::new(output).lines() {
        let line = line?;
        println!("{line}");
        events.push(serde_json::from_str(&line).with_context(|| line.clone())?);
        if started.elapsed() > PATIENCE {
            bail!("the demo goes on and on");
        }
    }
    Ok(events)
}

fn named<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|one| one["event"] == name).collect()
}

/// Processes that have this folder in their command line.
fn processes_over(folder: &Path) -> Result<usize> {
    let folder = folder.to_string_lossy().into_owned();
    let mut count = 0;
    for process in std::fs::read_dir("/proc")?.flatten() {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        count += usize::from(String::from_utf8_lossy(&line).contains(&folder));
    }
    Ok(count)
}

fn expect_clean(folder: &Path) -> Result<()> {
    // A killed process may take a moment to go.
    wait_for("the brokers to go", Duration::from_secs(10), || {
        (processes_over(folder).ok()? == 0).then_some(())
    })?;
    let left: Vec<_> = std::fs::read_dir(folder)?.flatten().collect();
    ensure!(left.is_empty(), "left behind: {left:?}");
    Ok(())
}

#[test]
fn one_round_moves_and_fails_over_and_loses_nothing() -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let arguments = ["--once", "--json", "--partitions", "6"];
    let mut demo = Demo::start(&arguments, temporary.path())?;
    let events = events(demo.output()?)?;
    let status = demo.ended()?;
    let summary = *named(&events, "summary")
        .first()
        .context("there is no summary")?;
    ensure!(status.success(), "the demo ended with {status}");
    for none in ["lost", "duplicates", "moves_failed"] {
        assert_eq!(summary[none], 0, "{none}");
    }
    assert_eq!(summary["failures"], serde_json::json!([]));
    assert_eq!(summary["failovers"], 1);
    let number = |name: &str| summary[name].as_u64().unwrap_or(0);
    // Each of six, some crosswise, and the share of the broker that was killed.
    ensure!(number("moves") >= 9, "only {} moves", number("moves"));
    assert_eq!(number("moves"), {
        let together = named(&events, "moved_together");
        let together = together.iter().filter_map(|one| one["partitions"].as_u64());
        named(&events, "moved").len() as u64 + together.sum::<u64>()
    });
    ensure!(number("acknowledged") > 500, "hardly anything was written");
    assert_eq!(number("acknowledged"), number("read"));
    let failed_over = named(&events, "failed_over");
    let gap = &failed_over.first().context("no failover")?["write_gap_ms"]["max_ms"];
    // A killed broker's partitions are written to again after several round trips: else nothing was killed.
    ensure!(
        gap.as_f64().is_some_and(|ms| ms > 5.0),
        "a failover without a gap: {gap}"
    );
    assert_eq!(named(&events, "returned").len(), 1);
    expect_clean(temporary.path())
}

#[test]
fn a_signal_ends_it_with_a_summary_and_nothing_is_left() -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let mut demo = Demo::start(&["--json"], temporary.path())?;
    let mut lines = BufReader::new(demo.output()?);
    let mut seen = String::new();
    while !seen.contains(r#""event":"moved""#) {
        ensure!(lines.read_line(&mut seen)? > 0, "it ended early: {seen}");
    }
    kill_process(Pid::from_child(&demo.0), Signal::INT)?;
    let events = events(lines)?;
    let status = demo.ended()?;
    ensure!(status.success(), "the demo ended with {status}");
    let summary = *named(&events, "summary")
        .first()
        .context("there is no summary")?;
    assert_eq!(
        (&summary["lost"], &summary["duplicates"]),
        (&0.into(), &0.into())
    );
    expect_clean(temporary.path())
}

#[test]
fn brokers_end_with_a_demo_that_is_killed() -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let mut demo = Demo::start(&["--json"], temporary.path())?;
    let mut lines = BufReader::new(demo.output()?);
    let mut seen = String::new();
    while !seen.contains(r#""event":"ready""#) {
        ensure!(lines.read_line(&mut seen)? > 0, "it ended early: {seen}");
    }
    ensure!(
        processes_over(temporary.path())? >= 3,
        "the brokers don't run"
    );
    demo.0.kill()?;
    demo.0.wait()?;
    wait_for("the brokers to go", Duration::from_secs(10), || {
        (processes_over(temporary.path()).ok()? == 0).then_some(())
    })
}
