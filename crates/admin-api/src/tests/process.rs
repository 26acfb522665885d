//! Whether the process lives and is ready, its metrics, and what is no path at all.

use super::rig::Rig;
use crate::Readiness;

#[tokio::test]
async fn the_process_is_alive_also_while_it_is_not_ready() {
    let admin = Rig::start().await;
    assert_eq!(admin.ask("GET", "/healthz").await.0, 200);
    assert_eq!(admin.ask("GET", "/readyz").await.0, 503);
}

#[tokio::test]
async fn readiness_follows_the_broker_and_says_the_cause() {
    let admin = Rig::start().await;
    let (status, head, body) = admin.ask("GET", "/readyz").await;
    assert_eq!(status, 503);
    assert!(
        head.contains("content-type: application/problem+json"),
        "{head}"
    );
    assert_eq!(
        body,
        r#"{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"the WAL is being read"}"#
    );
    admin.readiness.send_replace(Readiness::Ready);
    assert_eq!(admin.ask("GET", "/readyz").await.0, 200);
    let cause = "bucket \"tides\" is missing".to_owned();
    admin.readiness.send_replace(Readiness::NotReady { cause });
    let (status, _, body) = admin.ask("GET", "/readyz").await;
    assert_eq!(status, 503);
    assert!(body.contains(r#"bucket \"tides\" is missing"#), "{body}");
}

#[tokio::test]
async fn metrics_are_open_metrics() {
    let admin = Rig::start().await;
    let (status, head, body) = admin.ask("GET", "/metrics").await;
    assert_eq!(status, 200);
    assert!(
        head.contains("content-type: application/openmetrics-text; version=1.0.0"),
        "{head}"
    );
    assert!(body.contains("fetched_bytes_total 7\n"), "{body}");
    assert!(body.ends_with("# EOF\n"), "{body}");
}

#[tokio::test]
async fn unknown_paths_and_methods_are_problems() {
    let admin = Rig::start().await;
    let (status, head, body) = admin.ask("GET", "/metric").await;
    assert_eq!(status, 404);
    assert!(head.contains("application/problem+json"), "{head}");
    assert!(
        body.contains("nothing at /metric; /openapi.json describes"),
        "{body}"
    );
    let (status, head, body) = admin.ask("POST", "/readyz").await;
    assert_eq!(status, 405);
    assert!(head.contains("application/problem+json"), "{head}");
    assert!(body.contains("POST isn't allowed at /readyz"), "{body}");
}

#[tokio::test]
async fn serving_ends_when_it_is_told_to() {
    let mut admin = Rig::start().await;
    admin.stop.take().unwrap().send(()).unwrap();
    admin.serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn it_answers_before_anything_is_registered_or_joined() {
    let admin = Rig::starting().await;
    assert_eq!(admin.ask("GET", "/healthz").await.0, 200);
    assert_eq!(admin.ask("GET", "/metrics").await.0, 503);
    for path in ["/v1/cluster", "/v1/topics", "/v1/groups", "/v1/brokers/1"] {
        let (status, head, body) = admin.ask("GET", path).await;
        assert_eq!(status, 503, "{path}");
        assert!(head.contains("retry-after: 1"), "{head}");
        assert!(
            body.contains("urn:tidegate:problem:no-controller"),
            "{body}"
        );
    }
}
