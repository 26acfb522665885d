//! `/metrics`.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, StatusCode};
use prometheus_client::encoding::text::encode;

use crate::{AdminState, Problem};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(crate) async fn metrics(
    State(state): State<AdminState>,
) -> Result<([(HeaderName, &'static str); 1], String), Problem> {
    let mut page = String::new();
    match encode(&mut page, &state.registry) {
        Ok(()) => Ok(([(CONTENT_TYPE, OPEN_METRICS)], page)),
        Err(error) => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "metrics can't be written as text"
            );
            Err(Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the metrics can't be written as text; the log has the cause",
            ))
        }
    }
}
