//! Storing one object: until it is known to be stored, or to be somebody else's.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_runtime::{Random, SharedClock};
use tidegate_segment_format::{FOOTER_BYTES, Footer, decode_footer, same_object};
use tokio::time::Instant;

use super::metrics::ObjectWalMetrics;
use super::store::{CreateOutcome, LogObjectName, ObjectLogStore};

/// An object to be stored.
pub(super) struct Put {
    pub(super) name: LogObjectName,
    pub(super) payload: Vec<Bytes>,
    pub(super) footer: Footer,
}

/// How it ended. A failure isn't an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PutEnd {
    /// `put_time`: of a PUT that was answered at once; `None` when it took more than that.
    Stored { put_time: Option<Duration> },
    /// The name is somebody else's.
    Taken,
}

/// The surroundings of all PUTs of one WAL.
#[derive(Clone)]
pub(super) struct Putter {
    pub(super) store: Arc<dyn ObjectLogStore>,
    pub(super) clock: SharedClock,
    pub(super) random: Random,
    pub(super) metrics: ObjectWalMetrics,
    pub(super) max_wait: Duration,
}

/// Whose is the object that was met?
enum Met {
    Ours,
    Theirs,
    /// A listing of the facts isn't possible now.
    Unknown,
}

const FIRST_WAIT: Duration = Duration::from_millis(50);
/// So often may a footer be unreadable before it is somebody else's.
const MAX_DAMAGED_READS: u32 = 3;

impl Putter {
    pub(super) async fn run(&self, put: Put) -> (u64, PutEnd) {
        let sequence = put.name.sequence;
        let mut trouble = Trouble::default();
        let mut wait = FIRST_WAIT;
        let end = loop {
            let started = self.clock.now();
            self.metrics.put();
            match self.store.create(put.name, put.payload.clone()).await {
                Ok(CreateOutcome::Created) => {
                    let put_time = (self.clock.now() - started, trouble.repetitions == 0);
                    let put_time = put_time.1.then_some(put_time.0);
                    break PutEnd::Stored { put_time };
                }
                Ok(CreateOutcome::AlreadyExists) => match self.meet(&put, &mut trouble).await {
                    Met::Ours => break PutEnd::Stored { put_time: None },
                    Met::Theirs => break PutEnd::Taken,
                    Met::Unknown => {}
                },
                Err(failure) => trouble.note(&put.name, &failure, self.clock.now()),
            }
            trouble.repetitions += 1;
            self.metrics.repeated();
            tokio::select! {
                () = tokio::time::sleep(self.random.jitter(wait)) => {}
                () = self.store.accessible_again() => {}
            }
            wait = (wait * 2).min(self.max_wait);
        };
        trouble.over(&put.name, self.clock.now());
        (sequence, end)
    }

    async fn meet(&self, put: &Put, trouble: &mut Trouble) -> Met {
        let tail = self.store.read_tail(put.name, FOOTER_BYTES as u64).await;
        let (bytes, size) = match tail {
            Ok(Some(found)) => found,
            // It can't be gone unless somebody deletes live data; asking again shows what is true.
            Ok(None) => return Met::Unknown,
            Err(failure) => {
                trouble.note(&put.name, &failure, self.clock.now());
                return Met::Unknown;
            }
        };
        match decode_footer(&bytes) {
            Ok(footer) if size == footer.size_bytes && same_object(&footer, &put.footer) => {
                Met::Ours
            }
            Ok(footer) => {
                tracing::error!(
                    name = %put.name,
                    found = %footer.identity,
                    kind = ?footer.kind,
                    "fenced: another writer's object has the next number of this broker's log"
                );
                Met::Theirs
            }
            Err(_) if trouble.damaged_reads < MAX_DAMAGED_READS => {
                trouble.damaged_reads += 1;
                Met::Unknown
            }
            Err(error) => {
                tracing::error!(
                    name = %put.name,
                    error = &error as &dyn std::error::Error,
                    "fenced: the next number of this broker's log holds what isn't an object of it"
                );
                Met::Theirs
            }
        }
    }
}

/// What went wrong with one object so far; tells of it once, and of its end.
#[derive(Debug, Default)]
struct Trouble {
    since: Option<Instant>,
    repetitions: u32,
    damaged_reads: u32,
}

impl Trouble {
    fn note(&mut self, name: &LogObjectName, failure: &super::StoreFailure, now: Instant) {
        if self.since.is_none() {
            self.since = Some(now);
            tracing::warn!(
                %name,
                error = failure as &dyn std::error::Error,
                "object wal can't store an object; repeating it, nothing behind it is acknowledged"
            );
        }
    }

    fn over(&self, name: &LogObjectName, now: Instant) {
        if let Some(since) = self.since {
            let trouble_ms = u64::try_from((now - since).as_millis()).unwrap_or(u64::MAX);
            tracing::info!(%name, trouble_ms, repetitions = self.repetitions, "object wal goes on");
        }
    }
}
