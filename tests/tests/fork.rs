//! Forks, and what else belongs to the whole process: a program of its own that runs its tests one after the other.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::Cell;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use event_core::{
    Buffer, BufferEvent, Config, Direction, Error, Event, EventBase, Features, Listener, LoopEnd, LoopFlags,
    LoopHandle, Ready, Signal, StreamEvent, Timer, What,
};
use event_http::Server;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigHandler, Signal as Number, kill, signal};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork, getpid};
use tests::events::noter;
use tests::streams::socket_path;
use tests::{Bed, Log, each_backend};

const MS: Duration = Duration::from_millis(1);
const READING: What = What::READ.union(What::PERSIST);

/// Each test with its name.
macro_rules! named {
    ($($test:ident),* $(,)?) => { &[$((stringify!($test), $test)),*] };
}

fn main() {
    if let Ok(method) = std::env::var("TESTS_METHOD") {
        return only_best_method(&method);
    }
    let tests: &[(&str, fn())] = named![
        a_child_is_refused_until_it_says_that_it_has_forked,
        drops_in_the_child_do_not_disturb_the_parent,
        fds_and_timers_work_in_the_child_after_the_fork,
        signals_work_on_both_sides_and_stay_apart,
        a_signal_event_dropped_in_the_child_is_no_longer_caught,
        a_wake_under_way_at_the_fork_is_not_lost_on_either_side,
        wakes_in_the_child_reach_the_child,
        a_look_up_under_way_at_the_fork_is_begun_anew_in_the_child,
        saying_so_in_the_parent_is_harmless,
        an_fd_closed_in_the_child_ends_its_own_events_alone,
        an_activation_queued_at_the_fork_runs_on_both_sides,
        a_loop_made_in_the_child_is_the_childs_own,
        the_file_of_a_unix_socket_goes_with_the_process_that_bound_it,
        a_program_that_is_started_inherits_neither_fds_nor_blocked_signals,
        a_write_to_a_closed_stream_does_not_kill_the_process,
        a_loop_without_descriptors_left_is_an_error,
        without_memory_a_call_ends_the_process_or_is_refused,
        numbers_beyond_a_thousand_are_watched_like_others,
        the_environment_hides_backends_unless_it_is_ignored,
    ];
    let filter = std::env::args().nth(1).filter(|arg| !arg.starts_with('-')).unwrap_or_default();
    if std::env::args().any(|arg| arg == "--list") {
        tests.iter().for_each(|(name, _)| println!("{name}: test"));
        return;
    }
    for (name, test) in tests.iter().filter(|(name, _)| name.contains(&filter)) {
        test();
        println!("test {name} ... ok");
    }
}

/// Runs the test on the real backends: a simulated kernel is memory, and a fork copies it whole.
fn each_kernel(test: impl Fn(&Bed)) {
    each_backend(|bed| {
        if bed.sim().is_none() {
            test(bed);
        }
    });
}

/// Runs `f` in the child of a fork and waits for it; a panic there fails the test.
fn in_child(f: impl FnOnce()) {
    let status = fate_of_child(f);
    assert!(matches!(status, WaitStatus::Exited(_, 0)), "{status:?}: see the child's panic above");
}

/// Runs `f` in the child of a fork; how that ended.
fn fate_of_child(f: impl FnOnce()) -> WaitStatus {
    // SAFETY: but for one that sleeps on a lock of its own this process has one thread, so that the child may do what
    // it likes.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let code = i32::from(catch_unwind(AssertUnwindSafe(f)).is_err());
            std::process::exit(code);
        }
        ForkResult::Parent { child } => waitpid(child, None).unwrap(),
    }
}

fn a_child_is_refused_until_it_says_that_it_has_forked() {
    each_kernel(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        let log = Log::new();
        let event = noter(&base, fd.raw(), READING, &log);
        event.add(None).unwrap();
        peer.write_all(b"x");
        in_child(|| {
            let forked =
                |result: Result<(), Error>| assert!(matches!(result, Err(Error::Forked)), "{result:?}");
            forked(base.dispatch().map(drop));
            forked(base.run(LoopFlags::NONBLOCK).map(drop));
            forked(event.add(None));
            forked(event.del());
            forked(event.activate(Ready::READ));
            forked(event.activate_now(Ready::READ));
            forked(event.remove_timer());
            forked(base.loopexit(None));
            forked(base.loopbreak());
            forked(base.once(-1, What::empty(), None, |_| unreachable!()));
            forked(Event::new(&base, -1, What::empty(), |_, _| {}).map(drop));
            forked(Timer::new(&base, |_| {}).map(drop));
            assert_eq!(event.pending(), Ready::READ);
            base.after_fork().unwrap();
            assert_eq!(base.run(LoopFlags::ONCE).unwrap(), LoopEnd::Once);
            assert_eq!(log.take(), [Ready::READ]);
        });
        assert_eq!(base.run(LoopFlags::ONCE).unwrap(), LoopEnd::Once, "the parent goes on as ever");
        assert_eq!(log.take(), [Ready::READ]);
    });
}

fn drops_in_the_child_do_not_disturb_the_parent() {
    each_kernel(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let streams = [bed.fd(), bed.fd()];
        let mut events: Vec<Event> =
            streams.iter().map(|(fd, _)| noter(&base, fd.raw(), READING, &log)).collect();
        events.iter().for_each(|event| event.add(None).unwrap());
        let handled = Rc::new(Cell::new(0));
        let count = handled.clone();
        let hangup = Signal::new(&base, libc::SIGHUP, move |_| count.set(count.get() + 1)).unwrap();
        hangup.add().unwrap();
        let mut base_slot = Some(base);
        in_child(|| {
            drop(events.pop());
            drop(base_slot.take());
            drop(events.pop());
        });
        base = base_slot.take().unwrap();
        streams.iter().for_each(|(_, peer)| peer.write_all(b"x"));
        base.run(LoopFlags::ONCE).unwrap();
        assert_eq!(log.take(), [Ready::READ; 2]);
        kill(getpid(), Number::SIGHUP).unwrap();
        streams.iter().for_each(|(fd, _)| drop(fd.read()));
        base.run(LoopFlags::ONCE).unwrap();
        assert_eq!(handled.get(), 1);
    });
}

fn fds_and_timers_work_in_the_child_after_the_fork() {
    each_kernel(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        let (log, times) = (Log::new(), Log::new());
        let event = noter(&base, fd.raw(), READING, &log);
        event.add(None).unwrap();
        let (sink, start) = (times.clone(), std::time::Instant::now());
        let timer = Timer::new(&base, move |_| sink.push(start.elapsed())).unwrap();
        timer.add(20 * MS).unwrap();
        in_child(|| {
            base.after_fork().unwrap();
            peer.write_all(b"to the child");
            base.run(LoopFlags::ONCE).unwrap();
            assert_eq!(log.take(), [Ready::READ]);
            assert_eq!(fd.read(), b"to the child");
            while times.is_empty() {
                base.run(LoopFlags::ONCE).unwrap();
            }
            assert!(times.take()[0] >= 20 * MS, "armed before the fork, due when it was due");
            event.del().unwrap();
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        });
        while times.is_empty() {
            base.run(LoopFlags::ONCE).unwrap();
        }
        assert!(log.is_empty(), "the child has read it all");
        peer.write_all(b"to the parent");
        base.run(LoopFlags::ONCE).unwrap();
        assert_eq!(log.take(), [Ready::READ]);
    });
}

fn signals_work_on_both_sides_and_stay_apart() {
    each_kernel(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let sink = log.clone();
        let before = Signal::new(&base, libc::SIGUSR1, move |_| sink.push("before")).unwrap();
        before.add().unwrap();
        kill(getpid(), Number::SIGUSR1).unwrap();
        in_child(|| {
            base.after_fork().unwrap();
            base.run(LoopFlags::NONBLOCK).unwrap();
            assert!(log.is_empty(), "what was delivered before the fork was the parent's");
            kill(getpid(), Number::SIGUSR1).unwrap();
            base.run(LoopFlags::ONCE).unwrap();
            assert_eq!(log.take(), ["before"]);
            let sink = log.clone();
            let after = Signal::new(&base, libc::SIGUSR2, move |_| sink.push("after")).unwrap();
            after.add().unwrap();
            kill(getpid(), Number::SIGUSR2).unwrap();
            base.run(LoopFlags::ONCE).unwrap();
            assert_eq!(log.take(), ["after"]);
        });
        base.run(LoopFlags::ONCE).unwrap();
        assert_eq!(log.take(), ["before"], "once, and none of the child's");
        base.run(LoopFlags::NONBLOCK).unwrap();
        assert!(log.is_empty());
    });
}

fn a_signal_event_dropped_in_the_child_is_no_longer_caught() {
    each_kernel(|bed| {
        let mut base = bed.base();
        let stop = Signal::new(&base, libc::SIGTERM, |_| {}).unwrap();
        stop.add().unwrap();
        let mut stop = Some(stop);
        in_child(|| {
            drop(stop.take());
            base.after_fork().unwrap();
            // SAFETY: the default action is no handler of ours.
            let now = unsafe { signal(Number::SIGTERM, SigHandler::SigDfl) }.unwrap();
            assert_eq!(now, SigHandler::SigDfl, "the child can be ended again");
        });
        // SAFETY: the handler found is put back on the next line.
        let now = unsafe { signal(Number::SIGTERM, SigHandler::SigDfl) }.unwrap();
        assert_ne!(now, SigHandler::SigDfl, "the parent's is untouched");
        // SAFETY: as it was.
        unsafe { signal(Number::SIGTERM, now) }.unwrap();
        drop(stop);
    });
}

fn a_wake_under_way_at_the_fork_is_not_lost_on_either_side() {
    each_kernel(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let sink = log.clone();
        let (mailbox, sender) = base.mailbox(move |n: i32| sink.push(n)).unwrap();
        sender.send(1).unwrap();
        base.waker().wake();
        in_child(|| {
            base.after_fork().unwrap();
            base.run(LoopFlags::ONCE).unwrap();
            assert_eq!(log.take(), [1]);
            // And the flag that coalesces wakes is not stuck.
            let other = sender.clone();
            let thread = std::thread::spawn(move || other.send(2).unwrap());
            base.run(LoopFlags::ONCE | LoopFlags::NO_EXIT_ON_EMPTY).unwrap();
            thread.join().unwrap();
            assert_eq!(log.take(), [2]);
        });
        base.run(LoopFlags::ONCE).unwrap();
        assert_eq!(log.take(), [1]);
        let other = sender.clone();
        let thread = std::thread::spawn(move || other.send(3).unwrap());
        base.run(LoopFlags::ONCE | LoopFlags::NO_EXIT_ON_EMPTY).unwrap();
        thread.join().unwrap();
        assert_eq!(log.take(), [3]);
        drop(mailbox);
    });
}

fn wakes_in_the_child_reach_the_child() {
    each_kernel(|bed| {
        let mut base = bed.base();
        let remote = base.remote();
        in_child(|| {
            // Asked before the loop knows of the fork, and after.
            remote.post(|handle| handle.loopexit(None).unwrap()).unwrap();
            base.after_fork().unwrap();
            assert_eq!(base.run(LoopFlags::NO_EXIT_ON_EMPTY).unwrap(), LoopEnd::Exit);
            let other = remote.clone();
            let thread = std::thread::spawn(move || other.loopbreak().unwrap());
            assert_eq!(base.run(LoopFlags::NO_EXIT_ON_EMPTY).unwrap(), LoopEnd::Break);
            thread.join().unwrap();
        });
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty, "the parent was asked nothing");
    });
}

fn a_look_up_under_way_at_the_fork_is_begun_anew_in_the_child() {
    each_kernel(|bed| {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut base = bed.base();
        let Some(fd) = base.poll_fd() else { return };
        let port = server.local_addr().unwrap().port();
        let stream = BufferEvent::connect_hostname(&base, "localhost", port).unwrap();
        let log = Log::new();
        let sink = log.clone();
        stream.set_event_cb(move |bev, event| {
            sink.push(event);
            bev.free();
        });
        base.run(LoopFlags::NONBLOCK).unwrap();
        // The answer is there when the loop has been woken for it: nobody has any lock of the resolver's by then.
        let mut other = EventBase::new().unwrap();
        let woken = Event::new(&other, fd, What::READ, |_, _| {}).unwrap();
        woken.add(None).unwrap();
        other.dispatch().unwrap();
        assert!(log.is_empty());
        let mut base_slot = Some(base);
        // Dropped as it is: the threads, and what they hold, are the parent's.
        in_child(|| drop(base_slot.take()));
        in_child(|| {
            let mut base = base_slot.take().unwrap();
            base.after_fork().unwrap();
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
            assert_eq!(log.take(), [StreamEvent::CONNECTED]);
        });
        base = base_slot.take().unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), [StreamEvent::CONNECTED]);
    });
}

fn saying_so_in_the_parent_is_harmless() {
    each_kernel(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        let log = Log::new();
        let event = noter(&base, fd.raw(), READING, &log);
        event.add(None).unwrap();
        let count = Rc::new(Cell::new(0));
        let counter = count.clone();
        let hangup = Signal::new(&base, libc::SIGHUP, move |_| counter.set(counter.get() + 1)).unwrap();
        hangup.add().unwrap();
        for _ in 0..2 {
            base.waker().wake();
            base.after_fork().unwrap();
            in_child(|| {});
            base.after_fork().unwrap();
            peer.write_all(b"x");
            base.run(LoopFlags::ONCE).unwrap();
            assert_eq!(log.take(), [Ready::READ]);
            fd.read();
            kill(getpid(), Number::SIGHUP).unwrap();
            base.run(LoopFlags::ONCE).unwrap();
        }
        assert_eq!(count.get(), 2);
    });
}

fn an_fd_closed_in_the_child_ends_its_own_events_alone() {
    each_kernel(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let (kept, peer) = bed.fd();
        let (closed, _other_peer) = bed.fd();
        let good = noter(&base, kept.raw(), READING, &log);
        let bad = noter(&base, closed.raw(), READING, &log);
        good.add(None).unwrap();
        bad.add(None).unwrap();
        peer.write_all(b"x");
        let mut closed = Some(closed);
        in_child(|| {
            drop(closed.take());
            base.after_fork().unwrap();
            base.run(LoopFlags::ONCE).unwrap();
            assert_eq!(log.take(), [Ready::READ]);
            assert!(matches!(bad.add(None), Err(Error::Stale)));
        });
        assert_eq!(bad.pending(), Ready::READ);
        drop(closed);
    });
}

fn an_activation_queued_at_the_fork_runs_on_both_sides() {
    each_kernel(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let event = noter(&base, -1, READING, &log);
        event.activate(Ready::WRITE).unwrap();
        in_child(|| {
            base.after_fork().unwrap();
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
            assert_eq!(log.take(), [Ready::WRITE]);
        });
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), [Ready::WRITE]);
    });
}

fn a_loop_made_in_the_child_is_the_childs_own() {
    each_kernel(|bed| {
        let old = bed.base();
        in_child(|| {
            let mut base = bed.base();
            let timer = Timer::new(&base, |_| {}).unwrap();
            timer.add(MS).unwrap();
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        });
        drop(old);
    });
}

fn the_file_of_a_unix_socket_goes_with_the_process_that_bound_it() {
    each_kernel(|bed| {
        for (says_so, drops_base) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut base = Some(bed.base());
            let bind = |handle: &LoopHandle, path: &PathBuf| {
                Listener::bind(handle, path.clone(), |_, accepted| drop(accepted)).unwrap()
            };
            let (listened, served, own) = (socket_path(), socket_path(), socket_path());
            let listener = bind(base.as_ref().unwrap(), &listened);
            let server = Server::new(base.as_ref().unwrap()).unwrap();
            server.bind(served.clone()).unwrap();
            in_child(|| {
                if says_so {
                    let base = base.as_mut().unwrap();
                    base.after_fork().unwrap();
                    let listener = bind(base, &own);
                    listener.free();
                    assert!(!own.exists(), "what the child has bound is the child's");
                }
                match drops_base {
                    true => drop(base.take()),
                    false => {
                        listener.free();
                        server.free();
                    }
                }
            });
            assert!(listened.exists() && served.exists(), "{says_so} {drops_base}");
            UnixStream::connect(&listened).unwrap();
            UnixStream::connect(&served).unwrap();
            drop(base.take());
            assert!(!listened.exists() && !served.exists());
        }
    });
}

fn a_program_that_is_started_inherits_neither_fds_nor_blocked_signals() {
    each_kernel(|bed| {
        let base = bed.base();
        let usr1 = Signal::new(&base, libc::SIGUSR1, |_| {}).unwrap();
        usr1.add().unwrap();
        let list = |base: Option<&EventBase>| {
            let _ = base;
            let output = Command::new("ls").arg("/proc/self/fd").output().unwrap();
            output.stdout.iter().filter(|byte| **byte == b'\n').count()
        };
        let with = list(Some(&base));
        let status = Command::new("cat").arg("/proc/self/status").output().unwrap();
        let status = String::from_utf8(status.stdout).unwrap();
        let masks: Vec<&str> =
            status.lines().filter(|l| l.starts_with("SigBlk") || l.starts_with("SigCgt")).collect();
        assert!(
            masks
                .iter()
                .all(|line| line.ends_with(" 0000000000000000") || line.ends_with("\t0000000000000000")),
            "{masks:?}"
        );
        drop((usr1, base));
        assert_eq!(with, list(None));
    });
}

fn a_write_to_a_closed_stream_does_not_kill_the_process() {
    each_kernel(|bed| {
        in_child(|| {
            // SAFETY: the default action is no handler of ours. The runtime has set it to be ignored.
            unsafe { signal(Number::SIGPIPE, SigHandler::SigDfl) }.unwrap();
            let mut base = bed.base();
            let (stream, peer) = bed.stream(&base);
            stream.set_event_cb(|stream, _| stream.free());
            stream.enable(Direction::READ | Direction::WRITE).unwrap();
            drop(peer);
            stream.write(vec![b'x'; 100_000]).unwrap();
            base.dispatch().unwrap();
            let (reader, writer) = std::io::pipe().unwrap();
            let pipe = BufferEvent::new(&base, std::os::fd::OwnedFd::from(writer)).unwrap();
            pipe.set_event_cb(|stream, _| stream.free());
            pipe.enable(Direction::WRITE).unwrap();
            drop(reader);
            pipe.write(vec![b'x'; 100_000]).unwrap();
            base.dispatch().unwrap();
        });
    });
}

fn a_loop_without_descriptors_left_is_an_error() {
    each_kernel(|bed| {
        in_child(|| {
            let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
            setrlimit(Resource::RLIMIT_NOFILE, 64, hard).unwrap();
            let open = || std::fs::File::open("/dev/null");
            let mut files: Vec<_> = std::iter::from_fn(|| open().ok()).collect();
            for spare in 0..3 {
                let others = EventBase::supported_methods().filter(|method| *method != bed.method);
                let config = others.fold(Config::new(), |config, method| config.avoid_method(method));
                match EventBase::with_config(config) {
                    Err(error) => assert_eq!((error.raw_os_error(), spare < 2), (Some(libc::EMFILE), true)),
                    Ok(base) => assert!(spare > 0, "{base:?}"),
                }
                let again: Vec<_> = std::iter::from_fn(|| open().ok()).collect();
                assert_eq!(again.len(), spare, "nothing is left open");
                files.pop();
            }
        });
    });
}

/// Leaves the process no memory but crumbs.
fn take_all_memory() {
    setrlimit(Resource::RLIMIT_CORE, 0, 0).unwrap();
    let pages: u64 = {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    };
    setrlimit(Resource::RLIMIT_AS, pages * 4096, pages * 4096).unwrap();
    for size in (4..=20).rev().map(|bits| 1 << bits) {
        loop {
            let mut block = Vec::<u8>::new();
            if block.try_reserve_exact(size).is_err() {
                break;
            }
            std::mem::forget(block);
        }
    }
}

type Setter = (&'static str, fn(&BufferEvent, [u8; 2048]));

// In C a setter that got no memory went on with a null pointer. Here nothing goes on: what has a length that somebody
// else may have chosen is refused, and everything else ends the process, as Rust does it.
fn without_memory_a_call_ends_the_process_or_is_refused() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let setters: [Setter; 9] = [
        ("read callback", |bev, large| bev.set_read_cb(move |_| _ = &large)),
        ("write callback", |bev, large| bev.set_write_cb(move |_| _ = &large)),
        ("event callback", |bev, large| bev.set_event_cb(move |_, _| _ = &large)),
        ("room callback", |bev, large| bev.set_room_cb(move |_| _ = &large)),
        ("buffer callback", |bev, large| bev.set_buffer_cb(move |_, _| _ = &large)),
        ("output", |bev, large| bev.write(&large[..]).unwrap()),
        ("event", |bev, large| drop(Event::new(bev.handle(), -1, What::READ, move |_, _| _ = &large))),
        ("timer", |bev, large| drop(Timer::new(bev.handle(), move |_| _ = &large))),
        ("listener", |bev, large| {
            let _ = Listener::bind(bev.handle(), "127.0.0.1:0", move |_, _| _ = &large);
        }),
    ];
    each_kernel(|bed| {
        for (name, set) in setters {
            let mut base = bed.base();
            let (one, _other) = BufferEvent::pair(&base).unwrap();
            one.set_read_cb(|_| {});
            let fate = fate_of_child(|| {
                base.after_fork().unwrap();
                // For the likes of a short text there is room left; what is 2 KiB large does not fit.
                take_all_memory();
                set(&one, [1; 2048]);
            });
            assert!(matches!(fate, WaitStatus::Signaled(_, Number::SIGABRT, _)), "{name}: {fate:?}");
        }
    });
    in_child(|| {
        let mut buffer = Buffer::from("as it was");
        take_all_memory();
        let is_refused = [1 << 12, 1 << 16, 1 << 30].map(|len| buffer.reserve(len).is_err());
        assert!(is_refused == [true; 3] && buffer.contiguous() == b"as it was");
    });
}

fn numbers_beyond_a_thousand_are_watched_like_others() {
    each_kernel(|bed| {
        in_child(|| {
            let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
            setrlimit(Resource::RLIMIT_NOFILE, hard.min(4096), hard).unwrap();
            let mut base = bed.base();
            let (ours, theirs) = UnixStream::pair().unwrap();
            let high = nix::fcntl::fcntl(&ours, nix::fcntl::FcntlArg::F_DUPFD(1500)).unwrap();
            let log = Log::new();
            let event = noter(&base, high, READING, &log);
            event.add(None).unwrap();
            std::io::Write::write_all(&mut &theirs, b"x").unwrap();
            base.run(LoopFlags::ONCE).unwrap();
            assert_eq!(log.take(), [Ready::READ]);
            assert!(high.as_raw_fd() >= 1500);
        });
    });
}

/// What a child process does that was started to look at its environment.
fn only_best_method(expected: &str) {
    assert_eq!(EventBase::new().unwrap().method(), expected);
    let first = EventBase::supported_methods().next().unwrap();
    assert_eq!(EventBase::with_config(Config::new().ignore_env()).unwrap().method(), first);
}

fn the_environment_hides_backends_unless_it_is_ignored() {
    let methods: Vec<_> = EventBase::supported_methods().collect();
    let run = |hidden: &str, expected: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env("TESTS_METHOD", expected);
        if !hidden.is_empty() {
            command.env(format!("EVENT_NO{}", hidden.to_uppercase()), "");
        }
        assert!(command.status().unwrap().success());
    };
    run("", methods[0]);
    if let Some(second) = methods.get(1) {
        run(methods[0], second);
    }
    assert!(
        EventBase::with_config(Config::new().require_features(Features::EDGE | Features::ANY_FD)).is_err()
    );
}
