//! Connecting by address, path and name: what is tried when, what is told, and what is left over.

// Everything here is part of a test.
#![allow(clippy::unwrap_used)]

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use event_core::testing::{Call, Faults, Reach, ScriptedResolver, Sim};
use event_core::{
    Address, Answer, BufferEvent, Connect, ConnectPhase, Direction, Error, EventBase, Family, Listener,
    LoopEnd, LoopHandle, Query, Resolver, StreamEvent, ToAddress, What,
};
use tests::streams::{Canary, Echo, Recorder, Seen, socket_path, words};
use tests::{Bed, OnDrop, each_backend, each_seed, must_panic, quiet_panic};

const MS: Duration = Duration::from_millis(1);

/// Where and when attempts began, in milliseconds.
type Tries = Rc<RefCell<Vec<(u128, String)>>>;

/// A simulated world with a loop, a resolver, and what happened.
struct Stage {
    sim: Sim,
    base: EventBase,
    resolver: ScriptedResolver,
    tries: Tries,
    seen: Seen,
}

fn stage(bed: &Bed) -> Stage {
    let sim = bed.sim().unwrap().clone();
    let base = bed.base();
    let resolver = ScriptedResolver::new(&base);
    Stage { sim, base, resolver, tries: Rc::default(), seen: Seen::new() }
}

impl Stage {
    fn reach(&self, address: &str, reach: Reach) {
        self.sim.set_reach(&address.parse().unwrap(), Some(reach));
    }

    /// A connect whose attempts are noted.
    fn connect(&self, target: impl ToAddress) -> Connect {
        let (sim, tries) = (self.sim.clone(), self.tries.clone());
        let note = move |socket: &event_core::NewSocket<'_>| {
            assert!(socket.fd().is_none(), "the number is not the system's");
            tries.borrow_mut().push((sim.elapsed().as_millis(), socket.address().to_string()));
            Ok(())
        };
        Connect::new(target).resolver(Rc::new(self.resolver.clone())).on_socket(note)
    }

    /// Starts, notes each event with its time, and frees at the end.
    fn start(&self, connect: Connect) -> BufferEvent {
        let stream = connect.start(&self.base).unwrap();
        let (sim, seen) = (self.sim.clone(), self.seen.clone());
        stream.set_event_cb(move |bev, event| {
            let why = bev.error().map(|error| format!(" {}", why(&error))).unwrap_or_default();
            seen.push(format!("{} {}{why}", sim.elapsed().as_millis(), words(event)));
            bev.free();
        });
        stream
    }

    fn run(&mut self) {
        assert_eq!(self.base.dispatch().unwrap(), LoopEnd::Empty);
    }

    fn tried(&self) -> Vec<String> {
        self.tries.take().into_iter().map(|(at, address)| format!("{at} {address}")).collect()
    }
}

/// The phase and errno of a failed connect, or its text.
fn why(error: &Error) -> String {
    let Error::Connect(error) = error else { return format!("{error:?}") };
    match error.raw_os_error() {
        Some(errno) => format!("{:?} {errno}", error.phase()),
        None => format!("{:?} {}", error.phase(), error.cause()),
    }
}

/// A listener that echoes, where it listens, and how many have come.
fn echo(base: &LoopHandle, at: impl ToAddress) -> (Listener, Address, Rc<Cell<usize>>) {
    let come = Rc::new(Cell::new(0));
    let count = come.clone();
    let listener = Listener::bind(base, at, move |_, accepted| {
        count.set(count.get() + 1);
        let bev = accepted.into_stream();
        bev.set_callbacks(Echo);
        bev.enable(Direction::READ).unwrap();
    });
    let listener = listener.unwrap();
    let address = listener.local_address().unwrap();
    (listener, address, come)
}

fn port(address: &Address) -> u16 {
    address.port().unwrap()
}

#[test]
fn a_number_a_text_a_path_and_a_name_are_connected_to() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (ip, at, _) = echo(&base, "127.0.0.1:0");
        let path = socket_path();
        let (unix, _, _) = echo(&base, path.clone());
        let resolver = ScriptedResolver::new(&base);
        resolver.answer("server.test", Duration::ZERO, Family::Any, &["127.0.0.1"]);
        base.set_resolver(resolver.clone()).unwrap();
        let ways = [
            Connect::new(&at),
            Connect::new(at.to_string()),
            Connect::new(("127.0.0.1", port(&at))),
            Connect::new(path.clone()),
            Connect::new(("server.test", port(&at))),
            Connect::new(format!("server.test:{}", port(&at))),
        ];
        for connect in ways {
            let seen = Seen::new();
            let stream = connect.start(&base).unwrap();
            assert_eq!((stream.fd(), stream.error().is_none()), (None, true));
            stream.set_callbacks(Recorder::new(&seen));
            stream.enable(Direction::READ).unwrap();
            stream.write("hello").unwrap();
            bed.run_until(&mut base, || seen.len() > 2);
            assert_eq!(seen.take(), ["connected", "wrote, 0 left", "read hello"]);
            assert!(stream.fd().is_some());
            stream.free();
        }
        assert_eq!(resolver.queries().len(), 2, "numbers are not asked for");
        assert_eq!(resolver.queries()[0], resolver.queries()[1],);
        let short = BufferEvent::connect_hostname(&base, "server.test", port(&at)).unwrap();
        let seen = Seen::new();
        short.set_callbacks(Recorder::new(&seen));
        bed.run_until(&mut base, || !seen.is_empty());
        assert_eq!(seen.take(), ["connected"]);
        (ip.free(), unix.free());
        let _ = std::fs::remove_file(path);
    });
}

#[test]
fn what_is_no_address_is_refused_before_anything_happens() {
    each_seed(|bed| {
        let base = bed.base();
        for text in ["", "nowhere", ":80", "host:port", "10.0.0.1:0", "host:0"] {
            let refused = Connect::new(text).start(&base);
            assert!(matches!(refused, Err(Error::Invalid(_))), "{text}");
        }
        for (host, port) in [("", 80), ("[]", 80), ("host", 0), ("::1", 0)] {
            let refused = BufferEvent::connect_hostname(&base, host, port);
            assert!(matches!(refused, Err(Error::Invalid(_))), "{host} {port}");
        }
        let (one, _other) = BufferEvent::pair(&base).unwrap();
        assert!(matches!(Connect::new("10.0.0.1:1").start_on(&one), Err(Error::Invalid(_))));
        let freed = BufferEvent::without_fd(&base).unwrap();
        freed.free();
        assert!(matches!(Connect::new("10.0.0.1:1").start_on(&freed), Err(Error::Stale)));
        let handle = base.handle();
        drop(base);
        assert!(matches!(Connect::new("10.0.0.1:1").start(&handle), Err(Error::LoopGone)));
    });
}

#[test]
fn a_failure_says_which_step_it_was_and_comes_once() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (listener, at, _) = echo(&base, "127.0.0.1:0");
        listener.free();
        let resolver = ScriptedResolver::new(&base);
        resolver.answer("closed.test", Duration::ZERO, Family::Any, &["127.0.0.1"]);
        resolver.answer("empty.test", Duration::ZERO, Family::Any, &[]);
        resolver.unknown("unknown.test", Duration::ZERO, Family::Any);
        resolver.fail("broken.test", Duration::ZERO, Family::Any, libc::EIO);
        base.set_resolver(resolver).unwrap();
        let refused = format!("Connect {}", libc::ECONNREFUSED);
        let broken = format!("Resolve {}", libc::EIO);
        let cases = [
            ("closed.test", &*refused),
            ("127.0.0.1", &refused),
            ("empty.test", "Resolve the name has no such address"),
            ("unknown.test", "Resolve nobody knows unknown.test"),
            ("broken.test", &broken),
        ];
        for (host, expected) in cases {
            let seen = Seen::new();
            let stream = BufferEvent::connect_hostname(&base, host, port(&at)).unwrap();
            stream.set_callbacks(Recorder::patient(&seen));
            stream.enable(Direction::READ).unwrap();
            stream.write("x").unwrap();
            bed.run_until(&mut base, || !seen.is_empty());
            bed.settle(&mut base);
            assert_eq!(seen.take(), ["error"], "{host}");
            assert_eq!(why(&stream.error().unwrap()), expected);
            assert_eq!((stream.enabled(), stream.fd()), (Direction::empty(), None));
            stream.free();
        }
        let unwatched = BufferEvent::connect_hostname(&base, "unknown.test", 80).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert!(unwatched.is_freed(), "nobody handles it");
    });
}

#[test]
fn an_error_reads_as_an_error_does() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        stage.resolver.unknown("unknown.test", Duration::ZERO, Family::Any);
        for (target, text, cause) in [
            ("unknown.test:80", "the name was not resolved", "nobody knows unknown.test"),
            ("10.0.0.1:80", "the connection was not made", "Connection refused (os error 111)"),
        ] {
            let stream = stage.connect(target).start(&stage.base).unwrap();
            stream.set_event_cb(|_, _| {});
            stage.run();
            let error = stream.error().unwrap();
            assert_eq!(error.to_string(), text);
            assert_eq!(std::error::Error::source(&error).unwrap().to_string(), cause);
        }
    });
}

#[test]
fn addresses_of_both_families_take_turns_a_quarter_of_a_second_apart() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        let hosts = ["2001:db8::1", "2001:db8::2", "192.0.2.1", "192.0.2.2", "192.0.2.3"];
        stage.resolver.answer("dead.test", 7 * MS, Family::Any, &hosts);
        for host in ["[2001:db8::1]", "[2001:db8::2]", "192.0.2.1", "192.0.2.2"] {
            stage.reach(&format!("{host}:80"), Reach::Never);
        }
        stage.reach("192.0.2.3:80", Reach::After(30 * MS));
        let server = stage.sim.listen(&"192.0.2.3:80".parse().unwrap()).unwrap();
        stage.start(stage.connect("dead.test:80"));
        stage.run();
        assert_eq!(
            stage.tried(),
            [
                "7 [2001:db8::1]:80",
                "257 192.0.2.1:80",
                "507 [2001:db8::2]:80",
                "757 192.0.2.2:80",
                "1007 192.0.2.3:80"
            ]
        );
        assert_eq!(stage.seen.take(), ["1037 connected"]);
        assert!(server.accept().is_some());
        assert_eq!(stage.sim.open_fds(), [], "the losers are closed, too");
    });
}

#[test]
fn the_first_to_connect_wins_and_the_others_are_closed_at_once() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        stage.resolver.answer("slow.test", Duration::ZERO, Family::Any, &["2001:db8::1", "192.0.2.1"]);
        stage.reach("[2001:db8::1]:80", Reach::After(400 * MS));
        stage.reach("192.0.2.1:80", Reach::After(20 * MS));
        let six = stage.sim.listen(&"[2001:db8::1]:80".parse().unwrap()).unwrap();
        let four = stage.sim.listen(&"192.0.2.1:80".parse().unwrap()).unwrap();
        let stream = stage.connect("slow.test:80").start(&stage.base).unwrap();
        let (peer, seen, sim) = (Rc::new(RefCell::new(None)), stage.seen.clone(), stage.sim.clone());
        let found = peer.clone();
        stream.set_event_cb(move |bev, event| {
            seen.push(format!("{} {} {}", sim.elapsed().as_millis(), words(event), sim.open_fds().len()));
            found.replace(bev.peer_address().ok());
            bev.free();
        });
        stage.run();
        assert_eq!(stage.seen.take(), ["270 connected 1"]);
        assert_eq!(peer.take().unwrap().to_string(), "192.0.2.1:80");
        stage.sim.advance(Duration::from_secs(1));
        assert!(six.accept().is_none() && four.accept().is_some(), "the slow one was called off in time");
    });
}

#[test]
fn an_attempt_that_fails_makes_room_for_the_next_at_once() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        let hosts = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"];
        stage.resolver.answer("some.test", Duration::ZERO, Family::Any, &hosts);
        stage.reach("192.0.2.1:80", Reach::FailsAtOnce(libc::ENETUNREACH));
        stage.reach("192.0.2.2:80", Reach::Fails(30 * MS, libc::ECONNREFUSED));
        stage.reach("192.0.2.3:80", Reach::Fails(300 * MS, libc::EHOSTUNREACH));
        stage.reach("192.0.2.4:80", Reach::Fails(100 * MS, libc::ENETUNREACH));
        stage.start(stage.connect("some.test:80"));
        stage.run();
        assert_eq!(
            stage.tried(),
            ["0 192.0.2.1:80", "0 192.0.2.2:80", "30 192.0.2.3:80", "280 192.0.2.4:80"]
        );
        // That there is no way to some says less than that one has refused.
        assert_eq!(stage.seen.take(), [format!("380 error Connect {}", libc::ECONNREFUSED)]);
        assert_eq!(stage.sim.open_fds(), []);
    });
}

#[test]
fn of_errors_that_say_the_same_the_last_is_told() {
    each_seed(|bed| {
        for (first, second, told) in [
            (libc::ECONNREFUSED, libc::EACCES, libc::EACCES),
            (libc::EACCES, libc::ECONNREFUSED, libc::ECONNREFUSED),
            (libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EHOSTUNREACH),
            (libc::ENETUNREACH, libc::ETIMEDOUT, libc::ETIMEDOUT),
            (libc::ETIMEDOUT, libc::EADDRNOTAVAIL, libc::ETIMEDOUT),
        ] {
            let mut stage = stage(bed);
            stage.resolver.answer("two.test", Duration::ZERO, Family::Any, &["192.0.2.1", "192.0.2.2"]);
            stage.reach("192.0.2.1:80", Reach::Fails(MS, first));
            stage.reach("192.0.2.2:80", Reach::FailsAtOnce(second));
            let stream = stage.connect("two.test:80").start(&stage.base).unwrap();
            stream.set_event_cb(|_, _| {});
            stage.run();
            assert_eq!(stream.error().unwrap().raw_os_error(), Some(told), "{first} {second}");
        }
    });
}

#[test]
fn an_answer_for_four_waits_fifty_milliseconds_for_six() {
    // When each answer comes, and what is then tried when.
    let cases: [(u32, u32, &[&str], &[&str]); 4] = [
        (10, 40, &["::1"], &["40 [::1]:80", "40 192.0.2.1:80"]),
        (10, 61, &["::1"], &["60 192.0.2.1:80", "61 [::1]:80"]),
        (10, 30, &[], &["30 192.0.2.1:80"]),
        (20, 5, &["::1"], &["5 [::1]:80", "20 192.0.2.1:80"]),
    ];
    each_seed(|bed| {
        for (four, six, sixes, expected) in cases {
            let mut stage = stage(bed);
            let begin = stage.sim.elapsed().as_millis();
            stage.resolver.answer("apart.test", four * MS, Family::V4, &["192.0.2.1"]);
            stage.resolver.answer("apart.test", six * MS, Family::V6, sixes);
            stage.start(stage.connect("apart.test:80"));
            stage.run();
            let tried: Vec<String> =
                stage.tries.take().iter().map(|(at, to)| format!("{} {to}", at - begin)).collect();
            assert_eq!(tried, expected, "four after {four} ms, six after {six} ms");
        }
    });
}

#[test]
fn six_that_comes_while_four_is_tried_takes_its_turn() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        stage.resolver.answer("late.test", Duration::ZERO, Family::V4, &["192.0.2.1", "192.0.2.2"]);
        stage.resolver.answer("late.test", 100 * MS, Family::V6, &["::1"]);
        stage.reach("192.0.2.1:80", Reach::Never);
        stage.reach("192.0.2.2:80", Reach::Never);
        let _server = stage.sim.listen(&"[::1]:80".parse().unwrap()).unwrap();
        stage.start(stage.connect("late.test:80"));
        stage.run();
        assert_eq!(stage.tried(), ["50 192.0.2.1:80", "300 [::1]:80"]);
        assert_eq!(stage.seen.take(), ["300 connected"]);
        assert_eq!((stage.resolver.open(), stage.resolver.called_off()), (0, 0));
    });
}

#[test]
fn a_connection_calls_off_the_answer_that_is_still_to_come() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        stage.resolver.answer("half.test", Duration::ZERO, Family::V6, &["::1"]);
        stage.resolver.answer("half.test", Duration::from_secs(9), Family::V4, &["192.0.2.1"]);
        let _server = stage.sim.listen(&"[::1]:80".parse().unwrap()).unwrap();
        stage.start(stage.connect("half.test:80"));
        stage.run();
        assert_eq!(stage.seen.take(), ["0 connected"]);
        assert_eq!((stage.resolver.open(), stage.resolver.called_off()), (0, 1));
    });
}

#[test]
fn one_family_alone_is_asked_for_and_tried() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        stage.resolver.answer("both.test", Duration::ZERO, Family::Any, &["::1", "192.0.2.1"]);
        for (family, expected) in [(Family::V4, "192.0.2.1:80"), (Family::V6, "[::1]:80")] {
            stage.start(stage.connect("both.test:80").family(family));
            stage.run();
            assert_eq!(stage.tries.take()[0].1, expected);
            assert_eq!(stage.resolver.queries().pop().unwrap().family, family);
        }
        // So it is with a source, which is of one family.
        let source: SocketAddr = ([192, 0, 2, 9], 0).into();
        stage.start(stage.connect("both.test:80").source(source));
        stage.run();
        assert_eq!(stage.tries.take().len(), 1);
        assert_eq!(stage.resolver.queries().pop().unwrap().family, Family::V4);
        stage.seen.take();
        stage.start(stage.connect("[::1]:80").source(source));
        stage.run();
        assert_eq!(
            stage.seen.take()[0].split(' ').skip(1).collect::<Vec<_>>().join(" "),
            "error Resolve there is no such address"
        );
    });
}

#[test]
fn of_localhost_the_family_that_listens_is_found() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (listener, at, come) = echo(&base, "127.0.0.1:0");
        let resolver = ScriptedResolver::new(&base);
        resolver.answer("localhost", Duration::ZERO, Family::Any, &["::1", "127.0.0.1"]);
        base.set_resolver(resolver).unwrap();
        let seen = Seen::new();
        let stream = BufferEvent::connect_hostname(&base, "localhost", port(&at)).unwrap();
        stream.set_callbacks(Recorder::new(&seen));
        bed.run_until(&mut base, || !seen.is_empty());
        assert_eq!(seen.take(), ["connected"]);
        assert_eq!(stream.peer_address().unwrap(), at);
        bed.run_until(&mut base, || come.get() == 1);
        (stream.free(), listener.free());
    });
}

#[test]
#[cfg_attr(miri, ignore = "the system's resolver")]
fn the_system_looks_names_up_in_threads() {
    each_backend(|bed| {
        if bed.sim().is_some() {
            return;
        }
        let mut base = bed.base();
        let (listener, at, _) = echo(&base, "127.0.0.1:0");
        let seen = Seen::new();
        let streams: Vec<BufferEvent> =
            (0..10).map(|_| BufferEvent::connect_hostname(&base, "localhost", port(&at)).unwrap()).collect();
        streams.iter().for_each(|stream| stream.set_callbacks(Recorder::new(&seen)));
        bed.run_until(&mut base, || seen.len() == 10);
        assert_eq!(seen.take(), ["connected"; 10]);
        streams.iter().for_each(BufferEvent::free);
        // No resolver takes that for a name, nor asks a server for it.
        let stream = BufferEvent::connect_hostname(&base, "no name at all", 80).unwrap();
        stream.set_callbacks(Recorder::patient(&seen));
        bed.run_until(&mut base, || !seen.is_empty());
        let Some(Error::Connect(error)) = stream.error() else { panic!() };
        assert_eq!((error.phase(), error.raw_os_error()), (ConnectPhase::Resolve, None));
        (stream.free(), listener.free());
    });
}

#[test]
#[cfg_attr(miri, ignore = "the system's resolver")]
fn a_look_up_keeps_the_loop_running_and_one_that_nobody_wants_does_not() {
    each_backend(|bed| {
        if bed.sim().is_some() {
            return;
        }
        let mut base = bed.base();
        let canary = Canary::new();
        let held = canary.clone();
        let stream = BufferEvent::connect_hostname(&base, "no name at all", 80).unwrap();
        stream.set_event_cb(move |bev, _| {
            let _ = &held;
            bev.free();
        });
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!((stream.is_freed(), canary.alive()), (true, 0), "it was waited for");
        for _ in 0..20 {
            let stream = BufferEvent::connect_hostname(&base, "localhost", 80).unwrap();
            let gone = stream.clone();
            base.once(-1, What::empty(), None, move |_| gone.free()).unwrap();
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        }
        // Some of it may still be with the threads.
        let _late = BufferEvent::connect_hostname(&base, "localhost", 80).unwrap();
        bed.settle(&mut base);
        drop(base);
    });
}

#[test]
fn a_resolver_that_never_answers_is_waited_for_until_the_deadline() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        stage.start(stage.connect("never.test:80"));
        stage.run();
        assert_eq!(stage.seen.take(), [format!("60000 error Resolve {}", libc::ETIMEDOUT)]);
        stage.start(stage.connect("never.test:80").deadline(Some(5 * MS)));
        stage.run();
        assert_eq!(stage.seen.take(), [format!("60005 error Resolve {}", libc::ETIMEDOUT)]);
        stage.start(stage.connect("never.test:80").deadline(Some(Duration::ZERO)));
        stage.run();
        assert_eq!(stage.seen.take(), [format!("60005 error Resolve {}", libc::ETIMEDOUT)]);
        assert_eq!((stage.resolver.open(), stage.resolver.called_off()), (0, 2), "no time, no question");
    });
}

#[test]
fn black_holes_end_by_their_own_deadline_or_that_of_all() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        stage.resolver.answer("hole.test", Duration::ZERO, Family::Any, &["192.0.2.1", "192.0.2.2"]);
        stage.reach("192.0.2.1:80", Reach::Never);
        stage.reach("192.0.2.2:80", Reach::Never);
        stage.start(stage.connect("hole.test:80"));
        stage.run();
        assert_eq!(stage.seen.take(), [format!("20250 error Connect {}", libc::ETIMEDOUT)]);
        stage.start(stage.connect("hole.test:80").attempt_deadline(None));
        stage.run();
        assert_eq!(stage.seen.take(), [format!("80250 error Connect {}", libc::ETIMEDOUT)]);
        stage.start(stage.connect("hole.test:80").attempt_deadline(Some(100 * MS)));
        stage.run();
        assert_eq!(stage.seen.take(), [format!("80450 error Connect {}", libc::ETIMEDOUT)]);
        assert_eq!(stage.sim.open_fds(), []);
        let tried: Vec<u128> = stage.tries.take().iter().map(|(at, _)| *at).collect();
        assert_eq!(tried, [0, 250, 20250, 20500, 80250, 80350], "a failure makes room for the next");
    });
}

#[test]
fn of_many_dead_addresses_some_are_tried_and_all_are_closed() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        let hosts: Vec<String> = (1..=60).map(|n| format!("192.0.2.{n}")).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        stage.resolver.answer("dead.test", Duration::ZERO, Family::Any, &hosts);
        for host in &hosts {
            stage.reach(&format!("{host}:80"), Reach::Never);
        }
        stage.start(stage.connect("dead.test:80").attempt_delay(Duration::ZERO));
        stage.run();
        let tried = stage.tries.take();
        assert_eq!(tried.len(), 32);
        assert_eq!(tried[31].0, 3100, "never less than 100 ms apart");
        assert_eq!(stage.seen.take(), [format!("23100 error Connect {}", libc::ETIMEDOUT)]);
        for host in &hosts {
            stage.reach(&format!("{host}:80"), Reach::FailsAtOnce(libc::ENETUNREACH));
        }
        stage.start(stage.connect("dead.test:80"));
        stage.run();
        assert_eq!(stage.tries.take().len(), 32);
        assert_eq!(stage.seen.take(), [format!("23100 error Connect {}", libc::ENETUNREACH)]);
        assert_eq!(stage.sim.open_fds(), []);
    });
}

/// A resolver of a few lines.
struct Does<F>(F);

impl<F: Fn(&Query, Answer) -> Box<dyn Any>> Resolver for Does<F> {
    fn resolve(&self, query: &Query, answer: Answer) -> Box<dyn Any> {
        (self.0)(query, answer)
    }
}

fn by(resolve: impl Fn(&Query, Answer) -> Box<dyn Any> + 'static) -> Rc<dyn Resolver> {
    Rc::new(Does(resolve))
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn a_resolver_that_answers_twice_is_heard_once() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        let twice = by(|query, answer| {
            assert_eq!((&*query.name, query.port, query.family), ("twice.test", 80, Family::Any));
            assert!(answer.give(Family::V4, Ok(vec![address("192.0.2.1:80"), address("[::9]:80")])));
            assert!(!answer.give(Family::V4, Ok(vec![address("192.0.2.2:80")])));
            assert!(answer.is_wanted(Family::V6) && !answer.is_wanted(Family::V4));
            // Of both, the one that is missing.
            assert!(answer.give(Family::Any, Ok(vec![address("192.0.2.3:80"), address("[::1]:80")])));
            assert!(!answer.give(Family::Any, Err(io::ErrorKind::NotFound.into())));
            assert!(!answer.is_wanted(Family::Any));
            Box::new(())
        });
        stage.start(stage.connect("twice.test:80").resolver(twice));
        stage.run();
        assert_eq!(stage.tried(), ["0 [::1]:80", "0 192.0.2.1:80"]);
        assert_eq!(stage.seen.take(), [format!("0 error Connect {}", libc::ECONNREFUSED)]);
    });
}

#[test]
fn a_resolver_that_drops_its_answer_has_failed() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        stage.start(stage.connect("drop.test:80").resolver(by(|_, _| Box::new(()))));
        stage.run();
        assert_eq!(stage.seen.take(), ["0 error Resolve the resolver gave no answer"]);
        // Of one family: the other counts.
        let half = by(|_, answer| {
            answer.give(Family::V4, Ok(vec![address("192.0.2.1:80")]));
            Box::new(())
        });
        stage.start(stage.connect("half.test:80").resolver(half));
        stage.run();
        assert_eq!(stage.seen.take(), [format!("0 error Connect {}", libc::ECONNREFUSED)]);
    });
}

#[test]
fn a_resolver_or_hook_that_panics_ends_its_stream_and_no_other() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        let canary = Canary::new();
        let held = canary.clone();
        let panics = by(move |_, _| {
            let _ = &held;
            quiet_panic("resolver")
        });
        let hook = |_: &event_core::NewSocket<'_>| -> io::Result<()> { quiet_panic("hook") };
        let _server = stage.sim.listen(&"192.0.2.1:80".parse().unwrap()).unwrap();
        for (connect, message) in [
            (stage.connect("panics.test:80").resolver(panics), "resolver"),
            (stage.connect("192.0.2.1:80").on_socket(hook), "hook"),
        ] {
            let stream = stage.start(connect);
            let other = stage.start(stage.connect("192.0.2.1:80"));
            must_panic(message, || stage.base.dispatch());
            assert!(stream.is_freed() && !other.is_freed(), "{message}");
            stage.run();
            assert_eq!(stage.seen.take(), ["0 connected"]);
            assert_eq!((canary.alive(), stage.sim.open_fds().len()), (0, 0));
        }
    });
}

#[test]
fn an_answer_that_comes_when_nobody_waits_is_dropped() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        let (kept, dropped) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(0)));
        let (keep, count) = (kept.clone(), dropped.clone());
        let keeps = by(move |_, answer| {
            keep.borrow_mut().push(answer);
            let count = count.clone();
            Box::new(OnDrop(move || count.set(count.get() + 1)))
        });
        let stream = stage.start(stage.connect("kept.test:80").resolver(keeps.clone()));
        bed.settle(&mut stage.base);
        assert!(kept.borrow()[0].is_wanted(Family::Any));
        stream.free();
        assert_eq!(dropped.get(), 1, "it was called off");
        assert!(!kept.borrow()[0].is_wanted(Family::Any));
        assert!(!kept.borrow()[0].give(Family::Any, Ok(vec![address("192.0.2.1:80")])));
        stage.run();
        assert!(stage.seen.is_empty() && stage.tries.borrow().is_empty());
        // The loop goes, and the answer after it.
        stage.start(stage.connect("kept.test:80").resolver(keeps));
        bed.settle(&mut stage.base);
        drop(stage.base);
        assert_eq!(dropped.get(), 2);
        assert!(!kept.take()[1].give(Family::Any, Ok(vec![address("192.0.2.1:80")])));
    });
}

#[test]
fn a_stream_is_freed_at_any_step_and_leaves_nothing() {
    each_seed(|bed| {
        // Steps are a millisecond apart: asked at 0, answered at 2 and 5, tried at 5 and 255, connected at 262.
        let mut ways = Vec::new();
        for at in [0, 1, 2, 3, 5, 6, 254, 255, 256, 262, 263] {
            let mut stage = stage(bed);
            stage.resolver.answer("steps.test", 5 * MS, Family::V6, &["::1"]);
            stage.resolver.answer("steps.test", 2 * MS, Family::V4, &["192.0.2.1"]);
            stage.reach("[::1]:80", Reach::Never);
            stage.reach("192.0.2.1:80", Reach::After(7 * MS));
            let _server = stage.sim.listen(&"192.0.2.1:80".parse().unwrap()).unwrap();
            let canary = Canary::new();
            let (held, seen) = (canary.clone(), stage.seen.clone());
            let stream = stage.connect("steps.test:80").start(&stage.base).unwrap();
            stream.set_event_cb(move |_, event| {
                let _ = &held;
                seen.push(words(event));
            });
            let gone = stream.clone();
            stage.sim.at(at * MS, move || gone.free());
            // So that a stream that is connected does not end the loop before.
            stage.base.once(-1, What::empty(), Some(300 * MS), |_| {}).unwrap();
            drop(stream);
            stage.run();
            ways.push((stage.tries.take().len(), stage.seen.len()));
            assert_eq!((canary.alive(), stage.resolver.open()), (0, 0), "freed after {at} ms");
            assert_eq!(stage.sim.open_fds(), [], "freed after {at} ms");
        }
        assert_eq!(ways.first(), Some(&(0, 0)));
        assert_eq!(ways.last(), Some(&(2, 1)));
    });
}

#[test]
fn a_stream_is_freed_by_its_resolver_its_hook_and_its_event() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        let (canary, slot) = (Canary::new(), Rc::new(RefCell::new(None::<BufferEvent>)));
        let free = |slot: &Rc<RefCell<Option<BufferEvent>>>| {
            let stream = slot.borrow().clone();
            stream.unwrap().free();
        };
        let _server = stage.sim.listen(&"192.0.2.1:80".parse().unwrap()).unwrap();
        let (held, stream) = (canary.clone(), slot.clone());
        let resolver = by(move |_, answer| {
            free(&stream);
            assert!(!answer.give(Family::Any, Ok(vec![address("192.0.2.1:80")])));
            Box::new(held.clone())
        });
        let (held, stream) = (canary.clone(), slot.clone());
        let hook = move |_: &event_core::NewSocket<'_>| {
            let _ = &held;
            free(&stream);
            Ok(())
        };
        let (held, stream) = (canary.clone(), slot.clone());
        let failing = move |_: &event_core::NewSocket<'_>| {
            let _ = &held;
            free(&stream);
            Err(io::ErrorKind::Other.into())
        };
        for connect in [
            Connect::new("gone.test:80").resolver(resolver),
            Connect::new("192.0.2.1:80").on_socket(hook),
            Connect::new("192.0.2.1:80").on_socket(failing),
        ] {
            let stream = stage.start(connect);
            slot.replace(Some(stream.clone()));
            stage.run();
            assert!(stream.is_freed() && stage.seen.is_empty());
            assert_eq!(stage.sim.open_fds(), []);
        }
        assert_eq!(canary.alive(), 0);
        // In the event, of success and of failure.
        for target in ["192.0.2.1:80", "192.0.2.2:80"] {
            stage.start(stage.connect(target));
            stage.run();
            assert_eq!((stage.seen.take().len(), stage.sim.open_fds().len()), (1, 0));
        }
    });
}

#[test]
fn an_error_of_the_programs_own_is_told_and_dropped_with_nothing_held() {
    /// Frees the stream when it goes.
    #[derive(Debug)]
    struct Own {
        _mark: Arc<()>,
    }
    impl std::fmt::Display for Own {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("of my own")
        }
    }
    impl std::error::Error for Own {}
    thread_local! {
        static STREAM: RefCell<Option<BufferEvent>> = const { RefCell::new(None) };
    }
    impl Drop for Own {
        fn drop(&mut self) {
            let stream = STREAM.take();
            if let Some(stream) = stream {
                assert!(stream.error().is_none_or(|error| !error.to_string().is_empty()));
                let _ = stream.write("x");
                stream.free();
            }
        }
    }
    each_seed(|bed| {
        // The first error goes when the second comes: in the hook's step, or in that of an answer.
        for resolves in [false, true] {
            let mut stage = stage(bed);
            let mark = Arc::new(());
            let own = {
                let mark = mark.clone();
                move |kind| io::Error::new(kind, Own { _mark: mark.clone() })
            };
            let connect = if resolves {
                let resolver = by(move |_, answer| {
                    answer.give(Family::V6, Err(own(io::ErrorKind::NotFound)));
                    answer.give(Family::V4, Err(own(io::ErrorKind::Other)));
                    Box::new(())
                });
                stage.connect("own.test:80").resolver(resolver)
            } else {
                stage.resolver.answer("own.test", Duration::ZERO, Family::Any, &["192.0.2.1", "192.0.2.2"]);
                stage.connect("own.test:80").on_socket(move |_| Err(own(io::ErrorKind::Other)))
            };
            let stream = stage.start(connect);
            STREAM.replace(Some(stream.clone()));
            stage.run();
            assert!(stream.is_freed() && stage.seen.is_empty());
            drop(stream);
            assert_eq!(Arc::strong_count(&mark), 1);
        }
        // One that is kept is the stream's error, with all that it was made of.
        let mut stage = stage(bed);
        let mark = Arc::new(());
        let held = mark.clone();
        let hook = move |_: &event_core::NewSocket<'_>| Err(io::Error::other(Own { _mark: held.clone() }));
        let stream = stage.connect("192.0.2.1:80").on_socket(hook).start(&stage.base).unwrap();
        stream.set_event_cb(|_, _| {});
        stage.run();
        let Some(Error::Connect(error)) = stream.error() else { panic!() };
        assert!(error.cause().get_ref().unwrap().is::<Own>());
        drop(error);
        STREAM.replace(Some(stream.clone()));
        let _ = stage.connect("192.0.2.1:80").start_on(&stream);
        assert!(stream.is_freed(), "the old error went, and took the stream along");
        drop(stream);
        assert_eq!(Arc::strong_count(&mark), 1);
        stage.run();
    });
}

#[test]
fn the_loop_ends_with_everything_that_was_under_way() {
    each_backend(|bed| {
        let canary = Canary::new();
        let base = bed.base();
        let held = canary.clone();
        let never = by(move |_, answer| Box::new((held.clone(), answer)));
        for target in ["never.test:80", "127.0.0.1:1"] {
            let (held, event) = (canary.clone(), canary.clone());
            let hook = move |_: &event_core::NewSocket<'_>| {
                let _ = &held;
                Ok(())
            };
            let connect = Connect::new(target).on_socket(hook).resolver(never.clone());
            let stream = connect.start(&base).unwrap();
            let own = stream.clone();
            stream.set_event_cb(move |_, _| {
                let _ = (&event, &own);
            });
        }
        drop(never);
        let mut base = base;
        base.run(event_core::LoopFlags::NONBLOCK).unwrap();
        assert!(canary.alive() > 2);
        drop(base);
        assert_eq!(canary.alive(), 0);
    });
}

#[test]
fn without_descriptors_there_is_one_event_and_no_error() {
    each_backend(|bed| {
        for call in [Call::Socket, Call::Connect, Call::Change, Call::Bind, Call::TakeError] {
            let faults = Faults::new();
            let mut base = bed.base_with(&faults);
            let (listener, at, _) = echo(&base, "127.0.0.1:0");
            let seen = Seen::new();
            let source: SocketAddr = ([127, 0, 0, 1], 0).into();
            let stream = Connect::new(&at).source(source).start(&base).unwrap();
            stream.set_callbacks(Recorder::patient(&seen));
            faults.fail(call, faults.count(call) + 1, libc::EMFILE);
            bed.run_until(&mut base, || !seen.is_empty());
            bed.settle(&mut base);
            assert_eq!(seen.take(), ["error"], "{call:?}");
            assert_eq!(why(&stream.error().unwrap()), format!("Connect {}", libc::EMFILE), "{call:?}");
            // Again, on the same stream: nothing of it is left.
            Connect::new(&at).start_on(&stream).unwrap();
            bed.run_until(&mut base, || !seen.is_empty());
            assert_eq!(seen.take(), ["connected"], "{call:?}");
            assert!(stream.error().is_none());
            (stream.free(), listener.free());
        }
    });
}

#[test]
fn the_hook_sets_options_and_sees_where_it_goes() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (listener, at, _) = echo(&base, "127.0.0.1:0");
        let (seen, to) = (Seen::new(), at.clone());
        let real = bed.sim().is_none();
        let hook = move |socket: &event_core::NewSocket<'_>| {
            assert_eq!(socket.address(), &to);
            assert_eq!(socket.fd().is_some(), real);
            if let Some(fd) = socket.fd() {
                let options = socket2::SockRef::from(&fd);
                options.set_tcp_nodelay(true)?;
                assert!(options.tcp_nodelay()?);
            }
            socket.bind(&"127.0.0.3:0".parse().unwrap())
        };
        let stream = Connect::new(&at).on_socket(hook).start(&base).unwrap();
        stream.set_callbacks(Recorder::new(&seen));
        bed.run_until(&mut base, || !seen.is_empty());
        assert_eq!(seen.take(), ["connected"]);
        (stream.free(), listener.free());
    });
}

#[test]
fn a_source_is_where_the_server_sees_it_from() {
    each_backend(|bed| {
        let mut base = bed.base();
        let from = Rc::new(RefCell::new(Vec::new()));
        let note = from.clone();
        let listener = Listener::bind(&base, "127.0.0.1:0", move |_, accepted| {
            note.borrow_mut().push(accepted.address().clone());
        });
        let listener = listener.unwrap();
        let at = listener.local_address().unwrap();
        let source: IpAddr = [127, 0, 0, 2].into();
        let stream = Connect::new(&at).source((source, 0)).start(&base).unwrap();
        bed.run_until(&mut base, || !from.borrow().is_empty());
        let seen_from = from.take()[0].socket_addr().unwrap();
        assert_eq!(seen_from.ip(), source);
        assert_ne!(seen_from.port(), 0);
        (stream.free(), listener.free());
    });
}

#[test]
fn what_is_asked_of_a_stream_meanwhile_waits_for_the_connection() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (listener, at, _) = echo(&base, "127.0.0.1:0");
        let resolver = Rc::new(ScriptedResolver::new(&base));
        resolver.answer("later.test", 5 * MS, Family::Any, &["127.0.0.1"]);
        let start = || {
            let connect = Connect::new(("later.test", port(&at))).resolver(resolver.clone());
            connect.start(&base.handle()).unwrap()
        };
        // The end of what is written follows it.
        let seen = Seen::new();
        let stream = start();
        stream.set_callbacks(Recorder::new(&seen));
        stream.write("abc").unwrap();
        stream.shutdown_write();
        stream.enable(Direction::READ).unwrap();
        let closing = start();
        closing.write("abc").unwrap();
        closing.close_after_flush();
        assert!(!closing.is_freed());
        bed.settle(&mut base);
        bed.pass(&mut base, 5 * MS);
        bed.run_until(&mut base, || seen.len() > 3 && closing.is_freed());
        assert_eq!(seen.take(), ["connected", "wrote, 0 left", "read abc", "reading eof"]);
        listener.free();
    });
}

#[test]
fn another_connect_or_fd_calls_the_first_off() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        stage.reach("192.0.2.1:80", Reach::After(9 * MS));
        let (one, two) = ("192.0.2.1:80".parse().unwrap(), "192.0.2.2:80".parse().unwrap());
        let first = stage.sim.listen(&one).unwrap();
        let second = stage.sim.listen(&two).unwrap();
        let canary = Canary::new();
        for way in 0..4 {
            let held = canary.clone();
            let hook = move |_: &event_core::NewSocket<'_>| {
                let _ = &held;
                Ok(())
            };
            let stream = Connect::new(&one).on_socket(hook).start(&stage.base).unwrap();
            let seen = stage.seen.clone();
            stream.set_event_cb(move |_, event| seen.push(words(event)));
            bed.settle(&mut stage.base);
            match way {
                0 => Connect::new(&two).start_on(&stream).unwrap(),
                1 => stream.reconnect(&two).unwrap(),
                2 => drop(stage.sim.replace_fd(&stream).unwrap()),
                _ => assert_eq!(stream.detach_fd().unwrap(), None),
            }
            assert_eq!(canary.alive(), 0, "it is called off in the call");
            assert_eq!(bed.sim().unwrap().open_fds().len(), usize::from(way == 1 || way == 2));
            stage.run();
            assert_eq!(stage.seen.take().first().map(String::as_str), (way < 2).then_some("connected"));
            stage.sim.advance(20 * MS);
            assert!(first.accept().is_none());
            assert_eq!(second.accept().is_some(), way < 2);
            stream.free();
        }
    });
}

#[test]
fn the_write_timeout_counts_while_a_name_is_looked_up() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        let stream = stage.start(stage.connect("never.test:80"));
        stream.set_timeouts(None, Some(70 * MS));
        stage.run();
        assert_eq!(stage.seen.take(), ["70 writing timeout"]);
        assert_eq!(stage.resolver.called_off(), 1);
    });
}

#[test]
fn the_loop_has_a_resolver_of_its_own_that_may_be_replaced() {
    each_seed(|bed| {
        let mut base = bed.base();
        let canary = Canary::new();
        for name in ["one", "two"] {
            let held = canary.clone();
            base.set_resolver(Does(move |_: &Query, answer: Answer| {
                let _ = &held;
                answer.give(Family::Any, Err(io::Error::other(name)));
                Box::new(()) as Box<dyn Any>
            }))
            .unwrap();
            assert_eq!(canary.alive(), 1, "the old one goes");
            let stream = BufferEvent::connect_hostname(&base, "any.test", 80).unwrap();
            stream.set_event_cb(|_, event| assert_eq!(event, StreamEvent::ERROR));
            base.dispatch().unwrap();
            assert_eq!(why(&stream.error().unwrap()), format!("Resolve {name}"));
        }
        let handle = base.handle();
        drop(base);
        assert_eq!(canary.alive(), 0);
        assert!(matches!(handle.set_resolver(ScriptedResolver::new(&handle)), Err(Error::LoopGone)));
    });
}

#[test]
fn a_hundred_look_ups_stand_a_change_of_resolver_and_half_are_freed() {
    each_seed(|bed| {
        let mut base = bed.base();
        let (first, second) = (ScriptedResolver::new(&base), ScriptedResolver::new(&base));
        first.answer("many.test", 3 * MS, Family::Any, &["127.0.0.1"]);
        base.set_resolver(first.clone()).unwrap();
        let seen = Seen::new();
        let streams: Vec<BufferEvent> = (0..100)
            .map(|_| {
                let stream = BufferEvent::connect_hostname(&base, "many.test", 80).unwrap();
                stream.set_callbacks(Recorder::new(&seen));
                stream
            })
            .collect();
        base.run(event_core::LoopFlags::NONBLOCK).unwrap();
        assert_eq!(first.open(), 100);
        base.set_resolver(second.clone()).unwrap();
        streams.iter().step_by(2).for_each(BufferEvent::free);
        assert_eq!((first.open(), first.called_off()), (50, 50));
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(seen.take(), ["error"; 50], "each is told once");
        assert_eq!((first.open(), first.called_off(), second.queries().len()), (0, 50, 0));
    });
}
