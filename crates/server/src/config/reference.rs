//! The reference of all keys, and the configuration in force, as text.

use std::fmt::Write;

use super::keys::{Key, KeyTable};
use super::layers::Source;
use super::value::{Secret, Setting};
use super::{CONFIG_VARIABLE, Config, TOPIC_DEFAULTS};

/// How the reference is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A configuration file with every key, its default and its meaning.
    Toml,
    /// The page docs/configuration.md.
    Markdown,
}

/// All keys with type, default, meaning, variable and flag.
pub fn reference(table: &KeyTable, format: Format) -> String {
    match format {
        Format::Toml => toml(table),
        Format::Markdown => markdown(table),
    }
}

fn section_of(key: &Key) -> &str {
    if key.name.starts_with(TOPIC_DEFAULTS) {
        return TOPIC_DEFAULTS.trim_end_matches('.');
    }
    key.name.rsplit_once('.').map_or("", |(section, _)| section)
}

fn name_in_section(key: &Key) -> String {
    let section = section_of(key);
    let name = if section.is_empty() {
        &key.name
    } else {
        &key.name[section.len() + 1..]
    };
    if name.contains('.') {
        format!("\"{name}\"")
    } else {
        name.to_owned()
    }
}

fn value_in_toml(key: &Key, text: &str) -> String {
    let is_bare = key.bare && (text.parse::<f64>().is_ok() || matches!(text, "true" | "false"));
    if is_bare {
        text.to_owned()
    } else {
        toml::Value::String(text.to_owned()).to_string()
    }
}

/// The keys of each section, in the order of the table.
fn sections(table: &KeyTable) -> Vec<(&str, Vec<&Key>)> {
    let mut sections: Vec<(&str, Vec<&Key>)> = Vec::new();
    for key in table.keys() {
        match sections.last_mut() {
            Some((section, keys)) if *section == section_of(key) => keys.push(key),
            _ => sections.push((section_of(key), vec![key])),
        }
    }
    sections
}

fn toml(table: &KeyTable) -> String {
    let mut page = String::from("# Every key of Tidegate's configuration with its default.\n");
    for (section, keys) in sections(table) {
        if !section.is_empty() {
            page += &format!("\n[{section}]\n");
        }
        for key in keys {
            page += "\n";
            for line in key.doc.lines() {
                page += &format!("# {}\n", line.trim());
            }
            let flag = key
                .flag
                .map(|flag| format!(", flag {flag}"))
                .unwrap_or_default();
            page += &format!(
                "# {}{}; variable {}{flag}\n",
                key.kind,
                range(key),
                key.variable()
            );
            page += &format!(
                "#{} = {}\n",
                name_in_section(key),
                value_in_toml(key, &key.default)
            );
        }
    }
    page
}

fn range(key: &Key) -> String {
    key.range
        .map(|(least, most)| format!(", {least} to {most}"))
        .unwrap_or_default()
}

fn markdown(table: &KeyTable) -> String {
    let mut page = format!(
        "# Configuration\n\n\
         <!-- Written by `tidegate config reference --format markdown`; a test compares. Don't edit. -->\n\n\
         A value comes from the strongest of four layers: the default, the file that `--config` (or \
         `{CONFIG_VARIABLE}`) names, the environment, the command line. Sizes are written as `64MiB`, durations as \
         `250ms`, `30s`, `5m`, `12h` or `7d`.\n\n\
         `tidegate config check` takes the flags of `tidegate serve` and prints the configuration in force, with the \
         source of every value that isn't a default, or everything that is wrong with it. `tidegate config reference \
         --format toml` prints a file with all keys to start from.\n\n\
         Credentials and endpoint of the object store aren't keys: they come from the store's standard variables, for \
         S3 `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL` and \
         so on. An `http://` endpoint is allowed.\n"
    );
    for (section, keys) in sections(table) {
        match section {
            "" => page += "\n## Without section\n",
            _ => page += &format!("\n## [{section}]\n"),
        }
        if section == TOPIC_DEFAULTS.trim_end_matches('.') {
            page += "\nThe values of topics that don't set their own, by the names that Kafka's tools use.\n";
        }
        page += "\n| Key | Type | Default | Meaning |\n|---|---|---|---|\n";
        for key in keys {
            page += &markdown_row(key);
        }
    }
    page
}

fn markdown_row(key: &Key) -> String {
    let default = if key.default.is_empty() {
        "empty".to_owned()
    } else {
        format!("`{}`", key.default)
    };
    let flag = key
        .flag
        .map(|flag| format!(", `{flag}`"))
        .unwrap_or_default();
    let meaning = key.doc_line().replace('|', "\\|");
    let name = name_in_section(key).replace('"', "");
    let mut row = String::new();
    // Writing to a string can't fail.
    let _ = writeln!(
        row,
        "| `{name}` | {}{} | {default} | {meaning} <br> `{}`{flag} |",
        key.kind,
        range(key),
        key.variable()
    );
    row
}

/// The configuration in force as a file, with the source of whatever isn't a default.
pub fn effective_toml(table: &KeyTable, config: &Config) -> String {
    let mut page = String::new();
    for (section, keys) in sections(table) {
        if !section.is_empty() {
            page += &format!("\n[{section}]\n");
        }
        for key in keys {
            let Some(effective) = config.effective.get(&*key.name) else {
                continue;
            };
            let from = match &effective.source {
                Source::Default => String::new(),
                source => format!("  # {source}"),
            };
            let name = name_in_section(key);
            if key.kind == Secret::KIND && !effective.text.is_empty() {
                // The page can be used as a file, so nothing may stand for the secret.
                page += &format!("# {name} is set and isn't shown{from}\n");
                continue;
            }
            let value = value_in_toml(key, &effective.text);
            page += &format!("{name} = {value}{from}\n");
        }
    }
    page
}
