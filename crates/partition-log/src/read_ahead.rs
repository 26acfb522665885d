//! Noticing sequential readers, so that what they want next is fetched before they ask.

use std::collections::VecDeque;

use tidegate_types::Offset;

/// How many readers of one partition are followed at once.
const STREAMS: usize = 16;
/// The most spans fetched ahead of one reader.
const DEEPEST: usize = 8;

/// One sequential reader: where it will read next, and how many spans ahead of it to fetch.
#[derive(Debug, Clone, Copy)]
struct Stream {
    next: Offset,
    depth: usize,
}

/// The sequential readers of one partition, the latest last.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: VecDeque<Stream>,
}

impl Streams {
    /// How far to fetch ahead for a reader that now asks for `from`.
    pub(crate) fn depth_for(&self, from: Offset) -> usize {
        self.streams
            .iter()
            .find(|s| s.next == from)
            .map_or(0, |s| (s.depth * 2).clamp(1, DEEPEST))
    }

    /// Notes a read of `from..next` and answers how many spans to fetch ahead: none for the first read of a
    /// reader, then 1, 2, 4 up to a limit while it goes on where it stopped.
    pub(crate) fn note(&mut self, from: Offset, next: Offset) -> usize {
        let known = self.streams.iter().position(|s| s.next == from);
        let depth = match known.and_then(|at| self.streams.remove(at)) {
            Some(stream) => (stream.depth * 2).clamp(1, DEEPEST),
            None => 0,
        };
        if self.streams.len() == STREAMS {
            self.streams.pop_front();
        }
        self.streams.push_back(Stream { next, depth });
        depth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offset(o: u64) -> Offset {
        Offset::new(o).unwrap()
    }

    #[test]
    fn depth_grows_only_for_a_reader_that_goes_on_where_it_stopped() {
        let mut streams = Streams::default();
        assert_eq!(streams.note(offset(0), offset(10)), 0);
        assert_eq!(streams.note(offset(10), offset(20)), 1);
        assert_eq!(streams.note(offset(500), offset(510)), 0);
        assert_eq!(streams.note(offset(20), offset(30)), 2);
        assert_eq!(
            (0..5)
                .map(|i| streams.note(offset(30 + i * 10), offset(40 + i * 10)))
                .last(),
            Some(8)
        );
    }

    #[test]
    fn the_number_of_followed_readers_is_bounded() {
        let mut streams = Streams::default();
        (0..1000).for_each(|i| {
            streams.note(offset(i * 100), offset(i * 100 + 1));
        });
        assert_eq!(streams.streams.len(), STREAMS);
    }
}
