//! From bytes to steps: heads, and bodies by length or in chunks.

use std::time::Duration;

use super::{Conn, Reading, Rules, Seq, State, Step, nanos};
use crate::encode::ReplyTo;
use crate::error::Peer;
use crate::framing::{self, Asked, BodyLength, Meaning};
use crate::head::{HeadPool, Headers, Known, RequestHead, token};
use crate::limits::Limits;
use crate::parse::{self, Plain, Scan, Section};

/// A request that lies whole at the front of the input: the bytes of its head, then those of its body.
pub(crate) struct Whole {
    pub(crate) seq: Seq,
    pub(crate) head: Box<RequestHead>,
    pub(crate) body: usize,
}

/// Takes a plain head off the front of `input`, with all that it means in `head.known`; false if there is anything to decide.
#[inline]
fn take_plain(input: &[u8], limits: &Limits, head: &mut RequestHead, pool: &mut HeadPool) -> bool {
    let compares = head.known.line > 0 && pool.compares();
    if !compares {
        head.known = Known::NOTHING;
    } else if parse::is_again(input, limits, head) {
        pool.compared(true);
        debug_assert!(is_known_right(input, limits, head, pool));
        return true;
    }
    take_new(input, limits, head, pool, compares)
}

#[inline]
fn take_new(
    input: &[u8],
    limits: &Limits,
    head: &mut RequestHead,
    pool: &mut HeadPool,
    compares: bool,
) -> bool {
    let Some(plain) = parse::plain_head(input, limits, head, framing::bearing) else { return false };
    if compares {
        pool.compared(plain == Plain::Again);
    }
    let meaning = match plain {
        Plain::Again => {
            debug_assert!(is_known_right(input, limits, head, pool));
            return true;
        }
        Plain::Host(host) => framing::understand_plain(head, host),
        Plain::Other => framing::understand(head),
    };
    debug_assert_eq!(meaning.as_ref().ok(), framing::understand(head).as_ref().ok());
    let Ok(Meaning { body, close, expect_continue: false, upgrade: false }) = meaning else { return false };
    let body = match body {
        BodyLength::None => 0,
        BodyLength::Length(body) => body,
        BodyLength::Chunked => return false,
    };
    head.known = Known { line: plain_line(head), close, body };
    true
}

/// Length of the request line of a plain head: its target stands before the version.
#[inline]
fn plain_line(head: &RequestHead) -> u32 {
    head.target.start + head.target.len + b" HTTP/1.1\r\n".len() as u32
}

/// Whether what is known of a head is what is found out about it anew.
fn is_known_right(input: &[u8], limits: &Limits, head: &RequestHead, pool: &mut HeadPool) -> bool {
    // Of the pool, so that a debug build allocates no more than another.
    let mut fresh = pool.take();
    fresh.known = Known::NOTHING;
    let is_right = take_new(input, limits, &mut fresh, pool, false)
        && fresh.known == head.known
        && (&fresh.method, fresh.version, fresh.target) == (&head.method, head.version, head.target)
        && (fresh.path, fresh.query, fresh.host) == (head.path, head.query, head.host)
        && fresh.headers.bytes == head.headers.bytes
        && fresh.headers.fields == head.headers.fields;
    pool.give(fresh);
    is_right
}

impl<B: Default> Conn<B> {
    /// The short way: takes a whole request off the front of `input`, if it lies there in the plain shape that nearly all
    /// have. What it amounts to is a [`Step::Head`], a [`Step::Data`] and a [`Step::End`] in one.
    ///
    /// `None`, and nothing has changed, if there is anything to decide: ask [`next_within`](Conn::next_within). `now` is in
    /// nanoseconds.
    #[inline]
    pub(crate) fn next_whole(
        &mut self,
        input: &[u8],
        now: u64,
        rules: &Rules,
        pool: &mut HeadPool,
    ) -> Option<Whole> {
        let limits = &rules.limits;
        if !matches!(self.reading, Reading::Head(_))
            || self.started
            || (!self.queue.is_empty() && self.must_wait(limits))
        {
            return None;
        }
        let mut head = pool.take();
        let is_whole =
            take_plain(input, limits, &mut head, pool) && rules.methods.contains(&head.method) && {
                let there = (input.len() - head.headers.bytes.len()) as u64;
                head.known.body <= there.min(limits.max_body_bytes.unwrap_or(u64::MAX))
            };
        if !is_whole {
            pool.give(head);
            return None;
        }
        let Known { close, body, .. } = head.known;
        self.since = now;
        self.last = now;
        self.received = body;
        self.ahead += body;
        self.close = close || limits.max_requests.is_some_and(|max| self.queue.opened() + 1 >= max);
        (self.expect, self.upgrade, self.blank) = (false, false, false);
        debug_assert_eq!(self.reading, Reading::Head(Scan::default()), "nothing of a head was looked at");
        if self.close {
            self.reading = Reading::Closed;
        }
        let to = ReplyTo { asked: Asked::from(&head.method), version: head.version, close: self.close };
        let seq = self.queue.open(to);
        Some(Whole { seq, body: body as usize, head })
    }

    /// One request is being answered, the others were read ahead: so many, and at most one body too many.
    fn must_wait(&self, limits: &Limits) -> bool {
        limits.max_parsed_ahead.is_some_and(|max| self.queue.len() > max)
            || (!self.queue.is_empty() && limits.max_body_bytes.is_some_and(|max| self.ahead > max))
    }

    pub(super) fn read_head(
        &mut self,
        mut scan: Scan,
        input: &[u8],
        now: Duration,
        rules: &Rules,
        pool: &mut HeadPool,
    ) -> Result<(usize, Step), Peer> {
        let limits = &rules.limits;
        if self.must_wait(limits) {
            return Ok((0, Step::Paused));
        }
        let mut skipped = 0;
        if !self.started {
            match input {
                // RFC 9112 section 2.2: one empty line before a request line is forgiven.
                [b'\r'] if !self.blank => return Ok((0, Step::NeedMore)),
                [b'\r', b'\n', ..] if !self.blank => {
                    self.blank = true;
                    skipped = 2;
                }
                _ => {}
            }
            match input.get(skipped) {
                None => return Ok((skipped, Step::NeedMore)),
                Some(b'\r' | b'\n') => return Err(Peer::LineEnd),
                // No method begins like this: a TLS client, for one, is told at once.
                Some(&byte) if !token::is_tchar(byte) => return Err(Peer::RequestLine),
                Some(_) => {}
            }
        }
        let input = &input[skipped..];
        let Some(len) = scan.find_end(input, Section::Head, limits)? else {
            if !self.started {
                self.started = true;
                self.since = nanos(now);
            }
            self.reading = Reading::Head(scan);
            return Ok((skipped, Step::NeedMore));
        };
        let mut head = pool.take();
        let fields = scan.fields(Section::Head);
        let (methods, lenient) = (&rules.methods, rules.lenient_targets);
        let understood = parse::request_head(&input[..len], fields, methods, lenient, &mut head)
            .and_then(|()| framing::understand(&mut head))
            .and_then(|meaning| match rules.methods.contains(&head.method) {
                true => Ok(meaning),
                false => Err(Peer::MethodNotAllowed),
            });
        let meaning = match understood {
            Ok(meaning) => meaning,
            Err(error) => {
                pool.give(head);
                return Err(error);
            }
        };
        self.reading = match meaning.body {
            BodyLength::None | BodyLength::Length(0) => Reading::Ended,
            BodyLength::Length(length) => Reading::Length(length),
            BodyLength::Chunked => Reading::ChunkLine,
        };
        self.since = nanos(now);
        self.last = self.since;
        self.received = 0;
        (self.close, self.expect, self.upgrade) = (meaning.close, meaning.expect_continue, meaning.upgrade);
        (self.blank, self.started) = (false, false);
        self.close |= limits.max_requests.is_some_and(|max| self.queue.opened() + 1 >= max);
        let to = ReplyTo { asked: Asked::from(&head.method), version: head.version, close: self.close };
        let seq = self.queue.open(to);
        Ok((skipped + len, Step::Head { seq, head }))
    }

    pub(super) fn read_body(
        &mut self,
        input: &[u8],
        now: Duration,
        limits: &Limits,
        max_body: Option<u64>,
    ) -> Result<(usize, Step), Peer> {
        let max_body = max_body.unwrap_or(u64::MAX);
        if let Reading::Length(left) = self.reading
            && left > max_body.saturating_sub(self.received)
        {
            return Err(Peer::BodyTooLarge);
        }
        if self.expect {
            // Bytes that come without waiting make the 100 pointless (RFC 9110 section 10.1.1).
            if input.is_empty() {
                return Ok((0, self.continue_now(now)));
            }
            self.expect = false;
        }
        let mut at = 0;
        loop {
            let rest = &input[at..];
            match self.reading {
                Reading::Length(left) | Reading::ChunkData(left) => {
                    let len = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    if len == 0 {
                        return Ok((at, Step::NeedMore));
                    }
                    let left = left - len as u64;
                    self.reading = match self.reading {
                        Reading::Length(_) if left > 0 => Reading::Length(left),
                        Reading::Length(_) => Reading::Ended,
                        _ if left > 0 => Reading::ChunkData(left),
                        _ => Reading::ChunkEnd,
                    };
                    self.received += len as u64;
                    self.ahead += len as u64;
                    self.last = nanos(now);
                    return Ok((at + len, Step::Data(at..at + len)));
                }
                Reading::ChunkEnd => match rest {
                    [b'\r', b'\n', ..] => {
                        at += 2;
                        self.reading = Reading::ChunkLine;
                    }
                    [] | [b'\r'] => return Ok((at, Step::NeedMore)),
                    _ => return Err(Peer::ChunkEnd),
                },
                Reading::ChunkLine => {
                    let Some((len, size)) = parse::chunk_line(rest, limits.max_chunk_line_bytes)? else {
                        return Ok((at, Step::NeedMore));
                    };
                    // Compared this way round nothing can wrap.
                    if size > max_body.saturating_sub(self.received) {
                        return Err(Peer::BodyTooLarge);
                    }
                    at += len;
                    self.reading = match size {
                        0 => Reading::Trailers(Scan::default()),
                        size => Reading::ChunkData(size),
                    };
                }
                Reading::Trailers(mut scan) => {
                    let Some(len) = scan.find_end(rest, Section::Trailers, limits)? else {
                        self.reading = Reading::Trailers(scan);
                        return Ok((at, Step::NeedMore));
                    };
                    let trailers = parse::trailers(&rest[..len], scan.fields(Section::Trailers))?;
                    return Ok((at + len, self.end(trailers, now)));
                }
                Reading::Closed | Reading::Ended | Reading::Head(_) | Reading::Held => {
                    return Ok((at, Step::NeedMore));
                }
            }
        }
    }

    /// A 100 must not overtake the answers before it, nor follow its own.
    fn continue_now(&mut self, now: Duration) -> Step {
        let waiting = self.queue.last().filter(|&seq| self.queue.is_front(seq));
        match waiting.and_then(|seq| self.queue.get(seq)) {
            Some(exchange) if exchange.state == State::Waiting => {
                self.start_body(now);
                Step::Continue
            }
            _ => Step::NeedMore,
        }
    }

    /// Starts the clock of a body that the client held back.
    pub(super) fn start_body(&mut self, now: Duration) {
        self.expect = false;
        self.since = nanos(now);
        self.last = self.since;
    }

    pub(super) fn end(&mut self, trailers: Headers, now: Duration) -> Step {
        self.reading = if self.close {
            Reading::Closed
        } else if self.upgrade && !self.queue.is_empty() {
            Reading::Held
        } else {
            Reading::Head(Scan::default())
        };
        self.since = nanos(now);
        Step::End { seq: self.queue.newest(), trailers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADS: [&str; 5] = [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a?b=c HTTP/1.1\r\nHost: example.org:80\r\nX-Id: 1234\r\nConnection: keep-alive\r\n\r\nGET",
        "POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nA: b\r\n\r\nhello",
        "DELETE /d HTTP/1.1\r\nConnection: close\r\nHost: a\r\n\r\n",
        "PUT / HTTP/1.1\r\nContent-Length: 0\r\nHost: a\r\n\r\n",
    ];

    /// Takes `input` with what `pool` knows: all that comes of it, and the head for its pool.
    fn taken(input: &[u8], limits: &Limits, pool: &mut HeadPool) -> (String, Option<Box<RequestHead>>) {
        let rules = Rules { limits: limits.clone(), ..Rules::default() };
        let mut conn = Conn::<Vec<u8>>::new(Duration::from_secs(1));
        let whole = conn.next_whole(input, 2_000_000_000, &rules, pool);
        let said = whole.as_ref().map(|Whole { seq, head, body }| {
            let (places, is_host_first) = (&head.headers.fields, head.host.map(|host| host.start));
            let text = (head.target(), head.path(), head.query(), head.host(), &head.headers);
            format!("{seq:?} {body} {:?} {text:?} {places:?} {is_host_first:?} {:?}", head.method, head.known)
        });
        (format!("{said:?} {conn:?}"), whole.map(|whole| whole.head))
    }

    /// Holds what a pool makes of `input` that has seen `first` against what a new one does; whether it is taken.
    #[track_caller]
    fn is_as_anew(first: &str, input: &[u8], limits: &Limits) -> bool {
        let mut pool = HeadPool::default();
        let (_, head) = taken(first.as_bytes(), &Limits::default(), &mut pool);
        pool.give(head.unwrap());
        let (again, head) = taken(input, limits, &mut pool);
        let (anew, _) = taken(input, limits, &mut HeadPool::default());
        assert_eq!(again, anew, "{} behind {first:?}", input.escape_ascii());
        head.is_some()
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of heads, each printed")]
    fn a_head_that_is_nearly_the_one_before_is_taken_as_if_there_had_been_none() {
        let limits = Limits::default();
        let mut counts = [0; 2];
        for head in HEADS {
            for at in 0..head.len() {
                counts[usize::from(is_as_anew(head, &head.as_bytes()[..at], &limits))] += 1;
                for byte in 0..=255u8 {
                    let mut input = head.as_bytes().to_vec();
                    input[at] = byte;
                    counts[usize::from(is_as_anew(head, &input, &limits))] += 1;
                    input.insert(at, byte);
                    counts[usize::from(is_as_anew(head, &input, &limits))] += 1;
                }
            }
        }
        assert!(counts.iter().all(|&count| count > 0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "hundreds of heads, each printed")]
    fn what_stands_behind_another_request_line_has_the_same_places_there() {
        for first in HEADS {
            for second in HEADS {
                let (_, fields) = first.split_once("\r\n").unwrap();
                for line in ["GET /longer/than?the=others HTTP/1.1", "HEAD / HTTP/1.1", "PUT /p HTTP/1.1"] {
                    let moved = format!("{line}\r\n{fields}");
                    assert!(is_as_anew(first, moved.as_bytes(), &Limits::default()));
                    assert!(is_as_anew(&moved, first.as_bytes(), &Limits::default()));
                }
                assert!(is_as_anew(first, second.as_bytes(), &Limits::default()));
            }
        }
    }

    #[test]
    fn a_known_head_is_held_against_the_limits_of_now() {
        let (head, fields) = (HEADS[2], 3);
        let (line, len) = (head.find("\r\n").unwrap() + 2, head.find("\r\n\r\n").unwrap() + 4);
        let bound = |line, len, fields, body| Limits {
            max_request_line_bytes: Some(line),
            max_head_bytes: Some(len),
            max_fields: Some(fields),
            max_body_bytes: Some(body),
            ..Limits::default()
        };
        assert!(is_as_anew(head, head.as_bytes(), &bound(line, len, fields, 5)));
        for tight in [
            bound(line - 1, len, fields, 5),
            bound(line, len - 1, fields, 5),
            bound(line, len, fields - 1, 5),
            bound(line, len, fields, 4),
        ] {
            assert!(!is_as_anew(head, head.as_bytes(), &tight), "{tight:?}");
        }
    }

    #[test]
    fn comparing_is_tried_seldom_where_it_never_helps_and_always_where_it_does() {
        let mut pool = HeadPool::default();
        let mut compared = 0;
        for _ in 0..1_000 {
            if pool.compares() {
                pool.compared(false);
                compared += 1;
            }
        }
        assert!((10..30).contains(&compared), "{compared}");
        while !pool.compares() {}
        pool.compared(true);
        assert!((0..100).all(|_| {
            let compares = pool.compares();
            pool.compared(true);
            compares
        }));
    }
}
