//! From bytes to steps: heads, and bodies by length or in chunks.

use std::time::Duration;

use super::{Conn, Reading, Rules, Seq, State, Step, nanos};
use crate::encode::ReplyTo;
use crate::error::Peer;
use crate::framing::{self, Asked, BodyLength};
use crate::head::{HeadPool, Headers, RequestHead, token};
use crate::limits::Limits;
use crate::parse::{self, Plain, Scan, Section};

impl<B: Default> Conn<B> {
    /// The short way: takes a whole request that has no body off the front of `input`, if it lies there in the plain shape
    /// that nearly all have. What it amounts to is a [`Step::Head`] and a [`Step::End`] in one, with the bytes consumed.
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
    ) -> Option<(usize, Seq, Box<RequestHead>)> {
        let limits = &rules.limits;
        if !matches!(self.reading, Reading::Head(_))
            || self.started
            || (!self.queue.is_empty() && self.must_wait(limits))
        {
            return None;
        }
        let mut head = pool.take();
        let taken =
            parse::plain_head(input, limits, &mut head, framing::bearing).and_then(|Plain { len, host }| {
                let meaning = match host {
                    Some(host) => framing::understand_plain(&mut head, host),
                    None => framing::understand(&mut head),
                };
                debug_assert_eq!(meaning.as_ref().ok(), framing::understand(&mut head).as_ref().ok());
                let meaning = meaning.ok()?;
                let whole = matches!(meaning.body, BodyLength::None | BodyLength::Length(0))
                    && !meaning.expect_continue
                    && !meaning.upgrade
                    && rules.methods.contains(&head.method);
                whole.then_some((len, meaning.close))
            });
        let Some((len, close)) = taken else {
            pool.give(head);
            return None;
        };
        self.since = now;
        self.last = now;
        self.received = 0;
        self.close = close || limits.max_requests.is_some_and(|max| self.queue.opened() + 1 >= max);
        (self.expect, self.upgrade, self.blank) = (false, false, false);
        self.reading = if self.close { Reading::Closed } else { Reading::Head(Scan::default()) };
        let to = ReplyTo { asked: Asked::from(&head.method), version: head.version, close: self.close };
        let seq = self.queue.open(to);
        Some((len, seq, head))
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
