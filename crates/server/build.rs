//! Tells the build which commit it is of. Without git, or outside of this project's repository, it is `unknown`.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let commit = own_repository().and_then(|root| {
        // Both change with a commit or a check-out. The log is missing in some clones, which is no error.
        for file in ["HEAD", "logs/HEAD"] {
            if let Some(path) = git(&root, &["rev-parse", "--git-path", file]) {
                let path = root.join(path);
                if path.exists() {
                    println!("cargo::rerun-if-changed={}", path.display());
                }
            }
        }
        git(&root, &["rev-parse", "--short=12", "HEAD"])
    });
    // `cargo run` hands this to the broker too, which refuses unknown variables that begin with its own name.
    println!(
        "cargo::rustc-env=BUILD_COMMIT={}",
        commit.as_deref().unwrap_or("unknown")
    );
}

/// The root of the repository, if it is this project's: an unpacked package may lie in somebody else's.
fn own_repository() -> Option<PathBuf> {
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
    let root = package.parent()?.parent()?.canonicalize().ok()?;
    let top = PathBuf::from(git(&root, &["rev-parse", "--show-toplevel"])?)
        .canonicalize()
        .ok()?;
    (top == root).then_some(root)
}

fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(arguments)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
