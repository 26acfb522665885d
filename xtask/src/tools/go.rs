//! Go programs: the S3 server, franz-go's own suite, and a small franz-go client.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::command::{root, run_logged};

/// The S3 server, as a Go module at a version.
const VERSITYGW: &str = "github.com/versity/versitygw/cmd/versitygw@v1.8.0";

/// The S3 server.
pub(super) fn install_s3(tools: &Path) -> Result<()> {
    let bin = tools.join("bin");
    super::once(tools, "versitygw", VERSITYGW, |log| {
        let mut command = Command::new("go");
        command.args(["install", "-trimpath", "-ldflags=-s -w", VERSITYGW]);
        run_logged(command.env("GOBIN", &bin).env("CGO_ENABLED", "0"), log)
    })
}

pub(super) fn install(tools: &Path) -> Result<()> {
    let bin = tools.join("bin");
    install_s3(tools)?;

    let module = root().join("tests/clients/franz-go");
    let mut pins = std::fs::read_to_string(module.join("go.sum"))?;
    pins.push_str(&std::fs::read_to_string(module.join("main.go"))?);
    super::once(tools, "franz-go", &pins, |log| {
        let build = |arguments: &[&str], output: &str| {
            let mut command = Command::new("go");
            command
                .arg(arguments[0])
                .args(&arguments[1..arguments.len() - 1])
                .arg("-o")
                .arg(bin.join(output));
            command
                .arg(arguments[arguments.len() - 1])
                .current_dir(&module)
                .env("CGO_ENABLED", "0");
            run_logged(&mut command, log)
        };
        build(&["build", "-trimpath", "."], "franz-go-client")?;
        build(
            &["test", "-c", "github.com/twmb/franz-go/pkg/kgo"],
            "kgo.test",
        )
    })
}
