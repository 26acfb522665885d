//! franz-go and the Python clients: small programs that share one command line.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use tidegate_harness::Tools;

use crate::support::{
    brokers, committed_sum, create_topic, expect_stored_codec, expect_values, run, unique,
};

const COUNT: usize = 300;
const LIMIT: Duration = Duration::from_secs(60);

/// Produces in each codec, consumes directly and through a group that commits.
fn round_trips(program: &[&str], codecs: &[(&str, i16)]) -> Result<()> {
    let client = |mode: &str, topic: &str, last: Option<&str>| {
        let mut command = Command::new(program[0]);
        command
            .args(&program[1..])
            .args([mode, &brokers(), topic, &COUNT.to_string()])
            .args(last);
        run(&mut command, None, LIMIT).with_context(|| format!("{mode} {last:?}"))
    };
    for (codec, code) in codecs {
        let topic = create_topic("client")?;
        client("produce", &topic, Some(codec))?;
        expect_stored_codec(&topic, codec, *code)?;
        expect_values(codec, client("consume", &topic, None)?.lines(), COUNT)?;
        let group = unique("group");
        expect_values(codec, client("group", &topic, Some(&group))?.lines(), COUNT)?;
        assert_eq!(
            committed_sum(&group, &topic)?,
            i64::try_from(COUNT)?,
            "{codec}"
        );
    }
    Ok(())
}

const ALL_CODECS: &[(&str, i16)] = &[
    ("none", 0),
    ("gzip", 1),
    ("snappy", 2),
    ("lz4", 3),
    ("zstd", 4),
];

fn python(script: &str) -> Result<()> {
    let python = Tools::find()?.python()?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("python")
        .join(script);
    let words = [
        python.to_str().context("path")?,
        script.to_str().context("path")?,
    ];
    round_trips(&words, ALL_CODECS)
}

#[test]
fn franz_go_round_trips_in_every_codec() -> Result<()> {
    let program = Tools::find()?.path("bin/franz-go-client")?;
    round_trips(&[program.to_str().context("path")?], ALL_CODECS)
}

#[test]
fn aiokafka_round_trips_in_every_codec() -> Result<()> {
    python("aiokafka_client.py")
}

#[test]
fn kafka_python_round_trips_in_every_codec() -> Result<()> {
    python("kafka_python_client.py")
}

/// The newest librdkafka; kcat brings an old one.
#[test]
fn confluent_kafka_round_trips_in_every_codec() -> Result<()> {
    python("confluent_client.py")
}
