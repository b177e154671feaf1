//! What the fuzz targets share: a server in the simulation that is fed bytes, alone or beside a plain decoder, a file, and
//! lines taken from a vector.

#[path = "../../tests/src/answers.rs"]
mod answers;
#[path = "../../tests/src/reference.rs"]
mod reference;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use event_core::testing::{Peer, Sim};
use event_core::{Eol, EventBase, FileSegment, LoopFlags};
use event_http::{Limits, Request, Server};

/// What one connection got to see, and how many requests the handler did.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    /// Every byte the server sent, without the Date fields' values.
    pub answers: Vec<u8>,
    /// Requests that reached the handler.
    pub served: usize,
}

/// Feeds the pieces to a fresh server, one after the other, and waits until the connection has ended.
pub fn serve(seed: u64, pieces: &[&[u8]]) -> Seen {
    let sim = Sim::new(seed);
    let mut base = sim.event_base().expect("a simulated loop");
    let http = Server::new(&base).expect("a server");
    let served = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = served.clone();
    http.set_gencb(move |mut req| {
        count.set(count.get() + 1);
        let body = req.take_body();
        req.send_reply(200, "OK", body)
    });
    let (stream, peer) = sim.stream(&base);
    http.serve(stream);
    let mut answers = Vec::new();
    for piece in pieces {
        for part in piece.chunks(16 << 10) {
            let _ = peer.write_all(part);
            settle(&mut base, &peer, &mut answers);
        }
    }
    // Whatever was sent, nothing may stay open for ever: the longest default deadline is 75 s.
    for _ in 0..400 {
        if http.connection_count() == 0 {
            break;
        }
        sim.advance(Duration::from_secs(1));
        settle(&mut base, &peer, &mut answers);
    }
    assert_eq!(http.connection_count(), 0, "the connection is still open");
    assert!(peer.is_eof() || peer.is_reset(), "the client was not told");
    Seen { answers: without_dates(&answers), served: served.get() }
}

fn settle(base: &mut EventBase, peer: &Peer, answers: &mut Vec<u8>) {
    for _ in 0..8 {
        base.run(LoopFlags::NONBLOCK | LoopFlags::NO_EXIT_ON_EMPTY).expect("the loop runs");
        answers.extend(peer.read());
    }
}

/// Small limits, so that short inputs exceed them.
fn small() -> Limits {
    Limits {
        max_request_line_bytes: Some(64),
        max_head_bytes: Some(240),
        max_fields: Some(6),
        max_chunk_line_bytes: Some(24),
        max_body_bytes: Some(100),
        max_trailer_bytes: Some(40),
        ..Limits::default()
    }
}

/// Feeds bytes to a server, whole or in pieces of which `cuts` says the lengths, and compares with the plain decoder.
pub fn compare(bytes: &[u8], cuts: u64) {
    let limits = if cuts % 2 == 0 { Limits::default() } else { small() };
    let expected = reference::decode(bytes, &limits);
    let sim = Sim::new(1 + cuts);
    let mut base = sim.event_base().expect("a simulated loop");
    let http = Server::new(&base).expect("a server");
    http.set_limits(limits);
    let runs = Rc::new(RefCell::new(Vec::new()));
    let sink = runs.clone();
    http.set_gencb(move |req: Request| {
        let run = [format!("{} {}=", req.method(), req.target()).as_bytes(), &req.body().to_vec()].concat();
        sink.borrow_mut().push(run);
        req.send_reply(200, None, "fine")
    });
    let (stream, peer) = sim.stream(&base);
    http.serve(stream);
    let (mut rest, mut random, mut answers) = (bytes, cuts, Vec::new());
    while !rest.is_empty() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(cuts);
        let longest = if cuts < 2 { 16 << 10 } else { 1 + (random >> 33) as usize % (1 + bytes.len() / 2) };
        let (piece, after) = rest.split_at(longest.min(rest.len()));
        let _ = peer.write_all(piece);
        rest = after;
        // Seldom enough that pieces pile up, often enough that they do not always.
        if random >> 61 != 0 {
            settle(&mut base, &peer, &mut answers);
        }
    }
    settle(&mut base, &peer, &mut answers);
    let agreed = expected.agrees(&answers, peer.is_eof() || peer.is_reset(), &runs.take());
    assert!(agreed.is_ok(), "{agreed:?}: {} {expected:?}", bytes.escape_ascii());
}

/// Time passes differently when a message is cut, so the dates are not compared.
fn without_dates(answers: &[u8]) -> Vec<u8> {
    let mut out = answers.to_vec();
    let mut at = 0;
    while let Some(found) = out[at..].windows(8).position(|window| window == b"\r\nDate: ") {
        let start = at + found + 8;
        let end = (start + 29).min(out.len());
        out[start..end].fill(b'-');
        at = end;
    }
    out
}

/// What the file of `file_segment` holds: lines of all kinds, and more than a block of 64 KiB.
pub static FILE: [u8; 70_000] = {
    let mut text = [b'f'; 70_000];
    let ends = b"\r\n\n\r\0\r\r\n";
    let mut at = 0;
    while at < text.len() {
        text[at] = ends[at / 101 % ends.len()];
        at += 1 + at % 101;
    }
    text
};

/// Runs `f` with a segment of that file.
pub fn file_segment<R>(f: impl FnOnce(&FileSegment) -> R) -> R {
    thread_local! {
        static SEGMENT: FileSegment = {
            let path = std::env::temp_dir().join(format!("event-core-fuzz-{}", std::process::id()));
            std::fs::write(&path, FILE).expect("a file in the temporary directory");
            let file = std::fs::File::open(&path).expect("the file just written");
            std::fs::remove_file(&path).expect("the file just written");
            FileSegment::new(file, 0, None).expect("a regular file")
        };
    }
    SEGMENT.with(f)
}

/// Takes the first line out of a vector, as `Buffer::readln` would out of a buffer.
pub fn line(text: &mut Vec<u8>, eol: Eol) -> Option<Vec<u8>> {
    let at = |byte: u8| text.iter().position(|&b| b == byte);
    let (len, end) = match eol {
        Eol::Nul => (at(0)?, 1),
        Eol::Lf => (at(b'\n')?, 1),
        Eol::CrlfStrict => (text.windows(2).position(|two| two == b"\r\n")?, 2),
        Eol::Crlf => match at(b'\n')? {
            lf if lf > 0 && text[lf - 1] == b'\r' => (lf - 1, 2),
            lf => (lf, 1),
        },
        Eol::Any => {
            let first = text.iter().position(|b| b"\r\n".contains(b))?;
            match (text[first], text.get(first + 1)) {
                (b'\r', None) => return None,
                (b'\r', Some(b'\n')) => (first, 2),
                _ => (first, 1),
            }
        }
    };
    let line = text[..len].to_vec();
    text.drain(..len + end);
    Some(line)
}
