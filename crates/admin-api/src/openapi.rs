//! The description of the API (OpenAPI 3.1), made from the handlers themselves.

use std::sync::OnceLock;

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Components, Info, OpenApi};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TOKEN: &str = "token";

/// The document without paths.
pub(crate) fn frame() -> OpenApi {
    let mut info = Info::new("Tidegate admin API", env!("CARGO_PKG_VERSION"));
    info.description = Some(
        "Any broker answers for the whole cluster. Errors are problem details (RFC 9457). Where a token is \
         configured, everything under /v1 needs it."
            .to_owned(),
    );
    let mut api = OpenApi::new(info, utoipa::openapi::Paths::new());
    let mut components = Components::new();
    components.add_security_scheme(
        TOKEN,
        SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)),
    );
    api.components = Some(components);
    // The empty one: where no token is configured, none is needed.
    api.security = Some(vec![
        SecurityRequirement::new(TOKEN, Vec::<String>::new()),
        SecurityRequirement::default(),
    ]);
    api
}

/// This description.
#[utoipa::path(
    get, path = "/openapi.json", tag = "process", operation_id = "openapi", security(()),
    responses((status = 200, description = "The OpenAPI document", content_type = "application/json"))
)]
pub(crate) async fn document() -> ([(HeaderName, HeaderValue); 1], &'static str) {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(|| {
        let mut text = serde_json::to_string_pretty(&crate::openapi())
            .expect("the document is made of texts, lists and maps with text keys");
        text.push('\n');
        text
    });
    ([(CONTENT_TYPE, JSON)], text)
}
