//! The heap of timers, which is private: through `Timer::add` and `Timer::del`, which do little else.
//!
//! The delays are from one to two hours, from a fixed sequence of random numbers, so none of these timers fires. `fire` adds
//! 100 timers that are due at once and runs the turn that calls them.

// A bench that cannot go on has nothing to show.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use event_core::{EventBase, LoopFlags, Timer};

/// How many timers wait already.
const WAITING: [usize; 3] = [0, 1_000, 100_000];

/// Timers that fire in one turn.
const FIRING: usize = 100;

/// xorshift64*: every run sees the same numbers.
struct Delays(u64);

impl Delays {
    fn new() -> Self {
        Self(0x9E37_79B9_7F4A_7C15)
    }

    fn next(&mut self) -> Duration {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let random = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D);
        Duration::from_micros(3_600_000_000 + random % 3_600_000_000)
    }
}

fn waiting(base: &EventBase, count: usize, delays: &mut Delays) -> Vec<Timer> {
    let timer = |_| {
        let timer = Timer::new(base, |_| ()).unwrap();
        timer.add(delays.next()).unwrap();
        timer
    };
    (0..count).map(timer).collect()
}

fn add_and_cancel(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("timers/add and cancel");
    for count in WAITING {
        let (base, mut delays) = (EventBase::new().unwrap(), Delays::new());
        let _others = waiting(&base, count, &mut delays);
        let timer = Timer::new(&base, |_| ()).unwrap();
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter(|| {
                timer.add(delays.next()).unwrap();
                timer.del().unwrap();
            });
        });
    }
}

fn change(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("timers/change");
    for count in WAITING.into_iter().filter(|&count| count > 0) {
        let (base, mut delays) = (EventBase::new().unwrap(), Delays::new());
        let all = waiting(&base, count, &mut delays);
        let mut at = 0;
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter(|| {
                // Another one each time, far from the one before.
                at = (at + 7_919) % all.len();
                all[at].add(delays.next()).unwrap();
            });
        });
    }
}

fn fire(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("timers/fire");
    group.throughput(Throughput::Elements(FIRING as u64));
    for count in WAITING {
        let mut base = EventBase::new().unwrap();
        let _others = waiting(&base, count, &mut Delays::new());
        let fired = Rc::new(Cell::new(0));
        let timer = |_| {
            let fired = fired.clone();
            Timer::new(&base, move |_| fired.set(fired.get() + 1)).unwrap()
        };
        let due: Vec<Timer> = (0..FIRING).map(timer).collect();
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter(|| {
                fired.set(0);
                for timer in &due {
                    timer.add(Duration::ZERO).unwrap();
                }
                while fired.get() < FIRING {
                    base.run(LoopFlags::ONCE).unwrap();
                }
            });
        });
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    add_and_cancel(&mut criterion);
    change(&mut criterion);
    fire(&mut criterion);
    criterion.final_summary();
}
