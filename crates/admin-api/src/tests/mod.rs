//! The API as its clients see it: over a real socket, with a real controller, and with other brokers and moves that
//! answer as told.

mod access;
mod document;
mod moves;
mod process;
mod rig;
mod topics;
