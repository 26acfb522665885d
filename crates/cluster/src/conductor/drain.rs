//! Where the partitions of a broker go that gives them away: a pure planner.

use std::collections::BTreeMap;

use tidegate_types::{BrokerId, PartitionId};

/// A broker that may take partitions: alive, able to lead, and not draining.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its number.
    pub id: BrokerId,
    /// Its rack or zone.
    pub rack: Option<String>,
    /// How many partitions it leads, those on their way to it included.
    pub led: u64,
}

/// A partition to be given away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    /// Which.
    pub partition: PartitionId,
    /// The brokers that may lead it, the preferred first.
    pub placement: Vec<BrokerId>,
}

/// A new leader for each partition; empty if there is no candidate.
///
/// Of a partition's placement the least loaded candidate takes it. If none of the placement can, the least loaded
/// of all does, and takes the leaving broker's slot; of equally loaded ones (to within a partition in 16) one of
/// the leaving broker's rack, which leaves the placement as spread over racks as it was.
pub fn spread(
    leaving: &[Leaving],
    candidates: &[Candidate],
    rack: Option<&str>,
) -> Vec<(PartitionId, BrokerId)> {
    let mut led: BTreeMap<BrokerId, u64> = candidates.iter().map(|c| (c.id, c.led)).collect();
    let same_rack = |candidate: &Candidate| rack.is_some() && candidate.rack.as_deref() == rack;
    leaving
        .iter()
        .filter_map(|one| {
            let placed = candidates
                .iter()
                .map(|c| c.id)
                .filter(|id| one.placement.contains(id))
                .min_by_key(|id| (led[id], *id));
            let to = placed.or_else(|| {
                let least = led.values().min().copied()?;
                candidates
                    .iter()
                    .filter(|c| led[&c.id] <= least + least / 16)
                    .min_by_key(|c| (!same_rack(c), led[&c.id], c.id))
                    .map(|c| c.id)
            })?;
            *led.entry(to).or_default() += 1;
            Some((one.partition, to))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use tidegate_types::{PartitionIndex, TopicId};
    use uuid::Uuid;

    use super::*;

    fn broker(id: u32) -> BrokerId {
        BrokerId::new(id).unwrap()
    }

    fn candidate(id: u32, rack: Option<&str>, led: u64) -> Candidate {
        Candidate {
            id: broker(id),
            rack: rack.map(str::to_owned),
            led,
        }
    }

    fn leaving(count: u32, placement: &[u32]) -> Vec<Leaving> {
        (0..count)
            .map(|index| Leaving {
                partition: PartitionId {
                    topic: TopicId::new(Uuid::from_u128(9)).unwrap(),
                    index: PartitionIndex::new(index).unwrap(),
                },
                placement: placement.iter().map(|id| broker(*id)).collect(),
            })
            .collect()
    }

    fn received(planned: &[(PartitionId, BrokerId)], id: u32) -> usize {
        planned.iter().filter(|(_, to)| *to == broker(id)).count()
    }

    #[test]
    fn all_are_spread_so_that_the_takers_end_even() {
        let candidates = [candidate(2, None, 100), candidate(3, None, 40)];
        let planned = spread(&leaving(200, &[1]), &candidates, None);
        assert_eq!((received(&planned, 2), received(&planned, 3)), (70, 130));
    }

    #[test]
    fn the_placement_comes_first() {
        let candidates = [candidate(2, None, 100), candidate(3, None, 0)];
        let planned = spread(&leaving(5, &[1, 2]), &candidates, None);
        assert_eq!(received(&planned, 2), 5);
    }

    #[test]
    fn of_equally_loaded_ones_those_of_the_rack_come_first_but_end_even() {
        let candidates = [
            candidate(2, Some("b"), 0),
            candidate(3, Some("a"), 0),
            candidate(4, None, 0),
        ];
        let one = spread(&leaving(1, &[1]), &candidates, Some("a"));
        assert_eq!(one[0].1, broker(3));
        let many = spread(&leaving(30, &[1]), &candidates, Some("a"));
        assert!((2..=4).all(|id| received(&many, id) == 10), "{many:?}");
    }

    #[test]
    fn without_a_candidate_nothing_is_planned() {
        assert_eq!(spread(&leaving(3, &[1, 2]), &[], None), []);
    }
}
