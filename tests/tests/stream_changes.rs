//! How the buffers of a stream change is told by the loop: `set_buffer_cb`.

// Everything here is part of a test.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::rc::Rc;

use event_core::{BufferChange, BufferEvent, Direction, LoopEnd};
use tests::streams::{Canary, Recorder, Seen};
use tests::{Log, each_backend, must_panic, quiet_panic};

fn words(change: BufferChange) -> String {
    let buffer = if change.buffer == Direction::READ { "in" } else { "out" };
    format!("{buffer} {} +{} -{}", change.before, change.added, change.drained)
}

fn counted(stream: &BufferEvent) -> Log<String> {
    let log = Log::new();
    let sink = log.clone();
    stream.set_buffer_cb(move |_, change| sink.push(words(change)));
    log
}

#[test]
fn what_comes_and_is_taken_and_what_is_written_and_leaves_is_counted() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let log = counted(&stream);
        stream.set_read_cb(|bev| {
            bev.input().drain(3);
        });
        stream.enable(Direction::READ).unwrap();
        peer.write_all(b"12345");
        bed.run_until(&mut base, || !log.is_empty());
        assert_eq!(log.take(), ["in 0 +5 -3"]);
        stream.read_buffer();
        assert!(log.is_empty(), "never inside a call");
        bed.settle(&mut base);
        assert_eq!(log.take(), ["in 2 +0 -2"]);
        stream.write("abc").unwrap();
        stream.write("def").unwrap();
        bed.settle(&mut base);
        assert_eq!(log.take(), ["out 0 +6 -6"]);
        bed.settle(&mut base);
        assert!(log.is_empty(), "nothing has changed");
    });
}

#[test]
fn the_sums_are_right_whatever_happens_in_between() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (one, other) = BufferEvent::pair(&base).unwrap();
        let held = Rc::new(Cell::new((0_usize, 0_usize)));
        let sums = Rc::new(Cell::new((0, 0)));
        let (state, total) = (held.clone(), sums.clone());
        one.set_buffer_cb(move |bev, change| {
            let (mut input, mut output) = state.get();
            let (mut read, mut sent) = total.get();
            let len = if change.buffer == Direction::READ { &mut input } else { &mut output };
            assert_eq!(change.before, *len, "{change:?}");
            *len = *len + change.added - change.drained;
            if change.buffer == Direction::READ {
                assert_eq!(input, bev.pending_input());
                read += change.added;
            } else {
                assert_eq!(output, bev.pending_output());
                sent += change.drained;
            }
            state.set((input, output));
            total.set((read, sent));
        });
        one.set_read_cb(|bev| {
            let mut input = bev.input();
            let n = input.len() / 2 + 1;
            input.drain(n);
        });
        let echo = Seen::new();
        other.set_callbacks(tests::streams::Echo);
        other.enable(Direction::READ).unwrap();
        one.enable(Direction::READ).unwrap();
        let mut all = 0;
        for n in 1..200_usize {
            one.write(vec![b'x'; n * 37 % 5000]).unwrap();
            all += n * 37 % 5000;
            if n % 7 == 0 {
                bed.settle(&mut base);
            }
        }
        bed.settle(&mut base);
        bed.run_until(&mut base, || sums.get().1 == all && sums.get().0 == all);
        assert_eq!(held.get(), (one.pending_input(), one.pending_output()));
        drop(echo);
    });
}

#[test]
fn the_callback_may_write_and_hears_of_it_in_the_next_turn() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let log = Log::new();
        let sink = log.clone();
        stream.set_buffer_cb(move |bev, change| {
            sink.push(words(change));
            if sink.len() < 3 {
                bev.write("go on").unwrap();
            }
        });
        stream.write("start").unwrap();
        bed.settle(&mut base);
        let sent: usize =
            log.take().iter().map(|line| line.rsplit('-').next().unwrap().parse::<usize>().unwrap()).sum();
        assert_eq!(sent, 15);
        assert_eq!(peer.read().0, b"startgo ongo on");
    });
}

#[test]
fn it_may_free_replace_and_take_away_itself() {
    each_backend(|bed| {
        let mut base = bed.base();
        let canary = Canary::new();
        for action in 0..4 {
            let (stream, peer) = bed.stream(&base);
            let calls = Log::new();
            let (sink, held) = (calls.clone(), canary.clone());
            stream.set_buffer_cb(move |bev, _| {
                let _held = &held;
                sink.push(action);
                match action {
                    0 => bev.free(),
                    1 => bev.clear_buffer_cb(),
                    2 => {
                        let sink = sink.clone();
                        bev.set_buffer_cb(move |_, _| sink.push(20));
                    }
                    _ => bev.set_callbacks(Recorder::patient(&Seen::new())),
                }
            });
            stream.write("x").unwrap();
            bed.settle(&mut base);
            if action != 0 {
                stream.write("y").unwrap();
                bed.settle(&mut base);
            }
            let expected: &[i32] = match action {
                0 | 1 => &[action],
                2 => &[2, 20],
                _ => &[3, 3],
            };
            assert_eq!(calls.take(), expected);
            stream.free();
            drop(peer);
            assert_eq!(canary.alive(), 0, "after action {action}");
        }
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn the_last_bytes_are_told_before_a_graceful_close_and_nothing_after_a_free() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let log = counted(&stream);
        stream.write("last").unwrap();
        stream.close_after_flush();
        bed.settle(&mut base);
        assert!(stream.is_freed());
        assert_eq!((log.take(), peer.read().0), (vec!["out 0 +4 -4".to_owned()], b"last".to_vec()));

        let (stream, _peer) = bed.stream(&base);
        let log = counted(&stream);
        stream.write("lost").unwrap();
        stream.free();
        bed.settle(&mut base);
        assert!(log.is_empty());
    });
}

#[test]
fn the_callback_goes_with_the_loop_and_with_a_panic_of_its_own() {
    each_backend(|bed| {
        let canary = Canary::new();
        {
            let base = bed.base();
            let (stream, _peer) = bed.stream(&base);
            let (held, own) = (canary.clone(), stream.clone());
            stream.set_buffer_cb(move |_, _| {
                let _captured = (&held, &own);
            });
        }
        assert_eq!(canary.alive(), 0);
        let mut base = bed.base();
        let (stream, _peer) = bed.stream(&base);
        let held = canary.clone();
        stream.set_buffer_cb(move |_, _| {
            let _held = &held;
            quiet_panic("on purpose")
        });
        stream.write("x").unwrap();
        must_panic("on purpose", || bed.settle(&mut base));
        assert!(stream.is_freed());
        assert_eq!(canary.alive(), 0);
    });
}
