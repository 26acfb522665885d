//! The admin HTTP listener: how the process does, and the cluster's administration.
//!
//! It promises:
//!
//! * It answers from the start of the process. `/healthz` answers 200 as long as the process can answer at all. It
//!   never depends on the object store, so an orchestrator doesn't kill a broker for an outage that a restart can't
//!   mend.
//! * `/readyz` answers 200 only while clients can be served; else 503 with the cause in one line.
//! * `/metrics` answers all registered metrics in the OpenMetrics text format.
//! * `/v1` is answered by any broker for the whole cluster, and needs the token if there is one. Requests that
//!   change something may be repeated.
//! * `/openapi.json` describes every path there is.
//! * Every error is a problem detail (RFC 9457), `application/problem+json`.
//!
//! It deliberately doesn't know stores and logs, nor how the controller is found: the server crate hands it what it
//! shows, and [`tidegate_cluster::view::ClusterView`] whom it asks.

mod auth;
mod extract;
mod metrics;
mod openapi;
mod problem;
mod readiness;
#[cfg(test)]
mod tests;
pub mod v1;

use std::future::Future;
use std::io;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::from_fn_with_state;
use prometheus_client::registry::Registry;
use tidegate_cluster::view::ClusterView;
use tokio::net::TcpListener;
use tokio::sync::watch;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use auth::Token;
pub use problem::{Problem, ProblemBody, ProblemKind};
pub use readiness::Readiness;

/// What the handlers show, and whom they ask.
#[derive(Clone)]
pub struct AdminState {
    /// Whether clients can be served. The sender may go away: the last value then stays.
    pub readiness: watch::Receiver<Readiness>,
    /// The metrics of the whole process, once all are registered.
    pub registry: Arc<OnceLock<Registry>>,
    /// The cluster, once this broker has joined it.
    pub cluster: watch::Receiver<Option<ClusterView>>,
    /// What clients of `/v1` must have.
    pub token: Option<Token>,
}

fn process_routes() -> OpenApiRouter<AdminState> {
    OpenApiRouter::with_openapi(openapi::frame())
        .routes(routes!(healthz))
        .routes(routes!(readiness::readyz))
        .routes(routes!(metrics::metrics))
        .routes(routes!(openapi::document))
}

/// The description of all paths.
pub fn openapi() -> OpenApi {
    process_routes().merge(v1::routes()).into_openapi()
}

/// All paths of the admin listener.
pub fn router(state: AdminState) -> Router {
    let v1 = v1::routes()
        .route_layer(from_fn_with_state(state.clone(), auth::admit))
        .layer(DefaultBodyLimit::max(extract::MAX_BODY_BYTES));
    let (router, _) = process_routes().merge(v1).split_for_parts();
    router
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

/// Whether the process lives.
#[utoipa::path(
    get, path = "/healthz", tag = "process", operation_id = "health", security(()),
    responses((status = 200, description = "It does.", body = String, content_type = "text/plain"))
)]
async fn healthz() -> &'static str {
    "alive\n"
}

async fn unknown_path(request: Request) -> Problem {
    let detail = format!(
        "there is nothing at {}; /openapi.json describes all paths",
        request.uri().path()
    );
    Problem::new(ProblemKind::UnknownPath, detail)
}

async fn unknown_method(request: Request) -> Problem {
    let detail = format!(
        "{} isn't allowed at {}",
        request.method(),
        request.uri().path()
    );
    Problem::new(ProblemKind::UnknownMethod, detail)
}
