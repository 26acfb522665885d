//! The systems compared, each behind the same few operations.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::client::Client;
use super::kafka::KafkaHome;
use super::process::Server;
use super::s3::S3;
use super::tidegate::TidegateHome;

/// What is installed for the comparison.
pub struct Installed {
    pub client: Client,
    /// `None` if Kafka runs alone.
    pub tidegate: Option<PathBuf>,
    pub kafka_library: PathBuf,
    pub versitygw: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum System {
    Kafka,
    TidegateLocal,
    TidegateObject,
}

impl System {
    pub const ALL: [Self; 3] = [Self::Kafka, Self::TidegateLocal, Self::TidegateObject];

    /// Its name in folders and raw results.
    pub fn key(self) -> &'static str {
        match self {
            Self::Kafka => "kafka",
            Self::TidegateLocal => "tidegate-local",
            Self::TidegateObject => "tidegate-object",
        }
    }

    /// Its name for people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Kafka => "Apache Kafka 4.4.0",
            Self::TidegateLocal => "Tidegate, local",
            Self::TidegateObject => "Tidegate, object",
        }
    }
}

/// Whether Tidegate uploads what its local WAL holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Uploads {
    Ordinary,
    Held,
}

enum Home {
    Kafka(KafkaHome),
    Tidegate(TidegateHome),
}

/// A system with its folder, running or not.
pub struct Deployment {
    home: Home,
    server: Option<Server>,
}

impl Deployment {
    /// Prepares an empty folder; nothing runs yet but the S3 server, where one is needed.
    pub fn create(installed: &Installed, system: System, folder: &Path) -> Result<Self> {
        let home = match system {
            System::Kafka => Home::Kafka(KafkaHome::create(&installed.kafka_library, folder)?),
            System::TidegateLocal | System::TidegateObject => {
                let program = installed
                    .tidegate
                    .as_ref()
                    .context("tidegate isn't built")?;
                std::fs::create_dir_all(folder)?;
                let s3 = (system == System::TidegateObject)
                    .then(|| S3::start(&installed.versitygw, folder))
                    .transpose()?;
                Home::Tidegate(TidegateHome::create(program, folder, s3)?)
            }
        };
        Ok(Self { home, server: None })
    }

    /// Starts the broker; answers the time to its first Metadata answer.
    pub fn start(&mut self) -> Result<Duration> {
        self.start_with(Uploads::Ordinary)
    }

    /// The same; Kafka has no uploads to hold.
    pub fn start_with(&mut self, uploads: Uploads) -> Result<Duration> {
        let (server, took) = match &self.home {
            Home::Kafka(home) => home.start()?,
            Home::Tidegate(home) => home.start(uploads)?,
        };
        self.server = Some(server);
        Ok(took)
    }

    /// The running broker.
    pub fn server(&self) -> Result<&Server> {
        self.server.as_ref().context("the broker isn't running")
    }

    /// Stops in good order.
    pub fn stop(&mut self) -> Result<()> {
        self.server.take().map_or(Ok(()), Server::stop)
    }

    pub fn kill(&mut self) -> Result<()> {
        self.server.take().map_or(Ok(()), Server::kill)
    }

    pub fn bootstrap(&self) -> String {
        let port = match &self.home {
            Home::Kafka(home) => home.port,
            Home::Tidegate(home) => home.port,
        };
        format!("127.0.0.1:{port}")
    }

    /// The folder with what is stored for good.
    pub fn store(&self) -> PathBuf {
        match &self.home {
            Home::Kafka(home) => home.data(),
            Home::Tidegate(home) => home.store(),
        }
    }

    /// The S3 server that acknowledgements come from, if they do.
    pub fn s3(&self) -> Option<&S3> {
        match &self.home {
            Home::Kafka(_) => None,
            Home::Tidegate(home) => home.s3(),
        }
    }
}
