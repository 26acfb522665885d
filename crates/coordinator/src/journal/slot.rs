//! One value, as it is stored and as it will be.

use std::collections::VecDeque;

use crate::AppendId;

/// One value of the log, durable and pending.
#[derive(Debug, Clone)]
pub(crate) struct Slot<V> {
    durable: Option<V>,
    /// The append that brought the durable value. Those of replayed records have ids of their own, in order.
    written: AppendId,
    pending: VecDeque<(AppendId, Option<V>)>,
}

impl<V> Default for Slot<V> {
    fn default() -> Self {
        Self {
            durable: None,
            written: AppendId::FIRST,
            pending: VecDeque::new(),
        }
    }
}

impl<V> Slot<V> {
    pub(crate) fn durable(&self) -> Option<&V> {
        self.durable.as_ref()
    }

    /// The value that the log will have if all pending appends succeed.
    pub(crate) fn newest(&self) -> Option<&V> {
        match self.pending.back() {
            Some((_, value)) => value.as_ref(),
            None => self.durable.as_ref(),
        }
    }

    #[cfg(test)]
    pub(super) fn is_settled(&self) -> bool {
        self.durable.is_some() && self.pending.is_empty()
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.durable.is_none() && self.pending.is_empty()
    }

    pub(crate) fn set_durable(&mut self, value: Option<V>) {
        self.durable = value;
    }

    /// The same, in order with other appends.
    pub(crate) fn set_written(&mut self, value: Option<V>, written: AppendId) {
        self.durable = value;
        self.written = written;
    }

    /// Takes a durable value from elsewhere, unless the one here was written later.
    pub(crate) fn supersede(&mut self, value: V, written: AppendId) {
        if self.durable.is_none() || self.written < written {
            self.set_written(Some(value), written);
        }
    }

    pub(crate) fn take_durable(&mut self) -> Option<(V, AppendId)> {
        let written = self.written;
        self.durable.take().map(|value| (value, written))
    }

    pub(crate) fn stage(&mut self, id: AppendId, value: Option<V>) {
        self.pending.push_back((id, value));
    }

    /// Ends what append `id` staged here. Pending values of earlier appends are superseded by a durable one.
    pub(crate) fn settle(&mut self, id: AppendId, durable: bool) {
        if !durable {
            self.pending.retain(|(pending, _)| *pending != id);
            return;
        }
        while self
            .pending
            .front()
            .is_some_and(|(pending, _)| *pending <= id)
        {
            if let Some((pending, value)) = self.pending.pop_front()
                && pending == id
            {
                self.set_written(value, id);
            }
        }
    }
}
