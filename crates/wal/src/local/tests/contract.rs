//! What holds on every disk and with either kind of workers.

use super::*;
use tidegate_runtime::{LockError, RealDisk};

fn on_every_disk(check: impl Fn(Arc<dyn Disk>, &Path)) {
    let temp = tempfile::tempdir().unwrap();
    check(RealDisk::shared(), &temp.path().join("wal"));
    check(SimDisk::new(1).shared(), &dir());
}

#[test]
fn what_was_appended_is_read_and_recovered_as_it_was() {
    on_every_disk(|disk, dir| {
        let lengths = [8, 9, 100, 3_000, 12_184, 4_096, 8, 12_191, 500];
        let mut life = Life::open(Arc::clone(&disk), dir, &options()).unwrap();
        let mut positions = Vec::new();
        for (id, length) in (0..).zip(lengths) {
            let position = life.append_durably(id, length);
            let read = life.wal.read(position, length as u32).unwrap();
            assert_eq!(read, bytes_of(id, length));
            positions.push(position);
        }
        assert!(positions.is_sorted(), "{positions:?}");
        life.close();

        let life = Life::open(disk, dir, &options()).unwrap();
        assert_eq!(life.recovered.len(), lengths.len());
        assert_eq!(life.summary.entries, lengths.len() as u64);
        for ((found, length), position) in life.recovered.iter().zip(lengths).zip(positions) {
            assert_same(found, length);
            assert_eq!(found.position, position);
            let read = life.wal.read(position, length as u32).unwrap();
            assert_eq!(read, found.entry.batches);
        }
        life.close();
    });
}

#[test]
fn an_entry_that_no_file_can_hold_is_refused() {
    on_every_disk(|disk, dir| {
        let mut life = Life::open(disk, dir, &options()).unwrap();
        let largest = 16 * 1024 - 4096 - 96;
        let refused = life.append(1, largest + 1).unwrap_err();
        assert!(matches!(refused, AppendRefused::TooLarge { .. }));
        assert!(!refused.is_retriable());
        life.append_durably(2, largest);
        life.close();
    });
}

#[test]
fn a_directory_has_one_wal_at_a_time() {
    on_every_disk(|disk, dir| {
        let life = Life::open(Arc::clone(&disk), dir, &options()).unwrap();
        let second = Life::open(Arc::clone(&disk), dir, &options())
            .err()
            .unwrap();
        assert!(matches!(
            second,
            OpenError::Locked(LockError::AlreadyLocked { .. })
        ));
        life.close();
        Life::open(disk, dir, &options()).unwrap().close();
    });
}

#[test]
fn a_closing_wal_makes_durable_what_it_took_and_takes_no_more() {
    let disk = SimDisk::new(1);
    let mut life = Life::sim(&disk);
    disk.hold_syncs();
    for id in 0..5 {
        life.append(id, 100).unwrap();
    }
    life.wal.inner.begin_close();
    assert!(matches!(life.append(9, 100), Err(AppendRefused::Closed)));
    disk.release_syncs();
    for id in 0..5 {
        assert!(matches!(life.hear_of(id), Said::Durable(..)));
    }
    life.close();
    disk.power_cut();
    assert_eq!(Life::sim(&disk.restart()).recovered_ids(), [0, 1, 2, 3, 4]);
}

#[test]
fn entries_that_come_during_a_sync_share_the_next_one_in_order() {
    let disk = SimDisk::new(1);
    let mut life = Life::sim(&disk);
    life.append_durably(0, 100);
    eventually("the file ahead is made", || {
        life.wal.inner.state.lock().live.len() == 2
    });
    disk.hold_syncs();
    life.append(1, 100).unwrap();
    eventually("the first sync is under way", || disk.syncs_waiting() == 1);
    for id in 2..50 {
        life.append(id, 100).unwrap();
    }
    assert!(life.said.len() == 1 && life.receiver.try_recv().is_err());
    let before = disk.syncs();
    disk.release_syncs();
    life.hear_of(49);
    assert_eq!(life.order, (0..50).collect::<Vec<_>>());
    assert_eq!(disk.syncs() - before, 2);
}

#[test]
fn bytes_that_wait_are_limited_and_come_free_by_themselves() {
    let disk = SimDisk::new(1);
    let mut life = Life::sim(&disk);
    disk.hold_syncs();
    let mut taken = 0;
    let refused = loop {
        match life.append(taken, 5_000) {
            Ok(()) => taken += 1,
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, AppendRefused::Full(FullCause::Pending)));
    assert!(life.wal.pending_bytes() <= options().pending_bytes);
    assert!(life.wal.available_bytes() < 5_100);
    disk.release_syncs();
    life.hear_of(taken - 1);
    eventually("nothing waits", || life.wal.pending_bytes() == 0);
    life.append_durably(taken, 5_000);
}

#[test]
fn a_wal_on_tasks_keeps_the_same_promises() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let disk = SimDisk::new(1);
    let options = LocalWalOptions {
        workers: Workers::Tasks,
        ..options()
    };
    let durable = runtime.block_on(async {
        let life = Life::open(disk.shared(), &dir(), &options).unwrap();
        for id in 0..20 {
            life.append(id, 2_000).unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        life.wal.close(PATIENCE).await.unwrap();
        life.receiver
            .try_iter()
            .map(|(id, _)| id)
            .collect::<Vec<_>>()
    });
    assert_eq!(durable, (0..20).collect::<Vec<_>>());
    disk.power_cut();
    assert_eq!(Life::sim(&disk.restart()).recovered_ids(), durable);
}
