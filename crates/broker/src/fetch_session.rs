//! Incremental fetch sessions (KIP-227): what each consumer fetches, remembered between its requests.
//!
//! The number of sessions and of the partitions in them is bounded. When there is no room and no session has
//! been idle for long enough to give way, a client gets session id 0: it then names all its partitions in each
//! request, which is slower for it and costs nothing here.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_kafka_wire::TopicRef;
use tokio::time::Instant;

use crate::error_code::ErrorCode;

/// One partition in a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct FetchKey {
    pub(crate) topic: TopicRef,
    pub(crate) index: i32,
}

/// What the client wants of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Want {
    pub(crate) current_leader_epoch: i32,
    pub(crate) offset: i64,
    pub(crate) last_fetched_epoch: i32,
    pub(crate) max_bytes: i32,
}

/// What the client was last told of a partition, beside records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) high_watermark: i64,
    pub(crate) log_start: i64,
}

impl Told {
    const NOTHING: Self = Self {
        high_watermark: -1,
        log_start: -1,
    };
}

/// One partition to fetch.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) key: FetchKey,
    pub(crate) want: Want,
    pub(crate) told: Told,
}

/// Limits of the session cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionLimits {
    /// `max.incremental.fetch.session.cache.slots`.
    pub(crate) sessions: usize,
    /// Partitions in all sessions together.
    pub(crate) partitions: usize,
    /// A session idle for so long may give way to another.
    pub(crate) evict_after: Duration,
}

/// How a request fetches.
#[derive(Debug)]
pub(crate) enum Context {
    /// Everything the request names, without a session afterwards (id 0) or with a new one.
    Full {
        session_id: i32,
        targets: Vec<Target>,
    },
    /// Everything in the session; only what changed is answered.
    Incremental {
        session_id: i32,
        targets: Arc<Vec<Target>>,
        start: usize,
    },
}

struct Session {
    epoch: i32,
    by_id: bool,
    targets: Arc<Vec<Target>>,
    positions: HashMap<FetchKey, usize>,
    /// Where the next round begins, so that a full response doesn't starve the partitions behind.
    start: usize,
    last_used: Instant,
}

#[derive(Default)]
struct Cache {
    sessions: HashMap<i32, Session>,
    partitions: usize,
    next_id: i32,
}

/// All sessions of this broker.
pub(crate) struct FetchSessions {
    limits: SessionLimits,
    cache: Mutex<Cache>,
}

/// The parts of a fetch request that concern sessions.
pub(crate) struct SessionRequest {
    pub(crate) session_id: i32,
    pub(crate) epoch: i32,
    pub(crate) by_id: bool,
    pub(crate) named: Vec<(FetchKey, Want)>,
    pub(crate) forgotten: Vec<FetchKey>,
}

const FINAL_EPOCH: i32 = -1;
const INITIAL_EPOCH: i32 = 0;

impl FetchSessions {
    pub(crate) fn new(limits: SessionLimits, first_id: i32) -> Self {
        let cache = Cache {
            next_id: first_id.max(1),
            ..Cache::default()
        };
        Self {
            limits,
            cache: Mutex::new(cache),
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.cache.lock().sessions.len()
    }

    /// Finds or makes what the request fetches.
    pub(crate) fn begin(
        &self,
        request: SessionRequest,
        now: Instant,
    ) -> Result<Context, ErrorCode> {
        let mut cache = self.cache.lock();
        match request.epoch {
            FINAL_EPOCH | INITIAL_EPOCH => {
                if request.session_id != 0 {
                    cache.remove(request.session_id);
                }
                let targets = deduplicated(request.named);
                let session_id = if request.epoch == INITIAL_EPOCH && !targets.is_empty() {
                    cache.create(&targets, request.by_id, &self.limits, now)
                } else {
                    0
                };
                Ok(Context::Full {
                    session_id,
                    targets,
                })
            }
            epoch => {
                let Some(session) = cache.sessions.get_mut(&request.session_id) else {
                    return Err(ErrorCode::FetchSessionIdNotFound);
                };
                if session.epoch != epoch {
                    return Err(ErrorCode::InvalidFetchSessionEpoch);
                }
                if session.by_id != request.by_id {
                    return Err(ErrorCode::FetchSessionTopicIdError);
                }
                let before = session.targets.len();
                session.update(request.named, &request.forgotten);
                session.epoch = next_epoch(session.epoch);
                session.last_used = now;
                let (after, start, targets) = (
                    session.targets.len(),
                    session.start,
                    session.targets.clone(),
                );
                cache.partitions = cache.partitions + after - before;
                Ok(Context::Incremental {
                    session_id: request.session_id,
                    targets,
                    start,
                })
            }
        }
    }

    /// Takes back a session whose client will never hear of it.
    pub(crate) fn discard(&self, session_id: i32) {
        self.cache.lock().remove(session_id);
    }

    /// Notes what a session's client is being told, by position in its targets.
    pub(crate) fn told(
        &self,
        session_id: i32,
        told: &[(FetchKey, Told)],
        next_start: Option<usize>,
    ) {
        let mut cache = self.cache.lock();
        let Some(session) = cache.sessions.get_mut(&session_id) else {
            return;
        };
        if let Some(start) = next_start {
            session.start = start;
        }
        if told.is_empty() {
            return;
        }
        let targets = Arc::make_mut(&mut session.targets);
        for (key, told) in told {
            if let Some(target) = session
                .positions
                .get(key)
                .and_then(|at| targets.get_mut(*at))
            {
                target.told = *told;
            }
        }
    }
}

/// Epochs of a session run from 1 to 2^31−1 and then from 1 again.
fn next_epoch(epoch: i32) -> i32 {
    if epoch == i32::MAX { 1 } else { epoch + 1 }
}

fn deduplicated(named: Vec<(FetchKey, Want)>) -> Vec<Target> {
    let mut positions = HashMap::with_capacity(named.len());
    let mut targets: Vec<Target> = Vec::with_capacity(named.len());
    for (key, want) in named {
        match positions.get(&key) {
            Some(at) => {
                let target: &mut Target = &mut targets[*at];
                target.want = want;
            }
            None => {
                positions.insert(key.clone(), targets.len());
                targets.push(Target {
                    key,
                    want,
                    told: Told::NOTHING,
                });
            }
        }
    }
    targets
}

impl Cache {
    fn remove(&mut self, id: i32) {
        if let Some(session) = self.sessions.remove(&id) {
            self.partitions -= session.targets.len();
        }
    }

    /// Answers the new session's id, or 0 if there is no room.
    fn create(
        &mut self,
        targets: &[Target],
        by_id: bool,
        limits: &SessionLimits,
        now: Instant,
    ) -> i32 {
        let full = |cache: &Self| {
            cache.sessions.len() >= limits.sessions
                || cache.partitions + targets.len() > limits.partitions
        };
        if full(self) {
            let oldest = self
                .sessions
                .iter()
                .min_by_key(|(_, s)| s.last_used)
                .map(|(id, s)| (*id, s.last_used));
            match oldest {
                Some((id, last_used))
                    if now.saturating_duration_since(last_used) >= limits.evict_after =>
                {
                    self.remove(id);
                }
                _ => return 0,
            }
            if full(self) {
                return 0;
            }
        }
        let id = loop {
            let id = self.next_id;
            self.next_id = next_epoch(id);
            if !self.sessions.contains_key(&id) {
                break id;
            }
        };
        let positions = targets
            .iter()
            .enumerate()
            .map(|(at, t)| (t.key.clone(), at))
            .collect();
        self.partitions += targets.len();
        self.sessions.insert(
            id,
            Session {
                epoch: 1,
                by_id,
                targets: Arc::new(targets.to_vec()),
                positions,
                start: 0,
                last_used: now,
            },
        );
        id
    }
}

impl Session {
    fn update(&mut self, named: Vec<(FetchKey, Want)>, forgotten: &[FetchKey]) {
        if named.is_empty() && forgotten.is_empty() {
            return;
        }
        let targets = Arc::make_mut(&mut self.targets);
        for (key, want) in named {
            match self.positions.get(&key).and_then(|at| targets.get_mut(*at)) {
                Some(target) => target.want = want,
                None => {
                    self.positions.insert(key.clone(), targets.len());
                    targets.push(Target {
                        key,
                        want,
                        told: Told::NOTHING,
                    });
                }
            }
        }
        if !forgotten.is_empty() {
            targets.retain(|t| !forgotten.contains(&t.key));
            self.positions = targets
                .iter()
                .enumerate()
                .map(|(at, t)| (t.key.clone(), at))
                .collect();
            self.start = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_kafka_wire::StrBytes;

    use super::*;

    fn key(index: i32) -> FetchKey {
        FetchKey {
            topic: TopicRef::Name(StrBytes::from_static_str("t")),
            index,
        }
    }

    fn want(offset: i64) -> Want {
        Want {
            current_leader_epoch: -1,
            offset,
            last_fetched_epoch: -1,
            max_bytes: 1,
        }
    }

    fn request(session_id: i32, epoch: i32, named: &[i32], forgotten: &[i32]) -> SessionRequest {
        SessionRequest {
            session_id,
            epoch,
            by_id: false,
            named: named.iter().map(|i| (key(*i), want(0))).collect(),
            forgotten: forgotten.iter().map(|i| key(*i)).collect(),
        }
    }

    fn sessions(limit: usize) -> FetchSessions {
        let limits = SessionLimits {
            sessions: limit,
            partitions: 1000,
            evict_after: Duration::from_secs(120),
        };
        FetchSessions::new(limits, 1)
    }

    fn full_id(context: Context) -> i32 {
        match context {
            Context::Full { session_id, .. } => session_id,
            Context::Incremental { .. } => panic!("a full fetch was expected"),
        }
    }

    #[test]
    fn an_incremental_fetch_needs_the_right_id_and_epoch() {
        let (cache, now) = (sessions(10), Instant::now());
        let id = full_id(cache.begin(request(0, 0, &[0, 1], &[]), now).unwrap());
        assert!(id > 0);
        assert_eq!(
            cache.begin(request(id, 5, &[], &[]), now).unwrap_err(),
            ErrorCode::InvalidFetchSessionEpoch
        );
        assert_eq!(
            cache.begin(request(id + 1, 1, &[], &[]), now).unwrap_err(),
            ErrorCode::FetchSessionIdNotFound
        );
        assert!(matches!(
            cache.begin(request(id, 1, &[], &[0]), now).unwrap(),
            Context::Incremental { targets, .. } if targets.len() == 1 && targets[0].key == key(1)
        ));
        assert!(matches!(
            cache.begin(request(id, 2, &[], &[]), now).unwrap(),
            Context::Incremental { .. }
        ));
    }

    #[test]
    fn the_final_epoch_closes_a_session_and_never_makes_one() {
        let (cache, now) = (sessions(10), Instant::now());
        let id = full_id(cache.begin(request(0, 0, &[0], &[]), now).unwrap());
        assert_eq!(
            full_id(cache.begin(request(id, -1, &[0], &[]), now).unwrap()),
            0
        );
        assert_eq!(
            full_id(cache.begin(request(0, -1, &[0], &[]), now).unwrap()),
            0
        );
        assert_eq!(cache.len(), 0);
    }

    #[test]
    fn a_flood_of_new_sessions_evicts_nobody_who_is_active() {
        let (cache, now) = (sessions(3), Instant::now());
        let mine = full_id(cache.begin(request(0, 0, &[0], &[]), now).unwrap());
        let granted =
            (0..10_000).map(|_| full_id(cache.begin(request(0, 0, &[0], &[]), now).unwrap()));
        assert_eq!(granted.filter(|id| *id != 0).count(), 2);
        assert!(cache.begin(request(mine, 1, &[], &[]), now).is_ok());
        let later = now + Duration::from_secs(121);
        assert!(full_id(cache.begin(request(0, 0, &[0], &[]), later).unwrap()) > 0);
        assert_eq!(cache.len(), 3);
    }
}
