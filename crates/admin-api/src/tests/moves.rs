//! Moves, brokers, drains and the cluster.

use std::time::Duration;

use serde_json::json;
use tidegate_cluster::admin::{AdminError, MoveError, MoveReport};
use tidegate_metadata::ControllerUnavailable;
use tidegate_types::{LeaderEpoch, Offset, PartitionId, TopicName};

use super::rig::{Rig, broker, kind};

async fn with_orders() -> Rig {
    let rig = Rig::start().await;
    let (status, _) = rig
        .json("POST", "/v1/topics", r#"{"name":"orders","partitions":3}"#)
        .await;
    assert_eq!(status, 201);
    rig
}

fn moved(partition: PartitionId) -> MoveReport {
    MoveReport {
        partition,
        topic: TopicName::new("orders").unwrap(),
        from: broker(1),
        to: broker(2),
        leader_epoch: LeaderEpoch::new(4).unwrap(),
        sealed_end_offset: Offset::new(77).unwrap(),
        prepare_ms: 1.234_567,
        seal_ms: 2.0,
        hold_ms: 3.0,
        commit_ms: 4.0,
        total_ms: 9.5,
    }
}

#[tokio::test]
async fn every_move_has_an_answer_of_its_own_in_the_order_of_the_request() {
    let rig = with_orders().await;
    let zero = rig.partition("orders", 0);
    let answers = vec![
        Ok(moved(zero)),
        Err(MoveError::BrokerNotAlive(broker(2))),
        Err(MoveError::TimedOut),
    ];
    *rig.admin.moves.lock() = Some(Ok(answers));
    let body = r#"{"timeout_ms":1500,"moves":[
        {"topic":"nothing","partition":0,"to":2},
        {"topic":"orders","partition":0,"to":2},
        {"topic":"orders","partition":3,"to":2},
        {"topic":"orders","partition":1,"to":2},
        {"topic":"orders","partition":2,"to":2}]}"#;
    let (status, answer) = rig.json("POST", "/v1/reassignments", body).await;
    assert_eq!(status, 200);
    let moves = answer["moves"].as_array().unwrap();
    let standing: Vec<_> = moves
        .iter()
        .map(|one| {
            (
                one["status"].as_str().unwrap(),
                one["partition"].as_u64().unwrap(),
            )
        })
        .collect();
    let expected = [
        ("failed", 0),
        ("moved", 0),
        ("failed", 3),
        ("failed", 1),
        ("under_way", 2),
    ];
    assert_eq!(standing, expected);
    assert_eq!(
        moves[1],
        json!({
            "topic": "orders", "partition": 0, "to": 2, "status": "moved", "from": 1, "leader_epoch": 4,
            "sealed_end_offset": 77, "prepare_ms": 1.235, "seal_ms": 2.0, "hold_ms": 3.0, "commit_ms": 4.0,
            "total_ms": 9.5
        })
    );
    let kinds = [0, 2, 3, 4].map(|at| kind(&moves[at]["problem"]).to_owned());
    assert_eq!(
        kinds,
        [
            "unknown-topic",
            "unknown-partition",
            "broker-not-alive",
            "move-under-way"
        ]
    );
    let asked = rig.admin.asked.lock();
    let (requests, wait) = &asked[0];
    assert_eq!(requests.len(), 3);
    assert_eq!(*wait, Duration::from_millis(1_500));
}

#[tokio::test]
async fn a_move_to_where_the_partition_is_already_is_done() {
    let rig = with_orders().await;
    let there = MoveError::AlreadyThere {
        leader: broker(1),
        leader_epoch: LeaderEpoch::new(2).unwrap(),
    };
    *rig.admin.moves.lock() = Some(Ok(vec![Err(there)]));
    let body = r#"{"moves":[{"topic":"orders","partition":0,"to":1}]}"#;
    let (status, answer) = rig.json("POST", "/v1/reassignments", body).await;
    assert_eq!(status, 200);
    let one = &answer["moves"][0];
    assert_eq!(one["status"], "already_there");
    assert_eq!((&one["from"], &one["leader_epoch"]), (&json!(1), &json!(2)));
    assert!(one.get("problem").is_none());
}

#[tokio::test]
async fn what_cannot_be_read_says_which_field_and_asks_nothing() {
    let rig = with_orders().await;
    let one = |fields: &str| format!(r#"{{"moves":[{{"topic":"orders",{fields}}}]}}"#);
    for (body, says) in [
        (one(r#""partition":0,"to":"x""#), "field moves[0].to: "),
        (
            one(r#""partition":-1,"to":1"#),
            "field moves[0].partition: ",
        ),
        (one(r#""partition":0"#), "missing field `to`"),
        (
            one(r#""partition":0,"to":1,"two":1"#),
            "unknown field `two`",
        ),
        (r#"{"moves":[]}"#.to_owned(), "field moves: it is empty"),
        (r#"{"moves":"#.to_owned(), "isn't JSON"),
        (r#"{"moves":[]} {}"#.to_owned(), "isn't one JSON value"),
        (String::new(), "no body"),
        (
            r#"{"timeout_ms":600001,"moves":[{"topic":"orders","partition":0,"to":1}]}"#.to_owned(),
            "field timeout_ms: ",
        ),
        (
            r#"{"moves":[{"topic":"t","partition":0,"to":1},{"topic":"t","partition":0,"to":2}]}"#
                .to_owned(),
            "field moves[1]: ",
        ),
    ] {
        let (status, problem) = rig.json("POST", "/v1/reassignments", &body).await;
        assert_eq!(
            (status, kind(&problem)),
            (400, "malformed-request"),
            "{body}"
        );
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(says), "{body}: {detail}");
    }
    let large = " ".repeat(5 << 20);
    let (status, problem) = rig.json("POST", "/v1/reassignments", &large).await;
    assert_eq!((status, kind(&problem)), (413, "request-too-large"));
    assert!(rig.admin.asked.lock().is_empty());
}

#[tokio::test]
async fn a_controller_that_does_not_answer_is_told_apart_from_one_that_may_have_acted() {
    let rig = with_orders().await;
    let body = r#"{"moves":[{"topic":"orders","partition":0,"to":1}]}"#;
    for (error, expected) in [
        (ControllerUnavailable::NoController, (503, "no-controller")),
        (ControllerUnavailable::Busy, (503, "unavailable")),
        (
            ControllerUnavailable::OutcomeUnknown,
            (504, "outcome-unknown"),
        ),
        (ControllerUnavailable::Deposed, (504, "outcome-unknown")),
    ] {
        *rig.admin.moves.lock() = Some(Err(AdminError::Unavailable(error)));
        let (status, problem) = rig.json("POST", "/v1/reassignments", body).await;
        assert_eq!((status, kind(&problem)), expected);
    }
    let (status, problem) = rig.json("GET", "/v1/reassignments", "").await;
    assert_eq!((status, kind(&problem)), (504, "outcome-unknown"));
}

#[tokio::test]
async fn drains_can_be_repeated_and_taken_back() {
    let rig = Rig::start().await;
    for _ in 0..2 {
        let (status, drain) = rig.json("POST", "/v1/brokers/2/drain", "").await;
        assert_eq!(status, 200);
        assert_eq!(
            drain,
            json!({"broker":2,"draining":true,"done":true,"led_partitions":0,"moving":0,"blocked":null})
        );
    }
    let (_, drain) = rig.json("GET", "/v1/brokers/2/drain", "").await;
    assert_eq!(drain["done"], true);
    for _ in 0..2 {
        let (status, drain) = rig.json("DELETE", "/v1/brokers/2/drain", "").await;
        assert_eq!((status, &drain["draining"]), (200, &json!(false)));
    }
}

#[tokio::test]
async fn an_unknown_broker_is_a_problem_everywhere() {
    let rig = Rig::start().await;
    for (method, path) in [
        ("GET", "/v1/brokers/9"),
        ("GET", "/v1/brokers/9/drain"),
        ("POST", "/v1/brokers/9/drain"),
        ("DELETE", "/v1/brokers/9/drain"),
        ("POST", "/v1/brokers/4294967295/drain"),
    ] {
        let (status, problem) = rig.json(method, path, "").await;
        assert_eq!((status, kind(&problem)), (404, "unknown-broker"), "{path}");
    }
    let (status, problem) = rig.json("GET", "/v1/brokers/one", "").await;
    assert_eq!((status, kind(&problem)), (400, "malformed-request"));
    assert!(problem["detail"].as_str().unwrap().contains("\"one\""));
}

#[tokio::test]
async fn cluster_and_brokers_are_as_the_controller_sees_them() {
    let rig = Rig::start().await;
    let (status, cluster) = rig.json("GET", "/v1/cluster", "").await;
    assert_eq!(status, 200);
    assert_eq!(cluster["controller_epoch"], 4);
    assert_eq!(cluster["brokers"][1]["alive"], false);
    let (_, brokers) = rig.json("GET", "/v1/brokers", "").await;
    assert_eq!(brokers["brokers"], cluster["brokers"]);
    let (_, one) = rig.json("GET", "/v1/brokers/1", "").await;
    assert_eq!(one, cluster["brokers"][0]);
    assert_eq!(
        (&one["controller"], &one["kafka"]),
        (&json!(true), &json!("127.0.0.1:9092"))
    );
    let body = r#"{"enabled":true}"#;
    let (status, now) = rig.json("PUT", "/v1/cluster/balance", body).await;
    assert_eq!((status, now), (200, json!({"enabled":true})));
    let (_, cluster) = rig.json("GET", "/v1/cluster", "").await;
    assert_eq!(cluster["balance"], true);
}
