//! Raw bytes and what comes of them, each row run whole, cut at every place, and byte by byte.

use std::time::Duration;

use super::*;
use crate::few::few_under_miri;

/// What a server sees: each whole request as `METHOD target`, with `=body` and `+trailer:value` where it has them;
/// then how it ends: a status for a refusal, `closed` where nothing more is read, `..` inside a request, nothing
/// between two.
fn run(pieces: &[&[u8]], rules: &Rules) -> String {
    let now = Duration::from_secs(1);
    let mut conn = Conn::<Vec<u8>>::new(now);
    let mut pool = HeadPool::default();
    let mut input = Vec::new();
    let mut seen = Vec::new();
    let mut request = String::new();
    let mut body = Vec::new();
    let mut end = "";
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            let (consumed, step) = conn.next(&input, now, rules, &mut pool);
            let mut waits = false;
            match step {
                Step::Head { head, .. } => {
                    request = format!("{} {}", head.method(), head.target());
                    body.clear();
                    pool.give(head);
                }
                Step::Data(range) => {
                    assert!(range.end <= consumed && !range.is_empty());
                    body.extend_from_slice(&input[range]);
                }
                Step::End { seq, trailers } => {
                    if !body.is_empty() {
                        request += &format!("={}", body.escape_ascii());
                    }
                    for (name, value) in trailers.iter() {
                        request += &format!("+{name}:{value}");
                    }
                    seen.push(std::mem::take(&mut request));
                    conn.finish(seq).unwrap();
                    while conn.advance(now).is_some() {}
                }
                Step::Fail { seq, error } => {
                    assert!(seq.is_some() && error.is_peer());
                    seen.push(error.status().unwrap().to_string());
                }
                Step::Continue => {}
                Step::Closed => {
                    end = "closed";
                    waits = true;
                }
                Step::NeedMore | Step::Paused => waits = true,
            }
            input.drain(..consumed);
            if waits {
                break;
            }
        }
    }
    let refused = seen.last().is_some_and(|last| last.parse::<u16>().is_ok());
    if conn.on_eof() != Eof::BetweenRequests {
        end = "..";
    }
    if !end.is_empty() && !refused {
        seen.push(end.to_string());
    }
    seen.join("; ")
}

const SMUGGLED: &[u8] = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

#[track_caller]
fn check(rows: &[(&[u8], &str)], rules: &Rules) {
    for (input, expected) in rows.iter().step_by(few_under_miri(1, 6)) {
        let shown = input.escape_ascii();
        assert_eq!(run(&[input], rules), *expected, "whole: {shown}");
        for at in (0..=input.len()).step_by(few_under_miri(1, 40)) {
            let (head, tail) = input.split_at(at);
            assert_eq!(run(&[head, tail], rules), *expected, "cut at {at}: {shown}");
        }
        let bytes: Vec<&[u8]> = input.chunks(few_under_miri(1, 7)).collect();
        assert_eq!(run(&bytes, rules), *expected, "byte by byte: {shown}");
        let refused = expected.rsplit("; ").next().is_some_and(|last| last.parse::<u16>().is_ok());
        if refused || expected.ends_with("closed") {
            assert_eq!(run(&[input, SMUGGLED], rules), *expected, "a later segment after: {shown}");
            assert_eq!(
                run(&[&[input, SMUGGLED].concat()], rules),
                *expected,
                "the same segment after: {shown}"
            );
        }
    }
}

/// Request lines, targets and versions.
const LINES: &[(&[u8], &str)] = &[
    (b"", ""),
    (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET /"),
    (b"GET / HTTP/1.1\r\nHost: a\r\n", ".."),
    (b"G", ".."),
    (b"HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n", "HEAD /x"),
    (b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET /"),
    (b"\r\n", ""),
    (b"\r", ""),
    (b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
    (b"\r\rGET / HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
    (b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
    (b" GET / HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01", "400"),
    (b"\0", "400"),
    (b"GET / HTTP/1.1\nHost: a\n\n", "400"),
    (b"GET / HTTP/1.1\r\nHost: a\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\nHost: a\r\n\n", "400"),
    (b"GET / HTTP/1.1\r\nHost: a\n\n", "400"),
    (b"GET / HTTP/1.1\r\r\nHost: a\r\n\r\n", "400"),
    (b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
    (b"GET /  HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
    (b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
    (b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", "400"),
    (b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
    (b"GET /\r\nHost: a\r\n\r\n", "400"),
    (b"GET\r\n\r\n", "400"),
    (b"GET / HTTP/abc\r\nHost: a\r\n\r\n", "400"),
    (b"GET / HTTP/9.9\r\nHost: a\r\n\r\n", "505"),
    (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", "505"),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505"),
    (b"GET / HTTP/0.9\r\n\r\n", "505"),
    (b"GET / HTTP/1.2\r\nHost: a\r\n\r\n", "GET /"),
    (b"GET / HTTP/1.9\r\n\r\n", "400"),
    (b"GET / HTTP/1.10\r\nHost: a\r\n\r\n", "400"),
    (b"GET / HTTP/1.1x\r\nHost: a\r\n\r\n", "400"),
    (b"GET / http/1.1\r\nHost: a\r\n\r\n", "400"),
    (b"GET / HTTP/11\r\nHost: a\r\n\r\n", "400"),
    (b"GET / ICAP/1.0\r\nHost: a\r\n\r\n", "400"),
    (b"get / HTTP/1.1\r\nHost: a\r\n\r\n", "501"),
    (b"FLOOP / HTTP/1.1\r\nHost: a\r\n\r\n", "501"),
    (b"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", "405"),
    (b"CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n", "405"),
    (b"CONNECT / HTTP/1.1\r\nHost: h:1\r\n\r\n", "400"),
    (b"PROPFIND / HTTP/1.1\r\nHost: a\r\n\r\n", "405"),
    (b"G(T / HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
    (b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS *"),
    (b"GET * HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
    (b"GET /? HTTP/1.1\r\nHost: a\r\n\r\n", "GET /?"),
    (b"GET abc HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
    (b"GET ?x HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
    (b"GET /#f HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
    (b"GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
    (b"GET /\x80 HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
    (b"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
    (b"GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
    (b"GET /\x0b HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
    (b"GET /a%00b HTTP/1.1\r\nHost: a\r\n\r\n", "GET /a%00b"),
    (b"GET http://b/x HTTP/1.1\r\nHost: a\r\n\r\n", "GET http://b/x"),
    (b"GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
    (b"GET http://u:p@b/x HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
    (b"GET ftp://b/x HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
    (b"GET http://b/x HTTP/1.1\r\n\r\n", "400"),
    (b"GET //b/x HTTP/1.1\r\nHost: a\r\n\r\n", "GET //b/x"),
];

/// Fields and Host.
const FIELDS: &[(&[u8], &str)] = &[
    (b"GET / HTTP/1.1\r\n\r\n", "400"),
    (b"GET / HTTP/1.0\r\n\r\n", "GET /; closed"),
    (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", "GET /"),
    (b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\nHost: a\r\nhOST: b\r\n\r\n", "400"),
    (b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\nHost: http://a\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\nHost: a:80x\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\nHost: a:8080\r\n\r\n", "GET /"),
    (b"GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", "GET /"),
    (b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\nHost: a\xe9\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\nHost\t: a\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\nhello", "400"),
    (b"GET / HTTP/1.1\r\nHost: a\r\n: no-name\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\nHost: a\r\nno-colon\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\n Host: a\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\n \r\nHost: a\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\nHost: a\r\nX: one\r\n Y: two\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\nHost: a\r\nX: one\r\n\ttwo\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\nHost: a\r\nX:\r\n two\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\nHost: a\r\nUser: admin\x00ignored\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\nHost: a\r\n\x00X: a\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\nHost: a\r\nX\x00: a\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\nHost: a\r\nX: \x7f\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\nHost: a\r\nX: \x1b[0m\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\nHost: a\r\nX(: b\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\nHost: a\r\nX\xe9: b\r\n\r\n", "400"),
    (b"GET / HTTP/1.1\r\nHost: a\r\nX: caf\xe9\r\n\r\n", "GET /"),
    (b"GET / HTTP/1.1\r\nHost: a\r\nX:y\r\nZ:\r\n\r\n", "GET /"),
    (b"GET / HTTP/1.1\r\nHost: \t a \t \r\n\r\n", "GET /"),
];

/// Content-Length and Transfer-Encoding.
const FRAMING: &[(&[u8], &str)] = &[
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", "POST /=hello"),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "POST /"),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nshort", ".."),
    (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", "GET /=hello"),
    (b"HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nGET /", "HEAD /=GET /"),
    (b"POST / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST /; GET /"),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 33\r\n\r\n", "400"),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello", "400"),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\nhello", "400"),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello", "400"),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\nhello", "400"),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5 5\r\n\r\nhello", "400"),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\nhello", "400"),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: five\r\n\r\nhello", "400"),
    (b"POST /a HTTP/1.0\r\nContent-Length: -123\r\n\r\n", "400"),
    (b"GET /index.html HTTP/1.0\r\nContent-Length: -268435455700\r\n\r\n", "400"),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551616\r\n\r\n", "400"),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551615\r\n\r\n", "413"),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8388609\r\n\r\n", "413"),
    (b"POST / HTTP/1.0\r\nContent-Length: 2\r\n\r\nok", "POST /=ok; closed"),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "POST /"),
    (
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\nContent-Length: 4\r\n\r\n1c\r\n\
        GET /x HTTP/1.1\r\nHost: a\r\n\r\n\r\n0\r\n\r\n",
        "400",
    ),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "501"),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", "400"),
    (
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "400",
    ),
    (
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "400",
    ),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", "400"),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", "400"),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\nContent-Length: 3\r\n\r\nabc", "400"),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunkedx\r\n\r\n0\r\n\r\n", "400"),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", "400"),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", "400"),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n", "400"),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: CHUNKED \t\r\n\r\n1\r\nx\r\n0\r\n\r\n", "POST /=x"),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: , chunked,\r\n\r\n1\r\nx\r\n0\r\n\r\n", "POST /=x"),
    (b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"),
    (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "400",
    ),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", "400"),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding\r\n: chunked\r\n\r\n0\r\n\r\n", "400"),
    (b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nok", "POST /=ok"),
    (b"POST / HTTP/1.1\r\nHost: a\r\nExpect: something\r\nContent-Length: 2\r\n\r\nok", "417"),
    (b"POST / HTTP/1.0\r\nExpect: something\r\nContent-Length: 2\r\n\r\nok", "POST /=ok; closed"),
];

/// What follows `POST / HTTP/1.1` with `Transfer-Encoding: chunked`.
const CHUNKS: &[(&[u8], &str)] = &[
    (b"5\r\nhello\r\n0\r\n\r\n", "POST /=hello"),
    (b"3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n", "POST /=abcdefg"),
    (b"A\r\n0123456789\r\n0\r\n\r\n", "POST /=0123456789"),
    (b"0005\r\nhello\r\n000\r\n\r\n", "POST /=hello"),
    (b"5\r\nhello\r\n0\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n", "POST /=hello; GET /b"),
    (b"2\r\n\r\n\r\n0\r\n\r\n", "POST /=\\r\\n"),
    (b"5;ext=1;q=\"a;b\\\"\"\r\nhello\r\n0;last\r\n\r\n", "POST /=hello"),
    (b"5 ;ext\r\nhello\r\n0\r\n\r\n", "POST /=hello"),
    (b"5\r\nhel", ".."),
    (b"5\r\nhello\r\n0\r\n", ".."),
    (b"", ".."),
    (b"0x3\r\nabc\r\n0\r\n\r\n", "400"),
    (b"+3\r\nabc\r\n0\r\n\r\n", "400"),
    (b" 3\r\nabc\r\n0\r\n\r\n", "400"),
    (b"-0\r\n\r\n", "400"),
    (b"3 \r\nabc\r\n0\r\n\r\n", "400"),
    (b"\r\n3\r\nabc\r\n0\r\n\r\n", "400"),
    (b"3\nabc\r\n0\r\n\r\n", "400"),
    (b"3\r\nabc\n0\r\n\r\n", "400"),
    (b"3;a\nabc\r\n0\r\n\r\n", "400"),
    (b"3;a=\"\r\nabc\r\n0\r\n\r\n", "400"),
    (b"3;\r\nabc\r\n0\r\n\r\n", "400"),
    (b"1\r\nx\r\n0x0\r\n\r\n", "400"),
    (b"1\r\nx\r\n-0x1\r\n\r\n", "400"),
    (b"5\r\nhello0\r\n\r\n", "400"),
    (b"5\r\nhello!\r\n0\r\n\r\n", "400"),
    (b"5\r\nhello\rX0\r\n\r\n", "400"),
    (b"3\r\nhello\r\n0\r\n\r\n", "400"),
    (b"80000000\r\n", "413"),
    (b"800001\r\n", "413"),
    (b"5\r\nhello\r\nfffffffffffffffe\r\n", "413"),
    (b"5\r\nhello\r\n7ffffc\r\n", "413"),
    (b"ffffffffffffffff\r\n", "413"),
    (b"10000000000000000\r\n", "400"),
    (b"0\r\nX-Sum: 1\r\n\r\n", "POST /+X-Sum:1"),
    (b"1\r\nx\r\n0\r\nA: b\r\nContent-Length: 7\r\nHost: evil\r\nB: c\r\n\r\n", "POST /=x+A:b+B:c"),
    (b"0\r\nA: b\n\r\n", "400"),
    (b"0\r\nA : b\r\n\r\n", "400"),
    (b"0\r\n folded\r\n\r\n", "400"),
    (b"0\r\nno-colon\r\n\r\n", "400"),
    (b"0\r\nA: \x00\r\n\r\n", "400"),
    (b"0\r\n\n", "400"),
    (b"0\r\n\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n", "POST /; GET /b"),
];

/// Which requests of several are run.
const CONNECTIONS: &[(&[u8], &str)] = &[
    (b"GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n", "GET /a; GET /b"),
    (b"HEAD /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n", "HEAD /a; GET /b"),
    (b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n", "GET /a; GET /b"),
    (b"\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n", "GET /a; GET /b"),
    (b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n", "GET /a; 400"),
    (b"GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\n\r\n", "GET /a; 400"),
    (b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "GET /a; closed"),
    (b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close \r\n\r\n", "GET /a; closed"),
    (b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: foo,\tCLOSE\r\n\r\n", "GET /a; closed"),
    (b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: foo\r\nConnection: close\r\n\r\n", "GET /a; closed"),
    (b"GET /a HTTP/1.1\r\nHost: a\r\nProxy-Connection: close\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n", "GET /a; GET /b"),
    (b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /b HTTP/1.0\r\n\r\n", "GET /a; GET /b; closed"),
    (b"GET /a HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", "GET /a; closed"),
    (b"POST /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", "POST /a=ok; closed"),
    (
        b"POST /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        "POST /a=x; closed",
    ),
    (
        b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a; GET /b",
    ),
];

#[test]
fn request_lines() {
    check(LINES, &Rules::default());
}

#[test]
fn fields() {
    check(FIELDS, &Rules::default());
}

#[test]
fn framing() {
    check(FRAMING, &Rules::default());
}

#[test]
fn chunks() {
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (rest, expected) in CHUNKS.iter().step_by(few_under_miri(1, 6)) {
        check(&[(&[&head[..], rest].concat(), expected)], &Rules::default());
    }
}

#[test]
fn connections() {
    check(CONNECTIONS, &Rules::default());
}

#[test]
fn small_limits() {
    let limits = Limits {
        max_request_line_bytes: Some(32),
        max_head_bytes: Some(96),
        max_trailer_bytes: Some(24),
        max_fields: Some(4),
        max_chunk_line_bytes: Some(12),
        max_body_bytes: Some(8),
        ..Limits::default()
    };
    let rules = Rules { limits, ..Rules::default() };
    let rows: &[(&[u8], &str)] = &[
        (b"GET /aaaaaaaaaaaaaaaa HTTP/1.1\r\nHost: a\r\n\r\n", "GET /aaaaaaaaaaaaaaaa"),
        (b"GET /aaaaaaaaaaaaaaaaa HTTP/1.1\r\nHost: a\r\n\r\n", "414"),
        (b"GET /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "414"),
        (b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "414"),
        (b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", ".."),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nX: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n\r\n",
            "GET /",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nX: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n\r\n",
            "431",
        ),
        (
            b"GET / HTTP/1.1\r\nX: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            "431",
        ),
        (b"GET / HTTP/1.1\r\nHost: a\r\nA:\r\nB:\r\nC:\r\n\r\n", "GET /"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nA:\r\nB:\r\nC:\r\nD:\r\n\r\n", "431"),
        (b"GET / HTTP/1.1\r\nA:\r\nB:\r\nC:\r\nD:\r\nE:\r\n", "431"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n12345678", "POST /=12345678"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n123456789", "413"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n1234\r\n4\r\n5678\r\n0\r\n\r\n", "POST /=12345678"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n1234\r\n5\r\n56789\r\n0\r\n\r\n", "413"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4;extens=33\r\n1234\r\n", "400"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4;exten=33\r\n1234\r\n0\r\n\r\n", "POST /=1234"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n000000000000000000000", "400"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: 1\r\nB: 2\r\nC: 3\r\n\r\n", "POST /+A:1+B:2+C:3"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\n\r\n", "431"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "431"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA:\r\nB:\r\nC:\r\nD:\r\nE:\r\n\r\n", "431"),
    ];
    check(rows, &rules);
}

#[test]
fn every_row_counts() {
    let rows = LINES.len() + FIELDS.len() + FRAMING.len() + CHUNKS.len() + CONNECTIONS.len();
    assert!(rows >= 120, "{rows} rows");
}

/// A small generator with a seed of its own, so that a failure can be run again.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

#[test]
fn damaged_and_random_input_gives_the_same_outcome_however_it_is_cut() {
    let rules = Rules::default();
    let rows = [LINES, FIELDS, FRAMING, CONNECTIONS].concat();
    let mut random = Random(0x5eed_0001);
    for round in 0..few_under_miri(20_000, 6) {
        let mut input = if random.below(8) == 0 {
            (0..random.below(64)).map(|_| random.below(256) as u8).collect()
        } else {
            let (row, _) = rows[random.below(rows.len())];
            let (chunks, _) = CHUNKS[random.below(CHUNKS.len())];
            match random.below(3) {
                0 => row.to_vec(),
                1 => [b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", chunks].concat(),
                _ => [row, SMUGGLED].concat(),
            }
        };
        for _ in 0..random.below(4) {
            if input.is_empty() {
                break;
            }
            let at = random.below(input.len());
            match random.below(4) {
                0 => input[at] = b"\r\n\0 :;,\t\x80z0"[random.below(11)],
                1 => drop(input.remove(at)),
                2 => input.insert(at, b"\r\n\0 :;,\t\x80z0"[random.below(11)]),
                _ => input[at] ^= 1 << random.below(8),
            }
        }
        let whole = run(&[&input], &rules);
        let (a, b) = (random.below(input.len() + 1), random.below(input.len() + 1));
        let (head, rest) = input.split_at(a.min(b));
        let (middle, tail) = rest.split_at(a.max(b) - a.min(b));
        assert_eq!(run(&[head, middle, tail], &rules), whole, "round {round}: {}", input.escape_ascii());
        let bytes: Vec<&[u8]> = input.chunks(1).collect();
        assert_eq!(run(&bytes, &rules), whole, "round {round}: {}", input.escape_ascii());
    }
}
