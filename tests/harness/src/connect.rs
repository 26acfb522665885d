//! Kafka Connect's distributed worker.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::{HttpResponse, Process, Tools, free_port, http_get};

const LIMIT: Duration = Duration::from_secs(120);

/// One worker, with its state in the topics `NAME-config`, `NAME-offset` and `NAME-status`.
#[derive(Debug)]
pub struct ConnectWorker {
    process: Process,
    rest: String,
}

impl ConnectWorker {
    /// Starts a worker of the group `name`, its log and its properties in `folder`, and waits until it has joined its
    /// group. `settings` are further lines of its properties.
    pub fn start(folder: &Path, name: &str, brokers: &str, settings: &str) -> Result<Self> {
        let port = free_port();
        let file = folder.join("worker.properties");
        std::fs::write(&file, properties(name, brokers, port) + settings)?;
        let classpath = Tools::find()?.connect_classpath()?;
        let file = file.display().to_string();
        let arguments = [
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            "-Dlog4j2.level=WARN",
            "-cp",
            &classpath,
            "org.apache.kafka.connect.cli.ConnectDistributed",
            &file,
        ];
        let log = folder.join("connect.log");
        let mut process = Process::spawn("connect", Path::new("java"), arguments, &[], &log)?;
        let rest = format!("127.0.0.1:{port}");
        let deadline = Instant::now() + LIMIT;
        // Only one that has joined its group answers with a list.
        while !matches!(http_get(&rest, "/connectors"), Ok(HttpResponse { status: 200, body }) if body.starts_with('['))
        {
            process.check_alive()?;
            ensure!(
                Instant::now() < deadline,
                "Connect isn't up; its log:\n{}",
                process.log_tail(40)
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(Self { process, rest })
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Host and port of its HTTP API.
    pub fn rest(&self) -> &str {
        &self.rest
    }
}

fn properties(name: &str, brokers: &str, port: u16) -> String {
    let converter = "org.apache.kafka.connect.json.JsonConverter";
    let mut properties = format!(
        "bootstrap.servers={brokers}\ngroup.id={name}\nkey.converter={converter}\nvalue.converter={converter}\n\
         listeners=http://127.0.0.1:{port}\nplugin.discovery=only_scan\n"
    );
    for what in ["config", "offset", "status"] {
        properties.push_str(&format!(
            "{what}.storage.topic={name}-{what}\n{what}.storage.replication.factor=1\n"
        ));
    }
    properties
}
