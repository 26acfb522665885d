//! The controllers' side: opening, commits, failover. Each function that changes metadata is one atomic batch.

use crate::guards::Guards;
use crate::state::{
    Attempt, Content, Entry, Found, Held, Metadata, Mode, OrderId, Placed, Row, Sealed, Slot,
    State, Upload, Writer, index,
};

/// A batch that the controller refuses.
#[derive(Debug)]
pub struct Refused;

impl Metadata {
    /// Commits the objects of a row from the writer's next number up to `end`.
    fn commit_objects(&mut self, broker: u8, row: &Row, end: u8) -> Result<(), Refused> {
        let Some(writer) = self.brokers[usize::from(broker)].writer else {
            return Err(Refused);
        };
        for number in writer.next..end {
            let Slot::Data(placed) = row.slot(number) else {
                return Err(Refused);
            };
            self.commit_one(broker, placed)?;
        }
        let next = writer.next.max(end);
        self.brokers[usize::from(broker)].writer = Some(Writer { next, ..writer });
        Ok(())
    }

    fn commit_one(&mut self, broker: u8, placed: Placed) -> Result<(), Refused> {
        let row = &mut self.partitions[usize::from(placed.partition)];
        let epoch = placed.entry.epoch;
        let behind_sealed_end = row
            .sealed_end_of(epoch)
            .is_some_and(|end| placed.offset >= end);
        if placed.offset < row.committed_end() || behind_sealed_end {
            return Ok(());
        }
        let current = row.epoch == epoch && row.leader == broker;
        let sealed = row.sealed_end_of(epoch).is_some();
        if placed.offset > row.committed_end() || !(current || sealed) {
            return Err(Refused);
        }
        row.committed.push(placed.entry);
        Ok(())
    }

    /// The planned move's one commit.
    fn commit_move(
        &mut self,
        guards: &Guards,
        mode: Mode,
        objects: &Row,
        attempt: &Attempt,
        sealed: Sealed,
        held: Held,
    ) -> Result<(), Refused> {
        let source = &self.brokers[usize::from(attempt.from)];
        let writer_epoch = source.writer.map(|writer| writer.epoch);
        if mode == Mode::Object && guards.sealed_range_rides_in_commit {
            if writer_epoch != Some(sealed.broker_epoch) {
                return Err(Refused);
            }
            self.commit_objects(attempt.from, objects, sealed.objects)?;
        }
        let target = &self.brokers[usize::from(attempt.to)];
        if !target.leads() || (guards.target_is_same_life && target.epoch != held.broker_epoch) {
            return Err(Refused);
        }
        let row = &mut self.partitions[usize::from(attempt.partition)];
        let names_leader = row.leader == attempt.from && row.epoch == attempt.epoch;
        if guards.commit_names_leader_epoch && !names_leader {
            return Err(Refused);
        }
        if mode == Mode::Object
            && guards.sealed_range_rides_in_commit
            && row.committed_end() != sealed.end
        {
            return Err(Refused);
        }
        row.lead(attempt.to, sealed.end, true);
        row.wal = (mode == Mode::Local).then_some(attempt.to);
        Ok(())
    }

    fn fail_over(
        &mut self,
        guards: &Guards,
        objects: &Row,
        found: &Found,
        to: u8,
    ) -> Result<(), Refused> {
        let dead = &self.brokers[usize::from(found.broker)];
        if guards.failover_names_registration && dead.epoch != found.broker_epoch {
            return Err(Refused);
        }
        let writer = dead.writer.map(|writer| writer.epoch);
        if guards.failover_names_writer && writer != Some(found.writer_epoch) {
            return Err(Refused);
        }
        if guards.recovered_with_leaders
            && dead.writer.is_some_and(|w| w.epoch == found.writer_epoch)
        {
            self.commit_objects(found.broker, objects, found.objects)?;
        }
        let broker = &mut self.brokers[usize::from(found.broker)];
        if guards.failover_ends_registration {
            broker.epoch += 1;
            broker.writer = None;
        }
        for row in &mut self.partitions {
            if row.leader == found.broker && (row.wal.is_none() || !guards.local_stays) {
                let start = row.committed_end();
                row.lead(to, start, true);
                row.wal = row.wal.map(|_| to);
            }
        }
        Ok(())
    }

    fn upload(&mut self, guards: &Guards, objects: &Row, upload: &Upload) -> Result<(), Refused> {
        let broker = &self.brokers[usize::from(upload.broker)];
        if guards.commits_name_registration && broker.epoch != upload.broker_epoch {
            return Err(Refused);
        }
        match &upload.content {
            Content::Objects(end) => {
                if broker
                    .writer
                    .is_none_or(|writer| writer.epoch != upload.broker_epoch)
                {
                    return Err(Refused);
                }
                self.commit_objects(upload.broker, objects, *end)
            }
            Content::Range {
                partition,
                epoch,
                start,
                entries,
            } => {
                let row = &mut self.partitions[usize::from(*partition)];
                let end = start + index(entries.len());
                let current = row.leader == upload.broker && row.epoch == *epoch;
                let sealed = row
                    .sealed_end_of(*epoch)
                    .is_some_and(|sealed| end <= sealed);
                let stale = guards.uploads_name_leader_epoch && !(current || sealed);
                if row.committed_end() != *start || stale {
                    return Err(Refused);
                }
                row.committed.extend_from_slice(entries);
                Ok(())
            }
        }
    }
}

impl State {
    pub fn controller_lives(&self) -> bool {
        !self.controller_died
    }

    /// Whether a controller's process still runs, deposed or not.
    pub fn runs(&self, controller: u8) -> bool {
        if controller == self.controller {
            self.controller_lives()
        } else {
            self.died_before & (1 << controller) == 0
        }
    }

    /// Opens the metadata: deposes the controller before, and reads all.
    pub fn open_controller(&mut self, guards: &Guards) {
        if !guards.metadata_fencing {
            self.beliefs.insert(self.controller, self.metadata.clone());
        }
        if self.controller_died {
            self.died_before |= 1 << self.controller;
        }
        self.controller_died = false;
        self.controller += 1;
        self.publish();
    }

    /// A write of one controller: atomic, and refused if another one has opened since.
    fn write(
        &mut self,
        guards: &Guards,
        controller: u8,
        change: impl FnOnce(&mut Metadata) -> Result<(), Refused>,
    ) -> bool {
        let believed = self
            .beliefs
            .get(&controller)
            .filter(|_| !guards.metadata_fencing);
        let mut changed = believed.unwrap_or(&self.metadata).clone();
        if change(&mut changed).is_err() {
            return false;
        }
        if changed == self.metadata {
            return true;
        }
        let same_leaders = (changed.partitions.iter())
            .zip(&self.metadata.partitions)
            .all(|(new, old)| (new.leader, new.epoch) == (old.leader, old.epoch));
        if let Some(believed) = self.beliefs.get_mut(&controller) {
            believed.clone_from(&changed);
        }
        self.metadata = changed;
        if !same_leaders {
            self.publish();
        }
        true
    }

    pub fn start_move(&mut self, partition: u8, to: u8) {
        let row = &self.metadata.partitions[usize::from(partition)];
        let before = self
            .attempts
            .iter()
            .filter(|attempt| attempt.id.controller == self.controller);
        self.attempts.push(Attempt {
            id: OrderId {
                controller: self.controller,
                number: index(before.count()) + 1,
            },
            partition,
            epoch: row.epoch,
            from: row.leader,
            to,
            sealed: [].into(),
            held: [].into(),
            write: None,
            aborted: false,
            unseal_came: false,
            committed: false,
        });
        self.left.moves -= 1;
    }

    /// Whether the controller may write the move that it was answered.
    pub fn may_land(&self, guards: &Guards, attempt: &Attempt) -> bool {
        let own = attempt.id.controller == self.controller;
        attempt.write.is_some()
            && (own || !guards.commit_names_controller || !guards.metadata_fencing)
    }

    /// The move's write arrives at the store, or is refused.
    pub fn land_commit(&mut self, guards: &Guards, mode: Mode, attempt_index: usize) {
        let attempt = self.attempts[attempt_index].clone();
        let (sealed, held) = attempt.write.expect("a commit is under way");
        let row = self
            .rows
            .get(&(attempt.from, sealed.broker_epoch))
            .cloned()
            .unwrap_or_default();
        let done = self.write(guards, attempt.id.controller, |metadata| {
            metadata.commit_move(guards, mode, &row, &attempt, sealed, held)
        });
        let attempt = &mut self.attempts[attempt_index];
        attempt.write = None;
        attempt.committed = done;
        attempt.aborted |= !done;
    }

    /// Reads a writer's objects up to the first number that holds none, and fences there.
    pub fn declare_dead(&mut self, guards: &Guards, broker: u8) {
        let row = &self.metadata.brokers[usize::from(broker)];
        let (broker_epoch, writer) = (row.epoch, row.writer.expect("it has written"));
        let objects = self.fence(broker, writer, guards.fences_before_failover);
        self.failover = Some(Found {
            controller: self.controller,
            broker,
            broker_epoch,
            writer_epoch: writer.epoch,
            objects,
        });
        self.left.failovers -= 1;
    }

    fn fence(&mut self, broker: u8, writer: Writer, put_fence: bool) -> u8 {
        let row = self.row_mut(broker, writer.epoch);
        let end = row.first_without_data(writer.next);
        if put_fence {
            row.put(end, Slot::Fence);
        }
        end
    }

    pub fn fail_over(&mut self, guards: &Guards, to: u8) {
        let found = self.failover.take().expect("a failover is under way");
        let row = self
            .rows
            .get(&(found.broker, found.writer_epoch))
            .cloned()
            .unwrap_or_default();
        self.write(guards, self.controller, |metadata| {
            metadata.fail_over(guards, &row, &found, to)
        });
    }

    /// `local`: an operator gives up what only a lost disk holds. What isn't committed counts as never told.
    pub fn accept_loss(&mut self, partition: u8, to: u8) {
        let row = &mut self.metadata.partitions[usize::from(partition)];
        let start = row.committed_end();
        row.lead(to, start, true);
        row.wal = Some(to);
        let told = &mut self.told[usize::from(partition)];
        told.acknowledged.truncate(usize::from(start));
        told.high_watermark = told.high_watermark.min(start);
        self.left.accepted_losses -= 1;
        self.publish();
    }

    pub fn land_upload(&mut self, guards: &Guards, upload: &Upload) {
        let row = self
            .rows
            .get(&(upload.broker, upload.broker_epoch))
            .cloned()
            .unwrap_or_default();
        self.write(guards, self.controller, |metadata| {
            metadata.upload(guards, &row, upload)
        });
    }

    /// A new process of a broker registers.
    pub fn register(&mut self, broker: u8) -> u8 {
        let row = &mut self.metadata.brokers[usize::from(broker)];
        row.epoch += 1;
        row.epoch
    }

    /// A registered broker takes what it led. Answers how its partitions' logs begin: all that was found.
    pub fn take_leadership(&mut self, guards: &Guards, mode: Mode, broker: u8) {
        let writer = self.metadata.brokers[usize::from(broker)].writer;
        if mode == Mode::Object
            && let Some(writer) = writer
        {
            let end = self.fence(broker, writer, true);
            let row = self.rows[&(broker, writer.epoch)].clone();
            let committed = self.metadata.commit_objects(broker, &row, end);
            debug_assert!(
                committed.is_ok() || *guards != Guards::ALL,
                "what was fenced can be committed"
            );
        }
        let ends: Vec<u8> = (0..index(self.metadata.partitions.len()))
            .map(|partition| index(self.recoverable(guards, partition).len()))
            .collect();
        for (row, end) in self.metadata.partitions.iter_mut().zip(ends) {
            if row.leader == broker {
                row.lead(broker, end, guards.return_raises_epoch);
            }
        }
        let row = &mut self.metadata.brokers[usize::from(broker)];
        row.writer = Some(Writer {
            epoch: row.epoch,
            next: 0,
        });
        self.publish();
    }

    /// All of a partition that metadata, the store and the disk that it is bound to hold: what a recovery would find
    /// now.
    pub fn recoverable(&self, guards: &Guards, partition: u8) -> Vec<Entry> {
        let row = &self.metadata.partitions[usize::from(partition)];
        let mut log = row.committed.clone();
        if let Some(wal) = row.wal {
            let copies = &self.broker(wal).wal;
            loop {
                let offset = index(log.len());
                let fits = |placed: &&Placed| {
                    let epoch = placed.entry.epoch;
                    let in_epoch = row.fits(epoch, offset);
                    placed.partition == partition
                        && placed.offset == offset
                        && (in_epoch || !guards.recovery_cuts_by_history)
                };
                let mut found = copies.iter().filter(fits).map(|placed| placed.entry);
                let best = if guards.recovery_prefers_higher_epoch {
                    found.max()
                } else {
                    found.next()
                };
                match best {
                    Some(entry) => log.push(entry),
                    None => return log,
                }
            }
        }
        if let Some(writer) = self.metadata.brokers[usize::from(row.leader)].writer
            && let Some(objects) = self.rows.get(&(row.leader, writer.epoch))
        {
            for number in writer.next..objects.first_without_data(writer.next) {
                if let Slot::Data(placed) = objects.slot(number)
                    && placed.partition == partition
                    && placed.entry.epoch == row.epoch
                    && placed.offset == index(log.len())
                {
                    log.push(placed.entry);
                }
            }
        }
        log
    }
}
