use std::path::Path;

use crate::support::{contents, run};

#[test]
fn a_wrong_flag_is_a_usage_error_that_names_the_right_one() {
    let folder = tempfile::tempdir().unwrap();
    let ended = run(
        folder.path(),
        &[],
        &["serve", "--kafka-lisen", "127.0.0.1:1"],
    );
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("'--kafka-lisen'"), "{}", ended.stderr);
    assert!(ended.stderr.contains("--kafka-listen"), "{}", ended.stderr);
    assert_eq!(contents(folder.path()), []);
}

#[test]
fn the_version_names_the_commit() {
    let ended = run(Path::new("."), &[], &["--version"]);
    assert_eq!(ended.code, Some(0));
    let (version, commit) = ended.stdout.trim().split_once(" (").unwrap();
    assert_eq!(version, concat!("tidegate ", env!("CARGO_PKG_VERSION")));
    let commit = commit.strip_suffix(')').unwrap();
    assert!(
        commit == "unknown"
            || (commit.len() == 12 && commit.chars().all(|c| c.is_ascii_hexdigit())),
        "{commit}"
    );
}

#[test]
fn everything_that_is_wrong_with_the_configuration_is_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("t.toml"),
        "[wal]\ncapcity_bytes = 7\nfile_bytes = \"lots\"\n",
    )
    .unwrap();
    let environment = [("TIDEGATE_UPLOAD_AGES", "1s")];
    let before = contents(folder.path());
    for command in [&["serve"][..], &["config", "check"]] {
        let arguments = [command, &["--config", "t.toml", "--store", "s4://tides"]].concat();
        let ended = run(folder.path(), &environment, &arguments);
        assert_eq!(ended.code, Some(2));
        for expected in [
            "error: t.toml, line 2: unknown key wal.capcity_bytes; did you mean wal.capacity_bytes?\n",
            "unknown environment variable TIDEGATE_UPLOAD_AGES; did you mean TIDEGATE_UPLOAD_AGE?\n",
            "flag --store: store.url = \"s4://tides\" isn't an object store: the scheme \"s4\" is unknown; use a folder",
            "t.toml, line 3: wal.file_bytes = \"lots\" isn't a size: write a whole number with a unit, as 64MiB",
        ] {
            assert!(
                ended.stderr.contains(expected),
                "{expected:?} isn't in {}",
                ended.stderr
            );
        }
        assert_eq!(ended.stdout, "");
    }
    assert_eq!(contents(folder.path()), before);
}

#[test]
fn config_check_prints_what_is_in_force_and_where_it_comes_from() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t.toml"), "durability = \"object\"\n").unwrap();
    let environment = [
        ("TIDEGATE_CONFIG", "t.toml"),
        ("TIDEGATE_STORE", "s3://tides/one"),
    ];
    let ended = run(
        folder.path(),
        &environment,
        &["config", "check", "--broker-id", "4"],
    );
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    for expected in [
        "\ndurability = \"object\"  # t.toml, line 1\n",
        "\nurl = \"s3://tides/one\"  # environment variable TIDEGATE_STORE\n",
        "\nid = 4  # flag --broker-id\n",
        "\ncapacity_bytes = \"1GiB\"\n",
    ] {
        assert!(
            ended.stdout.contains(expected),
            "{expected:?} isn't in {}",
            ended.stdout
        );
    }
}

#[test]
fn the_reference_page_is_that_of_this_code() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let ended = run(
        Path::new("."),
        &[],
        &["config", "reference", "--format", "markdown"],
    );
    let remedy = "cargo run -- config reference --format markdown > docs/configuration.md";
    assert!(
        std::fs::read_to_string(page).unwrap() == ended.stdout,
        "docs/configuration.md is stale; renew it: {remedy}"
    );
}
