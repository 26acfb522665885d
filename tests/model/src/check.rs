//! The case as the checker sees it, and what it must find true.

use stateright::{Model, Property};

use crate::guards::Guards;
use crate::state::{Bounds, Broken, Life, Mode, State};
use crate::step::{Rules, Step};

/// Names of the claims.
pub mod claims {
    /// I1: what was acknowledged can be read from metadata, the store and the disk that it is bound to.
    pub const NOTHING_LOST: &str = "nothing acknowledged is lost";
    /// I1: no offset is acknowledged for two records.
    pub const ONE_RECORD: &str = "no offset is acknowledged twice";
    /// I2: one process acknowledges under a leader epoch.
    pub const ONE_LEADER: &str = "one process acknowledges under a leader epoch";
    /// I2: a leader epoch starts at the sealed end of the one before.
    pub const STARTS_AT_SEALED_END: &str = "a leader epoch starts at the sealed end";
    /// I4: the high watermark never goes back over a change of leader.
    pub const NEVER_BACK: &str = "the high watermark never goes back";
    /// I1: who serves, serves what was acknowledged.
    pub const SAME_CONTENT: &str = "what is served is what was acknowledged";
    /// I2: a served record lies between the start of its leader epoch and the start of the next one.
    pub const IN_PLACE: &str = "each record lies within its leader epoch";
    /// When nothing is left to happen by itself, each partition is led, if its mode allows.
    pub const NEVER_STUCK: &str = "a partition never gets stuck";
    /// All that must hold in every state.
    pub const ALWAYS: [&str; 8] = [
        NOTHING_LOST,
        ONE_RECORD,
        ONE_LEADER,
        STARTS_AT_SEALED_END,
        NEVER_BACK,
        SAME_CONTENT,
        IN_PLACE,
        NEVER_STUCK,
    ];
    /// That the case is rich enough: a move took place.
    pub const MOVES: &str = "a move takes place";
    /// That the case is rich enough: all records are acknowledged in the end.
    pub const ACKNOWLEDGES: &str = "all is acknowledged";
    /// That the case is rich enough: a partition comes back to its first leader by way of another one.
    pub const RETURNS: &str = "a partition comes back";
}

/// One case: its size, and the guards that are up.
#[derive(Debug, Clone, Copy)]
pub struct Cluster {
    rules: Rules,
}

impl Cluster {
    /// A case with the given guards.
    #[must_use]
    pub fn new(bounds: Bounds, guards: Guards) -> Self {
        Self {
            rules: Rules { bounds, guards },
        }
    }

    fn nothing_lost(&self, state: &State) -> bool {
        (0..).zip(&state.told).all(|(partition, told)| {
            let found = state.recoverable(&self.rules.guards, partition);
            (told.acknowledged.iter().enumerate())
                .all(|(offset, told)| told.is_none_or(|entry| found.get(offset) == Some(&entry)))
        })
    }

    fn epochs_fit(state: &State) -> bool {
        state
            .told
            .iter()
            .zip(&state.metadata.partitions)
            .all(|(told, row)| {
                (0..)
                    .zip(&told.acknowledged)
                    .all(|(offset, told)| told.is_none_or(|entry| row.fits(entry.epoch, offset)))
            })
    }

    /// Whether each partition is led by a process that serves it, or its mode excuses that.
    fn is_served(&self, state: &State) -> bool {
        (0..)
            .zip(&state.metadata.partitions)
            .all(|(partition, row)| {
                let leader = state.broker(row.leader);
                let excused = leader.life == Life::Crashed
                    && (self.rules.bounds.mode == Mode::Local || state.left.failovers == 0);
                let serves = leader
                    .leading(partition)
                    .is_some_and(|leading| leading.epoch == row.epoch && leading.seal.is_none());
                excused || serves
            })
    }

    fn never_stuck(&self, state: &State) -> bool {
        if state.broken.is_some() || self.is_served(state) {
            return true;
        }
        let mut steps = Vec::new();
        self.rules.steps(state, &mut steps);
        let mut goes_on = steps.into_iter().filter(|step| step.will_happen(state));
        goes_on.any(|step| self.rules.apply(state, step).is_some())
    }
}

impl Model for Cluster {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::start(&self.rules.bounds)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        self.rules.steps(state, actions);
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        self.rules.apply(state, step)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(claims::NOTHING_LOST, Self::nothing_lost),
            Property::always(claims::ONE_RECORD, |_, state: &State| {
                state.broken != Some(Broken::OffsetTwice)
            }),
            Property::always(claims::ONE_LEADER, |_, state: &State| {
                state.broken != Some(Broken::TwoAcknowledge)
            }),
            Property::always(claims::STARTS_AT_SEALED_END, |_, state: &State| {
                Self::epochs_fit(state)
            }),
            Property::always(claims::NEVER_BACK, |_, state: &State| {
                state.broken != Some(Broken::WentBack)
            }),
            Property::always(claims::SAME_CONTENT, |_, state: &State| {
                state.broken != Some(Broken::OtherContent)
            }),
            Property::always(claims::IN_PLACE, |_, state: &State| {
                state.broken != Some(Broken::OutOfPlace)
            }),
            Property::always(claims::NEVER_STUCK, Self::never_stuck),
            Property::sometimes(claims::MOVES, |_, state: &State| {
                state.attempts.iter().any(|a| a.committed)
            }),
            Property::sometimes(claims::ACKNOWLEDGES, |model: &Self, state: &State| {
                let told = state
                    .told
                    .iter()
                    .map(|told| told.acknowledged.iter().flatten().count());
                told.sum::<usize>() == usize::from(model.rules.bounds.appends)
            }),
            Property::sometimes(claims::RETURNS, |_, state: &State| {
                let mut rows = state.metadata.partitions.iter();
                rows.any(|row| row.leader == 0)
                    && state
                        .attempts
                        .iter()
                        .any(|attempt| attempt.committed && attempt.from != 0)
            }),
        ]
    }
}
