//! Whole request streams, each fed whole, cut at every place and byte by byte: the answers and what was run must be
//! the same, and nothing behind a framing error may run.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::RefCell;
use std::fmt::Write as _;
use std::rc::Rc;

use event_http::Request;
use tests::http::{Client, Web, Wire, answers};
use tests::{Bed, each_backend};

/// Requests that were run, each as `METHOD target=body`, and then the statuses; `keep` if the connection lives on.
struct Case {
    name: &'static str,
    bytes: &'static str,
    run: &'static [&'static str],
    statuses: &'static [u16],
    keep: bool,
}

const fn ok(
    name: &'static str,
    bytes: &'static str,
    run: &'static [&'static str],
    statuses: &'static [u16],
) -> Case {
    Case { name, bytes, run, statuses, keep: true }
}

const fn bad(name: &'static str, bytes: &'static str, status: &'static [u16]) -> Case {
    Case { name, bytes, run: &[], statuses: status, keep: false }
}

const EVIL: &str = "GET /evil HTTP/1.1\r\nHost: a\r\n\r\n";

const CASES: &[Case] = &[
    ok("one", "GET /a HTTP/1.1\r\nHost: a\r\n\r\n", &["GET /a="], &[200]),
    ok(
        "three",
        "GET /a HTTP/1.1\r\nHost: a\r\n\r\nHEAD /b HTTP/1.1\r\nHost: a\r\n\r\nGET /c?d HTTP/1.1\r\nHost: a\r\n\r\n",
        &["GET /a=", "HEAD /b=", "GET /c?d="],
        &[200, 200, 200],
    ),
    ok(
        "an empty line before",
        "\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        &["GET /a=", "GET /b="],
        &[200, 200],
    ),
    ok(
        "length",
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloPOST /b HTTP/1.1\r\nHost: a\r\ncontent-length:3\r\n\r\nyes",
        &["POST /a=hello", "POST /b=yes"],
        &[200, 200],
    ),
    ok(
        "a body that looks like a request",
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 31\r\n\r\nGET /evil HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        &["POST /a=GET /evil HTTP/1.1\r\nHost: a\r\n\r\n", "GET /b="],
        &[200, 200],
    ),
    ok(
        "chunks",
        "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n00001\r\n!\r\n0\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        &["POST /a=hello!", "GET /b="],
        &[200, 200],
    ),
    ok(
        "chunks with extensions and trailers",
        "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: CHUNKED\r\n\r\nA;x=\"y\"\r\n0123456789\r\n0;z\r\nX: 1\r\nY: 2\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        &["POST /a=0123456789", "GET /b="],
        &[200, 200],
    ),
    ok(
        "blanks and tabs around values",
        "GET /a HTTP/1.1\r\nHost: \t a \t \r\nX:\r\nY: \r\n\r\n",
        &["GET /a="],
        &[200],
    ),
    ok("options of everything", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", &["OPTIONS *="], &[200]),
    ok("an absolute target", "GET http://b/c HTTP/1.1\r\nHost: b\r\n\r\n", &["GET http://b/c="], &[200]),
    ok(
        "1.0 kept",
        "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        &["GET /a=", "GET /b="],
        &[200, 200],
    ),
    Case {
        name: "1.0 closed",
        bytes: "GET /a HTTP/1.0\r\n\r\nGET /evil HTTP/1.1\r\nHost: a\r\n\r\n",
        run: &["GET /a="],
        statuses: &[200],
        keep: false,
    },
    Case {
        name: "closed by the client",
        bytes: "GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /evil HTTP/1.1\r\nHost: a\r\n\r\n",
        run: &["GET /a="],
        statuses: &[200],
        keep: false,
    },
    Case {
        name: "an error behind two good ones",
        bytes: "GET /a HTTP/1.1\r\nHost: a\r\n\r\nPOST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nxGET /c HTTP/1.1\r\n\r\n",
        run: &["GET /a=", "POST /b=x"],
        statuses: &[200, 200, 400],
        keep: false,
    },
    bad(
        "coding before chunked",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        &[501],
    ),
    bad(
        "coding and length",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
        &[400],
    ),
    bad(
        "length and coding",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        &[400],
    ),
    bad(
        "identity, then chunked",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        &[400],
    ),
    bad(
        "chunked twice",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        &[400],
    ),
    bad(
        "chunked not last",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        &[400],
    ),
    bad("chunkedx", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", &[400]),
    bad(
        "vertical tab",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        &[400],
    ),
    bad("coding in 1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", &[400]),
    bad(
        "two lengths",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 33\r\n\r\n",
        &[400],
    ),
    bad(
        "the same length twice",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
        &[400],
    ),
    bad("a list of lengths", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0, 0\r\n\r\n", &[400]),
    bad("a negative length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", &[400]),
    bad("a signed length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +0\r\n\r\n", &[400]),
    bad(
        "a length beyond 64 bits",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551616\r\n\r\n",
        &[400],
    ),
    bad("an empty length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", &[400]),
    bad(
        "a chunk size with 0x",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n",
        &[400],
    ),
    bad(
        "a signed chunk size",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n+0\r\n\r\n",
        &[400],
    ),
    bad(
        "a blank before a chunk size",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n 0\r\n\r\n",
        &[400],
    ),
    bad(
        "a negative chunk size",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-0\r\n\r\n",
        &[400],
    ),
    bad(
        "a chunk size beyond 64 bits",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\n",
        &[400],
    ),
    bad(
        "no CRLF behind a chunk",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello0\r\n\r\n",
        &[400],
    ),
    bad(
        "a lone LF behind a chunk size",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\n\r\n",
        &[400],
    ),
    bad(
        "a chunk too large",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n80000000\r\n",
        &[413],
    ),
    bad(
        "chunks that would wrap",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nfffffffffffffffe\r\n",
        &[413],
    ),
    bad(
        "a bad trailer",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX : 1\r\n\r\n",
        &[400],
    ),
    bad("lone LFs", "GET / HTTP/1.1\nHost: a\n\n", &[400]),
    bad("a lone CR in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", &[400]),
    bad("a folded value", "GET / HTTP/1.1\r\nHost: a\r\nX: one\r\n Y: two\r\n\r\n", &[400]),
    bad("an empty name", "GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n", &[400]),
    bad("a blank before the colon", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\nhello", &[400]),
    bad("NUL in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: admin\0ignored\r\n\r\n", &[400]),
    bad("no host", "GET / HTTP/1.1\r\n\r\n", &[400]),
    bad("two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", &[400]),
    bad("a bad host", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", &[400]),
    bad("no version", "GET /\r\nHost: a\r\n\r\n", &[400]),
    bad("an odd version", "GET / HTTP/abc\r\nHost: a\r\n\r\n", &[400]),
    bad("version 2", "GET / HTTP/2.0\r\nHost: a\r\n\r\n", &[505]),
    bad("version 9.9", "GET / HTTP/9.9\r\nHost: a\r\n\r\n", &[505]),
    bad("a blank in the target", "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", &[400]),
    bad("an unknown method", "BREW / HTTP/1.1\r\nHost: a\r\n\r\n", &[501]),
    bad("a method not allowed", "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", &[405]),
    bad("TLS", "\x16\x03\x01\x02\0\x01", &[400]),
    bad(
        "an unknown expectation",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: x\r\n\r\n",
        &[417],
    ),
];

type Runs = Rc<RefCell<Vec<String>>>;

fn serve(web: &Web<'_>) -> Runs {
    let runs = Runs::default();
    let sink = runs.clone();
    web.server.set_gencb(move |req: Request| {
        let mut line = format!("{} {}=", req.method(), req.target());
        write!(line, "{}", String::from_utf8_lossy(&req.body().to_vec())).unwrap();
        sink.borrow_mut().push(line.clone());
        req.send_reply(200, None, line)
    });
    runs
}

/// Feeds the pieces, and returns what came back when nothing more comes: text, whether it ended, what was run.
fn feed(web: &mut Web<'_>, runs: &Runs, pieces: &[&[u8]]) -> (Client, Vec<String>) {
    runs.borrow_mut().clear();
    let client = web.client();
    for piece in pieces {
        client.write(piece);
        for _ in 0..3 {
            let flags = event_core::LoopFlags::NONBLOCK | event_core::LoopFlags::NO_EXIT_ON_EMPTY;
            web.base.run(flags).unwrap();
        }
        client.read();
    }
    (client, runs.take())
}

fn check(web: &mut Web<'_>, runs: &Runs, case: &Case, bytes: &[u8], pieces: &[&[u8]], cut: &str) -> String {
    let (client, mut run) = feed(web, runs, pieces);
    let wanted = case.statuses.len();
    let heads: Vec<usize> =
        case.run.iter().enumerate().filter(|(_, run)| run.starts_with("HEAD")).map(|(n, _)| n).collect();
    web.until(&client, |got, ended| {
        answers(got, &heads).is_some_and(|(all, _)| all.len() >= wanted) && (case.keep || ended)
    });
    run.extend(runs.take());
    let (all, left) = answers(&client.bytes(), &heads).unwrap();
    let statuses: Vec<u16> = all.iter().map(|answer| answer.0).collect();
    let name = case.name;
    assert_eq!(
        (run.as_slice(), statuses.as_slice(), left),
        (&case.run.iter().map(ToString::to_string).collect::<Vec<_>>()[..], case.statuses, 0),
        "{name}, {cut}: {bytes:?}"
    );
    assert_eq!(client.is_ended(), !case.keep, "{name}, {cut}");
    client.text()
}

/// A framing error is followed by a request that must never run.
fn bytes(case: &Case) -> Vec<u8> {
    let mut bytes = case.bytes.as_bytes().to_vec();
    if !case.keep && !case.bytes.ends_with(EVIL) {
        bytes.extend_from_slice(EVIL.as_bytes());
    }
    bytes
}

fn every_cut(bed: &Bed, wire: Wire, part: usize) {
    let mut web = Web::new(bed, wire);
    let runs = serve(&web);
    for (_, case) in CASES.iter().enumerate().filter(|(n, _)| n % 4 == part) {
        let bytes = bytes(case);
        let whole = check(&mut web, &runs, case, &bytes, &[&bytes], "whole");
        let single: Vec<&[u8]> = bytes.chunks(tests::few_under_miri(1, 20)).collect();
        assert_eq!(check(&mut web, &runs, case, &bytes, &single, "byte by byte"), whole, "{}", case.name);
        for at in (1..bytes.len()).step_by(tests::few_under_miri(1, 50)) {
            let cut =
                check(&mut web, &runs, case, &bytes, &[&bytes[..at], &bytes[at..]], &format!("cut at {at}"));
            assert_eq!(cut, whole, "{} cut at {at}", case.name);
        }
    }
}

fn each_cut(part: usize) {
    each_backend(|bed| every_cut(bed, Wire::Pair, part));
    let first = std::cell::Cell::new(true);
    tests::each_seed(|bed| {
        // One seed cuts everywhere; the others are for chance.
        if first.replace(false) {
            every_cut(bed, Wire::Listener, part);
        }
    });
}

#[test]
fn streams_mean_the_same_wherever_they_are_cut_1() {
    each_cut(0);
}

#[test]
fn streams_mean_the_same_wherever_they_are_cut_2() {
    each_cut(1);
}

#[test]
fn streams_mean_the_same_wherever_they_are_cut_3() {
    each_cut(2);
}

#[test]
fn streams_mean_the_same_wherever_they_are_cut_4() {
    each_cut(3);
}

#[test]
fn streams_mean_the_same_on_real_sockets() {
    each_backend(|bed| {
        let mut web = Web::new(bed, Wire::Listener);
        let runs = serve(&web);
        if let Some(sim) = bed.sim() {
            sim.set_cuts(true);
        }
        for case in CASES {
            let bytes = bytes(case);
            let whole = check(&mut web, &runs, case, &bytes, &[&bytes], "whole");
            let (one, two) = bytes.split_at(bytes.len() / 2);
            assert_eq!(check(&mut web, &runs, case, &bytes, &[one, two], "halves"), whole, "{}", case.name);
        }
    });
}
