//! Reading typed values from the layers.

use std::collections::BTreeMap;

use super::error::{ConfigProblem, Refused};
use super::keys::Key;
use super::layers::{Given, Layers, Source};
use super::value::Setting;

/// The value of a key in force, as text, and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effective {
    pub text: String,
    pub source: Source,
}

/// Reads values and keeps what is wrong with them.
pub struct Reader<'a> {
    layers: &'a Layers,
    pub effective: BTreeMap<String, Effective>,
    pub problems: Vec<ConfigProblem>,
}

impl<'a> Reader<'a> {
    pub fn new(layers: &'a Layers) -> Self {
        Self {
            layers,
            effective: BTreeMap::new(),
            problems: Vec::new(),
        }
    }

    /// The value of a key, or `None` after a problem was noted.
    pub fn read<T: Setting>(&mut self, key: &Key) -> Option<T> {
        let default = Given {
            text: key.default.to_string(),
            source: Source::Default,
        };
        let given = self.layers.given(&key.name).unwrap_or(&default);
        let value = T::parse(&given.text).and_then(|value| within(key, value));
        match value {
            Ok(value) => {
                self.note(key, value.show(), given.source.clone());
                Some(value)
            }
            Err(refusal) => {
                self.problems.push(ConfigProblem::Refused(Refused {
                    key: key.name.to_string(),
                    value: given.text.clone(),
                    source: given.source.clone(),
                    refusal,
                }));
                None
            }
        }
    }

    /// Whether any layer sets the key.
    pub fn is_set(&self, key: &str) -> bool {
        self.layers.given(key).is_some()
    }

    /// The source of the value in force.
    pub fn source(&self, key: &str) -> Source {
        self.layers
            .given(key)
            .map_or(Source::Default, |given| given.source.clone())
    }

    /// Notes what a value that followed from others became.
    pub fn resolve(&mut self, key: &str, text: String) {
        let source = self.source(key);
        self.effective
            .insert(key.to_owned(), Effective { text, source });
    }

    /// Notes the value in force.
    fn note(&mut self, key: &Key, text: String, source: Source) {
        self.effective
            .insert(key.name.to_string(), Effective { text, source });
    }

    /// Refuses a value that was read, for what it means together with others.
    pub fn refuse(&mut self, key: &str, refusal: String) {
        let effective = self.effective.get(key).cloned();
        let Effective { text, source } = effective.unwrap_or_else(|| Effective {
            text: String::new(),
            source: Source::Default,
        });
        self.problems.push(ConfigProblem::Refused(Refused {
            key: key.to_owned(),
            value: text,
            source,
            refusal,
        }));
    }
}

fn within<T: Setting>(key: &Key, value: T) -> Result<T, String> {
    let (Some((least, most)), Some(rank)) = (key.range, value.rank()) else {
        return Ok(value);
    };
    let bound = |text: &str| T::parse(text).ok().and_then(|bound| bound.rank());
    let fits = bound(least).is_none_or(|least| least <= rank)
        && bound(most).is_none_or(|most| rank <= most);
    if fits {
        Ok(value)
    } else {
        Err(format!("is out of range: write {least} to {most}"))
    }
}
