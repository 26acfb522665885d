//! The guards, each with a switch.

macro_rules! guards {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Which guards are up. The protocol has all of them; a test takes one away. The comments give their numbers in
        /// `docs/protocols/handover.md` (H) and `docs/protocols/failover.md` (F).
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct Guards {
            $($(#[doc = $doc])+ pub $name: bool,)+
        }

        impl Guards {
            /// The protocol as it is.
            pub const ALL: Self = Self { $($name: true,)+ };
        }
    };
}

guards! {
    /// H1: a sealed log admits nothing.
    sealed_admits_nothing,
    /// H2: a seal is answered when all that was admitted is durable.
    seal_waits_for_admitted,
    /// H3: a broker refuses orders of a controller epoch below the highest it has seen.
    orders_name_controller,
    /// H4: a seal that comes after it was taken back is refused.
    late_seal_is_refused,
    /// H5: an unseal takes back only its own seal and older ones.
    unseal_names_its_seal,
    /// H6: a source never unseals by itself.
    unseals_only_when_told,
    /// H7: an image unseals only if its controller epoch is above that of the seal.
    only_newer_image_unseals,
    /// H8: a repeated seal passes to the newer order.
    seal_passes_to_newer,
    /// H9: held means durable in the target's own WAL (`local`).
    held_is_durable,
    /// H10: what the target keeps belongs to one attempt; orders of others don't touch it.
    target_knows_attempt,
    /// H11: a commit uses answers of its own attempt only.
    answers_belong_to_attempt,
    /// H12: a commit needs the held end to be the sealed end.
    ends_are_equal,
    /// H13: a commit needs the target's registration to be the one that held.
    target_is_same_life,
    /// H14: a commit needs the leader and the leader epoch of its seal.
    commit_names_leader_epoch,
    /// H15: a commit brings the sealed range into metadata with it (`object`).
    sealed_range_rides_in_commit,
    /// H16: a commit is carried out only by the controller epoch that ordered the seal.
    commit_names_controller,
    /// H17: a move is given up only while its commit isn't under way.
    no_abort_during_commit,
    /// H18: a log that followed is activated only where the new epoch starts.
    activates_at_start_only,
    /// H19: only durable records are streamed.
    streams_only_durable,
    /// H20: recovery cuts each leader epoch where metadata says that the next one starts.
    recovery_cuts_by_history,
    /// H21: of two copies the recovery takes the one of the higher leader epoch.
    recovery_prefers_higher_epoch,
    /// H22: a log that followed is activated only as the very next leader epoch.
    activates_next_epoch_only,
    /// F1: objects are created only where none is.
    create_only,
    /// F2: acknowledgements go out in the order of object numbers.
    acknowledges_in_order,
    /// F3: the dead writer is fenced before its objects are collected.
    fences_before_failover,
    /// F4: what was found is committed together with the new leaders.
    recovered_with_leaders,
    /// F5: a failover is refused when the broker has registered anew.
    failover_names_registration,
    /// F6: a failover is refused when another row than the fenced one is the broker's.
    failover_names_writer,
    /// F7: a failover raises the broker epoch of the dead.
    failover_ends_registration,
    /// F8: partitions bound to a local WAL are never failed over.
    local_stays,
    /// F9: a new controller fences the writes of the one before.
    metadata_fencing,
    /// F10: commits of objects and uploads need the registered broker epoch.
    commits_name_registration,
    /// F11: an upload needs the current leader epoch, or lies below the end of a sealed one (`local`).
    uploads_name_leader_epoch,
    /// F12: a leader's return raises the leader epoch.
    return_raises_epoch,
}
