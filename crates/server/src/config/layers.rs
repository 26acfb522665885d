//! The layers of the configuration: defaults, file, environment, flags.
//!
//! All layers are flat maps from key to text, because that is what environment and flags give; TOML's sections
//! are flattened and its numbers and booleans taken as written. So a value is read by one parser wherever it
//! comes from, and every error can name the line, the variable or the flag. (figment guesses the types of
//! variables, so that the rack `007` becomes 7, and knows the file of a value but not its line.)

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigProblem, Refused};
use super::keys::{KeyTable, PREFIX};

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Default,
    File { path: Arc<Path>, line: usize },
    Variable(String),
    Flag(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}, line {line}", path.display()),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::Flag(flag) => write!(f, "flag {flag}"),
        }
    }
}

/// A value as it was written, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    pub text: String,
    pub source: Source,
}

/// What was given, each key by the strongest layer that has it.
#[derive(Debug, Default)]
pub struct Layers {
    given: BTreeMap<String, Given>,
    problems: Vec<ConfigProblem>,
}

/// Variables with our prefix that aren't configuration: other commands', and those of the project's own tests and tools.
const NOT_OURS: [&str; 5] = [
    // Where the commands of clients find the admin API.
    "TIDEGATE_ADMIN",
    "TIDEGATE_BIN",
    "TIDEGATE_TOOLS",
    "TIDEGATE_TEST_",
    "TIDEGATE_CRASH_",
];
/// Names the configuration file, as `--config` does.
pub const CONFIG_VARIABLE: &str = "TIDEGATE_CONFIG";

impl Layers {
    pub fn given(&self, key: &str) -> Option<&Given> {
        self.given.get(key)
    }

    pub fn into_problems(self) -> Vec<ConfigProblem> {
        self.problems
    }

    /// Adds a file. Layers are added from the weakest to the strongest.
    pub fn add_file(&mut self, table: &KeyTable, path: &Path) {
        let path: Arc<Path> = path.into();
        match std::fs::read_to_string(&path) {
            Ok(text) => self.add_toml(table, &path, &text),
            Err(error) => self.problems.push(ConfigProblem::UnreadableFile {
                path: PathBuf::from(&*path),
                error,
            }),
        }
    }

    fn add_toml(&mut self, table: &KeyTable, path: &Arc<Path>, text: &str) {
        let line_of = |position: usize| {
            text.bytes()
                .take(position)
                .filter(|byte| *byte == b'\n')
                .count()
                + 1
        };
        let document = match DeTable::parse(text) {
            Ok(document) => document,
            Err(error) => {
                let source = Source::File {
                    path: path.clone(),
                    line: error.span().map_or(1, |span| line_of(span.start)),
                };
                self.problems.push(ConfigProblem::NotToml {
                    source,
                    message: error.message().to_owned(),
                });
                return;
            }
        };
        let mut found = Vec::new();
        let mut walk = vec![(String::new(), document.get_ref())];
        while let Some((prefix, section)) = walk.pop() {
            for (name, value) in section {
                let key = if prefix.is_empty() {
                    name.get_ref().to_string()
                } else {
                    format!("{prefix}.{}", name.get_ref())
                };
                match value.get_ref() {
                    // `[topics.defaults]` holds names with dots, which TOML takes for sections unless quoted.
                    DeValue::Table(inner) if table.is_section(&key) => walk.push((key, inner)),
                    _ => found.push((key, line_of(name.span().start), value)),
                }
            }
        }
        found.sort_by_key(|(_, line, _)| *line);
        for (key, line, value) in found {
            self.add(
                table,
                &key,
                text_of(value),
                Source::File {
                    path: path.clone(),
                    line,
                },
            );
        }
    }

    /// Adds the variables that begin with `TIDEGATE_`.
    pub fn add_variables(
        &mut self,
        table: &KeyTable,
        variables: impl IntoIterator<Item = (String, String)>,
    ) {
        for (name, text) in variables {
            if !name.starts_with(PREFIX) || name == CONFIG_VARIABLE {
                continue;
            }
            if let Some(key) = table.of_variable(&name) {
                let key = key.name.to_string();
                self.add(table, &key, Some(text), Source::Variable(name));
            } else if !is_foreign(&name, &text) {
                let nearest = table.nearest_variable(&name).map(str::to_owned);
                self.problems
                    .push(ConfigProblem::UnknownVariable { name, nearest });
            }
        }
    }

    /// Adds the value of a command line flag.
    pub fn add_flag(&mut self, table: &KeyTable, flag: &str, text: String) {
        let key = table.keys().iter().find(|key| key.flag == Some(flag));
        // Every flag is some key's, which a test checks.
        let key = key.map_or_else(|| flag.to_owned(), |key| key.name.to_string());
        self.add(table, &key, Some(text), Source::Flag(flag.to_owned()));
    }

    fn add(&mut self, table: &KeyTable, key: &str, text: Option<String>, source: Source) {
        let problem = match text {
            _ if table.is_section(key) => ConfigProblem::Section {
                key: key.to_owned(),
                source,
            },
            _ if table.named(key).is_none() => {
                let nearest = table.nearest(key).map(str::to_owned);
                ConfigProblem::UnknownKey {
                    key: key.to_owned(),
                    source,
                    nearest,
                }
            }
            Some(text) => {
                self.given.insert(key.to_owned(), Given { text, source });
                return;
            }
            None => ConfigProblem::Refused(Refused {
                key: key.to_owned(),
                value: "{…}".to_owned(),
                source,
                refusal: "isn't one value: write a text, a number or a boolean".to_owned(),
            }),
        };
        self.problems.push(problem);
    }
}

/// A TOML value as the text that stands for it; a list of texts with commas, as Kafka writes lists.
fn text_of(value: &Spanned<DeValue<'_>>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
            .ok()
            .map(|number| number.to_string()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(value) => Some(value.to_string()),
        DeValue::Array(items) => {
            let items: Option<Vec<String>> = items.iter().map(text_of).collect();
            items.map(|items| items.join(","))
        }
        DeValue::Datetime(_) | DeValue::Table(_) => None,
    }
}

/// Whether a variable with our prefix comes from somebody else: from our tests, or from Kubernetes, which tells
/// every pod about every service, so that one named `tidegate` makes `TIDEGATE_PORT=tcp://10.0.0.1:9092`.
fn is_foreign(name: &str, text: &str) -> bool {
    let address =
        text.starts_with("tcp://") || text.starts_with("udp://") || text.starts_with("sctp://");
    let port_detail = ["_PROTO", "_PORT", "_ADDR"]
        .iter()
        .any(|end| name.ends_with(end))
        && ["_TCP_", "_UDP_", "_SCTP_"]
            .iter()
            .any(|protocol| name.contains(protocol));
    NOT_OURS
        .iter()
        .any(|tool| name == *tool || (tool.ends_with('_') && name.starts_with(tool)))
        || name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || (address && name.contains("_PORT"))
        || port_detail
}
