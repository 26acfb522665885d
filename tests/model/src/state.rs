//! What there is in the world of the model.

use std::collections::{BTreeMap, BTreeSet};

/// How acknowledged records are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// In the WAL on the leader's disk, which outlives its process.
    Local,
    /// As numbered objects in the store.
    Object,
}

/// How large a case is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The durability mode of all partitions.
    pub mode: Mode,
    /// Brokers; the first leads everything at the start.
    pub brokers: u8,
    /// Partitions.
    pub partitions: u8,
    /// Openings of the metadata: this many controllers, one after the other.
    pub controllers: u8,
    /// Records that producers write.
    pub appends: u8,
    /// Attempts of moves.
    pub moves: u8,
    /// Deaths of broker processes.
    pub crashes: u8,
    /// Returns of dead broker processes. One that ends because it was fenced always returns.
    pub restarts: u8,
    /// Brokers declared dead, rightly or not.
    pub failovers: u8,
    /// Partitions that an operator leads elsewhere though their disk isn't back (`local`).
    pub accepted_losses: u8,
    /// Uploads (`local`) and commits of objects (`object`) outside of moves.
    pub uploads: u8,
}

/// A record and the leader epoch under which it was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry {
    pub epoch: u8,
    pub record: u8,
}

/// A record at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Placed {
    pub partition: u8,
    pub offset: u8,
    pub entry: Entry,
}

/// Number of an order: first by controller epoch, then by that controller's count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OrderId {
    pub controller: u8,
    pub number: u8,
}

/// What metadata says of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PartitionRow {
    pub leader: u8,
    pub epoch: u8,
    /// Where each leader epoch starts, by epoch.
    pub starts: Vec<(u8, u8)>,
    /// What is committed, from offset 0.
    pub committed: Vec<Entry>,
    /// On whose local WAL the rest is.
    pub wal: Option<u8>,
}

impl PartitionRow {
    /// Where a leader epoch starts.
    pub fn start_of(&self, epoch: u8) -> Option<u8> {
        let found = self.starts.iter().find(|(e, _)| *e == epoch);
        found.map(|(_, start)| *start)
    }

    /// The sealed end: the least start of all later epochs. After an accepted loss a later one may start lower than one
    /// before it.
    pub fn sealed_end_of(&self, epoch: u8) -> Option<u8> {
        let later = self.starts.iter().filter(|(e, _)| *e > epoch);
        later.map(|(_, start)| *start).min()
    }

    /// Whether an offset belongs to a leader epoch.
    pub fn fits(&self, epoch: u8, offset: u8) -> bool {
        self.start_of(epoch).is_some_and(|start| start <= offset)
            && self.sealed_end_of(epoch).is_none_or(|end| offset < end)
    }

    pub fn committed_end(&self) -> u8 {
        length(&self.committed)
    }

    /// A new leader epoch.
    pub fn lead(&mut self, leader: u8, start: u8, raise: bool) {
        self.leader = leader;
        if raise {
            self.epoch += 1;
            self.starts.push((self.epoch, start));
        }
    }
}

/// Which row of objects a broker writes, and which number isn't committed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Writer {
    pub epoch: u8,
    pub next: u8,
}

/// What metadata says of a broker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BrokerRow {
    pub epoch: u8,
    pub writer: Option<Writer>,
}

impl BrokerRow {
    /// Whether the registered process has taken leadership.
    pub fn leads(&self) -> bool {
        self.writer.is_some_and(|writer| writer.epoch == self.epoch)
    }
}

/// All metadata. One register: every change is atomic.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Metadata {
    pub partitions: Vec<PartitionRow>,
    pub brokers: Vec<BrokerRow>,
}

/// What a controller shows the brokers after a change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Image {
    pub controller: u8,
    /// Leader, leader epoch, its start; per partition.
    pub partitions: Vec<(u8, u8, u8)>,
}

/// One place in a row of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Slot {
    Missing,
    Data(Placed),
    Fence,
}

/// The objects of one registration of a broker.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Row {
    /// What the writer has sent, by number. Each may arrive at any later time.
    pub sent: Vec<Placed>,
    pub slots: Vec<Slot>,
}

impl Row {
    pub fn slot(&self, number: u8) -> Slot {
        let slot = self.slots.get(usize::from(number));
        slot.copied().unwrap_or(Slot::Missing)
    }

    pub fn put(&mut self, number: u8, slot: Slot) {
        let index = usize::from(number);
        if self.slots.len() <= index {
            self.slots.resize(index + 1, Slot::Missing);
        }
        self.slots[index] = slot;
    }

    /// The first number from `from` on that holds no data.
    pub fn first_without_data(&self, from: u8) -> u8 {
        (from..)
            .find(|number| !matches!(self.slot(*number), Slot::Data(_)))
            .expect("rows are short")
    }
}

/// Where a broker process is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Life {
    /// Died.
    Crashed,
    /// Ended itself since it was fenced.
    Ended,
    /// Registered, hasn't taken leadership.
    Registered,
    Serving,
}

/// A log that its broker believes to lead.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Leading {
    pub epoch: u8,
    pub log: Vec<Entry>,
    /// The high watermark.
    pub durable: u8,
    pub seal: Option<OrderId>,
}

/// A log that follows another broker's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Following {
    pub attempt: OrderId,
    pub source: u8,
    pub epoch: u8,
    pub log: Vec<Entry>,
    /// Up to where the copy is durable here.
    pub synced: u8,
    /// The sealed end, when the source has told it. Nothing follows it on the stream.
    pub sealed: Option<u8>,
}

/// What a broker is for a partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Role {
    Nothing,
    Leading(Leading),
    Following(Following),
}

/// A broker process and its disk.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Broker {
    pub life: Life,
    pub epoch: u8,
    pub seen_controller: u8,
    /// The newest image that it has applied.
    pub image: u8,
    pub roles: Vec<Role>,
    /// Per partition, the newest seal that was taken back.
    pub taken_back: Vec<OrderId>,
    /// Which of its objects it has acknowledged, as a set of bits.
    pub acknowledged: u8,
    /// What is synced on its disk.
    pub wal: BTreeSet<Placed>,
}

impl Broker {
    pub fn leading(&self, partition: u8) -> Option<&Leading> {
        match &self.roles[usize::from(partition)] {
            Role::Leading(leading) if self.life == Life::Serving => Some(leading),
            Role::Leading(_) | Role::Following(_) | Role::Nothing => None,
        }
    }

    pub fn following(&self, partition: u8) -> Option<&Following> {
        match &self.roles[usize::from(partition)] {
            Role::Following(following) if self.life == Life::Serving => Some(following),
            Role::Leading(_) | Role::Following(_) | Role::Nothing => None,
        }
    }

    /// How many objects are acknowledged without a gap.
    pub fn acknowledged_objects(&self) -> u8 {
        u8::try_from(self.acknowledged.trailing_ones()).expect("at most eight")
    }
}

/// An answer to a seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sealed {
    pub end: u8,
    pub broker_epoch: u8,
    /// The source's objects up to this number hold the sealed range.
    pub objects: u8,
}

/// An answer to a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Held {
    pub end: u8,
    pub broker_epoch: u8,
}

/// One attempt to move a partition: the orders, which may be delivered at any time, and the answers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Attempt {
    pub id: OrderId,
    pub partition: u8,
    pub epoch: u8,
    pub from: u8,
    pub to: u8,
    pub sealed: BTreeSet<Sealed>,
    pub held: BTreeSet<Held>,
    /// The commit that is under way.
    pub write: Option<(Sealed, Held)>,
    /// Unseal and discard were sent.
    pub aborted: bool,
    /// The unseal has come once; from then on it is a repetition.
    pub unseal_came: bool,
    pub committed: bool,
}

/// A commit of objects or of an upload, sent by a broker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Upload {
    pub broker: u8,
    pub broker_epoch: u8,
    pub content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Content {
    /// Objects of the WAL, up to this number.
    Objects(u8),
    /// Part of a log, cut by its leader.
    Range {
        partition: u8,
        epoch: u8,
        start: u8,
        entries: Vec<Entry>,
    },
}

/// A failover under way: the dead writer was fenced, this was found.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Found {
    pub controller: u8,
    pub broker: u8,
    pub broker_epoch: u8,
    /// The row that was read, and up to where it holds data.
    pub writer_epoch: u8,
    pub objects: u8,
}

/// What the producers were told. No process knows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Told {
    /// By offset.
    pub acknowledged: Vec<Option<Entry>>,
    /// The greatest high watermark that anybody showed.
    pub high_watermark: u8,
    /// Which broker process acknowledged under a leader epoch.
    pub by_epoch: BTreeMap<u8, (u8, u8)>,
}

/// A broken claim that shows at one step only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Broken {
    OffsetTwice,
    TwoAcknowledge,
    WentBack,
    OtherContent,
    OutOfPlace,
}

/// What may still happen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Left {
    pub appends: u8,
    pub moves: u8,
    pub crashes: u8,
    pub restarts: u8,
    pub failovers: u8,
    pub accepted_losses: u8,
    pub uploads: u8,
}

/// The whole world.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub metadata: Metadata,
    /// The controller epoch: who opened the metadata last.
    pub controller: u8,
    /// Whether that controller's process is dead.
    pub controller_died: bool,
    /// Former controllers that are dead and not only deposed.
    pub died_before: u8,
    pub images: Vec<Image>,
    pub brokers: Vec<Broker>,
    /// By broker and broker epoch.
    pub rows: BTreeMap<(u8, u8), Row>,
    pub attempts: Vec<Attempt>,
    pub uploads: Vec<Upload>,
    pub failover: Option<Found>,
    /// What deposed controllers believe; kept only in a world without fencing.
    pub beliefs: BTreeMap<u8, Metadata>,
    pub told: Vec<Told>,
    pub broken: Option<Broken>,
    pub left: Left,
}

impl State {
    /// The first broker leads everything, nothing was written.
    pub fn start(bounds: &Bounds) -> Self {
        let partitions = usize::from(bounds.partitions);
        let row = PartitionRow {
            leader: 0,
            epoch: 1,
            starts: vec![(1, 0)],
            committed: Vec::new(),
            wal: (bounds.mode == Mode::Local).then_some(0),
        };
        let broker_row = BrokerRow {
            epoch: 1,
            writer: Some(Writer { epoch: 1, next: 0 }),
        };
        let broker = |index| Broker {
            life: Life::Serving,
            epoch: 1,
            seen_controller: 1,
            image: 0,
            roles: (0..partitions)
                .map(|_| match index {
                    0 => Role::Leading(Leading {
                        epoch: 1,
                        log: Vec::new(),
                        durable: 0,
                        seal: None,
                    }),
                    _ => Role::Nothing,
                })
                .collect(),
            taken_back: vec![
                OrderId {
                    controller: 0,
                    number: 0
                };
                partitions
            ],
            acknowledged: 0,
            wal: BTreeSet::new(),
        };
        let mut state = Self {
            metadata: Metadata {
                partitions: vec![row; partitions],
                brokers: vec![broker_row; usize::from(bounds.brokers)],
            },
            controller: 1,
            controller_died: false,
            died_before: 0,
            images: Vec::new(),
            brokers: (0..bounds.brokers).map(broker).collect(),
            rows: BTreeMap::new(),
            attempts: Vec::new(),
            uploads: Vec::new(),
            failover: None,
            beliefs: BTreeMap::new(),
            told: vec![Told::default(); partitions],
            broken: None,
            left: Left {
                appends: bounds.appends,
                moves: bounds.moves,
                crashes: bounds.crashes,
                restarts: bounds.restarts,
                failovers: bounds.failovers,
                accepted_losses: bounds.accepted_losses,
                uploads: bounds.uploads,
            },
        };
        state.publish();
        state
    }

    /// Adds an image of the present metadata.
    pub fn publish(&mut self) {
        let of = |row: &PartitionRow| {
            let start = row.start_of(row.epoch);
            (
                row.leader,
                row.epoch,
                start.expect("every epoch has a start"),
            )
        };
        self.images.push(Image {
            controller: self.controller,
            partitions: self.metadata.partitions.iter().map(of).collect(),
        });
    }

    pub fn newest_image(&self) -> u8 {
        index(self.images.len()) - 1
    }

    pub fn broker(&self, broker: u8) -> &Broker {
        &self.brokers[usize::from(broker)]
    }

    pub fn broker_mut(&mut self, broker: u8) -> &mut Broker {
        &mut self.brokers[usize::from(broker)]
    }

    pub fn row_mut(&mut self, broker: u8, broker_epoch: u8) -> &mut Row {
        self.rows.entry((broker, broker_epoch)).or_default()
    }

    pub fn breaks(&mut self, broken: Broken) {
        self.broken.get_or_insert(broken);
    }
}

/// A length as a small number.
pub fn length<T>(items: &[T]) -> u8 {
    index(items.len())
}

/// An index as a small number.
pub fn index(value: usize) -> u8 {
    u8::try_from(value).expect("the model is small")
}
