//! The admin API over HTTP.

use std::error::Error;
use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Method, RequestBuilder, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tidegate_admin_api::{ProblemBody, ProblemKind};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long an answer may take beyond what the request asks to wait.
const TIMEOUT: Duration = Duration::from_secs(40);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("{admin:?} isn't the URL of an admin API: write it as http://127.0.0.1:9640")]
    Url { admin: String },
    #[error(
        "nobody answers at {url}: {cause}. Is a broker running there? --admin URL names another one"
    )]
    Unreachable { url: Url, cause: String },
    #[error("no answer from {url}: {cause}. It may have been carried out")]
    Lost { url: Url, cause: String },
    #[error("{}", .0.detail)]
    Problem(ProblemBody),
    #[error("{url} answers with status {status}, not as Tidegate's admin API does")]
    Foreign { url: Url, status: u16 },
    #[error("the answer can't be read; is the broker's version another one? {0}")]
    Unreadable(String),
}

impl CallError {
    /// It may go by itself: nobody answers, or nobody is the controller.
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Lost { .. } => true,
            Self::Problem(problem) => {
                let passing = [
                    ProblemKind::NoController,
                    ProblemKind::Unavailable,
                    ProblemKind::OutcomeUnknown,
                    ProblemKind::BrokerUnreachable,
                ];
                passing.iter().any(|kind| problem.r#type == kind.uri())
            }
            Self::Url { .. } | Self::Foreign { .. } | Self::Unreadable(_) => false,
        }
    }
}

/// An error and its causes, but for what the URL says already.
fn causes(error: &reqwest::Error) -> String {
    let mut last: &dyn Error = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// Reads an answer.
pub fn read<T: DeserializeOwned>(answer: Value) -> Result<T, CallError> {
    serde_json::from_value(answer).map_err(|error| CallError::Unreadable(error.to_string()))
}

/// One text as one part of a path.
pub fn segment(text: &str) -> String {
    text.bytes().fold(String::new(), |mut path, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
        path
    })
}

/// One broker's admin API.
pub struct Api {
    client: Client,
    base: Url,
    token: Option<String>,
}

impl Api {
    pub fn new(admin: &str, token: Option<String>) -> Result<Self, CallError> {
        let wrong = || CallError::Url {
            admin: admin.to_owned(),
        };
        let base = Url::parse(admin).map_err(|_| wrong())?;
        if !base.has_host() {
            return Err(wrong());
        }
        let client = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .build()
            .map_err(|_| wrong())?;
        Ok(Self {
            client,
            base,
            token: token.filter(|token| !token.is_empty()),
        })
    }

    fn request(&self, method: Method, path: &str, wait: Duration) -> (Url, RequestBuilder) {
        let mut url = self.base.clone();
        let below = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{below}{path}"));
        let mut request = self.client.request(method, url.clone());
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        (url, request.timeout(TIMEOUT.saturating_add(wait)))
    }

    async fn send(url: Url, request: RequestBuilder) -> Result<Value, CallError> {
        let failed = |error: reqwest::Error| {
            let (url, cause) = (url.clone(), causes(&error));
            if error.is_connect() {
                CallError::Unreachable { url, cause }
            } else {
                CallError::Lost { url, cause }
            }
        };
        let answer = request.send().await.map_err(failed)?;
        let status = answer.status();
        let body = answer.bytes().await.map_err(failed)?;
        if status.is_success() && body.is_empty() {
            return Ok(Value::Null);
        }
        let foreign = || CallError::Foreign {
            url: url.clone(),
            status: status.as_u16(),
        };
        if !status.is_success() {
            let problem: ProblemBody = serde_json::from_slice(&body).map_err(|_| foreign())?;
            return Err(CallError::Problem(problem));
        }
        serde_json::from_slice(&body).map_err(|_| foreign())
    }

    pub async fn get(&self, path: &str) -> Result<Value, CallError> {
        let (url, request) = self.request(Method::GET, path, Duration::ZERO);
        Self::send(url, request).await
    }

    pub async fn delete(&self, path: &str) -> Result<Value, CallError> {
        let (url, request) = self.request(Method::DELETE, path, Duration::ZERO);
        Self::send(url, request).await
    }

    pub async fn post(&self, path: &str) -> Result<Value, CallError> {
        let (url, request) = self.request(Method::POST, path, Duration::ZERO);
        Self::send(url, request).await
    }

    /// `wait`: what the request itself asks to be waited for.
    pub async fn send_json(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
        wait: Duration,
    ) -> Result<Value, CallError> {
        let (url, request) = self.request(method, path, wait);
        let body =
            serde_json::to_vec(body).map_err(|error| CallError::Unreadable(error.to_string()))?;
        let request = request.header(CONTENT_TYPE, "application/json").body(body);
        Self::send(url, request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_one_part_of_the_path() {
        assert_eq!(
            segment("orders.v1_x-y"),
            "orders.v1%5Fx-y".replace("%5F", "_")
        );
        assert_eq!(segment("a/b ?#ü"), "a%2Fb%20%3F%23%C3%BC");
    }

    #[test]
    fn what_is_no_url_is_refused_with_an_example() {
        for admin in ["localhost:9640", "", "127.0.0.1:9640", "http://"] {
            let Err(error) = Api::new(admin, None) else {
                panic!("{admin} was taken")
            };
            assert!(
                error.to_string().contains("http://127.0.0.1:9640"),
                "{error}"
            );
        }
    }
}
