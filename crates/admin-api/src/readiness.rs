//! `/readyz`.

use axum::extract::State;
use axum::http::StatusCode;

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

pub(crate) async fn readyz(State(state): State<AdminState>) -> Result<&'static str, Problem> {
    match &*state.readiness.borrow() {
        Readiness::Ready => Ok("ready\n"),
        Readiness::NotReady { cause } => {
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, cause.clone()))
        }
    }
}
