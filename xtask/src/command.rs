//! Running other programs: with a time limit, their output shown and kept.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    // The manifest's folder is `<root>/xtask` when xtask was built; a moved clone rebuilds it.
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_owned()
}

/// Whether this is a CI run: nothing may be skipped then.
pub(crate) fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// Runs to the end with output to `log`; an error names the command and quotes the log's end.
pub(crate) fn run_logged(command: &mut Command, log: &Path) -> Result<()> {
    let shown = show(command);
    let mut file = File::options().create(true).append(true).open(log)?;
    writeln!(file, "$ {shown}")?;
    let status = command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .status()
        .with_context(|| format!("can't run {shown}"))?;
    if !status.success() {
        bail!(
            "{shown}: {status}; end of {}:\n{}",
            log.display(),
            tail(log, 30)
        );
    }
    Ok(())
}

/// Standard output of a command that must succeed.
pub(crate) fn output_of(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("can't run {shown}"))?;
    if !output.status.success() {
        bail!(
            "{shown}: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a program is on the path.
pub(crate) fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// How a watched command ended.
pub(crate) struct Finished {
    pub(crate) success: bool,
    pub(crate) timed_out: bool,
    pub(crate) took: Duration,
    /// Everything it printed, both streams.
    pub(crate) output: String,
}

/// Runs with a time limit, printing its output as it comes. The whole process group is killed at the limit.
pub(crate) fn run_watched(command: &mut Command, limit: Duration) -> Result<Finished> {
    let shown = show(command);
    let started = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("can't run {shown}"))?;
    let output = Arc::new(Mutex::new(String::new()));
    let stdout = child.stdout.take().context("no standard output")?;
    let stderr = child.stderr.take().context("no standard error")?;
    let (ended, timed_out) = (AtomicBool::new(false), AtomicBool::new(false));
    let group = format!("-{}", child.id());
    let status = std::thread::scope(|scope| {
        scope.spawn(|| copy_lines(stdout, &output));
        scope.spawn(|| copy_lines(stderr, &output));
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                if started.elapsed() > limit {
                    timed_out.store(true, Ordering::Relaxed);
                    // It may have ended this instant; then there is nothing to kill.
                    let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
                    return;
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        let status = child.wait();
        ended.store(true, Ordering::Relaxed);
        status
    })?;
    let timed_out = timed_out.load(Ordering::Relaxed);
    let output = output
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    Ok(Finished {
        success: status.success() && !timed_out,
        timed_out,
        took: started.elapsed(),
        output,
    })
}

fn copy_lines(stream: impl Read, output: &Mutex<String>) {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    while reader
        .read_until(b'\n', &mut line)
        .is_ok_and(|count| count > 0)
    {
        let text = String::from_utf8_lossy(&line);
        print!("{text}");
        output
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_str(&text);
        line.clear();
    }
}

/// The last lines of a file.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    let text = std::fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default();
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

fn show(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(
        command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned()),
    );
    words.join(" ")
}
