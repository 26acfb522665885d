//! kcat, with Debian's old librdkafka.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::support::{
    brokers, create_topic, expect_stored_codec, expect_values, run, unique, values,
};

const COUNT: usize = 300;
const LIMIT: Duration = Duration::from_secs(60);

fn kcat(arguments: &[&str], input: Option<&str>) -> Result<String> {
    run(
        Command::new("kcat")
            .args(["-b", &brokers()])
            .args(arguments),
        input,
        LIMIT,
    )
}

/// O-PR-04: an old librdkafka that doesn't see Produce 0–2 listed silently sends uncompressed. It would show here.
#[test]
fn kcat_round_trips_and_really_compresses() -> Result<()> {
    let input = values(COUNT).join("\n") + "\n";
    for (codec, code) in [
        ("none", 0),
        ("gzip", 1),
        ("snappy", 2),
        ("lz4", 3),
        ("zstd", 4),
    ] {
        let topic = create_topic("kcat")?;
        kcat(
            &["-P", "-t", &topic, "-z", codec, "-X", "linger.ms=50"],
            Some(&input),
        )?;
        expect_stored_codec(&topic, codec, code)?;
        let consumed = kcat(&["-C", "-t", &topic, "-o", "beginning", "-e", "-q"], None)?;
        expect_values(codec, consumed.lines(), COUNT)?;
    }
    Ok(())
}

#[test]
fn kcat_consumes_through_a_group_and_goes_on_where_it_stopped() -> Result<()> {
    let topic = create_topic("kcat")?;
    let input = values(COUNT).join("\n") + "\n";
    kcat(&["-P", "-t", &topic], Some(&input))?;
    let group = unique("kcat-group");
    let from_start = ["-X", "auto.offset.reset=earliest"];
    let take = |count: usize| {
        let count = count.to_string();
        let mut arguments = vec!["-G", &group, "-q", "-c", &count];
        arguments.extend(from_start);
        arguments.push(&topic);
        kcat(&arguments, None)
    };
    let first = take(100)?;
    let second = take(200)?;
    expect_values(
        "two runs of one group",
        first.lines().chain(second.lines()),
        COUNT,
    )
}

#[test]
fn kcat_lists_brokers_topics_and_offsets_by_time() -> Result<()> {
    let topic = create_topic("kcat")?;
    kcat(&["-P", "-t", &topic, "-p", "0"], Some("a\nb\n"))?;
    let listing = kcat(&["-L", "-t", &topic], None)?;
    assert!(
        listing.contains(&format!("topic \"{topic}\" with 3 partitions")),
        "{listing}"
    );
    let offsets = kcat(&["-Q", "-t", &format!("{topic}:0:1")], None)?;
    assert!(offsets.contains("offset 0"), "{offsets}");
    Ok(())
}
