//! The admin HTTP listener: whether the process lives, whether it is ready, and its metrics.
//!
//! It promises:
//!
//! * `/healthz` answers 200 as long as the process can answer at all. It never depends on the object store,
//!   so an orchestrator doesn't kill a broker for an outage that a restart can't mend.
//! * `/readyz` answers 200 only while clients can be served; else 503 with the cause in one line.
//! * `/metrics` answers all registered metrics in the OpenMetrics text format.
//! * Every error is a problem detail (RFC 9457), `application/problem+json`.
//!
//! It deliberately doesn't know brokers, partitions and stores: the server crate hands it what it shows.

mod metrics;
mod problem;
mod readiness;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::routing::get;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub use problem::Problem;
pub use readiness::Readiness;

/// What the handlers show.
#[derive(Clone)]
pub struct AdminState {
    /// Whether clients can be served. The sender may go away: the last value then stays.
    pub readiness: watch::Receiver<Readiness>,
    /// The metrics of the whole process.
    pub registry: Arc<Registry>,
}

/// All paths of the admin listener.
pub fn router(state: AdminState) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readiness::readyz))
        .route("/metrics", get(metrics::metrics))
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .with_state(state)
}

/// Serves the admin API until `stop` resolves, then finishes the requests under way.
///
/// A client may keep its request open for as long as it likes, so the caller bounds the wait.
///
/// # Errors
/// Those of the listener. A connection's own errors end only that connection.
pub async fn serve(
    listener: TcpListener,
    state: AdminState,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(listener, router(state))
        .with_graceful_shutdown(stop)
        .await
}

async fn healthz() -> &'static str {
    "alive\n"
}

async fn unknown_path(request: Request) -> Problem {
    let detail = format!(
        "there is nothing at {}; there are /healthz, /readyz and /metrics",
        request.uri().path()
    );
    Problem::new(StatusCode::NOT_FOUND, detail)
}

async fn unknown_method(request: Request) -> Problem {
    let detail = format!(
        "{} isn't allowed at {}",
        request.method(),
        request.uri().path()
    );
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}
