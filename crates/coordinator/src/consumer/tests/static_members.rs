//! Static members (KIP-345 in the consumer protocol).

use super::*;

fn fixed(id: &str, instance: &str) -> Consumer {
    Consumer {
        instance_id: Some(InstanceId::new(instance).unwrap()),
        ..Consumer::new(id, &["t"])
    }
}

#[test]
fn a_static_member_that_leaves_for_a_while_finds_its_partitions_again() {
    let mut host = host(&[("t", 4)]);
    let mut both = [fixed("a", "i"), fixed("b", "j")];
    converge(&mut host, &mut both);
    let [mut a, mut b] = both;
    let had = a.assigned.clone();
    let epoch = described(&host).epoch;
    a.leave(&mut host, MemberEpoch::LEFT_FOR_A_WHILE).unwrap();
    b.beat(&mut host).unwrap();
    b.follow();
    assert_eq!(b.assigned.len(), 2, "nobody else gets them meanwhile");
    let mut back = fixed("c", "i");
    back.beat(&mut host).unwrap();
    assert_eq!(back.assigned, had);
    assert_eq!(described(&host).epoch, epoch, "no rebalance");
    assert_eq!(described(&host).members.len(), 2);
    // Its former self is fenced.
    a.epoch = MemberEpoch::at(epoch);
    assert_eq!(a.beat(&mut host), Err(GroupError::FencedInstanceId));
}

#[test]
fn an_instance_that_has_not_left_can_not_be_taken() {
    let mut host = host(&[("t", 1)]);
    fixed("a", "i").settle(&mut host);
    let refused = fixed("b", "i").beat(&mut host);
    assert_eq!(refused, Err(GroupError::UnreleasedInstanceId));
}

#[test]
fn a_static_member_that_does_not_come_back_is_dropped_after_its_session() {
    let mut host = host(&[("t", 2)]);
    let mut both = [fixed("a", "i"), fixed("b", "j")];
    converge(&mut host, &mut both);
    let [mut a, mut b] = both;
    a.leave(&mut host, MemberEpoch::LEFT_FOR_A_WHILE).unwrap();
    for _ in 0..4 {
        host.advance(15_000);
        b.beat(&mut host).unwrap();
    }
    b.settle(&mut host);
    assert_eq!(b.assigned, of("t", &[0, 1]));
}

#[test]
fn what_a_static_member_left_is_known_after_a_restart() {
    let mut host = host(&[("t", 2)]);
    let mut a = fixed("a", "i");
    a.settle(&mut host);
    a.leave(&mut host, MemberEpoch::LEFT_FOR_A_WHILE).unwrap();
    host.restart();
    see(&mut host, &Cluster::new(&[("t", 2)]));
    let mut back = fixed("b", "i");
    back.beat(&mut host).unwrap();
    assert_eq!(back.assigned, of("t", &[0, 1]));
}

#[test]
fn an_unknown_instance_is_told_so() {
    let mut host = host(&[("t", 2)]);
    Consumer::new("a", &["t"]).settle(&mut host);
    let mut x = fixed("x", "i");
    x.epoch = MemberEpoch::from_wire(1);
    assert_eq!(x.beat(&mut host), Err(GroupError::UnknownMemberId));
    assert_eq!(
        x.leave(&mut host, MemberEpoch::LEFT_FOR_A_WHILE),
        Err(GroupError::UnknownMemberId)
    );
}

#[test]
fn of_two_members_with_one_instance_the_one_that_came_later_stays() {
    let mut host = host(&[("t", 2)]);
    // By its id the former one is looked at first, or last.
    for (former, later) in [("a", "b"), ("d", "c")] {
        let mut former = fixed(former, "i");
        former.settle(&mut host);
        host.hold = true;
        let leave = ConsumerHeartbeatRequest {
            member_epoch: MemberEpoch::LEAVING,
            ..former.short_request()
        };
        start(&mut host, leave);
        let mut later = fixed(later, "i");
        let token = start(&mut host, later.request());
        host.settle(Err(AppendFailure::Unavailable));
        host.release();
        later.take(reply(&host, token).unwrap()).unwrap();
        later.settle(&mut host);
        assert_eq!(later.assigned, of("t", &[0, 1]));
        let members = described(&host).members;
        assert_eq!(members.len(), 1, "{members:?}");
        host.restart();
        see(&mut host, &Cluster::new(&[("t", 2)]));
        assert_eq!(described(&host).members.len(), 1);
        later.leave(&mut host, MemberEpoch::LEAVING).unwrap();
    }
}
