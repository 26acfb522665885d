//! For each guard: without it, the checker finds how a claim breaks. And which guards cover for each other.

use stateright::{Checker, HasDiscoveries, Model};
use tidegate_model::{Bounds, Cluster, Guards, Mode, claims};

/// Two brokers, one controller, a move, two records, nobody dies.
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
const LOCAL_TWO_CONTROLLERS: Bounds = Bounds {
    controllers: 2,
    ..LOCAL
};
const LOCAL_TWO_MOVES: Bounds = Bounds { moves: 2, ..LOCAL };
const LOCAL_CRASH: Bounds = Bounds {
    crashes: 1,
    restarts: 1,
    ..LOCAL
};
const LOCAL_LOSS: Bounds = Bounds {
    accepted_losses: 1,
    ..LOCAL_CRASH
};
const OBJECT_FAILOVER: Bounds = Bounds {
    moves: 0,
    crashes: 1,
    restarts: 1,
    failovers: 1,
    ..OBJECT
};
const LOCAL_FAILOVER: Bounds = Bounds {
    mode: Mode::Local,
    ..OBJECT_FAILOVER
};
const OBJECT_MOVE_AND_FAILOVER: Bounds = Bounds {
    moves: 1,
    restarts: 0,
    ..OBJECT_FAILOVER
};

/// Explores the case until the claim breaks, and insists that it does.
fn breaks(bounds: Bounds, guards: Guards, claim: &'static str) {
    let checker = Cluster::new(bounds, guards)
        .checker()
        .finish_when(HasDiscoveries::AnyOf([claim].into()))
        .spawn_bfs()
        .join();
    let path = checker.discovery(claim);
    let path = path.unwrap_or_else(|| panic!("\"{claim}\" holds without the guard"));
    println!("\"{claim}\" breaks: {:#?}", path.into_actions());
}

/// Explores the whole case and insists that every claim holds.
fn holds(bounds: Bounds, guards: Guards) {
    let checker = Cluster::new(bounds, guards)
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    for claim in claims::ALWAYS {
        checker.assert_no_discovery(claim);
    }
}

/// A test for each line: what is taken away, in which case, and the claim that breaks.
macro_rules! needed {
    ($($name:ident: $($guard:ident),+ in $bounds:expr => $claim:ident;)+) => {
        $(#[test]
        fn $name() {
            let guards = Guards { $($guard: false,)+ ..Guards::ALL };
            breaks($bounds, guards, claims::$claim);
        })+
    };
}

/// A test for each line: what is taken away, and the case in which nothing breaks.
macro_rules! spare {
    ($($name:ident: $($guard:ident),+ in $bounds:expr;)+) => {
        $(#[test]
        fn $name() {
            holds($bounds, Guards { $($guard: false,)+ ..Guards::ALL });
        })+
    };
}

needed! {
    h01_a_sealed_log_that_admits_loses_records: sealed_admits_nothing in LOCAL => NOTHING_LOST;
    h02_a_seal_that_does_not_wait_loses_records: seal_waits_for_admitted in LOCAL => NOTHING_LOST;
    h03_a_deposed_controllers_seal_is_never_taken_back: orders_name_controller in LOCAL_TWO_CONTROLLERS => NEVER_STUCK;
    h04_a_late_seal_is_never_taken_back: late_seal_is_refused in OBJECT_MOVE_AND_FAILOVER => NEVER_STUCK;
    h05_a_late_unseal_loses_records: unseal_names_its_seal in LOCAL_TWO_MOVES => NOTHING_LOST;
    h06_a_source_that_unseals_by_itself_loses_records: unseals_only_when_told in LOCAL => NOTHING_LOST;
    h07_any_image_that_unseals_loses_records: only_newer_image_unseals in LOCAL_TWO_CONTROLLERS => NOTHING_LOST;
    h08_a_seal_that_stays_with_the_older_order_loses_records: seal_passes_to_newer in LOCAL_TWO_MOVES => NOTHING_LOST;
    h09_a_copy_only_in_memory_loses_records: held_is_durable in LOCAL => NOTHING_LOST;
    h10_a_late_discard_loses_records: target_knows_attempt in LOCAL_TWO_MOVES => NOTHING_LOST;
    h11_an_answer_to_another_attempt_loses_records: answers_belong_to_attempt in LOCAL_TWO_MOVES => NOTHING_LOST;
    h12_a_held_end_before_the_sealed_end_loses_records: ends_are_equal in LOCAL_TWO_MOVES => NOTHING_LOST;
    h13_a_target_that_started_anew_loses_records: target_is_same_life in LOCAL_CRASH => NOTHING_LOST;
    h14_a_commit_for_a_past_leader_epoch_loses_records: commit_names_leader_epoch in LOCAL_CRASH => NOTHING_LOST;
    h15_a_sealed_range_outside_of_the_commit_loses_records: sealed_range_rides_in_commit in OBJECT => NOTHING_LOST;
    h16_a_commit_under_a_later_controller_epoch_loses_records: commit_names_controller in LOCAL_TWO_CONTROLLERS => NOTHING_LOST;
    h17_an_abort_during_the_commit_loses_records: no_abort_during_commit in LOCAL => NOTHING_LOST;
    h18_activating_elsewhere_takes_the_high_watermark_back: activates_at_start_only in OBJECT_MOVE_AND_FAILOVER => NEVER_BACK;
    h19_h20_copies_that_were_never_durable_come_back: streams_only_durable, recovery_cuts_by_history
        in Bounds { moves: 2, crashes: 2, restarts: 2, appends: 1, ..LOCAL } => IN_PLACE;
    h20_what_was_given_up_comes_back: recovery_cuts_by_history
        in Bounds { crashes: 2, restarts: 2, appends: 1, ..LOCAL_LOSS } => IN_PLACE;
    h19_h20_h21_copies_that_were_never_durable_replace_records:
        streams_only_durable, recovery_cuts_by_history, recovery_prefers_higher_epoch
        in Bounds { moves: 2, ..LOCAL_CRASH } => NOTHING_LOST;
    h22_a_copy_of_an_epoch_before_the_last_brings_back_what_was_given_up: activates_next_epoch_only
        in Bounds { brokers: 3, crashes: 2, accepted_losses: 2, uploads: 1, ..LOCAL } => SAME_CONTENT;
    f01_a_put_that_replaces_loses_records: create_only in OBJECT_FAILOVER => NOTHING_LOST;
    f02_acknowledging_out_of_order_loses_records: acknowledges_in_order in OBJECT => NOTHING_LOST;
    f03_a_failover_without_a_fence_loses_records: fences_before_failover in OBJECT_FAILOVER => NOTHING_LOST;
    f04_leaders_without_the_recovered_range_lose_records: recovered_with_leaders in OBJECT_FAILOVER => NOTHING_LOST;
    f05_f06_a_failover_after_a_return_loses_records: failover_names_registration, failover_names_writer
        in OBJECT_FAILOVER => NOTHING_LOST;
    f06_a_failover_that_fenced_another_row_loses_records: failover_names_writer in OBJECT_FAILOVER => NOTHING_LOST;
    f08_failing_over_a_local_wal_loses_records: local_stays in LOCAL_FAILOVER => NOTHING_LOST;
    f08_failing_over_a_local_wal_acknowledges_an_offset_twice: local_stays in LOCAL_FAILOVER => ONE_RECORD;
    f09_a_deposed_controllers_write_loses_records: metadata_fencing in LOCAL_TWO_CONTROLLERS => NOTHING_LOST;
    f11_an_upload_of_what_was_given_up_replaces_records: uploads_name_leader_epoch
        in Bounds { moves: 0, uploads: 1, ..LOCAL_LOSS } => NOTHING_LOST;
    f12_a_return_under_the_same_leader_epoch_is_a_second_leader: return_raises_epoch in LOCAL_CRASH => ONE_LEADER;
}

spare! {
    h19_streaming_early_is_covered_by_the_cut: streams_only_durable in Bounds { moves: 2, ..LOCAL_CRASH };
    h21_preferring_the_higher_epoch_is_covered_by_the_cut: streams_only_durable, recovery_prefers_higher_epoch
        in Bounds { moves: 2, ..LOCAL_CRASH };
    f05_naming_the_registration_is_covered_by_naming_the_writer: failover_names_registration in OBJECT_FAILOVER;
    f07_ending_the_registration_only_spares_a_vain_move: failover_ends_registration in OBJECT_MOVE_AND_FAILOVER;
    f10_naming_the_registration_in_uploads_is_covered_by_the_leader_epoch: commits_name_registration
        in Bounds { uploads: 1, ..LOCAL_LOSS };
}
