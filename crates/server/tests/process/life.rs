//! A broker's life from start to stop.

use std::net::TcpStream;

use rustix::process::Signal;

use crate::support::{Serving, free_port};

#[test]
fn either_signal_stops_in_order_and_the_next_start_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    for signal in [Signal::TERM, Signal::INT] {
        let serving = Serving::ready(folder.path(), &[], &[]);
        TcpStream::connect(&serving.kafka).unwrap();
        serving.signal(signal);
        let (code, log) = serving.end();
        assert_eq!(code, Some(0), "{log}");
        assert!(log.lines().last().unwrap().ends_with("stopped"), "{log}");
        assert!(!log.contains("ERROR") && !log.contains("WARN"), "{log}");
    }
}

#[test]
fn the_start_line_says_what_is_served_and_where() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::ready(
        folder.path(),
        &[],
        &["--durability", "object", "--broker-id", "5"],
    );
    let (kafka, admin) = (serving.kafka.clone(), serving.admin.clone());
    let (_, log) = serving.stop();
    let line = log.lines().next().unwrap();
    for expected in [
        "INFO",
        &format!("kafka={kafka}"),
        &format!("admin=http://{admin}"),
        "store=./tidegate-data/store",
        "durability=object",
        "broker=5",
        "data_dir=./tidegate-data",
        env!("CARGO_PKG_VERSION"),
    ] {
        assert!(line.contains(expected), "{expected:?} isn't in {line}");
    }
    assert!(!log.contains('\u{1b}'), "colours in a file: {log}");
    let identity = std::fs::read_to_string(folder.path().join("tidegate-data/identity")).unwrap();
    let cluster = identity
        .lines()
        .find_map(|line| line.strip_prefix("cluster = "))
        .unwrap();
    let ready = format!("cluster_id={cluster}");
    assert!(
        log.lines()
            .any(|line| line.contains(" ready ") && line.contains(&ready)),
        "{log}"
    );
}

#[test]
fn with_json_every_line_is_an_object() {
    let folder = tempfile::tempdir().unwrap();
    let (_, log) = Serving::ready(folder.path(), &[], &["--log-format", "json"]).stop();
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(
            line["timestamp"].is_string()
                && line["level"].is_string()
                && line["message"].is_string(),
            "{line}"
        );
    }
}

#[test]
fn without_its_store_the_process_lives_and_says_why_it_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = format!("http://127.0.0.1:{}", free_port());
    let environment = [
        ("AWS_ACCESS_KEY_ID", "k"),
        ("AWS_SECRET_ACCESS_KEY", "not-to-be-logged"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
    ];
    let mut serving = Serving::start(folder.path(), &environment, &["--store", "s3://tides/one"]);
    serving.wait("the cause", |serving| {
        serving
            .get("/readyz")
            .is_some_and(|(status, body)| status == 503 && body.contains("tides: "))
    });
    assert_eq!(serving.get("/healthz").unwrap().0, 200);
    let (code, log) = serving.stop();
    assert_eq!(code, Some(0), "{log}");
    let errors: Vec<&str> = log.lines().filter(|line| line.contains("ERROR")).collect();
    assert_eq!(errors.len(), 1, "one clear message: {log}");
    assert!(
        errors[0].contains("bucket=tides") && errors[0].contains("remedy="),
        "{log}"
    );
    assert!(!log.contains("not-to-be-logged"));
}

#[test]
fn metrics_name_the_build() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::ready(folder.path(), &[], &[]);
    let (status, page) = serving.get("/metrics").unwrap();
    assert_eq!(status, 200);
    assert!(
        page.contains(concat!(
            "tidegate_build_info{version=\"",
            env!("CARGO_PKG_VERSION"),
            "\""
        )),
        "{page}"
    );
}

#[test]
fn a_second_signal_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::ready(folder.path(), &[], &[]);
    // Both are there when it goes on, so the second comes before the ordered stop is done.
    for signal in [Signal::STOP, Signal::TERM, Signal::INT, Signal::CONT] {
        serving.signal(signal);
    }
    let (code, log) = serving.end();
    assert_eq!(code, Some(130), "{log}");
    assert!(
        log.lines().last().unwrap().contains("told again to stop"),
        "{log}"
    );
}
