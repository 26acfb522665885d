//! What can happen next.

use crate::guards::Guards;
use crate::state::{Attempt, Bounds, Held, Life, Mode, Role, Sealed, Slot, State, index, length};

/// One step of one party, or of the network, the store or fate. Attempts are named by their index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Append {
        broker: u8,
        partition: u8,
    },
    Sync {
        broker: u8,
        partition: u8,
    },
    LandObject {
        broker: u8,
        broker_epoch: u8,
        number: u8,
    },
    LearnObject {
        broker: u8,
        number: u8,
    },
    SendUpload {
        broker: u8,
        partition: u8,
    },
    LandUpload {
        upload: usize,
    },
    StartMove {
        partition: u8,
        to: u8,
    },
    Prepare {
        attempt: usize,
    },
    Follow {
        broker: u8,
        partition: u8,
    },
    SyncCopies {
        broker: u8,
        partition: u8,
    },
    Seal {
        attempt: usize,
    },
    AnswerSeal {
        attempt: usize,
    },
    Hold {
        attempt: usize,
    },
    Commit {
        attempt: usize,
        sealed: Sealed,
        held: Held,
    },
    LandCommit {
        attempt: usize,
    },
    Abort {
        attempt: usize,
    },
    Unseal {
        attempt: usize,
    },
    UnsealUnasked {
        broker: u8,
        partition: u8,
    },
    Discard {
        attempt: usize,
    },
    See {
        broker: u8,
        image: u8,
    },
    DeclareDead {
        broker: u8,
    },
    FailOver {
        to: u8,
    },
    AcceptLoss {
        partition: u8,
        to: u8,
    },
    Trim {
        broker: u8,
        partition: u8,
    },
    Crash {
        broker: u8,
        unsynced_survive: bool,
    },
    EndLife {
        broker: u8,
    },
    Restart {
        broker: u8,
    },
    Take {
        broker: u8,
    },
    KillController,
    OpenController,
}

impl Step {
    /// Whether the protocol takes this step by itself, sooner or later. The others are somebody's free will, a misfortune,
    /// or a repetition.
    pub fn will_happen(self, state: &State) -> bool {
        match self {
            Self::Append { .. }
            | Self::SendUpload { .. }
            | Self::StartMove { .. }
            | Self::UnsealUnasked { .. }
            | Self::Crash { .. }
            | Self::AcceptLoss { .. }
            | Self::KillController => false,
            Self::Unseal { attempt } => !state.attempts[attempt].unseal_came,
            Self::DeclareDead { broker } => state.broker(broker).life != Life::Serving,
            Self::OpenController => state.controller_died,
            Self::Sync { .. }
            | Self::LandObject { .. }
            | Self::LearnObject { .. }
            | Self::LandUpload { .. }
            | Self::Prepare { .. }
            | Self::Follow { .. }
            | Self::SyncCopies { .. }
            | Self::Seal { .. }
            | Self::AnswerSeal { .. }
            | Self::Hold { .. }
            | Self::Commit { .. }
            | Self::LandCommit { .. }
            | Self::Abort { .. }
            | Self::Discard { .. }
            | Self::See { .. }
            | Self::FailOver { .. }
            | Self::Trim { .. }
            | Self::EndLife { .. }
            | Self::Restart { .. }
            | Self::Take { .. } => true,
        }
    }
}

/// The rules of one case.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    pub bounds: Bounds,
    pub guards: Guards,
}

impl Rules {
    /// All steps that may be possible; [`Rules::apply`] decides.
    pub fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        if state.broken.is_some() {
            return;
        }
        for broker in 0..length(&state.brokers) {
            self.broker_steps(state, broker, steps);
        }
        for (&(broker, broker_epoch), row) in &state.rows {
            let numbers = 0..length(&row.sent);
            let open = numbers.filter(|number| {
                let slot = row.slot(*number);
                slot == Slot::Missing || (slot == Slot::Fence && !self.guards.create_only)
            });
            steps.extend(open.map(|number| Step::LandObject {
                broker,
                broker_epoch,
                number,
            }));
        }
        for (attempt, is) in state.attempts.iter().enumerate() {
            self.attempt_steps(state, attempt, is, steps);
        }
        self.controller_steps(state, steps);
    }

    fn broker_steps(&self, state: &State, broker: u8, steps: &mut Vec<Step>) {
        let is = state.broker(broker);
        let row = &state.metadata.brokers[usize::from(broker)];
        let registered = is.epoch == row.epoch;
        match is.life {
            Life::Crashed | Life::Ended => {
                let returns = is.life == Life::Ended || state.left.restarts > 0;
                if returns && state.controller_lives() {
                    steps.push(Step::Restart { broker });
                }
                return;
            }
            Life::Registered if registered && state.controller_lives() => {
                steps.push(Step::Take { broker })
            }
            Life::Registered | Life::Serving => {}
        }
        if !registered {
            steps.push(Step::EndLife { broker });
        }
        if state.left.crashes > 0 {
            steps.push(Step::Crash {
                broker,
                unsynced_survive: false,
            });
            if self.bounds.mode == Mode::Local {
                steps.push(Step::Crash {
                    broker,
                    unsynced_survive: true,
                });
            }
        }
        if is.life == Life::Serving {
            self.serving_steps(state, broker, steps);
        }
    }

    fn serving_steps(&self, state: &State, broker: u8, steps: &mut Vec<Step>) {
        let is = state.broker(broker);
        steps
            .extend((is.image + 1..=state.newest_image()).map(|image| Step::See { broker, image }));
        for partition in 0..self.bounds.partitions {
            match &is.roles[usize::from(partition)] {
                Role::Nothing => {
                    if is.wal.iter().any(|placed| placed.partition == partition) {
                        steps.push(Step::Trim { broker, partition });
                    }
                }
                Role::Following(following) => {
                    if following.sealed.is_none() {
                        steps.push(Step::Follow { broker, partition });
                    }
                    if self.bounds.mode == Mode::Local && following.synced < length(&following.log)
                    {
                        steps.push(Step::SyncCopies { broker, partition });
                    }
                }
                Role::Leading(leading) => {
                    let admits = leading.seal.is_none() || !self.guards.sealed_admits_nothing;
                    if state.left.appends > 0 && admits {
                        steps.push(Step::Append { broker, partition });
                    }
                    let all = length(&leading.log);
                    if self.bounds.mode == Mode::Local && leading.durable < all {
                        steps.push(Step::Sync { broker, partition });
                    }
                    if !self.guards.unseals_only_when_told && leading.seal.is_some() {
                        steps.push(Step::UnsealUnasked { broker, partition });
                    }
                }
            }
            if state.left.uploads > 0 {
                steps.push(Step::SendUpload { broker, partition });
            }
        }
        if let Some(row) = state.rows.get(&(broker, is.epoch)) {
            let open = |number: &u8| is.acknowledged & (1 << number) == 0;
            let mut next: Vec<u8> = (0..length(&row.sent)).filter(open).collect();
            if self.guards.acknowledges_in_order {
                next.truncate(1);
            }
            steps.extend(
                next.into_iter()
                    .map(|number| Step::LearnObject { broker, number }),
            );
        }
    }

    fn attempt_steps(&self, state: &State, attempt: usize, is: &Attempt, steps: &mut Vec<Step>) {
        steps.extend([
            Step::Prepare { attempt },
            Step::Seal { attempt },
            Step::Hold { attempt },
        ]);
        if is.aborted {
            steps.extend([Step::Unseal { attempt }, Step::Discard { attempt }]);
        } else {
            steps.push(Step::AnswerSeal { attempt });
        }
        if state.may_land(&self.guards, is) {
            steps.push(Step::LandCommit { attempt });
        }
        let id = is.id.controller;
        if is.aborted || is.committed || !state.runs(id) {
            return;
        }
        if is.write.is_none() || !self.guards.no_abort_during_commit {
            steps.push(Step::Abort { attempt });
        }
        if is.write.is_none() && (id == state.controller || !self.guards.metadata_fencing) {
            let answers = state.attempts.iter().filter(|other| {
                other.id == is.id
                    || (!self.guards.answers_belong_to_attempt && other.partition == is.partition)
            });
            let sealed = answers.flat_map(|other| &other.sealed);
            for sealed in sealed {
                let held = is
                    .held
                    .iter()
                    .filter(|held| held.end == sealed.end || !self.guards.ends_are_equal);
                steps.extend(held.map(|held| Step::Commit {
                    attempt,
                    sealed: *sealed,
                    held: *held,
                }));
            }
        }
    }

    fn controller_steps(&self, state: &State, steps: &mut Vec<Step>) {
        steps.extend((0..state.uploads.len()).map(|upload| Step::LandUpload { upload }));
        if state.controller < self.bounds.controllers {
            steps.push(Step::OpenController);
            if state.controller_lives() {
                steps.push(Step::KillController);
            }
        }
        if state.controller_died {
            return;
        }
        for (partition, row) in (0..).zip(&state.metadata.partitions) {
            // One attempt at a time, as the conductor does it.
            let busy = state.attempts.iter().any(|attempt| {
                let open = !attempt.aborted && !attempt.committed;
                attempt.partition == partition && attempt.id.controller == state.controller && open
            });
            if state.left.moves > 0 && !busy {
                let others = (0..self.bounds.brokers).filter(|broker| *broker != row.leader);
                steps.extend(others.map(|to| Step::StartMove { partition, to }));
            }
        }
        self.accept_loss_steps(state, steps);
        let deposed = state
            .failover
            .as_ref()
            .is_some_and(|found| found.controller != state.controller);
        if state.failover.is_none() || deposed {
            let writers = (0..)
                .zip(&state.metadata.brokers)
                .filter(|(_, row)| row.writer.is_some());
            if state.left.failovers > 0 {
                steps.extend(writers.map(|(broker, _)| Step::DeclareDead { broker }));
            }
        } else if let Some(found) = &state.failover {
            let survivors = (0..)
                .zip(&state.metadata.brokers)
                .filter(|(broker, row)| *broker != found.broker && row.leads());
            steps.extend(survivors.map(|(to, _)| Step::FailOver { to }));
        }
    }

    fn accept_loss_steps(&self, state: &State, steps: &mut Vec<Step>) {
        if state.left.accepted_losses == 0 || self.bounds.mode == Mode::Object {
            return;
        }
        for (partition, row) in (0..).zip(&state.metadata.partitions) {
            let others = (0..).zip(&state.metadata.brokers);
            let others = others.filter(|(broker, other)| *broker != row.leader && other.leads());
            if state.broker(row.leader).life == Life::Crashed {
                steps.extend(others.map(|(to, _)| Step::AcceptLoss { partition, to }));
            }
        }
    }

    /// The state after a step, or nothing if the step changes nothing.
    pub fn apply(&self, before: &State, step: Step) -> Option<State> {
        let mut state = before.clone();
        let (guards, mode) = (&self.guards, self.bounds.mode);
        let attempt_of = |index: usize| before.attempts[index].clone();
        match step {
            Step::Append { broker, partition } => {
                let record = self.bounds.appends - state.left.appends + 1;
                state.append(guards, mode, record, broker, partition);
            }
            Step::Sync { broker, partition } => state.sync(broker, partition),
            Step::LandObject {
                broker,
                broker_epoch,
                number,
            } => {
                state.land_object(guards, (broker, broker_epoch), number);
            }
            Step::LearnObject { broker, number } => state.learn_object(broker, number),
            Step::SendUpload { broker, partition } => {
                let upload = state.send_upload(mode, broker, partition)?;
                if state.uploads.contains(&upload) {
                    return None;
                }
                state.uploads.push(upload);
                state.left.uploads -= 1;
            }
            Step::LandUpload { upload } => {
                if state.controller_died {
                    return None;
                }
                state.land_upload(guards, &before.uploads[upload]);
            }
            Step::StartMove { partition, to } => state.start_move(partition, to),
            Step::Prepare { attempt } => state.prepare(guards, &attempt_of(attempt)),
            Step::Follow { broker, partition } => state.follow(guards, broker, partition),
            Step::SyncCopies { broker, partition } => state.sync_copies(broker, partition),
            Step::Seal { attempt } => state.seal(guards, &attempt_of(attempt)),
            Step::AnswerSeal { attempt } => {
                let answer = state.sealed(guards, &attempt_of(attempt))?;
                state.attempts[attempt].sealed.insert(answer);
            }
            Step::Hold { attempt } => {
                if let Some(answer) = state.hold(guards, mode, &attempt_of(attempt)) {
                    state.attempts[attempt].held.insert(answer);
                }
            }
            Step::Commit {
                attempt,
                sealed,
                held,
            } => state.attempts[attempt].write = Some((sealed, held)),
            Step::LandCommit { attempt } => state.land_commit(guards, mode, attempt),
            Step::Abort { attempt } => state.attempts[attempt].aborted = true,
            Step::Unseal { attempt } => {
                state.unseal(guards, &attempt_of(attempt));
                state.attempts[attempt].unseal_came = true;
            }
            Step::UnsealUnasked { broker, partition } => state.unseal_unasked(broker, partition),
            Step::Discard { attempt } => state.discard(guards, &attempt_of(attempt)),
            Step::See { broker, image } => state.see(guards, broker, image),
            Step::DeclareDead { broker } => state.declare_dead(guards, broker),
            Step::AcceptLoss { partition, to } => state.accept_loss(partition, to),
            Step::Trim { broker, partition } => state.trim(broker, partition),
            Step::FailOver { to } => state.fail_over(guards, to),
            Step::Crash {
                broker,
                unsynced_survive,
            } => state.crash(mode, broker, unsynced_survive),
            Step::EndLife { broker } => state.end_life(broker, Life::Ended),
            Step::Restart { broker } => state.restart(broker),
            Step::Take { broker } => state.take(guards, mode, broker),
            Step::KillController => state.controller_died = true,
            Step::OpenController => state.open_controller(guards),
        }
        debug_assert!(index(state.images.len()) > 0, "there is always an image");
        self.forget(&mut state);
        (state != *before).then_some(state)
    }

    /// Drops what can't have an effect any more, so that states which differ only in it are one.
    fn forget(&self, state: &mut State) {
        if self.guards.answers_belong_to_attempt {
            let over = state
                .attempts
                .iter_mut()
                .filter(|attempt| attempt.aborted || attempt.committed);
            for attempt in over {
                if attempt.write.is_none() {
                    attempt.sealed.clear();
                    attempt.held.clear();
                }
            }
        }
        let newest = state.newest_image();
        let lives = |life| matches!(life, Life::Registered | Life::Serving);
        let living = state.brokers.iter().filter(|broker| lives(broker.life));
        let oldest = living.map(|broker| broker.image).min().unwrap_or(newest);
        state.images.drain(..usize::from(oldest));
        for broker in state.brokers.iter_mut().filter(|broker| lives(broker.life)) {
            broker.image -= oldest;
        }
    }
}
