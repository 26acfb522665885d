//! What happens to the cluster while the clients run, again and again: every partition moves, two brokers swap all
//! they lead, one broker is killed, comes back and gets its share.

use std::time::Duration;

use tidegate_admin_api::v1::{MoveAnswer, MoveStatus};

use super::ledger::Gap;
use super::report::{Event, Gaps, Ms};
use super::stage::{Stage, Stuck};

/// Between two acts.
const PAUSE: Duration = Duration::from_millis(300);
/// A killed broker stays away for so long after its partitions go on.
const AWAY: Duration = Duration::from_secs(1);
/// How long a broker may take to come back.
const LOOK: Duration = Duration::from_millis(50);
const LOOKS: u32 = 1_200;

impl Stage {
    /// All acts once. `over` is asked between them whether to stop.
    pub async fn round(&mut self, number: u32, over: impl Fn() -> bool) -> Result<(), Stuck> {
        for partition in self.ledger.partitions() {
            if over() {
                return Ok(());
            }
            self.move_on(partition).await?;
            tokio::time::sleep(PAUSE).await;
        }
        if over() {
            return Ok(());
        }
        self.swap(number).await?;
        tokio::time::sleep(PAUSE).await;
        if over() {
            return Ok(());
        }
        let killed = self.kill(number).await?;
        tokio::time::sleep(AWAY).await;
        self.bring_back(killed).await?;
        tokio::time::sleep(PAUSE).await;
        self.even_out(killed).await?;
        tokio::time::sleep(PAUSE).await;
        Ok(())
    }

    /// The broker that acknowledges a partition's records.
    fn writer_of(&self, partition: u32) -> u32 {
        self.ledger.acknowledged_by(partition).unwrap_or_default()
    }

    fn written_by(&self, broker: u32) -> Vec<u32> {
        let all = self.ledger.partitions();
        all.filter(|partition| self.writer_of(*partition) == broker)
            .collect()
    }

    /// The broker after this one, in a circle.
    fn after(&self, broker: u32) -> u32 {
        let at = self.brokers.iter().position(|one| one.id == broker);
        let next = at.map_or(0, |at| (at + 1) % self.brokers.len());
        self.brokers[next].id
    }

    /// Moves one partition to the next broker.
    async fn move_on(&mut self, partition: u32) -> Result<(), Stuck> {
        let to = self.after(self.writer_of(partition));
        let begun = self.ledger.now();
        let answers = self
            .administration
            .reassign(&self.topic, &[(partition, to)])
            .await?;
        for answer in &answers {
            if let Some((gap, from)) = self.moved(begun, answer).await? {
                let ms = |phase: Option<f64>| Ms::from(phase.unwrap_or_default());
                self.tell(&Event::Moved {
                    partition,
                    from,
                    to,
                    write_gap_ms: gap.write.into(),
                    read_gap_ms: gap.read.into(),
                    prepare_ms: ms(answer.prepare_ms),
                    seal_ms: ms(answer.seal_ms),
                    commit_ms: ms(answer.commit_ms),
                });
            }
        }
        Ok(())
    }

    /// Waits until a moved partition goes on, and counts its gap. `None` if it hasn't moved.
    async fn moved(
        &mut self,
        begun: Duration,
        answer: &MoveAnswer,
    ) -> Result<Option<(Gap, u32)>, Stuck> {
        let (partition, to) = (answer.partition, answer.to);
        match answer.status {
            MoveStatus::Moved => {}
            MoveStatus::AlreadyThere => return Ok(None),
            MoveStatus::UnderWay | MoveStatus::Failed => {
                self.moves_failed += 1;
                let problem = answer.problem.as_ref();
                self.tell(&Event::MoveFailed {
                    partition,
                    to,
                    cause: problem.map_or_else(String::new, |problem| problem.detail.clone()),
                });
                return Ok(None);
            }
        }
        self.settled(partition, |by| by == to).await?;
        let gap = self.ledger.gap(partition, begun, self.ledger.now());
        self.moves.add(gap);
        Ok(Some((gap, answer.from.unwrap_or_default())))
    }

    /// Moves several partitions by one request.
    async fn move_together(
        &mut self,
        why: &'static str,
        moves: &[(u32, u32)],
    ) -> Result<(), Stuck> {
        if moves.is_empty() {
            return Ok(());
        }
        let begun = self.ledger.now();
        let answers = self.administration.reassign(&self.topic, moves).await?;
        let took = self.ledger.now().saturating_sub(begun);
        let mut gaps = Gaps::default();
        for answer in &answers {
            if let Some((gap, _)) = self.moved(begun, answer).await? {
                gaps.add(gap);
            }
        }
        self.tell(&Event::MovedTogether {
            why,
            partitions: gaps.count,
            took_ms: took.into(),
            write_gap_ms: gaps.write(),
            read_gap_ms: gaps.read(),
        });
        Ok(())
    }

    /// Two brokers swap all that they lead.
    async fn swap(&mut self, number: u32) -> Result<(), Stuck> {
        let first = self.brokers[number as usize % self.brokers.len()].id;
        let second = self.after(first);
        let there = self.written_by(first).into_iter();
        let back = self.written_by(second).into_iter();
        let moves: Vec<(u32, u32)> = there
            .map(|partition| (partition, second))
            .chain(back.map(|partition| (partition, first)))
            .collect();
        self.move_together("crosswise", &moves).await
    }

    /// Kills a broker: in every second round the controller, else one that isn't. Answers which.
    async fn kill(&mut self, number: u32) -> Result<u32, Stuck> {
        let controller = self.administration.cluster().await?.controller;
        let victim = if number % 2 == 0 {
            self.after(controller)
        } else {
            controller
        };
        let partitions = self.written_by(victim);
        let count = partitions.len() as u64;
        self.tell(&Event::Killed {
            broker: victim,
            partitions: count,
            was_controller: victim == controller,
        });
        let begun = self.ledger.now();
        if let Some(broker) = self.brokers.iter_mut().find(|broker| broker.id == victim) {
            broker.kill();
        }
        for partition in &partitions {
            self.settled(*partition, |by| by != victim).await?;
        }
        let until = self.ledger.now();
        let (mut gaps, mut others) = (Gaps::default(), Duration::ZERO);
        for partition in self.ledger.partitions() {
            let gap = self.ledger.gap(partition, begun, until);
            if partitions.contains(&partition) {
                gaps.add(gap);
                self.failovers.add(gap);
            } else {
                others = others.max(gap.write);
            }
        }
        self.failed_over += 1;
        self.tell(&Event::FailedOver {
            broker: victim,
            partitions: count,
            write_gap_ms: gaps.write(),
            read_gap_ms: gaps.read(),
            others_write_gap_ms: others.into(),
        });
        Ok(victim)
    }

    /// Starts a killed broker again, and waits until the cluster has it back.
    async fn bring_back(&mut self, id: u32) -> Result<(), Stuck> {
        let begun = self.ledger.now();
        if let Some(broker) = self.brokers.iter_mut().find(|broker| broker.id == id) {
            let started = broker.start();
            started.map_err(|error| format!("broker {id} can't be started again: {error}"))?;
        }
        for _ in 0..LOOKS {
            self.check_brokers()?;
            if self.administration.alive().await?.contains(&id) {
                self.tell(&Event::Returned {
                    broker: id,
                    after_ms: self.ledger.now().saturating_sub(begun).into(),
                });
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
        Err(format!("broker {id} hasn't come back"))
    }

    /// Gives a broker its share: partitions of those that lead the most.
    async fn even_out(&mut self, id: u32) -> Result<(), Stuck> {
        let share = self.ledger.partitions().len() / self.brokers.len();
        let mut left: Vec<Vec<u32>> = self
            .brokers
            .iter()
            .filter(|broker| broker.id != id)
            .map(|broker| self.written_by(broker.id))
            .collect();
        let mut moves = Vec::new();
        let missing = share.saturating_sub(self.written_by(id).len());
        for _ in 0..missing {
            let most = left.iter_mut().max_by_key(|partitions| partitions.len());
            moves.extend(most.and_then(Vec::pop).map(|partition| (partition, id)));
        }
        self.move_together("its share returns", &moves).await
    }
}
