//! The way to a coordinator.

use tidegate_coordinator::{Now, ReplyToken};
use tokio::sync::{mpsc, oneshot};

use super::Machine;

/// Requests that wait for one coordinator before their senders wait. A connection has one request in work.
const QUEUE: usize = 256;

type Answered<M> = Box<dyn FnOnce(&mut M, Now, ReplyToken) -> Vec<<M as Machine>::Effect> + Send>;
type Immediate<M> = Box<dyn FnOnce(&mut M, Now) + Send>;

/// One input from a request handler.
pub(super) enum Call<M: Machine> {
    /// Its reply comes as an effect, maybe much later.
    Answered {
        act: Answered<M>,
        reply: oneshot::Sender<M::Reply>,
    },
    /// It is answered on the spot.
    Immediate(Immediate<M>),
}

/// The way to one coordinator. Cheap to clone.
pub(crate) struct Handle<M: Machine> {
    calls: mpsc::Sender<Call<M>>,
}

impl<M: Machine> Clone for Handle<M> {
    fn clone(&self) -> Self {
        Self {
            calls: self.calls.clone(),
        }
    }
}

impl<M: Machine> Handle<M> {
    pub(super) fn new() -> (Self, mpsc::Receiver<Call<M>>) {
        let (sender, calls) = mpsc::channel(QUEUE);
        (Self { calls: sender }, calls)
    }

    /// Hands over a request whose reply may come much later. `None`: the coordinator went away before it replied.
    pub(crate) async fn answered<F>(&self, act: F) -> Option<M::Reply>
    where
        F: FnOnce(&mut M, Now, ReplyToken) -> Vec<M::Effect> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let act = Box::new(act);
        self.calls.send(Call::Answered { act, reply }).await.ok()?;
        answer.await.ok()
    }

    /// Asks what is answered on the spot. `None`: the coordinator went away.
    pub(crate) async fn immediate<T, F>(&self, ask: F) -> Option<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut M, Now) -> T + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let act: Immediate<M> = Box::new(move |machine, now| {
            // Whoever asked may have hung up.
            let _ = reply.send(ask(machine, now));
        });
        self.calls.send(Call::Immediate(act)).await.ok()?;
        answer.await.ok()
    }
}
