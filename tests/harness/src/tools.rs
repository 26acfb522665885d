//! Where `cargo xtask tools` puts things. The layout is written down here and in `xtask/src/tools.rs`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The folder with the tools the tests need.
#[derive(Debug, Clone)]
pub struct Tools {
    root: PathBuf,
}

impl Tools {
    /// `TIDEGATE_TOOLS`, else `tidegate/tools` in the user's cache folder.
    pub fn find() -> Result<Self> {
        if let Some(root) = std::env::var_os("TIDEGATE_TOOLS") {
            return Ok(Self { root: root.into() });
        }
        let cache = std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
            .context("neither TIDEGATE_TOOLS, XDG_CACHE_HOME nor HOME is set")?;
        Ok(Self {
            root: cache.join("tidegate/tools"),
        })
    }

    /// A file or folder below the tools folder; an error that says how to install when it isn't there.
    pub fn path(&self, relative: &str) -> Result<PathBuf> {
        let path = self.root.join(relative);
        if !path.exists() {
            bail!(
                "{} is missing: `cargo xtask tools` installs what the tests need",
                path.display()
            );
        }
        Ok(path)
    }

    /// The S3 server.
    pub fn versitygw(&self) -> Result<PathBuf> {
        self.path("bin/versitygw")
    }

    /// The Python of the virtual environment with the Kafka clients.
    pub fn python(&self) -> Result<PathBuf> {
        self.path("venv/bin/python")
    }

    /// Class path of Apache Kafka 4.4.0: broker and command-line classes.
    pub fn kafka_classpath(&self) -> Result<String> {
        Ok(format!("{}/*", self.path("kafka-4.4.0/lib")?.display()))
    }

    /// Class path of Kafka Connect 4.3.1.
    pub fn connect_classpath(&self) -> Result<String> {
        Ok(format!("{}/*", self.path("connect-4.3.1/lib")?.display()))
    }

    /// Class path of Kafka Streams 4.4.0.
    pub fn streams_classpath(&self) -> Result<String> {
        Ok(format!("{}/*", self.path("streams-4.4.0/lib")?.display()))
    }

    /// Class path of Flink 2.2.0 and its Kafka connector.
    pub fn flink_classpath(&self) -> Result<String> {
        Ok(format!("{}/*", self.path("flink-2.2.0/lib")?.display()))
    }

    /// franz-go's own test binary for `pkg/kgo`.
    pub fn franz_go_suite(&self) -> Result<PathBuf> {
        self.path("bin/kgo.test")
    }
}
