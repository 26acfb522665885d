use super::*;

#[test]
fn a_dynamic_member_must_come_back_with_the_id_it_is_given() {
    let mut host = Host::new();
    let request = host.request("client");
    let refused = {
        let token = host.join(request.clone());
        host.refused(token)
    };
    assert_eq!(refused.error, GroupError::MemberIdRequired);
    let id = refused.member_id.unwrap();
    assert_eq!(id.as_str(), format!("client-{}", request.random));

    let token = host.join(JoinRequest {
        member_id: Some(id.clone()),
        ..request
    });
    assert!(
        !host.replies.contains_key(&token),
        "the initial delay was skipped"
    );
    host.advance(3_000);
    let joined = host.joined(token);
    assert_eq!(joined.member_id, id);
    assert_eq!(joined.leader, Some(id));
    assert_eq!(joined.generation, generation(1));
    assert_eq!(joined.protocol_type.as_deref(), Some("consumer"));
    assert_eq!(joined.protocol_name.as_deref(), Some("range"));
    assert_eq!(joined.members.len(), 1);
}

#[test]
fn below_version_4_a_member_is_added_at_once() {
    let mut host = Host::new();
    let request = JoinRequest {
        api_version: 3,
        ..host.request("old")
    };
    let token = host.join(request);
    host.advance(3_000);
    assert_eq!(host.joined(token).generation, generation(1));
}

#[test]
fn version_0_takes_the_session_timeout_as_rebalance_timeout() {
    let mut host = Host::new();
    let request = JoinRequest {
        api_version: 0,
        rebalance_timeout_ms: -1,
        ..host.request("old")
    };
    let token = host.join(request);
    host.advance(3_000);
    let id = host.joined(token).member_id;
    // It never syncs: that is up after the rebalance timeout, here 10 s, if the session is kept alive.
    for _ in 0..3 {
        host.advance(3_000);
        assert_eq!(host.heartbeat(&id, generation(1)), Ok(()));
    }
    host.advance(1_000);
    assert_eq!(
        host.heartbeat(&id, generation(1)),
        Err(GroupError::UnknownMemberId)
    );
}

#[test]
fn a_given_id_that_is_never_used_expires_with_its_session() {
    let mut host = Host::new();
    let request = host.request("client");
    let first = host.join(request.clone());
    let id = host.refused(first).member_id;
    host.advance(10_000);
    let token = host.join(JoinRequest {
        member_id: id,
        ..request
    });
    assert_eq!(host.refused(token).error, GroupError::UnknownMemberId);
}

#[test]
fn an_unknown_member_id_is_refused_and_makes_no_group() {
    let mut host = Host::new();
    let request = JoinRequest {
        member_id: MemberId::from_wire("stranger"),
        ..host.request("c")
    };
    let token = host.join(request);
    assert_eq!(host.refused(token).error, GroupError::UnknownMemberId);
    assert_eq!(host.coordinator.group_count(), 0);
}

#[test]
fn session_timeouts_outside_the_range_are_refused() {
    let mut host = Host::new();
    for (timeout, allowed) in [
        (5_999, false),
        (6_000, true),
        (1_800_000, true),
        (1_800_001, false),
        (-1, false),
    ] {
        let request = JoinRequest {
            session_timeout_ms: timeout,
            ..host.request("c")
        };
        let token = host.join(request);
        let expected = if allowed {
            GroupError::MemberIdRequired
        } else {
            GroupError::InvalidSessionTimeout
        };
        assert_eq!(host.refused(token).error, expected, "{timeout}");
    }
}

#[test]
fn the_empty_group_id_can_not_be_joined() {
    let mut host = Host::new();
    let request = JoinRequest {
        group_id: group(""),
        ..host.request("c")
    };
    let token = host.join(request);
    assert_eq!(host.refused(token).error, GroupError::InvalidGroupId);
}

#[test]
fn protocols_must_fit_the_group() {
    let mut host = Host::new();
    host.stable();
    let other_type = JoinRequest {
        protocol_type: "connect".to_owned(),
        ..host.request("c")
    };
    let nothing_common = JoinRequest {
        protocols: vec![protocol("sticky", &["t"])],
        ..host.request("c")
    };
    let no_protocols = JoinRequest {
        protocols: Vec::new(),
        ..host.request("c")
    };
    for request in [other_type, nothing_common, no_protocols] {
        let token = host.join(request);
        assert_eq!(
            host.refused(token).error,
            GroupError::InconsistentGroupProtocol
        );
    }
}

#[test]
fn a_refused_first_join_leaves_no_group() {
    let mut host = Host::new();
    let request = JoinRequest {
        protocols: Vec::new(),
        ..host.request("c")
    };
    let token = host.join(request);
    assert_eq!(
        host.refused(token).error,
        GroupError::InconsistentGroupProtocol
    );
    assert_eq!(host.coordinator.group_count(), 0);
    assert!(host.log.is_empty());
}

#[test]
fn the_protocol_with_most_votes_among_the_common_ones_is_chosen() {
    let mut host = Host::new();
    let prefer = |names: &[&str]| {
        names
            .iter()
            .map(|name| protocol(name, &["t"]))
            .collect::<Vec<_>>()
    };
    let mut tokens = Vec::new();
    for names in [&["only-a", "x", "y"][..], &["y", "x"], &["y", "x"]] {
        let request = JoinRequest {
            api_version: 3,
            protocols: prefer(names),
            ..host.request("c")
        };
        tokens.push(host.join(request));
    }
    host.advance(60_000);
    assert_eq!(host.joined(tokens[0]).protocol_name.as_deref(), Some("y"));
}

#[test]
fn a_member_that_names_a_protocol_twice_counts_once() {
    let mut host = Host::new();
    let twice = vec![protocol("range", &["t"]), protocol("range", &["u"])];
    let request = JoinRequest {
        api_version: 3,
        protocols: twice,
        ..host.request("c")
    };
    host.join(request);
    // With a double count 2 != 1 member, and nobody else could join.
    let request = JoinRequest {
        api_version: 3,
        ..host.request("d")
    };
    let token = host.join(request);
    host.advance(60_000);
    assert_eq!(host.joined(token).generation, generation(1));
}

#[test]
fn the_initial_rebalance_waits_longer_while_members_come_but_no_longer_than_the_rebalance_timeout()
{
    let mut host = Host::new();
    let (_, first) = host.join_dynamic("c");
    // Each newcomer within a delay of 3 s extends it, up to 3 s + (7 s − 3 s).
    for _ in 0..2 {
        host.advance(2_000);
        host.join_dynamic("c");
    }
    host.advance(1_000);
    assert!(
        !host.replies.contains_key(&first),
        "at 5 s, with a newcomer at 4 s, it must still wait"
    );
    host.advance(60_000);
    assert_eq!(host.joined(first).members.len(), 3);
}

#[test]
fn a_short_rebalance_timeout_limits_the_initial_delay() {
    let mut host = Host::new();
    let request = JoinRequest {
        api_version: 3,
        rebalance_timeout_ms: 4_000,
        ..host.request("c")
    };
    let first = host.join(request.clone());
    host.advance(2_500);
    host.join(JoinRequest {
        random: Uuid::from_u128(77),
        ..request.clone()
    });
    host.advance(500);
    assert!(!host.replies.contains_key(&first));
    // 1 s was left of the 4.
    host.join(JoinRequest {
        random: Uuid::from_u128(78),
        ..request
    });
    host.advance(1_000);
    assert_eq!(host.joined(first).members.len(), 3);
}

#[test]
fn a_second_join_of_a_waiting_member_answers_the_first() {
    let mut host = Host::new();
    let (id, first) = host.join_dynamic("c");
    let request = JoinRequest {
        member_id: Some(id.clone()),
        ..host.request("c")
    };
    let second = host.join(request);
    assert_eq!(host.refused(first).error, GroupError::RebalanceInProgress);
    host.advance(3_000);
    assert_eq!(host.joined(second).member_id, id);
}

#[test]
fn a_new_member_that_waits_too_long_is_dropped() {
    let mut host = Host::with_config(GroupConfig {
        initial_rebalance_delay_ms: 400_000,
        ..GroupConfig::default()
    });
    let (_, token) = host.join_dynamic("c");
    host.advance(299_999);
    assert!(!host.replies.contains_key(&token));
    host.advance(1);
    assert_eq!(host.refused(token).error, GroupError::UnknownMemberId);
}
