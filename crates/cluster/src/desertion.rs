//! Whether a process is gone, as far as its port tells.
//!
//! A time-out can't tell a dead process from one that is slow or cut off, so it has to be long. But when a connection
//! breaks and the operating system at the other end refuses the next ones, nobody listens there any more, and there is
//! nothing to wait for. This only hastens what the time-out would do. Nothing that safety rests on is decided by it:
//! whoever is taken for dead wrongly is fenced like one that was too slow.

use std::io::ErrorKind;
use std::time::Duration;

use futures::future::BoxFuture;
use tidegate_metadata::Endpoint;
use tokio::net::TcpStream;

/// When the port is looked at after a connection broke. A process that ends closes its sockets one after the other, and
/// one that is started again at once listens by the second look.
const LOOKS: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(80)];

/// How long one look may take: a refusal comes within a round trip or not at all.
const LONGEST: Duration = Duration::from_millis(300);

/// Whether nobody listens at an endpoint: the connection is refused. Silence, or whatever else, is `false`.
pub(crate) async fn is_refused(endpoint: Endpoint) -> bool {
    let connecting = TcpStream::connect((endpoint.host.as_str(), endpoint.port));
    // Cancel-safe: a connection that is dropped was never used.
    match tokio::time::timeout(LONGEST, connecting).await {
        Ok(Err(error)) => error.kind() == ErrorKind::ConnectionRefused,
        Ok(Ok(_)) | Err(_) => false,
    }
}

/// Whether every look, right after a connection broke, finds nobody.
pub(crate) async fn is_gone(look: impl Fn() -> BoxFuture<'static, bool>) -> bool {
    for pause in LOOKS {
        tokio::time::sleep(pause).await;
        if !look().await {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_port_is_refused_once_nobody_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint {
            host: "127.0.0.1".to_owned(),
            port: listener.local_addr().unwrap().port(),
        };
        assert!(!is_refused(endpoint.clone()).await);
        drop(listener);
        assert!(is_refused(endpoint).await);
    }

    #[tokio::test]
    async fn a_name_that_nobody_knows_says_nothing_of_its_process() {
        let endpoint = Endpoint {
            host: "broker.invalid".to_owned(),
            port: 9095,
        };
        assert!(!is_refused(endpoint).await);
    }
}
