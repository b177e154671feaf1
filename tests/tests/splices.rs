//! Two streams joined: bytes, ends, errors, and how much a slow reader costs.

// Everything here is part of a test.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use event_core::{
    BufferEvent, Callbacks, Direction, Error, EventBase, Listener, LoopEnd, Spliced, StreamEvent,
};
use tests::streams::{Canary, Echo};
use tests::{Bed, Log, Peer, each_backend, each_seed};

const MS: Duration = Duration::from_millis(1);

/// Two peers with a proxy between them.
struct Stage {
    one: BufferEvent,
    other: BufferEvent,
    client: Peer,
    server: Peer,
    ends: Log<Spliced>,
}

fn stage(bed: &Bed, base: &EventBase) -> Stage {
    let (one, client) = bed.tcp_stream(base);
    let (other, server) = bed.tcp_stream(base);
    let ends = Log::new();
    Stage { one, other, client, server, ends }
}

impl Stage {
    fn join(&self) {
        let sink = self.ends.clone();
        self.one.splice(&self.other, move |end| sink.push(end)).unwrap();
    }

    fn are_freed(&self) -> bool {
        self.one.is_freed() && self.other.is_freed()
    }
}

/// Reads what comes until `n` bytes are there.
fn read(bed: &Bed, base: &mut EventBase, peer: &Peer, n: usize) -> Vec<u8> {
    let mut all = Vec::new();
    let got = std::cell::RefCell::new(&mut all);
    bed.run_until(base, || {
        got.borrow_mut().extend(peer.read().0);
        got.borrow().len() >= n
    });
    all
}

#[test]
fn bytes_go_both_ways_and_so_does_what_lay_there_before() {
    each_backend(|bed| {
        let mut base = bed.base();
        let stage = stage(bed, &base);
        stage.one.enable(Direction::READ).unwrap();
        stage.client.write_all(b"early ");
        bed.run_until(&mut base, || stage.one.pending_input() == 6);
        stage.join();
        stage.client.write_all(b"bird");
        stage.server.write_all(b"worm");
        assert_eq!(read(bed, &mut base, &stage.server, 10), b"early bird");
        assert_eq!(read(bed, &mut base, &stage.client, 4), b"worm");
        assert!(stage.ends.is_empty());
    });
}

#[test]
fn an_end_is_passed_on_behind_its_bytes_and_the_way_back_stays_open() {
    each_backend(|bed| {
        let mut base = bed.base();
        let stage = stage(bed, &base);
        stage.join();
        stage.client.write_all(b"question");
        stage.client.shutdown_write();
        let mut all = Vec::new();
        let mut ended = false;
        bed.run_until(&mut base, || {
            let (bytes, end) = stage.server.read();
            all.extend(bytes);
            ended |= end;
            ended
        });
        assert_eq!(all, b"question");
        assert!(stage.ends.is_empty() && !stage.one.is_freed());
        stage.server.write_all(b"answer");
        assert_eq!(read(bed, &mut base, &stage.client, 6), b"answer");
        stage.server.shutdown_write();
        bed.run_until(&mut base, || stage.are_freed());
        bed.run_until(&mut base, || stage.client.read().1);
        let end = stage.ends.take().pop().unwrap();
        assert_eq!((end.there, end.back, end.event), (8, 6, StreamEvent::EOF | StreamEvent::READING));
        assert!(end.error.is_none());
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn a_slow_reader_costs_its_cap_and_no_more_and_loses_nothing() {
    each_backend(|bed| {
        for cap in [1, 7, 4096, 100_000] {
            let mut base = bed.base();
            let stage = stage(bed, &base);
            stage.other.set_watermark(Direction::WRITE, 0, Some(cap));
            stage.join();
            let all: Vec<u8> = (0..if cap < 10 { 3000 } else { 3 << 20 }).map(|n| (n % 251) as u8).collect();
            let sent = Cell::new(0);
            let mut most = 0;
            // Nobody reads: what is held stays below the cap.
            for _ in 0..300 {
                sent.set(sent.get() + stage.client.write(&all[sent.get()..]));
                bed.settle(&mut base);
                most = most.max(stage.other.pending_output() + stage.one.pending_input());
            }
            assert!(most <= cap.max(2), "{most} bytes with a cap of {cap}");
            let mut got = Vec::new();
            let seen = std::cell::RefCell::new((&mut got, &mut most));
            bed.run_until(&mut base, || {
                sent.set(sent.get() + stage.client.write(&all[sent.get()..]));
                let mut seen = seen.borrow_mut();
                *seen.1 = (*seen.1).max(stage.other.pending_output() + stage.one.pending_input());
                seen.0.extend(stage.server.read().0);
                seen.0.len() == all.len()
            });
            assert!(got == all, "cap {cap}");
            assert!(most <= cap.max(2), "{most} bytes with a cap of {cap}");
        }
    });
}

#[test]
fn a_paused_proxy_uses_no_time() {
    each_seed(|bed| {
        let mut base = bed.base();
        let stage = stage(bed, &base);
        stage.other.set_watermark(Direction::WRITE, 0, Some(1000));
        stage.join();
        let Peer::Sim(_) = &stage.server else { unreachable!() };
        while stage.client.write(&[b'x'; 4096]) > 0 {
            bed.settle(&mut base);
        }
        let waits = bed.sim().unwrap().calls().total();
        for _ in 0..3 {
            bed.settle(&mut base);
        }
        // A wait a turn and nothing else.
        let calls = bed.sim().unwrap().calls().total() - waits;
        assert!(calls <= 61, "{calls}");
    });
}

#[test]
fn an_error_on_one_side_is_no_plain_end_on_the_other() {
    each_backend(|bed| {
        let mut base = bed.base();
        let listener = Listener::bind(&base, "127.0.0.1:0", |_, accepted| {
            let bev = accepted.into_stream();
            bev.set_read_cb(|bev| {
                bev.write("half of an ans").unwrap();
                bev.set_write_cb(BufferEvent::close_with_reset);
            });
            bev.enable(Direction::READ).unwrap();
        })
        .unwrap();
        let address = listener.local_address().unwrap();
        // The client is a stream of the same loop, so that it can tell an end from a reset.
        let (client, one) = BufferEvent::pair(&base).unwrap();
        let other = BufferEvent::connect(&base, &address).unwrap();
        let ends = Log::new();
        let sink = ends.clone();
        one.splice(&other, move |end| sink.push(end)).unwrap();
        let seen = tests::streams::Seen::new();
        client.set_callbacks(tests::streams::Recorder::patient(&seen));
        client.enable(Direction::READ).unwrap();
        client.write("ask").unwrap();
        bed.run_until(&mut base, || seen.all().last().is_some_and(|line| line.ends_with("error")));
        let end = ends.take().pop().unwrap();
        assert_eq!((end.there, end.event), (3, StreamEvent::ERROR | StreamEvent::READING));
        assert_eq!(end.error.unwrap().raw_os_error(), Some(libc::ECONNRESET));
        assert!(one.is_freed() && other.is_freed());
        client.free();
        listener.free();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn a_connect_that_is_refused_ends_both() {
    each_backend(|bed| {
        let mut base = bed.base();
        let listener = Listener::bind(&base, "127.0.0.1:0", |_, _| {}).unwrap();
        let address = listener.local_address().unwrap();
        listener.free();
        let (one, client) = bed.tcp_stream(&base);
        let other = BufferEvent::connect(&base, &address).unwrap();
        let ends = Log::new();
        let sink = ends.clone();
        one.splice(&other, move |end| sink.push(end)).unwrap();
        bed.run_until(&mut base, || client.read().1);
        let end = ends.take().pop().unwrap();
        assert_eq!(end.error.unwrap().raw_os_error(), Some(libc::ECONNREFUSED));
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn a_proxy_in_front_of_an_echo_carries_more_than_it_may_hold() {
    each_backend(|bed| {
        let mut base = bed.base();
        let listener = Listener::bind(&base, "127.0.0.1:0", |_, accepted| {
            let bev = accepted.into_stream();
            // With back-pressure of its own: what it cannot send back it does not read.
            struct Server;
            impl Callbacks for Server {
                fn on_read(&mut self, bev: &BufferEvent) {
                    Echo.on_read(bev);
                    if !bev.has_room() {
                        bev.disable(Direction::READ);
                    }
                }
                fn on_room(&mut self, bev: &BufferEvent) {
                    bev.enable(Direction::READ).unwrap();
                }
                fn on_event(&mut self, bev: &BufferEvent, _: StreamEvent) {
                    bev.close_after_flush();
                }
            }
            bev.set_callbacks(Server);
            bev.enable(Direction::READ).unwrap();
        })
        .unwrap();
        let (one, client) = bed.tcp_stream(&base);
        let other = BufferEvent::connect(&base, &listener.local_address().unwrap()).unwrap();
        let ended = Rc::new(Cell::new(false));
        let flag = ended.clone();
        one.splice(&other, move |_| flag.set(true)).unwrap();
        let all: Vec<u8> = (0..5 << 20).map(|n| (n % 253) as u8).collect();
        let (mut sent, mut got) = (0, Vec::new());
        bed.run_until(&mut base, || {
            sent += client.write(&all[sent..]);
            got.extend(client.read().0);
            got.len() == all.len()
        });
        assert!(got == all);
        client.shutdown_write();
        bed.run_until(&mut base, || ended.get() && client.read().1);
        listener.free();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn freeing_one_from_outside_sends_what_the_other_holds_and_ends_it() {
    each_backend(|bed| {
        let mut base = bed.base();
        let canary = Canary::new();
        let stage = stage(bed, &base);
        let held = canary.clone();
        stage
            .one
            .splice(&stage.other, move |_| {
                let _held = held;
                panic!("nobody ended");
            })
            .unwrap();
        stage.other.write("goodbye").unwrap();
        stage.one.free();
        bed.run_until(&mut base, || stage.other.is_freed());
        assert_eq!(read(bed, &mut base, &stage.server, 7), b"goodbye");
        assert_eq!(canary.alive(), 0);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn timeouts_and_deadlines_end_both() {
    each_seed(|bed| {
        for kind in 0..3 {
            let mut base = bed.base();
            let stage = stage(bed, &base);
            match kind {
                0 => stage.one.set_timeouts(Some(10 * MS), None),
                1 => stage.other.set_deadline(Some(base.elapsed() + 10 * MS)),
                _ => {
                    stage.other.set_timeouts(None, Some(10 * MS));
                    stage.other.set_watermark(Direction::WRITE, 0, Some(1000));
                }
            }
            stage.join();
            if kind == 2 {
                // More than anybody takes.
                while stage.client.write(&[b'w'; 4096]) > 0 && !stage.other.is_freed() {
                    bed.settle(&mut base);
                }
            }
            bed.pass(&mut base, 20 * MS);
            let end = stage.ends.take().pop().unwrap();
            assert!(end.event.contains(StreamEvent::TIMEOUT), "{end:?}");
            assert_eq!(end.event.contains(StreamEvent::WRITING), kind == 2);
            assert!(stage.are_freed(), "kind {kind}");
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        }
    });
}

#[test]
fn the_callback_of_the_end_may_do_what_it_likes_and_what_is_joined_goes_with_the_loop() {
    each_backend(|bed| {
        let canary = Canary::new();
        {
            let base = bed.base();
            let stage = stage(bed, &base);
            let (held, own) = (canary.clone(), stage.one.clone());
            stage.one.splice(&stage.other, move |_| drop((held, own))).unwrap();
        }
        assert_eq!(canary.alive(), 0);
        let mut base = bed.base();
        let stage = stage(bed, &base);
        let (one, other) = (stage.one.clone(), stage.other.clone());
        let handle = base.handle();
        stage
            .one
            .splice(&stage.other, move |_| {
                one.free();
                other.free();
                handle.loopbreak().unwrap();
            })
            .unwrap();
        stage.client.shutdown_write();
        stage.server.shutdown_write();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Break);
        assert!(stage.are_freed());
    });
}

#[test]
fn what_cannot_be_joined_is_refused() {
    each_backend(|bed| {
        let base = bed.base();
        let (one, _client) = bed.stream(&base);
        let (other, _server) = bed.stream(&base);
        assert!(matches!(one.splice(&one.clone(), |_| {}), Err(Error::Invalid(_))));
        other.free();
        assert!(matches!(one.splice(&other, |_| {}), Err(Error::Stale)));
        assert!(!one.is_freed());
    });
}

#[test]
fn a_pipe_that_is_only_written_to_ends_by_a_shutdown() {
    each_seed(|bed| {
        let mut base = bed.base();
        let sim = bed.sim().unwrap();
        let (fd, reader) = sim.pipe_writer();
        let stream = BufferEvent::without_fd(&base).unwrap();
        sim.attach(&stream, fd).unwrap();
        stream.write("all").unwrap();
        stream.shutdown_write();
        bed.settle(&mut base);
        assert!(stream.is_freed());
        assert_eq!(reader.read(), b"all");
        assert!(reader.is_eof());
    });
}

#[test]
fn a_long_chain_of_proxies_pauses_and_resumes_without_recursion() {
    each_seed(|bed| {
        let mut base = bed.base();
        // Each link is a pair whose far end is joined to the near end of the next.
        const LINKS: usize = 3000;
        let (first, mut far) = BufferEvent::pair(&base).unwrap();
        for _ in 0..LINKS {
            let (near, next) = BufferEvent::pair(&base).unwrap();
            for bev in [&far, &near] {
                bev.set_watermark(Direction::WRITE, 0, Some(100));
            }
            far.splice(&near, |_| {}).unwrap();
            far = next;
        }
        let got = Rc::new(Cell::new(0));
        let count = got.clone();
        far.set_read_cb(move |bev| count.set(count.get() + bev.read_buffer().len()));
        first.write(vec![b'c'; 1000]).unwrap();
        bed.settle(&mut base);
        // Nobody reads at the end yet, so all of them pause in the end; then all go on.
        far.enable(Direction::READ).unwrap();
        bed.run_until(&mut base, || got.get() == 1000);
        first.free();
        bed.run_until(&mut base, || far.is_freed());
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

// The callbacks of the first joint, replaced by those of the second, closed both streams: the call then gave `Stale`.
#[test]
fn two_streams_that_are_joined_may_be_joined_anew() {
    each_backend(|bed| {
        let mut base = bed.base();
        let ((a, near), (b, far)) = (bed.stream(&base), bed.stream(&base));
        let ends = Log::new();
        for (n, (one, other)) in [(&a, &b), (&a, &b), (&b, &a)].into_iter().enumerate() {
            let sink = ends.clone();
            one.splice(other, move |end| sink.push((n, end.there, end.back))).unwrap();
        }
        near.write_all(b"hello");
        far.write_all(b"you");
        assert_eq!(read(bed, &mut base, &far, 5), b"hello");
        assert_eq!(read(bed, &mut base, &near, 3), b"you");
        near.shutdown_write();
        far.shutdown_write();
        bed.run_until(&mut base, || !ends.is_empty());
        assert_eq!(ends.take(), [(2, 3, 5)]);
        // With a third one: whoever is left alone ends.
        let ((c, _near), (d, far), (e, other)) = (bed.stream(&base), bed.stream(&base), bed.stream(&base));
        c.splice(&d, |_| {}).unwrap();
        c.splice(&e, |_| {}).unwrap();
        bed.run_until(&mut base, || d.is_freed());
        assert!(far.read().1 && !c.is_freed() && !e.is_freed());
        drop(other);
    });
}

#[test]
fn an_end_that_was_told_before_they_were_joined_is_passed_on() {
    each_backend(|bed| {
        let mut base = bed.base();
        let stage = stage(bed, &base);
        // A callback of the program's that makes nothing of it.
        let told = Rc::new(Cell::new(false));
        let heard = told.clone();
        stage.one.set_event_cb(move |_, _| heard.set(true));
        stage.one.enable(Direction::READ).unwrap();
        stage.client.shutdown_write();
        bed.run_until(&mut base, || told.get());
        stage.join();
        let mut ended = false;
        bed.run_until(&mut base, || {
            ended |= stage.server.read().1;
            ended
        });
        stage.server.shutdown_write();
        bed.run_until(&mut base, || stage.are_freed());
        assert_eq!(stage.ends.len(), 1);
    });
}

#[test]
fn a_low_mark_from_before_holds_nothing_back() {
    each_backend(|bed| {
        let mut base = bed.base();
        let stage = stage(bed, &base);
        stage.one.set_watermark(Direction::READ, 4, None);
        stage.join();
        stage.client.write_all(b"abc");
        assert_eq!(read(bed, &mut base, &stage.server, 3), b"abc");
    });
}

// It kept the little room that the other one had left it, also when that had more again.
#[test]
fn a_stream_that_is_taken_out_is_as_it_was() {
    each_backend(|bed| {
        let mut base = bed.base();
        let stage = stage(bed, &base);
        stage.one.set_max_single_read(Some(5000)).unwrap();
        stage.one.set_watermark(Direction::WRITE, 3, Some(200_000));
        stage.one.set_watermark(Direction::READ, 2, None);
        stage.other.set_watermark(Direction::WRITE, 0, Some(10_000));
        stage.join();
        let mut sent = 0;
        bed.run_until(&mut base, || {
            sent += stage.client.write(&[b'x'; 4096]);
            !stage.one.enabled().contains(Direction::READ)
        });
        let moved = stage.other.pending_output();
        assert!(moved > 0 && stage.one.max_single_read() < 5000);
        let got = Rc::new(Cell::new(0));
        let count = got.clone();
        stage.one.set_read_cb(move |bev| count.set(count.get() + bev.read_buffer().len()));
        let is_as_it_was = || {
            assert_eq!(stage.one.max_single_read(), 5000);
            assert_eq!(stage.one.watermark(Direction::WRITE).unwrap(), (3, Some(200_000)));
            assert_eq!(stage.one.watermark(Direction::READ).unwrap(), (2, None));
            assert!(stage.one.enabled().contains(Direction::READ), "the pause was the joint's");
        };
        is_as_it_was();
        // The other one ends behind what it holds, and has no say any more as it gets there.
        let (mut arrived, mut ended) = (0, false);
        bed.run_until(&mut base, || {
            let (bytes, end) = stage.server.read();
            arrived += bytes.len();
            ended |= end;
            ended && got.get() + arrived == sent
        });
        is_as_it_was();
        assert!(stage.other.is_freed() && !stage.one.is_freed() && stage.ends.is_empty());
    });
}

#[test]
fn what_the_program_sets_while_a_stream_is_joined_stays_and_joining_anew_forgets_nothing() {
    each_backend(|bed| {
        let base = bed.base();
        let stages = [stage(bed, &base), stage(bed, &base)];
        for Stage { one, .. } in &stages {
            one.set_max_single_read(Some(5000)).unwrap();
        }
        stages.iter().for_each(Stage::join);
        stages.iter().for_each(Stage::join);
        let [Stage { one: kept, .. }, Stage { one: changed, .. }] = &stages;
        changed.set_watermark(Direction::WRITE, 1, Some(30));
        changed.set_max_single_read(Some(77)).unwrap();
        for (stream, single, marks) in [(kept, 5000, (0, Some(1 << 20))), (changed, 77, (1, Some(30)))] {
            stream.clear_callbacks();
            assert_eq!(stream.max_single_read(), single);
            assert_eq!(stream.watermark(Direction::WRITE).unwrap(), marks);
        }
    });
}
