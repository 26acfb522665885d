//! Where log lines go and how they look.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use crate::config::{Log, LogFormat};

/// Sends the log of the whole process to standard error. Colours only on a terminal, and not with `NO_COLOR`.
pub fn start(log: &Log, no_color: bool) {
    // The directives were parsed when the configuration was checked.
    let filter = EnvFilter::new(log.level.directives());
    let builder = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match log.format {
        LogFormat::Text => builder
            .with_ansi(std::io::stderr().is_terminal() && !no_color)
            .init(),
        LogFormat::Json => builder
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .init(),
    }
}
