//! What fds do to their events: hang up, close, go edge-triggered, and mean another file all of a sudden.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use event_core::testing::{Call, Faults};
use event_core::{Error, Event, LoopEnd, LoopFlags, Ready, What};
use tests::events::{noter, pass};
use tests::{Bed, Fd, Log, each_backend, each_seed, must_panic, quiet_panic};

const MS: Duration = Duration::from_millis(1);
const READ: What = What::READ;
const WRITE: What = What::WRITE;
const PERSIST: What = What::PERSIST;

#[test]
fn a_lone_hang_up_is_delivered_once_and_then_costs_nothing() {
    each_backend(|bed| {
        let faults = Faults::new();
        let mut base = bed.base_with(&faults);
        let (reader, hang_up) = pipe_reader(bed);
        let log = Log::new();
        let event = noter(&base, reader.raw(), What::CLOSED | PERSIST, &log);
        event.add(None).unwrap();
        pass(&mut base);
        assert!(log.is_empty());
        hang_up();
        let before = faults.count(Call::Wait);
        base.loopexit(Some(20 * MS)).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Exit);
        assert_eq!(log.take(), [Ready::CLOSED]);
        let waits = faults.count(Call::Wait) - before;
        assert!(waits <= 4, "{waits} waits in 20 ms");
    });
}

/// The reading end of a pipe, and what closes the writing end.
fn pipe_reader(bed: &Bed) -> (PipeEnd, Box<dyn FnOnce()>) {
    match bed.sim() {
        Some(sim) => {
            let (fd, peer) = sim.pipe_reader();
            (PipeEnd::Sim(Fd::Sim(sim.clone(), fd)), Box::new(move || drop(peer)))
        }
        None => {
            let (reader, writer) = std::io::pipe().unwrap();
            (PipeEnd::Real(reader), Box::new(move || drop(writer)))
        }
    }
}

enum PipeEnd {
    Sim(Fd),
    Real(std::io::PipeReader),
}

impl PipeEnd {
    fn raw(&self) -> i32 {
        match self {
            PipeEnd::Sim(fd) => fd.raw(),
            PipeEnd::Real(reader) => reader.as_raw_fd(),
        }
    }
}

#[test]
fn a_hang_up_is_readable_for_who_reads_and_writable_for_who_writes() {
    each_seed(|bed| {
        let mut base = bed.base();
        let file = bed.sim().unwrap().plain();
        let log = Log::new();
        for (what, told) in [(READ, Ready::READ), (WRITE, Ready::WRITE)] {
            for set in [event_core::testing::SimFd::set_hang_up, event_core::testing::SimFd::set_error] {
                let event = noter(&base, file.fd(), what, &log);
                event.add(None).unwrap();
                set(&file, true);
                assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
                assert_eq!(log.take(), [told]);
                set(&file, false);
            }
        }
    });
}

#[test]
fn a_hung_up_fd_that_a_reader_joins_is_told_again() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (reader, hang_up) = pipe_reader(bed);
        let log = Log::new();
        let watch = noter(&base, reader.raw(), What::CLOSED | PERSIST, &log);
        watch.add(None).unwrap();
        hang_up();
        pass(&mut base);
        assert_eq!(log.take(), [Ready::CLOSED]);
        let read = noter(&base, reader.raw(), READ, &log);
        read.add(None).unwrap();
        pass(&mut base);
        assert_eq!(log.take(), [Ready::READ]);
    });
}

#[test]
fn the_closing_of_the_peer_is_found_out_without_reading() {
    each_backend(|bed| {
        let base = bed.base();
        if !base.features().contains(event_core::Features::EARLY_CLOSE) {
            return;
        }
        for shut_only in [false, true] {
            for what in [What::empty(), PERSIST, What::ET, PERSIST | What::ET] {
                let mut base = bed.base();
                let (fd, peer) = bed.fd();
                let log = Log::new();
                let (sink, handle) = (log.clone(), base.handle());
                let event = Event::new(&base, fd.raw(), What::CLOSED | what, move |_, ready| {
                    sink.push(ready);
                    handle.loopexit(None).unwrap();
                })
                .unwrap();
                event.add(None).unwrap();
                peer.write_all(b"unread");
                pass(&mut base);
                assert!(log.is_empty(), "data alone is no close");
                let peer = if shut_only {
                    peer.shutdown_write();
                    Some(peer)
                } else {
                    drop(peer);
                    None
                };
                assert_eq!(base.dispatch().unwrap(), LoopEnd::Exit);
                assert_eq!(log.take(), [Ready::CLOSED]);
                let left = if what.contains(PERSIST) { Ready::CLOSED } else { Ready::empty() };
                assert_eq!(event.pending(), left);
                drop(peer);
            }
        }
    });
}

#[test]
fn an_edge_is_told_once_and_a_level_until_it_is_gone() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        let edges = base.features().contains(event_core::Features::EDGE);
        let log = Log::new();
        let event = noter(&base, fd.raw(), READ | PERSIST | What::ET, &log);
        event.add(None).unwrap();
        peer.write_all(b"x");
        for _ in 0..3 {
            pass(&mut base);
        }
        assert_eq!(log.take().len(), if edges { 1 } else { 3 });
        peer.write_all(b"y");
        pass(&mut base);
        assert_eq!(log.take(), [Ready::READ], "more data is another edge");
        fd.read();
        pass(&mut base);
        assert!(log.is_empty());
    });
}

#[test]
fn edge_triggered_read_and_write_on_one_fd_fire_once_each() {
    each_backend(|bed| {
        let mut base = bed.base();
        if !base.features().contains(event_core::Features::EDGE) {
            return;
        }
        let (fd, peer) = bed.fd();
        let (reads, writes) = (Log::new(), Log::new());
        let read = noter(&base, fd.raw(), READ | PERSIST | What::ET, &reads);
        let write = noter(&base, fd.raw(), WRITE | PERSIST | What::ET, &writes);
        read.add(None).unwrap();
        write.add(None).unwrap();
        pass(&mut base);
        assert_eq!((reads.take(), writes.take()), (vec![], vec![Ready::WRITE]));
        peer.write_all(b"x");
        pass(&mut base);
        assert_eq!(reads.take(), [Ready::READ]);
        writes.take();
        pass(&mut base);
        assert_eq!((reads.take(), writes.take()), (vec![], vec![]));
    });
}

#[test]
fn an_fd_that_is_edge_triggered_for_some_only_is_level_triggered() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        let (edge, level) = (Log::new(), Log::new());
        let first = noter(&base, fd.raw(), READ | PERSIST | What::ET, &edge);
        let second = noter(&base, fd.raw(), READ | PERSIST, &level);
        first.add(None).unwrap();
        second.add(None).unwrap();
        peer.write_all(b"x");
        pass(&mut base);
        pass(&mut base);
        assert_eq!(level.take(), [Ready::READ; 2]);
    });
}

/// Closes the fd behind the loop's back and opens another stream under its number.
fn reuse(bed: &Bed, mut fd: Fd) -> (Fd, tests::Peer) {
    let number = fd.raw();
    match &mut fd {
        Fd::Sim(..) => {
            drop(fd);
            let (fd, peer) = bed.fd();
            assert_eq!(fd.raw(), number);
            (fd, peer)
        }
        Fd::Unix(stream) => {
            // dup2 closes what was there and puts the new file in its place, with no moment in between for the tests
            // that run beside this one.
            let (fresh, peer) = UnixStream::pair().unwrap();
            peer.set_nonblocking(true).unwrap();
            let mut old = OwnedFd::from(std::mem::replace(stream, fresh.try_clone().unwrap()));
            nix::unistd::dup2(&fresh, &mut old).unwrap();
            *stream = old.into();
            (fd, tests::Peer::Unix(peer))
        }
    }
}

#[test]
fn an_fd_reused_behind_our_back_ends_its_old_events_when_a_new_one_joins() {
    each_backend(|bed| {
        if bed.method == "poll" {
            return; // poll(2) knows nothing but the number.
        }
        let mut base = bed.base();
        let (fd, _old_peer) = bed.fd();
        let (old_log, new_log) = (Log::new(), Log::new());
        let old = [READ, WRITE].map(|what| noter(&base, fd.raw(), what | PERSIST, &old_log));
        old.iter().for_each(|event| event.add(Some(Duration::from_secs(3600))).unwrap());
        let (fd, peer) = reuse(bed, fd);
        let new = noter(&base, fd.raw(), READ, &new_log);
        new.add(None).unwrap();
        peer.write_all(b"x");
        for event in &old {
            assert!(matches!(event.add(None), Err(Error::Stale)));
            assert!(matches!(event.activate(Ready::READ), Err(Error::Stale)));
            assert_eq!(event.pending(), Ready::empty());
            assert!(!base.is_alive(event.id()));
        }
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty, "the old ones hold the loop no more");
        assert_eq!((old_log.take(), new_log.take()), (vec![], vec![Ready::READ]));
    });
}

#[test]
fn old_events_of_a_reused_fd_end_properly_when_the_new_one_is_refused() {
    each_backend(|bed| {
        if bed.method == "poll" {
            return;
        }
        let faults = Faults::new();
        let mut base = bed.base_with(&faults);
        let alive = tests::Alive::default();
        let (fd, _old_peer) = bed.fd();
        let (token, handle) = (alive.token(), base.handle());
        let inner = Event::new(&base, -1, What::empty(), |_, _| {}).unwrap();
        let on_drop = tests::OnDrop(move || {
            let _ = handle.activate(inner.id(), Ready::READ);
            let _ = (&inner, &token);
        });
        let old = Event::new(&base, fd.raw(), READ | PERSIST, move |_, _| {
            let _ = &on_drop;
        })
        .unwrap();
        old.add(Some(Duration::from_secs(3600))).unwrap();
        let (fd, _peer) = reuse(bed, fd);
        let new = noter(&base, fd.raw(), READ, &Log::new());
        // One change finds out, one takes the old number back, and then this one.
        faults.fail(Call::Change, faults.count(Call::Change) + 3, libc::ENOMEM);
        assert_eq!(new.add(None).unwrap_err().raw_os_error(), Some(libc::ENOMEM));
        assert_eq!(alive.count(), 0);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn a_number_that_was_closed_behind_our_back_is_an_error_to_the_caller_and_no_more() {
    each_backend(|bed| {
        let mut base = bed.base();
        let closed = closed_fd(bed);
        let event = noter(&base, closed, READ, &Log::new());
        assert_eq!(event.add(None).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert_eq!(event.pending(), Ready::empty());
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

/// A number that nothing is open under, and will not be soon: others open the lowest free one.
fn closed_fd(bed: &Bed) -> i32 {
    match bed.sim() {
        Some(sim) => {
            let file = sim.plain();
            sim.close(file.fd()).unwrap();
            file.fd()
        }
        None => 900,
    }
}

#[test]
fn numbers_that_cannot_be_fds_are_refused_without_much_ado() {
    each_backend(|bed| {
        let mut base = bed.base();
        for fd in [i32::MAX, i32::MAX / 2] {
            let event = noter(&base, fd, READ | PERSIST, &Log::new());
            assert_eq!(event.add(None).unwrap_err().raw_os_error(), Some(libc::EBADF));
            event.del().unwrap();
        }
        let log = Log::new();
        let nowhere = noter(&base, -1, READ | PERSIST, &log);
        nowhere.add(Some(MS)).unwrap();
        assert_eq!(base.run(LoopFlags::ONCE).unwrap(), LoopEnd::Once);
        assert_eq!(log.take(), [Ready::TIMEOUT], "an event without an fd is a timer");
    });
}

#[test]
fn a_regular_file_is_refused_where_the_backend_does_not_take_any_fd() {
    each_backend(|bed| {
        if bed.sim().is_some() {
            return;
        }
        let mut base = bed.base();
        let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        let log = Log::new();
        let event = noter(&base, file.as_raw_fd(), READ, &log);
        if base.features().contains(event_core::Features::ANY_FD) {
            event.add(None).unwrap();
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
            assert_eq!(log.take(), [Ready::READ]);
        } else {
            assert_eq!(event.add(None).unwrap_err().raw_os_error(), Some(libc::EPERM));
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        }
    });
}

#[test]
fn a_closed_fd_ends_its_own_events_and_no_others() {
    each_backend(|bed| {
        if bed.method != "poll" {
            return; // Elsewhere the kernel forgets a closed fd in silence.
        }
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        let log = Log::new();
        let good = noter(&base, fd.raw(), READ, &log);
        good.add(None).unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        // A high number, so that no other test gets it meanwhile.
        let high = nix::fcntl::fcntl(&reader, nix::fcntl::FcntlArg::F_DUPFD_CLOEXEC(950)).unwrap();
        let bad = noter(&base, high, READ | PERSIST, &Log::new());
        bad.add(None).unwrap();
        nix::unistd::close(high).unwrap();
        peer.write_all(b"x");
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), [Ready::READ]);
        assert!(matches!(bad.add(None), Err(Error::Stale)));
        drop((reader, writer));
    });
}

/// A high number, so that no other test gets it meanwhile, which means a pipe; both are to be closed by the number.
fn high_fd(from: i32) -> (i32, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    (nix::fcntl::fcntl(&reader, nix::fcntl::FcntlArg::F_DUPFD_CLOEXEC(from)).unwrap(), writer)
}

#[test]
fn a_closed_fd_costs_nothing_once_its_events_have_ended() {
    each_backend(|bed| {
        if bed.method != "poll" {
            return; // Elsewhere the kernel forgets a closed fd in silence.
        }
        for joined in [false, true] {
            let faults = Faults::new();
            let mut base = bed.base_with(&faults);
            let (high, _writer) = high_fd(960);
            let event = noter(&base, high, READ | PERSIST, &Log::new());
            event.add(None).unwrap();
            nix::unistd::close(high).unwrap();
            if joined {
                // It finds out, and so do the others.
                let late = noter(&base, high, READ, &Log::new());
                assert_eq!(late.add(None).unwrap_err().raw_os_error(), Some(libc::EBADF));
            }
            let before = faults.count(Call::Wait);
            base.loopexit(Some(20 * MS)).unwrap();
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Exit);
            assert!(matches!(event.add(None), Err(Error::Stale)));
            let waits = faults.count(Call::Wait) - before;
            assert!(waits <= 4, "{waits} waits in 20 ms, joined: {joined}");
        }
    });
}

#[test]
fn a_closed_fd_ends_its_events_though_a_neighbour_panics_first() {
    each_backend(|bed| {
        if bed.method != "poll" {
            return;
        }
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        let _panics = Event::new(&base, fd.raw(), READ | PERSIST, |_, _| quiet_panic("first")).unwrap();
        _panics.add(None).unwrap();
        let (high, _writer) = high_fd(970);
        let event = noter(&base, high, READ | PERSIST, &Log::new());
        event.add(None).unwrap();
        nix::unistd::close(high).unwrap();
        peer.write_all(b"x");
        must_panic("first", || base.dispatch());
        // In case nobody tells of the closed one.
        base.loopexit(Some(Duration::from_secs(10))).unwrap();
        pass(&mut base);
        assert!(matches!(event.add(None), Err(Error::Stale)));
    });
}

#[test]
fn a_dup_is_an_fd_of_its_own() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        let dup = match &fd {
            Fd::Sim(sim, number) => Fd::Sim(sim.clone(), sim.dup(*number).unwrap()),
            Fd::Unix(stream) => Fd::Unix(stream.try_clone().unwrap()),
        };
        let (one_log, other_log) = (Log::new(), Log::new());
        let one = noter(&base, fd.raw(), READ | PERSIST, &one_log);
        let other = noter(&base, dup.raw(), READ | PERSIST, &other_log);
        one.add(None).unwrap();
        other.add(None).unwrap();
        peer.write_all(b"x");
        pass(&mut base);
        assert_eq!((one_log.take().len(), other_log.take().len()), (1, 1));
        one.del().unwrap();
        drop(fd);
        pass(&mut base);
        assert_eq!((one_log.take().len(), other_log.take().len()), (0, 1));
        other.del().unwrap();
    });
}

#[test]
fn deleting_before_closing_leaves_nothing_behind_for_a_dup() {
    each_backend(|bed| {
        let faults = Faults::new();
        let mut base = bed.base_with(&faults);
        let (fd, peer) = bed.fd();
        let dup = match &fd {
            Fd::Sim(sim, number) => Fd::Sim(sim.clone(), sim.dup(*number).unwrap()),
            Fd::Unix(stream) => Fd::Unix(stream.try_clone().unwrap()),
        };
        let event = noter(&base, fd.raw(), READ | PERSIST, &Log::new());
        event.add(None).unwrap();
        drop(event);
        drop(fd);
        peer.write_all(b"x");
        base.loopexit(Some(10 * MS)).unwrap();
        base.dispatch().unwrap();
        assert!(faults.count(Call::Wait) <= 2, "{}", faults.count(Call::Wait));
        drop(dup);
    });
}

#[test]
fn an_fd_closed_and_reused_inside_a_batch_does_not_run_the_old_event() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let streams = [bed.fd(), bed.fd()];
        streams.iter().for_each(|(_, peer)| peer.write_all(b"x"));
        let [(one, _one_peer), (other, _other_peer)] = streams;
        let numbers = [one.raw(), other.raw()];
        let fds = Rc::new(std::cell::RefCell::new([Some(one), Some(other)]));
        let events = Rc::new(std::cell::RefCell::new(Vec::<Event>::new()));
        // Whichever runs first deletes and closes the other and opens a new stream under its number.
        for (n, number) in numbers.into_iter().enumerate() {
            let (log, fds, others, handle) = (log.clone(), fds.clone(), events.clone(), base.handle());
            let sim = bed.sim().cloned();
            let event = Event::new(&base, number, READ | PERSIST, move |_, ready| {
                log.push(("old", n, ready));
                let victim = 1 - n;
                let old = std::mem::replace(
                    &mut others.borrow_mut()[victim],
                    Event::new(&handle, -1, What::empty(), |_, _| {}).unwrap(),
                );
                drop(old);
                drop(fds.borrow_mut()[victim].take());
                // Quiet: nobody has written to it.
                let (fresh, keep) = match &sim {
                    Some(sim) => {
                        let (fd, peer) = sim.pair();
                        (Fd::Sim(sim.clone(), fd), tests::Peer::Sim(peer))
                    }
                    None => {
                        let (fd, peer) = UnixStream::pair().unwrap();
                        (Fd::Unix(fd), tests::Peer::Unix(peer))
                    }
                };
                let log = log.clone();
                let event = Event::new(&handle, fresh.raw(), READ | PERSIST, move |_, ready| {
                    let _ = &keep;
                    log.push(("new", n, ready));
                })
                .unwrap();
                event.add(None).unwrap();
                event.detach();
                fds.borrow_mut()[victim] = Some(fresh);
                handle.loopexit(None).unwrap();
            })
            .unwrap();
            event.add(None).unwrap();
            events.borrow_mut().push(event);
        }
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Exit);
        let calls = log.take();
        assert_eq!(calls.len(), 1, "{calls:?}");
        assert_eq!(calls[0].0, "old");
        drop(base);
        drop((events, fds));
    });
}
