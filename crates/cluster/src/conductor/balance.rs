//! Which leaders should move so that every broker leads its share: a pure planner.
//!
//! Every move it plans takes from a broker above and gives to one below, and strictly shrinks the difference
//! between the two; so it ends, it can't oscillate, and with equal weights it moves no partition more than the
//! evening out needs. It starts late (a clear difference) and stops early (even): small differences, which
//! every created topic makes, aren't worth a move.

use std::collections::{BTreeMap, HashMap};

use tidegate_types::{BrokerId, PartitionId, TopicId};

/// When to start, and how much at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BalanceOptions {
    /// Whether leaders are evened out at all. Drains go on without it.
    pub enabled: bool,
    /// Starts when a broker is further from the average than this, in percent of the average.
    pub start_percent: u64,
    /// And by at least so many partitions.
    pub start_partitions: u64,
    /// The most moves under way for balance at any time.
    pub max_under_way: usize,
}

impl Default for BalanceOptions {
    fn default() -> Self {
        Self {
            enabled: true,
            start_percent: 10,
            start_partitions: 2,
            max_under_way: 256,
        }
    }
}

/// A partition that a living broker leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Led {
    /// Which.
    pub partition: PartitionId,
    /// By whom; while a move is under way, by whom it will be led.
    pub leader: BrokerId,
    /// Who should lead it by its placement.
    pub preferred: Option<BrokerId>,
    /// Its part of the load, at least 1. All 1: the numbers of leaders are evened out.
    pub weight: u64,
    /// It isn't to be moved: it is being moved, or an operator moved it lately.
    pub pinned: bool,
}

/// A move that evens out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// What.
    pub partition: PartitionId,
    /// From whom.
    pub from: BrokerId,
    /// To whom.
    pub to: BrokerId,
}

/// Whether some broker's number of leaders is so far from the average that evening out is worth it.
pub fn is_uneven(options: &BalanceOptions, loads: &BTreeMap<BrokerId, u64>) -> bool {
    let count = loads.len() as u128;
    let total: u128 = loads.values().map(|load| u128::from(*load)).sum();
    loads.values().any(|load| {
        // All sides times the number of brokers, so that nothing is rounded.
        let distance = (u128::from(*load) * count).abs_diff(total);
        distance * 100 > total * u128::from(options.start_percent)
            && distance >= u128::from(options.start_partitions) * count
    })
}

/// At most `limit` moves towards evenness. `brokers` are those that may lead more: alive and not draining; what
/// others lead is left alone.
pub fn plan(brokers: &[BrokerId], led: &[Led], limit: usize) -> Vec<Planned> {
    let mut loads = loads_of(brokers, led);
    if loads.len() < 2 {
        return Vec::new();
    }
    let mut shelves = Shelves::new(brokers, led);
    let mut planned = Vec::new();
    while planned.len() < limit {
        let Some((from, to, index)) = next_move(&loads, &mut shelves, led) else {
            break;
        };
        let moved = &led[index];
        *loads.entry(from).or_default() -= moved.weight;
        *loads.entry(to).or_default() += moved.weight;
        shelves.take(from, to, index, moved);
        planned.push(Planned {
            partition: moved.partition,
            from,
            to,
        });
    }
    planned
}

fn loads_of(brokers: &[BrokerId], led: &[Led]) -> BTreeMap<BrokerId, u64> {
    let mut loads: BTreeMap<BrokerId, u64> = brokers.iter().map(|broker| (*broker, 0)).collect();
    for one in led {
        if let Some(load) = loads.get_mut(&one.leader) {
            *load = load.saturating_add(one.weight);
        }
    }
    loads
}

/// The best move between the most loaded broker that can give and the least loaded one.
fn next_move(
    loads: &BTreeMap<BrokerId, u64>,
    shelves: &mut Shelves,
    led: &[Led],
) -> Option<(BrokerId, BrokerId, usize)> {
    let (to, least) = loads.iter().min_by_key(|(id, load)| (**load, **id))?;
    let mut givers: Vec<(BrokerId, u64)> = loads.iter().map(|(id, load)| (*id, *load)).collect();
    givers.sort_unstable_by_key(|(id, load)| (std::cmp::Reverse(*load), *id));
    for (from, load) in givers {
        let difference = load - least;
        // A weight of the whole difference only swaps who is above. At most half of it (rounded up to
        // the next that still shrinks it) makes progress.
        if difference < 2 {
            break;
        }
        if let Some(index) = shelves.best(from, *to, difference, led) {
            return Some((from, *to, index));
        }
    }
    None
}

/// What each broker could give, by topic.
struct Shelves {
    free: HashMap<(BrokerId, TopicId), Vec<usize>>,
    /// All that a broker leads of a topic, pinned or not.
    counts: HashMap<(BrokerId, TopicId), u64>,
    topics: BTreeMap<BrokerId, Vec<TopicId>>,
}

impl Shelves {
    fn new(brokers: &[BrokerId], led: &[Led]) -> Self {
        let mut shelves = Self {
            free: HashMap::new(),
            counts: HashMap::new(),
            topics: brokers.iter().map(|broker| (*broker, Vec::new())).collect(),
        };
        for (index, one) in led.iter().enumerate() {
            let Some(topics) = shelves.topics.get_mut(&one.leader) else {
                continue;
            };
            let shelf = (one.leader, one.partition.topic);
            *shelves.counts.entry(shelf).or_default() += 1;
            if !one.pinned {
                shelves
                    .free
                    .entry(shelf)
                    .or_insert_with(|| {
                        topics.push(one.partition.topic);
                        Vec::new()
                    })
                    .push(index);
            }
        }
        for topics in shelves.topics.values_mut() {
            topics.sort_unstable();
        }
        shelves
    }

    /// Of the partitions whose move shrinks the difference: one that goes home, else one that doesn't leave its
    /// home, else any; of the topic that is most unevenly spread between the two.
    fn best(&self, from: BrokerId, to: BrokerId, difference: u64, led: &[Led]) -> Option<usize> {
        let surplus = |topic: TopicId| {
            let count = |broker| self.counts.get(&(broker, topic)).copied().unwrap_or(0);
            i128::from(count(from)) - i128::from(count(to))
        };
        let home = |one: &Led| match one.preferred {
            Some(preferred) if preferred == to => 2,
            Some(preferred) if preferred == from => 0,
            Some(_) | None => 1,
        };
        self.topics
            .get(&from)?
            .iter()
            .filter_map(|topic| {
                let shelf = self.free.get(&(from, *topic))?;
                let best = shelf
                    .iter()
                    .copied()
                    .filter(|index| led[*index].weight < difference)
                    .max_by_key(|index| {
                        let one = &led[*index];
                        // Equal halves are best; of equal ones the lowest index.
                        let off = difference.abs_diff(one.weight.saturating_mul(2));
                        let key = std::cmp::Reverse((off, one.partition.index));
                        (home(one), key)
                    })?;
                Some((home(&led[best]), surplus(*topic), best))
            })
            .max_by_key(|(home, surplus, index)| (*home, *surplus, std::cmp::Reverse(*index)))
            .map(|(_, _, index)| index)
    }

    fn take(&mut self, from: BrokerId, to: BrokerId, index: usize, moved: &Led) {
        let topic = moved.partition.topic;
        if let Some(shelf) = self.free.get_mut(&(from, topic)) {
            shelf.retain(|other| *other != index);
        }
        if let Some(count) = self.counts.get_mut(&(from, topic)) {
            *count -= 1;
        }
        *self.counts.entry((to, topic)).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_types::PartitionIndex;
    use uuid::Uuid;

    use super::*;

    fn broker(id: u32) -> BrokerId {
        BrokerId::new(id).unwrap()
    }

    fn partition(topic: u32, index: u32) -> PartitionId {
        PartitionId {
            topic: TopicId::new(Uuid::from_u128(0x100 + u128::from(topic))).unwrap(),
            index: PartitionIndex::new(index).unwrap(),
        }
    }

    fn led(topic: u32, index: u32, leader: u32) -> Led {
        Led {
            partition: partition(topic, index),
            leader: broker(leader),
            preferred: None,
            weight: 1,
            pinned: false,
        }
    }

    /// `counts[i]` partitions of one topic led by broker `i + 1`.
    fn spread(counts: &[u32]) -> (Vec<BrokerId>, Vec<Led>) {
        let mut index = 0;
        let mut all = Vec::new();
        for (id, count) in (1..).zip(counts) {
            for _ in 0..*count {
                all.push(led(1, index, id));
                index += 1;
            }
        }
        let brokers = (1..).zip(counts).map(|(id, _)| broker(id)).collect();
        (brokers, all)
    }

    fn apply(all: &mut [Led], planned: &[Planned]) {
        for one in planned {
            let found = all
                .iter_mut()
                .find(|l| l.partition == one.partition)
                .unwrap();
            assert_eq!(found.leader, one.from);
            found.leader = one.to;
        }
    }

    fn uneven(brokers: &[BrokerId], all: &[Led]) -> bool {
        is_uneven(&BalanceOptions::default(), &loads_of(brokers, all))
    }

    fn counts(brokers: &[BrokerId], all: &[Led]) -> Vec<u64> {
        loads_of(brokers, all).into_values().collect()
    }

    #[test]
    fn a_new_broker_gets_exactly_its_share() {
        let (brokers, mut all) = spread(&[500, 500, 0]);
        assert!(uneven(&brokers, &all));
        let planned = plan(&brokers, &all, usize::MAX);
        assert_eq!(planned.len(), 333);
        assert!(planned.iter().all(|one| one.to == broker(3)));
        apply(&mut all, &planned);
        let mut after = counts(&brokers, &all);
        after.sort_unstable();
        assert_eq!(after, [333, 333, 334]);
    }

    #[test]
    fn a_new_broker_among_many_is_noticed() {
        let mut many = vec![1_000; 19];
        many.push(0);
        let (brokers, all) = spread(&many);
        assert!(uneven(&brokers, &all));
    }

    #[test]
    fn a_small_difference_starts_nothing() {
        for even in [
            vec![109u32, 100, 91],
            vec![2, 1],
            vec![1, 0, 0],
            vec![0, 0],
            vec![1],
        ] {
            let (brokers, all) = spread(&even);
            assert!(!uneven(&brokers, &all), "{even:?}");
        }
        let (brokers, all) = spread(&[4, 0]);
        assert!(uneven(&brokers, &all));
    }

    #[test]
    fn a_partition_that_can_go_home_goes_first_and_a_pinned_one_stays() {
        let (brokers, mut all) = spread(&[4, 0]);
        for one in &mut all {
            one.preferred = Some(broker(1));
        }
        all[3].preferred = Some(broker(2));
        all[0].pinned = true;
        let planned = plan(&brokers, &all, usize::MAX);
        assert_eq!(planned.len(), 2);
        assert_eq!(planned[0].partition, all[3].partition);
        assert!(planned.iter().all(|one| one.partition != all[0].partition));
    }

    #[test]
    fn topics_are_spread_too() {
        // Broker 1 leads 6 of topic 1 and 2 of topic 2; broker 2 leads 2 of topic 2.
        let mut all: Vec<Led> = (0..6).map(|i| led(1, i, 1)).collect();
        all.extend((0..2).map(|i| led(2, i, 1)));
        all.extend((2..4).map(|i| led(2, i, 2)));
        let planned = plan(&[broker(1), broker(2)], &all, usize::MAX);
        assert_eq!(planned.len(), 3);
        assert!(
            planned
                .iter()
                .all(|one| one.partition.topic == partition(1, 0).topic)
        );
    }

    #[test]
    fn what_others_lead_is_left_alone() {
        let (_, all) = spread(&[0, 0, 50]);
        assert_eq!(plan(&[broker(1), broker(2)], &all, 10), []);
    }

    proptest! {
        #[test]
        fn equal_weights_even_out_with_the_fewest_moves(
            before in proptest::collection::vec(0u32..60, 2..7),
        ) {
            let (brokers, mut all) = spread(&before);
            let total: u32 = before.iter().sum();
            let n = u32::try_from(before.len()).unwrap();
            // The fewest: give the rounded-up shares to those that lead the most.
            let mut sorted = before.clone();
            sorted.sort_unstable_by(|a, b| b.cmp(a));
            let fewest: u32 = (0u32..)
                .zip(&sorted)
                .map(|(i, count)| count.saturating_sub(total / n + u32::from(i < total % n)))
                .sum();
            let planned = plan(&brokers, &all, usize::MAX);
            prop_assert_eq!(planned.len(), fewest as usize);
            apply(&mut all, &planned);
            let after = counts(&brokers, &all);
            let (min, max) = (after.iter().min().unwrap(), after.iter().max().unwrap());
            prop_assert!(max - min <= 1);
            prop_assert_eq!(plan(&brokers, &all, usize::MAX), vec![]);
            prop_assert!(!uneven(&brokers, &all));
        }

        #[test]
        fn any_weights_converge_in_batches_and_never_turn_back(
            given in proptest::collection::vec((0u32..5, 1u64..1_000, 0u32..6, any::<bool>()), 0..80),
            limit in 1usize..9,
        ) {
            let brokers: Vec<BrokerId> = (1..=5).map(broker).collect();
            let mut all: Vec<Led> = (0u32..)
                .zip(given)
                .map(|(index, (leader, weight, preferred, pinned))| Led {
                    preferred: BrokerId::new(preferred).ok(),
                    weight,
                    pinned,
                    ..led(index % 3, index, leader + 1)
                })
                .collect();
            let squares = |all: &[Led]| -> u128 {
                counts(&brokers, all).iter().map(|l| u128::from(*l).pow(2)).sum()
            };
            let pinned: Vec<Led> = all.iter().filter(|l| l.pinned).cloned().collect();
            // The sum of squares falls with every single move, so this ends, and nothing ever comes back to a
            // picture that was left.
            loop {
                let planned = plan(&brokers, &all, limit);
                prop_assert!(planned.len() <= limit);
                if planned.is_empty() {
                    break;
                }
                for one in &planned {
                    let before = squares(&all);
                    apply(&mut all, std::slice::from_ref(one));
                    prop_assert!(squares(&all) < before);
                }
            }
            let still: Vec<Led> = all.iter().filter(|l| l.pinned).cloned().collect();
            prop_assert_eq!(pinned, still);
        }
    }
}
