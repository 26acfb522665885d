//! The types that a configuration key can have: how a value is written, read and shown.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_broker::MigrationPolicy;
use tidegate_object_storage::StoreUrl;
use tidegate_types::{BrokerId, DurabilityMode};

/// A value that isn't allowed: what is wrong and how to mend it, to be shown after the value itself.
pub type Refusal = String;

/// A type of configuration values. All layers give texts; TOML's numbers and booleans are taken as written.
pub trait Setting: Sized + fmt::Debug {
    /// What the reference calls the type.
    const KIND: &'static str;
    /// Whether TOML writes the value bare, without quotes.
    const BARE: bool = false;
    fn parse(text: &str) -> Result<Self, Refusal>;
    /// The value as [`Setting::parse`] reads it.
    fn show(&self) -> String;
    /// The place of the value in its range, for types that have ranges.
    fn rank(&self) -> Option<u128> {
        None
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// A text that nobody is shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text itself; it must not get into logs or answers.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.show())
    }
}

impl Setting for Secret {
    const KIND: &'static str = "secret";

    /// Never refuses: a refusal would show the text.
    fn parse(text: &str) -> Result<Self, Refusal> {
        Ok(Self(text.trim().to_owned()))
    }

    fn show(&self) -> String {
        if self.0.is_empty() {
            String::new()
        } else {
            "(set)".to_owned()
        }
    }
}

const UNITS: [(&str, u64); 4] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];
const DECIMAL_UNITS: [(&str, u64); 4] = [
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
];

impl ByteSize {
    pub fn bytes(self) -> u64 {
        self.0
    }

    /// The size in memory; a size that memory can't have becomes the largest.
    pub fn in_memory(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl Setting for ByteSize {
    const KIND: &'static str = "size";

    fn parse(text: &str) -> Result<Self, Refusal> {
        let refusal = || {
            "isn't a size: write a whole number with a unit, as 64MiB, 512KiB or 4096".to_owned()
        };
        let (number, unit) = split_unit(text);
        let number: u64 = number.parse().map_err(|_| refusal())?;
        let known = UNITS
            .iter()
            .chain(&DECIMAL_UNITS)
            .find(|(name, _)| name.eq_ignore_ascii_case(unit));
        let scale = match known {
            Some((_, scale)) => *scale,
            None if unit.is_empty() || unit.eq_ignore_ascii_case("B") => 1,
            None => return Err(refusal()),
        };
        number
            .checked_mul(scale)
            .map(Self)
            .ok_or_else(|| "is more than 64 bits can count".to_owned())
    }

    fn show(&self) -> String {
        let unit = UNITS
            .iter()
            .find(|(_, scale)| self.0 > 0 && self.0.is_multiple_of(*scale));
        match unit {
            Some((unit, scale)) => format!("{}{unit}", self.0 / scale),
            None => self.0.to_string(),
        }
    }

    fn rank(&self) -> Option<u128> {
        Some(u128::from(self.0))
    }
}

const TIMES: [(&str, u64); 6] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

impl Setting for Duration {
    const KIND: &'static str = "duration";

    fn parse(text: &str) -> Result<Self, Refusal> {
        let refusal = || {
            "isn't a duration: write a whole number with a unit, as 250ms, 30s, 5m, 12h or 7d"
                .to_owned()
        };
        let (number, unit) = split_unit(text);
        let number: u64 = number.parse().map_err(|_| refusal())?;
        let (_, scale) = TIMES
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(refusal)?;
        number
            .checked_mul(*scale)
            .map(Duration::from_micros)
            .ok_or_else(|| "is longer than 64 bits can count".to_owned())
    }

    fn show(&self) -> String {
        let micros = self.as_micros();
        let unit = TIMES
            .iter()
            .find(|(_, scale)| micros > 0 && micros.is_multiple_of(u128::from(*scale)));
        match unit {
            Some((unit, scale)) => format!("{}{unit}", micros / u128::from(*scale)),
            None => "0s".to_owned(),
        }
    }

    fn rank(&self) -> Option<u128> {
        Some(self.as_micros())
    }
}

fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

macro_rules! whole_number {
    ($($type:ty),+) => { $(
        impl Setting for $type {
            const KIND: &'static str = "number";
            const BARE: bool = true;

            fn parse(text: &str) -> Result<Self, Refusal> {
                text.trim().parse().map_err(|_| format!("isn't a whole number from {} to {}", <$type>::MIN, <$type>::MAX))
            }

            fn show(&self) -> String {
                self.to_string()
            }

            fn rank(&self) -> Option<u128> {
                u128::try_from(*self).ok()
            }
        }
    )+ };
}
whole_number!(u16, u32, usize);

impl Setting for bool {
    const KIND: &'static str = "boolean";
    const BARE: bool = true;

    fn parse(text: &str) -> Result<Self, Refusal> {
        match text.trim() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err("is neither true nor false".to_owned()),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Setting for String {
    const KIND: &'static str = "text";

    fn parse(text: &str) -> Result<Self, Refusal> {
        Ok(text.trim().to_owned())
    }

    fn show(&self) -> String {
        self.clone()
    }
}

impl Setting for PathBuf {
    const KIND: &'static str = "folder";

    fn parse(text: &str) -> Result<Self, Refusal> {
        if text.is_empty() {
            return Err("names no folder: write a path, as ./tidegate-data".to_owned());
        }
        Ok(Self::from(text))
    }

    fn show(&self) -> String {
        self.display().to_string()
    }
}

impl Setting for SocketAddr {
    const KIND: &'static str = "address";

    fn parse(text: &str) -> Result<Self, Refusal> {
        text.trim().parse().map_err(|_| {
            "isn't an address to listen on: write an IP address of this host and a port, as 127.0.0.1:9092, \
             0.0.0.0:9092 or [::1]:9092"
                .to_owned()
        })
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// A host name or address and a port that clients can reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    pub host: String,
    pub port: u16,
}

impl Setting for HostPort {
    const KIND: &'static str = "host:port";

    fn parse(text: &str) -> Result<Self, Refusal> {
        let refusal = || {
            "isn't host:port: write what clients connect to, as broker-1.example.org:9092"
                .to_owned()
        };
        let (host, port) = text.trim().rsplit_once(':').ok_or_else(refusal)?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').ok_or_else(refusal)?,
            None if host.contains(':') => {
                return Err("is an IPv6 address without brackets: write [::1]:9092".to_owned());
            }
            None => host,
        };
        if host.is_empty() || host.contains(['/', ' ', '@']) {
            return Err(refusal());
        }
        let port = port
            .parse()
            .ok()
            .filter(|port| *port != 0)
            .ok_or_else(refusal)?;
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }

    fn show(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl Setting for StoreUrl {
    const KIND: &'static str = "URL or folder";

    fn parse(text: &str) -> Result<Self, Refusal> {
        text.parse()
            .map_err(|error: tidegate_object_storage::InvalidStoreUrl| {
                format!("isn't an object store: {}; {}", error.problem, error.remedy)
            })
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Setting for DurabilityMode {
    const KIND: &'static str = "local or object";

    fn parse(text: &str) -> Result<Self, Refusal> {
        text.trim().parse().map_err(|_| {
            "isn't a durability mode: write local (acknowledged from this broker's disk) or object (acknowledged \
             from object storage)"
                .to_owned()
        })
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Setting for MigrationPolicy {
    const KIND: &'static str = "disabled, upgrade, downgrade or bidirectional";

    fn parse(text: &str) -> Result<Self, Refusal> {
        Self::by_name(text.trim()).ok_or_else(|| {
            "isn't a migration policy: write disabled, upgrade (to the consumer protocol), downgrade (from it) or \
             bidirectional"
                .to_owned()
        })
    }

    fn show(&self) -> String {
        self.name().to_owned()
    }
}

impl Setting for BrokerId {
    const KIND: &'static str = "number";
    const BARE: bool = true;

    fn parse(text: &str) -> Result<Self, Refusal> {
        let number = text.trim().parse::<i32>().ok();
        number
            .and_then(|number| Self::from_wire(number).ok())
            .ok_or_else(|| {
                format!(
                    "isn't a broker id: write a whole number from 0 to {}",
                    i32::MAX
                )
            })
    }

    fn show(&self) -> String {
        self.to_wire().to_string()
    }
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

impl Setting for LogFormat {
    const KIND: &'static str = "text or json";

    fn parse(text: &str) -> Result<Self, Refusal> {
        match text.trim() {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("isn't a log format: write text or json".to_owned()),
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::Json => "json".to_owned(),
        }
    }
}

/// What is logged: a level for Tidegate's own code, or filter directives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFilter {
    text: String,
    directives: String,
}

impl LogFilter {
    /// Directives in the syntax of `tracing_subscriber::EnvFilter`.
    pub fn directives(&self) -> &str {
        &self.directives
    }
}

impl Setting for LogFilter {
    const KIND: &'static str = "level";

    fn parse(text: &str) -> Result<Self, Refusal> {
        let text = text.trim().to_owned();
        let directives = match text.as_str() {
            "off" | "error" => text.clone(),
            // Libraries at `info` tell about themselves, not about the broker.
            "warn" | "info" | "debug" | "trace" => format!("warn,tidegate={text}"),
            _ => text.clone(),
        };
        match tracing_subscriber::EnvFilter::try_new(&directives) {
            Ok(_) if directives.contains(['=', ',']) || directives == "off" || directives == "error" => {
                Ok(Self { text, directives })
            }
            Ok(_) | Err(_) => Err("isn't a log level: write error, warn, info, debug or trace, or directives such as \
                 info,tidegate_wal=debug"
                .to_owned()),
        }
    }

    fn show(&self) -> String {
        self.text.clone()
    }
}

/// A value that follows from others where none is set.
impl<T: Setting> Setting for Option<T> {
    const KIND: &'static str = T::KIND;
    const BARE: bool = T::BARE;

    fn parse(text: &str) -> Result<Self, Refusal> {
        if text == "auto" {
            Ok(None)
        } else {
            T::parse(text).map(Some)
        }
    }

    fn show(&self) -> String {
        match self {
            Some(value) => value.show(),
            None => "auto".to_owned(),
        }
    }

    fn rank(&self) -> Option<u128> {
        self.as_ref().and_then(T::rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<T: Setting>(text: &str) -> String {
        T::parse(text).unwrap().show()
    }

    #[test]
    fn sizes_are_read_with_units_and_shown_in_the_largest_that_fits() {
        for (text, bytes, shown) in [
            ("4096", 4096, "4KiB"),
            ("64MiB", 64 << 20, "64MiB"),
            ("64 mib", 64 << 20, "64MiB"),
            ("1GB", 1_000_000_000, "1000000000"),
            ("1536KiB", 1536 << 10, "1536KiB"),
            ("0", 0, "0"),
            ("7B", 7, "7"),
        ] {
            let size = ByteSize::parse(text).unwrap();
            assert_eq!(
                (size.bytes(), size.show().as_str()),
                (bytes, shown),
                "{text}"
            );
            assert_eq!(ByteSize::parse(shown), Ok(size));
        }
        for text in ["", "MiB", "-1", "1.5GiB", "64MiBs", "20000000TiB", "lots"] {
            assert!(ByteSize::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_need_a_unit_and_are_shown_in_the_largest_that_fits() {
        for (text, shown) in [
            ("250ms", "250ms"),
            ("120s", "2m"),
            ("36h", "36h"),
            ("7d", "7d"),
            ("100us", "100us"),
            ("0s", "0s"),
        ] {
            assert_eq!(round_trip::<Duration>(text), shown);
        }
        for text in ["", "250", "ms", "1.5s", "-1s", "1w", "99999999999999999d"] {
            assert!(Duration::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_clients_connect_to_is_a_host_and_a_real_port() {
        for text in ["broker.example.org:9092", "10.0.0.1:1", "[::1]:9092"] {
            assert_eq!(round_trip::<HostPort>(text), text);
        }
        for text in [
            "broker",
            "broker:",
            ":9092",
            "broker:0",
            "broker:65536",
            "::1:9092",
            "http://b:1",
            "[::1:9092",
        ] {
            assert!(HostPort::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_level_is_for_our_own_code_and_directives_pass_through() {
        assert_eq!(
            LogFilter::parse("debug").unwrap().directives(),
            "warn,tidegate=debug"
        );
        assert_eq!(
            LogFilter::parse("info,slatedb=debug").unwrap().directives(),
            "info,slatedb=debug"
        );
        for text in ["loud", "", "info,=x=y"] {
            assert!(LogFilter::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_refusal_tells_how_to_mend_it() {
        let store = StoreUrl::parse("s4://b").unwrap_err();
        assert!(
            store.contains("\"s4\" is unknown") && store.contains("s3://<bucket>"),
            "{store}"
        );
        assert!(
            <SocketAddr as Setting>::parse("localhost:9092")
                .unwrap_err()
                .contains("127.0.0.1:9092")
        );
        assert!(u16::parse("70000").unwrap_err().contains("65535"));
    }
}
