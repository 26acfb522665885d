//! Over real sockets on the loopback interface, with fake services behind them.

mod failures;
mod garbage;
mod limits;
mod queries;
mod rig;
mod round_trips;
mod samples;
mod sessions;
mod tails;
mod transactions;
mod versions;
