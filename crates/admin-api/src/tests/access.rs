//! Who may ask what.

use super::rig::{Rig, kind};
use crate::Token;

const RIGHT: &str = "authorization: Bearer s3cret-token";

#[tokio::test]
async fn with_a_token_all_of_v1_needs_it_and_nothing_else_does() {
    let rig = Rig::with_token("s3cret-token").await;
    for path in ["/healthz", "/metrics", "/openapi.json"] {
        assert_eq!(rig.ask("GET", path).await.0, 200, "{path}");
    }
    let document = crate::openapi();
    for (path, item) in &document.paths.paths {
        if !path.starts_with("/v1/") {
            continue;
        }
        let path = path.replace(['{', '}'], "");
        let methods = [
            ("GET", &item.get),
            ("POST", &item.post),
            ("PUT", &item.put),
            ("DELETE", &item.delete),
        ];
        for (method, _) in methods.iter().filter(|(_, known)| known.is_some()) {
            let (status, head, body) = rig.ask(method, &path).await;
            assert_eq!(status, 401, "{method} {path}: {body}");
            assert!(head.contains("www-authenticate: bearer"), "{head}");
            assert!(!body.contains("s3cret"), "{body}");
        }
    }
}

#[tokio::test]
async fn only_the_very_token_opens() {
    let rig = Rig::with_token("s3cret-token").await;
    for wrong in [
        "authorization: Bearer s3cret-tokem",
        "authorization: Bearer s3cret-token-and-more",
        "authorization: Bearer s3cret",
        "authorization: Bearer ",
        "authorization: Basic s3cret-token",
        "authorization: s3cret-token",
        "authorization: é",
    ] {
        let (status, _, body) = rig.send("GET", "/v1/topics", &[wrong], "").await;
        assert_eq!(status, 401, "{wrong}: {body}");
    }
    for right in [RIGHT, "authorization: bearer  s3cret-token"] {
        assert_eq!(rig.send("GET", "/v1/topics", &[right], "").await.0, 200);
    }
}

#[test]
fn a_token_shows_itself_nowhere() {
    let token = Token::new("s3cret-token");
    assert!(!format!("{token:?}").contains("s3cret"));
    assert_eq!(Token::new(""), None);
}

#[tokio::test]
async fn a_page_of_another_origin_changes_nothing() {
    let rig = Rig::start().await;
    let body = r#"{"enabled":true}"#;
    let put = async |header: &str| {
        let (status, _, body) = rig
            .send("PUT", "/v1/cluster/balance", &[header], body)
            .await;
        (status, body)
    };
    for foreign in [
        "origin: http://evil.example",
        "origin: null",
        "origin: http://t:1",
    ] {
        let (status, body) = put(foreign).await;
        assert_eq!(status, 403, "{foreign}");
        let problem = serde_json::from_str(&body).unwrap();
        assert_eq!(kind(&problem), "cross-origin");
    }
    assert_eq!(put("origin: http://t").await.0, 200);
    // Reading changes nothing.
    let read = rig.send("GET", "/v1/topics", &["origin: http://evil.example"], "");
    assert_eq!(read.await.0, 200);
}
