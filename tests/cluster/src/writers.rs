//! Idempotent producers that never give up.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::types::RDKafkaErrorCode;

use crate::{Acknowledged, Mark};

#[derive(Default)]
struct Outcome {
    acknowledged: Vec<Acknowledged>,
    failures: Vec<String>,
}

#[derive(Clone, Default)]
struct Context(Arc<Mutex<Outcome>>);

impl Context {
    fn outcome(&self) -> std::sync::MutexGuard<'_, Outcome> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for Context {
    fn error(&self, error: KafkaError, reason: &str) {
        // Broken connections are what the test is about; a fatal error ends a producer and must not happen.
        if matches!(error.rdkafka_error_code(), Some(RDKafkaErrorCode::Fatal)) {
            self.outcome().failures.push(format!("fatal: {reason}"));
        }
    }

    fn log(&self, _: rdkafka::config::RDKafkaLogLevel, _: &str, _: &str) {}
}

impl ProducerContext for Context {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let mut outcome = self.outcome();
        match result {
            Ok(message) => match message.payload().and_then(Mark::read) {
                Some(mark) => outcome.acknowledged.push(Acknowledged {
                    mark,
                    offset: message.offset(),
                }),
                None => outcome
                    .failures
                    .push("an acknowledgement for bytes that nobody sent".into()),
            },
            // Without a time limit for delivery, no failure is a passing one.
            Err((error, _)) => outcome.failures.push(format!("delivery failed: {error}")),
        }
    }
}

type Sent = HashMap<(u32, i32), u64>;

/// What was sent, and what was acknowledged of it.
type Written = (Sent, Vec<Acknowledged>);

/// Running producers.
pub struct Writers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<Written>>>,
}

impl Writers {
    /// Starts `count` producers, each sending about `per_second` records over all partitions.
    pub fn start(
        brokers: &str,
        topic: &str,
        partitions: i32,
        count: u32,
        per_second: u64,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for producer in 0..count {
            let context = Context::default();
            let client: BaseProducer<Context> = ClientConfig::new()
                .set("bootstrap.servers", brokers)
                .set("enable.idempotence", "true")
                .set("linger.ms", "2")
                // No limit: whether an unanswered record was stored must be found out, not guessed.
                .set("message.timeout.ms", "0")
                .set("request.timeout.ms", "5000")
                .set("reconnect.backoff.ms", "20")
                .set("reconnect.backoff.max.ms", "200")
                .set("retry.backoff.ms", "20")
                .set("retry.backoff.max.ms", "200")
                .set("queue.buffering.max.messages", "20000")
                .create_with_context(context.clone())?;
            let (topic, stop) = (topic.to_owned(), Arc::clone(&stop));
            let write = move || {
                write(
                    &client, &context, &topic, partitions, producer, per_second, &stop,
                )
            };
            threads.push(
                std::thread::Builder::new()
                    .name(format!("writer-{producer}"))
                    .spawn(write)?,
            );
        }
        Ok(Self { stop, threads })
    }

    /// Stops sending, waits until everything sent is acknowledged, and gives what was sent and acknowledged.
    pub fn finish(self) -> Result<Written> {
        self.stop.store(true, Ordering::Relaxed);
        let (mut sent, mut acknowledged) = (HashMap::new(), Vec::new());
        for thread in self.threads {
            let (sent_here, acknowledged_here) =
                thread.join().ok().context("a writer panicked")??;
            sent.extend(sent_here);
            acknowledged.extend(acknowledged_here);
        }
        Ok((sent, acknowledged))
    }
}

fn write(
    client: &BaseProducer<Context>,
    context: &Context,
    topic: &str,
    partitions: i32,
    producer: u32,
    per_second: u64,
    stop: &AtomicBool,
) -> Result<Written> {
    let mut sent: Sent = HashMap::new();
    let mut total = 0_u64;
    let start = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let due = u64::try_from(start.elapsed().as_millis())? * per_second / 1000;
        while total < due {
            let partition = i32::try_from(total % u64::try_from(partitions)?)?;
            let number = sent.entry((producer, partition)).or_insert(0);
            let value = Mark {
                producer,
                partition,
                number: *number,
            }
            .value();
            let record: BaseRecord<'_, (), Vec<u8>> =
                BaseRecord::to(topic).partition(partition).payload(&value);
            match client.send(record) {
                Ok(()) => {
                    *number += 1;
                    total += 1;
                }
                // The broker is away and the buffer full: wait, and send less than planned.
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => break,
                Err((error, _)) => bail!("producer {producer} can't send: {error}"),
            }
        }
        client.poll(Duration::from_millis(5));
    }
    let flushed = client.flush(Duration::from_secs(90));
    let outcome = std::mem::take(&mut *context.outcome());
    ensure!(
        outcome.failures.is_empty(),
        "producer {producer}: {:?}",
        &outcome.failures[..outcome.failures.len().min(5)]
    );
    flushed.with_context(|| {
        format!(
            "producer {producer} still has {} records unanswered",
            client.in_flight_count()
        )
    })?;
    ensure!(
        u64::try_from(outcome.acknowledged.len())? == total,
        "producer {producer}: {total} sent, {} acknowledged",
        outcome.acknowledged.len()
    );
    Ok((sent, outcome.acknowledged))
}
