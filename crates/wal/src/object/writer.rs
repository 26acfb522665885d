//! The writer: the one owner of what is in flight.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tidegate_segment_format::{ObjectBuilder, WriterIdentity};
use tidegate_types::{OffsetRange, PartitionId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::intake::Waiting;
use super::policy::{Decision, Linger, View, decide};
use super::put::{Put, PutEnd, Putter};
use super::{
    LogObjectName, LogWriter, ObjectWalOptions, ObjectWalSeams, Shared, WrittenObject, WrittenSink,
};
use crate::{AppendObserver, Appended, Location, WalFailure, WrittenObjectRef};

pub(super) struct Writer {
    shared: Arc<Shared>,
    writer: LogWriter,
    nonce: u64,
    options: ObjectWalOptions,
    sink: Arc<dyn WrittenSink>,
    putter: Putter,
    linger: Linger,
    next_sequence: u64,
    /// In the order of sequence.
    in_flight: VecDeque<Flight>,
    puts: FuturesUnordered<BoxFuture<'static, (u64, PutEnd)>>,
}

/// An object sent and not acknowledged.
struct Flight {
    written: WrittenObject,
    entries: Vec<Placed>,
    cost: u64,
    stored: bool,
}

/// An entry at its place in an object.
struct Placed {
    range: OffsetRange,
    position: u64,
    length: u64,
    since: Instant,
    observer: Arc<dyn AppendObserver>,
}

impl Writer {
    pub(super) fn new(
        shared: Arc<Shared>,
        writer: LogWriter,
        options: ObjectWalOptions,
        sink: Arc<dyn WrittenSink>,
        seams: &ObjectWalSeams,
    ) -> Self {
        let putter = Putter {
            store: Arc::clone(&seams.store),
            clock: Arc::clone(&seams.clock),
            random: seams.random.clone(),
            metrics: seams.metrics.clone(),
            max_wait: options.max_retry_wait,
        };
        Self {
            shared,
            writer,
            nonce: seams.random.next_u64(),
            options,
            sink,
            putter,
            linger: Linger::default(),
            next_sequence: writer.first_sequence,
            in_flight: VecDeque::new(),
            puts: FuturesUnordered::new(),
        }
    }

    /// Runs until all handles are gone or the owner cancels, and all that was taken is durable or given up.
    pub(super) async fn run(mut self, owner: CancellationToken) {
        let give_up = self.shared.give_up.clone();
        loop {
            let until = match self.decide() {
                Decision::Cut => {
                    self.cut();
                    continue;
                }
                Decision::Until(at) => Some(at),
                Decision::Hold => None,
            };
            if self.is_drained() {
                self.end(&WalFailure::Closed);
                break;
            }
            let linger = async {
                match until {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            // Cancel-safe: PUTs live in `self.puts`, a notification not taken stays, and everything else is
            // looked at again.
            tokio::select! {
                biased;
                () = give_up.cancelled() => {
                    self.end(&WalFailure::Closed);
                    break;
                }
                Some((sequence, end)) = self.puts.next() => {
                    if let Some(failure) = self.put_ended(sequence, end) {
                        self.end(&failure);
                        break;
                    }
                }
                () = owner.cancelled(), if !self.shared.intake.lock().is_closing() => {
                    self.shared.intake.lock().close();
                }
                () = self.shared.changed.notified() => {}
                () = linger => {}
            }
        }
        // The end of this task before its owner wants it would stop the process; being fenced doesn't.
        owner.cancelled().await;
    }

    fn decide(&self) -> Decision {
        let view = {
            let intake = self.shared.intake.lock();
            View {
                oldest: intake.oldest(),
                waiting_bytes: intake.waiting_bytes(),
                in_flight: self.in_flight.len(),
                under_way: self.puts.len(),
                closing: intake.is_closing(),
            }
        };
        let now = self.shared.clock.now();
        decide(view, &self.options, self.linger, now)
    }

    fn is_drained(&self) -> bool {
        let intake = self.shared.intake.lock();
        intake.is_closing() && intake.oldest().is_none() && self.in_flight.is_empty()
    }

    /// Makes an object of what waits and sends it off.
    fn cut(&mut self) {
        let name = LogObjectName {
            broker: self.writer.broker,
            broker_epoch: self.writer.broker_epoch,
            sequence: self.next_sequence,
        };
        self.next_sequence += 1;
        let identity = WriterIdentity {
            broker: name.broker,
            broker_epoch: name.broker_epoch,
            sequence: name.sequence,
            nonce: self.nonce,
        };
        let taken = self
            .shared
            .intake
            .lock()
            .take(self.options.max_object_bytes);
        let mut builder = ObjectBuilder::new(identity, self.options.block_target_bytes);
        let (gathered, cost, left) = gather(&mut builder, taken);
        if !left.is_empty() {
            self.shared.intake.lock().give_back(left);
        }
        let built = builder.finish();
        self.shared
            .metrics
            .cut(built.size_bytes, gathered.len(), self.puts.len() + 1);
        let starts: HashMap<PartitionId, u64> = built
            .segments
            .iter()
            .map(|segment| (segment.partition, segment.position))
            .collect();
        let entries = gathered.into_iter().map(|(partition, mut placed)| {
            placed.position += starts[&partition];
            placed
        });
        self.in_flight.push_back(Flight {
            entries: entries.collect(),
            cost,
            stored: false,
            written: WrittenObject {
                object: Arc::new(WrittenObjectRef {
                    broker: name.broker,
                    broker_epoch: name.broker_epoch,
                    sequence: name.sequence,
                    size_bytes: built.size_bytes,
                }),
                segments: built.segments,
                index: built.index,
            },
        });
        let put = Put {
            name,
            payload: built.payload,
            footer: built.footer,
        };
        let putter = self.putter.clone();
        self.puts
            .push(Box::pin(async move { putter.run(put).await }));
    }

    fn put_ended(&mut self, sequence: u64, end: PutEnd) -> Option<WalFailure> {
        match end {
            PutEnd::Taken => Some(WalFailure::Fenced {
                broker_epoch: self.writer.broker_epoch,
                sequence,
            }),
            PutEnd::Stored { put_time } => {
                if let Some(put_time) = put_time {
                    self.linger.observe(put_time);
                    self.shared.metrics.put_time(put_time);
                }
                let mut flights = self.in_flight.iter_mut();
                if let Some(flight) =
                    flights.find(|flight| flight.written.object.sequence == sequence)
                {
                    flight.stored = true;
                }
                self.acknowledge();
                None
            }
        }
    }

    /// Tells of every object that is stored and has no unstored one before it.
    fn acknowledge(&mut self) {
        while self.in_flight.front().is_some_and(|flight| flight.stored) {
            let Some(flight) = self.in_flight.pop_front() else {
                return;
            };
            let object = Arc::clone(&flight.written.object);
            let pending = self
                .shared
                .intake
                .lock()
                .acknowledge(object.sequence, flight.cost);
            self.shared.metrics.pending(pending);
            self.sink.written(flight.written);
            let now = self.shared.clock.now();
            for placed in flight.entries {
                self.shared.metrics.durable(now - placed.since);
                placed.observer.durable(Appended {
                    range: placed.range,
                    location: Location::Object {
                        object: Arc::clone(&object),
                        position: placed.position,
                        length: placed.length,
                    },
                });
            }
        }
    }

    /// Fails everything that isn't acknowledged, in order, and drops the PUTs.
    fn end(&mut self, failure: &WalFailure) {
        let waiting = self.shared.intake.lock().end(failure);
        self.puts.clear();
        self.shared.metrics.pending(0);
        if !matches!(failure, WalFailure::Closed) {
            self.shared.metrics.failed();
            self.shared.failure.send_replace(Some(failure.clone()));
        }
        for flight in self.in_flight.drain(..) {
            for placed in flight.entries {
                placed.observer.failed(failure);
            }
        }
        for entry in waiting {
            entry.observer.failed(failure);
        }
    }
}

/// Adds entries to an object, up to the first that can't go into it: one that doesn't follow what the object
/// holds of its partition. Gives each its place within its segment, the cost of all, and the rest.
fn gather(
    builder: &mut ObjectBuilder,
    mut taken: VecDeque<Waiting>,
) -> (Vec<(PartitionId, Placed)>, u64, VecDeque<Waiting>) {
    let mut lengths: HashMap<PartitionId, u64> = HashMap::new();
    let mut gathered = Vec::with_capacity(taken.len());
    let mut cost = 0;
    while let Some(next) = taken.front() {
        let (partition, range) = (next.entry.partition, next.entry.range);
        if !builder.accepts(partition, next.entry.leader_epoch, range.start()) {
            break;
        }
        let Some(waiting) = taken.pop_front() else {
            break;
        };
        cost += waiting.cost();
        let entry = waiting.entry;
        let length = entry.batches.len() as u64;
        let position = lengths.entry(partition).or_default();
        gathered.push((
            partition,
            Placed {
                range,
                position: *position,
                length,
                since: waiting.since,
                observer: waiting.observer,
            },
        ));
        *position += length;
        builder.add_batches(
            partition,
            entry.leader_epoch,
            range,
            entry.batches,
            entry.max_timestamp,
            entry.record_count.into(),
        );
        if let Some(checkpoint) = entry.checkpoint {
            builder.set_checkpoint(partition, checkpoint);
        }
    }
    (gathered, cost, taken)
}
