//! Connecting by address, path and name, on every backend: what works, what is told, what it takes.

// Everything here is part of a test.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use event_core::testing::{Call, Faults, ScriptedResolver};
use event_core::{
    BufferEvent, Connect, ConnectPhase, Direction, Error, Family, Listener, LoopEnd, NewSocket, What,
};
use tests::connects::{echo, port, stage, why};
use tests::streams::{Canary, Recorder, Seen, socket_path};
use tests::{each_backend, each_seed};

const MS: Duration = Duration::from_millis(1);

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
        ip.free();
        unix.free();
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
        let refused = std::io::Error::from_raw_os_error(libc::ECONNREFUSED).to_string();
        for (target, text, cause) in [
            ("unknown.test:80", "the name was not resolved", "nobody knows unknown.test"),
            ("10.0.0.1:80", "the connection was not made", &refused),
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
        stream.free();
        listener.free();
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
        stream.free();
        listener.free();
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
            stream.free();
            listener.free();
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
        let hook = move |socket: &NewSocket<'_>| {
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
        stream.free();
        listener.free();
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
        stream.free();
        listener.free();
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
fn a_source_port_is_had_again_at_once() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (first, one, come) = echo(&base, "127.0.0.1:0");
        let (second, other, _) = echo(&base, "127.0.0.1:0");
        // Free, and of an address that no other test has.
        let source = match bed.sim() {
            Some(_) => SocketAddr::from(([127, 0, 0, 4], 4000)),
            None => std::net::TcpListener::bind("127.0.0.4:0").unwrap().local_addr().unwrap(),
        };
        for (at, closes) in [(&one, true), (&other, false)] {
            let seen = Seen::new();
            let stream = Connect::new(at).source(source).start(&base).unwrap();
            stream.set_callbacks(Recorder::new(&seen));
            bed.run_until(&mut base, || !seen.is_empty());
            assert_eq!(seen.take(), ["connected"]);
            bed.run_until(&mut base, || come.get() == 1);
            if closes {
                // Who ends first keeps the port for minutes, unless it is told that that does not matter.
                stream.shutdown_write();
                stream.enable(Direction::READ).unwrap();
                bed.run_until(&mut base, || stream.is_freed());
                assert_eq!(seen.take(), ["reading eof"]);
            }
            stream.free();
        }
        first.free();
        second.free();
    });
}
