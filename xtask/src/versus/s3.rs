//! A real S3 server on loopback: versitygw over a folder, so that objects can be counted from outside.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::probe::{free_port, http_ok};
use super::process::Server;

const ACCESS_KEY: &str = "versus";
const SECRET_KEY: &str = "versus-secret";
const BUCKET: &str = "versus";

pub struct S3 {
    /// Held so that the server ends with this.
    _server: Server,
    port: u16,
    bucket: PathBuf,
}

impl S3 {
    /// Starts a server with one empty bucket in `folder`.
    pub fn start(program: &Path, folder: &Path) -> Result<Self> {
        let data = folder.join("s3");
        let bucket = data.join(BUCKET);
        std::fs::create_dir_all(&bucket)?;
        let port = free_port()?;
        let mut command = Command::new(program);
        command
            .args(["--port", &format!("127.0.0.1:{port}")])
            .args(["--access", ACCESS_KEY, "--secret", SECRET_KEY])
            .args(["--health", "/health", "posix"])
            .arg(&data);
        let mut server = Server::spawn("versitygw", &mut command, &folder.join("versitygw.log"))?;
        let patience = Instant::now() + Duration::from_secs(20);
        while !http_ok(port, "/health") {
            server.check_alive()?;
            if Instant::now() > patience {
                bail!("the S3 server on port {port} doesn't answer");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Self {
            _server: server,
            port,
            bucket,
        })
    }

    pub fn url(&self, prefix: &str) -> String {
        format!("s3://{BUCKET}/{prefix}")
    }

    /// The folder with what is stored below `prefix`.
    pub fn folder(&self, prefix: &str) -> PathBuf {
        self.bucket.join(prefix)
    }

    /// The variables a client of this server needs.
    pub fn environment(&self) -> Vec<(String, String)> {
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        [
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ENDPOINT", &endpoint),
            ("AWS_ENDPOINT_URL", &endpoint),
            ("AWS_ALLOW_HTTP", "true"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .to_vec()
    }
}
