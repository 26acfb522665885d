//! `docs/compatibility.md` says what the code does: its tables are compared with the code.
//!
//! Which APIs are served is private to the broker, so a row that is marked as served by mistake isn't noticed here;
//! its versions are.

use kafka_protocol::messages::ApiKey;
use tidegate_broker::config::TOPIC_CONFIGS;
use tidegate_kafka_wire::api::Advertised;

const PAGE: &str = include_str!("../../../docs/compatibility.md");
/// What stands in place of versions that aren't listed.
const NOT_LISTED: &str = "—";

/// The rows of the table under a heading, without its head.
fn table(heading: &str) -> Vec<Vec<&'static str>> {
    PAGE.split("\n## ")
        .filter(|section| section.starts_with(heading))
        .flat_map(str::lines)
        .filter(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
}

#[test]
fn listed_versions_are_those_that_the_page_shows() {
    let rows = table("APIs");
    assert!(rows.len() > 70, "{} APIs in the table", rows.len());
    for row in rows.iter().filter(|row| row[2] != NOT_LISTED) {
        let key: i16 = row[0].parse().unwrap();
        let api = ApiKey::try_from(key).unwrap();
        assert_eq!(format!("{api:?}"), row[1]);
        let advertised = Advertised::new([api]).unwrap();
        let (_, versions) = advertised.listed().next().unwrap();
        assert_eq!(versions.to_string(), row[2], "{api:?}");
    }
}

#[test]
fn topic_configs_are_those_that_the_page_shows() {
    let rows = table("Topic configs");
    let shown: Vec<_> = rows
        .iter()
        .map(|row| {
            let default = match row[1] {
                "empty" => "",
                written => written.trim_matches('`'),
            };
            let name = row[0].trim_matches('`');
            (name, default, row[2] == "effective", row[3].to_owned())
        })
        .collect();
    let defined: Vec<_> = TOPIC_CONFIGS
        .iter()
        .map(|config| {
            let meaning = meaning(config.doc);
            (config.name, config.default, config.effective, meaning)
        })
        .collect();
    assert_eq!(shown, defined);
}

/// What the page says of a config: its state has a column of its own.
fn meaning(doc: &str) -> String {
    match doc.strip_prefix("Kept for tools: ") {
        Some(why) => why[..1].to_uppercase() + &why[1..],
        None => doc.to_owned(),
    }
}

#[test]
fn only_what_has_an_effect_is_described_as_if_it_had_one() {
    for config in TOPIC_CONFIGS {
        let idle = ["Kept for tools: ", "No effect until "]
            .iter()
            .any(|words| config.doc.starts_with(words));
        assert_eq!(config.effective, !idle, "{}: {}", config.name, config.doc);
    }
}
