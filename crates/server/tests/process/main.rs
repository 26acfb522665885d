//! The real binary as an operator meets it: messages, exit codes, and what it leaves on the disk.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail like tests")]

mod command_line;
mod life;
mod refusals;
mod support;
