//! Clients that are slow on purpose, and bodies of which the memory is counted. The simulation's clock, and one thread's
//! allocations.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use event_core::testing::{Peer, Sim};
use event_core::{EventBase, LoopFlags, What};
use event_http::{BodyEvent, Limits, Method, Reply, Request, Server};
use tests::http::PAGE;

const SECOND: Duration = Duration::from_secs(1);

fn turns(base: &mut EventBase, count: usize) {
    for _ in 0..count {
        base.run(LoopFlags::NONBLOCK | LoopFlags::NO_EXIT_ON_EMPTY).unwrap();
    }
}

fn server(base: &EventBase) -> Server {
    let server = Server::new(base).unwrap();
    server.set_max_connections(Some(20_000));
    server.set_gencb(|req: Request| req.send_reply(200, "Client", PAGE));
    server
}

fn client(sim: &Sim, base: &EventBase, server: &Server) -> Peer {
    let (stream, peer) = sim.stream(base);
    server.serve(stream);
    peer
}

#[test]
fn ten_thousand_heads_of_a_byte_a_second_are_gone_at_their_deadline() {
    let sim = Sim::new(1);
    let mut base = sim.event_base().unwrap();
    let server = server(&base);
    let count = tests::few_under_miri(10_000, 20);
    let good = client(&sim, &base, &server);
    let slow: Vec<_> = (0..count).map(|_| client(&sim, &base, &server)).collect();
    turns(&mut base, 4);
    let head = b"GET / HTTP/1.1\r\nHost: a\r\nX: y";
    assert_eq!(Limits::default().head_timeout, Some(20 * SECOND));
    let used = allocation_counter::measure(|| {
        for second in 0..20 {
            if second > 0 {
                sim.advance(SECOND);
            }
            for peer in &slow {
                peer.write_all(&head[second..=second]).unwrap();
            }
            good.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            turns(&mut base, 2);
            assert_eq!(server.connection_count(), count + 1, "after {second} s");
            assert!(good.read().ends_with(PAGE.as_bytes()), "after {second} s");
        }
    });
    // What the simulated kernel holds is in it.
    let each = used.bytes_max / count as u64;
    println!("{count} slow clients: at most {each} bytes more for each");
    assert!(each <= 1024, "{each} bytes a connection");
    sim.advance(SECOND - Duration::from_millis(1));
    turns(&mut base, 8);
    assert_eq!(server.connection_count(), count + 1, "not a millisecond too early");
    sim.advance(Duration::from_millis(1));
    turns(&mut base, 8);
    let told = slow.iter().filter(|peer| peer.read().starts_with(b"HTTP/1.1 408 ")).count();
    assert_eq!(told, count, "and then all at once");
    // They go on sending; the lingering close hears that for two seconds.
    for _ in 0..3 {
        for peer in &slow {
            let _ = peer.write_all(b"x");
        }
        sim.advance(SECOND);
        turns(&mut base, 8);
    }
    assert_eq!(server.connection_count(), 1, "the good one");
    assert!(slow.iter().all(|peer| peer.is_eof() || peer.is_reset()));
    good.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    turns(&mut base, 4);
    assert!(good.read().ends_with(PAGE.as_bytes()));
}

#[test]
fn bodies_of_a_byte_a_second_are_gone_when_they_should_have_had_a_rate() {
    // The head comes at once, and its time is not the body's.
    let sim = Sim::new(1);
    let mut base = sim.event_base().unwrap();
    let server = server(&base);
    let count = tests::few_under_miri(2_000, 20);
    let slow: Vec<_> = (0..count).map(|_| client(&sim, &base, &server)).collect();
    for peer in &slow {
        peer.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\n").unwrap();
    }
    turns(&mut base, 4);
    for second in 0..30 {
        assert_eq!(server.connection_count(), count, "after {second} s");
        for peer in &slow {
            peer.write_all(b"x").unwrap();
        }
        turns(&mut base, 4);
        sim.advance(SECOND);
    }
    turns(&mut base, 8);
    assert!(slow.iter().all(|peer| peer.read().starts_with(b"HTTP/1.1 408 ")));
    sim.advance(3 * SECOND);
    turns(&mut base, 8);
    assert_eq!(server.connection_count(), 0);
}

/// How much an upload of `len` bytes allocates at most at a time, and how many bytes the callback got. `pause`: it takes a
/// piece and is ready for the next one a millisecond later.
fn upload(len: usize, pause: bool) -> (u64, usize) {
    let sim = Sim::new(1);
    let mut base = sim.event_base().unwrap();
    let server = server(&base);
    let got = Rc::new(Cell::new(0));
    let sink = got.clone();
    let handle = base.handle();
    server
        .route_early(Method::PUT, "/up", move |req| {
            let (sink, handle) = (sink.clone(), handle.clone());
            req.stream_body(None, move |body, event| match event {
                BodyEvent::Data(piece) => {
                    sink.set(sink.get() + piece.len());
                    if pause {
                        body.pause();
                        let body = body.clone();
                        let rest = Some(Duration::from_millis(1));
                        handle.once(-1, What::empty(), rest, move |_| body.resume()).unwrap();
                    }
                }
                BodyEvent::End(_) => body.take_request().unwrap().send_reply(200, None, "got it").unwrap(),
                other => panic!("{other:?}"),
            });
        })
        .unwrap();
    let peer = client(&sim, &base, &server);
    peer.write_all(format!("PUT /up HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n").as_bytes())
        .unwrap();
    turns(&mut base, 4);
    let block = vec![b'x'; 1 << 16];
    let (mut left, mut answer) = (len, Vec::new());
    let used = allocation_counter::measure(|| {
        while answer.is_empty() {
            left -= peer.write(&block[..left.min(block.len())]).unwrap_or(0);
            turns(&mut base, 2);
            if pause {
                sim.advance(Duration::from_millis(1));
            }
            answer = peer.read();
        }
    });
    assert!(answer.ends_with(b"got it"));
    (used.bytes_max, got.get())
}

#[test]
fn an_upload_holds_the_same_memory_whatever_its_length() {
    for pause in [false, true] {
        let (small, large) = (1 << 20, tests::few_under_miri(32 << 20, 2 << 20));
        let (least, most) = (upload(small, pause), upload(large, pause));
        println!("paused: {pause}; 1 MiB: {} bytes, {} MiB: {}", least.0, large >> 20, most.0);
        assert_eq!((least.1, most.1), (small, large));
        // 64 KiB are read at a time, and the kernel holds as much.
        assert!(most.0 <= 256 << 10 && most.0 <= least.0 + (16 << 10), "{} and {}", least.0, most.0);
    }
}

#[test]
fn a_download_to_a_slow_reader_holds_the_same_memory_whatever_its_length() {
    let download = |len: usize| {
        let sim = Sim::new(1);
        let mut base = sim.event_base().unwrap();
        let server = server(&base);
        let left = Rc::new(Cell::new(len));
        let rest = left.clone();
        server
            .set_cb("/down", move |req| {
                let reply = Rc::new(RefCell::new(Some(req.send_reply_start(200, None)?)));
                let (place, left) = (reply.clone(), rest.clone());
                let fill = move || {
                    let Some(reply) = place.take() else { return };
                    while left.get() > 0 && reply.has_room() {
                        let piece = left.get().min(100_000);
                        reply.chunk(vec![b'x'; piece]).unwrap();
                        left.set(left.get() - piece);
                    }
                    match left.get() {
                        0 => reply.end().unwrap(),
                        _ => drop(place.replace(Some(reply))),
                    }
                };
                if let Some(reply) = reply.borrow().as_ref() {
                    Reply::on_room(reply, fill);
                }
                Ok::<(), event_http::Error>(())
            })
            .unwrap();
        let peer = client(&sim, &base, &server);
        peer.write_all(b"GET /down HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut got = 0;
        let mut end = Vec::new();
        let used = allocation_counter::measure(|| {
            // 50 kB a second.
            while !end.ends_with(b"\r\n0\r\n\r\n") {
                turns(&mut base, 2);
                let piece = peer.read_available(50_000);
                got += piece.len();
                end.extend_from_slice(&piece);
                end.drain(..end.len().saturating_sub(7));
                sim.advance(SECOND);
            }
        });
        assert!(got > len, "{got}");
        used.bytes_max
    };
    let large = tests::few_under_miri(32 << 20, 4 << 20);
    let (least, most) = (download(4 << 20), download(large));
    println!("4 MiB: {least} bytes, {} MiB: {most}", large >> 20);
    // The bound of room, a piece above it, and what the kernel holds.
    assert!(most <= 2 << 20 && most <= least + (128 << 10), "{least} and {most}");
}
