//! The local WAL: preallocated files, one writer, one sync for all that waited.
