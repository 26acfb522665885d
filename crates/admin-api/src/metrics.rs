//! `/metrics`.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, StatusCode};
use prometheus_client::encoding::text::encode;

use crate::problem::ProblemKind;
use crate::{AdminState, Problem};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of the process, in the OpenMetrics text format.
#[utoipa::path(
    get, path = "/metrics", tag = "process", operation_id = "metrics", security(()),
    responses((status = 200, description = "OpenMetrics text", body = String, content_type = "application/openmetrics-text"))
)]
pub(crate) async fn metrics(
    State(state): State<AdminState>,
) -> Result<([(HeaderName, &'static str); 1], String), Problem> {
    let Some(registry) = state.registry.get() else {
        return Err(Problem::new(
            ProblemKind::Plain(StatusCode::SERVICE_UNAVAILABLE),
            "the broker is starting: it has no metrics yet",
        ));
    };
    let mut page = String::new();
    match encode(&mut page, registry) {
        Ok(()) => Ok(([(CONTENT_TYPE, OPEN_METRICS)], page)),
        Err(error) => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "metrics can't be written as text"
            );
            Err(Problem::new(
                ProblemKind::Plain(StatusCode::INTERNAL_SERVER_ERROR),
                "the metrics can't be written as text; the log has the cause",
            ))
        }
    }
}
