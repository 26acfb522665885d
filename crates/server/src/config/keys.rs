//! The table of all keys: what the reference prints and what unknown keys are compared with.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// One configuration key.
#[derive(Debug, Clone)]
pub struct Key {
    /// The name, with dots between sections, as `wal.capacity_bytes`.
    pub name: Cow<'static, str>,
    /// What the reference calls its type.
    pub kind: Cow<'static, str>,
    /// Whether TOML writes the value without quotes.
    pub bare: bool,
    pub default: Cow<'static, str>,
    /// The smallest and the largest value.
    pub range: Option<(&'static str, &'static str)>,
    /// The command line flag that sets it.
    pub flag: Option<&'static str>,
    /// What it does, in lines.
    pub doc: Cow<'static, str>,
}

impl Key {
    /// The environment variable that sets the key.
    pub fn variable(&self) -> String {
        // A flag's variable is named like the flag.
        variable_of(
            self.flag
                .map_or(&*self.name, |flag| flag.trim_start_matches("--")),
        )
    }

    /// The documentation on one line.
    pub fn doc_line(&self) -> String {
        self.doc.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

fn variable_of(name: &str) -> String {
    format!("{PREFIX}{}", name.replace(['.', '-'], "_").to_uppercase())
}

/// What all environment variables begin with.
pub const PREFIX: &str = "TIDEGATE_";

/// All keys, by name and by environment variable.
#[derive(Debug, Clone)]
pub struct KeyTable {
    keys: Vec<Key>,
    by_name: BTreeMap<String, usize>,
    by_variable: BTreeMap<String, usize>,
}

impl KeyTable {
    pub fn new(keys: Vec<Key>) -> Self {
        let by_name = keys
            .iter()
            .enumerate()
            .map(|(at, key)| (key.name.to_string(), at))
            .collect();
        // A key with a flag is also known by its own name: TIDEGATE_STORE and TIDEGATE_STORE_URL.
        let variables =
            |(at, key): (usize, &Key)| [(variable_of(&key.name), at), (key.variable(), at)];
        let by_variable = keys.iter().enumerate().flat_map(variables).collect();
        Self {
            keys,
            by_name,
            by_variable,
        }
    }

    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    pub fn named(&self, name: &str) -> Option<&Key> {
        self.by_name.get(name).map(|at| &self.keys[*at])
    }

    /// The key that a variable sets. Sections may also be set off by two underscores, as other tools do it:
    /// `TIDEGATE_WAL__CAPACITY_BYTES` is `TIDEGATE_WAL_CAPACITY_BYTES`.
    pub fn of_variable(&self, variable: &str) -> Option<&Key> {
        let variable = variable.replace("__", "_");
        self.by_variable.get(&variable).map(|at| &self.keys[*at])
    }

    /// Whether any key lies below this section.
    pub fn is_section(&self, name: &str) -> bool {
        self.keys.iter().any(|key| {
            key.name
                .strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('.'))
        })
    }

    /// The key whose name is most like `name`, if any is like it at all.
    pub fn nearest(&self, name: &str) -> Option<&str> {
        let names = self.keys.iter().map(|key| &*key.name);
        nearest(name, names).or_else(|| {
            // A right name in the wrong section is the most common slip.
            let last = name.rsplit('.').next()?;
            let mut same = self
                .keys
                .iter()
                .filter(|key| key.name.rsplit('.').next() == Some(last));
            same.next().map(|key| &*key.name)
        })
    }

    /// The variable that is most like `variable`, if any is like it at all.
    pub fn nearest_variable(&self, variable: &str) -> Option<&str> {
        nearest(
            &variable.replace("__", "_"),
            self.by_variable.keys().map(String::as_str),
        )
    }
}

fn nearest<'a>(wanted: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let most = (wanted.chars().count() / 3).max(2);
    known
        .map(|name| (strsim::damerau_levenshtein(name, wanted), name))
        .min()
        .filter(|(distance, _)| *distance <= most)
        .map(|(_, name)| name)
}
