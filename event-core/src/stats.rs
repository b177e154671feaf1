//! What a loop has done: turns, callbacks, and how long they took.

use std::time::Duration;

/// Callbacks of up to 2^38 ns (nearly five minutes) are told apart.
const BUCKETS: usize = 40;

/// What a loop has done since [`LoopHandle::set_stats`] was called, and what it holds now.
///
/// [`LoopHandle::set_stats`]: crate::LoopHandle::set_stats
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// How often the loop has waited, waits of no length included.
    pub turns: u64,
    /// How many callbacks have run. What a stream does when it is called, its reads and writes and its callbacks, is one;
    /// so is what other threads asked for in a turn.
    pub callbacks: u64,
    /// The time spent in them.
    pub in_callbacks: Duration,
    /// The time spent waiting for the kernel.
    pub waiting: Duration,
    /// How long the callbacks took.
    pub durations: Histogram,
    /// Events, timers, signals, mailboxes, streams and listeners that exist now.
    pub events: usize,
    /// Fds that are watched now.
    pub fds: usize,
    /// Timers that are armed now, those of events and streams included.
    pub timers: usize,
}

/// How many callbacks took how long, told apart by powers of two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// `counts[n]` is for less than 2^n ns and not less than half of that; the last for everything longer, too.
    counts: [u64; BUCKETS],
}

impl Histogram {
    /// How many there are in all.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// From the shortest on: a bound, and how many took less than it and not less than the bound before. The bounds
    /// double, from 1 ns on; the last is `Duration::MAX`.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let bound = |n: usize| match n {
            n if n < BUCKETS - 1 => Duration::from_nanos(1 << n),
            _ => Duration::MAX,
        };
        self.counts.iter().enumerate().map(move |(n, count)| (bound(n), *count))
    }

    fn count(&mut self, duration: Duration) {
        let bits = (u128::BITS - duration.as_nanos().leading_zeros()) as usize;
        self.counts[bits.min(BUCKETS - 1)] += 1;
    }
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: [0; BUCKETS] }
    }
}

/// The part of `Stats` that is counted as the loop runs.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    turns: u64,
    callbacks: u64,
    in_callbacks: Duration,
    waiting: Duration,
    durations: Histogram,
}

impl Recorder {
    pub(crate) fn turn(&mut self, waited: Duration) {
        self.turns += 1;
        self.waiting += waited;
    }

    pub(crate) fn callback(&mut self, took: Duration) {
        self.callbacks += 1;
        self.in_callbacks += took;
        self.durations.count(took);
    }

    /// What was counted; what exists now is left at 0.
    pub(crate) fn stats(&self) -> Stats {
        Stats {
            turns: self.turns,
            callbacks: self.callbacks,
            in_callbacks: self.in_callbacks,
            waiting: self.waiting,
            durations: self.durations.clone(),
            ..Stats::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_below_the_next_power_of_two() {
        let mut histogram = Histogram::default();
        for nanos in [0, 1, 2, 3, 4, 1 << 37, (1 << 38) - 1, 1 << 38, u64::MAX] {
            histogram.count(Duration::from_nanos(nanos));
        }
        let counted: Vec<_> = histogram.buckets().filter(|bucket| bucket.1 > 0).collect();
        let nanos = Duration::from_nanos;
        let expected = [
            (nanos(1), 1),
            (nanos(2), 1),
            (nanos(4), 2),
            (nanos(8), 1),
            (nanos(1 << 38), 2),
            (Duration::MAX, 2),
        ];
        assert_eq!(counted, expected);
        assert_eq!(histogram.total(), 9);
    }
}
