//! Temporary folders that tell whose they are.
//!
//! A broker that the tests of one program share is never dropped, so its folder outlives the program; the log in it is
//! of use when a test failed. The next program removes what programs that have ended left behind.

use std::path::Path;
use std::sync::Once;

use anyhow::Result;
use tempfile::TempDir;

const PREFIX: &str = "tidegate-test-";

/// A new folder for `purpose`, named after this process.
pub(crate) fn scratch(purpose: &str) -> Result<TempDir> {
    static SWEPT: Once = Once::new();
    SWEPT.call_once(|| sweep(&std::env::temp_dir()));
    let prefix = format!("{PREFIX}{}-{purpose}-", std::process::id());
    Ok(tempfile::Builder::new().prefix(&prefix).tempdir()?)
}

/// Removes the folders of processes that have ended. Sweeping is a courtesy: what can't be removed stays.
fn sweep(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split('-').next());
        let Some(owner) = owner.and_then(|text| text.parse::<u32>().ok()) else {
            continue;
        };
        if !Path::new(&format!("/proc/{owner}")).exists() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_ended_processes_are_swept() {
        let folder = tempfile::tempdir().unwrap();
        // Process ids end at 2^22 on Linux.
        let ended = folder.path().join(format!("{PREFIX}4194305-broker-x"));
        let own = folder
            .path()
            .join(format!("{PREFIX}{}-broker-x", std::process::id()));
        let foreign = folder.path().join("something-4194305-broker-x");
        for path in [&ended, &own, &foreign] {
            std::fs::create_dir(path).unwrap();
        }
        sweep(folder.path());
        assert!(!ended.exists());
        assert!(own.exists());
        assert!(foreign.exists());
    }
}
