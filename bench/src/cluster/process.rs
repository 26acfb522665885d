//! One broker process: its number, folder and ports stay the same over restarts.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::http;

/// How all brokers of a cluster are started.
#[derive(Clone)]
pub struct Launch {
    pub program: PathBuf,
    pub store: String,
    pub durability: &'static str,
    pub environment: Vec<(String, String)>,
}

/// A broker, running or not. Dropping it kills it.
pub struct BrokerProcess {
    pub id: i32,
    launch: Launch,
    folder: PathBuf,
    kafka: u16,
    admin: u16,
    internal: u16,
    child: Option<Child>,
}

impl BrokerProcess {
    /// Chooses folder and ports; starts nothing.
    pub fn prepare(id: i32, launch: &Launch, work: &Path) -> Result<Self> {
        let folder = work.join(format!("broker-{id}"));
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("could not create the folder {}", folder.display()))?;
        Ok(Self {
            id,
            launch: launch.clone(),
            folder,
            kafka: free_port()?,
            admin: free_port()?,
            internal: free_port()?,
            child: None,
        })
    }

    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.kafka)
    }

    pub fn admin(&self) -> String {
        format!("127.0.0.1:{}", self.admin)
    }

    /// Its local data, of no use once the cluster ends.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Starts the process and doesn't wait. The log goes on where it was.
    pub fn start(&mut self) -> Result<()> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log())
            .with_context(|| format!("could not open {}", self.log().display()))?;
        let address = |port: u16| format!("127.0.0.1:{port}");
        let mut command = dying_with_us(&self.launch.program);
        command
            .arg("serve")
            .args(["--broker-id", &self.id.to_string()])
            .arg("--data-dir")
            .arg(self.data())
            .args(["--store", &self.launch.store])
            .args(["--durability", self.launch.durability])
            .args(["--kafka-listen", &address(self.kafka)])
            .args(["--admin-listen", &address(self.admin)])
            .args(["--internal-listen", &address(self.internal)])
            .envs(self.launch.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = command
            .spawn()
            .with_context(|| format!("could not start {}", self.launch.program.display()))?;
        self.child = Some(child);
        Ok(())
    }

    /// Waits until `/readyz` says yes.
    pub fn await_ready(&mut self, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        while !self.is_ready() {
            self.check_running()?;
            if Instant::now() > deadline {
                bail!(
                    "broker {} isn't ready after {patience:?}; end of its log:\n{}",
                    self.id,
                    self.log_tail()
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn is_ready(&self) -> bool {
        http::request(
            &self.admin(),
            "GET",
            "/readyz",
            None,
            Duration::from_secs(5),
        )
        .is_ok_and(|answer| answer.status == 200)
    }

    fn check_running(&mut self) -> Result<()> {
        let child = self.child.as_mut().context("the broker wasn't started")?;
        if let Some(status) = child.try_wait()? {
            bail!(
                "broker {} ended: {status}; end of its log:\n{}",
                self.id,
                self.log_tail()
            );
        }
        Ok(())
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Resident memory in bytes, if it runs and the platform tells.
    pub fn resident_bytes(&self) -> Option<u64> {
        let pid = self.child.as_ref()?.id();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kib * 1024)
    }

    fn log(&self) -> PathBuf {
        self.folder.join("broker.log")
    }

    fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

impl Drop for BrokerProcess {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.kill();
    }
}

/// With util-linux at hand the broker also ends when this program is killed.
fn dying_with_us(program: &Path) -> Command {
    const SETPRIV: &str = "/usr/bin/setpriv";
    if !Path::new(SETPRIV).exists() {
        return Command::new(program);
    }
    let mut command = Command::new(SETPRIV);
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// A free port of the loopback interface. Another process may take it before it is used; then that fails.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
