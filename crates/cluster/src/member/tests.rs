//! Members of one cluster against each other, under paused time: every wait below is a jump of the clock.

mod rig;

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_metadata::{ControllerUnavailable, Endpoint};
use tidegate_types::BrokerEpoch;
use tokio::time::Instant;
use uuid::Uuid;

use super::*;
use rig::{LEASE, Node, Reachable, World, broker};

const SECOND: Duration = Duration::from_secs(1);

async fn first_and_second(world: &World) -> (Node, Node) {
    let first = world.start(1);
    first.becomes_controller().await;
    first.join().await;
    let second = world.start(2);
    second.join().await;
    first.connects().await;
    second.connects().await;
    (first, second)
}

#[tokio::test(start_paused = true)]
async fn a_single_broker_of_an_empty_store_is_the_controller_without_waiting() {
    let world = World::default();
    let start = Instant::now();
    let only = world.start(1);
    only.becomes_controller().await;
    only.join().await;
    only.connects().await;
    only.create("orders").await.unwrap();
    assert!(only.shows("orders"));
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(only.faults.lists.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_restarted_broker_takes_its_own_lease_over_at_once() {
    let world = World::default();
    let only = world.start(1);
    only.becomes_controller().await;
    only.kill().await;
    let start = Instant::now();
    let again = world.start(1);
    again.becomes_controller().await;
    assert_eq!(start.elapsed(), Duration::ZERO);
    let term = world.terms().pop().unwrap();
    assert_eq!(term.presumed_dead(), None);
}

#[tokio::test(start_paused = true)]
async fn of_brokers_that_start_at_once_one_is_the_controller_and_the_others_follow() {
    let world = World::default();
    let nodes: Vec<Node> = (1..=5).map(|id| world.start(id)).collect();
    for node in &nodes {
        node.join().await;
    }
    for node in &nodes {
        node.connects().await;
    }
    tokio::time::sleep(30 * SECOND).await;
    let controllers = nodes.iter().filter(|node| node.is_controller()).count();
    assert_eq!(controllers, 1);
    assert_eq!(world.terms().len(), 1);
    nodes[4].create("orders").await.unwrap();
    for node in &nodes {
        let mut images = node.member.images();
        images
            .wait_for(|image| image.topic("orders").is_some())
            .await
            .unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_broker_with_a_session_does_not_look_at_the_lease() {
    let world = World::default();
    let (_first, second) = first_and_second(&world).await;
    let before = second.faults.requests.load(Ordering::SeqCst);
    tokio::time::sleep(600 * SECOND).await;
    assert_eq!(second.faults.requests.load(Ordering::SeqCst), before);
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_dead_controller_is_taken_over_when_it_has_lapsed_and_not_before() {
    let world = World::default();
    let (first, second) = first_and_second(&world).await;
    // So long that the numbers a listing showed at the start are gone.
    tokio::time::sleep(300 * SECOND).await;
    first.kill().await;
    let died = Instant::now();
    second.becomes_controller().await;
    assert!(died.elapsed() >= LEASE, "{:?}", died.elapsed());
    assert!(died.elapsed() <= LEASE + LEASE / 4, "{:?}", died.elapsed());
    let term = world.terms().pop().unwrap();
    assert_eq!(term.presumed_dead(), Some(broker(1)));
    second.connects().await;
    second.create("orders").await.unwrap();
    assert!(second.shows("orders"));
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_controller_whose_process_died_is_taken_over_at_once() {
    let world = World::default();
    let (first, second) = first_and_second(&world).await;
    let died = Instant::now();
    first.kill_process().await;
    second.becomes_controller().await;
    assert!(died.elapsed() <= LEASE / 4, "{:?}", died.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_over_at_once_and_its_holder_does_not_come_back() {
    let world = World::default();
    let (first, second) = first_and_second(&world).await;
    let start = Instant::now();
    first.member.resign(5 * SECOND).await;
    assert!(!first.is_controller());
    second.becomes_controller().await;
    assert!(start.elapsed() < LEASE / 2, "{:?}", start.elapsed());
    let term = world.terms().pop().unwrap();
    assert_eq!(term.presumed_dead(), None);
    // It goes on as a broker.
    first.connects().await;
    first.create("orders").await.unwrap();
    second.kill().await;
    tokio::time::sleep(60 * SECOND).await;
    assert!(!first.is_controller());
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_resigned_before_it_was_elected_is_never_elected() {
    let world = World::default();
    let (first, second) = first_and_second(&world).await;
    second.member.resign(SECOND).await;
    first.kill().await;
    tokio::time::sleep(60 * SECOND).await;
    assert!(!second.is_controller());
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_was_paused_steps_down_when_it_wakes() {
    for pause in [10 * SECOND, 600 * SECOND] {
        let world = World::default();
        let (first, second) = first_and_second(&world).await;
        first.freeze();
        second.becomes_controller().await;
        tokio::time::sleep(pause).await;
        assert!(first.is_controller(), "it doesn't know yet");
        first.thaw();
        first.stops_being_controller().await;
        first.follows(&second).await;
        tokio::time::sleep(60 * SECOND).await;
        assert!(second.is_controller());
        assert_eq!(world.row.newest().unwrap().broker, Some(broker(2)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_was_paused_takes_nothing_from_a_holder_it_missed() {
    let world = World::default();
    let (first, second) = first_and_second(&world).await;
    // It looks at the lease, and is paused then for so long that the number it looks for was deleted.
    first.reachable(Reachable::Silent);
    tokio::time::sleep(5 * SECOND).await;
    second.freeze();
    tokio::time::sleep(600 * SECOND).await;
    second.thaw();
    tokio::time::sleep(60 * SECOND).await;
    assert!(first.is_controller() && !second.is_controller());
    assert_eq!(world.terms().len(), 1);
    first.reachable(Reachable::Yes);
    second.follows(&first).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_read_is_waited_for_until_it_lapses() {
    let world = World::default();
    let unreadable = tidegate_metadata::lease::Lease {
        number: 7,
        body: None,
    };
    world.row.put(unreadable.into());
    let start = Instant::now();
    let node = world.start(1);
    node.becomes_controller().await;
    assert!(start.elapsed() >= LEASE, "{:?}", start.elapsed());
    assert_eq!(world.row.newest().unwrap().number, 8);
    assert_eq!(world.terms()[0].presumed_dead(), None);
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_store_changes_no_controller_and_spins_nobody() {
    let world = World::default();
    let (first, second) = first_and_second(&world).await;
    let third = world.start(3);
    third.join().await;
    let nodes = [&first, &second, &third];
    world.store.set_unreachable(true);
    for node in nodes {
        node.faults.unreachable.store(true, Ordering::SeqCst);
    }
    let asked = |nodes: [&Node; 3]| -> u64 {
        nodes
            .iter()
            .map(|n| n.faults.requests.load(Ordering::SeqCst))
            .sum()
    };
    let before = asked(nodes);
    let failed = second.create("orders").await;
    assert!(failed.is_err());
    tokio::time::sleep(60 * SECOND).await;
    assert!(asked(nodes) - before < 400, "{}", asked(nodes) - before);
    world.store.set_unreachable(false);
    for node in nodes {
        node.faults.unreachable.store(false, Ordering::SeqCst);
    }
    tokio::time::sleep(20 * SECOND).await;
    assert_eq!(world.terms().len(), 1);
    assert!(first.is_controller());
    second.connects().await;
    second.create("orders").await.unwrap();
    assert!(second.shows("orders"));
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_starts_in_an_outage_joins_after_it() {
    let world = World::default();
    let node = world.start(1);
    node.faults.unreachable.store(true, Ordering::SeqCst);
    world.store.set_unreachable(true);
    tokio::time::sleep(60 * SECOND).await;
    assert!(node.faults.requests.load(Ordering::SeqCst) < 100);
    node.faults.unreachable.store(false, Ordering::SeqCst);
    tokio::time::sleep(5 * SECOND).await;
    assert!(!node.is_controller());
    world.store.set_unreachable(false);
    node.becomes_controller().await;
    node.join().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_controller_is_refused_in_time_and_works_once_there_is_one() {
    let world = World::default();
    let node = world.start(1);
    node.faults.unreachable.store(true, Ordering::SeqCst);
    let start = Instant::now();
    let refused = node.member.controller().led_by(broker(1)).await;
    assert_eq!(refused, Err(ControllerUnavailable::NoController));
    let patience = MemberSettings::new(identity(1)).controller_patience;
    assert!(start.elapsed() <= patience, "{:?}", start.elapsed());
    let controller = node.member.controller();
    let (answer, ()) = tokio::join!(controller.led_by(broker(1)), async {
        tokio::time::sleep(SECOND).await;
        node.faults.unreachable.store(false, Ordering::SeqCst);
    });
    assert_eq!(answer, Ok(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_request_during_a_change_of_controller_is_answered_by_the_next_one() {
    let world = World::default();
    let (first, second) = first_and_second(&world).await;
    first.kill().await;
    second.create("orders").await.unwrap();
    assert!(second.is_controller());
    assert!(second.shows("orders"));
}

#[tokio::test(start_paused = true)]
async fn an_answered_change_is_in_the_picture_of_who_asked() {
    let world = World::default();
    let (_first, second) = first_and_second(&world).await;
    *world.net.feed_delay.lock() = Duration::from_millis(400);
    for topic in ["a", "b", "c"] {
        second.create(topic).await.unwrap();
        assert!(second.shows(topic));
    }
    // A feed that lags behind holds answers back for a bounded time only.
    *world.net.feed_delay.lock() = 60 * SECOND;
    let start = Instant::now();
    second.create("d").await.unwrap();
    assert!(start.elapsed() <= 2 * SECOND, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_picture_never_goes_back_over_controllers_that_come_and_go() {
    let world = World::default();
    let (first, second) = first_and_second(&world).await;
    let third = world.start(3);
    third.join().await;
    third.connects().await;
    let mut images = third.member.images();
    let watched = async {
        let mut versions = vec![images.borrow_and_update().version()];
        while images.changed().await.is_ok() {
            versions.push(images.borrow_and_update().version());
            if images.borrow().topic("last").is_some() {
                break;
            }
        }
        versions
    };
    let happens = async {
        first.create("a").await.unwrap();
        first.freeze();
        second.becomes_controller().await;
        second.create("b").await.unwrap();
        third.follows(&second).await;
        first.thaw();
        second.member.resign(SECOND).await;
        third.becomes_controller().await;
        second.create("last").await.unwrap();
    };
    let (versions, ()) = tokio::join!(watched, happens);
    assert!(versions.is_sorted(), "{versions:?}");
    let epochs: std::collections::BTreeSet<_> = versions
        .iter()
        .map(|version| version.controller_epoch)
        .collect();
    assert!(epochs.len() >= 3, "{epochs:?}");
    assert!(third.shows("a") && third.shows("b"));
}

#[tokio::test(start_paused = true)]
async fn a_silent_controller_is_left_after_the_session_timeout() {
    let world = World::default();
    let (first, second) = first_and_second(&world).await;
    let heard = second.member.last_contact().unwrap();
    first.reachable(Reachable::Silent);
    let mut session = second.member.session();
    session
        .wait_for(|state| matches!(state, SessionState::Lost { .. }))
        .await
        .unwrap();
    let SessionState::Lost {
        since,
        last_contact,
    } = session.borrow().clone()
    else {
        panic!("it was lost");
    };
    assert!(last_contact >= heard);
    assert!(since - last_contact >= 2 * SECOND);
    assert!(since - last_contact <= 3 * SECOND);
    // It still renews its lease, so nobody takes over; the session is there again when it speaks.
    tokio::time::sleep(60 * SECOND).await;
    assert!(first.is_controller());
    assert!(!second.is_controller());
    first.reachable(Reachable::Yes);
    second.connects().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_cut_off_from_the_store_is_left_once_another_one_was_elected() {
    let world = World::default();
    let (first, second) = first_and_second(&world).await;
    let third = world.start(3);
    third.join().await;
    third.connects().await;
    // The first reaches its brokers and not the store; the second lost its session for another reason.
    first.faults.unreachable.store(true, Ordering::SeqCst);
    let record = LeaseRecord {
        number: world.row.newest().unwrap().number + 1,
        broker: Some(broker(2)),
        incarnation: Uuid::from_u128(2),
        wal: Some(Uuid::from_u128(2)),
        internal: None,
        lease: LEASE,
        released: true,
    };
    world.row.put(record);
    world.store.set_unreachable(true);
    assert!(third.create("orders").await.is_err());
    world.store.set_unreachable(false);
    third.becomes_controller().await;
    third.create("more").await.unwrap();
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn a_life_that_the_controller_knows_as_ended_is_told_so_and_asks_no_more() {
    let world = World::default();
    let (first, second) = first_and_second(&world).await;
    world.fence(2);
    second.hello(broker(2), BrokerEpoch::new(1));
    first.reachable(Reachable::Down);
    tokio::time::sleep(SECOND).await;
    first.reachable(Reachable::Yes);
    let mut session = second.member.session();
    session
        .wait_for(|state| matches!(state, SessionState::Fenced { .. }))
        .await
        .unwrap();
    tokio::time::sleep(60 * SECOND).await;
    assert!(matches!(*session.borrow(), SessionState::Fenced { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_controller_whose_number_turns_out_to_be_another_one_begins_a_new_term_under_it() {
    let world = World::default();
    let node = world.start_as(7, None);
    node.becomes_controller().await;
    assert_eq!(world.terms()[0].me, broker(1));
    node.join().await;
    let mut images = node.member.images();
    images
        .wait_for(|image| image.controller() == Some(broker(7)))
        .await
        .unwrap();
    assert_eq!(world.terms().len(), 2);
    assert_eq!(world.row.newest().unwrap().broker, Some(broker(7)));
}

#[tokio::test(start_paused = true)]
async fn metadata_that_cannot_be_read_is_fatal_for_who_was_elected_and_frees_the_lease() {
    let world = World::default();
    let key = {
        let first = world.start(1);
        first.becomes_controller().await;
        first.kill().await;
        world.store.rows().into_keys().next().unwrap()
    };
    world
        .store
        .overwrite(key, bytes::Bytes::from_static(b"not a row"));
    let again = world.start(1);
    let mut fatal = again.member.fatal();
    fatal.wait_for(Option::is_some).await.unwrap();
    assert!(!again.is_controller());
    tokio::time::sleep(60 * SECOND).await;
    assert!(world.row.newest().unwrap().released);
}

fn identity(id: u32) -> MemberIdentity {
    MemberIdentity {
        incarnation: Uuid::from_u128(1),
        wal: Uuid::from_u128(1),
        internal: Endpoint {
            host: "internal".into(),
            port: 1,
        },
        broker: Some(broker(id)),
    }
}
