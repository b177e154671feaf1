//! Random bytes and mutated requests, random handlers and random times: nothing panics, every connection ends, and
//! every request is completed once.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use event_http::{BodyEvent, BodyReader, Deferred, Headers, Limits, Method, MethodSet, Reply, Request};
use tests::http::{Client, Web, Wire};
use tests::random::Random;

const GOOD: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "HEAD /x HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n",
    "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    "CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n",
    "PUT /u/1 HTTP/1.1\r\nHost: b\r\nContent-Length: 9\r\n\r\n123456789",
    "PUT /u/2 HTTP/1.1\r\nHost: b\r\nContent-Length: 900\r\n\r\n123456789",
    "PUT /u/3 HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n123456789\r\n1",
];

const BITS: &[&str] = &[
    "\r\n",
    "\n",
    "\r",
    "\0",
    ":",
    " ",
    "0",
    "f",
    ";",
    "chunked",
    "100-continue",
    "HTTP/1.1",
    "%00",
    "\u{80}",
];

fn bytes(random: &Random) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::new();
    for _ in 0..=random.draw(4) {
        bytes.extend_from_slice(random.pick(GOOD).as_bytes());
    }
    match random.draw(6) {
        0 => bytes = (0..random.draw(200)).map(|_| random.bits() as u8).collect(),
        1 | 2 => {
            for _ in 0..=random.draw(3) {
                let at = random.draw(bytes.len() as u64) as usize;
                match random.draw(4) {
                    0 => bytes[at] = random.bits() as u8,
                    1 => drop(bytes.drain(at..(at + random.draw(9) as usize).min(bytes.len()))),
                    2 => bytes.truncate(at + 1),
                    _ => {
                        let bit = random.pick(BITS).as_bytes();
                        bytes.splice(at..at, bit.iter().copied());
                    }
                }
                if bytes.is_empty() {
                    break;
                }
            }
        }
        _ => {}
    }
    bytes
}

/// Everything that is with the program.
#[derive(Default)]
struct Held {
    requests: Vec<Request>,
    replies: Vec<Reply>,
    readers: Vec<BodyReader>,
    tokens: Vec<Deferred>,
    /// Requests that were run, and how often one was completed.
    run: u64,
    completed: Rc<Cell<u64>>,
}

fn answer(random: &Random, held: &mut Held, request: Request) {
    match random.draw(12) {
        8 => {
            let _ = request.send_interim(103, &Headers::new());
            held.requests.push(request);
        }
        9 => {
            let _ = request.upgrade(|stream| {
                tally("upgrade");
                stream.set_read_cb(|stream| {
                    let bytes = stream.read_buffer();
                    let _ = stream.write(bytes);
                });
                // It has no deadline but its own.
                stream.set_timeouts(Some(Duration::from_secs(30)), Some(Duration::from_secs(30)));
            });
        }
        10 => held.tokens.push(request.defer()),
        0 => drop(request),
        1 => held.requests.push(request),
        2 => {
            if let Ok(reply) = request.send_reply_start(200, None) {
                let _ = reply.chunk("piece");
                held.replies.push(reply);
            }
        }
        3 => drop(request.send_reply(200, None, vec![b'x'; random.draw(200_000) as usize])),
        4 => drop(request.send_error(404, None)),
        5 => panic!("a handler fails"),
        _ => drop(request.send_reply(200, None, "fine")),
    }
}

thread_local! {
    /// How often each thing has happened.
    static TALLY: RefCell<BTreeMap<&'static str, u32>> = RefCell::default();
}

fn tally(what: &'static str) {
    TALLY.with_borrow_mut(|tally| *tally.entry(what).or_default() += 1);
}

/// Streams a body: its callback pauses, takes the request, fails, or answers.
fn stream(random: &Rc<Random>, place: &Rc<RefCell<Held>>, request: Request, alive: Rc<()>) {
    let (dice, kept) = (random.clone(), place.clone());
    let over = Cell::new(false);
    let reader = request.stream_body(500, move |body, event| {
        let _ = &alive;
        assert!(!over.get(), "nothing follows the last event");
        let is_data = matches!(event, BodyEvent::Data(_));
        tally(match event {
            BodyEvent::Data(_) => "data",
            BodyEvent::End(_) => "end",
            _ => "failed",
        });
        over.set(!is_data);
        let way = dice.draw(8);
        match way {
            0 if is_data => {
                tally("pause");
                body.pause();
            }
            1 => kept.borrow_mut().requests.extend(body.take_request()),
            2 if is_data => panic!("a handler fails"),
            3 => drop(body.take_request().map(|request| request.send_reply(200, None, "early"))),
            4 if is_data => {
                let reply = body.take_request().and_then(|request| request.send_reply_start(200, None).ok());
                kept.borrow_mut().replies.extend(reply);
            }
            _ if !is_data => drop(body.take_request().map(|request| request.send_reply(200, None, "done"))),
            _ => {}
        }
    });
    place.borrow_mut().readers.push(reader);
}

/// Has a server use what few servers do.
fn enrich(web: &Web<'_>, seed: u64, random: &Rc<Random>, held: &Rc<RefCell<Held>>, alive: &Rc<()>) {
    let server = &web.server;
    if seed.is_multiple_of(3) {
        server.set_errorcb(|page| {
            page.body().add(b"an error");
            page.status() != 404
        });
    }
    if seed % 4 == 1 {
        let dice = random.clone();
        server.set_newreqcb(move |_| dice.draw(20) > 0);
    }
    if seed % 3 == 1 {
        let mut limits = server.limits();
        limits.handler_timeout = Some(Duration::from_secs(8));
        limits.max_requests = Some(20);
        server.set_limits(limits);
    }
    if seed % 2 == 1 {
        let (dice, place, alive) = (random.clone(), held.clone(), alive.clone());
        server.set_header_cb(move |request| {
            let way = dice.draw(6);
            if way < 3 {
                return Some(request);
            }
            watch(&mut place.borrow_mut(), &request);
            match way {
                3 => answer(&dice, &mut place.borrow_mut(), request),
                _ => stream(&dice, &place, request, alive.clone()),
            }
            None
        });
    }
    let host = server.add_virtual_host("b*").unwrap();
    let (dice, place, alive) = (random.clone(), held.clone(), alive.clone());
    host.route_early(Method::PUT, "/u/{id}", move |request: Request| {
        watch(&mut place.borrow_mut(), &request);
        stream(&dice, &place, request, alive.clone());
    })
    .unwrap();
    server.set_allowed_methods(MethodSet::default() | Method::CONNECT);
}

/// Counts a request, and that it is completed once.
fn watch(held: &mut Held, request: &Request) {
    held.run += 1;
    let completed = held.completed.clone();
    let once = Cell::new(false);
    request.on_complete(move |_| {
        assert!(!once.replace(true));
        completed.set(completed.get() + 1);
    });
}

fn storm(bed: &tests::Bed, wire: Wire, seed: u64) {
    let mut web = Web::new(bed, wire);
    let sim = bed.sim().unwrap().clone();
    sim.set_cuts(seed.is_multiple_of(2));
    web.server.set_limits(Limits { max_body_bytes: Some(1_000), ..Limits::default() });
    let random = Rc::new(Random::new(seed));
    let held = Rc::new(RefCell::new(Held::default()));
    let (dice, place) = (random.clone(), held.clone());
    web.server.set_gencb(move |req: Request| {
        watch(&mut place.borrow_mut(), &req);
        answer(&dice, &mut place.borrow_mut(), req);
    });
    let alive = Rc::new(());
    enrich(&web, seed, &random, &held, &alive);
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..tests::few_under_miri(300, 40) {
        let what = random.draw(15);
        match what {
            0 | 1 => clients.push(web.client()),
            2..=5 if !clients.is_empty() => {
                let (index, data) = { (random.draw(clients.len() as u64) as usize, bytes(&random)) };
                clients[index].write_some(&data);
            }
            6 if !clients.is_empty() => {
                let index = random.draw(clients.len() as u64) as usize;
                clients[index].finish();
            }
            7 if !clients.is_empty() => {
                let index = random.draw(clients.len() as u64) as usize;
                let client = clients.swap_remove(index);
                if random.draw(2) == 0 { client.reset() } else { drop(client) }
            }
            8 => {
                let request = held.borrow_mut().requests.pop();
                if let Some(request) = request {
                    let way = random.draw(3);
                    match way {
                        0 => drop(request),
                        1 => drop(request.send_reply(200, None, "late")),
                        _ => {
                            let reply = request.send_reply_start(200, None);
                            held.borrow_mut().replies.extend(reply);
                        }
                    }
                }
            }
            9 => {
                let reply = held.borrow_mut().replies.pop();
                if let Some(reply) = reply {
                    let way = random.draw(3);
                    match way {
                        0 => drop(reply),
                        1 => drop(reply.end()),
                        _ => {
                            let _ = reply.chunk(vec![b'y'; 50_000]);
                            held.borrow_mut().replies.insert(0, reply);
                        }
                    }
                }
            }
            12 => {
                let reader = held.borrow_mut().readers.pop();
                if let Some(reader) = reader {
                    reader.resume();
                    // Whoever pauses keeps what resumes.
                    held.borrow_mut().readers.insert(0, reader);
                }
            }
            13 => {
                let token = held.borrow_mut().tokens.pop();
                if let Some(token) = token {
                    let way = random.draw(4);
                    match way {
                        0 => drop(token),
                        1 => drop(token.send_reply(200, None, "from afar")),
                        2 => drop(token.send_error(503, None)),
                        _ => {
                            if let Ok(reply) = token.send_reply_start(200, None) {
                                let _ = reply.chunk("piece");
                                let _ = reply.end();
                            }
                        }
                    }
                }
            }
            14 => {
                let request = held.borrow_mut().requests.pop();
                if let Some(request) = request {
                    stream(&random, &held, request, alive.clone());
                }
            }
            10 => {
                let time = random.draw(9_000);
                bed.pass(&mut web.base, Duration::from_millis(time));
            }
            _ => clients.iter().for_each(Client::read),
        }
        bed.settle(&mut web.base);
        assert!(web.server.connection_count() <= 200);
    }
    // Nobody sends any more, and the program lets go of what it gets: every connection ends by its deadlines.
    for _ in 0..40 {
        let (readers, rest) = {
            let mut held = held.borrow_mut();
            let Held { requests, replies, readers, tokens, .. } = &mut *held;
            (readers.clone(), (std::mem::take(requests), std::mem::take(replies), std::mem::take(tokens)))
        };
        drop(rest);
        for reader in &readers {
            reader.resume();
            drop(reader.take_request());
        }
        bed.pass(&mut web.base, Duration::from_secs(5));
    }
    assert_eq!(web.server.connection_count(), 0, "a connection outlives its deadlines");
    web.server.free();
    bed.settle(&mut web.base);
    assert_eq!(Rc::strong_count(&alive), 1, "a callback outlives its body");
    let held = held.borrow();
    assert_eq!(held.completed.get(), held.run, "each request is completed once");
}

fn storms(wire: Wire) {
    storms_of(wire);
    let tally = TALLY.take();
    for what in ["data", "end", "failed", "pause", "upgrade"] {
        assert!(tally.get(what).is_some_and(|&count| count > 10), "{what} is rare: {tally:?}");
    }
}

fn storms_of(wire: Wire) {
    std::panic::set_hook(Box::new(|info| {
        let text = info.to_string();
        if !text.contains("a handler fails") {
            eprintln!("{text}");
        }
    }));
    tests::each_seed(|bed| {
        let first = bed.seed();
        for n in 0..tests::few_under_miri(40, 1) {
            storm(bed, wire, first * 1_000 + n);
        }
    });
}

#[test]
fn storms_over_sockets_end_in_silence() {
    storms(Wire::Listener);
}

#[test]
fn storms_over_pairs_end_in_silence() {
    storms(Wire::Pair);
}
