//! Whatever user code does to a stream, wherever it runs: callbacks, drops, referenced memory, panics.

// Everything here is part of a test.
#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use event_core::{Buffer, BufferEvent, Callbacks, Direction, LoopEnd, StreamEvent};
use tests::streams::{Block, Canary, Recorder, Seen, on_release};
use tests::{Bed, Peer, each_backend};

/// Reads until `n` bytes have come.
fn read_n(bed: &Bed, base: &mut event_core::EventBase, peer: &Peer, n: usize) -> Vec<u8> {
    let got = RefCell::new(Vec::new());
    bed.run_until(base, || {
        got.borrow_mut().extend(peer.read().0);
        got.borrow().len() >= n
    });
    got.take()
}

/// A buffer that refers to a block of its own.
fn block(name: u32, byte: u8, len: usize) -> Buffer {
    let mut buffer = Buffer::new();
    buffer.add_reference(Block::bytes(name, byte, len));
    buffer
}

#[test]
fn a_stream_that_its_callback_frees_by_the_id_of_what_runs_is_freed() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let held = Rc::new(());
        let (canary, own) = (held.clone(), stream.clone());
        stream.set_read_cb(move |stream| {
            let _captured = (&canary, &own);
            let handle = stream.handle();
            handle.free(handle.running_event().unwrap()).unwrap();
            assert!(stream.is_freed());
        });
        stream.enable(Direction::READ).unwrap();
        peer.write(b"x");
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(Rc::strong_count(&held), 1, "its callback was dropped");
        bed.run_until(&mut base, || peer.read().1);
    });
}

#[test]
fn what_a_released_block_writes_stands_behind_what_was_written_before() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let writer = stream.clone();
        let _end = on_release(move |name| {
            if name < 3 {
                writer.write(block(name + 1, b'b' + name as u8, 2000)).unwrap();
            } else {
                writer.write(".").unwrap();
            }
        });
        stream.write(block(0, b'a', 2000)).unwrap();
        stream.write("tail").unwrap();
        let got = read_n(bed, &mut base, &peer, 8005);
        let mut expected = vec![b'a'; 2000];
        expected.extend(b"tail");
        for byte in [b'b', b'c', b'd'] {
            expected.extend(vec![byte; 2000]);
        }
        expected.extend(b".");
        assert_eq!(got, expected);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn what_a_block_writes_that_is_copied_and_released_on_its_way_back_is_kept() {
    // A small foreign piece is copied behind other bytes and let go at once: while the output stands aside.
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let writer = stream.clone();
        let _end = on_release(move |name| writer.write(format!("{name}")).unwrap());
        {
            let mut output = stream.output();
            output.add(&[b'a'; 600]);
            // Goes into the cell that the guard has emptied.
            stream.write(block(7, b'b', 5)).unwrap();
            stream.write(block(8, b'c', 5)).unwrap();
        }
        let got = read_n(bed, &mut base, &peer, 612);
        let text = String::from_utf8(got).unwrap();
        assert_eq!(text.replace(['7', '8'], ""), format!("{}bbbbbccccc", "a".repeat(600)));
        assert!(text.contains('7') && text.contains('8'), "{text}");
    });
}

#[test]
fn a_released_block_may_free_its_stream() {
    each_backend(|bed| {
        let mut base = bed.base();
        if let Some(sim) = bed.sim() {
            sim.set_send_buffer(1 << 20);
        }
        let (stream, peer) = bed.stream(&base);
        let seen = Seen::new();
        stream.set_callbacks(Recorder::new(&seen));
        let victim = stream.clone();
        let _end = on_release(move |name| {
            if name == 0 {
                victim.free();
            }
        });
        // More pieces than leave in one call: some are left when the stream goes.
        for name in 0..70 {
            stream.write(block(name, b'a', 1100)).unwrap();
        }
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert!(stream.is_freed() && stream.error().is_none(), "{:?}", stream.error());
        assert_eq!((seen.len(), stream.pending_output()), (0, 0));
        let (bytes, end) = peer.read();
        assert!(bytes.starts_with(&[b'a'; 1100]) && end);
    });
}

#[test]
fn a_released_block_may_stop_writing() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let target = stream.clone();
        let _end = on_release(move |name| {
            if name == 0 {
                target.disable(Direction::WRITE);
                target.write(block(3, b'z', 2000)).unwrap();
            }
        });
        stream.write(block(0, b'a', 2000)).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!((peer.read().0.len(), stream.pending_output()), (2000, 2000));
        stream.enable(Direction::WRITE).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(peer.read().0, [b'z'; 2000]);
    });
}

#[test]
fn a_panic_while_output_is_appended_loses_nothing_of_it() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        stream.write("before").unwrap();
        let broken = catch_unwind(AssertUnwindSafe(|| {
            stream.write_with(10, |_| panic!("on purpose")).unwrap();
        }));
        assert!(broken.is_err());
        stream.write(" after").unwrap();
        assert_eq!(read_n(bed, &mut base, &peer, 12), b"before after");
    });
}

#[test]
fn a_guard_may_outlive_its_stream() {
    each_backend(|bed| {
        let base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let released = Rc::new(Cell::new(0));
        let count = released.clone();
        let _end = on_release(move |_| count.set(count.get() + 1));
        stream.write(block(0, b'a', 2000)).unwrap();
        let (mut output, input) = (stream.output(), stream.input());
        stream.free();
        assert!(peer.read().1);
        output.add(b"more");
        assert_eq!((output.len(), released.get()), (2004, 0));
        drop((output, input));
        assert_eq!((stream.pending_output(), released.get()), (0, 1), "a freed stream holds no bytes");
    });
}

/// The kinds of callback a stream has.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Read,
    Write,
    Event,
    Deadline,
}

const KINDS: [Kind; 4] = [Kind::Read, Kind::Write, Kind::Event, Kind::Deadline];

/// What the object under test does in one of its callbacks.
type Action = Rc<dyn Fn(&BufferEvent)>;

/// Does `action` in the callback of one kind and writes down which were called.
struct Acting {
    kind: Kind,
    action: Action,
    seen: Seen,
    _canary: Canary,
}

impl Acting {
    fn called(&self, kind: Kind, bev: &BufferEvent) {
        self.seen.push(format!("{kind:?}"));
        if kind == self.kind {
            (self.action.clone())(bev);
        }
    }
}

impl Callbacks for Acting {
    fn on_read(&mut self, bev: &BufferEvent) {
        self.called(Kind::Read, bev);
    }
    fn on_write(&mut self, bev: &BufferEvent) {
        self.called(Kind::Write, bev);
    }
    fn on_event(&mut self, bev: &BufferEvent, _: StreamEvent) {
        self.called(Kind::Event, bev);
    }
    fn on_deadline(&mut self, bev: &BufferEvent) {
        self.called(Kind::Deadline, bev);
    }
}

/// Has a callback of one kind called, and then, if there still is one, the read callback; tells what was seen, and
/// whether the stream was freed and how many of its first callbacks were alive before the loop ended.
fn provoke(bed: &Bed, kind: Kind, closures: bool, action: Action) -> (Vec<String>, bool, usize) {
    let mut base = bed.base();
    let (stream, peer) = bed.stream(&base);
    let (seen, canary) = (Seen::new(), Canary::new());
    let acting = || Acting { kind, action: action.clone(), seen: seen.clone(), _canary: canary.clone() };
    if closures {
        let (mut read, mut write, mut event) = (acting(), acting(), acting());
        stream.set_read_cb(move |bev| read.on_read(bev));
        stream.set_write_cb(move |bev| write.on_write(bev));
        stream.set_event_cb(move |bev, what| event.on_event(bev, what));
    } else {
        stream.set_callbacks(acting());
    }
    stream.enable(Direction::READ).unwrap();
    match kind {
        Kind::Read => peer.write_all(b"x"),
        Kind::Write => stream.write("x").unwrap(),
        Kind::Event => peer.shutdown_write(),
        Kind::Deadline => stream.set_deadline(Some(base.elapsed())),
    }
    bed.run_until(&mut base, || !seen.is_empty());
    bed.settle(&mut base);
    if !stream.is_freed() {
        peer.write(b"y");
    }
    bed.settle(&mut base);
    (seen.take(), stream.is_freed(), canary.alive())
}

fn name(kind: Kind) -> String {
    format!("{kind:?}")
}

#[test]
fn a_stream_may_be_freed_in_each_of_its_callbacks() {
    each_backend(|bed| {
        for (kind, closures) in kinds() {
            let (seen, freed, alive) = provoke(bed, kind, closures, Rc::new(|bev| bev.free()));
            assert_eq!(seen, [name(kind)]);
            assert!(freed);
            assert_eq!(alive, 0, "{kind:?}, closures: {closures}");
        }
    });
}

#[test]
fn callbacks_that_are_taken_away_inside_themselves_are_gone() {
    each_backend(|bed| {
        for (kind, closures) in kinds() {
            let (seen, _, alive) = provoke(bed, kind, closures, Rc::new(|bev| bev.clear_callbacks()));
            assert_eq!(seen, [name(kind)]);
            assert_eq!(alive, 0, "{kind:?}, closures: {closures}");
        }
    });
}

#[test]
fn callbacks_may_be_replaced_in_each_of_them() {
    each_backend(|bed| {
        for (kind, closures) in kinds() {
            let new = Seen::new();
            let log = new.clone();
            let action = move |bev: &BufferEvent| bev.set_callbacks(Recorder::patient(&log));
            let (seen, _, alive) = provoke(bed, kind, closures, Rc::new(action));
            assert_eq!(seen, [name(kind)]);
            assert_eq!(alive, 0, "{kind:?}, closures: {closures}");
            if kind == Kind::Event {
                assert!(new.is_empty(), "nothing comes after the end");
            } else {
                let read = if kind == Kind::Read { "read xy" } else { "read y" };
                assert_eq!(new.take(), [read], "{kind:?}, closures: {closures}");
            }
        }
    });
}

#[test]
fn one_closure_may_replace_an_object_inside_it_and_the_object_goes() {
    each_backend(|bed| {
        for kind in KINDS {
            let new = Seen::new();
            let log = new.clone();
            let action = move |bev: &BufferEvent| {
                let log = log.clone();
                bev.set_read_cb(move |bev| log.push(format!("closure {}", bev.read_buffer().len())));
            };
            let (seen, _, alive) = provoke(bed, kind, false, Rc::new(action));
            assert_eq!(seen, [name(kind)]);
            assert_eq!(alive, 0, "{kind:?}");
            assert_eq!(new.len(), usize::from(kind != Kind::Event), "{kind:?}");
        }
    });
}

#[test]
fn a_closure_may_replace_another_and_itself_and_stays_otherwise() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let seen = Seen::new();
        let (log, n) = (seen.clone(), Cell::new(0));
        stream.set_read_cb(move |bev| {
            n.set(n.get() + 1);
            log.push(format!("first {}", n.get()));
            bev.read_buffer();
            let inner = log.clone();
            bev.set_write_cb(move |_| inner.push("write"));
            if n.get() == 2 {
                let inner = log.clone();
                bev.set_read_cb(move |_| inner.push("second"));
            }
            bev.write("x").unwrap();
        });
        stream.enable(Direction::READ).unwrap();
        for _ in 0..3 {
            peer.write_all(b"y");
            bed.settle(&mut base);
        }
        assert_eq!(seen.take(), ["first 1", "write", "first 2", "write", "second"]);
    });
}

/// Every kind of callback, as an object's and as a closure's.
fn kinds() -> impl Iterator<Item = (Kind, bool)> {
    let objects = KINDS.into_iter().map(|kind| (kind, false));
    objects.chain(KINDS.into_iter().filter(|kind| *kind != Kind::Deadline).map(|kind| (kind, true)))
}

#[test]
fn a_neighbour_freed_in_the_same_batch_is_not_called() {
    each_backend(|bed| {
        let mut base = bed.base();
        let streams: Vec<_> = (0..2).map(|_| bed.stream(&base)).collect();
        let called = Rc::new(Cell::new(0));
        for n in 0..2 {
            let (called, neighbour) = (called.clone(), streams[1 - n].0.clone());
            streams[n].0.set_read_cb(move |_| {
                called.set(called.get() + 1);
                neighbour.free();
            });
            streams[n].0.enable(Direction::READ).unwrap();
        }
        for (_, peer) in &streams {
            peer.write_all(b"x");
        }
        bed.settle(&mut base);
        assert_eq!(called.get(), 1);
        assert_eq!(streams.iter().filter(|(stream, _)| stream.is_freed()).count(), 1);
    });
}

#[test]
fn a_stream_written_to_by_a_neighbour_and_freed_in_the_same_batch_sends_nothing() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let (other, end) = bed.stream(&base);
        stream.set_read_cb(move |_| {
            other.write("lost").unwrap();
            other.free();
        });
        stream.enable(Direction::READ).unwrap();
        peer.write_all(b"x");
        bed.settle(&mut base);
        assert_eq!(end.read(), (vec![], true));
    });
}

#[test]
fn a_guard_held_across_writes_keeps_the_order_of_the_bytes() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let mut output = stream.output();
        output.add(b"1");
        stream.write("3").unwrap();
        output.add(b"2");
        // The loop runs meanwhile: what was written apart from the guard may leave first, and nothing is lost.
        drop(output);
        stream.write("4").unwrap();
        assert_eq!(read_n(bed, &mut base, &peer, 4), b"1234");
        let held = stream.output();
        stream.write("5").unwrap();
        assert_eq!(read_n(bed, &mut base, &peer, 1), b"5");
        drop(held);
        let mut input = stream.input();
        stream.enable(Direction::READ).unwrap();
        peer.write_all(b"later");
        bed.run_until(&mut base, || stream.pending_input() == 5);
        input.add(b"first ");
        drop(input);
        assert_eq!(stream.read_buffer(), "first later");
    });
}

/// Says "dropped" in the end, and uses the stream to do so.
struct Talkative(BufferEvent, Seen);
impl Drop for Talkative {
    fn drop(&mut self) {
        self.1.push("dropped");
        let _ = self.0.write("x");
        self.0.set_read_cb(|_| {});
        self.0.free();
    }
}

#[test]
fn what_drops_with_a_callback_may_use_the_stream() {
    each_backend(|bed| {
        let base = bed.base();
        for how in 0..5 {
            let (stream, _peer) = bed.stream(&base);
            let seen = Seen::new();
            let talkative = Talkative(stream.clone(), seen.clone());
            stream.set_read_cb(move |_| {
                let _ = &talkative;
            });
            match how {
                0 => stream.set_read_cb(|_| {}),
                1 => stream.clear_callbacks(),
                2 => stream.set_callbacks(Recorder::new(&Seen::new())),
                _ => stream.free(),
            }
            assert_eq!(seen.take(), ["dropped"]);
            assert!(stream.is_freed());
        }
    });
}

#[test]
fn callbacks_that_capture_their_own_handle_go_with_the_loop() {
    each_backend(|bed| {
        let base = bed.base();
        let canary = Canary::new();
        let (object, closures, connecting, fresh) = (
            bed.stream(&base),
            bed.stream(&base),
            BufferEvent::pair(&base).unwrap(),
            BufferEvent::pair(&base).unwrap(),
        );
        struct Own(BufferEvent, Canary);
        impl Callbacks for Own {
            fn on_read(&mut self, _: &BufferEvent) {
                let _ = (&self.0, &self.1);
            }
        }
        object.0.set_callbacks(Own(object.0.clone(), canary.clone()));
        let own = || (closures.0.clone(), canary.clone());
        let (a, b, c) = (own(), own(), own());
        closures.0.set_read_cb(move |_| drop(a.clone()));
        closures.0.set_write_cb(move |_| drop(b.clone()));
        closures.0.set_event_cb(move |_, _| drop(c.clone()));
        // Each end's callback holds the other end.
        connecting.0.set_callbacks(Own(connecting.1.clone(), canary.clone()));
        connecting.1.set_callbacks(Own(connecting.0.clone(), canary.clone()));
        fresh.0.set_callbacks(Own(fresh.0.clone(), canary.clone()));
        assert_eq!(canary.alive(), 7);
        drop(base);
        assert_eq!(canary.alive(), 0);
    });
}

#[test]
fn a_panic_in_a_callback_leaves_the_others_of_the_batch_and_their_output() {
    each_backend(|bed| {
        let mut base = bed.base();
        let streams: Vec<_> = (0..5).map(|_| bed.stream(&base)).collect();
        let relays: Vec<_> = (0..5).map(|_| bed.stream(&base)).collect();
        let canary = Canary::new();
        for (n, (stream, peer)) in streams.iter().enumerate() {
            let (canary, relay) = (canary.clone(), relays[n].0.clone());
            stream.set_read_cb(move |bev| {
                let _ = &canary;
                bev.read_buffer();
                relay.write("relayed").unwrap();
                assert!(n != 2, "on purpose");
            });
            stream.enable(Direction::READ).unwrap();
            peer.write_all(b"x");
        }
        let mut panics = 0;
        for _ in 0..tests::few_under_miri(50, 10) {
            panics += usize::from(catch_unwind(AssertUnwindSafe(|| bed.settle(&mut base))).is_err());
        }
        assert_eq!((panics, canary.alive()), (1, 4));
        for (n, ((stream, peer), (_, relayed))) in streams.iter().zip(&relays).enumerate() {
            assert_eq!(relayed.read(), (b"relayed".to_vec(), false), "{n}");
            assert_eq!((stream.is_freed(), peer.read().1), (n == 2, n == 2));
        }
    });
}

#[test]
fn a_panic_of_released_memory_frees_that_stream_and_loses_no_other_of_the_flush() {
    each_backend(|bed| {
        let mut base = bed.base();
        let _end = on_release(|name| assert!(name != 2, "on purpose"));
        let streams: Vec<_> = (0..5).map(|_| bed.stream(&base)).collect();
        for (n, (stream, _)) in streams.iter().enumerate() {
            stream.write(block(n as u32, b'a', 2000)).unwrap();
        }
        let mut panics = 0;
        for _ in 0..tests::few_under_miri(50, 10) {
            panics += usize::from(catch_unwind(AssertUnwindSafe(|| bed.settle(&mut base))).is_err());
        }
        assert_eq!(panics, 1);
        for (n, (stream, peer)) in streams.iter().enumerate() {
            let (bytes, end) = peer.read();
            assert_eq!((stream.is_freed(), bytes.len(), end), (n == 2, 2000, n == 2), "{n}");
        }
        streams[3].0.write("more").unwrap();
        assert_eq!(read_n(bed, &mut base, &streams[3].1, 4), b"more");
    });
}

#[test]
fn a_callback_may_stop_the_loop_and_its_output_leaves() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let (other, end) = bed.stream(&base);
        stream.set_read_cb(move |bev| {
            bev.read_buffer();
            bev.write("mine").unwrap();
            other.write("theirs").unwrap();
            bev.handle().loopbreak().unwrap();
        });
        stream.enable(Direction::READ).unwrap();
        peer.write_all(b"x");
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Break);
        assert_eq!((peer.read().0, end.read().0), (b"mine".to_vec(), b"theirs".to_vec()));
    });
}

#[test]
fn a_callback_may_add_events_and_streams_from_within_a_release() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let fired = Rc::new(Cell::new(false));
        let (flag, handle) = (fired.clone(), base.handle());
        let _end = on_release(move |_| {
            let flag = flag.clone();
            handle.once(-1, event_core::What::empty(), None, move |_| flag.set(true)).unwrap();
            let (one, other) = BufferEvent::pair(&handle).unwrap();
            other.set_callbacks(tests::streams::Echo);
            other.enable(Direction::READ).unwrap();
            one.write("x").unwrap();
            one.close_after_flush();
        });
        stream.write(block(0, b'a', 2000)).unwrap();
        stream.close_after_flush();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert!(fired.get());
        let (bytes, end) = peer.read();
        assert!(bytes == [b'a'; 2000] && end);
    });
}
