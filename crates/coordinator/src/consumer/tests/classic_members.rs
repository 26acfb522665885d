//! Members of a consumer group that speak the classic protocol.

use bytes::{BufMut, Bytes, BytesMut};

use super::*;
use crate::consumer::classic_protocol::parse_assignment;

/// A client of the classic protocol with a cooperative assignor.
pub(super) struct Classic {
    pub(super) id: Option<MemberId>,
    pub(super) generation: Generation,
    topics: Vec<String>,
    pub(super) owned: Assignment,
}

impl Classic {
    pub(super) fn new(topics: &[&str]) -> Self {
        Self {
            id: None,
            generation: Generation::ZERO,
            topics: topics.iter().map(|topic| (*topic).to_owned()).collect(),
            owned: Assignment::default(),
        }
    }

    pub(super) fn subscription(&self, cluster: &Cluster) -> Bytes {
        let string = |out: &mut BytesMut, text: &str| {
            out.put_i16(i16::try_from(text.len()).unwrap());
            out.put_slice(text.as_bytes());
        };
        let mut out = BytesMut::new();
        out.put_i16(1);
        out.put_i32(i32::try_from(self.topics.len()).unwrap());
        for topic in &self.topics {
            string(&mut out, topic);
        }
        out.put_i32(-1);
        let owned: Vec<_> = self.owned.topics().collect();
        out.put_i32(i32::try_from(owned.len()).unwrap());
        for (id, partitions) in owned {
            string(&mut out, cluster.topic_name(id).unwrap().as_str());
            out.put_i32(i32::try_from(partitions.len()).unwrap());
            for index in partitions {
                out.put_i32(index.to_wire());
            }
        }
        out.freeze()
    }

    pub(super) fn request(&self, host: &mut Host, cluster: &Cluster) -> JoinRequest {
        JoinRequest {
            member_id: self.id.clone(),
            protocols: vec![Protocol {
                name: "cooperative-sticky".into(),
                metadata: self.subscription(cluster),
            }],
            ..host.request("classic")
        }
    }

    /// Joins until it is let in, and syncs.
    pub(super) fn rejoin(&mut self, host: &mut Host, cluster: &Cluster) {
        let request = self.request(host, cluster);
        let mut token = host.join(request);
        if self.id.is_none() {
            self.id = host.refused(token).member_id;
            let request = self.request(host, cluster);
            token = host.join(request);
        }
        self.generation = host.joined(token).generation;
        self.sync(host, cluster).unwrap();
    }

    pub(super) fn sync(&mut self, host: &mut Host, cluster: &Cluster) -> Result<(), GroupError> {
        let id = self.id.clone().unwrap();
        let token = host.sync(&id, self.generation, &[]);
        let assignment = host.synced(token)?;
        self.owned = parse_assignment(&assignment, cluster).unwrap();
        Ok(())
    }

    pub(super) fn beat(&mut self, host: &mut Host) -> Result<(), GroupError> {
        host.heartbeat(self.id.as_ref().unwrap(), self.generation)
    }
}

fn mixed() -> (Host, Cluster, Consumer, Classic) {
    let cluster = Cluster::new(&[("t", 4)]);
    let mut host = host(&[("t", 4)]);
    let mut a = Consumer::new("a", &["t"]);
    a.settle(&mut host);
    let mut b = Classic::new(&["t"]);
    b.rejoin(&mut host, &cluster);
    (host, cluster, a, b)
}

#[test]
fn a_classic_member_joins_and_is_assigned_by_the_server() {
    let (mut host, cluster, mut a, mut b) = mixed();
    assert!(b.owned.is_empty());
    assert_eq!(b.beat(&mut host), Ok(()), "nothing is free yet");
    a.beat(&mut host).unwrap();
    a.follow();
    a.beat(&mut host).unwrap();
    assert_eq!(b.beat(&mut host), Err(GroupError::RebalanceInProgress));
    b.rejoin(&mut host, &cluster);
    assert_eq!(b.owned.len(), 2);
    assert!(!b.owned.shares_any_with(&a.owned));
    assert_eq!(b.beat(&mut host), Ok(()));
    assert_eq!(state(&host), ConsumerGroupState::Stable);
    let members = described(&host).members;
    assert_eq!(members.iter().filter(|m| m.is_classic).count(), 1);
}

#[test]
fn a_classic_member_gives_up_before_the_next_one_gets() {
    let (mut host, cluster, mut a, mut b) = mixed();
    a.settle(&mut host);
    b.rejoin(&mut host, &cluster);
    let mut c = Consumer::new("c", &["t"]);
    c.beat(&mut host).unwrap();
    for _ in 0..3 {
        a.beat(&mut host).unwrap();
        a.follow();
        if b.beat(&mut host).is_err() {
            b.rejoin(&mut host, &cluster);
        }
        c.beat(&mut host).unwrap();
        c.follow();
        assert!(!c.owned.shares_any_with(&b.owned));
        assert!(!c.owned.shares_any_with(&a.owned));
    }
    assert_eq!(a.owned.len() + b.owned.len() + c.owned.len(), 4);
    assert_eq!(state(&host), ConsumerGroupState::Stable);
}

#[test]
fn a_classic_member_has_its_own_session_and_leaves_by_its_own_request() {
    let (mut host, _, mut a, mut b) = mixed();
    let id = b.id.clone().unwrap();
    let token = host.leave(vec![crate::tests::leaving(&id)]);
    assert!(
        matches!(host.replies.get(&token), Some(Reply::Leave(Ok(left))) if left[0].result.is_ok())
    );
    assert_eq!(b.beat(&mut host), Err(GroupError::UnknownMemberId));
    // Nobody leaves for a member of the other protocol.
    let token = host.leave(vec![crate::tests::leaving(&a.id)]);
    assert!(
        matches!(host.replies.get(&token), Some(Reply::Leave(Ok(left))) if left[0].result == Err(GroupError::UnknownMemberId))
    );
    a.settle(&mut host);
    assert_eq!(a.owned.len(), 4);
}

#[test]
fn a_classic_member_that_does_not_join_when_told_is_dropped() {
    let (mut host, _, mut a, mut b) = mixed();
    a.topics.push("u".to_owned());
    a.settle(&mut host);
    assert_eq!(b.beat(&mut host), Err(GroupError::RebalanceInProgress));
    for _ in 0..30 {
        host.advance(3_000);
        let _ = b.beat(&mut host);
        a.beat(&mut host).unwrap();
    }
    assert_eq!(b.beat(&mut host), Err(GroupError::UnknownMemberId));
}

#[test]
fn other_protocols_are_not_let_into_a_consumer_group() {
    let mut host = host(&[("t", 1)]);
    Consumer::new("a", &["t"]).settle(&mut host);
    let mut request = host.request("c");
    request.protocol_type = "connect".to_owned();
    let token = host.join(request);
    assert_eq!(
        host.refused(token).error,
        GroupError::InconsistentGroupProtocol
    );
}
