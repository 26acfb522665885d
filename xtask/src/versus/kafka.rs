//! Apache Kafka as the peer: one KRaft node, tuned as its own distribution starts it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::probe::{await_metadata, free_port};
use super::process::Server;
use crate::command::run_logged;

/// The heap that Kafka's start script gives a broker.
const HEAP: [&str; 2] = ["-Xmx1g", "-Xms1g"];
/// The JVM options of Kafka's start script.
const JVM: [&str; 6] = [
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
];
/// A cluster id must be 16 bytes in base 64; any will do.
const CLUSTER: &str = "dGlkZWdhdGUtdmVyc3VzIQ";
const START_PATIENCE: Duration = Duration::from_secs(60);

/// Where one Kafka lives.
pub struct KafkaHome {
    library: PathBuf,
    folder: PathBuf,
    pub port: u16,
}

impl KafkaHome {
    /// Writes the configuration and formats the log folder.
    pub fn create(library: &Path, folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let home = Self {
            library: library.to_owned(),
            folder: folder.to_owned(),
            port: free_port()?,
        };
        let controller = free_port()?;
        std::fs::write(
            home.properties(),
            properties(home.port, controller, &home.data()),
        )?;
        std::fs::write(home.folder.join("log4j2.properties"), LOGGING)?;
        let mut format = home.java(&["-Xmx256m"]);
        format.args(["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c"]);
        format.arg(home.properties());
        run_logged(&mut format, &home.folder.join("format.log"))
            .context("can't format Kafka's log folder")?;
        Ok(home)
    }

    /// Starts the broker; answers it with the time to its first Metadata answer.
    pub fn start(&self) -> Result<(Server, Duration)> {
        let mut command = self.java(&HEAP);
        command.args(["kafka.Kafka"]).arg(self.properties());
        let started = Instant::now();
        let mut server = Server::spawn(
            "Apache Kafka",
            &mut command,
            &self.folder.join("broker.log"),
        )?;
        let took = await_metadata(&mut server, self.port, started, START_PATIENCE)?;
        Ok((server, took))
    }

    /// The log folder.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn properties(&self) -> PathBuf {
        self.folder.join("server.properties")
    }

    fn java(&self, heap: &[&str]) -> Command {
        let mut command = Command::new("java");
        command.args(heap).args(JVM);
        command.arg(format!(
            "-Dlog4j2.configurationFile={}",
            self.folder.join("log4j2.properties").display()
        ));
        command
            .arg("-cp")
            .arg(format!("{}/*", self.library.display()));
        command
    }
}

/// Kafka's shipped `server.properties`, as far as it differs from the defaults, for one node.
fn properties(port: u16, controller: u16, data: &Path) -> String {
    format!(
        "process.roles=broker,controller\n\
         node.id=1\n\
         controller.quorum.voters=1@127.0.0.1:{controller}\n\
         controller.listener.names=CONTROLLER\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n\
         listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
         inter.broker.listener.name=PLAINTEXT\n\
         log.dirs={}\n\
         num.network.threads=3\n\
         num.io.threads=8\n\
         offsets.topic.replication.factor=1\n\
         transaction.state.log.replication.factor=1\n\
         transaction.state.log.min.isr=1\n\
         share.coordinator.state.topic.replication.factor=1\n\
         share.coordinator.state.topic.min.isr=1\n\
         auto.create.topics.enable=false\n",
        data.display()
    )
}

/// Warnings only, to standard error.
const LOGGING: &str = "\
rootLogger.level = WARN
rootLogger.appenderRef.stderr.ref = STDERR
appender.stderr.type = Console
appender.stderr.name = STDERR
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d %p %c{1} %m%n
";
