//! One contract over both disks, then what only the simulated one can show.

use std::path::PathBuf;

use super::*;

fn contract(check: impl Fn(&dyn Disk, &Path)) {
    let dir = tempfile::tempdir().unwrap();
    check(&RealDisk, &dir.path().join("a/b"));
    check(&SimDisk::new(1), Path::new("/a/b"));
}

fn contents(file: &dyn DiskFile) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn written_slices_are_read_back_in_order_however_many() {
    contract(|disk, dir| {
        disk.create_dir_all(dir).unwrap();
        let file = disk.open(&dir.join("f"), Open::CreateNew).unwrap();
        let pieces: Vec<Vec<u8>> = (0..3_000u32).map(|i| i.to_le_bytes().to_vec()).collect();
        let mut slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        slices.insert(5, IoSlice::new(&[]));
        file.write_vectored_all_at(&mut slices, 3).unwrap();
        file.sync_data().unwrap();
        assert_eq!(contents(&*file)[3..], pieces.concat());
        let again = disk.open(&dir.join("f"), Open::Existing).unwrap();
        assert_eq!(contents(&*again)[3..], pieces.concat());
    });
}

/// What a log does: groups of any size, one behind the other, over what an earlier use of the file left there.
#[test]
fn a_preallocated_file_takes_groups_of_any_size_one_behind_the_other() {
    contract(|disk, dir| {
        disk.create_dir_all(dir).unwrap();
        let file = disk.open(&dir.join("f"), Open::CreateNew).unwrap();
        let length = 6 << 20;
        file.allocate(length).unwrap();
        file.write_all_at(&vec![0xee; usize::try_from(length).unwrap()], 0)
            .unwrap();
        let mut expected = vec![0xee; BLOCK_BYTES as usize + 40];
        let mut seed = 7u64;
        for group in 0..200 {
            // Now and then nearly nothing, a whole number of blocks, and more than is gathered at once.
            let size = match group % 10 {
                0 => 1,
                1 => 2 * BLOCK_BYTES as usize,
                2 if group == 102 => 2_500_000,
                _ => {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    usize::try_from(seed >> 50).unwrap()
                }
            };
            let bytes = vec![u8::try_from(group).unwrap(); size];
            let (front, back) = bytes.split_at(size / 3);
            let mut slices = [front, back].map(IoSlice::new);
            file.write_vectored_all_at(&mut slices, expected.len() as u64)
                .unwrap();
            file.sync_data().unwrap();
            expected.extend_from_slice(&bytes);
            if group == 50 {
                // Something else writes in between.
                file.write_all_at(b"head", 0).unwrap();
                expected[..4].copy_from_slice(b"head");
            }
        }
        assert_eq!(file.len().unwrap(), length, "the length is left alone");
        let found = contents(&*file);
        assert!(found[..expected.len()] == expected[..]);
        let untouched = expected.len().next_multiple_of(BLOCK_BYTES as usize);
        assert!(found[untouched..].iter().all(|byte| *byte == 0xee));
        let again = disk.open(&dir.join("f"), Open::Existing).unwrap();
        assert!(contents(&*again)[..expected.len()] == expected[..]);
    });
}

#[test]
fn names_follow_create_rename_and_remove() {
    contract(|disk, dir| {
        disk.create_dir_all(dir).unwrap();
        disk.create_dir_all(dir).unwrap();
        for name in ["b", "a", "c"] {
            disk.open(&dir.join(name), Open::CreateNew).unwrap();
        }
        let taken = disk.open(&dir.join("a"), Open::CreateNew).err().unwrap();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        disk.rename(&dir.join("a"), &dir.join("d")).unwrap();
        disk.remove(&dir.join("b")).unwrap();
        disk.sync_dir(dir).unwrap();
        assert_eq!(disk.list(dir).unwrap(), ["c", "d"]);
        assert!(!disk.exists(&dir.join("a")).unwrap());
        assert!(disk.exists(&dir.join("d")).unwrap());
        let gone = disk.open(&dir.join("a"), Open::Existing).err().unwrap();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    });
}

#[test]
fn allocate_extends_with_zeros_and_never_shrinks() {
    contract(|disk, dir| {
        disk.create_dir_all(dir).unwrap();
        let file = disk.open(&dir.join("f"), Open::CreateNew).unwrap();
        file.write_all_at(b"abc", 0).unwrap();
        file.allocate(2_500_000).unwrap();
        assert_eq!(file.len().unwrap(), 2_500_000);
        let bytes = contents(&*file);
        assert_eq!(&bytes[..3], b"abc");
        assert!(bytes[3..].iter().all(|byte| *byte == 0));
        file.allocate(10).unwrap();
        assert_eq!(file.len().unwrap(), 2_500_000);
        let mut past = [0; 2];
        let end = file.read_exact_at(&mut past, 2_499_999).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    });
}

#[test]
fn a_directory_is_held_by_one_at_a_time() {
    contract(|disk, dir| {
        disk.create_dir_all(dir).unwrap();
        let held = disk.lock_dir(dir).unwrap();
        assert!(matches!(
            disk.lock_dir(dir),
            Err(LockError::AlreadyLocked { .. })
        ));
        drop(held);
        disk.lock_dir(dir).unwrap();
    });
}

fn sim(seed: u64) -> (SimDisk, PathBuf) {
    let disk = SimDisk::new(seed);
    let dir = PathBuf::from("/wal");
    disk.create_dir_all(&dir).unwrap();
    (disk, dir)
}

#[test]
fn a_power_cut_keeps_what_was_synced_and_any_part_of_the_rest() {
    let mut outcomes = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let (disk, dir) = sim(seed);
        let file = disk.open(&dir.join("f"), Open::CreateNew).unwrap();
        disk.sync_dir(&dir).unwrap();
        file.write_all_at(&[1; 4096], 0).unwrap();
        file.sync_data().unwrap();
        file.write_all_at(&[2; 2048], 2048).unwrap();
        disk.power_cut();
        assert!(file.write_all_at(&[3], 0).is_err());
        let disk = disk.restart();
        let kept = disk.contents(&dir.join("f")).unwrap();
        assert_eq!(kept[..2048], [1; 2048]);
        assert!(kept[2048..].iter().all(|byte| matches!(byte, 1 | 2)));
        outcomes.insert(kept[2048..].iter().filter(|byte| **byte == 2).count());
    }
    assert!(outcomes.contains(&0) && outcomes.contains(&2048));
    assert!(outcomes.len() > 20, "too tame: {outcomes:?}");
}

#[test]
fn a_name_survives_a_power_cut_for_sure_only_after_its_directory_was_synced() {
    let mut lost = 0;
    for seed in 0..50 {
        let (disk, dir) = sim(seed);
        disk.open(&dir.join("synced"), Open::CreateNew).unwrap();
        disk.sync_dir(&dir).unwrap();
        disk.open(&dir.join("not"), Open::CreateNew).unwrap();
        disk.power_cut();
        let names = disk.restart().list(&dir).unwrap();
        assert!(names.contains(&"synced".to_owned()));
        lost += usize::from(names.len() == 1);
    }
    assert!(lost > 0 && lost < 50, "{lost}");
}

#[test]
fn a_failed_sync_forgets_what_reads_still_show() {
    let mut forgotten = 0;
    for seed in 0..50 {
        let (disk, dir) = sim(seed);
        let file = disk.open(&dir.join("f"), Open::CreateNew).unwrap();
        disk.sync_dir(&dir).unwrap();
        file.write_all_at(b"x", 0).unwrap();
        disk.fail_sync_in(0);
        file.sync_data().unwrap_err();
        // The trap: the repeated sync answers success and has stored nothing.
        file.sync_data().unwrap();
        assert_eq!(contents(&*file), b"x");
        disk.power_cut();
        let kept = disk.restart().contents(&dir.join("f")).unwrap();
        forgotten += usize::from(kept.is_empty());
    }
    assert!(forgotten > 0, "a failed sync never lost anything");
}

#[test]
fn a_full_disk_takes_the_part_that_fits_and_says_so() {
    let (disk, dir) = sim(1);
    disk.set_capacity_bytes(10);
    let file = disk.open(&dir.join("f"), Open::CreateNew).unwrap();
    let full = file.write_all_at(&[7; 16], 0).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    assert_eq!(file.len().unwrap(), 10);
    assert_eq!(disk.free_bytes(&dir).unwrap(), 0);
    file.write_all_at(&[8; 10], 0).unwrap();
    disk.remove(&dir.join("f")).unwrap();
    assert_eq!(disk.free_bytes(&dir).unwrap(), 10);
}

#[test]
fn the_power_goes_on_the_call_that_was_asked_for() {
    let (disk, dir) = sim(1);
    let file = disk.open(&dir.join("f"), Open::CreateNew).unwrap();
    disk.power_cut_in(1);
    file.write_all_at(b"x", 0).unwrap();
    assert!(!disk.is_dead());
    file.sync_data().unwrap_err();
    assert!(disk.is_dead());
}
