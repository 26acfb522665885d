//! Tasks with a name, an owner and a declared reaction to their end.

use std::any::Any;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What the end of a task means to its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnExit {
    /// The task may end at any time, and a panic costs only its own work (a connection, one request).
    Expected,
    /// Unless the owner has cancelled its tasks, the end of this one, by return or by panic, means that the
    /// process can't keep its promises and must stop: see [`Tasks::stop_requested`].
    StopProcess,
}

/// Which task asks for the stop of the process, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopReason {
    pub owner: Arc<str>,
    pub task: Arc<str>,
    pub cause: StopCause,
}

/// How a task that mustn't end ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopCause {
    Returned,
    Panicked,
}

/// Tasks that didn't end within the time given to [`Tasks::shutdown`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{count} tasks were still running at the end of the shutdown's time")]
pub struct StillRunning {
    pub count: usize,
}

/// The owner of a set of tasks and threads. Clones own the same set.
#[derive(Debug, Clone)]
pub struct Tasks {
    name: Arc<str>,
    tracker: TaskTracker,
    token: CancellationToken,
    stop: Arc<watch::Sender<Option<StopReason>>>,
}

impl Tasks {
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            tracker: TaskTracker::new(),
            token: CancellationToken::new(),
            stop: Arc::new(watch::Sender::new(None)),
        }
    }

    /// An owner of its own set, cancelled together with this one, whose stop requests arrive here too.
    pub fn child(&self, name: &str) -> Self {
        Self {
            name: format!("{}/{name}", self.name).into(),
            tracker: TaskTracker::new(),
            token: self.token.child_token(),
            stop: Arc::clone(&self.stop),
        }
    }

    /// Runs `task` on the current tokio runtime. It should end soon after [`Tasks::token`] is cancelled; a
    /// task that doesn't listen to the token is waited for by [`Tasks::shutdown`].
    pub fn spawn<F>(&self, name: &str, on_exit: OnExit, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let exit = self.exit(name, on_exit);
        let guarded = CatchPanic(Box::pin(task));
        self.tracker.spawn(async move {
            exit.report(guarded.await);
        });
    }

    /// Runs `work` on a thread of its own, named after the task. It must learn of the shutdown by other means
    /// than the token, which only an async task can await.
    ///
    /// # Errors
    /// If the operating system can't start a thread.
    pub fn spawn_thread<F>(&self, name: &str, on_exit: OnExit, work: F) -> io::Result<()>
    where
        F: FnOnce() + Send + 'static,
    {
        let exit = self.exit(name, on_exit);
        let tracked = self.tracker.token();
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let _tracked = tracked;
                exit.report(catch_unwind(AssertUnwindSafe(work)));
            })?;
        Ok(())
    }

    /// Cancelled when the owner wants its tasks to end.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// How many tasks and threads are running.
    pub fn running(&self) -> usize {
        self.tracker.len()
    }

    /// Resolves when a task that mustn't end has ended; the process should then stop in order.
    pub async fn stop_requested(&self) -> StopReason {
        let mut stop = self.stop.subscribe();
        // The sender lives as long as `self`, so the wait can't end without a value.
        match stop.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().expect("wait_for returned on Some"),
            Err(_) => std::future::pending().await,
        }
    }

    /// Cancels the token and waits until all tasks have ended.
    ///
    /// # Errors
    /// If some still run after `timeout`; they aren't killed.
    pub async fn shutdown(&self, timeout: Duration) -> Result<(), StillRunning> {
        self.token.cancel();
        self.tracker.close();
        tokio::time::timeout(timeout, self.tracker.wait())
            .await
            .map_err(|_| StillRunning {
                count: self.tracker.len(),
            })
    }

    fn exit(&self, name: &str, on_exit: OnExit) -> Exit {
        Exit {
            owner: Arc::clone(&self.name),
            task: name.into(),
            on_exit,
            token: self.token.clone(),
            stop: Arc::clone(&self.stop),
        }
    }
}

/// Carries out a task's declared reaction, exactly once.
struct Exit {
    owner: Arc<str>,
    task: Arc<str>,
    on_exit: OnExit,
    token: CancellationToken,
    stop: Arc<watch::Sender<Option<StopReason>>>,
}

impl Exit {
    fn report(self, outcome: Result<(), Box<dyn Any + Send>>) {
        let cause = match outcome {
            Ok(()) if self.token.is_cancelled() => return,
            Ok(()) => StopCause::Returned,
            Err(panic) => {
                tracing::error!(
                    owner = &*self.owner,
                    task = &*self.task,
                    panic = panic_text(&*panic),
                    "task panicked"
                );
                StopCause::Panicked
            }
        };
        match self.on_exit {
            OnExit::Expected => {}
            OnExit::StopProcess => {
                if cause == StopCause::Returned {
                    tracing::error!(
                        owner = &*self.owner,
                        task = &*self.task,
                        "task that must not end has ended"
                    );
                }
                // The first reason is the root; later ones are usually its consequences.
                self.stop.send_if_modified(|reason| {
                    let first = reason.is_none();
                    reason.get_or_insert(StopReason {
                        owner: self.owner,
                        task: self.task,
                        cause,
                    });
                    first
                });
            }
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a value that is not a text")
}

/// Turns a panic inside a poll into a value, so that the reaction runs in the task that panicked.
struct CatchPanic<F>(Pin<Box<F>>);

impl<F: Future<Output = ()>> Future for CatchPanic<F> {
    type Output = Result<(), Box<dyn Any + Send>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // After a panic the future is never polled again, so nobody sees its broken state.
        match catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_panic_in_a_vital_task_asks_for_a_stop() {
        let tasks = Tasks::new("broker");
        tasks
            .child("wal")
            .spawn("writer", OnExit::StopProcess, async { panic!("boom") });
        let reason = tasks.stop_requested().await;
        assert_eq!(&*reason.owner, "broker/wal");
        assert_eq!(&*reason.task, "writer");
        assert_eq!(reason.cause, StopCause::Panicked);
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_in_an_expendable_task_stops_nothing() {
        let tasks = Tasks::new("broker");
        tasks.spawn("connection", OnExit::Expected, async { panic!("boom") });
        tasks.shutdown(Duration::from_secs(1)).await.unwrap();
        assert!(tasks.stop.borrow().is_none());
        assert_eq!(tasks.running(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_vital_task_may_return_after_the_cancel() {
        let tasks = Tasks::new("broker");
        let token = tasks.token().clone();
        tasks.spawn("feed", OnExit::StopProcess, async move {
            token.cancelled().await;
        });
        tasks.shutdown(Duration::from_secs(1)).await.unwrap();
        assert!(tasks.stop.borrow().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn shutdown_tells_how_many_tasks_ignored_it() {
        let tasks = Tasks::new("broker");
        tasks.spawn("deaf", OnExit::Expected, std::future::pending());
        assert_eq!(
            tasks.shutdown(Duration::from_secs(1)).await,
            Err(StillRunning { count: 1 })
        );
    }

    #[tokio::test]
    async fn a_thread_that_returns_early_asks_for_a_stop() {
        let tasks = Tasks::new("broker");
        tasks
            .spawn_thread("wal", OnExit::StopProcess, || {})
            .unwrap();
        assert_eq!(tasks.stop_requested().await.cause, StopCause::Returned);
    }
}
