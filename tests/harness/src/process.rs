//! One child process with a log file, that never outlives the test.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::wait_for;

/// A running child. Dropping it kills it and prints the end of its log, which is shown when the test fails.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

type SpawnRequest = (Command, Sender<std::io::Result<Child>>);

/// Linux sends the parent-death signal when the spawning *thread* ends, so one thread that never ends spawns all.
fn spawner() -> &'static Sender<SpawnRequest> {
    static SPAWNER: OnceLock<Sender<SpawnRequest>> = OnceLock::new();
    SPAWNER.get_or_init(|| {
        let (sender, receiver) = channel::<SpawnRequest>();
        std::thread::Builder::new()
            .name("process-spawner".into())
            .spawn(move || {
                for (mut command, reply) in receiver {
                    // The requester may have given up; the child is then killed by its own drop.
                    let _ = reply.send(command.spawn());
                }
            })
            .expect("a thread can be started");
        sender
    })
}

impl Process {
    /// Starts `program` with `arguments` and `environment`, standard output and error appended to `log`.
    pub fn spawn<A: AsRef<std::ffi::OsStr>>(
        name: &str,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
        environment: &[(String, String)],
        log: &Path,
    ) -> Result<Self> {
        let output = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("can't open log {}", log.display()))?;
        // setpriv makes the child die with us, however we end (a test binary's statics are never dropped).
        let mut command = if Path::new("/usr/bin/setpriv").exists() {
            let mut command = Command::new("/usr/bin/setpriv");
            command.args(["--pdeathsig", "KILL", "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command
            .args(arguments)
            .envs(environment.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let (reply, answer) = channel();
        spawner()
            .send((command, reply))
            .ok()
            .context("the spawner thread has ended")?;
        let child = answer
            .recv()
            .context("the spawner thread has ended")?
            .with_context(|| format!("can't start {name} ({})", program.display()))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log: log.to_owned(),
        })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .context("impossible process id")?;
        kill_process(pid, signal).with_context(|| format!("can't signal {}", self.name))
    }

    /// `kill -9`, and waits for the end.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM, and waits for the end.
    pub fn terminate(&mut self, timeout: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        let name = self.name.clone();
        wait_for(&format!("{name} to end after SIGTERM"), timeout, || {
            self.exit_status()
        })
    }

    /// How it ended, or `None` while it runs.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// An error with the end of the log when the process has ended.
    pub fn check_alive(&mut self) -> Result<()> {
        if let Some(status) = self.exit_status() {
            bail!(
                "{} ended with {status}; end of its log:\n{}",
                self.name,
                self.log_tail(40)
            );
        }
        Ok(())
    }

    /// CPU time used so far, user and system, from `/proc`.
    pub fn cpu_time(&self) -> Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()))?;
        let after_name = stat.rsplit_once(')').context("odd /proc/PID/stat")?.1;
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        // Fields 14 and 15 of the whole line, in ticks of 10 ms on every Linux of today.
        let ticks: u64 = fields.get(11).context("no utime")?.parse::<u64>()?
            + fields.get(12).context("no stime")?.parse::<u64>()?;
        Ok(Duration::from_millis(ticks * 10))
    }

    /// Resident memory in bytes, from `/proc`.
    pub fn resident_bytes(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .context("no VmRSS")?;
        let kib: u64 = line
            .split_whitespace()
            .nth(1)
            .context("no number in VmRSS")?
            .parse()?;
        Ok(kib * 1024)
    }

    /// The last lines of the log.
    pub fn log_tail(&self, lines: usize) -> String {
        let Ok(file) = File::open(&self.log) else {
            return String::from("(no log)");
        };
        let all: Vec<String> = BufReader::new(file).lines().map_while(Result::ok).collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; nothing is left to do then.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The test runner shows what a test printed when it failed, by panic or by error, and only then.
        println!(
            "--- end of the log of {} ({}):\n{}",
            self.name,
            self.log.display(),
            self.log_tail(60)
        );
    }
}
