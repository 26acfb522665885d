//! Random lives of groups: members come, go, die and change their minds, topics grow, appends fail, the coordinator
//! restarts. No partition is ever read by two members; when all calm down every partition is read by one.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Act {
    Beat(usize),
    /// A heartbeat that says only what it must.
    ShortBeat(usize),
    /// Follow the assignment: give up, then take.
    Follow(usize),
    Leave(usize),
    /// The process dies; nobody hears of it.
    Die(usize),
    /// A static member goes for a while.
    GoForAWhile(usize),
    Subscribe(usize, u8),
    Grow(usize),
    /// The next appends are refused, or wait.
    Fail(usize),
    Hold,
    Release,
    Wait(u32),
    Restart,
    /// The request of some time ago arrives only now.
    Late(usize),
}

const MEMBERS: usize = 4;
const TOPICS: [&str; 3] = ["t", "u", "v"];

fn act() -> impl Strategy<Value = Act> {
    let who = 0..MEMBERS;
    prop_oneof![
        8 => who.clone().prop_map(Act::Beat),
        3 => who.clone().prop_map(Act::ShortBeat),
        6 => who.clone().prop_map(Act::Follow),
        1 => who.clone().prop_map(Act::Leave),
        1 => who.clone().prop_map(Act::Die),
        1 => who.clone().prop_map(Act::GoForAWhile),
        2 => (who.clone(), 1_u8..8).prop_map(|(who, mask)| Act::Subscribe(who, mask)),
        1 => (0..TOPICS.len()).prop_map(Act::Grow),
        1 => (1_usize..3).prop_map(Act::Fail),
        1 => Just(Act::Hold),
        2 => Just(Act::Release),
        1 => (1_u32..5_000).prop_map(Act::Wait),
        1 => Just(Act::Restart),
        1 => who.prop_map(Act::Late),
    ]
}

struct Lives {
    host: Host,
    cluster: Cluster,
    /// `None` while nobody runs in that place.
    consumers: Vec<Option<Consumer>>,
    waiting: Vec<(usize, ReplyToken)>,
    /// Whether what it said last may have been taken in, without its knowing: no answer yet, or one that failed.
    unsure: [bool; MEMBERS],
    sent: Vec<(usize, ConsumerHeartbeatRequest)>,
    /// When each was last heard.
    heard_ms: [u64; MEMBERS],
    made: usize,
}

impl Lives {
    fn new() -> Self {
        let cluster = Cluster::new(&[("t", 3), ("u", 2), ("v", 1)]);
        let mut host = Host::new();
        see(&mut host, &cluster);
        Self {
            host,
            cluster,
            consumers: vec![None; MEMBERS],
            waiting: Vec::new(),
            unsure: [false; MEMBERS],
            sent: Vec::new(),
            heard_ms: [0; MEMBERS],
            made: 0,
        }
    }

    fn consumer(&mut self, at: usize) -> &mut Consumer {
        let made = self.made;
        let consumer = self.consumers[at].get_or_insert_with(|| Consumer {
            // Places with an odd number are of static members.
            instance_id: (at % 2 == 1).then(|| InstanceId::new(&format!("i{at}")).unwrap()),
            ..Consumer::new(&format!("m{made}-{at}"), &["t", "u"])
        });
        self.made += 1;
        consumer
    }

    /// A client has one request on its way.
    fn is_waiting(&self, at: usize) -> bool {
        self.waiting.iter().any(|(who, _)| *who == at)
    }

    fn send(&mut self, at: usize, request: ConsumerHeartbeatRequest) {
        self.sent.push((at, request.clone()));
        self.heard_ms[at] = self.host.now_ms;
        let token = start(&mut self.host, request);
        self.waiting.push((at, token));
        self.unsure[at] = true;
        self.take_answers();
    }

    fn take_answers(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        for (at, token) in waiting {
            match reply(&self.host, token) {
                None => self.waiting.push((at, token)),
                Some(answer) => {
                    if let Some(consumer) = &mut self.consumers[at] {
                        self.unsure[at] = consumer.take(answer).is_err();
                    }
                }
            }
        }
    }

    fn stop(&mut self, at: usize) {
        self.consumers[at] = None;
        self.unsure[at] = false;
        self.waiting.retain(|(who, _)| *who != at);
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Beat(at) if !self.is_waiting(at) => {
                let request = self.consumer(at).request();
                self.send(at, request);
            }
            Act::ShortBeat(at) if !self.is_waiting(at) => {
                let joined = self.consumers[at]
                    .as_ref()
                    .filter(|consumer| consumer.epoch > MemberEpoch::JOINING);
                if let Some(consumer) = joined {
                    let request = consumer.short_request();
                    self.send(at, request);
                }
            }
            Act::Beat(_) | Act::ShortBeat(_) => {}
            // What a heartbeat says of the partitions must hold when it is taken in.
            Act::Follow(at) if self.unsure[at] => {}
            Act::Follow(at) => {
                if let Some(consumer) = &mut self.consumers[at] {
                    consumer.follow();
                }
            }
            Act::Leave(at) => self.leave(at, MemberEpoch::LEAVING),
            Act::GoForAWhile(at) if at % 2 == 1 => {
                self.leave(at, MemberEpoch::LEFT_FOR_A_WHILE);
            }
            Act::GoForAWhile(at) | Act::Die(at) => self.stop(at),
            Act::Subscribe(at, mask) => {
                let topics = TOPICS.iter().enumerate();
                let chosen = topics.filter(|(bit, _)| mask & (1 << bit) != 0);
                let topics = chosen.map(|(_, topic)| (*topic).to_owned()).collect();
                if let Some(consumer) = &mut self.consumers[at] {
                    consumer.topics = topics;
                }
            }
            Act::Grow(topic) => {
                if let Some((_, partitions)) = self.cluster.topics.get_mut(TOPICS[topic]) {
                    *partitions = (*partitions + 1).min(6);
                }
                see(&mut self.host, &self.cluster);
            }
            Act::Fail(count) => {
                for _ in 0..count.min(self.host.held.len()) {
                    self.host.settle(Err(AppendFailure::Unavailable));
                }
            }
            Act::Hold => self.host.hold = true,
            Act::Release => self.host.release(),
            Act::Wait(ms) => {
                // A client that can't be heard for its session's time gives up by itself.
                for at in 0..MEMBERS {
                    if self.host.now_ms + u64::from(ms) > self.heard_ms[at] + 40_000 {
                        self.stop(at);
                    }
                }
                self.host.advance(u64::from(ms));
            }
            Act::Restart => {
                self.host.restart();
                see(&mut self.host, &self.cluster);
            }
            Act::Late(at) => {
                // A dead connection's request: nobody reads the answer.
                // One that says what was given up would lie by then, which the protocol can't tell.
                let harmless = |request: &ConsumerHeartbeatRequest| {
                    request.owned.is_none() || request.member_epoch == MemberEpoch::JOINING
                };
                let late = self
                    .sent
                    .iter()
                    .rev()
                    .filter(|(who, request)| *who == at && harmless(request))
                    .nth(1);
                if let Some((_, request)) = late.cloned() {
                    start(&mut self.host, request);
                }
            }
        }
        self.take_answers();
    }

    fn leave(&mut self, at: usize, epoch: MemberEpoch) {
        if let Some(consumer) = &self.consumers[at] {
            let request = ConsumerHeartbeatRequest {
                member_epoch: epoch,
                ..consumer.short_request()
            };
            start(&mut self.host, request);
            self.stop(at);
        }
    }

    fn check(&self) {
        let mut readers = BTreeMap::new();
        for (at, consumer) in self.consumers.iter().enumerate() {
            for place in consumer.iter().flat_map(|c| c.owned.partitions()) {
                let other = readers.insert(place, at);
                assert_eq!(other, None, "{place:?} is read by {other:?} and {at}");
            }
        }
        if let Some(group) = self.host.coordinator.consumer_groups.get(&group("g")) {
            group.assert_consistent();
        }
    }

    fn calm_down(&mut self) {
        self.host.release();
        self.take_answers();
        self.waiting.clear();
        // Long enough for the sessions of the dead; the living keep theirs.
        for _ in 0..60 {
            for at in 0..MEMBERS {
                if self.consumers[at].is_some() {
                    self.act(Act::Beat(at));
                    self.act(Act::Follow(at));
                    self.check();
                }
            }
            self.host.advance(5_000);
        }
        let living: Vec<&Consumer> = self.consumers.iter().flatten().collect();
        let mut wanted = 0;
        for (name, (_, partitions)) in &self.cluster.topics {
            if living.iter().any(|consumer| consumer.topics.contains(name)) {
                wanted += *partitions as usize;
            }
        }
        let read: usize = living.iter().map(|consumer| consumer.owned.len()).sum();
        assert_eq!(read, wanted, "not every partition is read");
        if !living.is_empty() {
            assert_eq!(state(&self.host), ConsumerGroupState::Stable);
            let before = described(&self.host);
            self.host.restart();
            see(&mut self.host, &self.cluster);
            assert_eq!(described(&self.host), before, "the log says something else");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_partition_has_two_readers_and_each_ends_with_one(acts in proptest::collection::vec(act(), 1..120)) {
        let mut lives = Lives::new();
        for act in acts {
            lives.act(act);
            lives.check();
        }
        lives.calm_down();
    }
}
