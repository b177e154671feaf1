//! When a stream's callbacks come: marks, timeouts, deadlines, graceful ends.

// Everything here is part of a test.
#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use event_core::{Address, BufferEvent, Callbacks, Direction, Error, LoopEnd, StreamEvent, Timer};
use tests::streams::{Echo, Recorder, Seen, words};
use tests::{each_backend, each_seed};

const MS: Duration = Duration::from_millis(1);

#[test]
fn one_callback_for_new_data_and_none_for_what_was_left() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let seen = Recorder::idle_on(&stream);
        peer.write_all(b"abc");
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["has 3"]);
        peer.write_all(b"de");
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["has 5"]);
        stream.disable(Direction::READ);
        stream.enable(Direction::READ).unwrap();
        stream.set_watermark(Direction::READ, 1, None);
        bed.settle(&mut base);
        assert!(seen.is_empty());
        let mut out = [0; 4];
        assert_eq!((stream.read(&mut out), &out), (4, b"abcd"));
    });
}

#[test]
fn the_read_callback_waits_for_the_low_mark() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let seen = Seen::new();
        stream.set_callbacks(Recorder::new(&seen));
        stream.set_watermark(Direction::READ, 4, None);
        stream.enable(Direction::READ).unwrap();
        for byte in [b"a", b"b", b"c"] {
            peer.write_all(byte);
            bed.settle(&mut base);
        }
        assert!(seen.is_empty());
        peer.write_all(b"d");
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["read abcd"]);
        peer.write_all(b"rest");
        peer.write_all(b"!");
        peer.shutdown_write();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        let seen = seen.take().join("|");
        assert!(seen.ends_with("|reading eof"), "{seen}");
    });
}

#[test]
fn input_at_the_high_mark_pauses_without_a_spin_and_draining_resumes() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let seen = Seen::new();
        stream.set_callbacks(Recorder::idle(&seen));
        stream.set_watermark(Direction::READ, 0, Some(10));
        stream.enable(Direction::READ).unwrap();
        peer.write_all(&[b'x'; 24]);
        let before = bed.sim().map(|sim| sim.calls());
        bed.pass(&mut base, 3 * MS);
        assert_eq!(seen.take(), ["has 10"]);
        if let (Some(sim), Some(before)) = (bed.sim(), before) {
            let recvs =
                sim.calls()[event_core::testing::Call::Recv] - before[event_core::testing::Call::Recv];
            assert_eq!(recvs, 1);
        }
        // From outside the loop.
        stream.input().drain(6);
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["has 10"]);
        // From another callback.
        let other = stream.clone();
        let timer = Timer::new(&base, move |_| {
            let mut input = other.input();
            input.drain(7);
        })
        .unwrap();
        timer.add(Duration::ZERO).unwrap();
        bed.run_until(&mut base, || !seen.is_empty());
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["has 10"]);
        stream.set_watermark(Direction::READ, 0, None);
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["has 11"], "a raised mark resumes too");
    });
}

#[test]
fn a_paused_stream_waits_for_nothing() {
    // The loop sleeps: the number of waits does not grow with time.
    each_seed(|bed| {
        let sim = bed.sim().unwrap();
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let seen = Seen::new();
        stream.set_callbacks(Recorder::idle(&seen));
        stream.set_watermark(Direction::READ, 0, Some(10));
        stream.enable(Direction::READ).unwrap();
        peer.write_all(&[b'x'; 24]);
        let handle = base.handle();
        sim.at(Duration::from_secs(3600), move || handle.loopexit(None).unwrap());
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Exit);
        assert_eq!(seen.take(), ["has 10"]);
        let waits = sim.calls()[event_core::testing::Call::Wait];
        assert!(waits <= 6, "{waits} waits");
    });
}

#[test]
fn a_low_mark_above_the_high_one_does_not_stall() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let seen = Seen::new();
        stream.set_callbacks(Recorder::new(&seen));
        stream.set_watermark(Direction::READ, 8, Some(4));
        stream.enable(Direction::READ).unwrap();
        peer.write_all(b"12345678");
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["read 12345678"]);
    });
}

#[test]
fn the_write_callback_comes_at_the_low_mark_only() {
    each_seed(|bed| {
        let mut base = bed.base();
        let sim = bed.sim().unwrap();
        sim.set_send_buffer(10);
        let (stream, peer) = bed.stream(&base);
        let seen = Seen::new();
        stream.set_callbacks(Recorder::new(&seen));
        stream.set_watermark(Direction::WRITE, 5, None);
        stream.write([b'x'; 30].to_vec()).unwrap();
        bed.settle(&mut base);
        assert!(seen.is_empty(), "20 are left");
        assert_eq!(peer.read().0.len(), 10);
        bed.settle(&mut base);
        assert!(seen.is_empty(), "10 are left");
        assert_eq!(peer.read().0.len(), 10);
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["wrote, 0 left"]);
        stream.write([b'x'; 4].to_vec()).unwrap();
        bed.settle(&mut base);
        assert!(seen.is_empty(), "the kernel took none");
        peer.read();
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["wrote, 0 left"]);
    });
}

#[test]
fn freeing_in_the_write_callback_when_the_output_is_empty_loses_nothing() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.tcp_stream(&base);
        stream.set_write_cb(|bev| {
            if bev.pending_output() == 0 {
                bev.free();
            }
        });
        stream.write(vec![b'x'; tests::few_under_miri(3, 1) << 20]).unwrap();
        let (got, ended) = (Cell::new(0), Cell::new(false));
        bed.run_until(&mut base, || {
            let (bytes, end) = peer.read();
            got.set(got.get() + bytes.len());
            ended.set(ended.get() || end);
            ended.get()
        });
        assert_eq!(got.get(), tests::few_under_miri(3, 1) << 20);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn a_graceful_close_sends_everything_first_and_reads_no_more() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.tcp_stream(&base);
        let seen = Recorder::on(&stream);
        stream.write(vec![b'x'; tests::few_under_miri(3, 1) << 20]).unwrap();
        stream.close_after_flush();
        stream.close_after_flush();
        let got = Cell::new(0);
        bed.run_until(&mut base, || {
            let (bytes, end) = peer.read();
            got.set(got.get() + bytes.len());
            end
        });
        assert_eq!(got.get(), tests::few_under_miri(3, 1) << 20);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(seen.take(), ["wrote, 0 left"]);
        let (empty, peer) = bed.tcp_stream(&base);
        empty.close_after_flush();
        assert!(empty.is_freed() && peer.read().1, "nothing to send: at once");
    });
}

#[test]
fn a_graceful_close_while_connecting_sends_first() {
    each_backend(|bed| {
        let mut base = bed.base();
        let got = Rc::new(RefCell::new(Vec::new()));
        let sink = got.clone();
        let listener = event_core::Listener::bind(&base, "127.0.0.1:0", move |listener, accepted| {
            let (stream, sink) = (accepted.into_stream(), sink.clone());
            stream.set_read_cb(move |bev| sink.borrow_mut().extend(bev.read_buffer().to_vec()));
            stream.enable(Direction::READ).unwrap();
            listener.free();
        })
        .unwrap();
        let stream = BufferEvent::connect(&base, &listener.local_address().unwrap()).unwrap();
        stream.write("parting").unwrap();
        stream.close_after_flush();
        assert!(!stream.is_freed());
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(*got.borrow(), b"parting");
    });
}

#[test]
fn a_graceful_close_under_a_guard_waits_for_what_the_guard_holds() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        stream.set_callbacks(Echo);
        let mut output = stream.output();
        output.add(b"held");
        stream.close_after_flush();
        bed.settle(&mut base);
        assert!(!stream.is_freed());
        drop(output);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(peer.read(), (b"held".to_vec(), true));
        let (stream, peer) = bed.stream(&base);
        let mut output = stream.output();
        output.add(b"end");
        stream.shutdown_write();
        assert!(!peer.read().1);
        drop(output);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(peer.read(), (b"end".to_vec(), true));
        // A guard that gives nothing back does not hold it up for ever.
        let output = stream.output();
        stream.close_after_flush();
        drop(output);
        assert!(stream.is_freed());
    });
}

#[test]
fn a_graceful_close_from_within_what_appends_output_sends_that_too() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let inner = stream.clone();
        stream
            .write_with(10, |tail| {
                inner.close_after_flush();
                tail.extend_from_slice(b"still");
            })
            .unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(peer.read(), (b"still".to_vec(), true));
    });
}

#[test]
fn a_peer_that_never_reads_is_cut_off_by_the_write_timeout_or_a_deadline() {
    each_backend(|bed| {
        for by_deadline in [false, true] {
            let mut base = bed.base();
            let (stream, peer) = bed.tcp_stream(&base);
            let seen = Seen::new();
            struct Cut(Seen);
            impl Callbacks for Cut {
                fn on_read(&mut self, _: &BufferEvent) {}
                fn on_event(&mut self, _: &BufferEvent, event: StreamEvent) {
                    self.0.push(words(event));
                }
                fn on_deadline(&mut self, bev: &BufferEvent) {
                    self.0.push("deadline");
                    bev.free();
                }
            }
            stream.set_callbacks(Cut(seen.clone()));
            stream.write(vec![b'x'; 12 << 20]).unwrap();
            if by_deadline {
                stream.set_deadline(Some(base.elapsed() + 20 * MS));
            } else {
                stream.set_timeouts(None, Some(20 * MS));
            }
            stream.close_after_flush();
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
            assert!(stream.is_freed());
            assert_eq!(seen.take(), [if by_deadline { "deadline" } else { "writing timeout" }]);
            drop(peer);
        }
    });
}

#[test]
fn a_graceful_close_is_a_close_when_sending_fails() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.tcp_stream(&base);
        let seen = Seen::new();
        stream.set_callbacks(Recorder::patient(&seen));
        stream.write(vec![b'x'; 12 << 20]).unwrap();
        bed.settle(&mut base);
        stream.close_after_flush();
        peer.reset();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert!(stream.is_freed() && seen.is_empty());
    });
}

#[test]
fn a_late_shutdown_after_the_peers_end_frees() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let seen = Recorder::patient_on(&stream);
        peer.shutdown_write();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(seen.take(), ["reading eof"]);
        stream.shutdown_write();
        assert!(stream.is_freed() && peer.read().1);
    });
}

#[test]
fn the_read_timeout_passes_in_silence_only_and_starts_anew_with_data() {
    each_seed(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let seen = Seen::new();
        stream.set_callbacks(Recorder::patient(&seen));
        stream.set_timeouts(Some(10 * MS), None);
        stream.enable(Direction::READ).unwrap();
        for _ in 0..4 {
            bed.pass(&mut base, 7 * MS);
            peer.write_all(b"x");
            bed.settle(&mut base);
        }
        bed.pass(&mut base, 9 * MS);
        assert_eq!(seen.take(), ["read x"; 4]);
        bed.pass(&mut base, MS);
        assert_eq!(seen.take(), ["reading timeout"]);
        assert_eq!(stream.enabled(), Direction::WRITE, "the direction is off");
        bed.pass(&mut base, 100 * MS);
        assert!(seen.is_empty());
        peer.write_all(b"y");
        stream.enable(Direction::READ).unwrap();
        bed.pass(&mut base, 5 * MS);
        assert_eq!(seen.take(), ["read y"]);
    });
}

#[test]
fn the_read_timeout_does_not_run_while_nothing_is_read() {
    each_seed(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let seen = Seen::new();
        stream.set_callbacks(Recorder::idle(&seen));
        stream.set_watermark(Direction::READ, 0, Some(2));
        stream.set_timeouts(Some(10 * MS), None);
        bed.pass(&mut base, 50 * MS);
        assert!(seen.is_empty(), "not enabled yet");
        stream.enable(Direction::READ).unwrap();
        bed.pass(&mut base, 9 * MS);
        peer.write_all(b"xyz");
        bed.pass(&mut base, 50 * MS);
        assert_eq!(seen.take(), ["has 2"], "paused by the high mark");
        stream.input().drain(2);
        bed.pass(&mut base, 9 * MS);
        assert_eq!(seen.take(), ["has 1"], "counted from here on");
        stream.disable(Direction::READ);
        bed.pass(&mut base, 50 * MS);
        assert!(seen.is_empty(), "disabled");
        stream.enable(Direction::READ).unwrap();
        bed.pass(&mut base, 9 * MS);
        assert!(seen.is_empty());
        bed.pass(&mut base, MS);
        assert_eq!(seen.take(), ["reading timeout"]);
    });
}

#[test]
fn the_write_timeout_runs_while_output_waits_and_appending_does_not_restart_it() {
    each_seed(|bed| {
        let mut base = bed.base();
        bed.sim().unwrap().set_send_buffer(10);
        let (stream, peer) = bed.stream(&base);
        let seen = Seen::new();
        stream.set_callbacks(Recorder::patient(&seen));
        stream.set_timeouts(None, Some(10 * MS));
        bed.pass(&mut base, 50 * MS);
        stream.write([b'x'; 10].to_vec()).unwrap();
        bed.pass(&mut base, 50 * MS);
        assert_eq!(seen.take(), ["wrote, 0 left"], "no output, no timeout");
        stream.write([b'x'; 30].to_vec()).unwrap();
        bed.pass(&mut base, 6 * MS);
        stream.write("y").unwrap();
        stream.output().add(b"z");
        bed.pass(&mut base, 3 * MS);
        assert_eq!(peer.read().0.len(), 10);
        bed.settle(&mut base);
        bed.pass(&mut base, 9 * MS);
        assert!(seen.is_empty(), "some of it got on");
        stream.write("y").unwrap();
        bed.pass(&mut base, MS);
        assert_eq!(seen.take(), ["writing timeout"]);
        assert_eq!(stream.enabled(), Direction::empty());
        stream.enable(Direction::WRITE).unwrap();
        bed.pass(&mut base, 9 * MS);
        assert!(seen.is_empty());
        bed.pass(&mut base, MS);
        assert_eq!(seen.take(), ["writing timeout"]);
    });
}

#[test]
fn the_write_timeout_bounds_a_connect() {
    each_seed(|bed| {
        let mut base = bed.base();
        let sim = bed.sim().unwrap();
        let server = sim.listen(&Address::Ip("127.0.0.1:0".parse().unwrap())).unwrap();
        sim.set_latency(Duration::from_secs(3600));
        let stream = BufferEvent::connect(&base, &server.address().unwrap()).unwrap();
        let seen = Seen::new();
        stream.set_callbacks(Recorder::new(&seen));
        stream.set_timeouts(Some(MS), Some(10 * MS));
        stream.enable(Direction::READ).unwrap();
        bed.pass(&mut base, 9 * MS);
        assert!(seen.is_empty());
        bed.pass(&mut base, MS);
        assert_eq!(seen.take(), ["writing timeout"]);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(sim.open_fds(), []);
    });
}

#[test]
fn no_timeout_comes_early_and_one_that_moves_nearer_counts_at_once() {
    each_seed(|bed| {
        let mut base = bed.base();
        let (stream, _peer) = bed.stream(&base);
        let seen = Recorder::patient_on(&stream);
        // Armed while idle.
        stream.set_timeouts(Some(50 * MS), None);
        bed.pass(&mut base, 20 * MS);
        stream.set_deadline(Some(base.elapsed() + 100 * MS));
        stream.set_timeouts(Some(200 * MS), None);
        bed.pass(&mut base, 60 * MS);
        assert!(seen.is_empty(), "the old deadline passed in silence");
        stream.set_deadline(Some(base.elapsed() + 5 * MS));
        bed.pass(&mut base, 4 * MS);
        assert!(seen.is_empty());
        bed.pass(&mut base, MS);
        assert_eq!(seen.take(), ["deadline"]);
        stream.set_deadline(Some(base.elapsed()));
        stream.set_deadline(None);
        bed.pass(&mut base, 100 * MS);
        assert!(seen.is_empty(), "taken away");
        bed.pass(&mut base, 40 * MS);
        assert_eq!(seen.take(), ["reading timeout"]);
    });
}

#[test]
fn data_that_lies_in_the_socket_beats_its_own_timeout() {
    each_seed(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let seen = Seen::new();
        stream.set_callbacks(Recorder::patient(&seen));
        stream.set_timeouts(Some(10 * MS), None);
        stream.enable(Direction::READ).unwrap();
        bed.settle(&mut base);
        peer.write_all(b"x");
        bed.sim().unwrap().advance(30 * MS);
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["read x"]);
    });
}

#[test]
fn a_disabled_direction_moves_nothing() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let seen = Seen::new();
        stream.set_callbacks(Recorder::new(&seen));
        stream.disable(Direction::WRITE);
        stream.write("later").unwrap();
        peer.write_all(b"x");
        bed.settle(&mut base);
        assert_eq!((peer.read().0.len(), stream.pending_output(), seen.len()), (0, 5, 0));
        stream.enable(Direction::READ | Direction::WRITE).unwrap();
        bed.settle(&mut base);
        assert_eq!(peer.read().0, b"later");
        let mut seen = seen.take();
        seen.sort();
        assert_eq!(seen, ["read x", "wrote, 0 left"]);
    });
}

#[test]
fn an_fd_that_the_backend_refuses_is_an_error_of_enable_and_stays_usable() {
    each_backend(|bed| {
        if bed.method != "epoll" {
            return;
        }
        let base = bed.base();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let stream = BufferEvent::new(&base, std::os::fd::OwnedFd::from(file)).unwrap();
        let seen = Seen::new();
        stream.set_callbacks(Recorder::new(&seen));
        for _ in 0..2 {
            let error = stream.enable(Direction::READ).unwrap_err();
            assert!(matches!(&error, Error::Io(e) if e.raw_os_error() == Some(libc::EPERM)), "{error:?}");
            assert_eq!((stream.enabled(), stream.is_freed()), (Direction::WRITE, false));
        }
        assert!(seen.is_empty());
    });
}
