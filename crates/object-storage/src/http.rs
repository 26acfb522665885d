//! Watches the answers of HTTP stores: measures the clock's skew and doesn't believe a 200 that carries
//! an error.

use std::sync::Arc;

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use tidegate_runtime::SharedClock;

use crate::metrics::Metrics;

/// Puts a watcher around the clients that another connector makes.
pub(crate) struct WatchingConnector<C> {
    pub(crate) inner: C,
    pub(crate) clock: SharedClock,
    pub(crate) metrics: Arc<Metrics>,
}

impl<C: std::fmt::Debug> std::fmt::Debug for WatchingConnector<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WatchingConnector")
            .field(&self.inner)
            .finish()
    }
}

impl<C: HttpConnector> HttpConnector for WatchingConnector<C> {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Watcher {
            client: self.inner.connect(options)?,
            clock: Arc::clone(&self.clock),
            metrics: Arc::clone(&self.metrics),
        }))
    }
}

struct Watcher {
    client: HttpClient,
    clock: SharedClock,
    metrics: Arc<Metrics>,
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watcher").finish_non_exhaustive()
    }
}

/// A body in which a success of a plain PUT was promised.
#[derive(Debug, thiserror::Error)]
#[error("status 200 with an error inside: {0}")]
struct ErrorInSuccess(String);

#[async_trait]
impl HttpService for Watcher {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let plain_put = request.method().as_str() == "PUT"
            && request.uri().query().is_none()
            && !request.headers().contains_key("x-amz-copy-source");
        let response = self.client.execute(request).await?;
        let date = response.headers().get("date").and_then(|v| v.to_str().ok());
        if let Some(seconds) = date.and_then(parse_http_date) {
            // The header has whole seconds: half of one is the best guess for the rest.
            let store_ms = seconds.saturating_mul(1000).saturating_add(500);
            let skew = store_ms.saturating_sub(self.clock.wall().get());
            // Half a second is within what the header can tell.
            self.metrics.skew(if skew.abs() <= 600 { 0 } else { skew });
        }
        if plain_put && response.status().is_success() && has_body(&response) {
            return refuse_error_body(response).await;
        }
        Ok(response)
    }
}

fn has_body(response: &HttpResponse) -> bool {
    match response.headers().get("content-length") {
        Some(length) => length.as_bytes() != b"0",
        None => response.headers().contains_key("transfer-encoding"),
    }
}

async fn refuse_error_body(response: HttpResponse) -> Result<HttpResponse, HttpError> {
    let (parts, body) = response.into_parts();
    let bytes = body.bytes().await?;
    let text = String::from_utf8_lossy(&bytes);
    if text.contains("<Error>") {
        // "Interrupted" is the kind for an outcome that nobody knows.
        let cause = ErrorInSuccess(text.chars().take(1000).collect());
        return Err(HttpError::new(HttpErrorKind::Interrupted, cause));
    }
    Ok(HttpResponse::from_parts(
        parts,
        HttpResponseBody::from(bytes),
    ))
}

/// Seconds since 1970 of an IMF-fixdate (`Sun, 06 Nov 1994 08:49:37 GMT`, RFC 9110 section 5.6.7).
fn parse_http_date(date: &str) -> Option<i64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let mut words = date.split_once(", ")?.1.split(' ');
    let day: i64 = words.next()?.parse().ok()?;
    let month = words.next()?;
    let month = MONTHS.iter().position(|name| *name == month)? as i64 + 1;
    let year: i64 = words.next()?.parse().ok()?;
    let mut clock = words.next()?.split(':');
    let mut number = || clock.next()?.parse::<i64>().ok();
    let (hours, minutes, seconds) = (number()?, number()?, number()?);
    if words.next() != Some("GMT") || !(1..=31).contains(&day) || !(1970..10_000).contains(&year) {
        return None;
    }
    // Days from the civil calendar, counting years from March so that a leap day ends one.
    let (y, m) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    Some(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_answers_are_read_to_the_second() {
        for (text, seconds) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Thu, 29 Feb 2024 23:59:59 GMT", 1_709_251_199),
        ] {
            assert_eq!(parse_http_date(text), Some(seconds), "{text}");
        }
        for bad in [
            "",
            "Sun, 06 Nov 1994",
            "Sun, 06 Foo 1994 08:49:37 GMT",
            "1994-11-06",
        ] {
            assert_eq!(parse_http_date(bad), None, "{bad}");
        }
    }
}
