//! Tells people that something goes on.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use tokio::time::Instant;

/// Between two lines where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// One line on standard error that changes; without a terminal, a line now and then.
pub struct Progress {
    terminal: bool,
    start: Instant,
    told: Instant,
    shown: bool,
}

impl Progress {
    pub fn start() -> Self {
        let now = Instant::now();
        Self {
            terminal: std::io::stderr().is_terminal(),
            start: now,
            told: now,
            shown: false,
        }
    }

    pub fn show(&mut self, text: &str) {
        let now = Instant::now();
        let seconds = now.duration_since(self.start).as_secs_f64();
        let mut out = std::io::stderr();
        // A closed standard error is nobody's error.
        if self.terminal {
            self.shown = true;
            let _ = write!(out, "\r\x1b[K{text} ({seconds:.1} s)");
            let _ = out.flush();
        } else if now.duration_since(self.told) >= LINE_INTERVAL {
            self.told = now;
            let _ = writeln!(out, "{text} ({seconds:.0} s)");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
