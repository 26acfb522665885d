//! Subscriptions by regular expression.

use super::*;

fn by_regex(id: &str, regex: &str) -> Consumer {
    Consumer {
        regex: Some(regex.to_owned()),
        ..Consumer::new(id, &[])
    }
}

#[test]
fn a_regex_subscribes_to_the_topics_that_it_matches_whole() {
    let mut host = host(&[("orders-eu", 1), ("orders-us", 1), ("old-orders-eu", 1)]);
    let mut a = by_regex("a", "orders-.*");
    a.settle(&mut host);
    let mut expected = of("orders-eu", &[0]);
    expected.extend(of("orders-us", &[0]).partitions());
    assert_eq!(a.assigned, expected);
    assert_eq!(
        described(&host).members[0].regex.as_deref(),
        Some("orders-.*")
    );
}

#[test]
fn a_new_topic_that_matches_is_assigned() {
    let mut host = host(&[("t1", 1)]);
    let mut a = by_regex("a", "t[0-9]");
    a.settle(&mut host);
    see(&mut host, &Cluster::new(&[("t1", 1), ("t2", 2), ("tx", 1)]));
    a.settle(&mut host);
    assert_eq!(a.assigned.len(), 3);
    host.restart();
    see(&mut host, &Cluster::new(&[("t1", 1), ("t2", 2), ("tx", 1)]));
    a.settle(&mut host);
    assert_eq!(a.assigned.len(), 3);
}

#[test]
fn names_and_a_regex_go_together_and_the_regex_can_be_withdrawn() {
    let mut host = host(&[("t1", 1), ("u", 1)]);
    let mut a = by_regex("a", "t.*");
    a.topics = vec!["u".to_owned()];
    a.settle(&mut host);
    assert_eq!(a.assigned.len(), 2);
    a.regex = Some(String::new());
    a.settle(&mut host);
    assert_eq!(a.assigned, of("u", &[0]));
}

#[test]
fn what_is_no_regex_is_refused_and_changes_nothing() {
    let mut host = host(&[("t", 1)]);
    let refused = by_regex("a", "[").beat(&mut host);
    assert_eq!(refused, Err(GroupError::InvalidRegularExpression));
    assert!(host.log.is_empty());
    assert!(
        host.coordinator
            .describe_consumer_group(&group("g"))
            .is_err()
    );
}

#[test]
fn a_regex_that_nobody_has_any_more_leaves_no_record() {
    let mut host = host(&[("t", 1)]);
    let (mut a, mut b) = (by_regex("a", "t.*"), by_regex("b", "t.*"));
    a.settle(&mut host);
    b.beat(&mut host).unwrap();
    a.leave(&mut host, MemberEpoch::LEAVING).unwrap();
    let count = |host: &Host| {
        let records = host.coordinator.export();
        records
            .iter()
            .filter(|r| r.key.starts_with(&[0, 16]))
            .count()
    };
    assert_eq!(count(&host), 1);
    b.leave(&mut host, MemberEpoch::LEAVING).unwrap();
    assert_eq!(count(&host), 0);
}
