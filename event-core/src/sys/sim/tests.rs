//! Tests of the simulated kernel through the seam: the stage they play on.

mod chance;
mod connect;
mod files;
mod streams;
mod time;
mod wake;

use std::path::PathBuf;

use super::*;
use crate::interest::Report;

const ALL: Interest = Interest::READ.union(Interest::WRITE).union(Interest::CLOSED);
const NOW: Option<Duration> = Some(Duration::ZERO);

/// A world with one loop in it.
struct Stage {
    world: Rc<World>,
    sys: Sim,
}

impl Stage {
    fn new() -> Stage {
        Stage::seeded(1)
    }

    fn seeded(seed: u64) -> Stage {
        let world = Rc::new(World::new(seed));
        Stage { sys: Sim::new(Rc::clone(&world)), world }
    }

    /// Two numbers of the program's that are connected.
    fn pair(&self, unix: bool) -> (RawFd, RawFd) {
        self.world.with(|state| {
            let (one, other) = state.pair(unix);
            (state.install(one), state.install(other))
        })
    }

    fn pipe(&self) -> (RawFd, RawFd) {
        self.world.with(|state| {
            let (reader, writer) = state.pipe();
            (state.install(reader), state.install(writer))
        })
    }

    fn add(&self, fd: RawFd, interest: Interest) {
        self.sys.change(fd, fd as u64, Interest::empty(), interest).unwrap();
    }

    fn wait(&self, timeout: Option<Duration>) -> Vec<(u64, Report)> {
        let mut out = Vec::new();
        self.sys.wait(&mut out, timeout).unwrap();
        out.iter().map(|reported| (reported.tag(), reported.report())).collect()
    }

    /// What a poll says of `fd` now, asked on a loop of its own.
    fn poll(&self, fd: RawFd) -> Report {
        let sys = Sim::new(Rc::clone(&self.world));
        sys.change(fd, 0, Interest::empty(), ALL).unwrap();
        let mut out = Vec::new();
        sys.wait(&mut out, NOW).unwrap();
        out.first().map_or(Report::empty(), |reported| reported.report())
    }

    fn recv(&self, fd: RawFd) -> io::Result<Vec<u8>> {
        let mut buf = Vec::with_capacity(100_000);
        self.sys.recv(fd, &Cell::default(), &mut buf, usize::MAX).map(|_| buf)
    }

    fn send(&self, fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
        self.sys.send(fd, &Cell::default(), bytes)
    }

    fn listen(&self, address: &Address, backlog: i32) -> io::Result<RawFd> {
        self.sys.listen(address, &ListenOptions { backlog, ..ListenOptions::default() })
    }

    fn elapsed(&self) -> Duration {
        self.world.with(|state| state.elapsed())
    }

    fn at(&self, delay: Duration, action: impl FnOnce() + 'static) {
        self.world.with(|state| state.at(delay, Box::new(action)));
    }

    fn lay(&self, fd: RawFd, taking: bool, step: Step) {
        self.world.with(|state| state.lay(fd, taking, step)).unwrap();
    }

    fn latency(&self, fd: RawFd, latency: Duration) {
        self.world
            .with(|state| {
                let id = state.file_of(fd)?;
                state.set_latency(id, latency)
            })
            .unwrap();
    }

    fn close_by_rst(&self, fd: RawFd) {
        self.world.with(|state| {
            let id = state.file_of(fd).unwrap();
            state.abort(id);
        });
    }
}

fn code<T>(result: io::Result<T>) -> i32 {
    result.err().and_then(|error| error.raw_os_error()).unwrap_or(0)
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn ip(text: &str) -> Address {
    Address::Ip(text.parse().unwrap())
}

fn unix(path: &str) -> Address {
    Address::Unix(Some(PathBuf::from(path)))
}

/// One call on the end under test, as a letter: `r`ecv, `s`end, S`O`_ERROR; the outcome is a count or an errno.
fn probe(stage: &Stage, fd: RawFd, calls: &str) -> Vec<i32> {
    let outcome = |call| match call {
        'r' => stage.recv(fd).map(|bytes| bytes.len() as i32),
        's' => stage.send(fd, b"x").map(|count| count as i32),
        'o' => stage.sys.take_error(fd).map(|error| error.and_then(|e| e.raw_os_error()).unwrap_or(0)),
        other => panic!("no call {other}"),
    };
    calls.chars().map(|call| outcome(call).unwrap_or_else(|error| -error.raw_os_error().unwrap())).collect()
}

const AGAIN: i32 = -libc::EAGAIN;
const PIPE: i32 = -libc::EPIPE;
const RESET: i32 = -libc::ECONNRESET;

fn name(report: Report) -> String {
    let names = [
        (Report::READ, 'R'),
        (Report::WRITE, 'W'),
        (Report::ERR, 'E'),
        (Report::HUP, 'H'),
        (Report::CLOSED, 'C'),
    ];
    names.into_iter().filter(|&(bit, _)| report.contains(bit)).map(|(_, letter)| letter).collect()
}

fn closed_with_unread(stage: &Stage, a: RawFd, b: RawFd) {
    stage.send(a, b"q").unwrap();
    stage.sys.close(b);
}
