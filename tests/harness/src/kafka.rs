//! An Apache Kafka 4.4.0 broker from its Maven jars: the reference that proves the tests' expectations.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{Process, Tools};

/// What the reference broker listens on and keeps.
pub(crate) struct KafkaLaunch<'a> {
    pub(crate) work_dir: &'a Path,
    pub(crate) data_dir: &'a Path,
    pub(crate) port: u16,
    pub(crate) controller_port: u16,
    pub(crate) properties: &'a [(String, String)],
    pub(crate) log: &'a Path,
}

const LOG_CONFIG: &str = r#"Configuration:
  status: warn
  Appenders:
    Console: { name: C, target: SYSTEM_ERR, PatternLayout: { pattern: "%d %p %c{1} %m%n" } }
  Loggers:
    Root: { level: "${env:KLOG:-INFO}", AppenderRef: { ref: C } }
"#;

pub(crate) fn launch(launch: &KafkaLaunch<'_>) -> Result<Process> {
    let classpath = Tools::find()?.kafka_classpath()?;
    let log_config = launch.work_dir.join("log4j2.yaml");
    std::fs::write(&log_config, LOG_CONFIG)?;
    let properties = launch.work_dir.join("server.properties");
    std::fs::write(&properties, properties_text(launch))?;
    let log_option = format!("-Dlog4j2.configurationFile={}", log_config.display());

    if !launch.data_dir.join("meta.properties").exists() {
        let output = Command::new("java")
            .args([
                &log_option,
                "-cp",
                &classpath,
                "kafka.tools.StorageTool",
                "format",
            ])
            .args(["-t", "5L6g3nShT-eMCtK--X86sw", "--ignore-formatted", "-c"])
            .arg(&properties)
            .env("KLOG", "WARN")
            .output()
            .context("can't run java")?;
        ensure!(
            output.status.success(),
            "formatting failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let arguments = [
        "-Xmx512m",
        "-XX:+UseG1GC",
        "-XX:TieredStopAtLevel=1",
        &log_option,
        "-cp",
        &classpath,
        "kafka.Kafka",
        properties
            .to_str()
            .context("the temporary folder isn't UTF-8")?,
    ];
    Process::spawn(
        "kafka",
        Path::new("/usr/bin/java"),
        arguments,
        &[],
        launch.log,
    )
}

fn properties_text(launch: &KafkaLaunch<'_>) -> String {
    let (port, controller) = (launch.port, launch.controller_port);
    let mut text = format!(
        "process.roles=broker,controller\nnode.id=1\n\
         controller.quorum.voters=1@127.0.0.1:{controller}\ncontroller.listener.names=CONTROLLER\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n\
         listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
         inter.broker.listener.name=PLAINTEXT\nlog.dirs={}\n\
         offsets.topic.replication.factor=1\noffsets.topic.num.partitions=8\n\
         transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n\
         transaction.state.log.num.partitions=8\nshare.coordinator.state.topic.replication.factor=1\n\
         share.coordinator.state.topic.min.isr=1\ngroup.coordinator.rebalance.protocols=classic,consumer,streams,share\n",
        launch.data_dir.display()
    );
    for (key, value) in launch.properties {
        text.push_str(&format!("{key}={value}\n"));
    }
    text
}
