//! What broke once, each as small as it gets.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use event_core::testing::{Call, Faults};
use event_core::{Buffer, BufferEvent, Direction, Event, Listener, LoopEnd, LoopFlags, What};
use event_http::{Request, Server};
use tests::http::{each_socket_web, each_web};
use tests::{Log, Peer, each_backend};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Panics when it is dropped, unless its thread unwinds already.
struct Mine;

impl Drop for Mine {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::panic::resume_unwind(Box::new("in a drop"));
        }
    }
}

// A handler panicked with a value whose Drop panics. The second panic left `catch_unwind`'s arm and the loop; the
// handler, on loan while it ran, was not put back, and every later request got 500.
#[test]
#[cfg_attr(miri, ignore = "what the drop of a payload panics with is leaked on purpose")]
fn a_handler_outlives_a_panic_whose_payload_panics_when_dropped() {
    each_web(|web| {
        web.server.set_gencb(|req: Request| {
            if req.path() == "/bad" {
                std::panic::resume_unwind(Box::new(Mine));
            }
            let _ = req.send_reply(200, None, "well");
        });
        let client = web.client();
        let answer = web.ask(&client, b"GET /bad HTTP/1.1\r\nHost: a\r\n\r\n", 1);
        assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
        let client = web.client();
        let answer = web.ask(&client, GET, 1);
        assert!(answer.ends_with("well"), "{answer}");
    });
}

// The same in a completion: the panic ended the turn that ran the completions of all requests, and those behind it,
// which are promised one call each, were dropped uncalled.
#[test]
#[cfg_attr(miri, ignore = "what the drop of a payload panics with is leaked on purpose")]
fn a_completion_whose_panic_panics_when_dropped_does_not_keep_the_others_from_running() {
    each_web(|web| {
        let told = Rc::new(Cell::new(0));
        let kept = web.keep();
        let clients = [web.client(), web.client(), web.client()];
        for client in &clients {
            client.write(GET);
        }
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 3);
        for request in kept.borrow().iter() {
            let told = told.clone();
            request.on_complete(move |_| {
                told.set(told.get() + 1);
                std::panic::resume_unwind(Box::new(Mine));
            });
        }
        web.server.free();
        web.bed.run_until(&mut web.base, || told.get() == 3);
        kept.take();
    });
}

// `accept` may fail for reasons of one client: the next connection may be well. Where it fails so for ever (a firewall's
// EPERM, a socket that cannot accept) the loop was never idle again: 64 calls a turn, turn after turn.
#[test]
fn accepting_that_fails_for_ever_does_not_spin() {
    each_backend(|bed| {
        for errno in [libc::EPERM, libc::EOPNOTSUPP, libc::ECONNABORTED] {
            let faults = Faults::new();
            let mut base = bed.base_with(&faults);
            let accepted = Rc::new(Cell::new(0));
            let count = accepted.clone();
            let listener = Listener::bind(&base, "127.0.0.1:0", move |_, _| {
                count.set(count.get() + 1);
            });
            let listener = listener.unwrap();
            let address = listener.local_address().unwrap();
            let _peer = match bed.sim() {
                Some(sim) => Peer::Sim(sim.connect(&address).unwrap()),
                None => bed.connect(&address),
            };
            faults.fail_from(Call::Accept, 1, errno);
            base.loopexit(Some(Duration::from_millis(450))).unwrap();
            base.dispatch().unwrap();
            let waits = faults.count(Call::Wait);
            assert!(waits < 1000, "{waits} turns in which nothing could be done");
            faults.clear();
            bed.pass(&mut base, Duration::from_millis(250));
            assert_eq!(accepted.get(), 1, "it goes on when the fault is over");
        }
    });
}

// A client that pipelines small requests faster than 64 a turn are served: each turn read up to 256 KiB more behind
// them, so that the input of each such connection grew to its bound of 16 MiB and stayed there. The connection was not
// cut off, since every turn took something out.
#[test]
fn a_fast_pipelining_client_does_not_fill_the_input() {
    const REQUESTS: usize = tests::few_under_miri(40_000, 200);
    each_backend(|bed| {
        let mut base = bed.base();
        let server = Server::new(&base).unwrap();
        let served = Rc::new(Cell::new(0));
        let count = served.clone();
        server.set_gencb(move |req: Request| {
            count.set(count.get() + 1);
            req.send_reply(204, None, "")
        });
        let (stream, peer) = bed.tcp_stream(&base);
        server.serve(stream.clone());
        let (requests, mut sent, mut most) = (GET.repeat(REQUESTS), 0, 0);
        bed.run_until(&mut base, || {
            for _ in 0..10 {
                sent += peer.write(&requests[sent..]);
            }
            peer.read();
            most = most.max(stream.pending_input());
            served.get() == REQUESTS
        });
        assert!(most < 400 << 10, "{most} bytes of requests are held");
    });
}

// Each chunk of a body became a piece of its own in the buffer, with memory of its own: a body of one-byte chunks took
// more than fifty times its length, so that a body within `max_body_bytes` (8 MiB) held 450 MB.
#[test]
fn a_body_of_tiny_chunks_takes_memory_in_proportion() {
    const CHUNKS: usize = tests::few_under_miri(10_000, 300);
    each_web(|web| {
        let seen = Rc::new(Cell::new((0, 0)));
        let note = seen.clone();
        web.server.set_gencb(move |req: Request| {
            note.set((req.body().len(), req.body().chunks().count()));
            req.send_reply(204, None, "")
        });
        let client = web.client();
        let mut bytes = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        bytes.extend(b"1\r\nx\r\n".repeat(CHUNKS));
        bytes.extend(b"0\r\n\r\n");
        web.ask(&client, &bytes, 1);
        let (len, pieces) = seen.get();
        assert_eq!(len, CHUNKS);
        assert!(pieces < 50, "{pieces} pieces");
    });
}

// `Server::free` closed its connections one after the other, and what a callback of the first had captured panicked when
// it was dropped. The others stayed open for good: the server counted as freed, and nothing watched them any more.
#[test]
fn a_drop_that_panics_while_a_server_is_freed_leaves_nothing_open() {
    each_socket_web(|web| {
        let kept = web.keep();
        let clients = [web.client(), web.client(), web.client()];
        for client in &clients {
            client.write(GET);
        }
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 3);
        let told = Rc::new(Cell::new(0));
        for request in kept.borrow().iter() {
            let (mine, count) = (Mine, told.clone());
            request.on_client_gone(move |_| drop(mine));
            request.on_complete(move |_| count.set(count.get() + 1));
        }
        let _ = catch_unwind(AssertUnwindSafe(|| web.server.free()));
        assert_eq!(web.server.connection_count(), 0);
        for client in &clients {
            web.until(client, |_, ended| ended);
        }
        web.bed.run_until(&mut web.base, || told.get() == 3);
        kept.take();
    });
}

// The program kept a handle on a stream that it gave to the server, and bounded its output. The last chunk of an answer
// went over the bound, `end` returned that error, and the exchange stayed open although nobody could end it any more:
// the debug assertion that something will wake each connection failed.
#[test]
fn an_answer_whose_end_is_refused_is_over_all_the_same() {
    each_backend(|bed| {
        let mut base = bed.base();
        let server = Server::new(&base).unwrap();
        let (near, far) = BufferEvent::pair(&base).unwrap();
        let (stream, kept) = (near.clone(), Rc::new(Cell::new(None)));
        let keep = kept.clone();
        server.set_gencb(move |req: Request| keep.set(req.send_reply_start(200, None).ok()));
        server.serve(near);
        far.enable(Direction::READ).unwrap();
        far.write(Buffer::from(GET)).unwrap();
        far.shutdown_write();
        bed.settle(&mut base);
        stream.set_max(None, Some(1));
        assert!(kept.take().unwrap().end().is_err());
        let _ = stream.trigger(Direction::READ);
        bed.run_until(&mut base, || server.connection_count() == 0);
    });
}

// `loopbreak` in the callback of a listener took effect only when all connections of a burst were accepted: up to as many
// callbacks ran after it as a turn accepts, and the connections were lost on a program that was about to end.
#[test]
fn a_loopbreak_in_an_accept_callback_leaves_the_other_connections_waiting() {
    each_backend(|bed| {
        let mut base = bed.base();
        let accepted = Rc::new(Cell::new(0));
        let count = accepted.clone();
        let listener = Listener::bind(&base, "127.0.0.1:0", move |listener, _| {
            count.set(count.get() + 1);
            listener.handle().loopbreak().unwrap();
        });
        let address = listener.unwrap().local_address().unwrap();
        let _peers: Vec<_> = (0..20).map(|_| bed.connect(&address)).collect();
        for dispatch in 1..=20 {
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Break);
            assert_eq!(accepted.get(), dispatch);
        }
    });
}

/// A callback put an event on the fd of a paused stream whose hang-up was in the same batch. Queueing the rest of the
/// batch took that fd out of the kernel, and the newcomer then changed what was no longer there: the stream was told
/// that its fd was gone.
#[test]
fn an_event_that_joins_a_paused_stream_in_the_batch_of_its_hang_up_ends_nobody() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, stream_peer) = bed.stream(&base);
        let errors = Log::new();
        let sink = errors.clone();
        stream.set_event_cb(move |bev, _| sink.push(format!("{:?}", bev.error())));
        stream.enable(Direction::READ).unwrap();
        let (fd, peer) = bed.fd();
        let (handle, of) = (base.handle(), stream.fd().unwrap());
        let joined = Rc::new(Cell::new(None));
        let into = joined.clone();
        let first = Event::new(&base, fd.raw(), What::READ | What::PERSIST, move |event, _| {
            event.del().unwrap();
            let newcomer = Event::new(&handle, of, What::READ, |_, _| {}).unwrap();
            newcomer.add(None).unwrap();
            into.set(Some(newcomer));
        })
        .unwrap();
        first.add(None).unwrap();
        base.run(LoopFlags::NONBLOCK).unwrap();
        stream.disable(Direction::READ);
        peer.write_all(b"x");
        drop(stream_peer);
        for _ in 0..4 {
            base.run(LoopFlags::NONBLOCK).unwrap();
        }
        assert!(joined.take().is_some());
        assert!(errors.take().iter().all(|error| !error.contains("Stale")));
    });
}
