//! The seams to the world: time, randomness, tasks and disk arrive as arguments, never as globals.
//!
//! Promises: production code that takes these traits runs unchanged in a test that owns the clock, the seed
//! and the disk's faults. A task always has a name, an owner and a declared reaction to its end. A disk's
//! sync either stored everything written before it, or answered an error.
//!
//! It deliberately doesn't know: what is stored, the network, object storage, and configuration.

mod clock;
pub mod disk;
mod random;
mod tasks;

pub use clock::{Clock, ManualClock, SharedClock, SystemClock};
pub use disk::{DirLock, Disk, DiskFile, LockError, Open, RealDisk, SimDisk, write_whole_file};
pub use random::Random;
pub use tasks::{OnExit, StillRunning, StopCause, StopReason, Tasks};
