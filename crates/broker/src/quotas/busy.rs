//! How long a request keeps a thread busy.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::Duration;

use tidegate_runtime::SharedClock;

/// Runs something, and measures for how long it really ran: not the time in which it waited. Nothing is measured
/// unless it is `wanted`.
pub(crate) async fn measured<F: Future>(
    clock: &SharedClock,
    wanted: bool,
    work: F,
) -> (F::Output, Duration) {
    let mut work = pin!(work);
    let mut busy = Duration::ZERO;
    let output = poll_fn(|context| {
        if !wanted {
            return work.as_mut().poll(context);
        }
        let start = clock.now();
        let polled = work.as_mut().poll(context);
        busy += clock.now().saturating_duration_since(start);
        polled
    })
    .await;
    (output, busy)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidegate_runtime::ManualClock;
    use tidegate_types::TimestampMs;

    use super::*;

    #[tokio::test]
    async fn only_the_time_spent_running_counts() {
        let manual = Arc::new(ManualClock::new(TimestampMs::new(0)));
        let clock: SharedClock = manual.clone();
        let (gate, mut opened) = tokio::sync::mpsc::channel::<()>(1);
        let (waits, mut waiting) = tokio::sync::oneshot::channel();
        let work = async {
            manual.advance(Duration::from_millis(3));
            waits.send(()).unwrap();
            opened.recv().await;
            manual.advance(Duration::from_millis(4));
            "done"
        };
        let meanwhile = async {
            (&mut waiting).await.unwrap();
            manual.advance(Duration::from_secs(100));
            gate.send(()).await.unwrap();
        };
        let ((output, busy), ()) = tokio::join!(measured(&clock, true, work), meanwhile);
        assert_eq!((output, busy), ("done", Duration::from_millis(7)));
    }
}
