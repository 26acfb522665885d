//! Runs the senders of a plan from start to the last acknowledgement and draws the timeline meanwhile.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::client::Cluster;
use crate::load::{Plan, Sender};
use crate::recorder::{Recorded, Recorder};
use crate::timeline::{Point, Progress, Timeline};

/// What came of a plan.
pub struct Outcome {
    pub acks: Recorded,
    pub points: Vec<Point>,
}

/// Starts `plan.load.producers` senders, waits for their work and its acknowledgements.
/// `arrivals` is where a consumer that follows the run counts, if there is one.
pub fn drive(
    cluster: &Cluster,
    plan: &Plan,
    what: &str,
    interval: Duration,
    arrivals: Option<&Recorder>,
) -> Result<Outcome> {
    let end = end_of(plan);
    let expected = end.map(|end| end.saturating_duration_since(plan.origin));
    let mut timeline = Timeline::new(plan.origin, interval, Progress::new(what, expected));
    let senders = (0..plan.load.producers)
        .map(|index| Sender::start(cluster, plan, index))
        .collect::<Result<Vec<_>>>()?;
    let recorders: Vec<_> = senders
        .iter()
        .map(|sender| sender.recorder.clone())
        .collect();
    let recorders: Vec<&Recorder> = recorders.iter().map(AsRef::as_ref).collect();

    let far = Instant::now() + Duration::from_secs(86_400 * 365);
    let watch = |timeline: &mut Timeline, until: Instant, done: &dyn Fn() -> bool| {
        while Instant::now() < until && !done() {
            // A short wait, so that the end is noticed when it comes and not an interval later.
            timeline.wait(until.min(Instant::now() + Duration::from_millis(10)));
            if timeline.due() {
                timeline.sample(&recorders, arrivals);
            }
        }
    };
    watch(&mut timeline, end.unwrap_or(far), &|| {
        senders.iter().all(Sender::has_sent_all)
    });
    plan.stop.store(true, Ordering::Relaxed);
    let patience = Instant::now() + cluster.timeout();
    watch(&mut timeline, patience, &|| {
        senders.iter().all(Sender::is_settled)
    });
    // The last, partial interval would show a drop that isn't there when sending ended by the clock.
    if end.is_none() {
        timeline.sample(&recorders, arrivals);
    }

    let mut failure = None;
    for sender in senders {
        if let Err(error) = sender.finish() {
            failure = Some(error);
        }
    }
    if let Some(error) = failure {
        return Err(error);
    }
    let acks = Recorded::sum(recorders.iter().map(|recorder| recorder.recorded()))
        .context("a run needs at least one producer")?;
    let mut points = timeline.finish();
    if let Some(end) = end {
        let end_s = (end - plan.origin).as_secs_f64() + interval.as_secs_f64() / 2.0;
        points.retain(|point| point.t_s <= end_s);
    }
    Ok(Outcome { acks, points })
}

/// When sending ends by the clock.
fn end_of(plan: &Plan) -> Option<Instant> {
    (plan.window.until != u64::MAX).then(|| plan.origin + Duration::from_nanos(plan.window.until))
}
