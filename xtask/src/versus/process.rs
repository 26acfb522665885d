//! A measured process: started with its output in a file, watched through `/proc`, never left behind.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::command::tail;

/// Linux counts a process's CPU time in ticks of 10 ms on every architecture Tidegate runs on.
const TICKS_PER_SECOND: f64 = 100.0;
/// Unit of `VmRSS` in `/proc/<pid>/status`.
const KIB: u64 = 1024;
/// How often memory is looked at under load.
const WATCH_PAUSE: Duration = Duration::from_millis(50);

/// A running server. It shares the terminal's process group, so that Ctrl-C ends it too.
pub struct Server {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Server {
    pub fn spawn(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        let file = File::options().create(true).append(true).open(log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("can't start {name}"))?;
        Ok(Self {
            child,
            name: name.to_owned(),
            log: log.to_owned(),
        })
    }

    /// An error with the end of its log if it has ended.
    pub fn check_alive(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!(
                "{} ended: {status}; end of its log:\n{}",
                self.name,
                tail(&self.log, 30)
            );
        }
        Ok(())
    }

    /// Asks it to end and waits; kills it if it takes too long.
    pub fn stop(mut self) -> Result<()> {
        let _ = Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
        let patience = Instant::now() + Duration::from_secs(60);
        while Instant::now() < patience {
            if self.child.try_wait()?.is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("{} did not end within a minute of SIGTERM", self.name);
    }

    /// SIGKILL.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// User and system time so far, in seconds, of all its threads.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))
            .with_context(|| format!("can't see the CPU time of {}", self.name))?;
        cpu_seconds_of(&stat).with_context(|| format!("can't read the CPU time of {}", self.name))
    }

    /// Resident memory now, in bytes.
    pub fn resident_bytes(&self) -> Result<u64> {
        resident_bytes(self.child.id())
            .with_context(|| format!("can't see the memory of {}", self.name))
    }

    /// Watches the memory until the watch is ended.
    pub fn watch_memory(&self) -> MemoryWatch {
        let pid = self.child.id();
        let peak = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let (peak, stop) = (Arc::clone(&peak), Arc::clone(&stop));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if let Some(bytes) = resident_bytes(pid) {
                        peak.fetch_max(bytes, Ordering::Relaxed);
                    }
                    std::thread::sleep(WATCH_PAUSE);
                }
            })
        };
        MemoryWatch { peak, stop, thread }
    }

    /// Waits until it uses less than `share` of a core for a second; false if it never does.
    pub fn await_quiet(&self, share: f64, patience: Duration) -> Result<bool> {
        let deadline = Instant::now() + patience;
        let mut before = self.cpu_seconds()?;
        while Instant::now() < deadline {
            std::thread::sleep(Duration::from_secs(1));
            let now = self.cpu_seconds()?;
            if now - before <= share {
                return Ok(true);
            }
            before = now;
        }
        Ok(false)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already ended in the usual case; then both fail and nothing is lost.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Remembers the most resident memory seen.
pub struct MemoryWatch {
    peak: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl MemoryWatch {
    /// The peak in bytes.
    pub fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
        self.peak.load(Ordering::Relaxed)
    }
}

fn resident_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace()
        .next()?
        .parse::<u64>()
        .ok()
        .map(|kib| kib * KIB)
}

fn cpu_seconds_of(stat: &str) -> Option<f64> {
    // The command name, in parentheses, may hold spaces; the fields are counted from behind it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let user = fields.get(11)?.parse::<u64>().ok()?;
    let system = fields.get(12)?.parse::<u64>().ok()?;
    Some((user + system) as f64 / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_a_name_with_spaces_and_parentheses() {
        let stat = "12 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1 0";
        assert_eq!(cpu_seconds_of(stat), Some(3.0));
        assert_eq!(cpu_seconds_of("12 (x) S 1"), None);
    }

    #[test]
    fn a_process_sees_its_own_memory() {
        assert!(resident_bytes(std::process::id()).is_some_and(|bytes| bytes > 100_000));
    }
}
