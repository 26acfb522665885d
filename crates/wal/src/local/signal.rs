//! Waking the WAL's writer and its maker of files, which may each be a thread or a task.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

/// A wake-up that isn't lost when it comes before the wait. One party waits.
#[derive(Default)]
pub(super) struct Signal {
    raised: Mutex<bool>,
    condvar: Condvar,
    notify: Notify,
}

impl Signal {
    pub fn raise(&self) {
        *self.raised.lock() = true;
        self.condvar.notify_one();
        self.notify.notify_one();
    }

    /// Blocks until raised, or until `timeout` has passed.
    pub fn wait_blocking(&self, timeout: Option<Duration>) {
        let mut raised = self.raised.lock();
        while !*raised {
            match timeout {
                None => self.condvar.wait(&mut raised),
                Some(timeout) => {
                    if self.condvar.wait_for(&mut raised, timeout).timed_out() {
                        break;
                    }
                }
            }
        }
        *raised = false;
    }

    /// Like `wait_blocking`, for a task.
    pub async fn wait(&self, timeout: Option<Duration>) {
        match timeout {
            None => self.notify.notified().await,
            // Elapsed or raised: either way the caller looks again.
            Some(timeout) => {
                let _looked_again = tokio::time::timeout(timeout, self.notify.notified()).await;
            }
        }
    }
}
