use tidegate_types::DurabilityMode::{Local, Object};

use super::rig::*;
use crate::log::Isolation;
use crate::{OpenError, OpenRequest};

#[test]
fn the_log_start_moves_forward_only_and_drops_segments() {
    for mode in [Local, Object] {
        paused(async {
            let mut rig = Rig::new().await;
            let id = rig.one(mode).await;
            for _ in 0..4 {
                fill(&rig.log(id), 5, 100).await;
                rig.all_uploaded().await;
            }
            let before = rig.log(id).segments().len();
            rig.delete_records(id, 12).await;
            rig.delete_records(id, 7).await;
            assert!(rig.log(id).segments().len() < before);
            assert!(rig.log(id).segments()[0].range.contains(offset(12)));
            for _ in 0..2 {
                assert_eq!(rig.log(id).watermarks().unwrap().log_start, offset(12));
                assert_eq!(rig.all_tags(id).await, numbered(12..20));
                rig.restart(Crash::Power).await;
            }
        });
    }
}

#[test]
fn records_deleted_before_their_upload_stay_deleted_and_the_rest_is_there() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Local).await;
        fill(&rig.log(id), 5, 100).await;
        rig.all_uploaded().await;
        fill(&rig.log(id), 10, 100).await;
        // Beyond the uploaded end, in the middle and at the end of what waits.
        for (below, total) in [(9, 15), (20, 20)] {
            let log = rig.log(id);
            fill(&log, total - log.watermarks().unwrap().log_end.get(), 100).await;
            rig.delete_records(id, below).await;
            rig.restart(Crash::Power).await;
            let watermarks = rig.log(id).watermarks().unwrap();
            assert_eq!(watermarks.log_start, offset(below));
            assert_eq!(watermarks.high_watermark, offset(total));
            assert_eq!(rig.all_tags(id).await, numbered(below..total));
        }
        rig.all_uploaded().await;
        // Nobody will ever read it, so it isn't in the map.
        assert_eq!(rig.log(id).segments(), []);
        fill(&rig.log(id), 3, 100).await;
        rig.restart(Crash::Power).await;
        assert_eq!(rig.all_tags(id).await, numbered(20..23));
        rig.all_uploaded().await;
        assert_eq!(rig.all_tags(id).await, numbered(20..23));
    });
}

#[test]
fn a_log_is_not_opened_without_records_that_leadership_was_taken_over() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Local).await;
        fill(&rig.log(id), 10, 100).await;
        rig.restart(Crash::Power).await;
        let state = rig.states(&[id]).await.remove(0);
        let (topic, durability) = rig.modes[&id.topic].clone();
        // As a second try would that has no longer what recovery found.
        let request = OpenRequest {
            topic,
            durability,
            state,
            recovered: Vec::new(),
        };
        let opened = rig.life().opener.open(request).await;
        assert!(matches!(opened, Err(OpenError::Missing { .. })));
    });
}

#[test]
fn many_restarts_with_appends_between_them_lose_nothing() {
    for seed in 0..6 {
        paused(async {
            let mut rig = Rig::with(RigOptions {
                seed,
                ..RigOptions::default()
            })
            .await;
            let ids = rig.topic(Local, 2).await;
            for round in 1..12 {
                fill(&rig.log(ids[0]), 3, 300).await;
                if round % 4 == 0 {
                    rig.all_uploaded().await;
                }
                if round % 3 == 0 {
                    fill(&rig.log(ids[1]), 1, 300).await;
                }
                let crash = if round % 2 == 0 {
                    Crash::Process
                } else {
                    Crash::Power
                };
                rig.restart(crash).await;
                assert_eq!(rig.all_tags(ids[0]).await, numbered(0..round * 3));
                assert_eq!(rig.all_tags(ids[1]).await, numbered(0..round / 3));
            }
        });
    }
}

#[test]
fn each_leader_epoch_begins_where_the_one_before_ended() {
    paused(async {
        let mut rig = Rig::new().await;
        let id = rig.one(Local).await;
        let mut epochs = Vec::new();
        for _ in 0..3 {
            epochs.push(rig.log(id).leader_epoch());
            fill(&rig.log(id), 4, 100).await;
            rig.restart(Crash::Power).await;
        }
        let log = rig.log(id);
        for (round, epoch) in (1u64..).zip(&epochs) {
            let found = log.epoch_end(*epoch).unwrap();
            assert_eq!(found, Some((*epoch, offset(round * 4))));
            assert_eq!(log.epoch_at(offset(round * 4 - 1)), Some(*epoch));
        }
        let tags = rig.read_tags(id, 0, 10, Isolation::ReadUncommitted).await;
        assert_eq!(tags, numbered(0..12));
    });
}
