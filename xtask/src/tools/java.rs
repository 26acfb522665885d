//! Apache Kafka's jars: command-line clients for the tests, and the broker that performance is compared with; and those
//! of Kafka Connect, Kafka Streams and Flink.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::command::{root, run_logged};

/// Kafka's own jars.
pub(super) fn install(tools: &Path) -> Result<()> {
    install_project(tools, "kafka-4.4.0", "tests/clients/java/pom.xml")
}

/// Those of Kafka Connect, which bring an HTTP server along.
pub(super) fn install_connect(tools: &Path) -> Result<()> {
    install_project(tools, "connect-4.3.1", "tests/clients/java/connect/pom.xml")
}

/// Those of Kafka Streams and of Flink with its Kafka connector.
pub(super) fn install_applications(tools: &Path) -> Result<()> {
    let project = |name: &str| format!("tests/applications/java/{name}/pom.xml");
    install_project(tools, "streams-4.4.0", &project("streams"))?;
    install_project(tools, "flink-2.2.0", &project("flink"))
}

fn install_project(tools: &Path, name: &str, project: &str) -> Result<()> {
    let project = root().join(project);
    let pins = std::fs::read_to_string(&project)?;
    let library = tools.join(name).join("lib");
    super::once(tools, name, &pins, |log| {
        if library.exists() {
            std::fs::remove_dir_all(&library)?;
        }
        let mut command = Command::new("mvn");
        command
            .args(["-q", "-B", "-f"])
            .arg(&project)
            .arg("dependency:copy-dependencies");
        command.arg(format!("-DoutputDirectory={}", library.display()));
        run_logged(&mut command, log)
    })
}
