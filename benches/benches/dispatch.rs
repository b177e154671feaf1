//! One turn of the loop: from what the kernel reports to callbacks that do next to nothing.
//!
//! Each socket pair holds a byte that nobody reads, so it is ready in every turn. The kernel's share is in the figures: one
//! wait a turn, and its look at each pair. `activate` is without it: an event of no fd that is made to run next turn.

// A bench that cannot go on has nothing to show.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::hint::black_box;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use criterion::{BenchmarkId, Criterion, Throughput};
use event_core::{Event, EventBase, LoopFlags, Ready, Timer, What};

const PASS: LoopFlags = LoopFlags::ONCE.union(LoopFlags::NONBLOCK);

/// How many are ready in a turn.
const READY: [usize; 2] = [1, 100];

fn ready_pairs(count: usize) -> Vec<(UnixStream, UnixStream)> {
    let pair = |_| {
        let (reader, mut writer) = UnixStream::pair().unwrap();
        writer.write_all(b"x").unwrap();
        (reader, writer)
    };
    (0..count).map(pair).collect()
}

fn events(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("dispatch/events");
    for count in READY {
        let pairs = ready_pairs(count);
        let mut base = EventBase::new().unwrap();
        let calls = Rc::new(Cell::new(0_u64));
        for (reader, _) in &pairs {
            let calls = calls.clone();
            let on_ready = move |_: &Event, _| calls.set(calls.get() + 1);
            let event = Event::new(&base, reader.as_raw_fd(), What::READ | What::PERSIST, on_ready).unwrap();
            event.add(None).unwrap();
            event.detach();
        }
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter(|| base.run(PASS).unwrap());
        });
        assert_ne!(calls.get(), 0);
    }
}

fn tokens(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("dispatch/tokens");
    for count in READY {
        let pairs = ready_pairs(count);
        let mut base = EventBase::new().unwrap();
        let calls = Rc::new(Cell::new(0_u64));
        for (at, (reader, _)) in pairs.iter().enumerate() {
            let what = What::READ | What::PERSIST;
            let id = base.register_token(reader.as_raw_fd(), false, what, None, at).unwrap();
            base.add(id, None).unwrap();
        }
        let counted = calls.clone();
        base.set_token_handler(move |_, _, token, _, _| {
            counted.set(counted.get() + 1);
            black_box(token);
        });
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter(|| base.run(PASS).unwrap());
        });
        assert_ne!(calls.get(), 0);
    }
}

fn activate(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("dispatch/activate");
    for count in READY {
        let mut base = EventBase::new().unwrap();
        let calls = Rc::new(Cell::new(0_u64));
        let event = |_| {
            let calls = calls.clone();
            Timer::new(&base, move |_| calls.set(calls.get() + 1)).unwrap()
        };
        let all: Vec<Timer> = (0..count).map(event).collect();
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter(|| {
                for event in &all {
                    event.activate(Ready::TIMEOUT).unwrap();
                }
                base.run(PASS).unwrap()
            });
        });
        assert_ne!(calls.get(), 0);
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    events(&mut criterion);
    tokens(&mut criterion);
    activate(&mut criterion);
    criterion.final_summary();
}
