//! The sensors of those whom a quota binds, in bounded number.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::rate::{Millis, Sensor};

/// Whose sensor: a hash of 128 bits with random keys, so that names of any length take no room and nobody can choose
/// to share another one's.
pub(super) type SensorKey = u128;

/// Sensors of one kind of quota at most.
pub(super) const CAPACITY: usize = 10_000;
/// Below so many none are looked for that could go.
const FEW: usize = 256;
/// Between two such looks.
const SWEEP_MS: u64 = 1_000;

/// Sensors, found by their keys. One that is as good as new gives way. If there are [`CAPACITY`] in use, those that
/// come later share one.
pub(super) struct Sensors<S> {
    table: Mutex<Table<S>>,
}

struct Table<S> {
    sensors: HashMap<SensorKey, S>,
    shared: S,
    swept_at: Millis,
}

impl<S: Sensor> Sensors<S> {
    pub(super) fn new() -> Self {
        Self {
            table: Mutex::new(Table {
                sensors: HashMap::new(),
                shared: S::default(),
                swept_at: 0,
            }),
        }
    }

    /// Does something with one's sensor.
    pub(super) fn with<T>(&self, key: SensorKey, now: Millis, act: impl FnOnce(&mut S) -> T) -> T {
        let mut table = self.table.lock();
        act(table.sensor(key, now))
    }

    pub(super) fn len(&self) -> usize {
        self.table.lock().sensors.len()
    }
}

impl<S: Sensor> Table<S> {
    fn sensor(&mut self, key: SensorKey, now: Millis) -> &mut S {
        let count = self.sensors.len();
        if !self.sensors.contains_key(&key) {
            if count >= FEW && now >= self.swept_at + SWEEP_MS {
                self.swept_at = now;
                self.sensors.retain(|_, sensor| !sensor.is_as_new(now));
            }
            if self.sensors.len() >= CAPACITY {
                return &mut self.shared;
            }
        }
        self.sensors.entry(key).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::rate::WindowedRate;
    use super::*;

    #[test]
    fn those_beyond_the_capacity_share_one_and_the_idle_give_way() {
        let sensors: Sensors<WindowedRate> = Sensors::new();
        for key in 0..CAPACITY as u128 + 50 {
            sensors.with(key, 2_000, |s| s.record(1.0, 2_000));
        }
        assert_eq!(sensors.len(), CAPACITY);
        let shared = sensors.with(1 << 100, 2_000, |s| s.excess(4.9, 2_000));
        assert!(!shared.is_zero(), "50 recorded in the shared one");
        let own = sensors.with(7, 2_000, |s| s.excess(4.9, 2_000));
        assert!(own.is_zero());
        // All are idle now.
        sensors.with(1 << 100, 20_000, |s| s.record(1.0, 20_000));
        assert_eq!(sensors.len(), 1);
    }
}
