//! The log over its real parts: local WAL on a simulated disk, object WAL and uploads over a scripted store, and a
//! controller over metadata in memory. A `Rig` is what survives a crash; a `Life` is one process.

mod appending;
mod compacting;
mod copy_reading;
mod model;
mod moving;
mod object_mode;
mod pair;
mod reading;
mod recovery;
mod rig;
mod spec;
mod switching;
mod times;
mod transactions;
mod transactions_model;
mod uploading;
