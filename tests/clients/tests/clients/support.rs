//! The broker the clients share (on a real S3 server), running programs, and what every client must have done.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::{
    CreateTopicsRequest, FetchRequest, GroupId, OffsetFetchRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use tidegate_harness::{Broker, BrokerOptions, RawClient, S3Server, Store, decode_batches};

/// Partitions of every test topic.
pub(crate) const PARTITIONS: i32 = 3;

struct Lab {
    broker: Broker,
    _s3: S3Server,
}

/// host:port of the shared broker.
pub(crate) fn brokers() -> String {
    static SHARED: OnceLock<Lab> = OnceLock::new();
    let lab = SHARED.get_or_init(|| {
        let s3 = S3Server::start_with_bucket("clients").expect("the S3 server starts");
        let store = Store::S3 {
            endpoint: s3.address(),
            bucket: "clients".into(),
            prefix: "cluster".into(),
        };
        let broker =
            Broker::start(BrokerOptions::default().store(store)).expect("the broker starts");
        Lab { broker, _s3: s3 }
    });
    // Shown when the test fails.
    println!(
        "log of the shared broker: {}",
        lab.broker.log_path().display()
    );
    lab.broker.bootstrap()
}

/// A name nobody else has.
pub(crate) fn unique(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "{prefix}-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// A raw connection, from a test that isn't async.
pub(crate) fn raw<T>(work: impl AsyncFnOnce(&mut RawClient) -> Result<T>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut client = RawClient::connect(&brokers()).await?;
        work(&mut client).await
    })
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// Creates a topic with three partitions.
pub(crate) fn create_topic(prefix: &str) -> Result<String> {
    let name = unique(prefix);
    let topic = CreatableTopic::default()
        .with_name(TopicName(text(&name)))
        .with_num_partitions(PARTITIONS)
        .with_replication_factor(1);
    let request = CreateTopicsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(30_000);
    let answer = raw(async |client| client.call(7, &request).await)?;
    let code = answer
        .topics
        .first()
        .context("no answer for the topic")?
        .error_code;
    ensure!(code == 0, "creating {name} answered {code}");
    Ok(name)
}

/// The sum of a group's committed offsets for a topic.
pub(crate) fn committed_sum(group: &str, topic: &str) -> Result<i64> {
    let request = OffsetFetchRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_topics(None);
    let answer = raw(async |client| client.call(7, &request).await)?;
    ensure!(
        answer.error_code == 0,
        "OffsetFetch answered {}",
        answer.error_code
    );
    let topics = answer
        .topics
        .iter()
        .filter(|found| found.name.0.as_str() == topic);
    Ok(topics
        .flat_map(|found| &found.partitions)
        .map(|partition| partition.committed_offset.max(0))
        .sum())
}

/// That a client compressed what it wrote. librdkafka and kafka-python send a batch as it is if compressing it makes it
/// longer, as with the few records that a slow machine may leave to one batch.
pub(crate) fn expect_stored_codec(topic: &str, codec: &str, code: i16) -> Result<()> {
    let stored = stored_codecs(topic)?;
    let expected = stored.iter().all(|stored| [0, code].contains(stored));
    ensure!(
        expected && stored.contains(&code),
        "{codec}: stored with codecs {stored:?}"
    );
    Ok(())
}

/// The codec codes of a topic's stored batches, sorted, each once.
fn stored_codecs(topic: &str) -> Result<Vec<i16>> {
    let partitions = (0..PARTITIONS)
        .map(|index| {
            FetchPartition::default()
                .with_partition(index)
                .with_partition_max_bytes(10 << 20)
        })
        .collect();
    let wanted = FetchTopic::default()
        .with_topic(TopicName(text(topic)))
        .with_partitions(partitions);
    let request = FetchRequest::default()
        .with_replica_id((-1).into())
        .with_max_bytes(50 << 20)
        .with_session_epoch(-1)
        .with_topics(vec![wanted]);
    let answer = raw(async |client| client.call(11, &request).await)?;
    let mut codecs = Vec::new();
    for data in answer
        .responses
        .into_iter()
        .flat_map(|topic| topic.partitions)
    {
        ensure!(data.error_code == 0, "fetch answered {}", data.error_code);
        for batch in decode_batches(data.records.unwrap_or_default())? {
            codecs.push(batch.attributes & 7);
        }
    }
    codecs.sort_unstable();
    codecs.dedup();
    Ok(codecs)
}

/// The values that a client produces: v0 to v<count − 1>.
pub(crate) fn values(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("v{number}")).collect()
}

/// Expects exactly the produced values, each once, in any order across partitions.
pub(crate) fn expect_values<S: AsRef<str>>(
    who: &str,
    lines: impl IntoIterator<Item = S>,
    count: usize,
) -> Result<()> {
    let mut got: Vec<String> = lines
        .into_iter()
        .map(|line| line.as_ref().to_owned())
        .collect();
    got.sort();
    let mut wanted = values(count);
    wanted.sort();
    if got == wanted {
        return Ok(());
    }
    let missing: Vec<&String> = wanted
        .iter()
        .filter(|value| !got.contains(value))
        .take(5)
        .collect();
    let strange: Vec<&String> = got
        .iter()
        .filter(|value| !wanted.contains(value))
        .take(5)
        .collect();
    bail!(
        "{who}: {} values instead of {count}; missing {missing:?} …, strange {strange:?} …",
        got.len()
    )
}

/// Runs a program to its end and gives its standard output; fails with what it said after `limit`.
pub(crate) fn run(command: &mut Command, input: Option<&str>, limit: Duration) -> Result<String> {
    let shown = format!("{command:?}");
    command.stdin(if input.is_some() {
        Stdio::piped()
    } else {
        Stdio::null()
    });
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("can't run {shown}"))?;
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        stdin.write_all(input.as_bytes())?;
    }
    let pid = child.id();
    let finished = std::thread::spawn(move || child.wait_with_output());
    let deadline = Instant::now() + limit;
    while !finished.is_finished() {
        if Instant::now() > deadline {
            // The waiting thread ends with the child.
            let _ = Command::new("kill")
                .args(["-KILL", &pid.to_string()])
                .status();
            let output = finished.join().ok().and_then(Result::ok);
            let said = output
                .map(|output| String::from_utf8_lossy(&output.stderr).into_owned())
                .unwrap_or_default();
            bail!("{shown} didn't end within {limit:?}; it said:\n{said}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = finished
        .join()
        .ok()
        .context("the waiting thread panicked")??;
    let (out, said) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    ensure!(
        output.status.success(),
        "{shown}: {}\n{out}\n{said}",
        output.status
    );
    Ok(out.into_owned())
}
