//! The object WAL: log files that are immutable objects.
