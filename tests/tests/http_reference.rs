//! Random requests, whole and damaged, in random pieces: the server does what a plain decoder says.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::RefCell;
use std::rc::Rc;

use event_core::LoopFlags;
use event_http::{Limits, Request};
use tests::http::{Web, Wire};
use tests::random::Random;
use tests::reference::decode;
use tests::{Bed, each_seed};

/// Inputs a test and seed, for the first seeds; where there are many, a tenth of it for each of the others.
const INPUTS: usize = 2_000;
const FIRST_SEEDS: u64 = 3;

fn request(random: &Random, out: &mut Vec<u8>) {
    if random.one_in(8) {
        out.extend_from_slice(b"\r\n");
    }
    let method = random
        .mostly(&["GET", "POST", "HEAD", "PUT", "OPTIONS"], &["BREW", "TRACE", "CONNECT", "get", "G(T"]);
    let target = random.mostly(
        &["/", "/a?b=c", "/%20!", "//x", "http://h/x", "/a/b/c"],
        &[
            "*",
            "x",
            "/#",
            "h:1",
            "http://u@h/",
            "/\x01",
            "ftp://h/",
            "http://[::1]:80",
            "/%00",
            "/a|b",
            "/?[]",
            "/%z",
        ],
    );
    let version =
        random.mostly(&["HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/1.7"], &["HTTP/2.0", "HTTP/1", "x"]);
    let mut lines = vec![format!("{method} {target} {version}")];
    lines.push(
        random
            .mostly(&["Host: a", "host:\ta:80 ", "HOST: [::1]"], &["Host: a b", "X: y", "Host : a", "Host:"])
            .into(),
    );
    for _ in 0..random.below(3) {
        let field = random.mostly(
            &["X: y", "X:", "Accept: a, b", "Connection: keep-alive", "Expect: 100-continue", "Y: \u{e9}"],
            &["Connection: close", "Host: b", "X", ": y", " fold", "X: a\rb", "Expect: x", "X\t: y", "X: \0"],
        );
        lines.push(field.into());
    }
    let body: String =
        (0..random.below(30)).map(|_| random.pick(&["a", "\r\n", "0", "GET / HTTP/1.1"])).collect();
    let mut content = String::new();
    match random.below(4) {
        0 => {
            let length = match random.one_in(12) {
                true => random.pick(&["", "+1", "0x1", "1, 1", "99999999999999999999", "5000"]).to_owned(),
                false => body.len().to_string(),
            };
            lines.push(format!("Content-Length: {length}"));
            if random.one_in(20) {
                lines.push("Content-Length: 1".into());
            }
            content = body;
        }
        1 | 2 => {
            let coding = random
                .mostly(&["chunked", "CHUNKED", ", chunked"], &["gzip, chunked", "gzip", "chunked, x", ""]);
            lines.push(format!("Transfer-Encoding: {coding}"));
            if random.one_in(20) {
                lines.push(
                    random
                        .pick(&["Content-Length: 1", "Transfer-Encoding: chunked", "Transfer-Encoding: x"])
                        .into(),
                );
            }
            chunks(random, &body, &mut content);
        }
        _ => {}
    }
    for line in lines {
        out.extend_from_slice(line.as_bytes());
        out.extend_from_slice(if random.one_in(60) { b"\n" } else { b"\r\n" });
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(content.as_bytes());
}

fn chunks(random: &Random, body: &str, out: &mut String) {
    let mut rest = body;
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(1 + random.below(rest.len()));
        rest = after;
        let extension = random
            .mostly(&["", "", ";a", ";a=b", " ; a = \"b\\\"c\""], &[";", " ", ";a=", ";a=\"b", ";\u{e9}"]);
        let size = match random.one_in(20) {
            true => random
                .pick(&["0x1", "+1", "", "ffffffffffffffff", "10000000000000000", "-1", "1 "])
                .to_owned(),
            false if random.one_in(3) => format!("00{:X}", chunk.len()),
            false => format!("{:x}", chunk.len()),
        };
        let end = random.mostly(&["\r\n"], &["", "\n", "\r\r\n"]);
        out.push_str(&format!("{size}{extension}\r\n{chunk}{end}"));
    }
    out.push_str(random.mostly(&["0\r\n", "000\r\n", "0;x\r\n"], &["0\n", "-0\r\n", "0"]));
    for _ in 0..random.below(3) {
        out.push_str(
            random
                .mostly(&["X: y\r\n", "Content-Length: 3\r\n"], &["X\r\n", " f\r\n", "X: y\n", "X : y\r\n"]),
        );
    }
    out.push_str(random.mostly(&["\r\n"], &["\n", ""]));
}

/// A few requests, every third input damaged somewhere.
fn input(random: &Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..=random.below(3) {
        request(random, &mut bytes);
    }
    if random.one_in(3) {
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len());
            match random.below(4) {
                0 => bytes[at] = random.bits() as u8,
                1 => drop(bytes.remove(at)),
                2 => bytes.truncate(at + 1),
                _ => bytes.insert(at, *b"\r\n :;0,\0/".get(random.below(9)).unwrap()),
            }
            if bytes.is_empty() {
                break;
            }
        }
    }
    bytes
}

/// Small ones, so that inputs exceed them.
fn small() -> Limits {
    Limits {
        max_request_line_bytes: Some(34),
        max_head_bytes: Some(120),
        max_fields: Some(4),
        max_chunk_line_bytes: Some(16),
        max_body_bytes: Some(60),
        max_trailer_bytes: Some(24),
        ..Limits::default()
    }
}

/// How many requests were served, and how many inputs were refused in the end.
#[derive(Debug, Default)]
struct Count {
    served: usize,
    refused: usize,
    open: usize,
}

fn compare(bed: &Bed, limits: &Limits, count: &mut Count) {
    let mut web = Web::new(bed, Wire::Pair);
    web.server.set_limits(limits.clone());
    let runs = Rc::new(RefCell::new(Vec::new()));
    let sink = runs.clone();
    web.server.set_gencb(move |req: Request| {
        let run = [format!("{} {}=", req.method(), req.target()).as_bytes(), &req.body().to_vec()].concat();
        sink.borrow_mut().push(run);
        req.send_reply(200, None, "fine")
    });
    let random = Random::new(bed.seed());
    for _ in 0..if bed.seed() <= FIRST_SEEDS { INPUTS } else { INPUTS / 10 } {
        let bytes = input(&random);
        let expected = decode(&bytes, limits);
        let client = web.client();
        let mut rest = &bytes[..];
        // Whole, or in that many pieces or more.
        let longest = match random.below(5) {
            0 => bytes.len(),
            pieces => 1 + bytes.len() / pieces,
        };
        while !rest.is_empty() {
            let whole = longest == bytes.len();
            let len = if whole { rest.len() } else { 1 + random.below(rest.len().min(longest)) };
            client.write(&rest[..len]);
            rest = &rest[len..];
            for _ in 0..random.below(4) {
                web.base.run(LoopFlags::NONBLOCK | LoopFlags::NO_EXIT_ON_EMPTY).unwrap();
            }
        }
        for _ in 0..8 {
            web.base.run(LoopFlags::NONBLOCK | LoopFlags::NO_EXIT_ON_EMPTY).unwrap();
        }
        let what = format!("{}\n{expected:?}\n{}", bytes.escape_ascii(), client.text());
        let agreed = expected.agrees(&client.bytes(), client.is_ended(), &runs.take());
        assert!(agreed.is_ok(), "{agreed:?}: {what}");
        count.served += expected.runs.len();
        count.refused += usize::from(expected.answers.len() > expected.runs.len());
        count.open += usize::from(!expected.closes);
    }
}

fn compare_all(limits: &Limits) {
    let count = RefCell::new(Count::default());
    each_seed(|bed| compare(bed, limits, &mut count.borrow_mut()));
    let Count { served, refused, open } = count.into_inner();
    println!("{served} requests served, {refused} inputs refused, {open} connections left open");
    assert!(
        served > INPUTS / 2 && refused > INPUTS / 4 && open > INPUTS / 8,
        "the inputs are too much alike"
    );
}

#[test]
fn the_server_does_what_the_plain_decoder_says() {
    compare_all(&Limits::default());
}

#[test]
fn the_server_does_what_the_plain_decoder_says_at_the_limits() {
    compare_all(&small());
}
