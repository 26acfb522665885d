//! The page about compatibility says what the code does.

use std::collections::BTreeMap;

use kafka_protocol::messages::ApiKey;
use tidegate_kafka_wire::api::Advertised;

use super::advertised;

const PAGE: &str = include_str!("../../../../../docs/compatibility.md");

/// Key → (name, what is served here), of every line of the page's table of APIs.
fn rows(page: &str) -> BTreeMap<i16, (String, String)> {
    let lines = page.lines().filter_map(|line| {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        let key: i16 = cells.next()?.parse().ok()?;
        Some((key, (cells.next()?.to_owned(), cells.next()?.to_owned())))
    });
    lines.collect()
}

/// What of a page isn't so.
fn objections(page: &str, advertised: &Advertised) -> Vec<String> {
    let rows = rows(page);
    let listed: BTreeMap<i16, (ApiKey, String)> = advertised
        .listed()
        .map(|(key, versions)| (key as i16, (key, versions.to_string())))
        .collect();
    let wrong = rows.iter().filter_map(|(key, (name, told))| {
        let (known, served) = match listed.get(key) {
            Some((known, versions)) => (Some(*known), versions.as_str()),
            None => (ApiKey::try_from(*key).ok(), "—"),
        };
        let named = known.is_none_or(|known| format!("{known:?}") == *name);
        (told != served || !named)
            .then(|| format!("row {key} says {name} {told}; the code serves {known:?} {served}"))
    });
    let missing = listed
        .iter()
        .filter(|(key, _)| !rows.contains_key(key))
        .map(|(key, (name, versions))| format!("no row for {key}, {name:?} {versions}"));
    wrong.chain(missing).collect()
}

#[test]
fn the_page_about_compatibility_lists_what_is_served() {
    let advertised = advertised().unwrap();
    assert!(rows(PAGE).len() >= 70, "the table has got another form");
    let objections = objections(PAGE, &advertised);
    assert!(
        objections.is_empty(),
        "docs/compatibility.md: {objections:#?}"
    );
}

#[test]
fn each_way_to_be_wrong_is_noticed() {
    let advertised = Advertised::new([ApiKey::Fetch, ApiKey::Heartbeat]).unwrap();
    let right =
        "| 1 | Fetch | 4–18 | x |\n| 12 | Heartbeat | 0–4 | x |\n| 13 | LeaveGroup | — | x |";
    assert_eq!(objections(right, &advertised), Vec::<String>::new());
    let wrong = [
        right.replace("4–18", "4–17"),
        right.replace("4–18", "—"),
        right.replace("—", "0–5"),
        right.replace("Heartbeat", "JoinGroup"),
        right.replace("| 12 |", "| x |"),
    ];
    for page in wrong {
        assert!(!objections(&page, &advertised).is_empty(), "{page}");
    }
}
