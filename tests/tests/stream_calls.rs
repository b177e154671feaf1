//! What a stream can be asked and told besides its bytes: marks, visits, room, triggers, priorities, a flush at once.

// Everything here is part of a test.
#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::rc::Rc;

use event_core::testing::{Call, Faults, Sim};
use event_core::{
    BufferEvent, Callbacks, Direction, Error, EventBase, EventId, Listener, LoopEnd, LoopFlags, Ready,
    StreamEvent,
};
use tests::streams::{Block, Recorder, Seen, on_release, words};
use tests::{Log, Peer, each_backend, each_seed, must_panic, quiet_panic};

fn once(base: &mut EventBase) {
    base.run(LoopFlags::NONBLOCK | LoopFlags::NO_EXIT_ON_EMPTY).unwrap();
}

fn ids(base: &EventBase) -> Vec<EventId> {
    let mut ids = Vec::new();
    let _ = base.for_each_event(|info| {
        ids.push(info.id);
        ControlFlow::Continue(())
    });
    ids
}

/// Every call by id that is for events of the program's own must refuse `id`.
fn refused(base: &EventBase, id: EventId) {
    let calls = [
        base.add(id, None),
        base.add(id, Some(std::time::Duration::ZERO)),
        base.del(id),
        base.activate(id, Ready::READ),
        base.activate_now(id, Ready::READ),
        base.remove_timer(id),
    ];
    for (nth, call) in calls.into_iter().enumerate() {
        assert!(matches!(call, Err(Error::Invalid(_))), "call {nth}: {call:?}");
    }
}

#[test]
fn the_ids_of_streams_and_listeners_are_not_for_the_calls_of_events() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let seen = Recorder::patient_on(&stream);
        stream.set_timeouts(Some(std::time::Duration::from_secs(3600)), None);
        let ids = ids(&base);
        assert_eq!(ids.len(), 1);
        refused(&base, ids[0]);
        // And it goes on as if nobody had asked.
        peer.write_all(b"on");
        bed.run_until(&mut base, || !seen.is_empty());
        assert_eq!(seen.take(), ["read on"]);
        base.free(ids[0]).unwrap();
        assert!(stream.is_freed());

        let listener = Listener::bind(&base, "127.0.0.1:0", |_, _| {}).unwrap();
        refused(&base, self::ids(&base)[0]);
        listener.free();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn marks_can_be_read_back_one_direction_at_a_time() {
    each_backend(|bed| {
        let base = bed.base();
        let (stream, _peer) = bed.stream(&base);
        assert_eq!(stream.watermark(Direction::READ).unwrap(), (0, None));
        assert_eq!(stream.watermark(Direction::WRITE).unwrap(), (0, Some(1 << 20)));
        stream.set_watermark(Direction::READ, 10, Some(20));
        stream.set_watermark(Direction::WRITE, 100, Some(200));
        assert_eq!(stream.watermark(Direction::READ).unwrap(), (10, Some(20)));
        assert_eq!(stream.watermark(Direction::WRITE).unwrap(), (100, Some(200)));
        for direction in [Direction::empty(), Direction::all()] {
            assert!(matches!(stream.watermark(direction), Err(Error::Invalid(_))));
        }
    });
}

#[test]
fn a_visit_reads_no_more_than_it_may_and_the_rest_comes_in_the_next_turns() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let sizes = Log::new();
        let sink = sizes.clone();
        stream.set_read_cb(move |bev| sink.push(bev.read_buffer().len()));
        assert_eq!((stream.max_single_read(), stream.max_to_read()), (4 << 16, 0));
        assert!(matches!(stream.set_max_single_read(Some(0)), Err(Error::Invalid(_))));
        stream.set_max_single_read(Some(10)).unwrap();
        stream.enable(Direction::READ).unwrap();
        assert_eq!((stream.max_single_read(), stream.max_to_read()), (10, 10));
        peer.write_all(&[b'x'; 25]);
        bed.run_until(&mut base, || sizes.len() >= 3);
        assert_eq!(sizes.take(), [10, 10, 5]);
        stream.set_watermark(Direction::READ, 0, Some(4));
        assert_eq!(stream.max_to_read(), 4);
        stream.set_watermark(Direction::READ, 0, None);
        stream.set_max_single_read(None).unwrap();
        peer.write_all(&[b'x'; 25]);
        bed.run_until(&mut base, || sizes.len() == 1);
        assert_eq!(sizes.take(), [25]);
    });
}

#[test]
fn a_visit_writes_no_more_than_it_may_and_the_rest_leaves_in_later_ones() {
    each_backend(|bed| {
        let faults = Faults::new();
        let mut base = bed.base_with(&faults);
        for pieces in [1, 5] {
            let (stream, peer) = bed.stream(&base);
            assert_eq!(stream.max_single_write(), 1 << 20);
            assert!(matches!(stream.set_max_single_write(Some(0)), Err(Error::Invalid(_))));
            stream.set_max_single_write(Some(10)).unwrap();
            assert_eq!((stream.max_single_write(), stream.max_to_write()), (10, 10));
            for _ in 0..pieces {
                let mut piece = event_core::Buffer::new();
                piece.add_reference(event_core::Bytes::from(vec![b'y'; 25 / pieces]));
                stream.write(piece).unwrap();
            }
            let before = faults.count(Call::Send) + faults.count(Call::Sendv);
            once(&mut base);
            assert!(stream.pending_output() >= 5, "a turn has two visits for what was written outside of it");
            bed.run_until(&mut base, || stream.pending_output() == 0);
            let sends = faults.count(Call::Send) + faults.count(Call::Sendv) - before;
            assert!((3..=5).contains(&sends), "{sends}");
            assert_eq!(peer.read().0, [b'y'; 25]);
            stream.free();
        }
    });
}

#[test]
fn a_little_more_than_a_visit_writes_goes_with_it() {
    const VISIT: usize = 1 << 20;
    let cases = [
        (VISIT + 148, None, 1),
        (VISIT + VISIT / 16, None, 1),
        (2 * VISIT, None, 2),
        (VISIT + 1, Some(VISIT), 2),
    ];
    for (len, limit, sends) in cases {
        let (sim, faults) = (Sim::new(1), Faults::new());
        sim.set_cuts(false);
        sim.set_send_buffer(4 * VISIT);
        let mut base = sim.event_base_with(&faults).unwrap();
        let (stream, peer) = sim.stream(&base);
        if limit.is_some() {
            stream.set_max_single_write(limit).unwrap();
        }
        let mut answer = event_core::Buffer::new();
        answer.add_static(&[b'h'; 148]);
        answer.add_reference(event_core::Bytes::from(vec![b'b'; len - 148]));
        stream.write(answer).unwrap();
        once(&mut base);
        once(&mut base);
        assert_eq!((peer.read().len(), stream.pending_output()), (len, 0));
        assert_eq!(faults.count(Call::Send) + faults.count(Call::Sendv), sends, "{len} bytes, {limit:?}");
    }
}

#[test]
fn a_limit_on_visits_holds_between_the_ends_of_a_pair_too() {
    each_backend(|bed| {
        for by_reader in [false, true] {
            let mut base = bed.base();
            let (one, other) = BufferEvent::pair(&base).unwrap();
            let sizes = Log::new();
            let sink = sizes.clone();
            other.set_read_cb(move |bev| sink.push(bev.read_buffer().len()));
            other.enable(Direction::READ).unwrap();
            if by_reader {
                other.set_max_single_read(Some(10)).unwrap();
            } else {
                one.set_max_single_write(Some(10)).unwrap();
            }
            one.write(vec![b'z'; 25]).unwrap();
            let got = Cell::new(0);
            bed.run_until(&mut base, || {
                for size in sizes.take() {
                    assert!(size <= if by_reader { 10 } else { 20 }, "{size}, by the reader: {by_reader}");
                    got.set(got.get() + size);
                }
                got.get() == 25
            });
        }
    });
}

#[test]
fn room_is_told_once_when_the_output_has_come_down_to_half_of_its_mark() {
    each_backend(|bed| {
        for closure in [false, true] {
            let mut base = bed.base();
            let (one, other) = BufferEvent::pair(&base).unwrap();
            let rooms = Log::new();
            let sink = rooms.clone();
            if closure {
                one.set_room_cb(move |bev| sink.push(bev.pending_output()));
            } else {
                struct Room(Log<usize>);
                impl event_core::Callbacks for Room {
                    fn on_read(&mut self, _: &BufferEvent) {}
                    fn on_room(&mut self, bev: &BufferEvent) {
                        self.0.push(bev.pending_output());
                    }
                }
                one.set_callbacks(Room(sink));
            }
            one.set_watermark(Direction::WRITE, 0, Some(100));
            one.write(vec![b'a'; 100]).unwrap();
            assert!(one.has_room(), "at the mark there still is");
            one.write("b").unwrap();
            assert!(!one.has_room());
            other.set_watermark(Direction::READ, 0, Some(40));
            other.enable(Direction::READ).unwrap();
            bed.settle(&mut base);
            assert_eq!((one.pending_output(), rooms.take()), (61, vec![]));
            assert!(one.has_room(), "below the mark, though nobody is told yet");
            other.input().drain(40);
            bed.settle(&mut base);
            assert_eq!((one.pending_output(), rooms.take()), (21, vec![21]));
            other.input().drain(40);
            bed.settle(&mut base);
            assert_eq!((one.pending_output(), rooms.take()), (0, vec![]), "once for each time");
            // What is taken back makes room as well.
            one.write(vec![b'c'; 200]).unwrap();
            one.output().drain(200);
            bed.settle(&mut base);
            assert_eq!(rooms.take(), [0]);
        }
    });
}

#[test]
fn a_producer_that_stops_without_room_and_goes_on_with_it_is_bounded_by_its_mark() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        const ALL: usize = 3 << 20;
        let made = Rc::new(Cell::new(0));
        let most = Rc::new(Cell::new(0));
        stream.set_watermark(Direction::WRITE, 0, Some(64 << 10));
        let (count, peak) = (made.clone(), most.clone());
        let produce = move |bev: &BufferEvent| {
            while bev.has_room() && count.get() < ALL {
                bev.write(vec![b'p'; 4096]).unwrap();
                count.set(count.get() + 4096);
                peak.set(peak.get().max(bev.pending_output()));
            }
        };
        produce(&stream);
        stream.set_room_cb(produce);
        let got = Cell::new(0);
        bed.run_until(&mut base, || {
            got.set(got.get() + peer.read().0.len());
            got.get() == ALL
        });
        assert_eq!(made.get(), ALL);
        assert!(most.get() <= (64 << 10) + 4096, "{}", most.get());
    });
}

#[test]
fn a_trigger_at_the_marks_calls_only_where_they_are_met() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let seen = Seen::new();
        stream.set_callbacks(Recorder::idle(&seen));
        stream.set_watermark(Direction::READ, 5, None);
        stream.enable(Direction::READ).unwrap();
        peer.write_all(b"1234");
        bed.run_until(&mut base, || stream.pending_input() == 4);
        stream.trigger_at_marks(Direction::READ).unwrap();
        assert!(seen.is_empty(), "never inside the call");
        bed.settle(&mut base);
        assert_eq!(seen.take(), Vec::<String>::new());
        stream.trigger(Direction::READ).unwrap();
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["has 4"]);
        stream.trigger_at_marks(Direction::READ | Direction::WRITE).unwrap();
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["wrote, 0 left"]);
        peer.write_all(b"5");
        bed.run_until(&mut base, || !seen.is_empty());
        seen.take();
        stream.trigger_at_marks(Direction::READ).unwrap();
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["has 5"]);
    });
}

#[test]
fn an_event_of_the_programs_own_is_told_in_the_next_turn_and_changes_nothing() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let seen = Recorder::patient_on(&stream);
        stream.trigger_event(StreamEvent::TIMEOUT | StreamEvent::READING).unwrap();
        stream.trigger_event(StreamEvent::CONNECTED).unwrap();
        assert!(seen.is_empty());
        bed.settle(&mut base);
        assert_eq!(
            seen.take(),
            [words(StreamEvent::READING | StreamEvent::TIMEOUT | StreamEvent::CONNECTED)]
        );
        assert!(stream.enabled().contains(Direction::READ));
        peer.write_all(b"on");
        bed.run_until(&mut base, || !seen.is_empty());
        // With a real one it is a single call.
        peer.shutdown_write();
        stream.trigger_event(StreamEvent::TIMEOUT).unwrap();
        seen.take();
        bed.run_until(&mut base, || seen.len() == 1 || seen.len() == 2);
        bed.settle(&mut base);
        let all = seen.take().join(" ");
        assert!(all.contains("eof") && all.contains("timeout"), "{all}");
        // And nobody there to handle it: the stream goes.
        stream.clear_callbacks();
        stream.trigger_event(StreamEvent::CONNECTED).unwrap();
        bed.settle(&mut base);
        assert!(!stream.is_freed());
        stream.trigger_event(StreamEvent::ERROR).unwrap();
        bed.settle(&mut base);
        assert!(stream.is_freed());
        assert!(matches!(stream.trigger_event(StreamEvent::ERROR), Err(Error::Stale)));
    });
}

#[test]
fn a_priority_can_be_read_back_and_orders_the_callbacks() {
    each_backend(|bed| {
        let mut base = bed.base();
        base.priority_init(3).unwrap();
        let order = Log::new();
        let peers: Vec<Peer> = [2, 0, 1]
            .into_iter()
            .map(|priority| {
                let (stream, peer) = bed.stream(&base);
                assert_eq!(stream.priority().unwrap(), 1);
                stream.set_priority(priority).unwrap();
                assert_eq!(stream.priority().unwrap(), priority);
                let order = order.clone();
                stream.set_read_cb(move |bev| {
                    bev.read_buffer();
                    order.push(bev.priority().unwrap());
                });
                stream.enable(Direction::READ).unwrap();
                peer
            })
            .collect();
        peers.iter().for_each(|peer| peer.write_all(b"x"));
        bed.run_until(&mut base, || order.len() == 3);
        assert_eq!(order.take(), [0, 1, 2]);
    });
}

#[test]
fn a_flush_at_once_sends_inside_the_call_and_calls_nobody_there() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let seen = Seen::new();
        stream.set_callbacks(Recorder::patient(&seen));
        stream.write("at once").unwrap();
        assert!(stream.try_flush().unwrap());
        assert_eq!((stream.pending_output(), seen.len()), (0, 0));
        assert_eq!(peer.read().0, b"at once");
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["wrote, 0 left"]);
        // Nothing to do is as good.
        assert!(stream.try_flush().unwrap());
        // What a guard holds goes first, so nothing goes while one is held.
        stream.write("first ").unwrap();
        let guard = stream.output();
        stream.write("second").unwrap();
        assert!(!stream.try_flush().unwrap());
        drop(guard);
        assert!(stream.try_flush().unwrap());
        assert_eq!(peer.read().0, b"first second");
        stream.disable(Direction::WRITE);
        stream.write("later").unwrap();
        assert!(!stream.try_flush().unwrap());
        stream.free();
        assert!(matches!(stream.try_flush(), Err(Error::Stale)));
    });
}

#[test]
fn a_flush_that_the_peer_does_not_take_says_so_and_the_loop_goes_on_with_it() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        stream.write(vec![b'f'; 3 << 20]).unwrap();
        let mut calls = 0;
        while stream.pending_output() > 0 && calls < 10 && !stream.try_flush().unwrap() {
            calls += 1;
        }
        assert!(stream.pending_output() > 0, "no peer holds as much");
        let got = Cell::new(0);
        bed.run_until(&mut base, || {
            got.set(got.get() + peer.read().0.len());
            got.get() == 3 << 20
        });
        // And in a callback of its own.
        stream.set_read_cb(|bev| {
            bev.write(bev.read_buffer()).unwrap();
            assert!(bev.try_flush().unwrap());
            bev.write("!").unwrap();
        });
        stream.enable(Direction::READ).unwrap();
        peer.write_all(b"hm");
        let all = RefCell::new(Vec::new());
        bed.run_until(&mut base, || {
            all.borrow_mut().extend(peer.read().0);
            all.borrow().len() == 3
        });
        assert_eq!(all.take(), b"hm!");
    });
}

#[test]
fn a_flush_that_fails_is_an_error_and_an_event_and_one_that_ends_the_stream_frees_it() {
    each_backend(|bed| {
        let faults = Faults::new();
        let mut base = bed.base_with(&faults);
        let (stream, _peer) = bed.stream(&base);
        let seen = Seen::new();
        stream.set_callbacks(Recorder::patient(&seen));
        stream.write("lost").unwrap();
        faults.fail(Call::Send, faults.count(Call::Send) + 1, libc::EPIPE);
        assert_eq!(stream.try_flush().unwrap_err().raw_os_error(), Some(libc::EPIPE));
        assert!(seen.is_empty());
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["writing error"]);

        let (stream, peer) = bed.stream(&base);
        stream.write("bye").unwrap();
        stream.close_after_flush();
        assert!(!stream.is_freed());
        let flushed = stream.try_flush();
        bed.settle(&mut base);
        assert!(flushed.is_ok() && stream.is_freed());
        assert_eq!(peer.read(), (b"bye".to_vec(), true));
    });
}

#[test]
fn a_flush_out_of_the_drop_of_what_is_sent_sends_nothing_twice() {
    each_seed(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let mut block = event_core::Buffer::new();
        block.add_reference(Block::bytes(1, b'b', 2000));
        let own = stream.clone();
        let answers = Log::new();
        let sink = answers.clone();
        let _end = on_release(move |_| {
            own.write("after").unwrap();
            sink.push(own.try_flush().unwrap());
        });
        stream.write(block).unwrap();
        stream.try_flush().unwrap();
        bed.settle(&mut base);
        assert_eq!(answers.take(), [false]);
        let mut all = vec![b'b'; 2000];
        all.extend(b"after");
        assert_eq!(peer.read().0, all);
    });
}

#[test]
fn a_panic_of_released_memory_in_a_flush_at_once_leaves_the_stream_as_it_should_be() {
    each_seed(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let mut block = event_core::Buffer::new();
        block.add_reference(Block::bytes(1, b'b', 2000));
        stream.write(block).unwrap();
        {
            let _end = on_release(|_| quiet_panic("on purpose"));
            must_panic("on purpose", || stream.try_flush());
        }
        // Written outside of a step, it leaves with the next turn.
        stream.write("after").unwrap();
        bed.settle(&mut base);
        let got = peer.read().0;
        assert!(got.ends_with(b"after") && got.len() == 2005, "{}", got.len());
    });
}

/// Writes an answer to whatever comes and leaves it unattended.
struct Careless {
    seen: Seen,
    answer: usize,
}

impl Callbacks for Careless {
    fn on_read(&mut self, bev: &BufferEvent) {
        let asked = bev.read_buffer().len();
        self.seen.push(format!("read {asked}"));
        bev.write(vec![b'x'; self.answer]).unwrap();
        bev.leave_unattended();
    }

    fn on_write(&mut self, bev: &BufferEvent) {
        self.seen.push(if bev.pending_output() > 0 { "more to send" } else { "all sent" });
    }
}

#[test]
fn output_that_is_left_unattended_is_told_of_only_if_it_does_not_leave_at_once() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let seen = Seen::new();
        stream.set_callbacks(Careless { seen: seen.clone(), answer: 100 });
        stream.enable(Direction::READ).unwrap();
        for _ in 0..2 {
            peer.write_all(b"?");
            bed.run_until(&mut base, || !seen.is_empty());
            bed.settle(&mut base);
            assert_eq!((seen.take(), peer.read().0.len()), (vec!["read 1".to_string()], 100));
        }
        // Outside of its callbacks nothing is left out.
        stream.leave_unattended();
        stream.write("by itself").unwrap();
        bed.run_until(&mut base, || !seen.is_empty());
        assert_eq!(seen.take(), ["all sent"]);
        peer.read();

        stream.set_callbacks(Careless { seen: seen.clone(), answer: 4 << 20 });
        peer.write_all(b"?");
        bed.run_until(&mut base, || seen.len() >= 2);
        assert_eq!(seen.all()[..2], ["read 1", "more to send"]);
        let mut got = 0;
        bed.run_until(&mut base, || {
            got += peer.read().0.len();
            got == 4 << 20
        });
        bed.settle(&mut base);
        assert_eq!(seen.take(), ["read 1", "more to send", "all sent"]);
    });
}
