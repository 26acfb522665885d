//! franz-go's own suite (`pkg/kgo`), run against the broker. What it asks for that isn't advertised yet is on the list
//! `franz-go/skip.txt`, a reason beside each name; a test that skips itself must be on it too.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tidegate_harness::{Broker, BrokerOptions, S3Server, Store, Target, Tools};

/// Test name → reason.
fn skip_list() -> Result<BTreeMap<String, String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("franz-go/skip.txt");
    let mut list = BTreeMap::new();
    for line in std::fs::read_to_string(path)?.lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, reason) = line
            .split_once(' ')
            .with_context(|| format!("{line} has no reason"))?;
        list.insert(name.to_owned(), reason.trim().to_owned());
    }
    Ok(list)
}

/// Where the module cache keeps the package under test.
fn package_folder() -> Result<PathBuf> {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("franz-go");
    let output = Command::new("go")
        .args(["list", "-f", "{{.Dir}}", "github.com/twmb/franz-go/pkg/kgo"])
        .current_dir(module)
        .output()
        .context("can't run go")?;
    ensure!(
        output.status.success(),
        "go list: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

#[test]
fn the_suite_passes_but_for_the_listed_tests() -> Result<()> {
    let s3 = S3Server::start_with_bucket("franz")?;
    let store = Store::S3 {
        endpoint: s3.address(),
        bucket: "franz".into(),
        prefix: "cluster".into(),
    };
    let mut broker = Broker::start(BrokerOptions::default().store(store))?;
    let listed = skip_list()?;
    // Names with "(self)" skip themselves and are run, so that they count again once they can.
    let left_out: Vec<&str> = listed
        .iter()
        .filter(|(_, reason)| !reason.starts_with("(self)"))
        .map(|(name, _)| name.as_str())
        .collect();
    let mut command = Command::new(Tools::find()?.franz_go_suite()?);
    // Some tests read their package's source, as under `go test`.
    command.current_dir(package_folder()?);
    command
        .args(["-test.v", "-test.timeout=15m"])
        .arg(format!("-test.skip=^({})$", left_out.join("|")));
    if let Ok(only) = std::env::var("TIDEGATE_TEST_FRANZ_GO_RUN") {
        command.arg(format!("-test.run={only}"));
    }
    command
        .env("KGO_SEEDS", broker.bootstrap())
        .env("KGO_TEST_RF", "1")
        .env("KGO_TEST_STABLE_FETCH", "true")
        .env("KGO_LOG_LEVEL", "none")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    let mut child = command.spawn().context("can't run franz-go's suite")?;
    let output = child.stdout.take().context("no standard output")?;
    let (mut passed, mut failed, mut skipped) = (0, Vec::new(), Vec::new());
    for line in BufReader::new(output).lines() {
        let line = line?;
        // Top-level results only: subtests are indented.
        let name = |rest: &str| rest.split(' ').next().unwrap_or_default().to_owned();
        if line.starts_with("--- PASS: ") {
            passed += 1;
        } else if let Some(rest) = line.strip_prefix("--- FAIL: ") {
            failed.push(name(rest));
        } else if let Some(rest) = line.strip_prefix("--- SKIP: ") {
            skipped.push(name(rest));
        }
        if !line.starts_with("=== ") && !line.starts_with("--- PASS") {
            println!("{line}");
        }
    }
    let status = child.wait()?;
    if broker.target() == Target::Tidegate {
        broker.process()?.check_alive()?;
    }
    let unlisted: Vec<&String> = skipped
        .iter()
        .filter(|name| !listed.contains_key(*name))
        .collect();
    println!(
        "score: franz-go {passed} passed, {} failed, {} skipped",
        failed.len(),
        left_out.len() + skipped.len()
    );
    ensure!(
        unlisted.is_empty(),
        "skipped themselves without being on the list: {unlisted:?}"
    );
    ensure!(
        failed.is_empty() && status.success(),
        "{status}; failed: {failed:?}"
    );
    ensure!(passed > 0, "nothing ran");
    // A suite that leaves the broker unable to start again would be a poor pass.
    broker.crash_and_restart()?;
    broker.wait_ready(Duration::from_secs(60))
}
