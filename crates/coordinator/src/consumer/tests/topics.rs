//! Topics that come, grow and go.

use super::*;

#[test]
fn a_topic_that_grows_is_seen_with_the_next_heartbeat() {
    let mut host = host(&[("t", 1), ("u", 1)]);
    let mut a = Consumer::new("a", &["t"]);
    a.settle(&mut host);
    let epoch = described(&host).epoch;
    see(&mut host, &Cluster::new(&[("t", 1), ("u", 5)]));
    a.settle(&mut host);
    assert_eq!(described(&host).epoch, epoch, "it isn't subscribed to");
    see(&mut host, &Cluster::new(&[("t", 3), ("u", 5)]));
    let answer = send(&mut host, a.short_request()).unwrap();
    assert_eq!(answer.assignment, Some(of("t", &[0, 1, 2])));
    assert!(described(&host).epoch > epoch);
}

#[test]
fn a_topic_may_come_after_its_subscriber_and_go_before_it() {
    let mut host = host(&[]);
    let mut a = Consumer::new("a", &["t"]);
    a.settle(&mut host);
    assert!(a.assigned.is_empty());
    see(&mut host, &Cluster::new(&[("t", 2)]));
    a.settle(&mut host);
    assert_eq!(a.assigned, of("t", &[0, 1]));
    see(&mut host, &Cluster::new(&[]));
    a.settle(&mut host);
    assert!(a.assigned.is_empty());
    assert_eq!(state(&host), ConsumerGroupState::Stable);
}

#[test]
fn a_topic_made_again_under_its_name_is_another_one() {
    let mut host = host(&[("t", 2)]);
    let mut a = Consumer::new("a", &["t"]);
    a.settle(&mut host);
    let mut cluster = Cluster::new(&[("t", 2)]);
    let other = topic_id("other");
    cluster.topics.insert("t".to_owned(), (other, 2));
    see(&mut host, &cluster);
    a.settle(&mut host);
    assert!(a.assigned.topics().all(|(id, _)| id == other));
    assert_eq!(a.assigned.len(), 2);
}

#[test]
fn a_changed_subscription_raises_the_epoch_and_a_repeated_one_does_not() {
    let mut host = host(&[("t", 1), ("u", 1)]);
    let mut a = Consumer::new("a", &["t"]);
    a.settle(&mut host);
    let epoch = described(&host).epoch;
    a.topics = vec!["u".to_owned()];
    a.settle(&mut host);
    assert_eq!(described(&host).epoch, epoch.next());
    assert_eq!(a.assigned, of("u", &[0]));
    let records = host.log.len();
    a.settle(&mut host);
    assert_eq!(host.log.len(), records, "nothing to store");
}
