//! What can be wrong with a configuration, in words that name the thing, the place and the remedy.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::layers::Source;
use super::value::Refusal;

/// A value that isn't allowed.
#[derive(Debug)]
pub struct Refused {
    pub key: String,
    pub value: String,
    pub source: Source,
    pub refusal: Refusal,
}

/// One thing that is wrong.
#[derive(Debug)]
pub enum ConfigProblem {
    UnreadableFile {
        path: PathBuf,
        error: io::Error,
    },
    NotToml {
        source: Source,
        message: String,
    },
    UnknownKey {
        key: String,
        source: Source,
        nearest: Option<String>,
    },
    UnknownVariable {
        name: String,
        nearest: Option<String>,
    },
    /// A value was given to the name of a section.
    Section {
        key: String,
        source: Source,
    },
    Refused(Refused),
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint = |nearest: &Option<String>| match nearest {
            Some(nearest) => format!("did you mean {nearest}?"),
            None => "`tidegate config reference` lists all keys".to_owned(),
        };
        match self {
            Self::UnreadableFile { path, error } => {
                write!(
                    f,
                    "can't read the configuration file {}: {error}",
                    path.display()
                )
            }
            Self::NotToml { source, message } => {
                write!(f, "{source}: isn't TOML: {}", message.trim())
            }
            Self::UnknownKey {
                key,
                source,
                nearest,
            } => write!(f, "{source}: unknown key {key}; {}", hint(nearest)),
            Self::UnknownVariable { name, nearest } => {
                write!(f, "unknown environment variable {name}; {}", hint(nearest))
            }
            Self::Section { key, source } => {
                write!(
                    f,
                    "{source}: {key} is a section: write [{key}] and its keys below it"
                )
            }
            Self::Refused(Refused {
                key,
                value,
                source: Source::Default,
                refusal,
            }) => {
                write!(f, "{key} = {value:?}, the default, {refusal}")
            }
            Self::Refused(Refused {
                key,
                value,
                source,
                refusal,
            }) => {
                write!(f, "{source}: {key} = {value:?} {refusal}")
            }
        }
    }
}

/// Everything that is wrong with a configuration, at once.
#[derive(Debug)]
pub struct ConfigError {
    pub problems: Vec<ConfigProblem>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.problems.iter().map(ToString::to_string).collect();
        f.write_str(&texts.join("\n       "))
    }
}

impl std::error::Error for ConfigError {}
