//! The S3 client over scripted HTTP answers: that `object_store`'s reports are read right.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::{ClientOptions, ObjectStore};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tidegate_runtime::{ManualClock, SharedClock};
use tidegate_types::TimestampMs;

use super::{key, payload, seams};
use crate::backend::{Backend, BackendTraits, s3_over};
use crate::http::WatchingConnector;
use crate::metrics::Metrics;
use crate::{FaultKind, ObjectStorage, Operation, PutOutcome, StoreError, StoreOptions};

/// One scripted answer: status, headers, body; or the kind of a broken connection.
#[derive(Debug, Clone)]
enum Answer {
    Status(u16, Vec<(&'static str, String)>, String),
    Broken(HttpErrorKind),
}

impl Answer {
    fn error(status: u16, code: &str) -> Self {
        let body = format!(
            "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>because</Message><AWSAccessKeyId>AKIASECRET</AWSAccessKeyId></Error>"
        );
        Self::Status(status, Vec::new(), body)
    }

    fn stored() -> Self {
        let headers = vec![
            ("etag", "\"e\"".to_owned()),
            ("content-length", "0".to_owned()),
        ];
        Self::Status(200, headers, String::new())
    }
}

#[derive(Debug, Clone)]
struct Server(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    answers: VecDeque<Answer>,
    /// Method, URI and the headers that matter.
    seen: Vec<(String, String, Option<String>, String)>,
}

#[async_trait]
impl HttpService for Server {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let header = |name: &str| {
            let value = request.headers().get(name)?;
            Some(value.to_str().unwrap().to_owned())
        };
        let mut state = self.0.lock();
        state.seen.push((
            request.method().to_string(),
            request.uri().to_string(),
            header("if-none-match"),
            header("x-amz-content-sha256").unwrap_or_default(),
        ));
        match state
            .answers
            .pop_front()
            .expect("more requests than answers")
        {
            Answer::Status(status, headers, body) => {
                let mut response = HttpResponse::new(HttpResponseBody::from(body));
                *response.status_mut() = status.try_into().unwrap();
                for (name, value) in headers {
                    response.headers_mut().insert(name, value.parse().unwrap());
                }
                Ok(response)
            }
            Answer::Broken(kind) => Err(HttpError::new(kind, std::io::Error::other("broken"))),
        }
    }
}

impl HttpConnector for Server {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

/// A storage over answers, at 1994-11-06T08:49:37.5Z by its own clock.
fn storage(answers: impl IntoIterator<Item = Answer>) -> (Server, ObjectStorage) {
    let server = Server(Arc::new(Mutex::new(State {
        answers: answers.into_iter().collect(),
        seen: Vec::new(),
    })));
    let clock: SharedClock = Arc::new(ManualClock::new(TimestampMs::new(784_111_777_500)));
    let metrics = Arc::new(Metrics::new(&mut Registry::default()));
    let store: Arc<dyn ObjectStore> = s3_over(WatchingConnector {
        inner: server.clone(),
        clock: Arc::clone(&clock),
        metrics: Arc::clone(&metrics),
    });
    let backend = Backend {
        store,
        traits: BackendTraits {
            bodiless_head: true,
            ..BackendTraits::IN_PROCESS
        },
        bucket: "b".to_owned(),
    };
    let options = StoreOptions {
        first_probe: Duration::from_secs(3600),
        max_probe: Duration::from_secs(3600),
        ..StoreOptions::default()
    };
    let seams = crate::StoreSeams { clock, ..seams() };
    (
        server,
        ObjectStorage::start(backend, options, &seams, metrics),
    )
}

#[tokio::test(start_paused = true)]
async fn a_create_is_one_conditional_put_in_path_style_with_an_unsigned_payload() {
    let (server, storage) = storage([Answer::stored()]);
    let put = storage.put_create(&key(0), payload("body")).await;
    assert_eq!(put.unwrap(), PutOutcome::Created);
    let seen = server.0.lock().seen.clone();
    let uri = "http://store.invalid/b/data/1/2/00000000000000000000";
    let expected = (
        "PUT".to_owned(),
        uri.to_owned(),
        Some("*".to_owned()),
        "UNSIGNED-PAYLOAD".to_owned(),
    );
    assert_eq!(seen, [expected]);
}

#[tokio::test(start_paused = true)]
async fn every_known_answer_gets_its_own_kind() {
    use FaultKind as K;
    for (status, code, kind) in [
        (404, "NoSuchBucket", K::BucketMissing),
        (404, "NoSuchKey", K::NotFound),
        (403, "AccessDenied", K::Denied),
        (403, "SomethingNew", K::Denied),
        (403, "InvalidAccessKeyId", K::CredentialsExpired),
        (403, "SignatureDoesNotMatch", K::CredentialsExpired),
        (400, "ExpiredToken", K::CredentialsExpired),
        (403, "ExpiredToken", K::CredentialsExpired),
        (401, "Unauthorized", K::CredentialsExpired),
        (403, "RequestTimeTooSkewed", K::ClockSkew),
        (503, "SlowDown", K::Throttled),
        (503, "ServiceUnavailable", K::Throttled),
        (429, "TooManyRequests", K::Throttled),
        (500, "InternalError", K::Unavailable),
        (502, "BadGateway", K::Unavailable),
        (400, "RequestTimeout", K::TimedOut),
        (400, "InvalidArgument", K::Invalid),
        (507, "XMinioStorageFull", K::Full),
    ] {
        let (_, storage) = storage(std::iter::repeat_n(Answer::error(status, code), 1000));
        let error = storage.get(&key(0)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{status} {code}: {error}");
        let text = error.to_string();
        assert!(text.contains(code) && text.contains("because"), "{text}");
        assert!(!text.contains("AKIASECRET"), "{text}");
    }
    for (broken, kind) in [
        (HttpErrorKind::Connect, K::Unreachable),
        (HttpErrorKind::Timeout, K::TimedOut),
        (HttpErrorKind::Interrupted, K::Unavailable),
    ] {
        let (_, storage) = storage(std::iter::repeat_n(Answer::Broken(broken), 1000));
        let error = storage.get(&key(0)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{broken:?}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn exists_is_412_and_a_409_is_asked_again() {
    let (_, storage1) = storage([Answer::error(412, "PreconditionFailed")]);
    let put = storage1.put_create(&key(0), payload("body")).await;
    assert_eq!(put.unwrap(), PutOutcome::AlreadyExists);
    let conflict = || Answer::error(409, "ConditionalRequestConflict");
    let missing = || Answer::error(404, "NoSuchKey");
    let answers = [
        conflict(),
        missing(),
        conflict(),
        missing(),
        Answer::stored(),
    ];
    let (server, storage) = storage(answers);
    let put = storage.put_create(&key(0), payload("body")).await;
    assert_eq!(put.unwrap(), PutOutcome::Created);
    assert_eq!(server.0.lock().seen.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_200_with_an_error_inside_isnt_believed() {
    let lie = Answer::Status(
        200,
        vec![
            ("etag", "\"e\"".to_owned()),
            ("content-length", "99".to_owned()),
        ],
        "<Error><Code>InternalError</Code><Message>because</Message></Error>".to_owned(),
    );
    let (server, storage) = storage([lie, Answer::stored()]);
    let put = storage.put_create(&key(0), payload("body")).await;
    assert_eq!(put.unwrap(), PutOutcome::Created);
    assert_eq!(server.0.lock().seen.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_head_without_body_doesnt_hide_a_missing_bucket() {
    let bare = || Answer::Status(404, Vec::new(), String::new());
    let (_, missing_key) = storage([bare(), Answer::error(404, "NoSuchKey")]);
    assert_eq!(missing_key.head(&key(0)).await.unwrap(), None);
    let (_, missing_bucket) = storage([bare(), Answer::error(404, "NoSuchBucket")]);
    let error = missing_bucket.head(&key(0)).await.unwrap_err();
    assert!(matches!(error, StoreError::BucketMissing(_)), "{error}");
    assert_eq!(error.request().operation, Operation::Head);
}

#[tokio::test(start_paused = true)]
async fn the_skew_is_measured_from_answers_and_named_in_the_error() {
    let mut skewed = Answer::error(403, "RequestTimeTooSkewed");
    if let Answer::Status(_, headers, _) = &mut skewed {
        headers.push(("date", "Sun, 06 Nov 1994 09:09:37 GMT".to_owned()));
    }
    let (_, storage) = storage(std::iter::repeat_n(skewed, 1000));
    let error = storage.get(&key(0)).await.unwrap_err();
    let StoreError::ClockSkew { skew_ms, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(skew_ms, Some(20 * 60 * 1000));
    assert!(!storage.health().borrow().is_accessible());
}

#[tokio::test(start_paused = true)]
async fn two_skewed_answers_are_ridden_out() {
    let skewed = || Answer::error(403, "RequestTimeTooSkewed");
    let (server, storage) = storage([skewed(), skewed(), Answer::stored()]);
    let put = storage.put_create(&key(0), payload("body")).await;
    assert_eq!(put.unwrap(), PutOutcome::Created);
    assert_eq!(server.0.lock().seen.len(), 3);
}
