use std::collections::BTreeSet;
use std::time::Duration;

use super::layers::Source;
use super::*;

fn topics() -> TopicConfigs {
    let config = |name, default, kind: &str| TopicConfig {
        name,
        default,
        kind: kind.to_owned(),
        bare: kind == "number",
        doc: "Something.",
    };
    TopicConfigs {
        all: vec![
            config("cleanup.policy", "delete", "list"),
            config("max.message.bytes", "1048588", "number"),
            config("retention.ms", "604800000", "number"),
        ],
        check: |name, value| match (name, value.parse::<i64>()) {
            ("cleanup.policy", _) | (_, Ok(_)) => Ok(()),
            _ => Err("isn't a number".to_owned()),
        },
    }
}

fn with_flags(flags: &[(&'static str, &str)]) -> Inputs {
    Inputs {
        flags: flags
            .iter()
            .map(|(flag, text)| (*flag, (*text).to_owned()))
            .collect(),
        ..Inputs::default()
    }
}

fn with_variables(variables: &[(&str, &str)]) -> Inputs {
    let variables = variables
        .iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    Inputs {
        variables: variables.collect(),
        ..Inputs::default()
    }
}

/// Loads a file of this text; in errors it is called `t.toml`.
fn load_text(text: &str) -> Result<Config, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.toml");
    std::fs::write(&path, text).unwrap();
    load(
        &topics(),
        Inputs {
            file: Some(path.clone()),
            ..Inputs::default()
        },
    )
    .map_err(|error| error.to_string().replace(path.to_str().unwrap(), "t.toml"))
}

fn refusal(inputs: Inputs) -> String {
    load(&topics(), inputs).unwrap_err().to_string()
}

#[test]
fn defaults_can_be_used_and_are_shown_as_they_are_written() {
    let config = load(&topics(), Inputs::default()).unwrap();
    for key in key_table(&topics()).keys() {
        assert!(
            !key.doc.trim().is_empty(),
            "{} has no documentation",
            key.name
        );
        let effective = &config.effective[&*key.name];
        assert_eq!(effective.source, Source::Default, "{}", key.name);
        if key.default != "auto" {
            assert_eq!(
                effective.text, key.default,
                "{}: the default isn't written as it is shown",
                key.name
            );
        }
    }
    assert_eq!(config.effective["store.url"].text, "./tidegate-data/store");
    assert_eq!(config.effective["kafka.advertise"].text, "127.0.0.1:9092");
    assert_eq!(config.effective["memory.tail_bytes"].text, "80MiB");
    assert!(config.topic_defaults.is_empty());
}

#[test]
fn bounds_of_ranges_are_values_of_their_keys() {
    // A bound that can't be read would silently be none.
    for key in key_table(&topics()).keys() {
        let Some((least, most)) = key.range else {
            continue;
        };
        for bound in [least, most] {
            let readable = match &*key.kind {
                "size" => ByteSize::parse(bound).is_ok(),
                "duration" => Duration::parse(bound).is_ok(),
                _ => bound.parse::<u32>().is_ok(),
            };
            assert!(readable, "{}: {bound}", key.name);
        }
    }
}

#[test]
fn variables_are_told_apart_also_without_their_dots() {
    let table = key_table(&topics());
    let variables: BTreeSet<String> = table.keys().iter().map(Key::variable).collect();
    assert_eq!(variables.len(), table.keys().len());
    for key in table.keys() {
        assert_eq!(
            table.of_variable(&key.variable()).map(|k| &k.name),
            Some(&key.name)
        );
    }
}

#[test]
fn flags_beat_variables_beat_the_file_beats_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.toml");
    std::fs::write(&path, "durability = \"object\"\n[wal]\ncapacity_bytes = 2147483648\nfile_bytes = \"32MiB\"\n[log]\nlevel = \"debug\"\n")
        .unwrap();
    let variables = [
        ("TIDEGATE_WAL__CAPACITY_BYTES", "3GiB"),
        ("TIDEGATE_LOG_LEVEL", "warn"),
        ("PATH", "/bin"),
    ];
    let inputs = Inputs {
        file: Some(path),
        flags: vec![("--log-level", "trace".to_owned())],
        ..with_variables(&variables)
    };
    let config = load(&topics(), inputs).unwrap();
    assert_eq!(
        config.top.durability,
        tidegate_types::DurabilityMode::Object
    );
    assert_eq!(config.wal.file_bytes, ByteSize(32 << 20));
    assert_eq!(config.wal.capacity_bytes, ByteSize(3 << 30));
    assert_eq!(config.log.level.show(), "trace");
    assert_eq!(
        config.effective["log.level"].source,
        Source::Flag("--log-level".into())
    );
    assert_eq!(
        config.effective["wal.capacity_bytes"].source,
        Source::Variable("TIDEGATE_WAL__CAPACITY_BYTES".into())
    );
    assert!(matches!(
        &config.effective["wal.file_bytes"].source,
        Source::File { line: 4, .. }
    ));
}

#[test]
fn a_variable_may_name_the_file_and_a_flag_wins_over_it() {
    let folder = tempfile::tempdir().unwrap();
    for (file, id) in [("a.toml", 4), ("b.toml", 5)] {
        std::fs::write(folder.path().join(file), format!("broker.id = {id}")).unwrap();
    }
    let variable = folder.path().join("a.toml");
    let inputs = with_variables(&[("TIDEGATE_CONFIG", variable.to_str().unwrap())]);
    let id = |config: Config| config.broker.id.unwrap().to_wire();
    assert_eq!(id(load(&topics(), inputs.clone()).unwrap()), 4);
    let file = Some(folder.path().join("b.toml"));
    assert_eq!(id(load(&topics(), Inputs { file, ..inputs }).unwrap()), 5);
}

#[test]
fn unknown_keys_name_the_nearest_and_the_line() {
    let error = load_text("[wal]\nfile_bytes = \"32MiB\"\ncapcity_bytes = 7\n[wall]\n[topics.defaults]\nretention.mss = 4\n")
        .unwrap_err();
    let lines: Vec<&str> = error.lines().map(str::trim).collect();
    assert_eq!(
        lines,
        [
            "t.toml, line 3: unknown key wal.capcity_bytes; did you mean wal.capacity_bytes?",
            "t.toml, line 4: unknown key wall; `tidegate config reference` lists all keys",
            "t.toml, line 6: unknown key topics.defaults.retention.mss; did you mean topics.defaults.retention.ms?",
        ]
    );
    assert!(
        load_text("capacity_bytes = 7")
            .unwrap_err()
            .contains("did you mean wal.capacity_bytes?")
    );
}

#[test]
fn unknown_variables_name_the_nearest() {
    let error = refusal(with_variables(&[("TIDEGATE_WAL_CAPACITYBYTES", "1")]));
    assert_eq!(
        error,
        "unknown environment variable TIDEGATE_WAL_CAPACITYBYTES; did you mean TIDEGATE_WAL_CAPACITY_BYTES?"
    );
}

#[test]
fn variables_that_kubernetes_makes_for_a_service_named_tidegate_are_ignored() {
    let inputs = with_variables(&[
        ("TIDEGATE_SERVICE_HOST", "10.96.0.7"),
        ("TIDEGATE_SERVICE_PORT", "9092"),
        ("TIDEGATE_SERVICE_PORT_KAFKA", "9092"),
        ("TIDEGATE_PORT", "tcp://10.96.0.7:9092"),
        ("TIDEGATE_PORT_9092_TCP", "tcp://10.96.0.7:9092"),
        ("TIDEGATE_PORT_9092_TCP_PROTO", "tcp"),
        ("TIDEGATE_PORT_9092_TCP_PORT", "9092"),
        ("TIDEGATE_PORT_9092_TCP_ADDR", "10.96.0.7"),
        ("TIDEGATE_ADMIN_PORT", "tcp://10.96.0.8:9640"),
    ]);
    load(&topics(), inputs).unwrap();
}

#[test]
fn a_bad_value_names_key_value_source_and_remedy() {
    let error = refusal(with_flags(&[("--kafka-listen", "localhost:9092")]));
    assert!(
        error
            .starts_with("flag --kafka-listen: kafka.listen = \"localhost:9092\" isn't an address"),
        "{error}"
    );
    assert!(error.contains("write an IP address"), "{error}");
    let error = refusal(with_variables(&[("TIDEGATE_STORE", "s4://b/p")]));
    assert!(
        error.starts_with(
            "environment variable TIDEGATE_STORE: store.url = \"s4://b/p\" isn't an object store"
        ),
        "{error}"
    );
    let error = load_text("[upload]\nage = 250\nin_flight = 0\nsize_bytes = {}\n").unwrap_err();
    assert!(
        error.contains("line 2: upload.age = \"250\" isn't a duration"),
        "{error}"
    );
    assert!(
        error.contains("line 3: upload.in_flight = \"0\" is out of range: write 1 to 64"),
        "{error}"
    );
    assert!(
        error.contains("line 4: upload.size_bytes = \"{…}\" isn't one value"),
        "{error}"
    );
    let error = load_text("topics.defaults.retention.ms = \"long\"").unwrap_err();
    assert!(
        error.contains("topics.defaults.retention.ms = \"long\" isn't a number"),
        "{error}"
    );
}

#[test]
fn a_file_that_cannot_be_read_or_parsed_says_where() {
    let error = refusal(Inputs {
        file: Some("/no/such.toml".into()),
        ..Inputs::default()
    });
    assert!(
        error.starts_with("can't read the configuration file /no/such.toml: No such file"),
        "{error}"
    );
    let error = load_text("[wal]\nfile_bytes = \n").unwrap_err();
    assert!(error.starts_with("t.toml, line 2: isn't TOML"), "{error}");
    let error = load_text("wal = 7\n").unwrap_err();
    assert!(error.contains("wal is a section: write [wal]"), "{error}");
}

#[test]
fn values_are_checked_together() {
    for (flags, expected) in [
        (
            &[("--kafka-listen", "0.0.0.0:9092")][..],
            "set kafka.advertise",
        ),
        (
            &[("--admin-listen", "127.0.0.1:9092")],
            "takes the port of kafka.listen",
        ),
        (
            &[("--data-dir", "/d/x"), ("--store", "/d/./x")],
            "holds the data folder",
        ),
        (
            &[("--data-dir", "/d/x"), ("--store", "/d")],
            "holds the data folder",
        ),
    ] {
        let error = refusal(with_flags(flags));
        assert!(error.contains(expected), "{error}");
    }
    for (text, expected) in [
        ("wal.file_bytes = 100000", "isn't a multiple of 4096"),
        ("wal.capacity_bytes = \"64MiB\"", "write at least 128MiB"),
        (
            "topics.defaults.\"max.message.bytes\" = 70000000",
            "doesn't go with wal.file_bytes",
        ),
        (
            "wal.pending_bytes = \"64KiB\"",
            "doesn't go with topics.defaults.max.message.bytes",
        ),
        (
            "store.max_backoff = \"1ms\"",
            "store.first_backoff = \"50ms\", the default, is more than store.max_backoff",
        ),
        (
            "memory.total_bytes = \"64MiB\"\nmemory.tail_bytes = \"1GiB\"",
            "is less than its shares",
        ),
    ] {
        let error = load_text(text).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    load(
        &topics(),
        with_flags(&[
            ("--kafka-listen", "127.0.0.1:0"),
            ("--admin-listen", "127.0.0.1:0"),
        ]),
    )
    .unwrap();
    load(
        &topics(),
        with_flags(&[("--data-dir", "/d/x"), ("--store", "/d/y")]),
    )
    .unwrap();
}

#[test]
fn what_check_prints_is_a_configuration_with_the_same_values() {
    let table = key_table(&topics());
    let inputs = with_variables(&[
        ("TIDEGATE_BROKER_RACK", "007"),
        ("TIDEGATE_TOPICS_DEFAULTS_CLEANUP_POLICY", "compact,delete"),
    ]);
    let config = load(&topics(), inputs).unwrap();
    assert_eq!(config.broker.rack, "007");
    assert_eq!(config.topic_defaults["cleanup.policy"], "compact,delete");
    let printed = effective_toml(&table, &config);
    assert!(
        printed.contains("rack = \"007\"  # environment variable TIDEGATE_BROKER_RACK\n"),
        "{printed}"
    );
    assert!(printed.contains("capacity_bytes = \"1GiB\"\n"), "{printed}");
    let again = load_text(&printed).unwrap();
    let texts = |config: &Config| {
        config
            .effective
            .iter()
            .map(|(k, v)| (k.clone(), v.text.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(texts(&config), texts(&again));
}

#[test]
fn the_reference_file_holds_every_key_and_can_be_loaded_uncommented() {
    let table = key_table(&topics());
    let page = reference(&table, Format::Toml);
    let uncommented: String = page
        .lines()
        .map(|line| {
            line.strip_prefix('#')
                .filter(|l| !l.starts_with(' '))
                .unwrap_or(line)
        })
        .fold(String::new(), |text, line| text + line + "\n");
    let config = load_text(&uncommented).unwrap();
    for key in table.keys() {
        assert!(
            matches!(config.effective[&*key.name].source, Source::File { .. }),
            "{} is missing",
            key.name
        );
    }
    let page = reference(&table, Format::Markdown);
    for key in table.keys() {
        assert!(
            page.contains(&format!("`{}`", key.variable())),
            "{} is missing",
            key.name
        );
    }
}

#[test]
fn a_secret_is_used_and_shown_nowhere() {
    let table = key_table(&topics());
    let inputs = with_variables(&[("TIDEGATE_ADMIN_TOKEN", "hush-4711")]);
    let config = load(&topics(), inputs).unwrap();
    assert_eq!(config.admin.token.expose(), "hush-4711");
    let printed = effective_toml(&table, &config);
    assert!(
        printed.contains(
            "# token is set and isn't shown  # environment variable TIDEGATE_ADMIN_TOKEN\n"
        ),
        "{printed}"
    );
    for shown in [printed, format!("{config:?}")] {
        assert!(!shown.contains("4711"), "{shown}");
    }
}

#[test]
fn the_variable_that_the_clients_commands_read_is_none_of_the_brokers() {
    load(
        &topics(),
        with_variables(&[("TIDEGATE_ADMIN", "http://127.0.0.1:9640")]),
    )
    .unwrap();
}
