//! A command on its way through the controller, without its type.

use tokio::sync::oneshot;

use crate::api::ControllerUnavailable;
use crate::state::{Change, Command, Environment, Facts, Need, State};

/// Decides once, then tells its sender: only after the batch that it is part of is durable.
pub(crate) trait Job: Send {
    fn name(&self) -> &'static str;
    fn is_question(&self) -> bool;
    fn needs(&self, state: &State, facts: &Facts) -> Vec<Need>;
    fn decide(
        &mut self,
        state: &State,
        facts: &Facts,
        environment: &mut Environment<'_>,
    ) -> Vec<Change>;
    /// What it was decided on is durable.
    fn succeed(self: Box<Self>);
    fn fail(self: Box<Self>, reason: ControllerUnavailable);
}

type Outcome<C> = Result<<C as Command>::Output, <C as Command>::Error>;

pub(crate) struct Pending<C: Command> {
    command: C,
    reply: oneshot::Sender<Result<Outcome<C>, ControllerUnavailable>>,
    outcome: Option<Outcome<C>>,
}

impl<C: Command> Pending<C> {
    pub(crate) fn new(
        command: C,
    ) -> (
        Self,
        oneshot::Receiver<Result<Outcome<C>, ControllerUnavailable>>,
    ) {
        let (reply, answer) = oneshot::channel();
        let pending = Self {
            command,
            reply,
            outcome: None,
        };
        (pending, answer)
    }
}

impl<C: Command> Job for Pending<C> {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn is_question(&self) -> bool {
        C::IS_QUESTION
    }

    fn needs(&self, state: &State, facts: &Facts) -> Vec<Need> {
        self.command.needs(state, facts)
    }

    fn decide(
        &mut self,
        state: &State,
        facts: &Facts,
        environment: &mut Environment<'_>,
    ) -> Vec<Change> {
        match self.command.decide(state, facts, environment) {
            Ok(decision) => {
                self.outcome = Some(Ok(decision.output));
                decision.changes
            }
            Err(error) => {
                self.outcome = Some(Err(error));
                Vec::new()
            }
        }
    }

    fn succeed(self: Box<Self>) {
        // A sender that has gone away no longer wants to know.
        let answer = self.outcome.ok_or(ControllerUnavailable::OutcomeUnknown);
        let _ = self.reply.send(answer);
    }

    fn fail(self: Box<Self>, reason: ControllerUnavailable) {
        let _ = self.reply.send(Err(reason));
    }
}
