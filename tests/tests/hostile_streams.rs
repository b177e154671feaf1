//! Streams at random against what their bytes must be: joined, paired, with files, small marks and cut calls. Nothing may
//! be lost, doubled or left lying.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use event_core::testing::Sim;
use event_core::{Buffer, BufferEvent, Direction, FileSegment, LoopFlags, StreamEvent, Timer};
use tests::random::Random;

const MS: Duration = Duration::from_millis(1);

/// A file of these bytes, which has no name any more.
fn file(bytes: &[u8], name: u64) -> FileSegment {
    let path = std::env::temp_dir().join(format!("event-core-hostile-{}-{name}", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    FileSegment::new(file, 0, None).unwrap()
}

fn text(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n / 3 % 253) as u8).collect()
}

/// Memory and parts of a file.
fn mixed(numbers: &Random, bytes: &[u8], segment: &FileSegment, from: usize, len: usize) -> Buffer {
    let mut buffer = Buffer::new();
    let (mut at, end) = (from, from + len);
    while at < end {
        let n = (1 + numbers.draw(90_000) as usize).min(end - at);
        if numbers.draw(2) == 0 {
            buffer.add_file_segment(segment, at as u64, Some(n as u64)).unwrap();
        } else {
            buffer.add(&bytes[at..at + n]);
        }
        at += n;
    }
    buffer
}

fn marks(numbers: &Random, stream: &BufferEvent) {
    let size = |numbers: &Random| 1_usize << numbers.draw(19);
    if numbers.draw(2) == 0 {
        let high = match numbers.draw(4) {
            0 => None,
            _ => Some(size(numbers)),
        };
        stream.set_watermark(Direction::READ, 0, high);
    }
    if numbers.draw(2) == 0 {
        stream.set_watermark(Direction::WRITE, 0, Some(size(numbers)));
    }
    if numbers.draw(3) == 0 {
        stream.set_max_single_read(Some(1 + size(numbers))).unwrap();
    }
    if numbers.draw(3) == 0 {
        stream.set_max_single_write(Some(1 + size(numbers))).unwrap();
    }
}

#[test]
fn a_pair_with_files_gives_what_was_written_whatever_the_marks() {
    let bytes = text(400_000);
    let segment = file(&bytes, 1);
    for seed in 1..=40 {
        let numbers = Rc::new(Random::new(seed));
        let sim = Sim::new(seed);
        let mut base = sim.event_base().unwrap();
        let (near, far) = BufferEvent::pair(&base).unwrap();
        let len = numbers.draw(400_000) as usize;
        let got = Rc::new(RefCell::new(Vec::new()));
        let (sink, draws) = (got.clone(), numbers.clone());
        far.set_read_cb(move |bev| {
            let most = if draws.draw(2) == 0 { usize::MAX } else { 1 + draws.draw(50_000) as usize };
            let mut data = bev.read_buffer();
            let some = data.split_to(most.min(data.len()));
            sink.borrow_mut().extend(some.to_vec());
            if !data.is_empty() {
                bev.input().prepend_buffer(&mut data);
                bev.trigger(Direction::READ).unwrap();
            }
            if draws.draw(8) == 0 {
                bev.disable(Direction::READ);
                let bev = bev.clone();
                let timer =
                    Timer::new(&bev.handle().clone(), move |_| _ = bev.enable(Direction::READ)).unwrap();
                timer.add(MS).unwrap();
                timer.detach();
            }
        });
        let (ended, sink) = (Rc::new(Cell::new(StreamEvent::empty())), got.clone());
        let note = ended.clone();
        far.set_event_cb(move |bev, event| {
            sink.borrow_mut().extend(bev.read_buffer().to_vec());
            note.set(event);
            bev.free();
        });
        near.set_event_cb(|bev, _| bev.free());
        marks(&numbers, &near);
        marks(&numbers, &far);
        far.enable(Direction::READ).unwrap();
        near.enable(Direction::READ).unwrap();
        let mut at = 0;
        while at < len {
            let n = (1 + numbers.draw(200_000) as usize).min(len - at);
            let _ = near.write(mixed(&numbers, &bytes, &segment, at, n));
            at += n;
            if numbers.draw(2) == 0 {
                base.run(LoopFlags::NONBLOCK).unwrap();
            }
        }
        match numbers.draw(3) {
            0 => near.close_after_flush(),
            _ => near.shutdown_write(),
        }
        base.dispatch().unwrap();
        assert_eq!(got.borrow().len(), len, "seed {seed} {:?} {near:?} {far:?}", ended.get());
        assert!(*got.borrow() == bytes[..len], "seed {seed}");
        assert!(ended.get().contains(StreamEvent::EOF), "seed {seed}: {:?}", ended.get());
    }
}

#[test]
fn joined_streams_pass_everything_on_both_ways_whatever_the_marks() {
    let bytes = text(40_000);
    let segment = file(&bytes, 2);
    for seed in 1..=40 {
        let numbers = Random::new(seed);
        let sim = Sim::new(seed);
        sim.set_cuts(seed % 3 == 0);
        sim.set_send_buffer(1 << (4 + numbers.draw(14)));
        let mut base = sim.event_base().unwrap();
        // One side is a socket; the other one is that or an end of a pair.
        let (client, peer) = sim.stream(&base);
        let (server, far) = BufferEvent::pair(&base).unwrap();
        let got = Rc::new(RefCell::new(Vec::new()));
        let ends = Rc::new(Cell::new(None));
        let sink = got.clone();
        far.set_read_cb(move |bev| sink.borrow_mut().extend(bev.read_buffer().to_vec()));
        let sink = got.clone();
        far.set_event_cb(move |bev, event| {
            sink.borrow_mut().extend(bev.read_buffer().to_vec());
            if !event.contains(StreamEvent::EOF) {
                bev.free();
            }
        });
        for stream in [&client, &server, &far] {
            marks(&numbers, stream);
        }
        far.enable(Direction::READ).unwrap();
        let note = ends.clone();
        client.splice(&server, move |end| note.set(Some((end.there, end.back, end.event)))).unwrap();
        let (there, back) = (numbers.draw(40_000) as usize, numbers.draw(40_000) as usize);
        let _ = far.write(mixed(&numbers, &bytes, &segment, 0, back));
        far.shutdown_write();
        let (mut sent, mut read, mut turns) = (0, Vec::new(), 0);
        while ends.get().is_none() {
            if sent < there {
                let n = (1 + numbers.draw(20_000) as usize).min(there - sent);
                sent += peer.write(&bytes[sent..sent + n]).unwrap_or(0);
                if sent == there {
                    peer.shutdown(std::net::Shutdown::Write).unwrap();
                }
            } else if there == 0 && turns == 0 {
                peer.shutdown(std::net::Shutdown::Write).unwrap();
            }
            if numbers.draw(2) == 0 {
                read.extend(peer.read());
            }
            base.run(LoopFlags::NONBLOCK | LoopFlags::NO_EXIT_ON_EMPTY).unwrap();
            turns += 1;
            assert!(
                turns < 500_000,
                "seed {seed}: {} of {there}, {} of {back}, {client:?} {server:?} {far:?}",
                got.borrow().len(),
                read.len()
            );
        }
        assert_eq!(base.dispatch().unwrap(), event_core::LoopEnd::Empty);
        read.extend(peer.read());
        assert_eq!((got.borrow().len(), read.len()), (there, back), "seed {seed}");
        assert!(*got.borrow() == bytes[..there] && read == bytes[..back], "seed {seed}");
        let (moved_there, moved_back, event) = ends.get().unwrap();
        assert_eq!((moved_there, moved_back), (there as u64, back as u64));
        assert!(event.contains(StreamEvent::EOF));
        assert!(client.is_freed() && server.is_freed());
    }
}
