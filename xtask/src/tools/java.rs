//! Apache Kafka's jars: command-line clients for the tests, and the broker that performance is compared with.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::command::{root, run_logged};

pub(super) fn install(tools: &Path) -> Result<()> {
    let project = root().join("tests/clients/java/pom.xml");
    let pins = std::fs::read_to_string(&project)?;
    let library = tools.join("kafka-4.4.0/lib");
    super::once(tools, "kafka-4.4.0", &pins, |log| {
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
