use std::sync::{Arc, OnceLock};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

use crate::{AdminState, Readiness, serve};

/// An admin listener on a port of its own.
struct Admin {
    address: std::net::SocketAddr,
    readiness: watch::Sender<Readiness>,
    stop: Option<oneshot::Sender<()>>,
    serving: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Admin {
    async fn start() -> Self {
        let mut registry = Registry::default();
        let fetched = Counter::<u64>::default();
        registry.register("fetched_bytes", "Bytes fetched", fetched.clone());
        fetched.inc_by(7);
        let starting = Readiness::NotReady {
            cause: "the WAL is being read".into(),
        };
        let (readiness, shown) = watch::channel(starting);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = AdminState {
            readiness: shown,
            registry: Arc::new(OnceLock::from(registry)),
            cluster: watch::channel(None).1,
            token: None,
        };
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(serve(listener, state, async move {
            stopped.await.ok();
        }));
        Self {
            address,
            readiness,
            stop: Some(stop),
            serving,
        }
    }

    /// Status, headers and body of the answer.
    async fn ask(&self, method: &str, path: &str) -> (u16, String, String) {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        let request = format!("{method} {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_lowercase(), body.to_owned())
    }
}

#[tokio::test]
async fn the_process_is_alive_also_while_it_is_not_ready() {
    let admin = Admin::start().await;
    assert_eq!(admin.ask("GET", "/healthz").await.0, 200);
    assert_eq!(admin.ask("GET", "/readyz").await.0, 503);
}

#[tokio::test]
async fn readiness_follows_the_broker_and_says_the_cause() {
    let admin = Admin::start().await;
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
    let admin = Admin::start().await;
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
    let admin = Admin::start().await;
    let (status, head, body) = admin.ask("GET", "/metric").await;
    assert_eq!(status, 404);
    assert!(head.contains("application/problem+json"), "{head}");
    assert!(body.contains("nothing at /metric;"), "{body}");
    let (status, head, body) = admin.ask("POST", "/readyz").await;
    assert_eq!(status, 405);
    assert!(head.contains("application/problem+json"), "{head}");
    assert!(body.contains("POST isn't allowed at /readyz"), "{body}");
}

#[tokio::test]
async fn serving_ends_when_it_is_told_to() {
    let mut admin = Admin::start().await;
    admin.stop.take().unwrap().send(()).unwrap();
    admin.serving.await.unwrap().unwrap();
}
