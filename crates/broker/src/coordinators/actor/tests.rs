//! The actor over a machine that only notes what it is told, and a log that a test opens and breaks.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_coordinator::{AppendFailure, AppendId, Now, RecordError, ReplyToken};
use tidegate_record_batch::StoredBatch;
use tidegate_runtime::SystemClock;
use tidegate_types::{Offset, PartitionId, PartitionIndex, TopicId};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::*;
use crate::coordinators::load::LoadError;

/// What a caller is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Loading,
    Serving,
    Gone,
}

#[derive(Debug)]
struct Noted {
    state: Told,
    /// Whether it takes in what was replayed.
    sound: bool,
}

struct Answer(ReplyToken, Told);

impl Machine for Noted {
    type Config = ();
    type Effect = Answer;
    type Reply = Told;
    const KIND: &'static str = "noted";

    fn loading((): &()) -> Self {
        let state = Told::Loading;
        Self { state, sound: true }
    }

    fn replay(&mut self, _: &StoredBatch, _: Offset) -> Result<(), ReplayError> {
        Ok(())
    }

    fn loaded(&mut self, _: Now) -> Result<Vec<Answer>, RecordError> {
        if !self.sound {
            return Err(RecordError::Truncated {
                record: "noted",
                field: "all",
            });
        }
        self.state = Told::Serving;
        Ok(Vec::new())
    }

    fn unload(&mut self, _: Now) -> Vec<Answer> {
        self.state = Told::Gone;
        Vec::new()
    }

    fn appended(&mut self, _: Now, _: AppendId, _: Result<(), AppendFailure>) -> Vec<Answer> {
        Vec::new()
    }

    fn next_deadline(&self) -> Option<u64> {
        None
    }

    fn tick(&mut self, _: Now) -> Vec<Answer> {
        Vec::new()
    }

    fn report(&self, _: PartitionId, _: u64) {}
}

struct Nowhere;

impl Outside<Noted> for Nowhere {
    type News = ();

    fn carry_out(&mut self, Answer(token, told): Answer) -> Done<Told> {
        Done::Reply(token, told)
    }

    async fn news(&mut self) {
        std::future::pending().await
    }

    fn tell(&mut self, _: &mut Noted, _: Now, (): ()) -> Vec<Answer> {
        Vec::new()
    }

    fn prepare(&mut self, _: &mut Noted) {}

    fn give_up(&mut self) {}
}

type Outcome = Result<Noted, LoadError>;
type Outcomes = Vec<oneshot::Receiver<Outcome>>;

/// Gives what the test sends, one load after the other, and notes when each began.
#[derive(Clone, Default)]
struct Script {
    outcomes: Arc<Mutex<Outcomes>>,
    begun: Arc<Mutex<Vec<Instant>>>,
}

impl Source<Noted> for Script {
    fn partition(&self) -> PartitionId {
        PartitionId {
            topic: TopicId::new(Uuid::from_u128(7)).unwrap(),
            index: PartitionIndex::new(0).unwrap(),
        }
    }

    fn load(
        &self,
        (): (),
        _: Option<Warmed<Noted>>,
    ) -> impl Future<Output = Result<Loaded<Noted>, LoadError>> + Send + 'static {
        self.begun.lock().push(Instant::now());
        let outcome = self.outcomes.lock().remove(0);
        async move {
            let machine = outcome.await.unwrap_or(Err(LoadError::Closed))?;
            Ok(Loaded {
                machine,
                warm: false,
            })
        }
    }
}

struct Rig {
    handle: Handle<Noted>,
    cancel: CancellationToken,
    script: Script,
    loads: Vec<oneshot::Sender<Outcome>>,
    running: tokio::task::JoinHandle<()>,
}

impl Rig {
    fn start(loads: usize) -> Self {
        let (senders, outcomes) = (0..loads).map(|_| oneshot::channel()).unzip();
        let script = Script::default();
        *script.outcomes.lock() = outcomes;
        let cancel = CancellationToken::new();
        let (actor, handle) = Actor::new(Parts {
            source: script.clone(),
            clock: HostClock::new(Arc::new(SystemClock)),
            config: (),
            outside: Nowhere,
            metrics: BrokerMetrics::default(),
            cancel: cancel.clone(),
        });
        Self {
            handle,
            cancel,
            script,
            loads: senders,
            running: tokio::spawn(actor.run(None)),
        }
    }

    /// The next load ends.
    fn end_load(&mut self, outcome: Outcome) {
        let _ = self.loads.remove(0).send(outcome);
    }

    async fn ask(&self) -> Option<Told> {
        let asked = self
            .handle
            .answered(|noted, _, token| vec![Answer(token, noted.state)]);
        timeout(Duration::from_secs(600), asked).await.unwrap()
    }
}

fn whole() -> Outcome {
    Ok(Noted::loading(&()))
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_early_is_answered_when_the_log_is_loaded() {
    let mut rig = Rig::start(1);
    let begun = Instant::now();
    let (told, ()) = tokio::join!(
        rig.handle.answered(|n, _, t| vec![Answer(t, n.state)]),
        async {
            sleep(Duration::from_millis(300)).await;
            let _ = rig.loads.remove(0).send(whole());
        }
    );
    assert_eq!(told, Some(Told::Serving));
    assert_eq!(begun.elapsed().as_millis(), 300);
    assert_eq!(rig.ask().await, Some(Told::Serving));
}

#[tokio::test(start_paused = true)]
async fn a_load_that_takes_long_is_told_to_those_who_wait() {
    let mut rig = Rig::start(1);
    let begun = Instant::now();
    assert_eq!(rig.ask().await, Some(Told::Loading));
    assert_eq!(begun.elapsed(), PARKED);
    // From then on at once.
    assert_eq!(rig.ask().await, Some(Told::Loading));
    assert_eq!(begun.elapsed(), PARKED);
    rig.end_load(whole());
    sleep(Duration::from_millis(1)).await;
    assert_eq!(rig.ask().await, Some(Told::Serving));
}

#[tokio::test(start_paused = true)]
async fn a_log_that_cannot_be_understood_is_loaded_again_with_longer_and_longer_pauses() {
    let mut rig = Rig::start(9);
    for unsound in [false, true, false, true, false, true, false, true] {
        let outcome = if unsound {
            let machine = Noted::loading(&());
            Ok(Noted {
                sound: false,
                ..machine
            })
        } else {
            Err(LoadError::Replay(ReplayError::NoKey))
        };
        rig.end_load(outcome);
    }
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!(
        rig.ask().await,
        Some(Told::Loading),
        "it isn't led elsewhere"
    );
    sleep(Duration::from_secs(300)).await;
    rig.end_load(whole());
    sleep(Duration::from_millis(1)).await;
    assert_eq!(rig.ask().await, Some(Told::Serving));
    let begun = rig.script.begun.lock().clone();
    let pauses: Vec<u64> = begun
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_secs())
        .collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_log_that_is_closed_is_sent_away_at_once() {
    let mut rig = Rig::start(1);
    let begun = Instant::now();
    let cancel = rig.cancel.clone();
    let (told, ()) = tokio::join!(rig.ask(), async move {
        sleep(Duration::from_millis(20)).await;
        cancel.cancel();
    });
    assert_eq!(told, None);
    assert_eq!(begun.elapsed().as_millis(), 20);
    (&mut rig.running).await.unwrap();
    assert_eq!(rig.ask().await, None);

    let mut rig = Rig::start(1);
    rig.end_load(Err(LoadError::Closed));
    assert_eq!(rig.ask().await, None);
}
