//! Who may use `/v1`: whoever has the token, if there is one, and no page of another origin in a browser.

use std::fmt;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::problem::ProblemKind;
use crate::{AdminState, Problem};

/// A bearer token (RFC 6750). It shows itself nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Arc<str>);

impl Token {
    /// `None` for an empty text: nothing protects the API then.
    pub fn new(token: &str) -> Option<Self> {
        (!token.is_empty()).then(|| Self(token.into()))
    }

    /// Whether a client has this token. Takes as long for a token that is nearly right as for any of its length.
    fn matches(&self, given: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let differing = own
            .iter()
            .zip(given)
            .fold(0, |differing, (a, b)| differing | (a ^ b));
        own.len() == given.len() && std::hint::black_box(differing) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

pub(crate) async fn admit(
    State(state): State<AdminState>,
    request: Request,
    next: Next,
) -> Response {
    if let Err(problem) = check(&state, request.method(), request.headers()) {
        return problem.into_response();
    }
    next.run(request).await
}

fn check(state: &AdminState, method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    if let Some(token) = &state.token {
        let given = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        let bearer = given.and_then(bearer);
        if !bearer.is_some_and(|given| token.matches(given)) {
            let detail = if given.is_some() {
                "the bearer token is wrong"
            } else {
                "send the token as \"Authorization: Bearer TOKEN\""
            };
            return Err(Problem::new(ProblemKind::Unauthorized, detail));
        }
    }
    if !method.is_safe() && foreign_origin(headers) {
        return Err(Problem::new(
            ProblemKind::CrossOrigin,
            "a page of another origin may change nothing here",
        ));
    }
    Ok(())
}

fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = authorization.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| token.trim_ascii())
}

/// Browsers name the origin of a page that sends a request which changes something; tools don't.
fn foreign_origin(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else {
        return false;
    };
    let host = headers.get(HOST).map(|host| host.as_bytes());
    let origin = origin.as_bytes();
    let authority = origin
        .strip_prefix(b"http://")
        .or_else(|| origin.strip_prefix(b"https://"));
    authority.is_none() || authority != host
}
