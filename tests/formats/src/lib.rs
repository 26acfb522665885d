//! Golden files: what every released version of every persisted format looks like, byte by byte.
//!
//! A test encodes the same contents and compares ([`assert_golden`]), and decodes the stored file. A file of a
//! released version never changes: readers accept it for ever. A new version gets a new file.
//!
//! `TIDEGATE_WRITE_GOLDEN=1` writes files that are missing, and only those.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the golden file `name` lies.
pub fn golden_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(name)
}

/// The bytes of the golden file `name`.
///
/// # Panics
/// When it can't be read.
pub fn golden(name: &str) -> Vec<u8> {
    let path = golden_path(name);
    fs::read(&path)
        .unwrap_or_else(|error| panic!("golden file {} can't be read: {error}", path.display()))
}

/// Compares `encoded` with the golden file `name`.
///
/// # Panics
/// At the first byte that differs, or when the file can't be read.
pub fn assert_golden(name: &str, encoded: &[u8]) {
    let path = golden_path(name);
    if !path.exists() && env::var_os("TIDEGATE_WRITE_GOLDEN").is_some() {
        fs::write(&path, encoded)
            .unwrap_or_else(|error| panic!("{} can't be written: {error}", path.display()));
    }
    let stored = golden(name);
    let differs = stored.iter().zip(encoded).position(|(a, b)| a != b);
    assert_eq!(
        differs, None,
        "{name} differs from what is encoded now, first at this position"
    );
    assert_eq!(
        stored.len(),
        encoded.len(),
        "{name} and what is encoded now differ in length"
    );
}
