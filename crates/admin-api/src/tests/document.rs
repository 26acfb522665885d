//! The description of the API.

use std::collections::BTreeSet;

use super::rig::{Rig, kind};
use crate::ProblemKind;

/// All that the API has, written by hand: what is added or lost is noticed.
const ROUTES: &[&str] = &[
    "DELETE /v1/brokers/{broker}/drain",
    "DELETE /v1/topics/{topic}",
    "GET /healthz",
    "GET /metrics",
    "GET /openapi.json",
    "GET /readyz",
    "GET /v1/brokers",
    "GET /v1/brokers/{broker}",
    "GET /v1/brokers/{broker}/drain",
    "GET /v1/cluster",
    "GET /v1/groups",
    "GET /v1/groups/{group}",
    "GET /v1/reassignments",
    "GET /v1/topics",
    "GET /v1/topics/{topic}",
    "GET /v1/topics/{topic}/partitions/{partition}",
    "POST /v1/brokers/{broker}/drain",
    "POST /v1/reassignments",
    "POST /v1/topics",
    "PUT /v1/cluster/balance",
];

#[tokio::test]
async fn every_route_is_described_and_everything_described_is_a_route() {
    let rig = Rig::start().await;
    let (status, document) = rig.json("GET", "/openapi.json", "").await;
    assert_eq!(status, 200);
    let mut described = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            described.insert(format!("{} {path}", method.to_uppercase()));
        }
    }
    let routes: BTreeSet<String> = ROUTES.iter().map(|route| (*route).to_owned()).collect();
    assert_eq!(described, routes);
    for route in &routes {
        let (method, path) = route.split_once(' ').unwrap();
        let path = path.replace(['{', '}'], "");
        let (status, _, body) = rig.ask(method, &path).await;
        let unrouted = body.contains("problem:unknown-path") || status == 405;
        assert!(!unrouted, "{route}: {status} {body}");
    }
}

#[tokio::test]
async fn every_reference_of_the_document_leads_somewhere() {
    let rig = Rig::start().await;
    let (_, document) = rig.json("GET", "/openapi.json", "").await;
    let text = document.to_string();
    let mut references = 0;
    for rest in text.split("\"#/").skip(1) {
        let pointer = rest.split('"').next().unwrap();
        assert!(
            document.pointer(&format!("/{pointer}")).is_some(),
            "{pointer}"
        );
        references += 1;
    }
    assert!(references > 20);
    assert!(
        document["components"]["schemas"]["ReassignRequest"]["properties"]["moves"].is_object()
    );
}

#[test]
fn problems_have_names_of_their_own() {
    let names: BTreeSet<_> = ProblemKind::NAMED.iter().map(|kind| kind.uri()).collect();
    assert_eq!(names.len(), ProblemKind::NAMED.len());
}

#[tokio::test]
async fn wrong_methods_and_paths_below_v1_are_problems() {
    let rig = Rig::start().await;
    let (status, problem) = rig.json("PATCH", "/v1/topics", "").await;
    assert_eq!((status, kind(&problem)), (405, "unknown-method"));
    let (status, problem) = rig.json("GET", "/v1/topic", "").await;
    assert_eq!((status, kind(&problem)), (404, "unknown-path"));
}
