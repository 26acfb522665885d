//! Classic groups by hand, and static members.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    DescribeGroupsRequest, FindCoordinatorRequest, GroupId, HeartbeatRequest, JoinGroupRequest,
    JoinGroupResponse, LeaveGroupRequest, SyncGroupRequest,
};
use kafka_protocol::protocol::StrBytes;
use tidegate_harness::{Broker, BrokerOptions, RawClient};

use crate::support::{connect, errors, is_kafka, text, unique};

/// Waits until the group has a coordinator (its topic may have to be created first).
pub(crate) async fn find_coordinator(client: &mut RawClient, group: &str) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let request = FindCoordinatorRequest::default()
            .with_key(text(group))
            .with_key_type(0);
        let code = client.call(3, &request).await?.error_code;
        if code == errors::NONE {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "FindCoordinator answers {code}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A member of a classic group, played by hand.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) group: String,
    pub(crate) topic: String,
    pub(crate) instance: Option<String>,
    pub(crate) session_timeout_ms: i32,
    pub(crate) id: String,
    pub(crate) generation: i32,
}

/// A consumer's subscription, version 0: version, topics, no user data. A group that is subscribed to nothing keeps no
/// offsets (KIP-211), so the topic matters.
fn subscription(topic: &str) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_i16(0);
    bytes.put_i32(1);
    bytes.put_i16(i16::try_from(topic.len()).expect("a short name"));
    bytes.put_slice(topic.as_bytes());
    bytes.put_i32(-1);
    bytes.freeze()
}

const SESSION_TIMEOUT_MS: i32 = 6_000;

impl Member {
    fn instance_id(&self) -> Option<StrBytes> {
        self.instance.as_deref().map(text)
    }

    fn join_request(&self) -> JoinGroupRequest {
        JoinGroupRequest::default()
            .with_group_id(GroupId(text(&self.group)))
            .with_session_timeout_ms(self.session_timeout_ms)
            .with_rebalance_timeout_ms(10_000)
            .with_member_id(text(&self.id))
            .with_group_instance_id(self.instance_id())
            .with_protocol_type(text("consumer"))
            .with_protocols(vec![
                JoinGroupRequestProtocol::default()
                    .with_name(text("range"))
                    .with_metadata(subscription(&self.topic)),
            ])
    }

    /// Joins until answered with anything but "loading" or "take this id".
    pub(crate) async fn join(&mut self, client: &mut RawClient) -> Result<JoinGroupResponse> {
        find_coordinator(client, &self.group).await?;
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let answer = client.call(7, &self.join_request()).await?;
            match answer.error_code {
                errors::NONE => {
                    self.id = answer.member_id.to_string();
                    self.generation = answer.generation_id;
                    return Ok(answer);
                }
                errors::MEMBER_ID_REQUIRED => self.id = answer.member_id.to_string(),
                errors::COORDINATOR_LOAD_IN_PROGRESS | errors::NOT_COORDINATOR
                    if Instant::now() < deadline =>
                {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                code => bail!("JoinGroup answered {code}"),
            }
        }
    }

    /// Syncs; a leader passes assignments (member id, bytes). Gives its own assignment.
    pub(crate) async fn sync(
        &self,
        client: &mut RawClient,
        assignments: &[(&str, &[u8])],
    ) -> Result<Bytes> {
        let assignments = assignments
            .iter()
            .map(|(id, bytes)| {
                SyncGroupRequestAssignment::default()
                    .with_member_id(text(id))
                    .with_assignment(Bytes::copy_from_slice(bytes))
            })
            .collect();
        let request = SyncGroupRequest::default()
            .with_group_id(GroupId(text(&self.group)))
            .with_generation_id(self.generation)
            .with_member_id(text(&self.id))
            .with_group_instance_id(self.instance_id())
            .with_protocol_type(Some(text("consumer")))
            .with_protocol_name(Some(text("range")))
            .with_assignments(assignments);
        let answer = client.call(5, &request).await?;
        ensure!(
            answer.error_code == errors::NONE,
            "SyncGroup answered {}",
            answer.error_code
        );
        Ok(answer.assignment)
    }

    /// A member of a group of its own, joined and synced.
    pub(crate) async fn join_alone(
        client: &mut RawClient,
        group: &str,
        topic: &str,
    ) -> Result<Self> {
        Self::new(group, topic, None).joined_alone(client).await
    }

    pub(crate) fn new(group: &str, topic: &str, instance: Option<&str>) -> Self {
        Self {
            group: group.to_owned(),
            topic: topic.to_owned(),
            instance: instance.map(str::to_owned),
            session_timeout_ms: SESSION_TIMEOUT_MS,
            id: String::new(),
            generation: -1,
        }
    }

    pub(crate) async fn joined_alone(self, client: &mut RawClient) -> Result<Self> {
        let mut member = self;
        member.join(client).await?;
        let id = member.id.clone();
        member.sync(client, &[(&id, b"assignment")]).await?;
        Ok(member)
    }

    /// Joins again and syncs: a rebalance.
    pub(crate) async fn rejoin(&mut self, client: &mut RawClient) -> Result<()> {
        self.join(client).await?;
        let id = self.id.clone();
        self.sync(client, &[(&id, b"assignment")]).await?;
        Ok(())
    }

    pub(crate) async fn heartbeat_code(&self, client: &mut RawClient) -> Result<i16> {
        let request = HeartbeatRequest::default()
            .with_group_id(GroupId(text(&self.group)))
            .with_generation_id(self.generation)
            .with_member_id(text(&self.id))
            .with_group_instance_id(self.instance_id());
        Ok(client.call(4, &request).await?.error_code)
    }

    /// A heartbeat that must succeed.
    pub(crate) async fn heartbeat(&self, client: &mut RawClient) -> Result<()> {
        let code = self.heartbeat_code(client).await?;
        ensure!(code == errors::NONE, "the heartbeat was answered {code}");
        Ok(())
    }

    /// Leaves the group.
    pub(crate) async fn leave(&self, client: &mut RawClient) -> Result<()> {
        let identity = MemberIdentity::default()
            .with_member_id(text(&self.id))
            .with_group_instance_id(self.instance_id());
        let request = LeaveGroupRequest::default()
            .with_group_id(GroupId(text(&self.group)))
            .with_members(vec![identity]);
        let answer = client.call(4, &request).await?;
        ensure!(
            answer.error_code == errors::NONE,
            "LeaveGroup answered {}",
            answer.error_code
        );
        Ok(())
    }
}

pub(crate) async fn group_state(client: &mut RawClient, group: &str) -> Result<(String, usize)> {
    let request = DescribeGroupsRequest::default().with_groups(vec![GroupId(text(group))]);
    let answer = client.call(5, &request).await?;
    let described = answer.groups.first().context("no description")?;
    Ok((described.group_state.to_string(), described.members.len()))
}

/// O-GR-01. Its own broker, since it is restarted.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_static_member_that_rejoined_survives_a_coordinator_restart() -> Result<()> {
    let mut broker = Broker::start(BrokerOptions::default())?;
    let mut client = RawClient::connect(&broker.bootstrap()).await?;
    let mut first = Member::new("static", "t", Some("i"));
    // Kafka loads the group long before its coordinator can be found again: sessions must outlast that.
    first.session_timeout_ms = if is_kafka() {
        20_000
    } else {
        SESSION_TIMEOUT_MS
    };
    let first = first.joined_alone(&mut client).await?;

    let mut second = Member {
        id: String::new(),
        ..first.clone()
    };
    second.join(&mut client).await?;
    ensure!(second.id != first.id, "the rejoin kept the member id");
    assert_eq!(
        second.generation, first.generation,
        "the rejoin made a new generation"
    );
    assert_eq!(
        &second.sync(&mut client, &[]).await?[..],
        b"assignment",
        "the rejoin lost the assignment"
    );
    assert_eq!(
        first.heartbeat_code(&mut client).await?,
        errors::FENCED_INSTANCE_ID
    );
    second.heartbeat(&mut client).await?;

    broker.crash_and_restart()?;
    let mut client = RawClient::connect(&broker.bootstrap()).await?;
    find_coordinator(&mut client, "static").await?;
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match second.heartbeat_code(&mut client).await? {
            errors::NONE => break,
            errors::COORDINATOR_LOAD_IN_PROGRESS | errors::NOT_COORDINATOR
                if Instant::now() < deadline =>
            {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            code => bail!("after the restart the heartbeat was answered {code}"),
        }
    }
    assert_eq!(
        first.heartbeat_code(&mut client).await?,
        errors::FENCED_INSTANCE_ID
    );

    // Silence beyond the session time-out removes even a static member.
    let silent_since = Instant::now();
    loop {
        let (state, members) = group_state(&mut client, "static").await?;
        if members == 0 {
            assert_eq!(state, "Empty");
            let silence = silent_since.elapsed();
            ensure!(
                silence > Duration::from_secs(4),
                "removed after {silence:?} already"
            );
            return Ok(());
        }
        ensure!(
            silent_since.elapsed() < Duration::from_secs(30),
            "the silent member is still there"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// O-GR-01, variant: the rejoin comes while the group waits for its leader's assignment.
#[tokio::test]
async fn a_static_rejoin_before_the_assignment_gets_the_assignment() -> Result<()> {
    let mut client = connect().await?;
    let group = unique("static");
    let mut first = Member::new(&group, "t", Some("i"));
    first.join(&mut client).await?;
    assert_eq!(
        group_state(&mut client, &group).await?.0,
        "CompletingRebalance"
    );

    let mut second = Member {
        id: String::new(),
        ..first.clone()
    };
    let joined = second.join(&mut client).await?;
    assert_eq!(joined.leader, joined.member_id, "the only member leads");
    let id = second.id.clone();
    assert_eq!(
        &second
            .sync(&mut client, &[(&id, b"for the new id")])
            .await?[..],
        b"for the new id"
    );
    second.heartbeat(&mut client).await?;
    assert_eq!(
        first.heartbeat_code(&mut client).await?,
        errors::FENCED_INSTANCE_ID
    );
    second.leave(&mut client).await
}
