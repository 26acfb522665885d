//! When an object is cut: plain rules, without a runtime.

use std::time::Duration;

use tokio::time::Instant;

use super::ObjectWalOptions;

/// See [`Linger::free_puts`].
const FREE_PUTS_OF_A_FAST_STORE: usize = 2;

/// What the decision rests on.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    /// When the oldest entry that waits came; `None` if none waits.
    pub oldest: Option<Instant>,
    /// Bytes of the entries that wait.
    pub waiting_bytes: u64,
    /// Objects sent and not acknowledged.
    pub in_flight: usize,
    /// Those of them that aren't stored yet.
    pub under_way: usize,
    /// No more will come.
    pub closing: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Cut,
    /// Unless something happens before.
    Until(Instant),
    /// Until something happens.
    Hold,
}

pub(super) fn decide(
    view: View,
    options: &ObjectWalOptions,
    linger: Linger,
    now: Instant,
) -> Decision {
    let Some(oldest) = view.oldest else {
        return Decision::Hold;
    };
    if view.in_flight >= options.max_in_flight {
        return Decision::Hold;
    }
    let full = view.waiting_bytes >= options.max_object_bytes;
    let due = oldest + linger.get(options);
    if view.under_way < linger.free_puts(options) || full || view.closing || due <= now {
        Decision::Cut
    } else {
        Decision::Until(due)
    }
}

/// How long entries wait for company: a quarter of the recent time of a PUT. On average an entry then waits
/// half of that, an eighth of the time it takes anyway, and some four PUTs overlap.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Linger {
    put_time: Option<Duration>,
}

impl Linger {
    pub(super) fn observe(&mut self, put_time: Duration) {
        self.put_time = Some(match self.put_time {
            None => put_time,
            Some(before) => (before * 7 + put_time) / 8,
        });
    }

    /// So many PUTs fly without any linger. From a store that answers within the shortest linger, which is one in
    /// the same room and charges nothing for requests, waiting would take longer than the PUT.
    pub(super) fn free_puts(&self, options: &ObjectWalOptions) -> usize {
        match self.put_time {
            Some(put_time) if put_time < options.min_linger => FREE_PUTS_OF_A_FAST_STORE,
            Some(_) | None => 1,
        }
    }

    pub(super) fn get(&self, options: &ObjectWalOptions) -> Duration {
        let quarter = self.put_time.unwrap_or_default() / 4;
        quarter.clamp(options.min_linger, options.max_linger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn view(now: Instant) -> View {
        View {
            oldest: Some(now),
            waiting_bytes: 10,
            in_flight: 2,
            under_way: 2,
            closing: false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn entries_wait_only_while_a_put_is_under_way_and_the_object_isnt_full() {
        let options = ObjectWalOptions::default();
        let now = Instant::now();
        let mut linger = Linger::default();
        linger.observe(MS(80));
        let decide = |view| super::decide(view, &options, linger, now);
        assert_eq!(decide(view(now)), Decision::Until(now + MS(20)));
        let none_under_way = View {
            under_way: 0,
            ..view(now)
        };
        assert_eq!(decide(none_under_way), Decision::Cut);
        let full = View {
            waiting_bytes: options.max_object_bytes,
            ..view(now)
        };
        assert_eq!(decide(full), Decision::Cut);
        let late = View {
            oldest: Some(now - MS(20)),
            ..view(now)
        };
        assert_eq!(decide(late), Decision::Cut);
        let closing = View {
            closing: true,
            ..view(now)
        };
        assert_eq!(decide(closing), Decision::Cut);
        let no_slot = View {
            in_flight: options.max_in_flight,
            ..full
        };
        assert_eq!(decide(no_slot), Decision::Hold);
        let nothing = View {
            oldest: None,
            ..view(now)
        };
        assert_eq!(decide(nothing), Decision::Hold);
    }

    #[tokio::test(start_paused = true)]
    async fn a_fast_store_gets_a_second_put_at_once_and_a_third_only_after_the_linger() {
        let options = ObjectWalOptions::default();
        let now = Instant::now();
        let mut linger = Linger::default();
        linger.observe(MS(1));
        let one = View {
            under_way: 1,
            ..view(now)
        };
        assert_eq!(decide(one, &options, linger, now), Decision::Cut);
        let two = decide(view(now), &options, linger, now);
        assert_eq!(two, Decision::Until(now + options.min_linger));
        let unknown = decide(one, &options, Linger::default(), now);
        assert_eq!(unknown, Decision::Until(now + options.min_linger));
    }

    #[test]
    fn the_linger_follows_the_time_of_a_put_within_its_limits() {
        let options = ObjectWalOptions::default();
        let mut linger = Linger::default();
        assert_eq!(linger.get(&options), options.min_linger);
        linger.observe(MS(80));
        assert_eq!(linger.get(&options), MS(20));
        for _ in 0..50 {
            linger.observe(MS(2));
        }
        assert_eq!(linger.get(&options), options.min_linger);
        for _ in 0..50 {
            linger.observe(MS(5000));
        }
        assert_eq!(linger.get(&options), options.max_linger);
    }
}
