//! Tidegate as it is served: one process, its store a folder or an S3 server.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::probe::{await_metadata, free_port, http_ok};
use super::process::Server;
use super::s3::S3;
use super::system::Uploads;

/// What it stores goes below this prefix of the bucket.
const PREFIX: &str = "tidegate";
/// Settings that keep uploads from becoming due.
const HELD: [(&str, &str); 2] = [
    ("TIDEGATE_UPLOAD_SIZE_BYTES", "1GiB"),
    ("TIDEGATE_UPLOAD_AGE", "1d"),
];
const START_PATIENCE: Duration = Duration::from_secs(60);

/// Where one Tidegate lives.
pub struct TidegateHome {
    program: PathBuf,
    folder: PathBuf,
    /// `None`: the store is a folder and acknowledgements come from the local disk.
    s3: Option<S3>,
    pub port: u16,
    admin: u16,
    internal: u16,
}

impl TidegateHome {
    pub fn create(program: &Path, folder: &Path, s3: Option<S3>) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        Ok(Self {
            program: program.to_owned(),
            folder: folder.to_owned(),
            s3,
            port: free_port()?,
            admin: free_port()?,
            internal: free_port()?,
        })
    }

    /// Starts the broker; answers it with the time to its first Metadata answer, and returns when it is ready.
    pub fn start(&self, uploads: Uploads) -> Result<(Server, Duration)> {
        let durability = if self.s3.is_some() { "object" } else { "local" };
        let store = match &self.s3 {
            Some(s3) => s3.url(PREFIX),
            None => self.store().display().to_string(),
        };
        let mut command = Command::new(&self.program);
        command
            .arg("serve")
            .arg("--data-dir")
            .arg(self.folder.join("data"))
            .args(["--store", &store])
            .args(["--kafka-listen", &format!("127.0.0.1:{}", self.port)])
            .args(["--admin-listen", &format!("127.0.0.1:{}", self.admin)])
            .args(["--internal-listen", &format!("127.0.0.1:{}", self.internal)])
            .args(["--broker-id", "1"])
            .args(["--durability", durability]);
        if uploads == Uploads::Held {
            command.envs(HELD);
        }
        if let Some(s3) = &self.s3 {
            command.envs(s3.environment());
        }
        let started = Instant::now();
        let mut server = Server::spawn("tidegate", &mut command, &self.folder.join("broker.log"))?;
        let took = await_metadata(&mut server, self.port, started, START_PATIENCE)?;
        while !http_ok(self.admin, "/readyz") {
            server.check_alive()?;
            if started.elapsed() > START_PATIENCE {
                bail!("tidegate answers, but isn't ready after {START_PATIENCE:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok((server, took))
    }

    pub fn s3(&self) -> Option<&S3> {
        self.s3.as_ref()
    }

    /// The folder that holds the objects.
    pub fn store(&self) -> PathBuf {
        match &self.s3 {
            Some(s3) => s3.folder(PREFIX),
            None => self.folder.join("store"),
        }
    }
}
