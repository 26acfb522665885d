//! The brokers: children of this process, over one store in one folder.

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;

use crate::cli::END_WITH;

/// Free ports are looked for here: outside of the range from which systems take ports for outgoing connections, so
/// that a broker finds its own free when it comes back.
const PORTS: std::ops::Range<u16> = 20_000..30_000;
/// How long brokers whose data is kept may take to stop, before they are killed.
const STOP_LIMIT: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);
/// Lines of a log that are shown when a broker ends by itself.
const LOG_LINES: usize = 12;

/// The folder of the demo. A temporary one goes with it.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    temporary: bool,
}

impl Folder {
    /// The given one, or a new one for temporary files.
    pub fn prepare(given: Option<PathBuf>) -> io::Result<Self> {
        let temporary = given.is_none();
        let path = match given {
            Some(path) => {
                std::fs::create_dir_all(&path)?;
                path.canonicalize()?
            }
            None => {
                let name = format!("tidegate-demo-{}", std::process::id());
                let path = std::env::temp_dir().join(name);
                // A folder that is there already is somebody else's.
                std::fs::create_dir(&path)?;
                path
            }
        };
        Ok(Self { path, temporary })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn is_temporary(&self) -> bool {
        self.temporary
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.temporary {
            // What can't be removed is the system's to sweep.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// One broker, running or not. It is killed when dropped.
#[derive(Debug)]
pub struct Broker {
    pub id: u32,
    pub kafka: String,
    /// The URL of its admin API.
    pub admin: String,
    arguments: Vec<String>,
    log: PathBuf,
    process: Option<Child>,
}

impl Broker {
    /// Chooses ports, starts nothing.
    pub fn prepare(id: u32, folder: &Path, ports: &mut FreePorts) -> io::Result<Self> {
        let mut address = || ports.take().map(|port| format!("127.0.0.1:{port}"));
        let (kafka, admin, internal) = (address()?, address()?, address()?);
        let in_folder = |name: &str| folder.join(name).display().to_string();
        let arguments = [
            "serve".to_owned(),
            "--broker-id".to_owned(),
            id.to_string(),
            "--data-dir".to_owned(),
            in_folder(&format!("broker-{id}")),
            "--store".to_owned(),
            in_folder("store"),
            // What the death of a broker must not take along.
            "--durability".to_owned(),
            "object".to_owned(),
            "--kafka-listen".to_owned(),
            kafka.clone(),
            "--admin-listen".to_owned(),
            admin.clone(),
            "--internal-listen".to_owned(),
            internal,
            format!("--{END_WITH}"),
            std::process::id().to_string(),
        ];
        Ok(Self {
            id,
            kafka,
            admin: format!("http://{admin}"),
            arguments: arguments.into(),
            log: folder.join(format!("broker-{id}.log")),
            process: None,
        })
    }

    /// Starts the process, and doesn't wait until it serves.
    pub fn start(&mut self) -> io::Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(std::env::current_exe()?);
        for (name, _) in std::env::vars_os() {
            // What the user has set for brokers of their own isn't for these.
            if name.to_string_lossy().starts_with("TIDEGATE_") {
                command.env_remove(name);
            }
        }
        command
            .args(&self.arguments)
            // Only the demo moves partitions, so that every gap has a cause that is told.
            .env("TIDEGATE_CLUSTER_BALANCE", "false")
            .env("TIDEGATE_STOP_TIMEOUT", "3s")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            // Ctrl-C is for the demo alone, which then ends its brokers.
            .process_group(0);
        self.process = Some(command.spawn()?);
        Ok(())
    }

    fn is_running(&mut self) -> bool {
        let process = self.process.as_mut();
        process.is_some_and(|process| matches!(process.try_wait(), Ok(None)))
    }

    /// Whether it has ended without being told to.
    pub fn has_ended(&mut self) -> bool {
        self.process.is_some() && !self.is_running()
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It may have ended by itself; nothing is left to do then.
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// SIGTERM.
    fn terminate(&self) {
        if let Some(process) = &self.process {
            let _ = kill_process(Pid::from_child(process), Signal::TERM);
        }
    }

    /// The last lines of its log.
    pub fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Ends all brokers: at once if nothing of them is kept, else in order.
pub async fn end(brokers: &mut [Broker], folder: &Folder) {
    if !folder.is_temporary() {
        brokers.iter().for_each(Broker::terminate);
        let deadline = Instant::now() + STOP_LIMIT;
        while Instant::now() < deadline && brokers.iter_mut().any(Broker::is_running) {
            tokio::time::sleep(LOOK).await;
        }
    }
    brokers.iter_mut().for_each(Broker::kill);
}

/// Gives out ports that nobody listens on.
#[derive(Debug)]
pub struct FreePorts {
    next: u16,
    left: u16,
}

impl FreePorts {
    /// Begins at a place of this process's own, for those who start at the same time.
    pub fn new() -> Self {
        let count = u32::from(PORTS.end - PORTS.start);
        let step = std::process::id().wrapping_mul(97) % count;
        Self {
            next: PORTS.start + u16::try_from(step).unwrap_or(0),
            left: PORTS.end - PORTS.start,
        }
    }

    fn take(&mut self) -> io::Result<u16> {
        while self.left > 0 {
            let port = self.next;
            self.left -= 1;
            self.next = if port + 1 == PORTS.end {
                PORTS.start
            } else {
                port + 1
            };
            if TcpListener::bind(("127.0.0.1", port)).is_ok() {
                return Ok(port);
            }
        }
        Err(io::Error::other(
            "no port is free between 20,000 and 30,000",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_taken_isnt_given_out_and_none_is_given_twice() {
        let mut ports = FreePorts::new();
        let first = ports.take().unwrap();
        let held = TcpListener::bind(("127.0.0.1", ports.next)).ok();
        let taken = held.as_ref().map(|_| ports.next);
        let second = ports.take().unwrap();
        assert_ne!(first, second);
        assert_ne!(Some(second), taken);
    }

    #[test]
    fn only_a_temporary_folder_goes_with_the_demo() {
        let given = tempfile::tempdir().unwrap();
        let kept = given.path().join("kept");
        drop(Folder::prepare(Some(kept.clone())).unwrap());
        assert!(kept.exists());
        let folder = Folder::prepare(None).unwrap();
        let path = folder.path().to_owned();
        assert!(path.exists());
        // It would be this process's own, which is running it.
        assert!(Folder::prepare(None).is_err());
        drop(folder);
        assert!(!path.exists());
    }
}
