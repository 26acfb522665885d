//! Topics, partitions and groups.

use serde_json::json;
use tidegate_cluster::queries::{
    GroupAnswer, GroupDescription, GroupMember, GroupOffset, GroupSummary, LogStatus,
};
use tidegate_types::{DurabilityMode, LeaderEpoch, Offset, PartitionId, PartitionIndex, TopicName};

use super::rig::{Rig, Says, broker, kind};

const ORDERS: &str = r#"{"name":"orders","partitions":2,"configs":{"retention.ms":"5"}}"#;

fn offset(offset: u64) -> Offset {
    Offset::new(offset).unwrap()
}

fn status(partition: PartitionId) -> LogStatus {
    LogStatus {
        partition,
        leader_epoch: LeaderEpoch::FIRST,
        durability: DurabilityMode::Local,
        log_start: offset(3),
        last_stable: offset(9),
        high_watermark: offset(10),
        log_end: offset(12),
        segments: 4,
        stored_bytes: 1_000,
        not_uploaded_bytes: 50,
    }
}

/// Lets the leader of each partition of `orders` answer for it.
fn leaders_answer(rig: &Rig) {
    let image = rig.controller.image().borrow().clone();
    for (index, partition) in (0..).zip(&image.topic("orders").unwrap().partitions) {
        let id = rig.partition("orders", index);
        let mut says = rig.peers.0.lock();
        let leader = says.entry(partition.leader.unwrap()).or_default();
        leader.logs.insert(id, status(id));
    }
}

#[tokio::test]
async fn a_topic_is_created_shown_and_deleted() {
    let rig = Rig::start().await;
    let (status, created) = rig.json("POST", "/v1/topics", ORDERS).await;
    assert_eq!(status, 201);
    let (status, listed) = rig.json("GET", "/v1/topics", "").await;
    assert_eq!(status, 200);
    assert_eq!(listed["topics"], json!([created]));
    assert_eq!(created["partitions"], 2);
    assert_eq!(created["configs"], json!({"retention.ms":"5"}));
    let (status, _, body) = rig.ask("DELETE", "/v1/topics/orders").await;
    assert_eq!((status, &*body), (204, ""));
    let (_, listed) = rig.json("GET", "/v1/topics", "").await;
    assert_eq!(listed, json!({"topics":[]}));
}

#[tokio::test]
async fn creating_the_same_topic_again_is_as_good_as_the_first_time() {
    let rig = Rig::start().await;
    let (_, created) = rig.json("POST", "/v1/topics", ORDERS).await;
    let (status, again) = rig.json("POST", "/v1/topics", ORDERS).await;
    assert_eq!((status, again), (200, created));
    for other in [
        r#"{"name":"orders","partitions":3,"configs":{"retention.ms":"5"}}"#,
        r#"{"name":"orders","partitions":2}"#,
    ] {
        let (status, problem) = rig.json("POST", "/v1/topics", other).await;
        assert_eq!((status, kind(&problem)), (409, "topic-exists"), "{other}");
    }
}

#[tokio::test]
async fn what_a_topic_cannot_be_is_told() {
    let rig = Rig::start().await;
    for (body, says) in [
        (r#"{"name":"a b"}"#, "invalid topic name"),
        (r#"{"name":"a","partitions":0}"#, "number of partitions"),
        (
            r#"{"name":"a","replication_factor":0}"#,
            "replication factor",
        ),
        (
            r#"{"name":"a","configs":{"retention.ms":"x"}}"#,
            "field configs.retention.ms",
        ),
    ] {
        let (status, problem) = rig.json("POST", "/v1/topics", body).await;
        assert_eq!((status, kind(&problem)), (400, "invalid-topic"), "{body}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(says), "{detail}");
    }
    let validated = r#"{"name":"a","validate_only":true}"#;
    let (status, topic) = rig.json("POST", "/v1/topics", validated).await;
    assert_eq!((status, &topic["partitions"]), (200, &json!(2)));
    let (_, listed) = rig.json("GET", "/v1/topics", "").await;
    assert_eq!(listed, json!({"topics":[]}));
}

#[tokio::test]
async fn the_brokers_own_topics_are_not_deleted() {
    let rig = Rig::start().await;
    rig.json("POST", "/v1/topics", r#"{"name":"__own"}"#).await;
    let (status, problem) = rig.json("DELETE", "/v1/topics/__own", "").await;
    assert_eq!((status, kind(&problem)), (400, "invalid-topic"));
    let (_, topic) = rig.json("GET", "/v1/topics/__own", "").await;
    assert_eq!(topic["internal"], true);
}

#[tokio::test]
async fn unknown_topics_and_partitions_are_problems() {
    let rig = Rig::start().await;
    rig.json("POST", "/v1/topics", ORDERS).await;
    for (method, path, expected) in [
        ("GET", "/v1/topics/order", "unknown-topic"),
        ("DELETE", "/v1/topics/order", "unknown-topic"),
        ("GET", "/v1/topics/order/partitions/0", "unknown-topic"),
        ("GET", "/v1/topics/orders/partitions/2", "unknown-partition"),
    ] {
        let (status, problem) = rig.json(method, path, "").await;
        assert_eq!((status, kind(&problem)), (404, expected), "{path}");
    }
    let (status, problem) = rig.json("GET", "/v1/topics/orders/partitions/x", "").await;
    assert_eq!((status, kind(&problem)), (400, "malformed-request"));
}

#[tokio::test]
async fn live_numbers_come_from_each_partitions_leader() {
    let rig = Rig::start().await;
    rig.json("POST", "/v1/topics", ORDERS).await;
    leaders_answer(&rig);
    let (status, topic) = rig.json("GET", "/v1/topics/orders", "").await;
    assert_eq!(status, 200);
    let partitions = topic["partition_list"].as_array().unwrap();
    assert_eq!(partitions.len(), 2);
    for one in partitions {
        assert_eq!(
            (&one["log_start"], &one["high_watermark"]),
            (&json!(3), &json!(10))
        );
    }
    let (status, one) = rig.json("GET", "/v1/topics/orders/partitions/1", "").await;
    assert_eq!(status, 200);
    for (field, value) in [
        ("partition", json!(1)),
        ("log_start", json!(3)),
        ("last_stable", json!(9)),
        ("high_watermark", json!(10)),
        ("log_end", json!(12)),
        ("segments", json!(4)),
        ("stored_bytes", json!(1000)),
        ("not_uploaded_bytes", json!(50)),
        ("durability", json!("local")),
        ("epochs", json!([{"epoch":0,"start":0}])),
        ("leader_silent", json!(null)),
    ] {
        assert_eq!(one[field], value, "{field}");
    }
}

#[tokio::test]
async fn a_silent_leader_hides_only_what_it_alone_knows() {
    let rig = Rig::start().await;
    rig.json("POST", "/v1/topics", ORDERS).await;
    let (status, one) = rig.json("GET", "/v1/topics/orders/partitions/0", "").await;
    assert_eq!(status, 200);
    assert_eq!(one["log_end"], json!(null));
    assert_eq!(one["segments"], 0);
    let cause = one["leader_silent"].as_str().unwrap();
    assert!(cause.contains("didn't answer in time"), "{cause}");
}

fn summary(group: &str) -> GroupSummary {
    GroupSummary {
        group: group.to_owned(),
        state: "Stable".to_owned(),
        protocol_type: "consumer".to_owned(),
    }
}

#[tokio::test]
async fn groups_of_all_brokers_are_listed_and_who_is_silent_is_named() {
    let rig = Rig::start().await;
    let says = |groups: &[&str]| Says {
        groups: groups.iter().map(|group| summary(group)).collect(),
        ..Says::default()
    };
    rig.peers.0.lock().insert(broker(1), says(&["b", "c"]));
    let (status, listed) = rig.json("GET", "/v1/groups", "").await;
    assert_eq!(status, 200);
    assert_eq!(listed["groups"].as_array().unwrap().len(), 2);
    assert_eq!(
        listed["incomplete"],
        json!(["broker 2: the broker didn't answer in time"])
    );
    rig.peers.0.lock().insert(broker(2), says(&["a"]));
    let (_, listed) = rig.json("GET", "/v1/groups", "").await;
    let names: Vec<_> = listed["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| {
            (
                group["group"].as_str().unwrap(),
                group["coordinator"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(names, [("a", 2), ("b", 1), ("c", 1)]);
    assert_eq!(listed["incomplete"], json!([]));
}

#[tokio::test]
async fn a_groups_lag_is_what_lies_between_its_offsets_and_the_leaders_ends() {
    let rig = Rig::start().await;
    rig.json("POST", "/v1/topics", ORDERS).await;
    leaders_answer(&rig);
    let committed = |topic: &str, partition: u32, at: u64| GroupOffset {
        topic: TopicName::new(topic).unwrap(),
        partition: PartitionIndex::new(partition).unwrap(),
        offset: offset(at),
        metadata: String::new(),
    };
    let described = GroupDescription {
        summary: summary("readers"),
        protocol: "range".to_owned(),
        generation: 3,
        members: vec![GroupMember {
            member_id: "m".to_owned(),
            instance_id: None,
            client_id: "c".to_owned(),
            client_host: "/127.0.0.1".to_owned(),
            assigned: vec![(
                TopicName::new("orders").unwrap(),
                PartitionIndex::new(1).unwrap(),
            )],
        }],
        offsets: vec![
            committed("orders", 1, 4),
            committed("orders", 0, 10),
            committed("gone", 0, 5),
        ],
    };
    let answer = Some(GroupAnswer::Described(Box::new(described)));
    rig.peers.0.lock().entry(broker(2)).or_default().described = answer;
    let (status, group) = rig.json("GET", "/v1/groups/readers", "").await;
    assert_eq!(status, 200);
    assert_eq!(
        (&group["coordinator"], &group["lag"]),
        (&json!(2), &json!(6))
    );
    assert_eq!(
        group["members"][0]["assigned"],
        json!([{"topic":"orders","partition":1}])
    );
    let offsets: Vec<_> = group["offsets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["topic"].as_str().unwrap(), one["lag"].clone()))
        .collect();
    let expected = [
        ("gone", json!(null)),
        ("orders", json!(0)),
        ("orders", json!(6)),
    ];
    assert_eq!(offsets, expected);
}

#[tokio::test]
async fn a_group_is_unknown_only_if_nobody_who_could_know_it_is_silent() {
    let rig = Rig::start().await;
    rig.peers.0.lock().insert(broker(1), Says::default());
    let (status, problem) = rig.json("GET", "/v1/groups/none", "").await;
    assert_eq!((status, kind(&problem)), (502, "broker-unreachable"));
    let unknown = Says {
        described: Some(GroupAnswer::Unknown),
        ..Says::default()
    };
    rig.peers.0.lock().insert(broker(1), unknown);
    let (status, problem) = rig.json("GET", "/v1/groups/none", "").await;
    assert_eq!((status, kind(&problem)), (404, "unknown-group"));
}
