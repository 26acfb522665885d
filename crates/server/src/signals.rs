//! The signals that stop the process.

use std::io;

use rustix::process::{Signal as Kind, getppid, set_parent_process_death_signal};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT, from now on.
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// # Errors
    /// If the operating system refuses a handler.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one and answers its name. Cancel-safe: a signal that isn't waited for is kept.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// From now on this process ends when its parent does: for brokers that are children of the demo.
///
/// # Errors
/// If the parent has ended already, or the operating system refuses.
pub fn end_with(parent: i32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Kind::KILL))?;
    // It may have ended before.
    if getppid().map(|present| present.as_raw_nonzero().get()) == Some(parent) {
        Ok(())
    } else {
        Err(io::Error::other("it isn't the parent"))
    }
}
