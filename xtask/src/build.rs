//! One build for everything: the binary and every test, in one profile with one set of features.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command::{is_ci, root};

/// A test program that the build made.
#[derive(Debug, Clone)]
pub(crate) struct TestProgram {
    /// Its package's folder relative to the root, such as `crates/wal`.
    pub(crate) package: String,
    /// Its target's name, such as `cases`.
    pub(crate) target: String,
    /// Whether it is an integration test (a file in `tests/`) and not a crate's own unit tests.
    pub(crate) integration: bool,
    pub(crate) executable: PathBuf,
}

/// What the build made.
#[derive(Debug, Default)]
pub(crate) struct Built {
    pub(crate) tests: Vec<TestProgram>,
    /// The product's binary.
    pub(crate) tidegate: Option<PathBuf>,
}

/// A cargo command at the root, as every step uses it: the same settings, or things would be built twice.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    if is_ci() {
        // A fresh clone is built once: incremental bookkeeping would only cost time and disk.
        command.env("CARGO_INCREMENTAL", "0");
    }
    command
}

/// Builds the workspace's binaries and tests. The compiler's messages go to standard error as usual.
pub(crate) fn build() -> Result<Built> {
    // xtask is running: its own tests are built by their suite, and it isn't linked over itself here.
    let arguments = [
        "build",
        "--workspace",
        "--exclude",
        "xtask",
        "--bins",
        "--tests",
    ];
    let child = cargo(&arguments)
        .args(["--message-format", "json-render-diagnostics"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("can't run cargo")?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("the workspace doesn't build");
    }
    let mut built = Built::default();
    for line in output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let message: Value =
            serde_json::from_slice(line).context("cargo wrote something that isn't JSON")?;
        take_artifact(&mut built, &message);
    }
    // Cargo reports in the order of finishing; a run should look like the one before.
    built
        .tests
        .sort_by(|a, b| (&a.package, &a.target).cmp(&(&b.package, &b.target)));
    Ok(built)
}

fn take_artifact(built: &mut Built, message: &Value) {
    let (Some(executable), Some(manifest)) = (
        message["executable"].as_str(),
        message["manifest_path"].as_str(),
    ) else {
        return;
    };
    let folder = Path::new(manifest).parent().unwrap_or(Path::new(""));
    let package = folder
        .strip_prefix(root())
        .unwrap_or(folder)
        .to_string_lossy()
        .into_owned();
    let target = message["target"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let kinds = message["target"]["kind"].as_array();
    let is_kind = |kind: &str| kinds.is_some_and(|kinds| kinds.iter().any(|known| known == kind));
    if message["profile"]["test"] == true {
        let integration = is_kind("test");
        built.tests.push(TestProgram {
            package,
            target,
            integration,
            executable: executable.into(),
        });
    } else if target == "tidegate" && is_kind("bin") {
        built.tidegate = Some(executable.into());
    }
}
