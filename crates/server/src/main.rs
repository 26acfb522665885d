//! `tidegate`: the process. It reads the configuration, starts the parts and stops them in order.
//!
//! It promises a clear message and an exit code for whatever is wrong: 2 for the command line and the
//! configuration, 1 for what keeps the broker from starting, 70 when a part that mustn't end has ended, 75 when the
//! cluster has ended this broker's life and the process couldn't begin another by itself, 130 when it
//! was told twice to stop, 0 after an ordered stop. Commands to a running cluster end with 0, 1 if it refused, 69 if
//! nobody answered. It deliberately doesn't know Kafka, objects and logs: the crates
//! below do.

mod cli;
mod client;
mod config;
mod demo;
mod logging;
mod serve;
mod settings;
mod signals;
mod version;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use cli::Invocation;
use config::{Config, ConfigError, Inputs, KeyTable, TopicConfigs};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The command line or the configuration is wrong.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let topics = settings::topic_configs();
    let table = config::key_table(&topics);
    let invocation = match cli::parse(&table, std::env::args_os()) {
        Ok(invocation) => invocation,
        Err(answer) => {
            // Help and version come this way too. A closed output is nobody's error.
            let _ = answer.print();
            return ExitCode::from(u8::try_from(answer.exit_code()).unwrap_or(EXIT_USAGE));
        }
    };
    match invocation {
        Invocation::Serve { inputs, end_with } => {
            if let Some(parent) = end_with
                && let Err(error) = signals::end_with(parent)
            {
                eprintln!("error: can't end with process {parent}: {error}");
                return ExitCode::FAILURE;
            }
            with_config(&topics, inputs, |config| serve::run(&config))
        }
        Invocation::Demo(options) => demo::run(&options),
        Invocation::Check(inputs) => with_config(&topics, inputs, |config| check(&table, &config)),
        Invocation::Reference(format) => print(&config::reference(&table, format)),
        Invocation::Client(call) => {
            let (text, code) = client::run(call);
            let printed = print(&text);
            if printed == ExitCode::SUCCESS {
                code
            } else {
                printed
            }
        }
    }
}

/// Loads the configuration and goes on with it, or tells what is wrong.
fn with_config(
    topics: &TopicConfigs,
    inputs: Inputs,
    go_on: impl FnOnce(Config) -> ExitCode,
) -> ExitCode {
    let environment = std::env::vars_os()
        .filter_map(|(name, text)| Some((name.into_string().ok()?, lossy(text))));
    let inputs = Inputs {
        variables: environment.collect(),
        available_bytes: config::available_bytes(),
        ..inputs
    };
    match config::load(topics, inputs) {
        Ok(config) => go_on(config),
        Err(error) => refuse(&error),
    }
}

/// A value that isn't Unicode gets replacement characters, and is then refused by name where it is used.
fn lossy(text: OsString) -> String {
    text.to_string_lossy().into_owned()
}

fn refuse(error: &ConfigError) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(EXIT_USAGE)
}

fn check(table: &KeyTable, config: &Config) -> ExitCode {
    print(&config::effective_toml(table, config))
}

/// Prints to standard output, which may be a pipe that its reader has closed.
fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: can't write to standard output: {error}");
            ExitCode::FAILURE
        }
    }
}
