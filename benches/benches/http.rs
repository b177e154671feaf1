//! Parsing of request heads and encoding of answer heads, which are private: through a server on one end of a stream pair,
//! where no kernel takes part.
//!
//! `plain` is the whole way of a small request: stream, parser, handler, encoder. `parse` has many fields in the request and
//! `encode` many in the answer; what each has above `plain` is the parser's and the encoder's alone. `target` has a long path
//! and query. Each iteration is 16 requests in one write.

// A bench that cannot go on has nothing to show.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::rc::Rc;

use criterion::{BenchmarkId, Criterion, Throughput};
use event_core::{BufferEvent, Bytes, Direction, EventBase, LoopFlags};
use event_http::Server;

/// Requests in one write.
const BATCH: usize = 16;

/// Fields of a head with many.
const MANY: usize = 32;

const PASS: LoopFlags = LoopFlags::ONCE.union(LoopFlags::NONBLOCK);

/// A server and its client, ready for one batch after the other.
struct Exchange {
    base: EventBase,
    client: BufferEvent,
    received: Rc<Cell<usize>>,
    batch: Bytes,
    /// Bytes of the answers to one batch.
    answers: usize,
}

impl Exchange {
    /// `request` is one request, `fields` the number of fields that the handler adds to its answer.
    fn new(request: &[u8], fields: usize) -> Self {
        let base = EventBase::new().unwrap();
        let http = Server::new(&base).unwrap();
        http.set_gencb(move |mut req: event_http::Request| {
            for _ in 0..fields {
                req.add_header("X-Field", "a value of usual length")?;
            }
            req.send_reply(200, "Client", "Thanks for the request!")
        });
        let (ours, client) = BufferEvent::pair(&base).unwrap();
        http.serve(ours);
        let received = Rc::new(Cell::new(0));
        let count = received.clone();
        client.set_read_cb(move |client| {
            let mut input = client.input();
            count.set(count.get() + input.len());
            input.clear();
        });
        client.enable(Direction::READ | Direction::WRITE).unwrap();
        let batch = Bytes::from(request.repeat(BATCH));
        let mut exchange = Self { base, client, received, batch, answers: usize::MAX };
        exchange.learn();
        exchange
    }

    /// Finds out how long the answers are: they come whole within a few turns, or never.
    fn learn(&mut self) {
        self.client.write(self.batch.clone()).unwrap();
        for _ in 0..100 {
            self.base.run(PASS).unwrap();
        }
        self.answers = self.received.replace(0);
        assert!(self.answers > BATCH * "HTTP/1.1 200 Client".len(), "{} bytes came", self.answers);
    }

    fn run(&mut self) {
        self.client.write(self.batch.clone()).unwrap();
        while self.received.get() < self.answers {
            self.base.run(PASS).unwrap();
        }
        assert_eq!(self.received.replace(0), self.answers);
    }
}

fn main() {
    let fields = "X-Field: a value of usual length\r\n".repeat(MANY);
    let path = format!("/{}?{}", "a-segment/".repeat(20), "name=value&".repeat(20));
    let request = |target: &str, fields: &str| format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("http");
    group.throughput(Throughput::Elements(BATCH as u64));
    for (name, request, in_answer) in [
        ("plain", request("/", ""), 0),
        ("parse", request("/", &fields), 0),
        ("target", request(&path, ""), 0),
        ("encode", request("/", ""), MANY),
    ] {
        let mut exchange = Exchange::new(request.as_bytes(), in_answer);
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| bencher.iter(|| exchange.run()));
    }
    group.finish();
    criterion.final_summary();
}
