//! Streams over streams: what passes a filter, how it ends, what it may hold, and what happens when somebody goes.

// Everything here is part of a test.
#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use event_core::{
    Address, Buffer, BufferEvent, Callbacks, Direction, Error, EventBase, Filter, Filtered, FlushMode,
    Listener, LoopEnd, LoopFlags, StreamEvent,
};
use tests::streams::{Canary, Echo, Recorder, Seen, words};
use tests::{Bed, Log, Peer, each_backend, each_seed, must_panic, quiet_panic};

const MS: Duration = Duration::from_millis(1);

/// Passes everything on.
struct Identity;

impl Filter for Identity {}

/// Changes every byte in the same way both ways.
struct Xor(u8);

impl Xor {
    fn pass(&self, from: &mut Buffer, to: &mut Buffer, room: usize) -> io::Result<Filtered> {
        let mut bytes = from.split_to(from.len().min(room)).into_vec();
        bytes.iter_mut().for_each(|byte| *byte ^= self.0);
        to.add(&bytes);
        Ok(Filtered::Done)
    }
}

impl Filter for Xor {
    fn input(
        &mut self,
        from: &mut Buffer,
        to: &mut Buffer,
        room: usize,
        _: FlushMode,
    ) -> io::Result<Filtered> {
        self.pass(from, to, room)
    }

    fn output(
        &mut self,
        from: &mut Buffer,
        to: &mut Buffer,
        room: usize,
        _: FlushMode,
    ) -> io::Result<Filtered> {
        self.pass(from, to, room)
    }
}

/// Holds back all that is not a whole line, both ways; on a flush it gives it, at the end a full stop behind.
struct Lines(Log<FlushMode>);

impl Lines {
    fn pass(&self, from: &mut Buffer, to: &mut Buffer, mode: FlushMode) -> Filtered {
        let whole = match (mode, from.to_vec().iter().rposition(|byte| *byte == b'\n')) {
            (FlushMode::Normal, None) => return Filtered::NeedMore,
            (FlushMode::Normal, Some(last)) => last + 1,
            _ => from.len(),
        };
        from.remove_buffer(to, whole);
        Filtered::Done
    }
}

impl Filter for Lines {
    fn input(
        &mut self,
        from: &mut Buffer,
        to: &mut Buffer,
        _: usize,
        mode: FlushMode,
    ) -> io::Result<Filtered> {
        Ok(self.pass(from, to, mode))
    }

    fn output(
        &mut self,
        from: &mut Buffer,
        to: &mut Buffer,
        _: usize,
        mode: FlushMode,
    ) -> io::Result<Filtered> {
        self.0.push(mode);
        let filtered = self.pass(from, to, mode);
        if mode == FlushMode::Finished {
            to.add(b".");
            return Ok(Filtered::NeedMore);
        }
        Ok(filtered)
    }
}

fn stack(bottom: &BufferEvent, layers: usize) -> BufferEvent {
    (0..layers).fold(bottom.clone(), |under, _| BufferEvent::filter(&under, Identity).unwrap())
}

fn read_to_end(bed: &Bed, base: &mut EventBase, peer: &Peer) -> Vec<u8> {
    let all = RefCell::new(Vec::new());
    bed.run_until(base, || {
        let (bytes, ended) = peer.read();
        all.borrow_mut().extend(bytes);
        ended
    });
    all.into_inner()
}

fn read(bed: &Bed, base: &mut EventBase, peer: &Peer, n: usize) -> Vec<u8> {
    let all = RefCell::new(Vec::new());
    bed.run_until(base, || {
        all.borrow_mut().extend(peer.read().0);
        all.borrow().len() >= n
    });
    all.into_inner()
}

fn pattern(n: usize) -> Vec<u8> {
    (0..n).map(|n| (n % 251) as u8).collect()
}

#[test]
fn bytes_are_changed_both_ways_over_a_socket_and_over_a_pair() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (under, peer) = bed.stream(&base);
        let bev = BufferEvent::filter(&under, Xor(1)).unwrap();
        assert_eq!(bev.underlying().unwrap(), under);
        assert!(under.underlying().is_none());
        bev.set_callbacks(Echo);
        bev.enable(Direction::READ).unwrap();
        peer.write_all(b"abc");
        assert_eq!(read(bed, &mut base, &peer, 3), b"abc");
        bev.write("abc").unwrap();
        assert_eq!(read(bed, &mut base, &peer, 3), b"`cb");
        assert_eq!(bev.fd(), under.fd());
        bev.free();
        assert!(under.is_freed() && bev.underlying().is_none());

        let (one, other) = BufferEvent::pair(&base).unwrap();
        let plain =
            |byte: u8| move |from: &mut Buffer, to: &mut Buffer, room, _| Xor(byte).pass(from, to, room);
        let one = BufferEvent::filter_with(&one, plain(7), plain(7)).unwrap();
        other.set_callbacks(Echo);
        other.enable(Direction::READ).unwrap();
        let seen = Seen::new();
        one.set_callbacks(Recorder::new(&seen));
        one.enable(Direction::READ).unwrap();
        one.write("through and back").unwrap();
        bed.run_until(&mut base, || seen.len() >= 2);
        assert_eq!(seen.take(), ["wrote, 0 left", "read through and back"]);
        one.close_after_flush();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert!(other.is_freed());
    });
}

/// In how many turns an echo is back with the peer, and how many its writer then takes to hear of it.
fn turns(bed: &Bed, layers: usize) -> (usize, usize) {
    let mut base = bed.base();
    let (under, peer) = bed.stream(&base);
    let bev = stack(&under, layers);
    bev.set_read_cb(|bev| bev.write(bev.read_buffer()).unwrap());
    let wrote = Rc::new(Cell::new(false));
    let sink = wrote.clone();
    bev.set_write_cb(move |bev| sink.set(bev.pending_output() == 0));
    bev.enable(Direction::READ).unwrap();
    bed.settle(&mut base);
    peer.write_all(b"there and back");
    let (mut there, mut told) = (0, 0);
    for turn in 1..10 {
        base.run(LoopFlags::NONBLOCK).unwrap();
        if there == 0 && peer.read().0 == b"there and back" {
            there = turn;
        }
        if told == 0 && wrote.get() {
            told = turn;
        }
    }
    (there, told)
}

#[test]
fn three_filters_cost_no_turn() {
    each_backend(|bed| {
        let plain = turns(bed, 0);
        assert_ne!(plain, (0, 0));
        assert_eq!(turns(bed, 3), plain);
        assert_eq!(turns(bed, 32), plain);
    });
}

#[test]
fn a_stack_of_filters_carries_more_than_any_layer_may_hold() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (one, other) = BufferEvent::pair(&base).unwrap();
        let (mut ours, mut theirs) = (one, other);
        for layer in 1..=3 {
            ours.set_watermark(Direction::READ, 0, Some(700));
            ours.set_watermark(Direction::WRITE, 0, Some(900));
            theirs.set_watermark(Direction::WRITE, 0, Some(500));
            ours = BufferEvent::filter(&ours, Xor(layer)).unwrap();
            theirs = BufferEvent::filter(&theirs, Xor(layer)).unwrap();
        }
        let all = pattern(100_000);
        theirs.set_callbacks(Echo);
        theirs.enable(Direction::READ).unwrap();
        let got = Rc::new(RefCell::new(Vec::new()));
        let sink = got.clone();
        ours.set_watermark(Direction::READ, 0, Some(300));
        ours.set_read_cb(move |bev| sink.borrow_mut().extend(bev.read_buffer().to_vec()));
        ours.enable(Direction::READ).unwrap();
        ours.write(all.clone()).unwrap();
        bed.run_until(&mut base, || {
            let mut layer = ours.underlying();
            while let Some(stream) = layer {
                assert!(stream.pending_input() <= 700);
                layer = stream.underlying();
            }
            got.borrow().len() == all.len()
        });
        assert!(*got.borrow() == all);
    });
}

#[test]
fn a_filter_that_needs_more_gets_it_together_with_what_it_left() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (under, peer) = bed.stream(&base);
        let modes = Log::new();
        let bev = BufferEvent::filter(&under, Lines(modes.clone())).unwrap();
        let seen = Seen::new();
        bev.set_callbacks(Recorder::new(&seen));
        bev.enable(Direction::READ).unwrap();
        peer.write_all(b"half a li");
        bed.settle(&mut base);
        assert_eq!((seen.len(), bev.pending_input(), under.pending_input()), (0, 0, 9));
        peer.write_all(b"ne\nand");
        bed.run_until(&mut base, || !seen.is_empty());
        assert_eq!(seen.take(), ["read half a line\n"]);
        bev.write("no line yet").unwrap();
        bed.settle(&mut base);
        assert_eq!((bev.pending_output(), peer.read().0.len()), (11, 0));
        // It is asked for each write, and not otherwise.
        assert_eq!(modes.take(), [FlushMode::Normal]);
        bev.write(" now\n rest").unwrap();
        assert_eq!(read(bed, &mut base, &peer, 16), b"no line yet now\n");
        assert_eq!(bev.pending_output(), 5);
        assert_eq!(seen.take(), Vec::<String>::new(), "not all is sent");
        bev.flush(Direction::WRITE, FlushMode::Normal).unwrap();
        bed.settle(&mut base);
        assert_eq!(bev.pending_output(), 5);
        bev.flush(Direction::WRITE | Direction::READ, FlushMode::Flush).unwrap();
        assert_eq!(bev.pending_output(), 5, "nothing is filtered in a call");
        assert_eq!(read(bed, &mut base, &peer, 5), b" rest");
        bed.settle(&mut base);
        let mut told = seen.take();
        told.sort();
        assert_eq!(told, ["read and", "wrote, 0 left"]);
    });
}

#[test]
fn the_end_is_told_to_the_filter_once_and_goes_out_behind_the_bytes() {
    each_backend(|bed| {
        for closes in [true, false] {
            let mut base = bed.base();
            let (under, peer) = bed.stream(&base);
            let modes = Log::new();
            let middle = BufferEvent::filter(&under, Lines(modes.clone())).unwrap();
            let bev = BufferEvent::filter(&middle, Identity).unwrap();
            bev.write("tail").unwrap();
            if closes {
                bev.close_after_flush();
                bev.close_after_flush();
            } else {
                bev.enable(Direction::READ).unwrap();
                bev.shutdown_write();
                bev.shutdown_write();
            }
            assert_eq!(read_to_end(bed, &mut base, &peer), b"tail.");
            assert_eq!(modes.take().iter().filter(|mode| **mode == FlushMode::Finished).count(), 1);
            bed.settle(&mut base);
            assert_eq!(bev.is_freed(), closes);
            if !closes {
                // The other way is still open.
                peer.write_all(b"late\n");
                bed.run_until(&mut base, || bev.pending_input() == 5);
                peer.shutdown_write();
            }
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
            assert!(under.is_freed());
        }
    });
}

#[test]
fn finishing_by_flush_ends_the_filter_and_leaves_the_socket_open() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (under, peer) = bed.stream(&base);
        let bev = BufferEvent::filter(&under, Lines(Log::new())).unwrap();
        bev.write("one").unwrap();
        bev.flush(Direction::WRITE, FlushMode::Finished).unwrap();
        assert_eq!(read(bed, &mut base, &peer, 4), b"one.");
        bed.settle(&mut base);
        assert!(!peer.read().1);
        bev.write("two").unwrap();
        bev.close_after_flush();
        assert_eq!(read_to_end(bed, &mut base, &peer), b"two.");

        let (one, other) = BufferEvent::pair(&base).unwrap();
        let one = BufferEvent::filter(&one, Identity).unwrap();
        let seen = Seen::new();
        other.set_callbacks(Recorder::new(&seen));
        other.enable(Direction::READ).unwrap();
        one.flush(Direction::WRITE, FlushMode::Finished).unwrap();
        bed.run_until(&mut base, || !seen.is_empty());
        assert_eq!(seen.take(), ["reading eof"]);
    });
}

#[test]
fn an_end_comes_up_behind_the_bytes_and_what_the_filter_leaves_is_a_cut() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (under, peer) = bed.stream(&base);
        let bev = stack(&under, 3);
        let seen = Seen::new();
        bev.set_callbacks(Recorder::patient(&seen));
        bev.enable(Direction::READ).unwrap();
        peer.write_all(b"last words");
        peer.shutdown_write();
        bed.run_until(&mut base, || seen.len() >= 2);
        assert_eq!(seen.take(), ["read last words", "reading eof"]);
        bev.write("still").unwrap();
        bev.shutdown_write();
        assert_eq!(read_to_end(bed, &mut base, &peer), b"still");
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert!(bev.is_freed() && under.is_freed());

        // Takes pairs only.
        let pairs = |from: &mut Buffer, to: &mut Buffer, _: usize, _: FlushMode| {
            let even = from.len() / 2 * 2;
            from.remove_buffer(to, even);
            Ok(Filtered::NeedMore)
        };
        let (under, peer) = bed.stream(&base);
        let bev = BufferEvent::filter_with(&under, pairs, pairs).unwrap();
        bev.set_callbacks(Recorder::new(&seen));
        bev.enable(Direction::READ).unwrap();
        let errors = Rc::new(Cell::new(None));
        let sink = errors.clone();
        peer.write_all(b"abc");
        peer.shutdown_write();
        bev.set_event_cb(move |bev, event| {
            sink.set(Some((words(event), bev.read_buffer().to_vec(), bev.error())));
            bev.free();
        });
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        let (event, bytes, error) = errors.take().unwrap();
        assert_eq!((&*event, &*bytes), ("reading error", &b"ab"[..]));
        assert!(matches!(error, Some(Error::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof));
    });
}

#[test]
fn a_filter_that_needs_more_than_the_high_mark_of_the_stream_below_gets_it() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (under, peer) = bed.stream(&base);
        under.set_watermark(Direction::READ, 0, Some(10));
        let bev = BufferEvent::filter(&under, Lines(Log::new())).unwrap();
        let seen = Seen::new();
        bev.set_callbacks(Recorder::new(&seen));
        bev.enable(Direction::READ).unwrap();
        peer.write_all(b"this is a line that is longer\nand th");
        bed.run_until(&mut base, || !seen.is_empty());
        assert_eq!(seen.take(), ["read this is a line that is longer\n"]);
        assert!(under.pending_input() <= 10);
        // Up to the bound.
        under.set_max(Some(50), None);
        peer.write_all(&[b'x'; 100]);
        bed.run_until(&mut base, || bev.is_freed());
        assert_eq!(seen.take(), ["error"]);
        // Over a pair as well.
        let (one, other) = BufferEvent::pair(&base).unwrap();
        one.set_watermark(Direction::READ, 0, Some(10));
        let bev = BufferEvent::filter(&one, Lines(Log::new())).unwrap();
        bev.set_callbacks(Recorder::new(&seen));
        bev.enable(Direction::READ).unwrap();
        other.write("another line that is longer\n").unwrap();
        bed.run_until(&mut base, || !seen.is_empty());
        assert_eq!(seen.take(), ["read another line that is longer\n"]);
        bev.free();
    });
}

#[test]
fn an_error_of_a_filter_is_the_error_event_behind_what_it_gave() {
    each_backend(|bed| {
        for fails_writing in [false, true] {
            let mut base = bed.base();
            let (under, peer) = bed.stream(&base);
            let failing = |fails: bool| {
                move |from: &mut Buffer, to: &mut Buffer, room: usize, _: FlushMode| {
                    if !fails {
                        from.remove_buffer(to, room);
                        return Ok(Filtered::Done);
                    }
                    from.remove_buffer(to, 3);
                    Err(io::Error::new(io::ErrorKind::InvalidData, "that is no such data"))
                }
            };
            let bev =
                BufferEvent::filter_with(&under, failing(!fails_writing), failing(fails_writing)).unwrap();
            let top = BufferEvent::filter(&bev, Identity).unwrap();
            let seen = Seen::new();
            top.set_callbacks(Recorder::patient(&seen));
            top.enable(Direction::READ).unwrap();
            if fails_writing {
                top.write("good and bad").unwrap();
            } else {
                peer.write_all(b"good and bad");
            }
            bed.run_until(&mut base, || seen.all().iter().any(|word| word.contains("error")));
            let expected: &[&str] =
                if fails_writing { &["writing error"] } else { &["read goo", "reading error"] };
            assert_eq!(seen.take(), expected);
            let off = if fails_writing { Direction::WRITE } else { Direction::READ };
            assert!(!top.enabled().contains(off));
            assert!(
                matches!(top.error(), Some(Error::Io(error)) if error.kind() == io::ErrorKind::InvalidData)
            );
            if fails_writing {
                assert_eq!(read(bed, &mut base, &peer, 3), b"goo");
            }
            bed.settle(&mut base);
            assert!(seen.is_empty(), "told once");
            top.free();
        }
    });
}

#[test]
fn what_is_stuck_behind_the_high_mark_comes_when_room_is_made() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (under, peer) = bed.stream(&base);
        let bev = stack(&under, 2);
        bev.set_watermark(Direction::READ, 0, Some(4096));
        let seen = Seen::new();
        bev.set_callbacks(Recorder::idle(&seen));
        bev.enable(Direction::READ).unwrap();
        peer.write_all(&pattern(4343));
        bed.run_until(&mut base, || bev.pending_input() == 4096);
        bed.settle(&mut base);
        let told = seen.take();
        assert_eq!(told.last().map(|word| &**word), Some("has 4096"));
        bed.settle(&mut base);
        assert!(seen.is_empty(), "a paused stream calls nobody");
        bev.input().drain(300);
        bed.run_until(&mut base, || bev.pending_input() == 4043);
        assert_eq!(seen.take(), ["has 4043"]);
        assert!(bev.read_buffer() == pattern(4343)[300..]);
        // An end behind it waits as well.
        peer.write_all(&pattern(5000));
        peer.shutdown_write();
        bed.run_until(&mut base, || bev.pending_input() == 4096);
        bed.settle(&mut base);
        assert!(!seen.take().contains(&"reading eof".to_owned()));
        bev.read_buffer();
        bed.run_until(&mut base, || seen.all().contains(&"reading eof".to_owned()));
        assert_eq!(seen.take()[0], "has 904");
    });
}

/// Takes in all there is, and gives it out as there is room.
struct Hoard(Buffer);

impl Filter for Hoard {
    fn input(
        &mut self,
        from: &mut Buffer,
        to: &mut Buffer,
        room: usize,
        _: FlushMode,
    ) -> io::Result<Filtered> {
        self.0.add_buffer(from);
        let len = self.0.len().min(room);
        self.0.remove_buffer(to, len);
        Ok(Filtered::Done)
    }
}

#[test]
fn what_a_filter_holds_comes_after_a_pause_that_met_it_on_its_way() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (under, peer) = bed.stream(&base);
        let bev = BufferEvent::filter(&under, Hoard(Buffer::new())).unwrap();
        bev.set_watermark(Direction::READ, 0, Some(4));
        let got = Rc::new(RefCell::new(Vec::new()));
        let log = got.clone();
        bev.set_read_cb(move |bev| log.borrow_mut().extend(bev.read_buffer().to_vec()));
        bev.enable(Direction::READ).unwrap();
        peer.write_all(b"0123456789");
        for _ in 0..3 {
            let before = got.borrow().len();
            bed.run_until(&mut base, || got.borrow().len() > before);
            // It is about to go on.
            bev.disable(Direction::READ);
            bed.settle(&mut base);
            bev.enable(Direction::READ).unwrap();
        }
        bed.run_until(&mut base, || *got.borrow() == b"0123456789");
    });
}

/// Makes a thousand bytes of each.
fn inflate(from: &mut Buffer, to: &mut Buffer, room: usize, _: FlushMode) -> io::Result<Filtered> {
    let mut left = room;
    while left > 0 && !from.is_empty() {
        from.drain(1);
        to.add(&[0; 1000]);
        left = left.saturating_sub(1000);
    }
    Ok(Filtered::Done)
}

#[test]
fn a_filter_that_makes_much_of_little_is_held_to_the_marks() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (under, peer) = bed.stream(&base);
        under.set_watermark(Direction::READ, 0, Some(2000));
        under.set_watermark(Direction::WRITE, 0, Some(20_000));
        let bev = BufferEvent::filter_with(&under, inflate, inflate).unwrap();
        bev.set_watermark(Direction::READ, 0, Some(10_000));
        bev.enable(Direction::READ).unwrap();
        bev.set_read_cb(|_| {});
        let mut sent = 0;
        for _ in 0..50 {
            sent += peer.write(&[1; 100_000]);
            base.run(LoopFlags::NONBLOCK).unwrap();
            assert!(bev.pending_input() < 11_000, "{}", bev.pending_input());
            assert!(under.pending_input() <= 2000, "{}", under.pending_input());
        }
        assert!(sent > 2000);
        bev.disable(Direction::READ);
        // Down: a million bytes, of which the layer below holds twenty at most.
        bev.write(vec![1; 1000]).unwrap();
        let mut got = 0;
        bed.run_until(&mut base, || {
            assert!(under.pending_output() < 21_000, "{}", under.pending_output());
            got += peer.read().0.len();
            got == 1_000_000
        });
        assert_eq!(bev.pending_output(), 0);
        bev.free();
    });
}

#[test]
fn input_that_nobody_takes_is_an_error_at_the_bound_of_the_layer_that_holds_it() {
    each_backend(|bed| {
        let mut base = bed.base();
        // A filter that never has enough.
        let (under, peer) = bed.stream(&base);
        under.set_max(Some(1000), None);
        let never = |_: &mut Buffer, _: &mut Buffer, _: usize, _: FlushMode| Ok(Filtered::NeedMore);
        let bev = BufferEvent::filter_with(&under, never, never).unwrap();
        let seen = Seen::new();
        bev.set_callbacks(Recorder::patient(&seen));
        bev.enable(Direction::READ).unwrap();
        peer.write_all(&[0; 1500]);
        bed.run_until(&mut base, || !seen.is_empty());
        assert_eq!(seen.take(), ["error"]);
        assert!(matches!(bev.error(), Some(Error::InputFull)));
        bev.free();
        // A program that does not read.
        let (under, peer) = bed.stream(&base);
        let bev = BufferEvent::filter(&under, Identity).unwrap();
        bev.set_max(Some(1000), None);
        bev.set_callbacks(Recorder::idle(&seen));
        bev.enable(Direction::READ).unwrap();
        peer.write_all(&[0; 1500]);
        bed.run_until(&mut base, || bev.is_freed());
        assert_eq!(seen.take().pop().unwrap(), "error");
    });
}

#[test]
fn flushed_means_that_every_layer_is_empty() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (under, peer) = bed.stream(&base);
        let bev = stack(&under, 3);
        let all = pattern(3_000_000);
        bev.write(all.clone()).unwrap();
        bev.set_write_cb(|bev| {
            assert_eq!(bev.pending_output(), 0, "the low mark is 0");
            bev.free();
        });
        let got = RefCell::new(Vec::new());
        bed.run_until(&mut base, || {
            assert!(bev.is_freed() || bev.pending_output() + got.borrow().len() <= all.len());
            let (bytes, ended) = peer.read();
            got.borrow_mut().extend(bytes);
            ended
        });
        assert!(*got.borrow() == all, "{} of {}", got.borrow().len(), all.len());
        // The same of a graceful close, and of one that waits for what a peer does not read.
        let (under, peer) = bed.stream(&base);
        let bev = stack(&under, 3);
        bev.write(all.clone()).unwrap();
        bev.close_after_flush();
        bed.settle(&mut base);
        assert!(!bev.is_freed() && !under.is_freed());
        assert!(read_to_end(bed, &mut base, &peer) == all);
        assert!(bev.is_freed() && under.is_freed());
    });
}

#[test]
fn room_is_told_when_the_layers_together_have_it() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (under, peer) = bed.stream(&base);
        let bev = BufferEvent::filter(&under, Xor(3)).unwrap();
        bev.set_watermark(Direction::WRITE, 0, Some(100_000));
        let rooms = Rc::new(Cell::new(0));
        let sink = rooms.clone();
        bev.set_room_cb(move |bev| {
            assert!(bev.pending_output() <= 50_000);
            sink.set(sink.get() + 1);
        });
        bev.write(vec![0; 2_000_000]).unwrap();
        bed.settle(&mut base);
        assert!(!bev.has_room(), "{} are below", under.pending_output());
        let mut got = 0;
        bed.run_until(&mut base, || {
            got += peer.read().0.len();
            got == 2_000_000 && rooms.get() > 0
        });
        bed.settle(&mut base);
        assert!(bev.has_room());
        assert_eq!(rooms.get(), 1);
        bev.free();
    });
}

#[test]
fn timeouts_of_both_layers_are_told_once() {
    each_seed(|bed| {
        let mut base = bed.base();
        let seen = Seen::new();
        for below in [false, true] {
            let (under, _peer) = bed.stream(&base);
            let bev = BufferEvent::filter(&under, Identity).unwrap();
            let of = if below { &under } else { &bev };
            of.set_timeouts(Some(150 * MS), Some(100 * MS));
            bev.set_callbacks(Recorder::patient(&seen));
            bev.enable(Direction::READ).unwrap();
            // More than the peer, who never reads, takes.
            bev.write(vec![0; 4_000_000]).unwrap();
            bed.settle(&mut base);
            bed.pass(&mut base, 99 * MS);
            assert!(seen.is_empty());
            bed.pass(&mut base, MS);
            assert_eq!(seen.take(), ["writing timeout"], "below: {below}");
            bed.pass(&mut base, 50 * MS);
            assert_eq!(seen.take(), ["reading timeout"]);
            bed.pass(&mut base, 1000 * MS);
            assert!(seen.is_empty());
            assert_eq!(bev.enabled(), Direction::empty());
            // Enabled again, all goes on.
            bev.enable(Direction::READ | Direction::WRITE).unwrap();
            bed.pass(&mut base, 100 * MS);
            assert_eq!(seen.take(), ["writing timeout"]);
            bev.free();
        }
    });
}

#[test]
fn a_connect_below_is_told_above_and_so_is_a_refusal() {
    each_backend(|bed| {
        let mut base = bed.base();
        let seen = Seen::new();
        let listener = Listener::bind(&base, "127.0.0.1:0", |_, accepted| {
            let bev = BufferEvent::filter(&accepted.into_stream(), Xor(9)).unwrap();
            bev.set_callbacks(Echo);
            bev.enable(Direction::READ).unwrap();
        })
        .unwrap();
        let address = listener.local_address().unwrap();
        let client = BufferEvent::filter(&BufferEvent::connect(&base, &address).unwrap(), Xor(9)).unwrap();
        client.set_callbacks(Recorder::new(&seen));
        client.enable(Direction::READ).unwrap();
        client.write("early").unwrap();
        bed.run_until(&mut base, || seen.len() >= 3);
        assert_eq!(seen.take(), ["connected", "wrote, 0 left", "read early"]);
        client.free();
        listener.free();
        bed.settle(&mut base);
        let client = BufferEvent::connect(&base, &address).unwrap();
        let client = stack(&client, 2);
        client.set_callbacks(Recorder::new(&seen));
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(seen.take(), ["error"]);
        assert_eq!(client.error().and_then(|error| error.raw_os_error()), Some(libc::ECONNREFUSED));
    });
}

#[test]
fn a_reset_goes_both_ways_through_the_layers() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (under, peer) = bed.tcp_stream(&base);
        let bev = stack(&under, 3);
        let seen = Seen::new();
        bev.set_callbacks(Recorder::new(&seen));
        bev.enable(Direction::READ).unwrap();
        bed.settle(&mut base);
        peer.reset();
        bed.run_until(&mut base, || bev.is_freed());
        assert_eq!(seen.take(), ["reading error"]);
        let (one, other) = BufferEvent::pair(&base).unwrap();
        let (one, other) = (stack(&one, 2), stack(&other, 2));
        other.set_callbacks(Recorder::new(&seen));
        other.enable(Direction::READ).unwrap();
        one.close_with_reset();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(seen.take(), ["reading error"]);
    });
}

/// Runs a filter that does something to somebody at its n-th call, in one direction or the other.
fn meddle(bed: &Bed, reads: bool, what: impl Fn(&BufferEvent, &BufferEvent) + Clone + 'static) -> Canary {
    let canary = Canary::new();
    for nth in 1..4 {
        let mut base = bed.base();
        let (one, other) = BufferEvent::pair(&base).unwrap();
        other.set_callbacks(Echo);
        other.enable(Direction::READ).unwrap();
        let slot = Rc::new(RefCell::new(None::<(BufferEvent, BufferEvent)>));
        let of = |acts: bool| {
            let (slot, what, calls) = (slot.clone(), what.clone(), Cell::new(0));
            let held = canary.clone();
            move |from: &mut Buffer, to: &mut Buffer, _: usize, _: FlushMode| {
                let _held = &held;
                calls.set(calls.get() + 1);
                from.remove_buffer(to, 10);
                if acts && calls.get() == nth {
                    let both = slot.borrow().clone();
                    if let Some((bev, under)) = both {
                        what(&bev, &under);
                    }
                }
                Ok(Filtered::Done)
            }
        };
        let middle = BufferEvent::filter_with(&one, of(reads), of(!reads)).unwrap();
        let top = BufferEvent::filter(&middle, Identity).unwrap();
        *slot.borrow_mut() = Some((top.clone(), one.clone()));
        let held = canary.clone();
        top.set_read_cb(move |bev| {
            let _held = &held;
            bev.read_buffer();
        });
        top.enable(Direction::READ).unwrap();
        top.write(pattern(100)).unwrap();
        for _ in 0..30 {
            base.run(LoopFlags::NONBLOCK | LoopFlags::NO_EXIT_ON_EMPTY).unwrap();
        }
        slot.take();
        top.free();
        other.free();
        assert!(one.is_freed() && middle.is_freed());
        base.run(LoopFlags::NONBLOCK).unwrap();
    }
    canary
}

#[test]
fn a_filter_may_free_whom_it_likes_and_everything_drops() {
    each_seed(|bed| {
        for reads in [true, false] {
            let all: [fn(&BufferEvent, &BufferEvent); 6] = [
                |bev, _| bev.free(),
                |bev, _| bev.close_after_flush(),
                |bev, _| bev.close_with_reset(),
                |_, under| under.free(),
                |bev, _| bev.underlying().unwrap().free(),
                |_, under| under.partner().unwrap().free(),
            ];
            for what in all {
                assert_eq!(meddle(bed, reads, what).alive(), 0);
            }
        }
    });
}

#[test]
fn a_filter_may_call_whatever_there_is() {
    each_seed(|bed| {
        for reads in [true, false] {
            let all: [fn(&BufferEvent, &BufferEvent); 8] = [
                |bev, _| bev.disable(Direction::READ | Direction::WRITE),
                |bev, under| {
                    bev.disable(Direction::READ);
                    under.disable(Direction::WRITE);
                    bev.enable(Direction::READ | Direction::WRITE).unwrap();
                },
                |bev, under| assert!(!bev.try_flush().unwrap() || under.pending_output() == 0),
                |bev, _| bev.flush(Direction::READ | Direction::WRITE, FlushMode::Finished).unwrap(),
                |bev, _| bev.shutdown_write(),
                |bev, under| drop((bev.input(), bev.output(), under.input(), under.output())),
                |bev, under| assert!(bev.fd().is_none() && under.handle().loopbreak().is_ok()),
                |bev, _| bev.set_callbacks(Echo),
            ];
            for what in all {
                assert_eq!(meddle(bed, reads, what).alive(), 0);
            }
        }
    });
}

#[test]
fn a_filter_that_writes_to_its_own_stream_is_not_called_from_within() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (under, peer) = bed.stream(&base);
        let (inside, calls) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
        let slot = Rc::new(RefCell::new(None::<BufferEvent>));
        let (within, count, own) = (inside, calls.clone(), slot.clone());
        let output = move |from: &mut Buffer, to: &mut Buffer, room: usize, _: FlushMode| {
            assert!(!within.replace(true), "called from within");
            count.set(count.get() + 1);
            if count.get() < 4
                && let Some(bev) = &*own.borrow()
            {
                bev.write("more").unwrap();
            }
            from.remove_buffer(to, room);
            within.set(false);
            Ok(Filtered::Done)
        };
        let input = |_: &mut Buffer, _: &mut Buffer, _: usize, _: FlushMode| Ok(Filtered::NeedMore);
        let bev = BufferEvent::filter_with(&under, input, output).unwrap();
        *slot.borrow_mut() = Some(bev.clone());
        bev.write("first").unwrap();
        assert_eq!(read(bed, &mut base, &peer, 17), b"firstmoremoremore");
        assert_eq!(calls.get(), 4);
        slot.take();
        bev.free();
    });
}

#[test]
fn freeing_the_stream_below_is_an_error_above_and_so_is_losing_its_partner() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (under, _peer) = bed.stream(&base);
        let bev = stack(&under, 2);
        let seen = Seen::new();
        bev.set_callbacks(Recorder::patient(&seen));
        bev.enable(Direction::READ).unwrap();
        bev.write("never sent").unwrap();
        under.free();
        assert!(seen.is_empty(), "no callback in a call");
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["error"]);
        assert!(matches!(bev.error(), Some(Error::Stale)));
        assert!(matches!(bev.enable(Direction::READ), Err(Error::Stale)));
        bev.close_after_flush();
        assert!(bev.is_freed());

        let (one, other) = BufferEvent::pair(&base).unwrap();
        let one = stack(&one, 2);
        one.set_callbacks(Recorder::new(&seen));
        one.enable(Direction::READ).unwrap();
        other.write("bye").unwrap();
        bed.settle(&mut base);
        other.free();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(seen.take(), ["read bye", "reading eof"]);
    });
}

#[test]
fn what_cannot_be_filtered_is_refused_and_changes_nothing() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (under, peer) = bed.stream(&base);
        let bev = stack(&under, 32);
        assert!(matches!(BufferEvent::filter(&bev, Identity), Err(Error::Invalid(_))));
        assert!(matches!(BufferEvent::filter(&under, Identity), Err(Error::Invalid(_))));
        let (spare, _) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(matches!(bev.replace_fd(spare), Err(Error::Invalid(_))));
        bev.set_callbacks(Echo);
        bev.enable(Direction::READ).unwrap();
        peer.write_all(b"deep");
        assert_eq!(read(bed, &mut base, &peer, 4), b"deep");
        bev.free();
        assert!(matches!(BufferEvent::filter(&under, Identity), Err(Error::Stale)));
        assert!(matches!(bev.flush(Direction::WRITE, FlushMode::Flush), Err(Error::Stale)));
        drop(base);
        assert!(matches!(BufferEvent::filter(&under, Identity), Err(Error::LoopGone)));
    });
}

#[test]
fn bytes_and_an_end_from_before_the_filter_pass_it() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (under, peer) = bed.stream(&base);
        let seen = Seen::new();
        under.set_callbacks(Recorder { seen: seen.clone(), drains: false, frees: false });
        under.enable(Direction::READ).unwrap();
        peer.write_all(b"abc");
        peer.shutdown_write();
        bed.run_until(&mut base, || seen.len() == 2);
        seen.take();
        let bev = BufferEvent::filter(&under, Xor(1)).unwrap();
        bev.set_callbacks(Recorder::patient(&seen));
        bed.settle(&mut base);
        assert!(seen.is_empty(), "it does not read yet");
        bev.enable(Direction::READ).unwrap();
        bed.run_until(&mut base, || seen.len() >= 2);
        assert_eq!(seen.take(), ["read `cb", "reading eof"]);
        bev.free();
    });
}

#[test]
fn a_filter_that_holds_its_own_stream_goes_with_the_loop() {
    each_backend(|bed| {
        let canary = Canary::new();
        let base = bed.base();
        let (under, _peer) = bed.stream(&base);
        let slot = Rc::new(RefCell::new(None::<BufferEvent>));
        let (own, held) = (slot.clone(), canary.clone());
        let input = move |_: &mut Buffer, _: &mut Buffer, _: usize, _: FlushMode| {
            let _held = (&own, &held);
            Ok(Filtered::NeedMore)
        };
        let output = |_: &mut Buffer, _: &mut Buffer, _: usize, _: FlushMode| Ok(Filtered::NeedMore);
        let bev = BufferEvent::filter_with(&under, input, output).unwrap();
        *slot.borrow_mut() = Some(bev.clone());
        let held = canary.clone();
        let own = bev.clone();
        bev.set_read_cb(move |_| drop((own.clone(), held.clone())));
        drop((slot, bev, under));
        assert_eq!(canary.alive(), 2);
        drop(base);
        assert_eq!(canary.alive(), 0);
    });
}

#[test]
fn a_panic_in_a_filter_ends_its_streams_and_no_others() {
    each_backend(|bed| {
        for reads in [true, false] {
            let mut base = bed.base();
            let (under, peer) = bed.stream(&base);
            let bad = |bad: bool| {
                move |from: &mut Buffer, to: &mut Buffer, room: usize, _: FlushMode| {
                    if bad {
                        quiet_panic("in the filter");
                    }
                    from.remove_buffer(to, room);
                    Ok(Filtered::Done)
                }
            };
            let bev = BufferEvent::filter_with(&under, bad(reads), bad(!reads)).unwrap();
            let seen = Seen::new();
            bev.set_callbacks(Recorder::new(&seen));
            bev.enable(Direction::READ).unwrap();
            let (other, other_peer) = bed.stream(&base);
            other.set_callbacks(Echo);
            other.enable(Direction::READ).unwrap();
            if reads {
                peer.write_all(b"x");
            } else {
                bev.write("x").unwrap();
            }
            must_panic("in the filter", || bed.run_until(&mut base, || false));
            bed.settle(&mut base);
            assert!(under.is_freed() && bev.is_freed());
            other_peer.write_all(b"well");
            assert_eq!(read(bed, &mut base, &other_peer, 4), b"well");
        }
    });
}

#[test]
fn filters_can_be_spliced_and_served_like_any_stream() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (one, client) = bed.stream(&base);
        let (other, server) = bed.stream(&base);
        let (one, other) = (stack(&one, 2), BufferEvent::filter(&other, Xor(5)).unwrap());
        one.set_watermark(Direction::WRITE, 0, Some(5000));
        other.set_watermark(Direction::WRITE, 0, Some(5000));
        let ends = Log::new();
        let sink = ends.clone();
        one.splice(&other, move |end| sink.push(end)).unwrap();
        let all = pattern(300_000);
        let (mut sent, got) = (0, RefCell::new(Vec::new()));
        bed.run_until(&mut base, || {
            sent += client.write(&all[sent..]);
            got.borrow_mut().extend(server.read().0);
            assert!(other.pending_output() <= 5000);
            got.borrow().len() == all.len()
        });
        assert!(got.borrow().iter().zip(&all).all(|(got, sent)| *got == sent ^ 5));
        client.shutdown_write();
        bed.run_until(&mut base, || server.read().1);
        server.write_all(b"bye");
        server.shutdown_write();
        let back = read_to_end(bed, &mut base, &client);
        assert_eq!(back, b"bye".map(|byte| byte ^ 5));
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(ends.take()[0].event, StreamEvent::EOF | StreamEvent::READING);
    });
}

#[test]
fn the_events_a_program_makes_up_below_come_above() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (under, _peer) = bed.stream(&base);
        let bev = BufferEvent::filter(&under, Identity).unwrap();
        let seen = Seen::new();
        bev.set_callbacks(Recorder::patient(&seen));
        under.trigger_event(StreamEvent::TIMEOUT).unwrap();
        bed.run_until(&mut base, || !seen.is_empty());
        assert_eq!(seen.take(), ["timeout"]);
        // Callbacks set below are not called.
        under.set_callbacks(Recorder::new(&seen));
        bev.write("x").unwrap();
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["wrote, 0 left"]);
        bev.free();
    });
}

#[test]
fn http_is_served_through_a_filter() {
    each_backend(|bed| {
        let mut base = bed.base();
        let server = event_http::Server::new(&base).unwrap();
        server.set_gencb(|request| request.send_reply(200, None, vec![b'y'; 100_000]));
        let (under, peer) = bed.stream(&base);
        server.serve(BufferEvent::filter(&under, Xor(0x55)).unwrap());
        let turned = |bytes: &[u8]| bytes.iter().map(|byte| byte ^ 0x55).collect::<Vec<u8>>();
        for close in ["", "Connection: close\r\n"] {
            peer.write_all(&turned(format!("GET / HTTP/1.1\r\nHost: a\r\n{close}\r\n").as_bytes()));
            let got = RefCell::new(Vec::new());
            bed.run_until(&mut base, || {
                got.borrow_mut().extend(turned(&peer.read().0));
                got.borrow().ends_with(&[b'y'; 100_000])
            });
            assert!(got.borrow().starts_with(b"HTTP/1.1 200 OK\r\n"));
        }
        bed.run_until(&mut base, || under.is_freed());
        server.free();
    });
}

#[test]
fn a_priority_is_that_of_all_layers() {
    each_backend(|bed| {
        let base = bed.base();
        base.priority_init(3).unwrap();
        let (under, _peer) = bed.stream(&base);
        let bev = stack(&under, 2);
        bev.set_priority(2).unwrap();
        assert_eq!((bev.priority().unwrap(), under.priority().unwrap()), (2, 2));
        assert!(matches!(bev.set_priority(3), Err(Error::Invalid(_))));
    });
}

/// Sees what a stream of its own would see, under a filter or not.
struct Plain(Seen);

impl Callbacks for Plain {
    fn on_read(&mut self, bev: &BufferEvent) {
        self.0.push(format!("{:?}", bev.read_buffer().to_vec().len()));
    }
}

#[test]
fn an_address_is_that_of_the_lowest_stream() {
    each_backend(|bed| {
        let mut base = bed.base();
        let seen = Seen::new();
        let listener = Listener::bind(&base, "127.0.0.1:0", |_, accepted| {
            accepted.into_stream().set_event_cb(|_, _| {});
        })
        .unwrap();
        let address = listener.local_address().unwrap();
        let client = stack(&BufferEvent::connect(&base, &address).unwrap(), 2);
        client.set_callbacks(Plain(seen));
        let connected = Rc::new(Cell::new(false));
        let sink = connected.clone();
        client.set_event_cb(move |_, event| sink.set(event == StreamEvent::CONNECTED));
        bed.run_until(&mut base, || connected.get());
        assert_eq!(client.peer_address().unwrap(), address);
        assert!(matches!(address, Address::Ip(_)));
        client.free();
        listener.free();
    });
}
