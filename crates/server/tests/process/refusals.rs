//! What keeps a broker from starting: the message, the exit code, and that nothing is written.

use std::net::TcpListener;
use std::path::Path;

use crate::support::{Ended, Serving, contents, own_ports, run};

/// Runs `serve` with ports of its own.
fn serve(folder: &Path, arguments: &[&str]) -> Ended {
    let (ports, _, _) = own_ports();
    let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
    run(folder, &[], &[&["serve"], &ports[..], arguments].concat())
}

/// Exit code 1 and one line with all of this.
fn assert_refused(ended: &Ended, expected: &[&str]) {
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    for expected in expected {
        assert!(
            ended.stderr.contains(expected),
            "{expected:?} isn't in {}",
            ended.stderr
        );
    }
    let line = ended.stderr.strip_prefix("error: ").unwrap();
    assert_eq!(line.lines().count(), 1, "{line}");
}

#[test]
fn a_taken_port_is_named_with_its_flag_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for flag in ["--kafka-listen", "--admin-listen", "--internal-listen"] {
        let (mut ports, _, _) = own_ports();
        let at = ports.iter().position(|text| text == flag).unwrap();
        ports[at + 1].clone_from(&address);
        let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
        let ended = run(folder.path(), &[], &[&["serve"], &ports[..]].concat());
        assert_refused(&ended, &[&address, flag, "Address already in use"]);
        assert_eq!(
            ended.stderr.matches(&address).count(),
            1,
            "{}",
            ended.stderr
        );
        assert_eq!(contents(folder.path()), [], "{flag}");
    }
}

#[test]
fn a_data_folder_in_use_is_named_and_its_user_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let first = Serving::ready(folder.path(), &[], &[]);
    let ended = serve(folder.path(), &[]);
    assert_refused(&ended, &["./tidegate-data", "is in use by another process"]);
    assert_eq!(first.get("/readyz").unwrap().0, 200);
    assert_eq!(first.stop().0, Some(0));
}

#[test]
fn for_a_data_folder_in_use_no_store_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let first = Serving::ready(folder.path(), &[], &["--store", "first"]);
    let ended = serve(folder.path(), &["--store", "second"]);
    assert_refused(&ended, &["./tidegate-data", "is in use by another process"]);
    assert!(!folder.path().join("second").exists());
    assert_eq!(first.stop().0, Some(0));
}

#[test]
fn a_clusters_data_folder_makes_no_second_cluster_in_an_empty_store() {
    let folder = tempfile::tempdir().unwrap();
    Serving::ready(folder.path(), &[], &["--store", "first"]).stop();
    std::fs::create_dir(folder.path().join("there")).unwrap();
    let before = contents(folder.path());
    for store in ["there", "nowhere", "memory:///"] {
        let ended = serve(folder.path(), &["--store", store]);
        let named = format!("store {store} is empty");
        assert_refused(
            &ended,
            &[
                "data folder ./tidegate-data belongs to cluster ",
                &named,
                "--store",
                "--data-dir",
            ],
        );
        assert!(contents(folder.path()) == before, "something was written");
    }
    let again = Serving::ready(folder.path(), &[], &["--store", "first"]);
    assert_eq!(again.stop().0, Some(0));
}

#[test]
fn another_brokers_data_folder_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    Serving::ready(folder.path(), &[], &["--broker-id", "1"]).stop();
    let before = contents(folder.path());
    let ended = serve(folder.path(), &["--broker-id", "7"]);
    assert_refused(
        &ended,
        &[
            "./tidegate-data belongs to broker 1, not 7",
            "--broker-id 1",
            "--data-dir",
        ],
    );
    assert!(contents(folder.path()) == before, "something was written");
}

#[test]
fn another_clusters_data_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    Serving::ready(folder.path(), &[], &["--data-dir", "a", "--store", "sa"]).stop();
    Serving::ready(folder.path(), &[], &["--data-dir", "b", "--store", "sb"]).stop();
    let identity = folder.path().join("a/identity");
    let before = std::fs::read(&identity).unwrap();
    // Which cluster a store holds is known when it answers, so this one starts, and then ends.
    let ended = serve(folder.path(), &["--data-dir", "a", "--store", "sb"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    for expected in [
        "data folder a belongs to cluster ",
        "the store holds cluster ",
        "--store",
        "--data-dir",
    ] {
        assert!(
            ended.stderr.contains(expected),
            "{expected:?} isn't in {}",
            ended.stderr
        );
    }
    assert_eq!(std::fs::read(&identity).unwrap(), before);
    let again = Serving::ready(folder.path(), &[], &["--data-dir", "a", "--store", "sa"]);
    assert_eq!(again.stop().0, Some(0));
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let ended = serve(
        folder.path(),
        &["--data-dir", "file/data", "--store", "store"],
    );
    assert_refused(&ended, &["file/data"]);
    let ended = serve(folder.path(), &["--store", "file/store"]);
    assert_refused(&ended, &["file/store"]);
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "something was written: {left:?}");
}

#[test]
fn in_json_the_refusal_is_a_log_line() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = run(
        folder.path(),
        &[("TIDEGATE_LOG_FORMAT", "json")],
        &["serve", "--admin-listen", &address],
    );
    assert_eq!(ended.code, Some(1));
    let line: serde_json::Value = serde_json::from_str(ended.stderr.trim()).unwrap();
    assert_eq!(line["level"], "ERROR");
    assert!(line["cause"].as_str().unwrap().contains(&address), "{line}");
}
