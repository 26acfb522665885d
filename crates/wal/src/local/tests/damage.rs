//! Torn tails are cut off; damage that no crash explains is refused.

use super::*;
use tidegate_runtime::Open;

/// Entries 0..count, each durable before the next, in a WAL whose process then dies.
fn log(disk: &SimDisk, count: u64, length: usize) -> (SimDisk, Vec<WalPosition>) {
    let mut life = Life::sim(disk);
    let positions = (0..count)
        .map(|id| life.append_durably(id, length))
        .collect();
    (disk.restart(), positions)
}

fn refused(disk: &SimDisk) -> Damage {
    match Life::open(disk.shared(), &dir(), &options()).err() {
        Some(OpenError::Damaged(damage)) => damage,
        Some(other) => panic!("refused for another reason: {other}"),
        None => panic!("opened with damage"),
    }
}

#[test]
fn damage_before_a_later_group_is_refused_with_file_and_position() {
    // In the header, in the batches, and far back in another file.
    for (victim, byte) in [(3, 30), (3, 200), (0, 100), (11, 200)] {
        let (disk, positions) = log(&SimDisk::new(1), 40, 1_000);
        let (path, start) = place(positions[victim]);
        assert!(disk.corrupt(&path, start + byte));
        let damage = refused(&disk);
        assert_eq!((damage.path, damage.byte), (path, start));
        assert_eq!(damage.position, positions[victim]);
    }
}

#[test]
fn a_missing_first_frame_of_a_later_file_is_refused() {
    let (disk, positions) = log(&SimDisk::new(1), 40, 1_000);
    let first = positions.iter().find(|at| at.get() > options().file_bytes);
    let (path, start) = place(*first.unwrap());
    assert_eq!(start, 4096);
    assert!(disk.corrupt(&path, start + 30));
    // It could as well be a whole group lost from the end of the file before: that is where the log stops.
    let damage = refused(&disk);
    assert_eq!(damage.path, place(positions[0]).0);
    assert!(damage.reason.contains("durable"), "{}", damage.reason);
}

#[test]
fn damage_at_the_end_of_a_full_file_is_refused() {
    let (disk, positions) = log(&SimDisk::new(1), 40, 1_000);
    let last_of_first = positions
        .iter()
        .rposition(|at| place(*at).0 == place(positions[0]).0);
    let victim = positions[last_of_first.unwrap()];
    assert!(disk.corrupt(&place(victim).0, place(victim).1 + 500));
    assert_eq!(refused(&disk).position, victim);
}

#[test]
fn a_damaged_last_group_is_a_torn_tail_and_stays_out_for_ever() {
    let (disk, positions) = log(&SimDisk::new(1), 5, 1_000);
    let (path, start) = place(positions[4]);
    assert!(disk.corrupt(&path, start + 500));
    let mut life = Life::sim(&disk);
    assert_eq!(life.recovered_ids(), [0, 1, 2, 3]);
    life.append_durably(10, 1_000);
    life.append_durably(11, 1_000);
    disk.power_cut();

    // The second recovery meets the first one's damage, undone even, and passes it by.
    let disk = disk.restart();
    assert!(disk.corrupt(&path, start + 500));
    assert_eq!(Life::sim(&disk).recovered_ids(), [0, 1, 2, 3, 10, 11]);
}

#[test]
fn damage_before_the_end_that_an_earlier_recovery_found_is_refused() {
    let (disk, positions) = log(&SimDisk::new(1), 5, 1_000);
    let mut life = Life::sim(&disk);
    life.append_durably(10, 1_000);
    let disk = disk.restart();
    let (path, start) = place(positions[4]);
    assert!(disk.corrupt(&path, start + 500));
    assert_eq!(refused(&disk).position, positions[4]);
}

#[test]
fn after_a_clean_close_even_the_last_entry_is_proven() {
    let disk = SimDisk::new(1);
    let mut life = Life::sim(&disk);
    life.append_durably(0, 100);
    let last = life.append_durably(1, 100);
    life.close();
    assert!(disk.corrupt(&place(last).0, place(last).1 + 100));
    assert_eq!(refused(&disk).position, last);
}

#[test]
fn a_damaged_file_header_and_a_missing_file_are_refused() {
    let (disk, positions) = log(&SimDisk::new(1), 40, 1_000);
    let (second, _) = place(positions[15]);
    assert_ne!(second, place(positions[0]).0);
    assert!(disk.corrupt(&second, 40));
    assert_eq!(refused(&disk).path, second);
    assert!(disk.corrupt(&second, 40));
    disk.remove(&second).unwrap();
    assert!(refused(&disk).reason.contains("missing"));
}

#[test]
fn a_newer_version_is_named_and_refused() {
    let (disk, positions) = log(&SimDisk::new(1), 1, 100);
    let (path, _) = place(positions[0]);
    let file = disk.open(&path, Open::Existing).unwrap();
    file.write_all_at(&2u32.to_le_bytes(), 8).unwrap();
    let refused = Life::open(disk.shared(), &dir(), &options()).err().unwrap();
    assert!(matches!(
        refused,
        OpenError::UnsupportedVersion { version: 2, .. }
    ));
}

#[test]
fn a_read_checks_what_it_returns() {
    let disk = SimDisk::new(1);
    let mut life = Life::sim(&disk);
    let position = life.append_durably(1, 100);
    let (path, start) = place(position);
    assert!(disk.corrupt(&path, start + 150));
    let error = life.wal.read(position, 100).unwrap_err();
    assert!(matches!(error, ReadError::Damaged(_)), "{error}");
    assert!(disk.corrupt(&path, start + 150));
    assert!(life.wal.read(position, 99).is_err());
    assert!(
        life.wal
            .read(WalPosition::new(position.get() + 8), 92)
            .is_err()
    );
    assert!(life.wal.read(WalPosition::new(1 << 40), 100).is_err());
    life.wal.read(position, 100).unwrap();
}

#[test]
fn frames_of_an_earlier_use_of_a_file_never_come_back() {
    // Entries of one size lie at the same places in every file, the best chance for a stale frame.
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let mut life = Life::sim(&disk);
        let mut positions = Vec::new();
        for id in 0..100 {
            positions.push(life.append_durably(id, 1_000));
            if id % 10 == 9 {
                life.wal.trim(positions[id as usize - 5]);
            }
        }
        let recycled = life.wal.inner.metrics.recycled_files.get();
        assert!(recycled >= 3, "only {recycled} files recycled");
        disk.power_cut();
        let ids = Life::sim(&disk.restart()).recovered_ids();
        let first = ids[0];
        assert!(first > 50, "stale: {ids:?}");
        assert_eq!(ids, (first..100).collect::<Vec<_>>());
    }
}

#[test]
fn the_rest_of_a_torn_first_group_never_follows_what_replaces_its_start() {
    let disk = SimDisk::new(1);
    let life = Life::sim(&disk);
    {
        // Under the lock, so that the three go out as one group.
        let mut state = life.wal.inner.state.lock();
        for id in 0..3 {
            let (entry, said) = (entry(id, 1_000), life.sender.clone());
            let crc = crc32_iscsi(&entry.batches);
            let observer = Arc::new(Observer {
                id,
                length: 1_000,
                said,
            });
            state.admit(entry, crc, observer).unwrap();
        }
    }
    life.wal.inner.writer_signal.raise();
    for _ in 0..3 {
        life.receiver.recv_timeout(PATIENCE).unwrap();
    }
    let disk = disk.restart();
    let (path, start) = place(WalPosition::new(4096));
    assert!(disk.corrupt(&path, start + 500));

    // The file is made anew, and its first frame ends exactly where the old second one starts.
    let mut life = Life::sim(&disk);
    assert_eq!(life.recovered_ids(), [0u64; 0]);
    assert_eq!(life.append_durably(10, 1_000).get(), 4096);
    assert_eq!(Life::sim(&disk.restart()).recovered_ids(), [10]);
}

#[test]
fn restarts_without_appends_leave_no_row_of_files() {
    let disk = SimDisk::new(1);
    let mut life = Life::sim(&disk);
    life.append_durably(1, 100);
    life.close();
    for clean in [true, false, true, false, true, false] {
        let disk = disk.restart();
        let life = Life::sim(&disk);
        assert_eq!(life.recovered_ids(), [1]);
        if clean {
            life.close();
        }
    }
    let disk = disk.restart();
    let life = Life::sim(&disk);
    eventually("the file ahead is made", || {
        life.wal.inner.state.lock().live.len() == 3
    });
    assert!(
        disk.list(&dir()).unwrap().len() <= 4,
        "{:?}",
        disk.list(&dir())
    );
}
