//! What brokers are asked about themselves.

use super::rig::no_tails;
use super::rig::{Rig, quick};
use super::samples::*;
use crate::orders::OrderError;
use crate::queries::*;
use crate::rpc::ServerOptions;

fn status() -> LogStatus {
    LogStatus {
        partition: partition(3),
        leader_epoch: epoch(7),
        durability: tidegate_types::DurabilityMode::Object,
        log_start: offset(1),
        last_stable: offset(8),
        high_watermark: offset(9),
        log_end: offset(10),
        segments: 2,
        stored_bytes: 1 << 40,
        not_uploaded_bytes: 77,
    }
}

fn summary() -> GroupSummary {
    GroupSummary {
        group: "readers".to_owned(),
        state: "Stable".to_owned(),
        protocol_type: "consumer".to_owned(),
    }
}

fn description() -> GroupDescription {
    GroupDescription {
        summary: summary(),
        protocol: "range".to_owned(),
        generation: 4,
        members: vec![GroupMember {
            member_id: "m-1".to_owned(),
            instance_id: Some("i".to_owned()),
            client_id: "c".to_owned(),
            client_host: "/127.0.0.1".to_owned(),
            assigned: vec![(name("orders"), partition(0).index)],
        }],
        offsets: vec![GroupOffset {
            topic: name("orders"),
            partition: partition(0).index,
            offset: offset(12),
            metadata: "note".to_owned(),
        }],
    }
}

#[tokio::test]
async fn every_question_carries_its_request_and_its_answers() {
    let rig = Rig::start().await;
    let (fake, remote) = (&rig.queries, rig.remote_queries());
    let wanted = vec![partition(3), partition(4)];
    let answer = Ok(vec![Some(status()), None]);
    fake.log_statuses.answers(answer.clone());
    assert_eq!(remote.log_statuses(wanted.clone()).await, answer);
    assert_eq!(fake.log_statuses.last(), wanted);

    let answer = Ok(GroupList {
        groups: vec![summary()],
        incomplete: Some("loading".to_owned()),
    });
    fake.list_groups.answers(answer.clone());
    assert_eq!(remote.list_groups(vec!["Stable".to_owned()]).await, answer);
    assert_eq!(fake.list_groups.last(), ["Stable"]);

    let answers = [
        GroupAnswer::Described(Box::new(description())),
        GroupAnswer::Unknown,
        GroupAnswer::NotHere,
        GroupAnswer::Unavailable {
            cause: "loading".to_owned(),
        },
    ];
    for answer in answers {
        fake.describe_group.answers(Ok(answer.clone()));
        assert_eq!(
            remote.describe_group("readers".to_owned()).await,
            Ok(answer)
        );
        assert_eq!(fake.describe_group.last(), "readers");
    }
    assert_eq!(fake.uncalled(), Vec::<&str>::new());
}

#[tokio::test]
async fn a_broker_that_is_gone_is_unreachable_and_nothing_else() {
    let rig = Rig::with(no_tails(), ServerOptions::default(), quick()).await;
    rig.local.send_replace(None);
    let answer = rig.remote_queries().list_groups(Vec::new()).await;
    assert!(
        matches!(answer, Err(OrderError::Unreachable(_))),
        "{answer:?}"
    );
}
