//! `/readyz`.

use axum::extract::State;
use axum::http::StatusCode;

use crate::problem::{ProblemBody, ProblemKind};
use crate::{AdminState, Problem};

/// Whether clients can be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// They can.
    Ready,
    /// They can't, at present.
    NotReady {
        /// Why, in one line for an operator.
        cause: String,
    },
}

/// Whether clients can be served.
#[utoipa::path(
    get, path = "/readyz", tag = "process", operation_id = "ready", security(()),
    responses(
        (status = 200, description = "They can.", body = String, content_type = "text/plain"),
        (status = 503, description = "Not at present.", body = ProblemBody, content_type = "application/problem+json")
    )
)]
pub(crate) async fn readyz(State(state): State<AdminState>) -> Result<&'static str, Problem> {
    match &*state.readiness.borrow() {
        Readiness::Ready => Ok("ready\n"),
        Readiness::NotReady { cause } => Err(Problem::new(
            ProblemKind::Plain(StatusCode::SERVICE_UNAVAILABLE),
            cause.clone(),
        )),
    }
}
