//! The command line. The flags of `serve` are those that the table of configuration keys names, with its texts.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{
    Arg, ArgMatches, Args, Command, FromArgMatches, builder::PossibleValuesParser, value_parser,
};

use crate::client::Call;
use crate::config::{CONFIG_VARIABLE, Format, Inputs, Key, KeyTable};
use crate::demo;
use crate::version::VERSION;

/// The hidden flag of `serve` that names the process to end with.
pub const END_WITH: &str = "end-with";

/// What the process was asked to do.
#[derive(Debug)]
pub enum Invocation {
    /// `tidegate serve`.
    Serve {
        inputs: Inputs,
        /// The parent, if the broker shall end when that does.
        end_with: Option<i32>,
    },
    /// `tidegate demo`.
    Demo(demo::Options),
    /// `tidegate config check`.
    Check(Inputs),
    /// `tidegate config reference`.
    Reference(Format),
    /// A command to a running cluster.
    Client(Call),
}

/// Reads the command line; the inputs hold its file and flags, not the environment.
///
/// # Errors
/// Also for `--help` and `--version`: the error's `print` and `exit_code` do the right thing.
pub fn parse(
    table: &KeyTable,
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<Invocation, clap::Error> {
    let matches = command(table).try_get_matches_from(arguments)?;
    match matches.subcommand() {
        Some(("serve", matches)) => Ok(Invocation::Serve {
            inputs: inputs(table, matches),
            end_with: matches.get_one(END_WITH).copied(),
        }),
        Some(("demo", matches)) => Ok(Invocation::Demo(demo::Options::from_arg_matches(matches)?)),
        Some(("config", matches)) => match matches.subcommand() {
            Some(("check", matches)) => Ok(Invocation::Check(inputs(table, matches))),
            Some(("reference", matches)) => Ok(Invocation::Reference(format(matches))),
            _ => Err(unreachable_subcommand(table)),
        },
        Some(_) => Ok(Invocation::Client(Call::from_matches(&matches)?)),
        None => Err(unreachable_subcommand(table)),
    }
}

/// clap demands a subcommand and lets no unknown one pass, so this is never shown.
fn unreachable_subcommand(table: &KeyTable) -> clap::Error {
    command(table).error(
        clap::error::ErrorKind::MissingSubcommand,
        "a command is missing",
    )
}

fn command(table: &KeyTable) -> Command {
    let serve = Command::new("serve")
        .about("Runs a broker")
        .long_about(
            "Runs a broker until it gets SIGTERM or SIGINT. A second signal ends it at once.",
        )
        .args(config_arguments(table))
        .arg(
            Arg::new(END_WITH)
                .long(END_WITH)
                .hide(true)
                .value_parser(value_parser!(i32)),
        );
    let demo = demo::Options::augment_args(Command::new("demo"))
        .about("Shows partitions moving and a broker failing under a producer and a consumer, on this machine");
    let check = Command::new("check")
        .about("Prints the configuration that `serve` would have with these flags, or what is wrong with it")
        .args(config_arguments(table));
    let formats = PossibleValuesParser::new(["toml", "markdown"]);
    let format = Arg::new("format")
        .long("format")
        .value_parser(formats)
        .default_value("toml")
        .help("How to write it");
    let reference = Command::new("reference")
        .about("Prints all configuration keys, with defaults and meaning")
        .arg(format);
    let config = Command::new("config")
        .about("Checks and explains the configuration")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([check, reference]);
    let tidegate = Command::new("tidegate")
        .about("A Kafka-compatible broker whose only durable home is object storage")
        .version(VERSION)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([serve, demo, config]);
    Call::augment(tidegate)
}

fn config_arguments(table: &KeyTable) -> Vec<Arg> {
    let file = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help(format!(
            "The configuration file, TOML [env: {CONFIG_VARIABLE}]"
        ));
    let flagged = table.keys().iter().filter_map(|key| Some((key.flag?, key)));
    std::iter::once(file)
        .chain(flagged.map(|(flag, key)| argument(flag, key)))
        .collect()
}

fn argument(flag: &'static str, key: &Key) -> Arg {
    let help = format!(
        "{} [key: {}; env: {}; default: {}]",
        key.doc_line(),
        key.name,
        key.variable(),
        key.default
    );
    let argument = Arg::new(flag)
        .long(flag.trim_start_matches("--"))
        .help(help);
    if key.kind == "boolean" {
        argument
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_name("BOOLEAN")
    } else {
        // An empty or negative value is the configuration's to refuse, with its own words.
        argument
            .value_name(key.kind.to_uppercase())
            .allow_hyphen_values(true)
    }
}

fn inputs(table: &KeyTable, matches: &ArgMatches) -> Inputs {
    let flags = table.keys().iter().filter_map(|key| key.flag);
    let given = flags.filter_map(|flag| Some((flag, matches.get_one::<String>(flag)?.clone())));
    Inputs {
        file: matches.get_one::<PathBuf>("config").cloned(),
        flags: given.collect(),
        ..Inputs::default()
    }
}

fn format(matches: &ArgMatches) -> Format {
    match matches.get_one::<String>("format").map(String::as_str) {
        Some("markdown") => Format::Markdown,
        _ => Format::Toml,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{TopicConfigs, key_table};

    fn table() -> KeyTable {
        key_table(&TopicConfigs {
            all: Vec::new(),
            check: |_, _| Ok(()),
        })
    }

    fn parse_line(line: &str) -> Result<Invocation, clap::Error> {
        parse(&table(), line.split(' ').map(OsString::from))
    }

    #[test]
    fn the_command_line_is_consistent() {
        command(&table()).debug_assert();
    }

    #[test]
    fn flags_are_passed_on_as_they_are_written() {
        let line = "tidegate serve --config t.toml --store s3://b/p --broker-id -1 --accept-loss";
        let Ok(Invocation::Serve {
            inputs,
            end_with: None,
        }) = parse_line(line)
        else {
            panic!("not serve")
        };
        assert_eq!(inputs.file, Some("t.toml".into()));
        let given = [
            ("--accept-loss", "true"),
            ("--broker-id", "-1"),
            ("--store", "s3://b/p"),
        ];
        let given = given.map(|(flag, text)| (flag, text.to_owned()));
        assert_eq!(inputs.flags.len(), 3);
        assert!(
            given.iter().all(|flag| inputs.flags.contains(flag)),
            "{:?}",
            inputs.flags
        );
    }

    #[test]
    fn a_wrong_command_line_is_a_usage_error() {
        for line in [
            "tidegate serve --stor x",
            "tidegate",
            "tidegate config",
            "tidegate config reference --format xml",
        ] {
            assert_eq!(parse_line(line).unwrap_err().exit_code(), 2, "{line}");
        }
        assert_eq!(parse_line("tidegate --version").unwrap_err().exit_code(), 0);
        let error = parse_line("tidegate serve --kafka-lissten x")
            .unwrap_err()
            .to_string();
        assert!(error.contains("--kafka-listen"), "{error}");
    }
}
