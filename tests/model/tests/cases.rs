//! The protocol as it is, in small cases, all interleavings of each.

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};
use tidegate_model::{Bounds, Cluster, Guards, Mode, claims};

const LOCAL: Bounds = Bounds {
    mode: Mode::Local,
    brokers: 2,
    partitions: 1,
    controllers: 1,
    appends: 2,
    moves: 1,
    crashes: 0,
    restarts: 0,
    failovers: 0,
    accepted_losses: 0,
    uploads: 0,
};
const OBJECT: Bounds = Bounds {
    mode: Mode::Object,
    ..LOCAL
};

/// Explores the whole case; `seen` are the things that must be possible in it, and `at_least` so many states.
fn check(name: &str, bounds: Bounds, seen: &[&'static str], at_least: usize) {
    let begin = Instant::now();
    let checker = Cluster::new(bounds, Guards::ALL)
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let states = checker.unique_state_count();
    println!(
        "{name}: {states} states, depth {}, {:?}",
        checker.max_depth(),
        begin.elapsed()
    );
    for claim in claims::ALWAYS {
        checker.assert_no_discovery(claim);
    }
    for claim in seen {
        checker.assert_any_discovery(claim);
    }
    assert!(
        states >= at_least,
        "{name} shrank to {states} states: it shows less than it did"
    );
}

macro_rules! cases {
    ($($(#[$attribute:meta])* $name:ident: $bounds:expr, sees $seen:expr, $at_least:expr;)+) => {
        $($(#[$attribute])* #[test]
        fn $name() {
            check(stringify!($name), $bounds, $seen, $at_least);
        })+
    };
}

const MOVES: &[&str] = &[claims::MOVES, claims::ACKNOWLEDGES];
const RETURNS: &[&str] = &[claims::MOVES, claims::ACKNOWLEDGES, claims::RETURNS];
const ACKNOWLEDGES: &[&str] = &[claims::ACKNOWLEDGES];

cases! {
    local_move_with_a_crash_and_a_change_of_controller:
        Bounds { controllers: 2, crashes: 1, restarts: 1, ..LOCAL }, sees MOVES, 69_000;
    local_there_and_back_with_a_crash:
        Bounds { moves: 2, crashes: 1, restarts: 1, ..LOCAL }, sees RETURNS, 41_000;
    local_two_moves_with_a_change_of_controller:
        Bounds { moves: 2, controllers: 2, ..LOCAL }, sees RETURNS, 78_000;
    local_move_with_late_uploads_and_an_accepted_loss:
        Bounds { crashes: 1, restarts: 1, uploads: 1, accepted_losses: 1, ..LOCAL }, sees MOVES, 28_000;
    local_leader_declared_dead:
        Bounds { moves: 1, crashes: 1, restarts: 1, failovers: 1, ..LOCAL }, sees MOVES, 80_000;
    local_three_brokers: Bounds { brokers: 3, moves: 2, ..LOCAL }, sees RETURNS, 27_000;
    local_two_partitions: Bounds { partitions: 2, moves: 2, ..LOCAL }, sees MOVES, 45_000;
    object_move_with_a_crash_and_a_change_of_controller:
        Bounds { controllers: 2, crashes: 1, restarts: 1, ..OBJECT }, sees MOVES, 55_000;
    object_there_and_back_with_a_crash:
        Bounds { moves: 2, crashes: 1, restarts: 1, ..OBJECT }, sees RETURNS, 25_000;
    object_two_moves_with_a_change_of_controller:
        Bounds { moves: 2, controllers: 2, ..OBJECT }, sees RETURNS, 55_000;
    object_move_and_failover_without_a_return:
        Bounds { crashes: 1, failovers: 1, ..OBJECT }, sees RETURNS, 15_000;
    object_move_and_failover_with_a_return:
        Bounds { crashes: 1, restarts: 1, failovers: 1, ..OBJECT }, sees RETURNS, 112_000;
    object_failover_with_a_change_of_controller:
        Bounds { moves: 0, controllers: 2, crashes: 1, restarts: 1, failovers: 1, uploads: 1, ..OBJECT },
        sees ACKNOWLEDGES, 85_000;
    object_three_brokers_with_a_failover:
        Bounds { brokers: 3, crashes: 1, failovers: 1, ..OBJECT }, sees MOVES, 171_000;
    object_two_partitions: Bounds { partitions: 2, moves: 2, ..OBJECT }, sees MOVES, 50_000;
    #[ignore = "minutes: `cargo test -p tidegate-model -- --ignored`"]
    object_everything_at_once:
        Bounds { controllers: 2, crashes: 1, restarts: 1, failovers: 1, ..OBJECT }, sees RETURNS, 2_000_000;
    #[ignore = "minutes: `cargo test -p tidegate-model -- --ignored`"]
    local_everything_at_once:
        Bounds { controllers: 2, crashes: 1, restarts: 1, failovers: 1, ..LOCAL }, sees MOVES, 1_000_000;
}
