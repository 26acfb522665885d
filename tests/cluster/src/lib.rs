//! The crash tests' parts: what is written ([`Mark`]), who writes and reads ([`Writers`], [`Readers`],
//! [`Transactors`], [`Copier`]), and the [`History`] and [`TransactionHistory`] with their checkers. The tests themselves are in `tests/`.
//!
//! The checker is plain code over a history, with tests of its own: each way to lose a record is shown to be noticed.

mod copies;
mod group;
mod history;
mod mark;
mod readers;
mod stored;
mod transactions;
mod transactors;
mod writers;

pub use copies::{Copier, CopyViolation, Copying, check_copy};
pub use group::GroupMember;
pub use history::{Acknowledged, History, Seen, Violation};
pub use mark::Mark;
pub use readers::Readers;
pub use stored::read_stored;
pub use transactions::{
    Attempt, Fate, SeenInTransaction, TransactionHistory, TransactionMark, TransactionViolation,
};
pub use transactors::{Transactors, read_committed};
pub use writers::Writers;
