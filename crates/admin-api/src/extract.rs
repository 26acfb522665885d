//! Reading requests, so that what can't be read is a problem that says where.

use axum::body::Bytes;
use axum::extract::path::ErrorKind;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use tidegate_cluster::view::ClusterView;

use crate::problem::ProblemKind;
use crate::{AdminState, Problem};

/// The largest body that is read.
pub(crate) const MAX_BODY_BYTES: usize = 4 << 20;

/// A JSON body. Its content type isn't looked at: `curl -d` sends another one.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<AdminState> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &AdminState) -> Result<Self, Problem> {
        let bytes =
            Bytes::from_request(request, state)
                .await
                .map_err(|rejection| match rejection.status() {
                    StatusCode::PAYLOAD_TOO_LARGE => Problem::new(
                        ProblemKind::TooLarge,
                        format!("the body is larger than {MAX_BODY_BYTES} bytes"),
                    ),
                    _ => Problem::new(ProblemKind::Malformed, rejection.body_text()),
                })?;
        read_json(&bytes).map(Self)
    }
}

fn read_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        let detail = "the request has no body: a JSON object is expected";
        return Err(Problem::new(ProblemKind::Malformed, detail));
    }
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let read = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let field = error.path().to_string();
        let cause = error.into_inner();
        let detail = if cause.is_data() && field != "." {
            format!("field {field}: {cause}")
        } else if cause.is_data() {
            cause.to_string()
        } else {
            format!("the body isn't JSON: {cause}")
        };
        Problem::new(ProblemKind::Malformed, detail)
    })?;
    reader.end().map_err(|error| {
        Problem::new(
            ProblemKind::Malformed,
            format!("the body isn't one JSON value: {error}"),
        )
    })?;
    Ok(read)
}

/// What the path names.
pub(crate) struct Named<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<AdminState> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AdminState) -> Result<Self, Problem> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(named)) => Ok(Self(named)),
            Err(rejection) => Err(Problem::new(
                ProblemKind::Malformed,
                path_fault(&rejection, parts),
            )),
        }
    }
}

fn path_fault(rejection: &PathRejection, parts: &Parts) -> String {
    let path = parts.uri.path();
    let PathRejection::FailedToDeserializePathParams(failed) = rejection else {
        return format!("{path} can't be read: {}", rejection.body_text());
    };
    match failed.kind() {
        ErrorKind::ParseErrorAtKey { key, value, .. } => {
            format!("{value:?} in {path} isn't a {key}: it must be a number from 0")
        }
        ErrorKind::ParseError { value, .. } | ErrorKind::ParseErrorAtIndex { value, .. } => {
            format!("{value:?} in {path} must be a number from 0")
        }
        other => format!("{path} can't be read: {other}"),
    }
}

/// The cluster, once this broker has joined it.
pub(crate) struct Cluster(pub(crate) ClusterView);

impl FromRequestParts<AdminState> for Cluster {
    type Rejection = Problem;

    async fn from_request_parts(_: &mut Parts, state: &AdminState) -> Result<Self, Problem> {
        let view = state.cluster.borrow().clone();
        view.map(Self).ok_or_else(|| {
            Problem::new(
                ProblemKind::NoController,
                "no controller yet: this broker hasn't joined the cluster; /readyz says what it waits for",
            )
        })
    }
}
