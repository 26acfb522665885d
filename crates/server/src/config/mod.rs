//! The configuration: what can be set, where it comes from, and whether it can be used.
//!
//! [`sections`] lists the keys; everything else follows from that list. [`layers`] collects what file,
//! environment and flags give, [`read`] makes typed values of it, [`validate`] checks what values mean together.

mod error;
mod keys;
mod layers;
mod memory;
mod read;
mod reference;
mod sections;
#[cfg(test)]
mod tests;
mod validate;
mod value;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

pub use error::ConfigError;
pub use keys::{Key, KeyTable};
pub use layers::CONFIG_VARIABLE;
use layers::Layers;
use memory::MemoryShares;
pub use memory::available_bytes;
pub use reference::{Format, effective_toml, reference};
pub use sections::{Groups, Log, Transactions};
pub use value::{ByteSize, LogFormat, Setting};

use read::{Effective, Reader};
use sections::{
    Admin, BrokerSection, Cluster, Compaction, Internal, Kafka, Memory, ObjectWal, Store,
    StoreBackground, StoreRead, StoreWal, Top, Topics, Upload, Wal,
};

/// The section of the defaults of topic configs, by their Kafka names.
pub const TOPIC_DEFAULTS: &str = "topics.defaults.";

/// The configs of topics, which the broker crate knows.
#[derive(Debug, Clone)]
pub struct TopicConfigs {
    pub all: Vec<TopicConfig>,
    /// Checks a value; the error says what is allowed.
    pub check: fn(&str, &str) -> Result<(), String>,
}

/// A config of topics, for whose default there is a key.
#[derive(Debug, Clone)]
pub struct TopicConfig {
    pub name: &'static str,
    pub default: &'static str,
    pub kind: String,
    /// Whether the value is a number or a boolean.
    pub bare: bool,
    pub doc: &'static str,
}

/// What the process was given.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    pub file: Option<PathBuf>,
    pub variables: Vec<(String, String)>,
    /// Flags with their values, as `("--data-dir", "/var/lib/tidegate")`.
    pub flags: Vec<(&'static str, String)>,
    /// The memory that the process may take, if it is known.
    pub available_bytes: Option<u64>,
}

/// A configuration that was checked.
#[derive(Debug, Clone)]
pub struct Config {
    pub top: Top,
    pub broker: BrokerSection,
    pub kafka: Kafka,
    pub admin: Admin,
    pub internal: Internal,
    pub cluster: Cluster,
    pub store: Store,
    pub store_wal: StoreWal,
    pub store_read: StoreRead,
    pub store_background: StoreBackground,
    pub wal: Wal,
    pub object_wal: ObjectWal,
    pub upload: Upload,
    pub memory: MemoryShares,
    pub topics: Topics,
    /// The defaults of topic configs that are set, by their Kafka names.
    pub topic_defaults: BTreeMap<String, String>,
    pub compaction: Compaction,
    pub groups: Groups,
    pub transactions: Transactions,
    pub log: Log,
    /// Every key's value in force and its source.
    pub effective: BTreeMap<String, Effective>,
}

/// The table of all keys.
pub fn key_table(topics: &TopicConfigs) -> KeyTable {
    let sections = [
        Top::KEYS,
        BrokerSection::KEYS,
        Kafka::KEYS,
        Admin::KEYS,
        Internal::KEYS,
        Cluster::KEYS,
        Store::KEYS,
        StoreWal::KEYS,
        StoreRead::KEYS,
        StoreBackground::KEYS,
        Wal::KEYS,
        ObjectWal::KEYS,
        Upload::KEYS,
        Memory::KEYS,
        Topics::KEYS,
        Compaction::KEYS,
        Groups::KEYS,
        Transactions::KEYS,
        Log::KEYS,
    ];
    let defaults = topics.all.iter().map(|config| Key {
        name: Cow::Owned(format!("{TOPIC_DEFAULTS}{}", config.name)),
        kind: Cow::Owned(config.kind.clone()),
        bare: config.bare,
        default: Cow::Borrowed(config.default),
        range: None,
        flag: None,
        doc: Cow::Borrowed(config.doc),
    });
    KeyTable::new(
        sections
            .into_iter()
            .flatten()
            .cloned()
            .chain(defaults)
            .collect(),
    )
}

/// Collects, reads and checks the configuration.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load(topics: &TopicConfigs, inputs: Inputs) -> Result<Config, ConfigError> {
    let table = key_table(topics);
    let mut layers = Layers::default();
    let from_variable = || {
        inputs
            .variables
            .iter()
            .find(|(name, _)| name == CONFIG_VARIABLE)
            .map(|(_, path)| path.into())
    };
    if let Some(path) = inputs.file.clone().or_else(from_variable) {
        layers.add_file(&table, &path);
    }
    layers.add_variables(&table, inputs.variables);
    for (flag, text) in inputs.flags {
        layers.add_flag(&table, flag, text);
    }
    let mut reader = Reader::new(&layers);
    let config = read_sections(&mut reader, topics, &table, inputs.available_bytes);
    let (mut effective, found) = (reader.effective, reader.problems);
    let mut problems = layers.into_problems();
    problems.extend(found);
    match config {
        Some(mut config) if problems.is_empty() => {
            config.effective.append(&mut effective);
            Ok(config)
        }
        _ => Err(ConfigError { problems }),
    }
}

fn read_sections(
    reader: &mut Reader<'_>,
    topics: &TopicConfigs,
    table: &KeyTable,
    available_bytes: Option<u64>,
) -> Option<Config> {
    let top = Top::read(reader);
    let broker = BrokerSection::read(reader);
    let kafka = Kafka::read(reader);
    let admin = Admin::read(reader);
    let internal = Internal::read(reader);
    let cluster = Cluster::read(reader);
    let store = Store::read(reader);
    let store_wal = StoreWal::read(reader);
    let store_read = StoreRead::read(reader);
    let store_background = StoreBackground::read(reader);
    let wal = Wal::read(reader);
    let object_wal = ObjectWal::read(reader);
    let upload = Upload::read(reader);
    let memory = Memory::read(reader);
    let topic_section = Topics::read(reader);
    let topic_defaults = read_topic_defaults(reader, topics, table);
    let compaction = Compaction::read(reader);
    let groups = Groups::read(reader);
    let transactions = Transactions::read(reader);
    let log = Log::read(reader);
    let memory = validate::memory(reader, &memory?, available_bytes);
    let config = Config {
        top: top?,
        broker: broker?,
        kafka: kafka?,
        admin: admin?,
        internal: internal?,
        cluster: cluster?,
        store: store?,
        store_wal: store_wal?,
        store_read: store_read?,
        store_background: store_background?,
        wal: wal?,
        object_wal: object_wal?,
        upload: upload?,
        memory: memory?,
        topics: topic_section?,
        topic_defaults,
        compaction: compaction?,
        groups: groups?,
        transactions: transactions?,
        log: log?,
        effective: BTreeMap::new(),
    };
    validate::together(reader, &config);
    Some(config)
}

/// The defaults of topic configs that are set. The broker checks the values.
fn read_topic_defaults(
    reader: &mut Reader<'_>,
    topics: &TopicConfigs,
    table: &KeyTable,
) -> BTreeMap<String, String> {
    let mut set = BTreeMap::new();
    for config in &topics.all {
        let name = format!("{TOPIC_DEFAULTS}{}", config.name);
        let Some(text) = table
            .named(&name)
            .and_then(|key| reader.read::<String>(key))
        else {
            continue;
        };
        if !reader.is_set(&name) {
            continue;
        }
        match (topics.check)(config.name, &text) {
            Ok(()) => {
                set.insert(config.name.to_owned(), text);
            }
            Err(refusal) => reader.refuse(&name, refusal),
        }
    }
    set
}
