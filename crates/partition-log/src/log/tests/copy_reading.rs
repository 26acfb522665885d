//! Reading a copy before it is led.

use std::sync::Arc;

use tidegate_object_storage::Operation;
use tidegate_object_storage::testing::Fault;
use tidegate_record_batch::{Batches, records};
use tidegate_types::DurabilityMode::{Local, Object};
use tidegate_types::Offset;

use super::pair::*;
use super::rig::*;
use super::spec::tag_of;
use crate::{IncomingLog, LogReader, ReadError};

/// Someone who reads along: what has come, and where to go on.
struct Along {
    copy: Arc<IncomingLog>,
    reader: LogReader,
    next: Offset,
    tags: Vec<(u64, u64)>,
}

impl Along {
    fn of(pair: &Pair, copy: &Copy) -> Self {
        Self {
            copy: copy.incoming.clone(),
            reader: pair.rigs[copy.to].life().reader.clone(),
            next: copy.incoming.log_start(),
            tags: Vec::new(),
        }
    }

    /// Reads until nothing more comes.
    async fn read_on(&mut self) -> Result<(), ReadError> {
        loop {
            let read = self.copy.read(&self.reader, self.next, 1_000).await?;
            assert!(read.next >= self.next);
            for batch in read.batches.iter().cloned().flat_map(Batches::with_crc) {
                let batch = batch.unwrap();
                for record in records(&batch, 1 << 20).unwrap() {
                    if record.offset >= self.next && !batch.header().is_control() {
                        let tag = tag_of(&record.value.unwrap());
                        self.tags.push((record.offset.get(), tag));
                    }
                }
                self.next = batch.header().end_offset();
            }
            assert!(read.batches.is_empty() || read.next == self.next);
            self.next = read.next;
            if read.batches.is_empty() {
                return Ok(());
            }
        }
    }
}

#[test]
fn whoever_reads_along_has_read_everything_by_the_time_of_the_seal() {
    for mode in [Local, Object] {
        for uploaded in [false, true] {
            paused(async {
                let mut pair = Pair::new().await;
                let id = pair.one(mode).await;
                fill(&pair.log(id), 20, 100).await;
                if uploaded {
                    pair.all_uploaded().await;
                }
                fill(&pair.log(id), 3, 100).await;
                let copy = pair.prepare(id, 1).await;
                let mut along = Along::of(&pair, &copy);
                pair.caught_up(&copy).await;
                along.read_on().await.unwrap();
                assert_eq!(along.tags, numbered(0..23));
                // What comes meanwhile, stored or not.
                fill(&pair.log(id), 7, 100).await;
                if uploaded {
                    pair.all_uploaded().await;
                }
                fill(&pair.log(id), 2, 100).await;
                let sealed = pair.seal(id).await.unwrap();
                copy.incoming.held().await.unwrap();
                along.read_on().await.unwrap();
                assert_eq!(along.tags, numbered(0..32));
                assert_eq!(along.next, sealed.end);
            });
        }
    }
}

#[test]
fn a_copy_that_is_led_gives_nothing_more_and_skips_nothing() {
    for mode in [Local, Object] {
        paused(async {
            let mut pair = Pair::new().await;
            let id = pair.one(mode).await;
            fill(&pair.log(id), 20, 100).await;
            pair.all_uploaded().await;
            fill(&pair.log(id), 5, 100).await;
            let copy = pair.prepare(id, 1).await;
            let sealed = pair.seal(id).await.unwrap();
            copy.incoming.held().await.unwrap();
            let state = pair.commit(id, &copy, &sealed).await;
            pair.activate(id, &copy, &state).await;
            let mut late = Along::of(&pair, &copy);
            late.read_on().await.unwrap();
            assert_eq!((late.next, late.tags), (Offset::ZERO, Vec::new()));
            assert!(copy.incoming.became(&pair.log(id)));
            let other = pair.topic(mode, 1).await[0];
            assert!(!copy.incoming.became(&pair.log(other)));
        });
    }
}

#[test]
fn a_copy_that_is_given_up_gives_nothing_of_what_only_it_holds() {
    paused(async {
        let mut pair = Pair::new().await;
        let id = pair.one(Local).await;
        fill(&pair.log(id), 5, 100).await;
        let copy = pair.prepare(id, 1).await;
        let mut along = Along::of(&pair, &copy);
        pair.caught_up(&copy).await;
        copy.incoming.discard();
        along.read_on().await.unwrap();
        assert_eq!(along.tags, Vec::new());
    });
}

#[test]
fn a_store_that_cannot_be_read_is_an_error_and_reading_goes_on_where_it_was() {
    paused(async {
        let mut pair = Pair::new().await;
        let id = pair.one(Local).await;
        fill(&pair.log(id), 20, 100).await;
        pair.all_uploaded().await;
        fill(&pair.log(id), 5, 100).await;
        let copy = pair.prepare(id, 1).await;
        let mut along = Along::of(&pair, &copy);
        pair.caught_up(&copy).await;
        let store = pair.rigs[1].store.clone();
        store.always(Some(Operation::Get), "", Fault::Denied);
        assert!(along.read_on().await.is_err());
        assert_eq!(along.next, Offset::ZERO);
        store.heal();
        along.read_on().await.unwrap();
        assert_eq!(along.tags, numbered(0..25));
    });
}
