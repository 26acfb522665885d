//! Debian packages.

use std::process::Command;

use anyhow::{Result, bail};

use crate::command::{on_path, output_of};

/// (program that shows it is there, package that brings it)
const NEEDED: &[(&str, &str)] = &[
    ("kcat", "kcat"),
    ("java", "default-jre-headless"),
    ("mvn", "maven"),
    ("cmake", "cmake"),
    ("make", "make"),
    ("cc", "gcc"),
    ("c++", "g++"),
    ("python3", "python3"),
    ("go", "golang-go"),
    ("setpriv", "util-linux"),
];

pub(super) fn install() -> Result<()> {
    let mut packages: Vec<&str> = NEEDED
        .iter()
        .filter(|(program, _)| !on_path(program))
        .map(|(_, package)| *package)
        .collect();
    if Command::new("python3")
        .args(["-c", "import ensurepip, venv"])
        .output()
        .is_ok_and(|out| !out.status.success())
    {
        packages.push("python3-venv");
    }
    // librdkafka 2.12 includes it even when it is built without curl.
    if !has_header("curl/curl.h") {
        packages.push("libcurl4-openssl-dev");
    }
    if !packages.is_empty() {
        apt_get(&packages)?;
    }
    check_go()
}

/// Whether the C compiler finds a header. Without a compiler there is none: it comes in the same go.
fn has_header(header: &str) -> bool {
    Command::new("cc")
        .args(["-fsyntax-only", "-x", "c", "-include", header, "/dev/null"])
        .output()
        .is_ok_and(|out| out.status.success())
}

fn apt_get(packages: &[&str]) -> Result<()> {
    let by_hand = format!(
        "apt-get update && apt-get install -y --no-install-recommends {}",
        packages.join(" ")
    );
    if !on_path("apt-get") {
        bail!(
            "the tests need {}, and this system has no apt-get: install them by hand",
            packages.join(", ")
        );
    }
    if output_of(Command::new("id").arg("-u"))?.trim() != "0" {
        bail!(
            "the tests need {}; as root run:\n  {by_hand}",
            packages.join(", ")
        );
    }
    println!("installing {} …", packages.join(", "));
    output_of(Command::new("apt-get").args(["-q", "update"]))?;
    let mut install = Command::new("apt-get");
    install
        .args(["-q", "install", "-y", "--no-install-recommends"])
        .args(packages);
    output_of(install.env("DEBIAN_FRONTEND", "noninteractive"))?;
    Ok(())
}

/// Go 1.21 and later fetch the toolchain that a module asks for; older ones can't.
fn check_go() -> Result<()> {
    let version = output_of(Command::new("go").args(["env", "GOVERSION"]))?;
    let minor = version
        .trim()
        .strip_prefix("go1.")
        .and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
    match minor {
        Some(minor) if minor >= 21 => Ok(()),
        _ => bail!(
            "the tests need Go 1.21 or later; this is {}",
            version.trim()
        ),
    }
}
