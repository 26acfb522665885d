//! A disk that fails fails the WAL; a disk that is full makes it wait.

use super::*;

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_any_more() {
    let disk = SimDisk::new(3);
    let mut life = Life::sim(&disk);
    life.append_durably(0, 100);
    eventually("the file ahead is made", || {
        life.wal.inner.state.lock().live.len() == 2
    });
    disk.hold_syncs();
    life.append(1, 100).unwrap();
    eventually("the sync is under way", || disk.syncs_waiting() == 1);
    life.append(2, 100).unwrap();
    disk.fail_sync_in(0);
    disk.release_syncs();
    assert!(matches!(life.hear_of(1), Said::Failed));
    assert!(matches!(life.hear_of(2), Said::Failed));
    let refused = life.append(3, 100).unwrap_err();
    assert!(matches!(
        refused,
        AppendRefused::Failed(WalFailure::Disk {
            operation: "sync",
            ..
        })
    ));
    assert!(life.wal.failure().borrow().is_some());
    assert_eq!(life.wal.pending_bytes(), 0);
    life.close();
    assert_eq!(Life::sim(&disk.restart()).recovered_ids()[0], 0);
}

#[test]
fn what_recovery_hands_out_after_a_failed_sync_is_on_the_disk() {
    for seed in 0..60 {
        let disk = SimDisk::new(seed);
        let mut life = Life::sim(&disk);
        life.append_durably(0, 100);
        eventually("the file ahead is made", || {
            life.wal.inner.state.lock().live.len() == 2
        });
        disk.fail_sync_in(0);
        life.append(1, 3_000).unwrap();
        assert!(matches!(life.hear_of(1), Said::Failed));
        // The process dies, the machine doesn't: memory still shows what the disk may not have.
        let disk = disk.restart();
        let handed_out = Life::sim(&disk).recovered_ids();
        assert_eq!(handed_out, [0, 1]);
        disk.power_cut();
        assert_eq!(Life::sim(&disk.restart()).recovered_ids(), handed_out);
    }
}

#[test]
fn a_failed_write_fails_the_wal() {
    let disk = SimDisk::new(1);
    let mut life = Life::sim(&disk);
    eventually("the file ahead is made", || {
        life.wal.inner.state.lock().live.len() == 2
    });
    disk.fail_write_in(0, 50);
    life.append(1, 100).unwrap();
    assert!(matches!(life.hear_of(1), Said::Failed));
    assert!(matches!(life.append(2, 100), Err(AppendRefused::Failed(_))));
    assert_eq!(Life::sim(&disk.restart()).recovered_ids(), [0u64; 0]);
}

#[test]
fn the_capacity_refuses_before_the_last_byte_and_a_trim_heals_it() {
    let disk = SimDisk::new(1);
    let mut life = Life::sim(&disk);
    let mut id = 0;
    let refused = loop {
        match life.append(id, 3_000) {
            Ok(()) => {
                life.hear_of(id);
                id += 1;
            }
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, AppendRefused::Full(FullCause::Capacity)));
    // Three such entries fit a file, and there are eight files.
    assert_eq!(id, 24);
    assert!(life.wal.available_bytes() < 3_096);
    let used: usize = disk
        .list(&dir())
        .unwrap()
        .iter()
        .map(|name| disk.contents(&dir().join(name)).unwrap().len())
        .sum();
    assert_eq!(used as u64, options().capacity_bytes);
    let Said::Durable(position) = life.said[&6] else {
        panic!("not durable");
    };
    let read = life.wal.read(position, 3_000).unwrap();
    assert_eq!(read, bytes_of(6, 3_000));

    life.wal.trim(position);
    for more in 24..30 {
        life.append_durably(more, 3_000);
    }
    assert!(life.append(30, 3_000).is_err());
    disk.power_cut();
    let ids = Life::sim(&disk.restart()).recovered_ids();
    assert_eq!(ids, (6..30).collect::<Vec<_>>());
}

fn paused() -> (tokio::runtime::Runtime, LocalWalOptions) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let options = LocalWalOptions {
        workers: Workers::Tasks,
        ..options()
    };
    (runtime, options)
}

#[test]
fn a_full_file_system_refuses_and_heals_without_a_restart() {
    let (runtime, options) = paused();
    let disk = SimDisk::new(1);
    disk.set_capacity_bytes(2 * options.file_bytes + 100);
    runtime.block_on(async {
        let life = Life::open(disk.shared(), &dir(), &options).unwrap();
        let moment = || tokio::time::sleep(Duration::from_secs(2));
        let mut id = 0;
        let refused = loop {
            moment().await;
            match life.append(id, 3_000) {
                Ok(()) => id += 1,
                Err(refused) => break refused,
            }
        };
        assert!(matches!(
            refused,
            AppendRefused::Full(FullCause::FileSystem)
        ));
        assert_eq!(life.receiver.try_iter().count(), 6);
        assert_eq!(life.wal.inner.metrics.file_system_full.get(), 1);
        // What failed to be allocated was given back.
        assert_eq!(disk.list(&dir()).unwrap().len(), 2);

        disk.set_capacity_bytes(u64::MAX);
        moment().await;
        life.append(id, 3_000).unwrap();
        moment().await;
        assert_eq!(life.receiver.try_iter().count(), 1);
        assert_eq!(life.wal.inner.metrics.file_system_full.get(), 0);
        assert!(life.wal.failure().borrow().is_none());
    });
}

#[test]
fn a_wal_opens_on_a_full_file_system_and_serves_what_it_has() {
    let (runtime, options) = paused();
    let disk = SimDisk::new(1);
    let mut life = Life::sim(&disk);
    let position = life.append_durably(1, 100);
    life.close();
    let disk = disk.restart();
    for name in disk.list(&dir()).unwrap() {
        if name.starts_with(SPARE_PREFIX) || name.ends_with('2') {
            disk.remove(&dir().join(name)).unwrap();
        }
    }
    disk.set_capacity_bytes(options.file_bytes);
    runtime.block_on(async {
        let life = Life::open(disk.shared(), &dir(), &options).unwrap();
        assert_eq!(life.recovered_ids(), [1]);
        assert!(life.wal.read(position, 100).is_ok());
        assert_eq!(life.wal.available_bytes(), 0);
        assert!(matches!(
            life.append(2, 100),
            Err(AppendRefused::Full(FullCause::FileSystem))
        ));
        // An upload frees the only file, and with it the room to go on.
        life.wal.trim(life.wal.durable_end());
        tokio::time::sleep(Duration::from_secs(2)).await;
        life.append(3, 100).unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(life.receiver.try_iter().count(), 1);
    });
}
