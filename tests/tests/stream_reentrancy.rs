//! Whatever user code does to a stream, wherever it runs: callbacks, drops, referenced memory, panics.

// Everything here is part of a test.
#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use event_core::{Buffer, BufferEvent, Direction, LoopEnd};
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
        assert_eq!(text.replace('7', "").replace('8', ""), format!("{}bbbbbccccc", "a".repeat(600)));
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
