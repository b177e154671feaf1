//! What bounds a stream, and what one exchange costs in system calls and memory.

// Everything here is part of a test.
#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use event_core::testing::{Call, Sim};
use event_core::{BufferEvent, Callbacks, Direction, Error, EventBase, LoopEnd, LoopFlags, StreamEvent};
use tests::streams::{Echo, Recorder, Seen, words};
use tests::{each_backend, each_seed};

/// Writes events down with their error, and does what it is told after the first.
struct Limited {
    seen: Seen,
    then: fn(&BufferEvent),
}

impl Callbacks for Limited {
    fn on_read(&mut self, bev: &BufferEvent) {
        self.seen.push(format!("has {}", bev.pending_input()));
    }
    fn on_event(&mut self, bev: &BufferEvent, event: StreamEvent) {
        self.seen.push(format!("{}: {}", words(event), bev.error().unwrap()));
        (self.then)(bev);
    }
}

#[test]
fn input_that_nobody_takes_is_an_error_at_the_bound_and_frees_if_unhandled() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let seen = Seen::new();
        stream.set_callbacks(Limited { seen: seen.clone(), then: |bev| bev.free() });
        stream.set_max(Some(100), None);
        stream.enable(Direction::READ).unwrap();
        peer.write_all(&[b'x'; 60]);
        bed.settle(&mut base);
        peer.write_all(&[b'x'; 60]);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        let expected = format!("error: {}", Error::InputFull);
        assert_eq!(seen.take(), ["has 60", "has 100", &expected]);
        let (plain, peer) = bed.stream(&base);
        plain.set_read_cb(|_| {});
        plain.set_max(Some(100), None);
        plain.enable(Direction::READ).unwrap();
        peer.write_all(&[b'x'; 100]);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert!(plain.is_freed());
    });
}

#[test]
fn input_at_its_bound_without_a_callback_or_below_the_low_mark_is_an_error_too() {
    each_backend(|bed| {
        for low in [0, 1000] {
            for pair in [false, true] {
                let mut base = bed.base();
                let (stream, peer) = bed.stream(&base);
                let (one, other) = BufferEvent::pair(&base).unwrap();
                let victim = if pair { other } else { stream };
                victim.set_watermark(Direction::READ, low, None);
                victim.set_max(Some(100), None);
                victim.enable(Direction::READ).unwrap();
                peer.write_all(&[b'x'; 200]);
                one.write(vec![b'x'; 200]).unwrap();
                bed.settle(&mut base);
                assert!(victim.is_freed(), "low mark {low}, pair: {pair}");
            }
        }
    });
}

#[test]
fn full_input_may_be_answered_and_closed() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let seen = Seen::new();
        stream.set_callbacks(Limited {
            seen: seen.clone(),
            then: |bev| {
                bev.write("too much").unwrap();
                bev.close_after_flush();
            },
        });
        stream.set_max(Some(10), None);
        stream.enable(Direction::READ).unwrap();
        peer.write_all(&[b'x'; 10]);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert!(stream.is_freed());
        assert_eq!(peer.read(), (b"too much".to_vec(), true));
    });
}

#[test]
fn full_input_may_be_taken_and_read_on() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let seen = Seen::new();
        stream.set_callbacks(Limited {
            seen: seen.clone(),
            then: |bev| {
                bev.input().drain(usize::MAX);
                bev.enable(Direction::READ).unwrap();
            },
        });
        stream.set_max(Some(10), None);
        stream.enable(Direction::READ).unwrap();
        for _ in 0..2 {
            peer.write_all(&[b'x'; 10]);
            bed.settle(&mut base);
            let expected = format!("error: {}", Error::InputFull);
            assert_eq!(seen.take(), ["has 10", &expected]);
        }
        peer.write_all(&[b'x'; 9]);
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["has 9"]);
    });
}

#[test]
fn a_users_mark_at_or_below_the_bound_pauses_in_silence() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let seen = Seen::new();
        stream.set_callbacks(Limited { seen: seen.clone(), then: |bev| bev.free() });
        stream.set_max(Some(10), None);
        stream.set_watermark(Direction::READ, 0, Some(10));
        stream.enable(Direction::READ).unwrap();
        peer.write_all(&[b'x'; 20]);
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["has 10"]);
    });
}

#[test]
fn a_bound_takes_effect_when_it_is_set() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let seen = Seen::new();
        stream.set_callbacks(Limited { seen: seen.clone(), then: |_| {} });
        stream.set_watermark(Direction::READ, 0, None);
        stream.enable(Direction::READ).unwrap();
        peer.write_all(&[b'x'; 20]);
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["has 20"]);
        stream.set_max(Some(15), None);
        assert!(seen.is_empty(), "not inside the call");
        bed.settle(&mut base);
        assert_eq!(seen.take(), [format!("error: {}", Error::InputFull)]);
        stream.set_max(Some(30), None);
        stream.enable(Direction::READ).unwrap();
        peer.write_all(&[b'x'; 5]);
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["has 25"]);
        // Zero means zero: a stream that may hold nothing cannot read.
        stream.input().drain(usize::MAX);
        stream.set_max(Some(0), None);
        bed.settle(&mut base);
        assert_eq!(seen.take(), [format!("error: {}", Error::InputFull)]);
    });
}

#[test]
fn output_over_its_bound_keeps_the_bytes_and_is_an_error_each_time_it_gets_there() {
    each_seed(|bed| {
        let mut base = bed.base();
        bed.sim().unwrap().set_send_buffer(10);
        let (stream, peer) = bed.stream(&base);
        let seen = Seen::new();
        stream.set_callbacks(Limited { seen: seen.clone(), then: |_| {} });
        stream.set_max(None, Some(100));
        stream.write(vec![b'a'; 100]).unwrap();
        for _ in 0..2 {
            bed.settle(&mut base);
            assert!(seen.is_empty());
            assert!(matches!(stream.write(vec![b'b'; 30]), Err(Error::OutputFull)));
            assert!(matches!(stream.write("c"), Err(Error::OutputFull)));
            assert!(seen.is_empty(), "never inside the call");
            bed.settle(&mut base);
            assert_eq!(seen.take(), [format!("error: {}", Error::OutputFull)], "once");
            let got = RefCell::new(Vec::new());
            bed.run_until(&mut base, || {
                got.borrow_mut().extend(peer.read().0);
                got.borrow().len() >= 131
            });
            let got = got.take();
            assert!(got[..100] == [b'a'; 100] && got[100..130] == [b'b'; 30] && got[130..] == [b'c']);
            stream.write(vec![b'a'; 100]).unwrap();
        }
    });
}

#[test]
fn output_that_has_left_is_forgotten_when_the_next_is_over_its_bound() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let seen = Seen::new();
        stream.set_callbacks(Limited { seen: seen.clone(), then: |_| {} });
        stream.set_max(None, Some(100));
        for _ in 0..2 {
            assert!(matches!(stream.write(vec![b'a'; 101]), Err(Error::OutputFull)));
            let got = Cell::new(0);
            bed.run_until(&mut base, || {
                got.set(got.get() + peer.read().0.len());
                got.get() == 101
            });
            bed.settle(&mut base);
            assert_eq!(seen.take(), [format!("error: {}", Error::OutputFull)]);
        }
    });
}

#[test]
fn output_over_its_bound_closes_if_nobody_handles_it_also_through_the_guard() {
    each_backend(|bed| {
        let mut base = bed.base();
        for how in 0..3 {
            let (stream, _peer) = bed.stream(&base);
            stream.set_max(None, Some(10));
            match how {
                0 => assert!(stream.write([b'x'; 11].to_vec()).is_err()),
                1 => stream.output().add(&[b'x'; 11]),
                _ => {
                    let full = stream.write_with(11, |tail| tail.extend_from_slice(&[b'x'; 11]));
                    assert!(matches!(full, Err(Error::OutputFull)));
                }
            }
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
            assert!(stream.is_freed());
        }
    });
}

#[test]
fn full_input_does_not_hide_full_output() {
    each_seed(|bed| {
        let mut base = bed.base();
        bed.sim().unwrap().set_send_buffer(10);
        let (stream, peer) = bed.stream(&base);
        let seen = Seen::new();
        stream.set_callbacks(Limited { seen: seen.clone(), then: |_| {} });
        stream.set_max(Some(5), Some(100));
        stream.enable(Direction::READ).unwrap();
        peer.write_all(b"12345");
        bed.settle(&mut base);
        assert_eq!(seen.take().len(), 2);
        assert!(stream.write(vec![b'x'; 200]).is_err());
        bed.settle(&mut base);
        assert_eq!(seen.take(), [format!("error: {}", Error::OutputFull)]);
    });
}

// Costs.

/// What `run` asks of the kernel: receives, sends of either kind, waits, everything.
fn calls_of(sim: &Sim, run: impl FnOnce()) -> [u64; 4] {
    let before = sim.calls();
    run();
    let after = sim.calls();
    let spent = |call: Call| after[call] - before[call];
    [
        spent(Call::Recv),
        spent(Call::Send) + spent(Call::Sendv),
        spent(Call::Wait),
        after.total() - before.total(),
    ]
}

fn one_turn(base: &mut EventBase) {
    base.run(LoopFlags::ONCE).unwrap();
}

#[test]
fn a_request_and_its_reply_are_three_calls() {
    each_seed(|bed| {
        let sim = bed.sim().unwrap();
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        stream.set_read_cb(|bev| {
            bev.read_buffer();
            // Replies of one callback leave together, however many there are.
            for _ in 0..200 {
                bev.write("x").unwrap();
            }
        });
        stream.enable(Direction::READ).unwrap();
        for turn in 0..3 {
            peer.write_all(b"request");
            let calls = calls_of(sim, || one_turn(&mut base));
            if turn > 0 {
                assert_eq!(calls, [1, 1, 1, 3]);
            }
            assert_eq!(peer.read().0, [b'x'; 200]);
        }
    });
}

#[test]
fn sixty_four_writers_into_one_upstream_are_one_send_a_batch() {
    each_seed(|bed| {
        let sim = bed.sim().unwrap();
        let mut base = bed.base();
        let (upstream, server) = bed.stream(&base);
        let mut clients = Vec::new();
        for _ in 0..64 {
            let (stream, peer) = bed.stream(&base);
            let upstream = upstream.clone();
            stream.set_read_cb(move |bev| upstream.write(bev.read_buffer()).unwrap());
            stream.enable(Direction::READ).unwrap();
            clients.push(peer);
        }
        bed.settle(&mut base);
        for peer in &clients {
            peer.write_all(b"line\n");
        }
        let [recvs, sends, ..] = calls_of(sim, || bed.settle(&mut base));
        // 64 callbacks, flushed after 32 of them and at the end.
        assert_eq!((recvs, sends), (64, 2));
        assert_eq!(server.read().0.len(), 64 * 5);
    });
}

#[test]
fn one_sender_does_not_hold_the_loop() {
    each_seed(|bed| {
        let mut base = bed.base();
        bed.sim().unwrap().set_send_buffer(1 << 20);
        let (stream, peer) = bed.stream(&base);
        let seen = Recorder::idle_on(&stream);
        peer.write_all(&vec![b'x'; 1 << 20]);
        base.run(LoopFlags::ONCE).unwrap();
        assert_eq!(seen.take(), [format!("has {}", 4 * 64 * 1024)], "four blocks a visit");
        bed.settle(&mut base);
        assert_eq!(stream.pending_input(), 1 << 20);
    });
}

#[test]
fn one_reader_does_not_hold_the_loop() {
    each_backend(|bed| {
        let mut base = bed.base();
        if let Some(sim) = bed.sim() {
            sim.set_send_buffer(64 << 20);
        }
        let (stream, peer) = bed.stream(&base);
        let seen = Seen::new();
        stream.set_callbacks(Recorder::new(&seen));
        for _ in 0..40 {
            stream.write(vec![b'x'; 300_000]).unwrap();
        }
        let got = Cell::new(0);
        bed.run_until(&mut base, || {
            got.set(got.get() + peer.read().0.len());
            got.get() == 40 * 300_000
        });
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["wrote, 0 left"]);
    });
}

#[test]
#[cfg_attr(miri, ignore = "six hundred streams, as a flush takes 256")]
fn many_streams_that_others_wrote_to_are_all_flushed_most_urgent_first() {
    each_seed(|bed| {
        let mut base = bed.base();
        base.priority_init(2).unwrap();
        let order = Rc::new(RefCell::new(Vec::new()));
        let mut peers = Vec::new();
        for n in 0..600 {
            let (stream, peer) = bed.stream(&base);
            stream.set_priority(u8::from(n % 2 == 0)).unwrap();
            let order = order.clone();
            stream.set_write_cb(move |_| order.borrow_mut().push(n));
            stream.write("x").unwrap();
            peers.push(peer);
        }
        bed.settle(&mut base);
        assert!(peers.iter().all(|peer| peer.read().0 == b"x"));
        let order = order.take();
        assert_eq!(order.len(), 600);
        assert!(order[..200].iter().all(|n| n % 2 == 1), "{order:?}");
    });
}

#[test]
fn an_echo_survives_every_cut_of_every_call() {
    for seed in 1..=tests::few_under_miri(20, 1) {
        let sim = Sim::new(seed);
        let mut base = sim.event_base().unwrap();
        sim.set_cuts(true);
        sim.set_send_buffer(100);
        let (stream, peer) = sim.stream(&base);
        stream.set_callbacks(Echo);
        stream.enable(Direction::READ).unwrap();
        let all: Vec<u8> = (0..tests::few_under_miri(5000_u32, 500)).map(|n| (n * 7) as u8).collect();
        let (mut sent, mut got) = (0, Vec::new());
        for _ in 0..100_000 {
            sent += peer.write(&all[sent..]).unwrap_or(0);
            base.run(LoopFlags::NONBLOCK).unwrap();
            got.extend(peer.read());
            if got.len() == all.len() {
                break;
            }
        }
        assert!(got == all, "seed {seed}: {} of {}", got.len(), all.len());
    }
}

#[test]
fn a_write_that_the_kernel_cuts_at_each_byte_goes_on_behind_it() {
    let text = b"The quick brown fox jumps over the lazy dog.";
    for cut in (1..text.len()).step_by(tests::few_under_miri(1, 9)) {
        for refused in [false, true] {
            let sim = Sim::new(1);
            let mut base = sim.event_base().unwrap();
            let (stream, peer) = sim.stream(&base);
            let seen = Seen::new();
            stream.set_callbacks(Recorder::new(&seen));
            let script = sim.script(stream.fd().unwrap());
            let script = if refused { script.send_fails(libc::EAGAIN) } else { script };
            script.send_at_most(cut).send_fails(libc::EAGAIN).send_at_most(1);
            stream.write(&text[..20]).unwrap();
            let mut second = event_core::Buffer::new();
            second.add_reference(event_core::Bytes::copy_from_slice(&text[20..]));
            stream.write(second).unwrap();
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
            assert_eq!(peer.read(), text, "cut at {cut}");
            assert_eq!(seen.take(), ["wrote, 0 left"]);
        }
    }
}

#[test]
fn streams_left_over_by_a_flush_go_before_those_written_to_meanwhile() {
    each_seed(|bed| {
        let mut base = bed.base();
        let order = tests::Log::new();
        let stream = |name: u32| {
            let (stream, peer) = bed.stream(&base);
            let sink = order.clone();
            stream.set_write_cb(move |_| sink.push(name));
            (stream, peer)
        };
        // More than one flush writes; the first block that goes writes to one more stream.
        let streams: Vec<_> = (0..300).map(stream).collect();
        let late = stream(1000);
        let written = late.0.clone();
        let _end = tests::streams::on_release(move |_| written.write("late").unwrap());
        let mut block = event_core::Buffer::new();
        block.add_reference(tests::streams::Block::bytes(1, b'b', 2000));
        streams[0].0.write(block).unwrap();
        for (stream, _) in &streams[1..] {
            stream.write("x").unwrap();
        }
        bed.run_until(&mut base, || order.len() == 301);
        let expected: Vec<u32> = (0..300).chain([1000]).collect();
        assert_eq!(order.take(), expected);
    });
}
