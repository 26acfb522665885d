//! The brokers' side: appends and acknowledgements, orders, images, death and return.

use crate::guards::Guards;
use crate::state::{
    Attempt, Broken, Content, Entry, Following, Held, Image, Leading, Life, Mode, Placed, Role,
    Sealed, Slot, State, Upload, index, length,
};

impl State {
    fn leading_mut(&mut self, broker: u8, partition: u8) -> Option<&mut Leading> {
        let broker = self.broker_mut(broker);
        match &mut broker.roles[usize::from(partition)] {
            Role::Leading(leading) if broker.life == Life::Serving => Some(leading),
            Role::Leading(_) | Role::Following(_) | Role::Nothing => None,
        }
    }

    fn following_mut(&mut self, broker: u8, partition: u8) -> Option<&mut Following> {
        let broker = self.broker_mut(broker);
        match &mut broker.roles[usize::from(partition)] {
            Role::Following(following) if broker.life == Life::Serving => Some(following),
            Role::Leading(_) | Role::Following(_) | Role::Nothing => None,
        }
    }

    /// A producer's record is admitted.
    pub fn append(&mut self, guards: &Guards, mode: Mode, record: u8, broker: u8, partition: u8) {
        let broker_epoch = self.broker(broker).epoch;
        let Some(leading) = self.leading_mut(broker, partition) else {
            return;
        };
        if leading.seal.is_some() && guards.sealed_admits_nothing {
            return;
        }
        let entry = Entry {
            epoch: leading.epoch,
            record,
        };
        let placed = Placed {
            partition,
            offset: length(&leading.log),
            entry,
        };
        leading.log.push(entry);
        if mode == Mode::Object {
            self.row_mut(broker, broker_epoch).sent.push(placed);
        }
        self.left.appends -= 1;
    }

    /// `local`: the next entry is on disk, and acknowledged.
    pub fn sync(&mut self, broker: u8, partition: u8) {
        let Some(leading) = self.leading_mut(broker, partition) else {
            return;
        };
        let offset = leading.durable;
        let Some(entry) = leading.log.get(usize::from(offset)).copied() else {
            return;
        };
        leading.durable += 1;
        self.broker_mut(broker).wal.insert(Placed {
            partition,
            offset,
            entry,
        });
        self.acknowledge(
            broker,
            Placed {
                partition,
                offset,
                entry,
            },
        );
    }

    /// `object`: a PUT arrives at the store.
    pub fn land_object(&mut self, guards: &Guards, row: (u8, u8), number: u8) {
        let row = self.row_mut(row.0, row.1);
        if row.slot(number) == Slot::Missing || !guards.create_only {
            row.put(number, Slot::Data(row.sent[usize::from(number)]));
        }
    }

    /// `object`: the writer learns what became of its PUT.
    pub fn learn_object(&mut self, broker: u8, number: u8) {
        let epoch = self.broker(broker).epoch;
        let row = self.row_mut(broker, epoch);
        let sent = row.sent[usize::from(number)];
        match row.slot(number) {
            Slot::Missing => {}
            Slot::Fence => self.end_life(broker, Life::Ended),
            Slot::Data(found) => {
                debug_assert_eq!(found, sent, "nobody else writes data into this row");
                self.broker_mut(broker).acknowledged |= 1 << number;
                if let Some(leading) = self.leading_mut(broker, sent.partition)
                    && leading.epoch == sent.entry.epoch
                {
                    leading.durable = leading.durable.max(sent.offset + 1);
                }
                self.acknowledge(broker, sent);
            }
        }
    }

    /// The producer is told.
    fn acknowledge(&mut self, broker: u8, placed: Placed) {
        let by = (broker, self.broker(broker).epoch);
        let told = &mut self.told[usize::from(placed.partition)];
        let at = usize::from(placed.offset);
        if told.acknowledged.len() <= at {
            told.acknowledged.resize(at + 1, None);
        }
        let known = told.acknowledged[at].get_or_insert(placed.entry);
        let twice = *known != placed.entry;
        told.high_watermark = told.high_watermark.max(placed.offset + 1);
        let first = *told.by_epoch.entry(placed.entry.epoch).or_insert(by);
        if twice {
            self.breaks(Broken::OffsetTwice);
        }
        if first != by {
            self.breaks(Broken::TwoAcknowledge);
        }
    }

    /// A broker begins to serve a log. All of it is visible from now on.
    fn serve(&mut self, broker: u8, partition: u8, epoch: u8, log: Vec<Entry>) {
        // A broker that learns late that it led, when another one does already, only reads the past.
        let is_late = self.metadata.partitions[usize::from(partition)].epoch > epoch;
        let told = &mut self.told[usize::from(partition)];
        let end = length(&log);
        let goes_back = end < told.high_watermark && !is_late;
        let row = &self.metadata.partitions[usize::from(partition)];
        let in_place = is_late
            || (0..)
                .zip(&log)
                .all(|(offset, entry): (u8, &Entry)| row.fits(entry.epoch, offset));
        let told = &mut self.told[usize::from(partition)];
        let same = told
            .acknowledged
            .iter()
            .zip(&log)
            .all(|(told, entry)| told.is_none_or(|told| told == *entry));
        if !goes_back && !is_late && same {
            told.acknowledged = log.iter().copied().map(Some).collect();
            told.high_watermark = end;
        }
        self.broker_mut(broker).roles[usize::from(partition)] = Role::Leading(Leading {
            epoch,
            log,
            durable: end,
            seal: None,
        });
        if goes_back {
            self.breaks(Broken::WentBack);
        } else if !same {
            self.breaks(Broken::OtherContent);
        } else if !in_place {
            self.breaks(Broken::OutOfPlace);
        }
    }

    /// Takes note of an order's controller, or refuses the order.
    fn obeys(&mut self, guards: &Guards, broker: u8, attempt: &Attempt) -> bool {
        let broker = self.broker_mut(broker);
        let stale = attempt.id.controller < broker.seen_controller && guards.orders_name_controller;
        if broker.life != Life::Serving || stale {
            return false;
        }
        broker.seen_controller = broker.seen_controller.max(attempt.id.controller);
        true
    }

    pub fn prepare(&mut self, guards: &Guards, attempt: &Attempt) {
        if !self.obeys(guards, attempt.to, attempt) {
            return;
        }
        let target = self.broker(attempt.to);
        let (_, known_epoch, _) =
            self.images[usize::from(target.image)].partitions[usize::from(attempt.partition)];
        if attempt.epoch < known_epoch {
            return;
        }
        match &target.roles[usize::from(attempt.partition)] {
            // The former log is still open: asked again later.
            Role::Leading(_) => return,
            Role::Following(following) => {
                let newer = following.attempt < attempt.id;
                if following.attempt == attempt.id || (guards.target_knows_attempt && !newer) {
                    return;
                }
            }
            Role::Nothing => {}
        }
        let committed = self.metadata.partitions[usize::from(attempt.partition)]
            .committed
            .clone();
        let following = Following {
            attempt: attempt.id,
            source: attempt.from,
            epoch: attempt.epoch,
            synced: length(&committed),
            log: committed,
            sealed: None,
        };
        self.broker_mut(attempt.to).roles[usize::from(attempt.partition)] =
            Role::Following(following);
    }

    /// The next item of the follow stream arrives.
    pub fn follow(&mut self, guards: &Guards, broker: u8, partition: u8) {
        let Some(following) = self.broker(broker).following(partition) else {
            return;
        };
        if following.sealed.is_some() {
            return;
        }
        let Some(leading) = self.broker(following.source).leading(partition) else {
            return;
        };
        if leading.epoch != following.epoch {
            return;
        }
        let streamed = if guards.streams_only_durable {
            leading.durable
        } else {
            length(&leading.log)
        };
        let at = length(&following.log);
        let waits = leading.durable < length(&leading.log) && guards.seal_waits_for_admitted;
        if at < streamed {
            let entry = leading.log[usize::from(at)];
            if let Some(following) = self.following_mut(broker, partition) {
                following.log.push(entry);
            }
        } else if leading.seal.is_some()
            && !waits
            && let Some(following) = self.following_mut(broker, partition)
        {
            following.sealed = Some(at);
        }
    }

    /// `local`: the copies are on the target's disk.
    pub fn sync_copies(&mut self, broker: u8, partition: u8) {
        let Some(following) = self.following_mut(broker, partition) else {
            return;
        };
        let copies: Vec<Placed> = (following.synced..)
            .zip(&following.log[usize::from(following.synced)..])
            .map(|(offset, entry)| Placed {
                partition,
                offset,
                entry: *entry,
            })
            .collect();
        following.synced = length(&following.log);
        self.broker_mut(broker).wal.extend(copies);
    }

    pub fn seal(&mut self, guards: &Guards, attempt: &Attempt) {
        let taken_back = self.broker(attempt.from).taken_back[usize::from(attempt.partition)];
        if !self.obeys(guards, attempt.from, attempt) {
            return;
        }
        let late = attempt.id <= taken_back && guards.late_seal_is_refused;
        let Some(leading) = self.leading_mut(attempt.from, attempt.partition) else {
            return;
        };
        if leading.epoch != attempt.epoch || late {
            return;
        }
        leading.seal = Some(match leading.seal {
            Some(seal) if guards.seal_passes_to_newer => seal.max(attempt.id),
            Some(seal) => seal,
            None => attempt.id,
        });
    }

    /// The answer to a seal, when there is one.
    pub fn sealed(&self, guards: &Guards, attempt: &Attempt) -> Option<Sealed> {
        let broker = self.broker(attempt.from);
        let leading = broker.leading(attempt.partition)?;
        let waits = leading.durable < length(&leading.log) && guards.seal_waits_for_admitted;
        let seal = leading.seal?;
        let own = seal == attempt.id || (!guards.seal_passes_to_newer && seal < attempt.id);
        (leading.epoch == attempt.epoch && own && !waits).then(|| Sealed {
            end: leading.durable,
            broker_epoch: broker.epoch,
            objects: broker.acknowledged_objects(),
        })
    }

    /// The answer to a hold, when there is one.
    pub fn hold(&mut self, guards: &Guards, mode: Mode, attempt: &Attempt) -> Option<Held> {
        if !self.obeys(guards, attempt.to, attempt) {
            return None;
        }
        let broker = self.broker(attempt.to);
        let following = broker.following(attempt.partition)?;
        let own = following.attempt == attempt.id || !guards.target_knows_attempt;
        let end = following.sealed?;
        let durable = mode == Mode::Object || following.synced == end || !guards.held_is_durable;
        (own && durable).then_some(Held {
            end,
            broker_epoch: broker.epoch,
        })
    }

    pub fn unseal(&mut self, guards: &Guards, attempt: &Attempt) {
        if !self.obeys(guards, attempt.from, attempt) {
            return;
        }
        let broker = self.broker_mut(attempt.from);
        let taken_back = &mut broker.taken_back[usize::from(attempt.partition)];
        *taken_back = (*taken_back).max(attempt.id);
        if let Some(leading) = self.leading_mut(attempt.from, attempt.partition)
            && leading.epoch == attempt.epoch
            && leading
                .seal
                .is_some_and(|seal| seal <= attempt.id || !guards.unseal_names_its_seal)
        {
            leading.seal = None;
        }
    }

    /// Without the guard: a source that is tired of waiting.
    pub fn unseal_unasked(&mut self, broker: u8, partition: u8) {
        if let Some(leading) = self.leading_mut(broker, partition) {
            leading.seal = None;
        }
    }

    pub fn discard(&mut self, guards: &Guards, attempt: &Attempt) {
        if !self.obeys(guards, attempt.to, attempt) {
            return;
        }
        let Some(following) = self.broker(attempt.to).following(attempt.partition) else {
            return;
        };
        if following.attempt <= attempt.id || !guards.target_knows_attempt {
            let roles = &mut self.broker_mut(attempt.to).roles;
            roles[usize::from(attempt.partition)] = Role::Nothing;
        }
    }

    /// A broker applies an image.
    pub fn see(&mut self, guards: &Guards, broker: u8, image_index: u8) {
        let image = self.images[usize::from(image_index)].clone();
        let seen = self.broker_mut(broker);
        seen.image = image_index;
        seen.seen_controller = seen.seen_controller.max(image.controller);
        for partition in 0..length(&image.partitions) {
            if image.partitions[usize::from(partition)].0 == broker {
                self.see_own(guards, broker, partition, &image);
            } else {
                self.see_others(broker, partition, &image);
            }
        }
    }

    fn see_own(&mut self, guards: &Guards, broker: u8, partition: u8, image: &Image) {
        let (_, epoch, start) = image.partitions[usize::from(partition)];
        match &mut self.broker_mut(broker).roles[usize::from(partition)] {
            Role::Leading(leading) if leading.epoch == epoch => {
                let newer = leading
                    .seal
                    .is_some_and(|seal| seal.controller < image.controller);
                if newer || !guards.only_newer_image_unseals {
                    leading.seal = None;
                }
                return;
            }
            Role::Leading(leading) if leading.epoch > epoch => return,
            Role::Following(following) => {
                let next = following.epoch + 1 == epoch || !guards.activates_next_epoch_only;
                let fits = next && following.epoch < epoch && following.sealed == Some(start);
                if fits || !guards.activates_at_start_only {
                    let log = following.log.clone();
                    self.serve(broker, partition, epoch, log);
                    return;
                }
            }
            Role::Leading(_) | Role::Nothing => {}
        }
        // Not followed: opened from the store, if that holds all.
        let committed = &self.metadata.partitions[usize::from(partition)].committed;
        match committed.get(..usize::from(start)).map(<[Entry]>::to_vec) {
            Some(log) => self.serve(broker, partition, epoch, log),
            // Nothing to serve from: this claim is checked as "never stuck".
            None => self.broker_mut(broker).roles[usize::from(partition)] = Role::Nothing,
        }
    }

    fn see_others(&mut self, broker: u8, partition: u8, image: &Image) {
        let (_, epoch, _) = image.partitions[usize::from(partition)];
        let broker = self.broker_mut(broker);
        let over = match &broker.roles[usize::from(partition)] {
            Role::Leading(leading) => leading.epoch < epoch,
            Role::Following(following) => following.epoch < epoch,
            Role::Nothing => false,
        };
        if over {
            broker.roles[usize::from(partition)] = Role::Nothing;
        }
    }

    /// A broker sends what a commit needs.
    pub fn send_upload(&mut self, mode: Mode, broker: u8, partition: u8) -> Option<Upload> {
        let committed = &self.metadata.partitions[usize::from(partition)].committed;
        let from = self.broker(broker);
        let content = match mode {
            Mode::Object
                if partition == 0 && from.acknowledged != 0 && from.life == Life::Serving =>
            {
                Content::Objects(from.acknowledged_objects())
            }
            Mode::Object => return None,
            Mode::Local => {
                let leading = from.leading(partition)?;
                let range = usize::from(length(committed))..usize::from(leading.durable);
                Content::Range {
                    partition,
                    epoch: leading.epoch,
                    start: length(committed),
                    entries: leading
                        .log
                        .get(range)
                        .filter(|range| !range.is_empty())?
                        .to_vec(),
                }
            }
        };
        Some(Upload {
            broker,
            broker_epoch: from.epoch,
            content,
        })
    }

    /// `local`: a broker overwrites what it keeps of a partition that it is nothing for.
    pub fn trim(&mut self, broker: u8, partition: u8) {
        let broker = self.broker_mut(broker);
        if broker.roles[usize::from(partition)] == Role::Nothing {
            broker.wal.retain(|placed| placed.partition != partition);
        }
    }

    pub fn crash(&mut self, mode: Mode, broker: u8, unsynced_survive: bool) {
        if mode == Mode::Local && unsynced_survive {
            for partition in 0..index(self.metadata.partitions.len()) {
                self.sync_copies(broker, partition);
                if let Some(leading) = self.broker(broker).leading(partition) {
                    let rest =
                        (leading.durable..).zip(&leading.log[usize::from(leading.durable)..]);
                    let rest: Vec<Placed> = rest
                        .map(|(offset, entry)| Placed {
                            partition,
                            offset,
                            entry: *entry,
                        })
                        .collect();
                    self.broker_mut(broker).wal.extend(rest);
                }
            }
        }
        self.end_life(broker, Life::Crashed);
        self.left.crashes -= 1;
    }

    /// The process is gone, its disk stays.
    pub fn end_life(&mut self, broker: u8, life: Life) {
        let broker = self.broker_mut(broker);
        broker.life = life;
        broker.roles.fill(Role::Nothing);
        broker.taken_back.fill(crate::state::OrderId {
            controller: 0,
            number: 0,
        });
        broker.acknowledged = 0;
        broker.seen_controller = 0;
        broker.image = 0;
    }

    /// A new process of the broker registers.
    pub fn restart(&mut self, broker: u8) {
        if self.broker(broker).life == Life::Crashed {
            self.left.restarts -= 1;
        }
        let epoch = self.register(broker);
        let image = self.newest_image();
        let seen_controller = self.controller;
        let broker = self.broker_mut(broker);
        broker.life = Life::Registered;
        broker.epoch = epoch;
        broker.image = image;
        broker.seen_controller = seen_controller;
    }

    /// The broker recovers, takes leadership, and serves what it leads.
    pub fn take(&mut self, guards: &Guards, mode: Mode, broker: u8) {
        let partitions = 0..index(self.metadata.partitions.len());
        let found: Vec<Vec<Entry>> = partitions
            .clone()
            .map(|p| self.recoverable(guards, p))
            .collect();
        self.take_leadership(guards, mode, broker);
        let image = self.newest_image();
        let taken = self.broker_mut(broker);
        taken.life = Life::Serving;
        taken.image = image;
        for partition in partitions {
            let row = &self.metadata.partitions[usize::from(partition)];
            let epoch = row.epoch;
            if row.leader == broker {
                self.serve(
                    broker,
                    partition,
                    epoch,
                    found[usize::from(partition)].clone(),
                );
            }
        }
    }
}
