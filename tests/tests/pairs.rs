//! Pairs: two streams that are each other's peer, in memory.

// Everything here is part of a test.
#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use event_core::{BufferEvent, Direction, Error, LoopEnd, LoopFlags, Timer};
use tests::streams::{Echo, Recorder, Seen, words};
use tests::{each_backend, each_seed};

const MS: Duration = Duration::from_millis(1);

/// A read callback that keeps everything, and what it kept.
fn keep(stream: &BufferEvent) -> Rc<RefCell<Vec<u8>>> {
    let got = Rc::new(RefCell::new(Vec::new()));
    let sink = got.clone();
    stream.set_read_cb(move |bev| sink.borrow_mut().extend(bev.read_buffer().to_vec()));
    got
}

#[test]
fn bytes_go_both_ways_at_once() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (one, other) = BufferEvent::pair(&base).unwrap();
        let (ones, others) = (keep(&one), keep(&other));
        for stream in [&one, &other] {
            stream.enable(Direction::READ).unwrap();
        }
        one.write("to the other").unwrap();
        other.write("to the one").unwrap();
        bed.settle(&mut base);
        assert_eq!((&ones.borrow()[..], &others.borrow()[..]), (&b"to the one"[..], &b"to the other"[..]));
        assert!(one.partner().unwrap() == other && one != other);
        assert_eq!((one.fd(), other.fd()), (None, None));
    });
}

#[test]
fn what_was_sent_before_reading_was_enabled_waits() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (one, other) = BufferEvent::pair(&base).unwrap();
        let seen = Seen::new();
        other.set_callbacks(Recorder::new(&seen));
        one.write("early").unwrap();
        one.shutdown_write();
        bed.settle(&mut base);
        assert_eq!((seen.len(), one.pending_output()), (0, 5));
        other.enable(Direction::READ).unwrap();
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["read early", "reading eof"]);
        assert!(other.is_freed() && one.partner().is_none());
    });
}

#[test]
fn a_reader_at_its_high_mark_holds_the_writer_and_draining_in_its_callback_lets_it_go_on() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (one, other) = BufferEvent::pair(&base).unwrap();
        other.set_watermark(Direction::READ, 0, Some(10));
        let seen = Seen::new();
        let log = seen.clone();
        other.set_read_cb(move |bev| {
            log.push(format!("{}", bev.pending_input()));
            bev.input().drain(4);
        });
        other.enable(Direction::READ).unwrap();
        one.write(vec![b'x'; 25]).unwrap();
        bed.settle(&mut base);
        // 10 arrive; 4 are taken, 4 come; ..; the last callback has the last byte.
        assert_eq!(seen.take(), ["10", "10", "10", "10", "9"]);
        assert_eq!((one.pending_output(), other.pending_input()), (0, 5));
    });
}

#[test]
fn draining_from_outside_lets_the_writer_go_on() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (one, other) = BufferEvent::pair(&base).unwrap();
        other.set_watermark(Direction::READ, 0, Some(10));
        let seen = Recorder::idle_on(&other);
        one.write(vec![b'x'; 15]).unwrap();
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["has 10"]);
        assert_eq!(other.read_buffer().len(), 10);
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["has 5"]);
        assert_eq!(one.pending_output(), 0);
    });
}

#[test]
fn a_writer_that_was_disabled_while_blocked_goes_on_when_it_is_enabled() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (one, other) = BufferEvent::pair(&base).unwrap();
        other.set_watermark(Direction::READ, 0, Some(10));
        other.enable(Direction::READ).unwrap();
        one.write(vec![b'x'; 15]).unwrap();
        bed.settle(&mut base);
        one.disable(Direction::WRITE);
        assert_eq!(other.read_buffer().len(), 10);
        bed.settle(&mut base);
        assert_eq!(other.pending_input(), 0);
        one.enable(Direction::WRITE).unwrap();
        bed.settle(&mut base);
        assert_eq!(other.pending_input(), 5);
    });
}

#[test]
fn a_writer_whose_output_was_taken_back_while_blocked_can_write_again() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (one, other) = BufferEvent::pair(&base).unwrap();
        other.set_watermark(Direction::READ, 0, Some(10));
        other.enable(Direction::READ).unwrap();
        one.write(vec![b'x'; 15]).unwrap();
        bed.settle(&mut base);
        one.output().drain(usize::MAX);
        assert_eq!(other.read_buffer().len(), 10);
        bed.settle(&mut base);
        one.write("again").unwrap();
        bed.settle(&mut base);
        assert_eq!(other.read_buffer(), "again");
    });
}

#[test]
fn freeing_one_end_is_the_others_end() {
    each_backend(|bed| {
        for reads in [false, true] {
            let mut base = bed.base();
            let (one, other) = BufferEvent::pair(&base).unwrap();
            let seen = Seen::new();
            other.set_callbacks(Recorder::new(&seen));
            if reads {
                other.enable(Direction::READ).unwrap();
            }
            one.write("bye").unwrap();
            bed.settle(&mut base);
            one.free();
            assert!(other.partner().is_none() && !other.is_freed());
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
            let expected: &[&str] = if reads { &["read bye", "reading eof"] } else { &["reading eof"] };
            assert_eq!(seen.take(), expected);
        }
    });
}

#[test]
fn dropping_an_end_that_was_never_started_is_the_others_end() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (one, other) = BufferEvent::pair(&base).unwrap();
        let seen = Recorder::on(&other);
        drop(one);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(seen.take(), ["reading eof"]);
    });
}

#[test]
fn writing_to_an_end_that_is_gone_is_an_error_also_for_what_waited() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (one, other) = BufferEvent::pair(&base).unwrap();
        let seen = Recorder::patient_on(&one);
        one.write("waits for a reader").unwrap();
        bed.settle(&mut base);
        other.free();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty, "it can never be sent");
        assert_eq!(seen.take(), ["reading writing eof error"], "one call for all of a turn");
        let error = one.error().unwrap();
        assert!(matches!(&error, Error::Io(e) if e.raw_os_error() == Some(libc::EPIPE)), "{error:?}");
    });
}

#[test]
fn shutting_down_is_an_end_behind_the_bytes_and_the_other_way_stays_open() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (one, other) = BufferEvent::pair(&base).unwrap();
        let (ones, others) = (Seen::new(), Seen::new());
        one.set_callbacks(Recorder::patient(&ones));
        other.set_callbacks(Recorder::patient(&others));
        one.enable(Direction::READ).unwrap();
        other.enable(Direction::READ).unwrap();
        one.write("question").unwrap();
        one.shutdown_write();
        bed.settle(&mut base);
        assert_eq!(others.take(), ["read question", "reading eof"]);
        other.write("answer").unwrap();
        other.shutdown_write();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(ones.take(), ["wrote, 0 left", "read answer", "reading eof"]);
        assert!(one.is_freed() && other.is_freed(), "ended both ways");
    });
}

#[test]
fn an_end_is_told_to_who_reads_and_writing_goes_on_meanwhile() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (reader, writer) = BufferEvent::pair(&base).unwrap();
        let got = keep(&reader);
        reader.enable(Direction::READ).unwrap();
        // Only writes and has no event callback: as on a socket, the peer's end does not end it.
        writer.write("one ").unwrap();
        reader.shutdown_write();
        bed.settle(&mut base);
        assert!(!writer.is_freed());
        writer.write("two").unwrap();
        bed.settle(&mut base);
        assert_eq!(*got.borrow(), b"one two");
        writer.enable(Direction::READ).unwrap();
        bed.settle(&mut base);
        assert!(writer.is_freed(), "nobody handles the end");
    });
}

#[test]
fn the_end_both_ways_waits_for_what_is_not_yet_delivered() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (one, other) = BufferEvent::pair(&base).unwrap();
        let seen = Recorder::patient_on(&other);
        one.write("last").unwrap();
        one.shutdown_write();
        let (first, second) = (other.clone(), other.clone());
        // In the turn between the arrival and its callback.
        let timer = Timer::new(&base, move |_| {
            second.write("mine").unwrap();
            second.shutdown_write();
        })
        .unwrap();
        timer.add(Duration::ZERO).unwrap();
        base.run(LoopFlags::NONBLOCK).unwrap();
        first.shutdown_write();
        bed.settle(&mut base);
        assert_eq!(seen.take()[..2], ["read last", "reading eof"]);
    });
}

#[test]
fn input_that_was_taken_before_its_callback_calls_nothing() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (one, other) = BufferEvent::pair(&base).unwrap();
        let seen = Recorder::idle_on(&other);
        one.write("x").unwrap();
        while other.pending_input() == 0 {
            base.run(LoopFlags::NONBLOCK | LoopFlags::ONCE).unwrap();
            if !seen.is_empty() {
                // Delivered in the turn of the arrival: nothing to see here.
                return;
            }
        }
        assert_eq!(other.read_buffer(), "x");
        bed.settle(&mut base);
        assert!(seen.is_empty());
    });
}

#[test]
fn an_echo_over_a_pair_carries_more_than_any_bound_holds() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (one, other) = BufferEvent::pair(&base).unwrap();
        for stream in [&one, &other] {
            stream.set_watermark(Direction::READ, 0, Some(1000));
        }
        other.set_callbacks(Echo);
        other.enable(Direction::READ).unwrap();
        let got = keep(&one);
        one.enable(Direction::READ).unwrap();
        let all: Vec<u8> = (0..tests::few_under_miri(100_000_u32, 5_000)).map(|n| n as u8).collect();
        one.write(all.clone()).unwrap();
        bed.run_until(&mut base, || got.borrow().len() >= all.len());
        assert!(*got.borrow() == all);
    });
}

#[test]
fn a_write_callback_may_go_on_for_ever_without_holding_the_loop() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (one, other) = BufferEvent::pair(&base).unwrap();
        let total = Rc::new(Cell::new(0));
        let sum = total.clone();
        other.set_read_cb(move |bev| sum.set(sum.get() + bev.read_buffer().len()));
        other.enable(Direction::READ).unwrap();
        one.set_write_cb(|bev| bev.write("more").unwrap());
        one.write("more").unwrap();
        bed.run_until(&mut base, || total.get() > tests::few_under_miri(4000, 400));
        one.clear_callbacks();
        other.set_event_cb(|bev, event| {
            assert_eq!(words(event), "reading eof");
            bev.free();
        });
        one.close_after_flush();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn timeouts_run_over_a_pair_as_over_a_socket() {
    each_seed(|bed| {
        let mut base = bed.base();
        let (one, other) = BufferEvent::pair(&base).unwrap();
        let seen = Recorder::patient_on(&one);
        one.set_timeouts(Some(15 * MS), Some(10 * MS));
        one.write("nobody reads this").unwrap();
        bed.pass(&mut base, 9 * MS);
        assert!(seen.is_empty());
        bed.pass(&mut base, MS);
        assert_eq!(seen.take(), ["writing timeout"]);
        bed.pass(&mut base, 5 * MS);
        assert_eq!(seen.take(), ["reading timeout"]);
        assert_eq!(one.enabled(), Direction::empty());
        bed.pass(&mut base, 100 * MS);
        assert!(seen.is_empty(), "once each");
        let got = keep(&other);
        other.enable(Direction::READ).unwrap();
        one.enable(Direction::WRITE).unwrap();
        bed.pass(&mut base, 100 * MS);
        assert_eq!((seen.take(), got.borrow().len()), (vec!["wrote, 0 left".to_owned()], 17));
    });
}
