//! Folders, looked at from outside: how much a system stored, and in which pieces.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::Result;

/// Size of each file below a folder, holes not counted. Files come and go meanwhile; one that is gone again doesn't count.
pub fn sizes(folder: &Path) -> Result<BTreeMap<PathBuf, u64>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries {
            let entry = entry?;
            // The S3 server's own folder for uploads under way.
            if entry.file_name().to_string_lossy().starts_with(".sgwtmp") {
                continue;
            }
            match entry.metadata() {
                Ok(facts) if facts.is_dir() => folders.push(entry.path()),
                Ok(facts) => {
                    // Kafka's index files are long but mostly holes; a small file takes a whole block.
                    found.insert(entry.path(), facts.len().min(facts.blocks() * 512));
                }
                Err(_) => {}
            }
        }
    }
    Ok(found)
}

/// Bytes that came to a folder since `before`. What was removed meanwhile doesn't count against them: a topic
/// deleted earlier may lose its files at any time.
pub fn grown_since(folder: &Path, before: &BTreeMap<PathBuf, u64>) -> Result<u64> {
    let now = sizes(folder)?;
    let grown = now.iter().map(|(path, size)| {
        let known = before.get(path).copied().unwrap_or_default();
        size.saturating_sub(known)
    });
    Ok(grown.sum())
}

/// Whether a file of Tidegate's store holds records, by its key (a WAL object or an upload), and not metadata.
pub fn is_data(store: &Path, file: &Path) -> bool {
    file.strip_prefix(store)
        .is_ok_and(|key| key.starts_with("data") || key.starts_with("segments"))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_hole_takes_no_bytes() {
        let path = std::env::temp_dir().join(format!("versus-hole-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder can be made");
        let file = std::fs::File::create(path.join("hole")).expect("a file can be made");
        file.set_len(10 << 20).expect("a file can be extended");
        let bytes = grown_since(&path, &BTreeMap::new());
        std::fs::remove_dir_all(&path).expect("the folder can be removed");
        assert_eq!(bytes.ok(), Some(0));
    }

    #[test]
    fn a_store_below_a_folder_named_data_doesnt_make_its_metadata_records() {
        let store = Path::new("/data/run/store");
        assert!(is_data(store, &store.join("data/1/2/00000")));
        assert!(is_data(store, &store.join("segments/1/2/00000")));
        assert!(!is_data(store, &store.join("meta/data/1.sst")));
        assert!(!is_data(store, Path::new("/data/elsewhere")));
    }

    #[test]
    fn removed_files_dont_hide_new_ones() {
        let folder = std::env::temp_dir().join(format!("versus-files-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("a/b")).expect("a temporary folder can be made");
        let file = std::fs::File::create(folder.join("a/b/c")).expect("a file can be made");
        (&file).write_all(&[0; 10]).expect("a file can be written");
        file.sync_all().expect("a file can be synced");
        let file = std::fs::File::create(folder.join("d")).expect("a file can be made");
        (&file).write_all(&[0; 5]).expect("a file can be written");
        // Blocks are given to a file when it is written back.
        file.sync_all().expect("a file can be synced");
        let before = sizes(&folder).expect("the folder can be read");
        std::fs::remove_file(folder.join("d")).expect("a file can be removed");
        let file = std::fs::File::create(folder.join("e")).expect("a file can be made");
        (&file).write_all(&[0; 7]).expect("a file can be written");
        file.sync_all().expect("a file can be synced");
        let all = grown_since(&folder, &BTreeMap::new());
        let grown = grown_since(&folder, &before);
        std::fs::remove_dir_all(&folder).expect("the folder can be removed");
        assert_eq!((all.ok(), grown.ok()), (Some(17), Some(7)));
    }
}
