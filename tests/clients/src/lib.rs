//! Tests with real clients, and bug reports of the field as tests by raw protocol. All of it is in `tests/`:
//!
//! * `cases`: the bug reports, one module an area; each test's comment names its case.
//! * `clients`: kcat, the Java console clients, franz-go, librdkafka, and the Python clients.
//! * `franz_go`: franz-go's own suite.
