//! Tests of the simulated kernel through the seam.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::thread;

use super::*;
use crate::interest::Report;
use crate::sys::seam::WAKE_TAG;

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
        out.iter().map(|reported| (reported.tag, reported.report)).collect()
    }

    /// What a poll says of `fd` now, asked on a loop of its own.
    fn poll(&self, fd: RawFd) -> Report {
        let sys = Sim::new(Rc::clone(&self.world));
        sys.change(fd, 0, Interest::empty(), ALL).unwrap();
        let mut out = Vec::new();
        sys.wait(&mut out, NOW).unwrap();
        out.first().map_or(Report::empty(), |reported| reported.report)
    }

    fn recv(&self, fd: RawFd) -> io::Result<Vec<u8>> {
        let mut buf = Vec::with_capacity(100_000);
        self.sys.recv(fd, &Cell::default(), &mut buf, usize::MAX).map(|_| buf)
    }

    fn send(&self, fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
        self.sys.send(fd, &Cell::default(), bytes)
    }

    fn listen(&self, address: &Address, backlog: i32) -> io::Result<RawFd> {
        self.sys.listen(address, &ListenOptions { backlog, reuse_address: true, no_delay: true })
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

// Streams.

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

/// What happens to the pair, what a poll of the first end says then, calls on it, and how they end.
type Scene = (&'static str, fn(&Stage, RawFd, RawFd), &'static str, &'static str, &'static [i32]);

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

fn play(unix: bool, scenes: &[Scene]) {
    for (title, act, report, calls, outcomes) in scenes {
        let stage = Stage::new();
        let (a, b) = stage.pair(unix);
        act(&stage, a, b);
        assert_eq!(name(stage.poll(a)), *report, "{title}: readiness");
        assert_eq!(probe(&stage, a, calls), *outcomes, "{title}: outcomes of {calls}");
    }
}

fn fill(stage: &Stage, fd: RawFd) {
    while stage.send(fd, &[0; 65_536]).is_ok() {}
}

// The expectations of the two tests that follow were read off Linux 6.18 with epoll on loopback sockets.

#[test]
fn tcp_streams_report_and_answer_as_those_of_linux_do() {
    play(
        false,
        &[
            ("idle", |_, _, _| {}, "W", "r", &[AGAIN]),
            ("full", |t, a, _| fill(t, a), "", "s", &[AGAIN]),
            ("data", |t, _, b| assert_eq!(t.send(b, b"abc").unwrap(), 3), "RW", "rr", &[3, AGAIN]),
            (
                "peer shut write",
                |t, _, b| t.sys.shutdown(b, Shutdown::Write).unwrap(),
                "RWC",
                "rsr",
                &[0, 1, 0],
            ),
            (
                "peer shut read",
                |t, _, b| t.sys.shutdown(b, Shutdown::Read).unwrap(),
                "W",
                "rss",
                &[AGAIN, 1, 1],
            ),
            (
                "own shut write",
                |t, a, _| t.sys.shutdown(a, Shutdown::Write).unwrap(),
                "W",
                "rs",
                &[AGAIN, PIPE],
            ),
            ("own shut read", |t, a, _| t.sys.shutdown(a, Shutdown::Read).unwrap(), "RWC", "rs", &[0, 1]),
            ("own shut both", |t, a, _| t.sys.shutdown(a, Shutdown::Both).unwrap(), "RWHC", "rs", &[0, PIPE]),
            ("both shut", both_shut, "RWHC", "rs", &[0, PIPE]),
            ("closed", |t, _, b| t.sys.close(b), "RWC", "rs", &[0, 1]),
            ("closed, then written to", closed_and_written_to, "RWEHC", "rsso", &[0, PIPE, PIPE, 0]),
            ("closed with unread", closed_with_unread, "RWEHC", "rrs", &[RESET, 0, PIPE]),
            ("closed with unread, send first", closed_with_unread, "RWEHC", "ssrr", &[RESET, PIPE, 0, 0]),
            ("data, then closed with unread", data_then_unread, "RWEHC", "rrrs", &[4, RESET, 0, PIPE]),
            ("the error is asked for", closed_with_unread, "RWEHC", "oors", &[libc::ECONNRESET, 0, 0, PIPE]),
            ("fin, then rst", fin_then_rst, "RWEHC", "rss", &[0, PIPE, PIPE]),
            ("both fins, then rst", both_fins_then_rst, "RWHC", "rs", &[0, PIPE]),
            ("own fin, then rst", own_fin_then_rst, "RWEHC", "rrs", &[RESET, 0, PIPE]),
            ("full, then closed", full_then_closed, "RWEHC", "rrs", &[RESET, 0, PIPE]),
        ],
    );
}

#[test]
fn unix_streams_report_and_answer_as_those_of_linux_do() {
    play(
        true,
        &[
            ("idle", |_, _, _| {}, "W", "r", &[AGAIN]),
            ("full", |t, a, _| fill(t, a), "", "s", &[AGAIN]),
            ("peer shut write", |t, _, b| t.sys.shutdown(b, Shutdown::Write).unwrap(), "RWC", "rs", &[0, 1]),
            (
                "peer shut read",
                |t, _, b| t.sys.shutdown(b, Shutdown::Read).unwrap(),
                "W",
                "rss",
                &[AGAIN, PIPE, PIPE],
            ),
            (
                "own shut write",
                |t, a, _| t.sys.shutdown(a, Shutdown::Write).unwrap(),
                "W",
                "rs",
                &[AGAIN, PIPE],
            ),
            ("own shut read", |t, a, _| t.sys.shutdown(a, Shutdown::Read).unwrap(), "RWC", "rs", &[0, 1]),
            ("own shut both", |t, a, _| t.sys.shutdown(a, Shutdown::Both).unwrap(), "RWHC", "rs", &[0, PIPE]),
            ("both shut", both_shut, "RWHC", "rs", &[0, PIPE]),
            ("closed", |t, _, b| t.sys.close(b), "RWHC", "rso", &[0, PIPE, 0]),
            ("closed with unread", closed_with_unread, "RWEHC", "rrs", &[RESET, 0, PIPE]),
            ("closed with unread, send first", closed_with_unread, "RWEHC", "ssrr", &[PIPE, PIPE, RESET, 0]),
            ("data, then closed with unread", data_then_unread, "RWEHC", "rrrs", &[4, RESET, 0, PIPE]),
            ("full, then closed", full_then_closed, "RWEHC", "rrs", &[RESET, 0, PIPE]),
        ],
    );
}

fn both_shut(stage: &Stage, a: RawFd, b: RawFd) {
    stage.sys.shutdown(a, Shutdown::Write).unwrap();
    stage.sys.shutdown(b, Shutdown::Write).unwrap();
}

fn closed_and_written_to(stage: &Stage, a: RawFd, b: RawFd) {
    stage.sys.close(b);
    assert_eq!(stage.send(a, b"x").unwrap(), 1);
}

fn closed_with_unread(stage: &Stage, a: RawFd, b: RawFd) {
    stage.send(a, b"q").unwrap();
    stage.sys.close(b);
}

fn data_then_unread(stage: &Stage, a: RawFd, b: RawFd) {
    stage.send(b, b"data").unwrap();
    closed_with_unread(stage, a, b);
}

fn fin_then_rst(stage: &Stage, _: RawFd, b: RawFd) {
    stage.sys.shutdown(b, Shutdown::Write).unwrap();
    stage.close_by_rst(b);
}

fn both_fins_then_rst(stage: &Stage, a: RawFd, b: RawFd) {
    both_shut(stage, a, b);
    stage.close_by_rst(b);
}

fn own_fin_then_rst(stage: &Stage, a: RawFd, b: RawFd) {
    stage.sys.shutdown(a, Shutdown::Write).unwrap();
    stage.close_by_rst(b);
    assert_eq!(code(stage.sys.shutdown(a, Shutdown::Write)), libc::ENOTCONN);
    assert_eq!(code(stage.sys.peer_address(a)), libc::ENOTCONN);
}

fn full_then_closed(stage: &Stage, a: RawFd, b: RawFd) {
    fill(stage, a);
    stage.sys.close(b);
}

#[test]
fn pipes_end_with_a_hang_up_and_break_with_an_error() {
    let stage = Stage::new();
    let (r, w) = stage.pipe();
    assert_eq!((name(stage.poll(r)), name(stage.poll(w))), (String::new(), "W".into()));
    stage.send(w, b"x").unwrap();
    assert_eq!(name(stage.poll(r)), "R");
    stage.sys.close(w);
    assert_eq!(name(stage.poll(r)), "RH");
    assert_eq!(probe(&stage, r, "rr"), [1, 0]);
    assert_eq!(name(stage.poll(r)), "H");

    let (r, w) = stage.pipe();
    fill(&stage, w);
    assert_eq!(name(stage.poll(w)), "");
    stage.sys.close(r);
    assert_eq!(name(stage.poll(w)), "E");
    assert_eq!(probe(&stage, w, "s"), [PIPE]);
}

#[test]
fn a_pipe_makes_its_stream_a_file_and_a_socket_does_not() {
    let stage = Stage::new();
    let (_, w) = stage.pipe();
    let (a, _) = stage.pair(false);
    let (of_pipe, of_socket) = (Cell::default(), Cell::default());
    stage.sys.send(w, &of_pipe, b"x").unwrap();
    stage.sys.send(a, &of_socket, b"x").unwrap();
    assert_eq!((of_pipe.get(), of_socket.get()), (FdKind::File, FdKind::Socket));
    assert_eq!(code(stage.sys.shutdown(w, Shutdown::Both)), libc::ENOTSOCK);
    assert_eq!(code(stage.sys.take_error(w)), libc::ENOTSOCK);
}

#[test]
fn a_receive_never_makes_the_buffer_grow() {
    let stage = Stage::new();
    let (a, b) = stage.pair(false);
    stage.send(b, b"0123456789").unwrap();
    let mut buf = Vec::with_capacity(4);
    buf.push(b'>');
    let (room, at) = (buf.capacity() - 1, buf.as_ptr());
    assert_eq!(stage.sys.recv(a, &Cell::default(), &mut buf, 100).unwrap(), room);
    assert_eq!((buf.len(), buf.as_ptr()), (buf.capacity(), at));
    let mut buf = Vec::with_capacity(100);
    assert_eq!(stage.sys.recv(a, &Cell::default(), &mut buf, 2).unwrap(), 2);
}

#[test]
fn several_pieces_are_sent_in_order_and_at_most_64_at_once() {
    let stage = Stage::new();
    let (a, b) = stage.pair(false);
    let text: Vec<[u8; 2]> = (0..70).map(|n| [n, n]).collect();
    let pieces: Vec<IoSlice<'_>> = text.iter().map(|piece| IoSlice::new(piece)).collect();
    assert_eq!(stage.sys.sendv(a, &Cell::default(), &pieces).unwrap(), 128);
    assert_eq!(stage.recv(b).unwrap(), text[..64].concat());
}

#[test]
fn the_send_buffer_is_bounded_and_room_wakes_the_sender() {
    let stage = Stage::new();
    stage.world.with(|state| state.default_capacity = 9);
    let (a, b) = stage.pair(false);
    stage.add(a, Interest::WRITE | Interest::EDGE);
    assert_eq!(stage.wait(NOW).len(), 1);
    assert_eq!(stage.send(a, &[7; 20]).unwrap(), 9);
    assert_eq!(code(stage.send(a, b"x")), libc::EAGAIN);
    let mut buf = Vec::with_capacity(2);
    stage.sys.recv(b, &Cell::default(), &mut buf, 2).unwrap();
    assert_eq!(stage.wait(NOW), [], "less than a third is free");
    stage.sys.recv(b, &Cell::default(), &mut Vec::with_capacity(1), 1).unwrap();
    assert_eq!(stage.wait(NOW), [(a as u64, Report::WRITE)]);
    assert_eq!(stage.wait(NOW), []);
    assert_eq!(stage.send(a, &[7; 20]).unwrap(), 3);
    stage.world.with(|state| state.file_of(a).and_then(|id| state.set_capacity(id, 100))).unwrap();
    assert_eq!(stage.wait(NOW), [(a as u64, Report::WRITE)], "a larger buffer is room, too");
}

// Numbers and registrations.

#[test]
fn closing_an_fd_takes_its_registration_along_and_a_reused_number_has_none() {
    let stage = Stage::new();
    let (a, b) = stage.pair(false);
    stage.add(a, Interest::READ);
    stage.send(b, b"x").unwrap();
    stage.sys.close(a);
    assert_eq!(stage.wait(NOW), []);
    assert!(stage.world.with(|state| state.sets.values().all(|set| set.len() == 0)));
    assert_eq!(code(stage.sys.change(a, 1, Interest::READ, Interest::READ)), libc::EBADF);
    assert_eq!(code(stage.sys.change(a, 1, Interest::empty(), Interest::READ)), libc::EBADF);
    assert_eq!(code(stage.sys.change(a, 1, Interest::READ, Interest::empty())), 0);
    let (again, _) = stage.pair(false);
    assert_eq!(again, a);
    assert_eq!(code(stage.sys.change(a, 1, Interest::READ, Interest::READ)), libc::ENOENT);
    assert_eq!(code(stage.sys.change(a, 1, Interest::READ, Interest::empty())), 0);
}

#[test]
fn a_duplicate_keeps_the_registration_of_a_closed_number_alive() {
    let stage = Stage::new();
    let (a, b) = stage.pair(false);
    let copy = stage.world.with(|state| state.dup(a)).unwrap();
    stage.add(a, Interest::READ);
    stage.sys.close(a);
    assert_eq!(stage.poll(b), Report::WRITE, "still open");
    stage.send(b, b"x").unwrap();
    assert_eq!(stage.wait(NOW), [(a as u64, Report::READ)], "reported under a number that is closed");
    stage.sys.close(copy);
    assert_eq!(stage.wait(NOW), []);
}

#[test]
fn the_newest_tag_is_reported_and_errors_come_unasked() {
    let stage = Stage::new();
    let (a, b) = stage.pair(false);
    stage.sys.change(a, 10, Interest::empty(), Interest::WRITE).unwrap();
    stage.sys.change(a, 11, Interest::WRITE, Interest::READ).unwrap();
    assert_eq!(stage.wait(NOW), []);
    closed_with_unread(&stage, a, b);
    assert_eq!(stage.wait(NOW), [(11, Report::READ | Report::ERR | Report::HUP)]);
}

#[test]
fn each_arrival_is_an_edge_and_so_is_each_change() {
    let stage = Stage::new();
    let (a, b) = stage.pair(false);
    let edge = Interest::READ | Interest::EDGE;
    stage.add(a, edge);
    assert_eq!(stage.wait(NOW), []);
    for _ in 0..2 {
        stage.send(b, b"x").unwrap();
        assert_eq!(stage.wait(NOW).len(), 1);
        assert_eq!(stage.wait(NOW).len(), 0);
    }
    stage.sys.change(a, 5, edge, edge).unwrap();
    assert_eq!(stage.wait(NOW), [(5, Report::READ)]);
}

#[test]
fn a_made_up_obstacle_gives_the_edge_back() {
    let stage = Stage::new();
    let (a, b) = stage.pair(false);
    stage.add(a, Interest::READ | Interest::EDGE);
    stage.send(b, b"abc").unwrap();
    stage.lay(a, true, Step::Fail(libc::EAGAIN));
    stage.lay(a, true, Step::AtMost(1));
    assert_eq!(stage.wait(NOW).len(), 1);
    assert_eq!(code(stage.recv(a)), libc::EAGAIN);
    assert_eq!(stage.wait(NOW).len(), 1);
    assert_eq!(stage.recv(a).unwrap(), b"a");
    assert_eq!(stage.wait(NOW).len(), 1);
    assert_eq!(stage.recv(a).unwrap(), b"bc");
    assert_eq!(stage.wait(NOW).len(), 0);
}

#[test]
fn the_child_of_a_fork_watches_nothing() {
    let stage = Stage::new();
    let (a, _) = stage.pair(false);
    stage.add(a, Interest::WRITE);
    stage.sys.waker().wake();
    stage.sys.after_fork().unwrap();
    assert_eq!(stage.wait(NOW), []);
    stage.add(a, Interest::WRITE);
    assert_eq!(stage.wait(NOW).len(), 1);
}

#[test]
fn a_loop_reports_what_a_fresh_one_finds_after_whatever_happened() {
    // The set of candidates that a loop keeps against a look at everything, over random histories.
    for seed in 0..30 {
        let stage = Stage::seeded(seed);
        stage.world.with(|state| (state.cuts, state.default_capacity) = (seed % 2 == 0, 12));
        let mut dice = random::Random::new(seed);
        let mut fds = Vec::new();
        for kind in 0..6 {
            let (a, b) = if kind < 4 { stage.pair(kind % 2 == 0) } else { stage.pipe() };
            fds.extend([a, b]);
        }
        for &fd in &fds {
            stage.add(fd, ALL);
        }
        for step in 0..300 {
            let Some(&fd) = fds.get(dice.below(fds.len().max(1))) else { break };
            match dice.below(12) {
                0..=3 => drop(stage.send(fd, &[1; 5])),
                4..=8 => drop(stage.sys.recv(fd, &Cell::default(), &mut Vec::with_capacity(9), 4)),
                9 if step > 100 => drop(stage.sys.shutdown(fd, Shutdown::Write)),
                10 if step > 150 => stage.sys.close(fd),
                _ => {
                    let latency = ms(dice.below(3) as u64);
                    stage.world.with(|state| {
                        // A pipe has none, which is fine here.
                        let _ = state.file_of(fd).and_then(|id| state.set_latency(id, latency));
                        state.advance(ms(1));
                    });
                }
            }
            fds.retain(|&fd| stage.world.with(|state| state.file_of(fd)).is_ok());
            let mut kept = stage.wait(NOW);
            kept.sort_unstable_by_key(|&(tag, _)| tag);
            let fresh: Vec<(u64, Report)> = fds
                .iter()
                .map(|&fd| (fd as u64, stage.poll(fd)))
                .filter(|(_, report)| !report.is_empty())
                .collect();
            assert_eq!(kept, fresh, "seed {seed}, step {step}");
        }
    }
}

// Listening and connecting.

#[test]
fn a_connect_is_ready_when_it_is_done_and_both_ends_know_each_other() {
    let stage = Stage::new();
    let listener = stage.listen(&ip("127.0.0.1:0"), 5).unwrap();
    let at = stage.sys.local_address(listener).unwrap();
    assert!(matches!(at, Address::Ip(ip) if ip.port() != 0));
    assert_eq!(stage.poll(listener), Report::empty());
    let client = stage.sys.connect(&at).unwrap();
    assert_eq!(stage.poll(client), Report::WRITE);
    assert!(stage.sys.take_error(client).unwrap().is_none());
    assert_eq!(stage.poll(listener), Report::READ);
    let (server, from) = stage.sys.accept(listener).unwrap();
    assert_eq!(from, stage.sys.local_address(client).unwrap());
    assert_eq!(from, stage.sys.peer_address(server).unwrap());
    assert_eq!(at, stage.sys.peer_address(client).unwrap());
    assert_eq!(at, stage.sys.local_address(server).unwrap());
    assert_eq!(code(stage.sys.accept(listener)), libc::EAGAIN);
    stage.send(client, b"hello").unwrap();
    assert_eq!(stage.recv(server).unwrap(), b"hello");
}

#[test]
fn a_refused_connect_reports_everything_and_the_error_once() {
    let stage = Stage::new();
    let client = stage.sys.connect(&ip("127.0.0.1:80")).unwrap();
    assert_eq!(name(stage.poll(client)), "RWEHC");
    assert_eq!(probe(&stage, client, "oors"), [libc::ECONNREFUSED, 0, 0, PIPE]);
    assert_eq!(name(stage.poll(client)), "RWHC");
    let client = stage.sys.connect(&ip("127.0.0.1:80")).unwrap();
    assert_eq!(probe(&stage, client, "rrs"), [-libc::ECONNREFUSED, 0, PIPE]);
}

#[test]
fn with_a_latency_a_connect_is_in_progress_first() {
    let stage = Stage::new();
    stage.world.with(|state| state.default_latency = ms(10));
    let listener = stage.listen(&ip("127.0.0.1:80"), 5).unwrap();
    let client = stage.sys.connect(&ip("127.0.0.1:80")).unwrap();
    assert_eq!(stage.poll(client), Report::empty());
    assert_eq!(probe(&stage, client, "rs"), [AGAIN, AGAIN]);
    assert_eq!(code(stage.sys.peer_address(client)), libc::ENOTCONN);
    stage.add(client, Interest::WRITE);
    assert_eq!(stage.wait(None), [(client as u64, Report::WRITE)]);
    assert_eq!(stage.elapsed(), ms(10));
    assert_eq!(stage.poll(listener), Report::READ);
}

#[test]
fn both_ends_have_the_latency_that_was_set_while_connecting() {
    let stage = Stage::new();
    stage.world.with(|state| state.default_latency = ms(10));
    let listener = stage.listen(&ip("127.0.0.1:80"), 5).unwrap();
    let client = stage.sys.connect(&ip("127.0.0.1:80")).unwrap();
    stage.latency(client, ms(50));
    stage.world.with(|state| state.advance(ms(10)));
    let (server, _) = stage.sys.accept(listener).unwrap();
    for (from, to) in [(server, client), (client, server)] {
        stage.send(from, b"x").unwrap();
        stage.world.with(|state| state.advance(ms(49)));
        assert_eq!(code(stage.recv(to)), libc::EAGAIN);
        stage.world.with(|state| state.advance(ms(1)));
        assert_eq!(stage.recv(to).unwrap(), b"x");
    }
}

#[test]
fn a_connect_beyond_the_backlog_waits_for_an_accept() {
    let stage = Stage::new();
    let listener = stage.listen(&ip("0.0.0.0:80"), 2).unwrap();
    stage.add(listener, Interest::READ | Interest::EDGE);
    let clients: Vec<RawFd> = (0..5).map(|_| stage.sys.connect(&ip("127.0.0.1:80")).unwrap()).collect();
    let ready = |stage: &Stage| clients.iter().filter(|&&fd| stage.poll(fd) == Report::WRITE).count();
    assert_eq!(ready(&stage), 2);
    assert_eq!(stage.wait(NOW), [(listener as u64, Report::READ)]);
    assert_eq!(stage.wait(NOW), []);
    // The third client gives up; its place falls to the fourth.
    stage.sys.close(clients[2]);
    let (first, _) = stage.sys.accept(listener).unwrap();
    assert_eq!(stage.sys.peer_address(first).unwrap(), stage.sys.local_address(clients[0]).unwrap());
    assert_eq!(stage.poll(clients[3]), Report::WRITE);
    assert_eq!(stage.poll(clients[4]), Report::empty());
    assert_eq!(stage.wait(NOW), [(listener as u64, Report::READ)]);
    stage.sys.close(listener);
    assert!(stage.world.with(|state| state.listeners.is_empty()));
    assert_eq!(probe(&stage, clients[3], "r"), [RESET], "it was in the queue");
    assert_eq!(probe(&stage, clients[4], "r"), [-libc::ECONNREFUSED], "it was not");
    assert_eq!(probe(&stage, clients[0], "r"), [AGAIN], "an accepted one lives on");
    assert_eq!(stage.world.with(|state| state.objects.len()), 5, "four clients and one server end");
}

#[test]
fn an_address_is_taken_until_its_listener_closes() {
    let stage = Stage::new();
    for address in [ip("127.0.0.1:80"), ip("[::1]:80"), unix("/run/s")] {
        let listener = stage.listen(&address, 1).unwrap();
        assert_eq!(code(stage.listen(&address, 1)), libc::EADDRINUSE);
        stage.sys.close(listener);
        stage.listen(&address, 1).unwrap();
    }
    let one = stage.listen(&ip("127.0.0.1:0"), 1).unwrap();
    let other = stage.listen(&ip("127.0.0.1:0"), 1).unwrap();
    assert_ne!(stage.sys.local_address(one).unwrap(), stage.sys.local_address(other).unwrap());
}

#[test]
fn unix_sockets_connect_or_fail_in_the_call() {
    let stage = Stage::new();
    assert_eq!(code(stage.sys.connect(&unix("/run/s"))), libc::ENOENT);
    assert_eq!(code(stage.sys.connect(&Address::Unix(None))), libc::EINVAL);
    let listener = stage.listen(&unix("/run/s"), 1).unwrap();
    let client = stage.sys.connect(&unix("/run/s")).unwrap();
    assert_eq!(stage.poll(client), Report::WRITE);
    assert_eq!(code(stage.sys.connect(&unix("/run/s"))), libc::EAGAIN);
    let (server, from) = stage.sys.accept(listener).unwrap();
    assert_eq!(from, Address::Unix(None));
    assert_eq!(stage.sys.local_address(server).unwrap(), unix("/run/s"));
    stage.sys.close(listener);
    assert_eq!(code(stage.sys.connect(&unix("/run/s"))), libc::ECONNREFUSED);
}

#[test]
fn without_numbers_an_accept_fails_and_the_connection_stays_in_the_queue() {
    let stage = Stage::new();
    let listener = stage.listen(&ip("127.0.0.1:80"), 5).unwrap();
    let client = stage.sys.connect(&ip("127.0.0.1:80")).unwrap();
    stage.world.with(|state| state.set_open_file_limit(5));
    assert_eq!(stage.sys.open_file_limit(), 5);
    assert_eq!(code(stage.sys.accept(listener)), libc::EMFILE);
    assert_eq!(code(stage.sys.connect(&ip("127.0.0.1:80"))), libc::EMFILE);
    assert_eq!(code(stage.listen(&ip("127.0.0.1:81"), 1)), libc::EMFILE);
    assert_eq!(stage.poll(listener), Report::READ);
    stage.sys.close(client);
    assert_eq!(stage.sys.accept(listener).unwrap().0, client);
}

#[test]
fn calls_on_the_wrong_kind_of_file_fail_as_on_linux() {
    let stage = Stage::new();
    let listener = stage.listen(&ip("127.0.0.1:80"), 5).unwrap();
    let (stream, _) = stage.pair(false);
    let (reader, _) = stage.pipe();
    assert_eq!(probe(&stage, listener, "rso"), [-libc::ENOTCONN, PIPE, 0]);
    assert_eq!(code(stage.sys.peer_address(listener)), libc::ENOTCONN);
    assert_eq!(code(stage.sys.accept(stream)), libc::EINVAL);
    assert_eq!(code(stage.sys.accept(reader)), libc::ENOTSOCK);
    assert_eq!(code(stage.sys.local_address(reader)), libc::ENOTSOCK);
    for fd in [-1, 0, 99] {
        assert_eq!(probe(&stage, fd, "rso"), [-libc::EBADF; 3]);
        assert_eq!(code(stage.sys.accept(fd)), libc::EBADF);
        assert_eq!(code(stage.sys.shutdown(fd, Shutdown::Both)), libc::EBADF);
        assert_eq!(code(stage.sys.set_nonblocking(fd)), libc::EBADF);
        stage.sys.close(fd);
    }
}

// Time.

#[test]
fn a_wait_with_nothing_ready_jumps_to_its_deadline_and_others_do_not() {
    let stage = Stage::new();
    assert_eq!(stage.sys.now(), Time::default());
    assert_eq!(stage.wait(NOW), []);
    assert_eq!(stage.elapsed(), Duration::ZERO);
    assert_eq!(stage.wait(Some(Duration::from_nanos(1))), []);
    assert_eq!(stage.elapsed(), Duration::from_nanos(1));
    let (a, _) = stage.pair(false);
    stage.add(a, Interest::WRITE);
    assert_eq!(stage.wait(Some(ms(100))).len(), 1);
    assert_eq!(stage.elapsed(), Duration::from_nanos(1));
    stage.world.with(|state| state.advance(ms(5)));
    let since_2026 = stage.sys.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap() - stage.elapsed();
    assert_eq!(since_2026.as_secs(), (56 * 365 + 14) * 86_400);
}

#[test]
fn bytes_under_way_end_a_wait_when_they_arrive() {
    let stage = Stage::new();
    let (a, b) = stage.pair(false);
    stage.latency(b, ms(20));
    stage.add(a, Interest::READ);
    stage.send(b, b"x").unwrap();
    assert_eq!(stage.wait(Some(ms(15))), []);
    assert_eq!(stage.wait(Some(ms(15))), [(a as u64, Report::READ)]);
    assert_eq!(stage.elapsed(), ms(20));
    assert_eq!(stage.recv(a).unwrap(), b"x");
}

#[test]
fn nothing_overtakes_and_what_is_under_way_fills_the_buffer() {
    let stage = Stage::new();
    stage.world.with(|state| state.default_capacity = 4);
    let (a, b) = stage.pair(false);
    stage.latency(a, ms(20));
    stage.send(b, b"ab").unwrap();
    stage.latency(a, Duration::ZERO);
    stage.send(b, b"cdef").unwrap();
    assert_eq!(code(stage.send(b, b"x")), libc::EAGAIN);
    stage.sys.close(b);
    assert_eq!(code(stage.recv(a)), libc::EAGAIN);
    stage.world.with(|state| state.advance(ms(20)));
    assert_eq!(stage.recv(a).unwrap(), b"abcd");
    assert_eq!(probe(&stage, a, "r"), [0]);
}

#[test]
fn a_reset_takes_a_round_trip() {
    let stage = Stage::new();
    let (a, b) = stage.pair(false);
    stage.latency(a, ms(10));
    stage.sys.close(b);
    assert_eq!(stage.send(a, b"x").unwrap(), 1);
    stage.add(a, Interest::empty() | Interest::CLOSED);
    assert_eq!(stage.wait(None), [(a as u64, Report::CLOSED)]);
    assert_eq!(stage.elapsed(), ms(10));
    stage.sys.change(a, 0, Interest::CLOSED, Interest::EDGE).unwrap();
    assert_eq!(stage.wait(None), [(0, Report::ERR | Report::HUP)]);
    assert_eq!(stage.elapsed(), ms(20));
}

#[test]
fn with_an_endless_latency_nothing_arrives() {
    let stage = Stage::new();
    let (a, b) = stage.pair(false);
    stage.latency(a, Duration::MAX);
    stage.send(b, b"x").unwrap();
    stage.add(a, Interest::READ);
    assert_eq!(stage.wait(Some(Duration::from_secs(1 << 30))), []);
    stage.world.with(|state| state.advance(Duration::MAX));
    assert_eq!(stage.wait(NOW), []);
}

#[test]
fn several_resets_are_one() {
    let stage = Stage::new();
    let (a, b) = stage.pair(false);
    stage.latency(a, ms(10));
    stage.send(a, b"x").unwrap();
    stage.close_by_rst(b);
    stage.world.with(|state| state.advance(ms(10)));
    assert_eq!(probe(&stage, a, "o"), [libc::ECONNRESET]);
    // The byte reached nobody and is answered by a reset, too.
    stage.world.with(|state| state.advance(ms(10)));
    assert_eq!(probe(&stage, a, "os"), [0, PIPE]);
}

#[test]
fn actions_run_in_a_wait_at_their_time_and_in_order() {
    let stage = Stage::new();
    let seen = Rc::new(RefCell::new(Vec::new()));
    let note = |name: &'static str| {
        let (seen, world) = (Rc::clone(&seen), Rc::clone(&stage.world));
        move || seen.borrow_mut().push((name, world.with(|state| state.elapsed())))
    };
    stage.at(ms(20), note("late"));
    stage.at(ms(10), note("first"));
    stage.at(ms(10), note("second"));
    stage.world.with(|state| state.advance(ms(9)));
    assert_eq!(seen.borrow().len(), 0);
    assert_eq!(stage.wait(Some(ms(6))), []);
    assert_eq!(*seen.borrow(), [("first", ms(10)), ("second", ms(10))]);
    stage.world.with(|state| state.advance(ms(50)));
    assert_eq!(seen.borrow().len(), 2, "advance runs no user code");
    assert_eq!(stage.wait(NOW), []);
    assert_eq!(seen.borrow()[2], ("late", ms(65)));
}

#[test]
fn an_action_may_do_anything_and_what_it_does_ends_the_wait() {
    let stage = Stage::new();
    let (a, b) = stage.pair(false);
    stage.add(a, Interest::READ);
    let world = Rc::clone(&stage.world);
    stage.at(ms(5), move || {
        let again = Rc::clone(&world);
        world.with(|state| {
            state.at(
                Duration::ZERO,
                Box::new(move || {
                    again.with(|state| {
                        let id = state.file_of(b).unwrap();
                        state.send(id, &[IoSlice::new(b"x")], By::Program).unwrap();
                    });
                }),
            );
        });
        world.with(|state| state.close(0)).unwrap_err();
    });
    assert_eq!(stage.wait(None), [(a as u64, Report::READ)]);
    assert_eq!(stage.elapsed(), ms(5));
}

#[test]
fn what_an_action_schedules_for_now_waits_for_the_next_look_at_what_is_ready() {
    fn again(world: &Rc<World>, runs: Rc<Cell<u32>>) {
        let of_action = Rc::clone(world);
        let action = move || {
            runs.set(runs.get() + 1);
            again(&of_action, runs);
        };
        world.with(|state| state.at(Duration::ZERO, Box::new(action)));
    }
    let stage = Stage::new();
    let runs = Rc::new(Cell::new(0));
    again(&stage.world, Rc::clone(&runs));
    assert_eq!(stage.wait(NOW), []);
    assert_eq!(stage.wait(NOW), []);
    assert_eq!(runs.get(), 2);
}

#[test]
fn actions_that_nothing_will_run_are_dropped_with_the_last_loop() {
    let stage = Stage::new();
    let (world, guard) = (Rc::clone(&stage.world), Rc::new(()));
    let (held, of_world) = (Rc::clone(&guard), Rc::clone(&world));
    stage.at(ms(5), move || drop((held, of_world)));
    let second = Sim::new(Rc::clone(&world));
    drop(second);
    assert_eq!(Rc::strong_count(&guard), 2);
    drop(stage);
    assert_eq!((Rc::strong_count(&guard), Rc::strong_count(&world)), (1, 1));
}

// Waking, signals and the ways to hang.

#[test]
fn a_waker_that_was_used_ends_every_wait_until_it_is_cleared() {
    let stage = Stage::new();
    stage.sys.waker().wake();
    for timeout in [Some(ms(50)), None, NOW] {
        assert_eq!(stage.wait(timeout), [(WAKE_TAG, Report::READ)]);
    }
    assert_eq!(stage.elapsed(), Duration::ZERO);
    stage.sys.waker().clear();
    assert_eq!(stage.wait(Some(ms(50))), []);
}

#[test]
fn a_wait_without_limit_sleeps_until_another_thread_wakes_it() {
    let stage = Stage::new();
    let waker = stage.sys.waker();
    let thread = thread::spawn(move || waker.wake());
    assert_eq!(stage.wait(None), [(WAKE_TAG, Report::READ)]);
    thread.join().unwrap();
}

#[test]
fn patience_lets_a_thread_go_before_the_clock() {
    let stage = Stage::new();
    stage.world.set_patience(Duration::from_secs(30));
    let waker = stage.sys.waker();
    let thread = thread::spawn(move || waker.wake());
    assert_eq!(stage.wait(Some(ms(1))), [(WAKE_TAG, Report::READ)]);
    assert_eq!(stage.elapsed(), Duration::ZERO);
    thread.join().unwrap();
}

fn panic_text(f: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).unwrap_err();
    payload.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn a_wait_that_nothing_can_end_is_a_deadlock() {
    let stage = Stage::new();
    let (a, _) = stage.pair(false);
    stage.add(a, Interest::READ);
    stage.world.deadlock_limit.set(ms(1));
    let text = panic_text(|| drop(stage.wait(None)));
    assert!(text.starts_with("simulation deadlock") && text.contains("none of its 1 fds"), "{text}");
}

#[test]
fn a_report_that_is_never_answered_is_a_livelock() {
    let stage = Stage::new();
    let (a, _) = stage.pair(false);
    stage.add(a, Interest::WRITE);
    stage.world.with(|state| state.max_unanswered = 10);
    for _ in 0..10 {
        assert_eq!(stage.wait(Some(ms(5))).len(), 1);
    }
    stage.send(a, b"x").unwrap();
    let spin = || (0..=10).for_each(|_| drop(stage.wait(Some(ms(5)))));
    assert!(panic_text(spin).starts_with("simulation livelock"));
}

#[test]
fn waits_that_time_ends_are_no_livelock() {
    let stage = Stage::new();
    stage.world.with(|state| state.max_unanswered = 10);
    for _ in 0..50 {
        stage.wait(Some(ms(1)));
        stage.wait(NOW);
    }
    assert_eq!(stage.elapsed(), ms(50));
}

#[test]
fn signals_are_counted_for_each_loop_that_wants_them() {
    let stage = Stage::new();
    let other = Sim::new(Rc::clone(&stage.world));
    for wrong in [0, -1, 65, libc::SIGKILL, libc::SIGSTOP] {
        assert_eq!(code(stage.sys.signal_add(wrong)), libc::EINVAL);
    }
    let raise = |signal| stage.world.with(|state| state.raise(signal));
    assert!(!raise(libc::SIGTERM));
    stage.sys.signal_add(libc::SIGTERM).unwrap();
    stage.sys.signal_add(libc::SIGHUP).unwrap();
    other.signal_add(libc::SIGHUP).unwrap();
    assert!(raise(libc::SIGTERM) && raise(libc::SIGTERM) && raise(libc::SIGHUP));
    assert_eq!(stage.wait(Some(ms(1))), [(WAKE_TAG, Report::READ)]);
    let take = |sys: &Sim| {
        let mut out = Vec::new();
        sys.take_signals(&mut out);
        out
    };
    assert_eq!(take(&stage.sys), [(libc::SIGHUP, 1), (libc::SIGTERM, 2)]);
    assert_eq!(take(&stage.sys), []);
    assert_eq!(take(&other), [(libc::SIGHUP, 1)]);
    raise(libc::SIGTERM);
    stage.sys.signal_del(libc::SIGTERM);
    assert_eq!(take(&stage.sys), []);
    assert!(!raise(libc::SIGTERM));
}

// Chance.

#[test]
fn the_seed_decides_the_order_of_what_is_ready() {
    let order = |seed| {
        let stage = Stage::seeded(seed);
        for _ in 0..10 {
            let (a, _) = stage.pair(false);
            stage.add(a, Interest::WRITE);
        }
        [stage.wait(NOW), stage.wait(NOW)].map(|ready| ready.iter().map(|&(tag, _)| tag).collect::<Vec<_>>())
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
    let [mut first, mut second] = order(1);
    assert_ne!(first, second, "each wait is shuffled anew");
    first.sort_unstable();
    second.sort_unstable();
    assert_eq!(first, second);
}

/// Moves 200 kB through a pair as a level-triggered loop does; says what the outcomes of the calls were.
fn transfer(seed: u64) -> BTreeMap<&'static str, u32> {
    let stage = Stage::seeded(seed);
    stage.world.with(|state| state.cuts = true);
    let (a, b) = stage.pair(false);
    stage.add(a, Interest::WRITE);
    stage.add(b, Interest::READ);
    let data: Vec<u8> = (0..200_000_u32).map(|n| n as u8).collect();
    let (mut sent, mut received, mut outcomes) = (0, Vec::with_capacity(data.len()), BTreeMap::new());
    while received.len() < data.len() {
        for (tag, report) in stage.wait(Some(ms(1))) {
            assert!(report.intersects(Report::READ | Report::WRITE));
            let piece = &data[sent..data.len().min(sent + 10_000)];
            if tag == a as u64 && piece.is_empty() {
                stage.sys.change(a, 0, Interest::WRITE, Interest::empty()).unwrap();
                continue;
            }
            let result = if tag == a as u64 {
                let result = stage.send(a, piece);
                sent += *result.as_ref().unwrap_or(&0);
                result.map(|count| count == piece.len())
            } else {
                let before = received.len();
                let result = stage.sys.recv(b, &Cell::default(), &mut received, 10_000);
                result.map(|count| count == 10_000 || received.len() - before < count)
            };
            *outcomes
                .entry(result.map_or("refused", |whole| if whole { "whole" } else { "short" }))
                .or_default() += 1;
        }
        assert_eq!(stage.elapsed(), Duration::ZERO, "what is possible stays reported");
    }
    assert_eq!(received, data);
    outcomes
}

#[test]
fn cuts_disturb_every_call_and_lose_nothing() {
    let outcomes = transfer(3);
    assert!(outcomes["refused"] > 5 && outcomes["short"] > 5 && outcomes["whole"] > 5, "{outcomes:?}");
    assert_eq!(transfer(3), outcomes);
    assert_ne!(transfer(4), outcomes);
}

#[test]
fn cuts_never_split_what_a_pipe_keeps_whole() {
    let stage = Stage::new();
    stage.world.with(|state| state.cuts = true);
    let (_, w) = stage.pipe();
    let sent: Vec<usize> = (0..100).filter_map(|_| stage.send(w, &[0; 100]).ok()).collect();
    assert!(sent.len() > 50 && sent.iter().all(|&count| count == 100), "{sent:?}");
}

#[test]
fn cuts_refuse_an_accept_at_times() {
    let stage = Stage::new();
    stage.world.with(|state| state.cuts = true);
    let listener = stage.listen(&ip("127.0.0.1:80"), 100).unwrap();
    for _ in 0..50 {
        stage.sys.connect(&ip("127.0.0.1:80")).unwrap();
    }
    let mut refused = 0;
    while stage.poll(listener) == Report::READ {
        refused += u32::from(stage.sys.accept(listener).is_err());
    }
    assert!((5..50).contains(&refused), "{refused}");
}

#[test]
fn the_calls_of_the_loops_are_counted_by_kind() {
    let stage = Stage::new();
    let (a, b) = stage.pair(false);
    stage.add(a, Interest::READ);
    stage.send(b, b"x").unwrap();
    stage.wait(NOW);
    stage.recv(a).unwrap();
    let _ = stage.recv(a);
    stage.sys.close(a);
    let calls = stage.world.with(|state| state.calls());
    assert_eq!(format!("{calls:?}"), "{Change: 1, Close: 1, Recv: 2, Send: 1, Wait: 1}");
}
