//! Streams: connecting, data, half-closing, the end.

// Everything here is part of a test.
#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;

use event_core::{
    Address, BufferEvent, Callbacks, Direction, Error, EventBase, Listener, ListenerOptions, LoopEnd,
    StreamEvent,
};
use tests::streams::{Echo, Recorder, Seen, socket_path};
use tests::{Bed, each_backend, each_seed};

fn local() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// An address where nobody listens.
fn nobody(bed: &Bed) -> Address {
    match bed.sim() {
        Some(_) => Address::Ip("127.0.0.1:9".parse().unwrap()),
        None => Address::Ip(TcpListener::bind(local()).unwrap().local_addr().unwrap()),
    }
}

/// A listener whose streams echo.
fn echo_listener(base: &EventBase, unix: bool) -> Listener {
    let accept = |listener: &Listener, accepted: event_core::Accepted| {
        let stream = accepted.into_stream();
        stream.set_callbacks(Echo);
        stream.enable(Direction::READ).unwrap();
        listener.free();
    };
    if unix {
        Listener::bind(base, socket_path(), accept).unwrap()
    } else {
        Listener::bind(base, local(), accept).unwrap()
    }
}

#[test]
fn connected_comes_before_data_and_before_what_was_written_first_leaves() {
    for unix in [false, true] {
        each_backend(|bed| {
            let mut base = bed.base();
            let listener = echo_listener(&base, unix);
            let address = listener.local_address().unwrap();
            let stream = BufferEvent::connect(&base, &address).unwrap();
            let seen = Recorder::on(&stream);
            stream.write("early").unwrap();
            assert_eq!((seen.len(), stream.pending_output()), (0, 5), "nothing happens inside the call");
            let (end, sink) = (stream.clone(), seen.clone());
            bed.run_until(&mut base, || sink.len() >= 3);
            assert_eq!(seen.take(), ["connected", "wrote, 0 left", "read early"]);
            end.free();
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        });
    }
}

#[test]
fn what_is_written_in_the_connected_event_leaves_and_an_empty_output_calls_no_write_callback() {
    each_backend(|bed| {
        let mut base = bed.base();
        let listener = echo_listener(&base, false);
        let stream = BufferEvent::connect(&base, &listener.local_address().unwrap()).unwrap();
        let (seen, sink) = (Seen::new(), Seen::new());
        let log = seen.clone();
        stream.set_event_cb(move |bev, event| {
            log.push(tests::streams::words(event));
            assert_eq!(bev.pending_output(), 0);
        });
        let log = seen.clone();
        stream.set_write_cb(move |_| log.push("wrote"));
        bed.run_until(&mut base, || !seen.is_empty());
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["connected"]);
        stream.set_callbacks(Recorder::new(&sink));
        stream.free();
    });
}

#[test]
fn a_refused_connect_is_an_event_of_no_direction_and_frees_if_nobody_handles_it() {
    each_backend(|bed| {
        let mut base = bed.base();
        let stream = BufferEvent::connect(&base, &nobody(bed)).unwrap();
        let (seen, sink) = (Seen::new(), Rc::new(RefCell::new(None)));
        let (log, error) = (seen.clone(), sink.clone());
        stream.set_event_cb(move |bev, event| {
            log.push(tests::streams::words(event));
            *error.borrow_mut() = bev.error();
            bev.free();
        });
        stream.enable(Direction::READ).unwrap();
        stream.write("lost").unwrap();
        assert_eq!(seen.len(), 0);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(seen.take(), ["error"]);
        let error = sink.take();
        assert!(
            matches!(&error, Some(Error::Connect(e)) if e.cause().kind() == io::ErrorKind::ConnectionRefused),
            "{error:?}"
        );
        let unwatched = BufferEvent::connect(&base, &nobody(bed)).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert!(unwatched.is_freed());
    });
}

#[test]
fn what_waits_in_the_backlog_of_a_listener_that_closes_is_told_of_an_error() {
    each_backend(|bed| {
        let mut base = bed.base();
        let listener =
            ListenerOptions::new().disabled(true).bind(&base, local(), |_, _| unreachable!()).unwrap();
        let stream = BufferEvent::connect(&base, &listener.local_address().unwrap()).unwrap();
        let seen = Recorder::on(&stream);
        bed.run_until(&mut base, || !seen.is_empty());
        listener.free();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(seen.take(), ["connected", "reading error"]);
        assert_eq!(stream.error().unwrap().raw_os_error(), Some(libc::ECONNRESET));
    });
}

#[test]
fn a_connect_that_cannot_even_be_tried_is_an_error_and_leaks_nothing() {
    each_backend(|bed| {
        let base = bed.base();
        let missing = Address::Unix(Some(socket_path()));
        let error = BufferEvent::connect(&base, &missing).unwrap_err();
        assert!(matches!(&error, Error::Io(e) if e.raw_os_error() == Some(libc::ENOENT)), "{error:?}");
        if let Some(sim) = bed.sim() {
            sim.set_open_file_limit(3);
            let error = BufferEvent::connect(&base, &nobody(bed)).unwrap_err();
            assert!(matches!(&error, Error::Io(e) if e.raw_os_error() == Some(libc::EMFILE)), "{error:?}");
            assert_eq!(sim.open_fds(), []);
        }
    });
}

#[test]
fn data_that_arrived_before_the_end_is_delivered_before_the_event() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.tcp_stream(&base);
        let seen = Recorder::on(&stream);
        peer.write_all(b"last words");
        peer.shutdown_write();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(seen.take(), ["read last words", "reading eof"]);
        assert!(peer.read().1);
    });
}

#[test]
fn data_that_arrived_before_a_reset_is_delivered_before_the_error() {
    each_seed(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let seen = Recorder::on(&stream);
        peer.write_all(b"cut");
        peer.reset();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        let seen = seen.take();
        assert_eq!(seen[0], "read cut");
        assert_eq!(seen[1..], ["reading error"]);
    });
}

#[test]
fn a_reset_in_the_middle_is_an_error_event_that_says_why() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.tcp_stream(&base);
        let (seen, why) = (Seen::new(), Rc::new(RefCell::new(None)));
        let (log, sink) = (seen.clone(), why.clone());
        stream.set_event_cb(move |bev, event| {
            log.push(tests::streams::words(event));
            *sink.borrow_mut() = bev.error();
            bev.free();
        });
        stream.enable(Direction::READ).unwrap();
        bed.settle(&mut base);
        peer.reset();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(seen.take(), ["reading error"]);
        let why = why.take();
        assert!(matches!(&why, Some(Error::Io(e)) if e.kind() == io::ErrorKind::ConnectionReset), "{why:?}");
    });
}

#[test]
fn a_reset_is_told_also_while_nothing_is_read() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.tcp_stream(&base);
        let seen = Recorder::on(&stream);
        bed.settle(&mut base);
        stream.disable(Direction::READ);
        peer.reset();
        bed.run_until(&mut base, || !seen.is_empty());
        assert_eq!(seen.take(), ["reading error"]);
        assert!(stream.is_freed());
    });
}

#[test]
fn the_peers_end_leaves_writing_possible() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.tcp_stream(&base);
        let seen = Recorder::patient_on(&stream);
        peer.write_all(b"question");
        peer.shutdown_write();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty, "neither reading nor unsent output");
        assert_eq!(seen.take(), ["read question", "reading eof"]);
        stream.write("answer").unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(seen.take(), ["wrote, 0 left"]);
        assert_eq!(peer.read(), (b"answer".to_vec(), false));
        stream.free();
        assert_eq!(peer.read(), (vec![], true));
    });
}

#[test]
fn our_end_leaves_reading_possible_and_the_end_both_ways_frees() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.tcp_stream(&base);
        let seen = Recorder::patient_on(&stream);
        stream.write("question").unwrap();
        stream.shutdown_write();
        let got = RefCell::new((Vec::new(), false));
        bed.run_until(&mut base, || {
            let (bytes, end) = peer.read();
            got.borrow_mut().0.extend(bytes);
            got.borrow_mut().1 |= end;
            got.borrow().1
        });
        assert_eq!(got.borrow().0, b"question");
        peer.write_all(b"answer");
        bed.run_until(&mut base, || seen.len() >= 2);
        assert_eq!(seen.take(), ["wrote, 0 left", "read answer"]);
        assert!(!stream.is_freed());
        peer.shutdown_write();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(seen.take(), ["reading eof"]);
        assert!(stream.is_freed(), "ended both ways");
    });
}

#[test]
fn a_stream_nobody_enabled_ends_with_its_last_handle() {
    each_backend(|bed| {
        let base = bed.base();
        let (stream, peer) = bed.tcp_stream(&base);
        let again = stream.clone();
        drop(stream);
        assert!(!peer.read().1);
        drop(again);
        assert!(peer.read().1);
    });
}

#[test]
fn from_enable_or_the_first_callback_on_the_loop_keeps_the_stream() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (enabled, first) = bed.tcp_stream(&base);
        enabled.enable(Direction::READ).unwrap();
        let (called, second) = bed.tcp_stream(&base);
        called.set_write_cb(|_| {});
        drop((enabled, called));
        bed.settle(&mut base);
        assert!(!first.read().1 && !second.read().1);
        drop(base);
        assert!(first.read().1 && second.read().1, "the loop's end closes what it owns");
    });
}

#[test]
fn a_scoped_stream_ends_with_its_owner() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.tcp_stream(&base);
        let scoped = stream.scoped();
        scoped.set_callbacks(Echo);
        scoped.enable(Direction::READ).unwrap();
        bed.settle(&mut base);
        drop(scoped);
        assert!(peer.read().1);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn what_a_callback_writes_leaves_in_order() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        stream.set_read_cb(|bev| {
            let input = bev.read_buffer();
            bev.write("<").unwrap();
            bev.write(input).unwrap();
            bev.output().add(b">");
            bev.write_with(10, |tail| tail.extend_from_slice(b"!")).unwrap();
        });
        stream.enable(Direction::READ).unwrap();
        let got = RefCell::new(Vec::new());
        peer.write_all(b"x");
        bed.run_until(&mut base, || {
            got.borrow_mut().extend(peer.read().0);
            got.borrow().len() >= 4
        });
        assert_eq!(*got.borrow(), b"<x>!");
    });
}

#[test]
fn a_new_stream_writes_and_does_not_read_and_a_freed_one_is_stale() {
    each_backend(|bed| {
        let base = bed.base();
        let (stream, _peer) = bed.stream(&base);
        assert_eq!(stream.enabled(), Direction::WRITE, "as made");
        stream.enable(Direction::READ).unwrap();
        assert_eq!(stream.enabled(), Direction::READ | Direction::WRITE);
        stream.disable(Direction::WRITE);
        assert_eq!(stream.enabled(), Direction::READ);
        assert!(stream.fd().is_some() && stream.partner().is_none() && stream.error().is_none());
        stream.free();
        stream.free();
        assert_eq!((stream.fd(), stream.is_freed()), (None, true));
        assert!(matches!(stream.enable(Direction::READ), Err(Error::Stale)));
        assert!(matches!(stream.write("x"), Err(Error::Stale)));
        assert!(matches!(stream.trigger(Direction::READ), Err(Error::Stale)));
        assert!(matches!(stream.peer_address(), Err(Error::Stale)));
    });
}

#[test]
fn a_trigger_runs_the_callback_whatever_the_buffers_hold() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, _peer) = bed.stream(&base);
        let seen = Seen::new();
        stream.set_callbacks(Recorder::idle(&seen));
        stream.trigger(Direction::READ).unwrap();
        stream.trigger(Direction::WRITE).unwrap();
        assert!(seen.is_empty());
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(seen.take(), ["has 0", "wrote, 0 left"]);
    });
}

#[test]
fn what_keeps_the_loop_running_is_reading_unsent_output_and_connecting() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        stream.set_callbacks(Echo);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty, "callbacks alone do not");
        stream.enable(Direction::READ).unwrap();
        let (handle, asked) = (base.handle(), Rc::new(Cell::new(false)));
        let flag = asked.clone();
        let timer = event_core::Timer::new(&base, move |_| {
            flag.set(true);
            handle.loopexit(None).unwrap();
        })
        .unwrap();
        timer.add(std::time::Duration::from_millis(2)).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Exit, "reading does");
        stream.disable(Direction::READ);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        let much = vec![b'x'; 4 << 20];
        stream.write(much).unwrap();
        timer.add(std::time::Duration::from_millis(2)).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Exit, "unsent output does");
        assert!(asked.get());
        stream.disable(Direction::WRITE);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty, "not if it is not to be sent");
        drop(peer);
    });
}

/// Asks for nothing but reading.
struct Plain(Seen);
impl Callbacks for Plain {
    fn on_read(&mut self, bev: &BufferEvent) {
        self.0.push(format!("read {}", bev.read_buffer().len()));
    }
}

#[test]
fn an_event_that_nobody_handles_frees_the_stream() {
    each_backend(|bed| {
        let mut base = bed.base();
        for kind in 0..3 {
            let (stream, peer) = bed.tcp_stream(&base);
            let seen = Seen::new();
            match kind {
                0 => stream.set_callbacks(Plain(seen.clone())),
                1 => stream.set_read_cb(|_| {}),
                _ => {}
            }
            stream.enable(Direction::READ).unwrap();
            peer.shutdown_write();
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
            assert!(stream.is_freed() && peer.read().1);
        }
    });
}

#[test]
fn the_default_object_survives_connected() {
    each_backend(|bed| {
        let mut base = bed.base();
        let listener = echo_listener(&base, false);
        let stream = BufferEvent::connect(&base, &listener.local_address().unwrap()).unwrap();
        let seen = Seen::new();
        stream.set_callbacks(Plain(seen.clone()));
        stream.enable(Direction::READ).unwrap();
        stream.write("hello").unwrap();
        bed.run_until(&mut base, || !seen.is_empty());
        assert_eq!(seen.take(), ["read 5"]);
        stream.shutdown_write();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn events_have_words() {
    assert_eq!(tests::streams::words(StreamEvent::EOF | StreamEvent::READING), "reading eof");
}
#[test]
fn after_the_loop_is_gone_every_call_is_harmless() {
    each_backend(|bed| {
        let base = bed.base();
        let (started, _one) = bed.stream(&base);
        started.enable(Direction::READ).unwrap();
        let (fresh, _other) = bed.stream(&base);
        drop(base);
        for stream in [started, fresh] {
            assert!(matches!(stream.enable(Direction::READ), Err(Error::LoopGone)));
            assert!(matches!(stream.write("x"), Err(Error::LoopGone)));
            assert!(matches!(stream.trigger(Direction::READ), Err(Error::LoopGone)));
            stream.set_callbacks(Echo);
            stream.set_read_cb(|_| {});
            stream.disable(Direction::READ);
            stream.set_watermark(Direction::READ, 1, Some(2));
            stream.set_max(None, Some(1));
            stream.set_timeouts(Some(std::time::Duration::ZERO), None);
            stream.set_deadline(None);
            stream.output().add(b"y");
            stream.input().add(b"z");
            stream.shutdown_write();
            stream.close_after_flush();
            stream.clear_callbacks();
            stream.free();
        }
    });
}
