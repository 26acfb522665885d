//! A real S3 server on loopback: versitygw over a folder.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::scratch::scratch;
use crate::{Process, Tools, free_port, http_get, wait_for};

pub(crate) const ACCESS_KEY: &str = "tidegate-test";
pub(crate) const SECRET_KEY: &str = "tidegate-test-secret";

/// A running S3 server. Buckets are folders, so tests can look at objects without asking the server.
#[derive(Debug)]
pub struct S3Server {
    process: Process,
    port: u16,
    root: TempDir,
}

impl S3Server {
    /// Starts a server without buckets.
    pub fn start() -> Result<Self> {
        let program = Tools::find()?.versitygw()?;
        let root = scratch("s3")?;
        std::fs::create_dir(root.path().join("data"))?;
        let port = free_port();
        let data = root.path().join("data");
        let process = Process::spawn(
            "versitygw",
            &program,
            [
                "--port",
                &format!("127.0.0.1:{port}"),
                "--access",
                ACCESS_KEY,
                "--secret",
                SECRET_KEY,
                "--health",
                "/health",
                "posix",
                data.to_str().context("the temporary folder isn't UTF-8")?,
            ],
            &[],
            &root.path().join("versitygw.log"),
        )?;
        let mut server = Self {
            process,
            port,
            root,
        };
        let address = server.address();
        wait_for("the S3 server to start", Duration::from_secs(20), || {
            http_get(&address, "/health")
                .ok()
                .filter(|answer| answer.status == 200)
        })?;
        server.process.check_alive()?;
        Ok(server)
    }

    /// Starts a server with one bucket.
    pub fn start_with_bucket(bucket: &str) -> Result<Self> {
        let server = Self::start()?;
        server.create_bucket(bucket)?;
        Ok(server)
    }

    /// host:port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Creates a bucket.
    pub fn create_bucket(&self, bucket: &str) -> Result<()> {
        std::fs::create_dir_all(self.bucket(bucket))
            .with_context(|| format!("can't create bucket {bucket}"))
    }

    /// Moves a bucket out of sight: to clients it is deleted. [`Self::restore_bucket`] brings it back with its objects.
    pub fn hide_bucket(&self, bucket: &str) -> Result<()> {
        std::fs::rename(
            self.bucket(bucket),
            self.root.path().join(format!("hidden-{bucket}")),
        )?;
        Ok(())
    }

    /// Undoes [`Self::hide_bucket`].
    pub fn restore_bucket(&self, bucket: &str) -> Result<()> {
        std::fs::rename(
            self.root.path().join(format!("hidden-{bucket}")),
            self.bucket(bucket),
        )?;
        Ok(())
    }

    fn bucket(&self, bucket: &str) -> PathBuf {
        self.root.path().join("data").join(bucket)
    }

    /// The keys in a bucket that start with `prefix`, sorted.
    pub fn keys(&self, bucket: &str, prefix: &str) -> Result<Vec<String>> {
        let root = self.bucket(bucket);
        let mut keys = Vec::new();
        collect_files(&root, &root, &mut keys)?;
        keys.retain(|key| key.starts_with(prefix));
        keys.sort();
        Ok(keys)
    }

    /// The bytes of all objects whose keys start with `prefix`.
    pub fn stored_bytes(&self, bucket: &str, prefix: &str) -> Result<u64> {
        let mut bytes = 0;
        for key in self.keys(bucket, prefix)? {
            // An object may be deleted between listing and looking.
            bytes +=
                std::fs::metadata(self.bucket(bucket).join(key)).map_or(0, |found| found.len());
        }
        Ok(bytes)
    }

    /// The standard variables for a client of this server through `endpoint` (host:port; the server's own or a proxy's).
    pub fn client_environment(endpoint: &str) -> Vec<(String, String)> {
        [
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ENDPOINT_URL", &format!("http://{endpoint}")),
            ("AWS_ENDPOINT", &format!("http://{endpoint}")),
            ("AWS_ALLOW_HTTP", "true"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .to_vec()
    }

    /// Fails when the server has died.
    pub fn check_alive(&mut self) -> Result<()> {
        self.process.check_alive()
    }
}

fn collect_files(root: &Path, folder: &Path, keys: &mut Vec<String>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with(".sgwtmp") {
            continue; // The server's own folder for uploads under way.
        }
        if entry.file_type()?.is_dir() {
            collect_files(root, &path, keys)?;
        } else {
            let Ok(key) = path.strip_prefix(root) else {
                bail!("{} isn't in the bucket", path.display())
            };
            keys.push(key.to_string_lossy().into_owned());
        }
    }
    Ok(())
}
