//! The commands that talk to a running cluster: `tidegate topic|partition|broker|group|cluster|reassignment`.
//!
//! They are the admin API as a command line, and know nothing that it doesn't say.

mod api;
mod arguments;
mod brokers;
mod cluster;
mod groups;
mod moves;
mod progress;
mod table;
mod topics;

use std::process::ExitCode;

pub use arguments::Call;
use arguments::{Command, Connection};

pub use api::{Api, CallError, read};

/// The cluster refused, or it isn't done.
const EXIT_REFUSED: u8 = 1;
/// Nobody answers, or there is no controller (`EX_UNAVAILABLE` of sysexits).
const EXIT_UNAVAILABLE: u8 = 69;

/// What a command has to say.
struct Said {
    /// For standard output.
    text: String,
    /// Whether it is all that was asked for.
    done: bool,
}

impl Said {
    fn done(text: String) -> Self {
        Self { text, done: true }
    }
}

/// Shows answers as the user wants them.
#[derive(Debug, Clone, Copy)]
struct Style {
    json: bool,
}

impl Style {
    /// The answer itself for programs, what `table` makes of it for people.
    fn show<T: serde::de::DeserializeOwned>(
        self,
        answer: serde_json::Value,
        table: impl FnOnce(T) -> String,
    ) -> Result<String, CallError> {
        if self.json {
            return Ok(format!("{answer:#}\n"));
        }
        Ok(table(api::read(answer)?))
    }
}

/// Carries a command out. Answers what to print and how to exit.
pub fn run(call: Call) -> (String, ExitCode) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: can't start: {error}");
            return (String::new(), ExitCode::FAILURE);
        }
    };
    match runtime.block_on(carry_out(call)) {
        Ok(Said { text, done: true }) => (text, ExitCode::SUCCESS),
        Ok(Said { text, done: false }) => (text, ExitCode::from(EXIT_REFUSED)),
        Err(error) => {
            eprintln!("error: {error}");
            let code = if error.is_unavailable() {
                EXIT_UNAVAILABLE
            } else {
                EXIT_REFUSED
            };
            (String::new(), ExitCode::from(code))
        }
    }
}

async fn carry_out(call: Call) -> Result<Said, CallError> {
    let Connection { admin, token, json } = call.connection;
    let api = Api::new(&admin, token)?;
    let style = Style { json };
    match call.command {
        Command::Topic(command) => topics::carry_out(&api, style, command).await,
        Command::Partition(command) => moves::carry_out(&api, style, command).await,
        Command::Broker(command) => brokers::carry_out(&api, style, command).await,
        Command::Group(command) => groups::carry_out(&api, style, command).await,
        Command::Cluster(command) => cluster::carry_out(&api, style, command).await,
        Command::Reassignment(command) => moves::list(&api, style, command).await,
    }
}
