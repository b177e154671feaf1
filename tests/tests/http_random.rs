//! Random bytes and mutated requests, random handlers and random times: nothing panics, every connection ends, and
//! every request is completed once.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use event_http::{Limits, Reply, Request};
use tests::http::{Client, Web, Wire};

/// xorshift: seeds must not be zero.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 5
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

const GOOD: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "HEAD /x HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n",
    "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
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

fn bytes(random: &mut Random) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::new();
    for _ in 0..=random.below(4) {
        bytes.extend_from_slice(random.pick(GOOD).as_bytes());
    }
    match random.below(6) {
        0 => bytes = (0..random.below(200)).map(|_| random.next() as u8).collect(),
        1 | 2 => {
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len() as u64) as usize;
                match random.below(4) {
                    0 => bytes[at] = random.next() as u8,
                    1 => drop(bytes.drain(at..(at + random.below(9) as usize).min(bytes.len()))),
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
    /// Requests that were run, and how often one was completed.
    run: u64,
    completed: Rc<Cell<u64>>,
}

fn answer(random: &mut Random, held: &mut Held, request: Request) {
    match random.below(8) {
        0 => drop(request),
        1 => held.requests.push(request),
        2 => {
            if let Ok(reply) = request.send_reply_start(200, None) {
                let _ = reply.chunk("piece");
                held.replies.push(reply);
            }
        }
        3 => drop(request.send_reply(200, None, vec![b'x'; random.below(200_000) as usize])),
        4 => drop(request.send_error(404, None)),
        5 => panic!("a handler fails"),
        _ => drop(request.send_reply(200, None, "fine")),
    }
}

fn storm(bed: &tests::Bed, wire: Wire, seed: u64) {
    let mut web = Web::new(bed, wire);
    let sim = bed.sim().unwrap().clone();
    sim.set_cuts(seed.is_multiple_of(2));
    web.server.set_limits(Limits { max_body_bytes: Some(1_000), ..Limits::default() });
    let random = Rc::new(RefCell::new(Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)));
    let held = Rc::new(RefCell::new(Held::default()));
    let (dice, place) = (random.clone(), held.clone());
    web.server.set_gencb(move |req: Request| {
        let completed = {
            let mut held = place.borrow_mut();
            held.run += 1;
            held.completed.clone()
        };
        let once = Cell::new(false);
        req.on_complete(move |_| {
            assert!(!once.replace(true));
            completed.set(completed.get() + 1);
        });
        let mut dice = dice.borrow_mut();
        answer(&mut dice, &mut place.borrow_mut(), req);
    });
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..tests::few_under_miri(300, 40) {
        let what = random.borrow_mut().below(12);
        match what {
            0 | 1 => clients.push(web.client()),
            2..=5 if !clients.is_empty() => {
                let (index, data) = {
                    let mut random = random.borrow_mut();
                    (random.below(clients.len() as u64) as usize, bytes(&mut random))
                };
                clients[index].write_some(&data);
            }
            6 if !clients.is_empty() => {
                let index = random.borrow_mut().below(clients.len() as u64) as usize;
                clients[index].finish();
            }
            7 if !clients.is_empty() => {
                let index = random.borrow_mut().below(clients.len() as u64) as usize;
                let client = clients.swap_remove(index);
                if random.borrow_mut().below(2) == 0 { client.reset() } else { drop(client) }
            }
            8 => {
                let request = held.borrow_mut().requests.pop();
                if let Some(request) = request {
                    let way = random.borrow_mut().below(3);
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
                    let way = random.borrow_mut().below(3);
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
            10 => {
                let time = random.borrow_mut().below(9_000);
                bed.pass(&mut web.base, Duration::from_millis(time));
            }
            _ => clients.iter().for_each(Client::read),
        }
        bed.settle(&mut web.base);
        assert!(web.server.connection_count() <= 200);
    }
    // Nobody does anything any more: every connection ends by its deadlines.
    let requests = std::mem::take(&mut held.borrow_mut().requests);
    drop(requests);
    let replies = std::mem::take(&mut held.borrow_mut().replies);
    drop(replies);
    bed.pass(&mut web.base, Duration::from_secs(200));
    assert_eq!(web.server.connection_count(), 0, "a connection outlives its deadlines");
    let held = held.borrow();
    assert_eq!(held.completed.get(), held.run, "each request is completed once");
}

fn storms(wire: Wire) {
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
