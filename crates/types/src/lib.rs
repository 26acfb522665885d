//! The words of Tidegate as types: ids, offsets, epochs, producer identity and durability modes; and how an error is
//! told with its causes.
//!
//! Promises: every value is valid once it exists (constructors check the range), arithmetic on offsets is
//! checked, and no type here does I/O. It deliberately knows nothing of Kafka's wire format, of storage
//! layouts or of configuration files.

mod causes;
mod durability;
mod epoch;
mod id;
mod offset;
mod producer;
mod time;

pub use causes::WithCauses;
pub use durability::{DurabilityMode, UnknownDurabilityMode};
pub use epoch::{BrokerEpoch, ControllerEpoch, LeaderEpoch};
pub use id::{BrokerId, InvalidId, PartitionId, PartitionIndex, TopicId, TopicName};
pub use offset::{Offset, OffsetOverflow, OffsetRange};
pub use producer::{ProducerEpoch, ProducerId, Sequence, VerificationTicket};
pub use time::TimestampMs;
