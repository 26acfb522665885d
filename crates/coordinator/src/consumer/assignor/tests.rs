//! Claims about both assignors, for random groups and for examples.

use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn topic(number: u8) -> TopicId {
    TopicId::new(Uuid::from_u128(u128::from(number) + 1)).unwrap()
}

fn id(name: &str) -> MemberId {
    MemberId::from_wire(name).unwrap()
}

fn spec(members: &[(&str, &[u8])], partitions: &[u32]) -> GroupSpec {
    GroupSpec {
        members: members
            .iter()
            .map(|(name, topics)| MemberSpec {
                id: id(name),
                instance_id: None,
                topics: topics.iter().map(|number| topic(*number)).collect(),
                target: Assignment::default(),
            })
            .collect(),
        partitions: (0_u8..)
            .zip(partitions)
            .map(|(number, count)| (topic(number), *count))
            .collect(),
    }
}

fn with_targets(mut spec: GroupSpec, targets: &BTreeMap<MemberId, Assignment>) -> GroupSpec {
    for member in &mut spec.members {
        member.target = targets.get(&member.id).cloned().unwrap_or_default();
    }
    spec
}

fn indexes_of(targets: &BTreeMap<MemberId, Assignment>, name: &str, number: u8) -> Vec<u32> {
    targets[&id(name)]
        .partitions()
        .filter(|(of, _)| *of == topic(number))
        .map(|(_, index)| index.get())
        .collect()
}

fn moved(before: &BTreeMap<MemberId, Assignment>, after: &BTreeMap<MemberId, Assignment>) -> usize {
    after
        .iter()
        .map(|(member, target)| {
            let had = before.get(member).cloned().unwrap_or_default();
            target
                .partitions()
                .filter(|(t, i)| !had.contains(*t, *i))
                .count()
        })
        .sum()
}

#[test]
fn range_gives_equal_indexes_of_equal_topics_to_one_member() {
    let targets = ServerAssignor::Range.assign(&spec(&[("a", &[0, 1]), ("b", &[0, 1])], &[3, 3]));
    for number in [0, 1] {
        assert_eq!(indexes_of(&targets, "a", number), [0, 1]);
        assert_eq!(indexes_of(&targets, "b", number), [2]);
    }
}

#[test]
fn range_follows_the_instance_ids_of_static_members() {
    let mut group = spec(&[("a", &[0]), ("b", &[0]), ("c", &[0])], &[3]);
    group.members[1].instance_id = InstanceId::new("z").ok();
    group.members[2].instance_id = InstanceId::new("y").ok();
    let targets = ServerAssignor::Range.assign(&group);
    assert_eq!(indexes_of(&targets, "c", 0), [0]);
    assert_eq!(indexes_of(&targets, "b", 0), [1]);
    assert_eq!(indexes_of(&targets, "a", 0), [2]);
}

#[test]
fn uniform_moves_only_what_a_new_member_needs() {
    let two = spec(&[("a", &[0]), ("b", &[0])], &[6]);
    let before = ServerAssignor::Uniform.assign(&two);
    let three = with_targets(
        spec(&[("a", &[0]), ("b", &[0]), ("c", &[0])], &[6]),
        &before,
    );
    let after = ServerAssignor::Uniform.assign(&three);
    assert_eq!(moved(&before, &after), 2);
    // And the two go back when the third leaves.
    let back = ServerAssignor::Uniform.assign(&with_targets(two, &after));
    assert_eq!(moved(&after, &back), 2);
}

#[test]
fn uniform_leaves_the_one_above_the_share_to_who_has_it() {
    let group = spec(&[("a", &[0]), ("b", &[0])], &[3]);
    let mut targets = BTreeMap::new();
    let all = |range: std::ops::Range<u32>| {
        range
            .map(|i| (topic(0), PartitionIndex::new(i).unwrap()))
            .collect::<Assignment>()
    };
    targets.insert(id("a"), all(0..1));
    targets.insert(id("b"), all(1..3));
    let after = ServerAssignor::Uniform.assign(&with_targets(group, &targets));
    assert_eq!(after, targets);
}

#[test]
fn uniform_evens_out_what_unequal_subscriptions_allow() {
    // Only a may read topic 1; b gets topic 0 whole.
    let group = spec(&[("a", &[0, 1]), ("b", &[0])], &[2, 2]);
    let targets = ServerAssignor::Uniform.assign(&group);
    assert_eq!(indexes_of(&targets, "a", 1), [0, 1]);
    assert_eq!(indexes_of(&targets, "b", 0), [0, 1]);
}

fn groups() -> impl Strategy<Value = GroupSpec> {
    let partitions = proptest::collection::vec(0_u32..9, 1..5);
    let masks = proptest::collection::vec(0_u8..16, 1..7);
    (partitions, masks, any::<bool>(), any::<u64>()).prop_map(|(partitions, masks, equal, seed)| {
        let count = u8::try_from(partitions.len()).unwrap();
        let members: Vec<(String, Vec<u8>)> = masks
            .iter()
            .enumerate()
            .map(|(at, mask)| {
                let mask = if equal { masks[0] } else { *mask };
                let topics = (0..count).filter(|bit| mask & (1 << bit) != 0).collect();
                (format!("m{at}"), topics)
            })
            .collect();
        let members: Vec<(&str, &[u8])> = members
            .iter()
            .map(|(name, topics)| (name.as_str(), topics.as_slice()))
            .collect();
        let mut group = spec(&members, &partitions);
        // Some former targets, sound or not.
        let mut number = seed;
        for member in &mut group.members {
            for _ in 0..number % 4 {
                number = number
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let of = topic(u8::try_from((number >> 33) % 5).unwrap());
                let index = u32::try_from((number >> 40) % 10).unwrap();
                member
                    .target
                    .insert(of, PartitionIndex::new(index).unwrap());
            }
        }
        group
    })
}

proptest! {
    #[test]
    fn every_partition_that_is_wanted_is_in_exactly_one_target(group in groups()) {
        for assignor in [ServerAssignor::Uniform, ServerAssignor::Range] {
            let targets = assignor.assign(&group);
            let mut given = BTreeSet::new();
            for member in &group.members {
                for (topic, index) in targets[&member.id].partitions() {
                    prop_assert!(member.topics.contains(&topic));
                    prop_assert!(index.get() < group.partitions[&topic]);
                    prop_assert!(given.insert((topic, index)), "given twice");
                }
            }
            let wanted: usize = group
                .partitions
                .iter()
                .filter(|(topic, _)| group.members.iter().any(|m| m.topics.contains(topic)))
                .map(|(_, count)| *count as usize)
                .sum();
            prop_assert_eq!(given.len(), wanted);
        }
    }

    #[test]
    fn uniform_is_even_among_equals_and_stays_as_it_is(group in groups()) {
        let targets = ServerAssignor::Uniform.assign(&group);
        if group.has_one_subscription() {
            let sizes: Vec<usize> = targets.values().map(Assignment::len).collect();
            let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            prop_assert!(most - least <= 1, "{:?}", sizes);
        }
        let again = ServerAssignor::Uniform.assign(&with_targets(group, &targets));
        prop_assert_eq!(again, targets);
    }
}
