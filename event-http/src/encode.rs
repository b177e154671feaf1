//! Writes heads, chunk frames and error pages; nothing here allocates beyond the output.

use std::ops::Range;
use std::time::Duration;

use crate::date::DateLine;
use crate::error::{Caller, Error};
use crate::framing::{self, Asked, Connection};
use crate::head::{Headers, MethodSet, Version, reason_phrase, token};

/// The interim answer that lets a client send its body (RFC 9110 section 15.2.1).
pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// What follows the data of a chunk.
pub(crate) const CHUNK_END: &[u8] = b"\r\n";
/// evhttp's default for a body whose type the program did not say.
pub(crate) const DEFAULT_CONTENT_TYPE: &str = "text/html; charset=ISO-8859-1";

/// What an answer depends on in the request it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyTo {
    pub(crate) asked: Asked,
    pub(crate) version: Version,
    /// The connection ends after this answer. An HTTP/1.0 request without it has asked for keep-alive.
    pub(crate) close: bool,
}

/// The body an answer is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    /// All of it is there, of that length.
    Whole(u64),
    /// It comes in pieces.
    Stream,
    /// There is none: what follows is another protocol.
    Handover,
}

/// How the body of an answer goes on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// In chunks.
    Chunked,
    /// As it is; that many bytes are still due.
    Length(u64),
    /// Not at all: bytes that the program gives are dropped.
    Nothing,
    /// As it is, up to the end of the connection.
    UntilClose,
}

/// What a written head binds the connection to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) mode: Mode,
    pub(crate) close: bool,
}

/// What the server adds to every answer that lacks it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Automatic<'a> {
    pub(crate) date: &'a DateLine,
    /// Its first field is added where an answer has a body and no type; `None` adds nothing.
    pub(crate) content_type: Option<&'a Headers>,
}

/// The parts of an answer's head that the program chose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyHead<'a> {
    /// 100 to 999.
    pub(crate) status: u16,
    /// `None` for the standard phrase, empty for none.
    pub(crate) reason: Option<&'a str>,
    pub(crate) headers: &'a Headers,
}

/// An error answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrorReply<'a> {
    /// 200 to 999.
    pub(crate) status: u16,
    /// Stands both in the status line, unless it has control characters, and, escaped, in the page.
    pub(crate) reason: Option<&'a str>,
    /// For 405, which must list the methods (RFC 9110 section 15.5.6).
    pub(crate) allow: Option<&'a MethodSet>,
}

impl ErrorReply<'_> {
    /// The standard answer of that status.
    pub(crate) fn of(status: u16) -> ErrorReply<'static> {
        ErrorReply { status, reason: None, allow: None }
    }
}

/// Appends the head of an answer to `out`.
///
/// The order is evhttp's: status line, the program's fields as they were added, Transfer-Encoding, Date,
/// Content-Length, Content-Type, Connection. The version is always ours (RFC 9110 section 2.5). Framing is never
/// left to the program: its Transfer-Encoding is dropped; its Content-Length counts where the length cannot be known
/// better, in a stream, in an answer to HEAD without a body and in a 304; a Connection field that says otherwise than
/// what happens is replaced.
///
/// # Errors
/// Nothing is written if the status is outside 100 to 999, the reason has a control character, or the Content-Length
/// of a stream is not a number.
pub(crate) fn reply_head(
    out: &mut Vec<u8>,
    to: ReplyTo,
    head: &ReplyHead<'_>,
    payload: Payload,
    automatic: Automatic<'_>,
) -> Result<Delivery, Error> {
    let ReplyHead { status, reason, headers } = *head;
    if !(100..=999).contains(&status) {
        return Err(Caller::Status.into());
    }
    if reason.is_some_and(|reason| !token::is_field_text(reason.as_bytes())) {
        return Err(Caller::Reason.into());
    }
    let described = framing::content_allowed(to.asked, status);
    let given = given_length(headers, to.asked, status, payload)?;
    let (length, mode) = plan(to, status, payload, given);
    // An interim answer and a change of protocol do not end anything.
    let interim = status < 200;
    // What follows such an answer is not HTTP, and nobody is there for it.
    let switches = status == 101 || (to.asked == Asked::Connect && status / 100 == 2);
    let mut close =
        (switches && payload != Payload::Handover) || (!interim && (to.close || mode == Mode::UntilClose));

    out.reserve(headers.bytes.len() + reason.map_or(0, str::len) + 256);
    push_status_line(out, status, reason);
    let (mut has_date, mut has_type, mut has_length, mut has_keep) = (false, false, false, false);
    for &field in &headers.fields {
        let name = field.name.slice(&headers.bytes);
        match name.len() {
            4 => has_date |= token::is_name(name, b"date"),
            10 if token::is_name(name, b"connection") => {
                let mut options = Connection::default();
                options.add(field.value.slice(&headers.bytes));
                close |= !interim && options.close;
                if close {
                    continue;
                }
                has_keep |= options.keep_alive;
            }
            12 => has_type |= token::is_name(name, b"content-type"),
            14 if token::is_name(name, b"content-length") => {
                if given.is_none() || has_length {
                    continue;
                }
                has_length = true;
            }
            17 if token::is_name(name, b"transfer-encoding") => continue,
            _ => {}
        }
        headers.push_line(field, out);
    }
    if mode == Mode::Chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    if !has_date {
        out.extend_from_slice(automatic.date);
    }
    if let (Some(length), false) = (length, has_length) {
        push_length(out, length);
    }
    if !has_type
        && described
        && payload != Payload::Whole(0)
        && let Some(default) = automatic.content_type
        && let Some(&field) = default.fields.first()
    {
        default.push_line(field, out);
    }
    if close {
        out.extend_from_slice(b"Connection: close\r\n");
    } else if to.version == Version::Http10 && !interim && !has_keep {
        out.extend_from_slice(b"Connection: keep-alive\r\n");
    }
    out.extend_from_slice(b"\r\n");
    Ok(Delivery { mode, close })
}

/// The short way of [`reply_head`] and a body: what the plain answers of a server have in common from one to the next,
/// which is all but the length and the body.
#[derive(Debug, Default)]
pub(crate) struct PlainHeads {
    status: u16,
    reason: String,
    has_reason: bool,
    /// The head as it was last written, with the length of that body.
    text: Vec<u8>,
    len: usize,
    /// Where the digits of the length begin and end in it.
    digits: Range<usize>,
    /// The loop time up to which this holds, in nanoseconds.
    until: u64,
}

impl PlainHeads {
    /// Whether an answer may be plain at all: it has a body and the fields of the server only.
    #[inline]
    pub(crate) fn are_for(to: ReplyTo, head: &ReplyHead<'_>, body: &[u8]) -> bool {
        (to.asked, to.version) == (Asked::Other, Version::Http11)
            && head.headers.fields.is_empty()
            && !body.is_empty()
    }

    /// Whether they are those of that head, at loop time `now`, in nanoseconds.
    #[inline]
    pub(crate) fn are_of(&self, head: &ReplyHead<'_>, now: u64) -> bool {
        now < self.until
            && head.status == self.status
            && match head.reason {
                Some(reason) => self.has_reason && reason == self.reason,
                None => !self.has_reason,
            }
    }

    /// Makes them those of that head, with a date that holds up to `until`; false if that is not plain. With `close` it says
    /// that the connection ends.
    pub(crate) fn fill(
        &mut self,
        head: &ReplyHead<'_>,
        automatic: Automatic<'_>,
        close: bool,
        until: Duration,
    ) -> bool {
        let ReplyHead { status, reason, .. } = *head;
        self.until = 0;
        let is_plain = (200..=999).contains(&status)
            && !matches!(status, 204 | 205 | 304)
            && reason.is_none_or(|reason| token::is_field_text(reason.as_bytes()));
        let (true, Some(content_type)) = (is_plain, automatic.content_type) else { return false };
        self.status = status;
        self.has_reason = reason.is_some();
        self.reason.clear();
        self.reason.push_str(reason.unwrap_or_default());
        self.text.clear();
        push_status_line(&mut self.text, status, reason);
        self.text.extend_from_slice(automatic.date);
        self.text.extend_from_slice(b"Content-Length: ");
        (self.len, self.digits) = (0, self.text.len()..self.text.len() + 1);
        self.text.extend_from_slice(b"0\r\n");
        content_type.fields.first().iter().for_each(|&&field| content_type.push_line(field, &mut self.text));
        if close {
            self.text.extend_from_slice(b"Connection: close\r\n");
        }
        self.text.extend_from_slice(b"\r\n");
        self.until = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        true
    }

    /// Appends an answer.
    #[inline]
    pub(crate) fn write(&mut self, out: &mut Vec<u8>, body: &[u8]) {
        if body.len() != self.len {
            self.set_len(body.len());
        }
        out.reserve(self.text.len() + body.len());
        out.extend_from_slice(&self.text);
        out.extend_from_slice(body);
    }

    fn set_len(&mut self, len: usize) {
        let mut place = [0; 20];
        let digits = decimal_digits(&mut place, len as u64);
        match self.text.get_mut(self.digits.clone()) {
            // One by one: few digits are written sooner than a copy of unknown length is begun.
            Some(old) if old.len() == digits.len() => {
                old.iter_mut().zip(digits).for_each(|(old, &digit)| *old = digit);
            }
            _ => {
                self.text.splice(self.digits.clone(), digits.iter().copied());
                self.digits.end = self.digits.start + digits.len();
            }
        }
        self.len = len;
    }
}

/// Appends an interim answer of 100 to 199.
pub(crate) fn interim_head(out: &mut Vec<u8>, status: u16, headers: &Headers) {
    push_status_line(out, status, None);
    for &field in &headers.fields {
        let name = field.name.slice(&headers.bytes);
        // RFC 9110 section 8.6, RFC 9112 section 6.1.
        if !token::is_name(name, b"content-length") && !token::is_name(name, b"transfer-encoding") {
            headers.push_line(field, out);
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// The program's own Content-Length, where it counts.
fn given_length(
    headers: &Headers,
    asked: Asked,
    status: u16,
    payload: Payload,
) -> Result<Option<u64>, Error> {
    let counts = match payload {
        _ if !framing::length_allowed(asked, status) || status == 205 => false,
        Payload::Stream => true,
        Payload::Whole(0) => asked == Asked::Head || status == 304,
        Payload::Whole(_) => status == 304,
        Payload::Handover => false,
    };
    let value = if counts { headers.get("content-length") } else { None };
    match value {
        Some(value) => framing::decimal(value.as_bytes()).map(Some).ok_or(Caller::ContentLength.into()),
        None => Ok(None),
    }
}

/// The Content-Length to write, and how the body goes out.
fn plan(to: ReplyTo, status: u16, payload: Payload, given: Option<u64>) -> (Option<u64>, Mode) {
    if status == 205 {
        return (Some(0), Mode::Nothing);
    }
    if !framing::content_allowed(to.asked, status) {
        return (given, Mode::Nothing);
    }
    if to.asked == Asked::Head {
        // Without a body the length of GET's is not known, and RFC 9110 section 9.3.2 lets it be left out.
        let length = match payload {
            Payload::Whole(length) if length > 0 => Some(length),
            _ => given,
        };
        return (length, Mode::Nothing);
    }
    match (payload, given) {
        (Payload::Handover, _) => (None, Mode::Nothing),
        (Payload::Whole(length), _) | (Payload::Stream, Some(length)) => (Some(length), Mode::Length(length)),
        (Payload::Stream, None) if to.version == Version::Http11 => (None, Mode::Chunked),
        (Payload::Stream, None) => (None, Mode::UntilClose),
    }
}

/// Appends a whole error answer as `evhttp_send_error` makes it: it always closes.
pub(crate) fn error_reply(out: &mut Vec<u8>, asked: Asked, error: &ErrorReply<'_>, date: &DateLine) {
    let ErrorReply { status, reason, allow } = *error;
    let phrase = reason.filter(|reason| token::is_field_text(reason.as_bytes()));
    push_status_line(out, status, phrase);
    out.extend_from_slice(b"Content-Type: text/html\r\nConnection: close\r\n");
    if let Some(methods) = allow {
        out.extend_from_slice(b"Allow: ");
        for (index, method) in methods.iter().enumerate() {
            out.extend_from_slice(if index > 0 { b", " } else { b"" });
            out.extend_from_slice(method.as_str().as_bytes());
        }
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(date);
    if framing::length_allowed(asked, status) {
        let content = framing::content_allowed(asked, status);
        push_length(out, if content { error_page_len(status, reason) } else { 0 });
    }
    out.extend_from_slice(b"\r\n");
    if framing::body_allowed(asked, status) {
        error_page(&mut |piece| out.extend_from_slice(piece), status, reason);
    }
}

fn error_page_len(status: u16, reason: Option<&str>) -> u64 {
    let mut len = 0;
    error_page(&mut |piece| len += piece.len() as u64, status, reason);
    len
}

/// Hands the pieces of evhttp's default page to `put`.
fn error_page(put: &mut dyn FnMut(&[u8]), status: u16, reason: Option<&str>) {
    let mut digits = [0; 20];
    let code = decimal_digits(&mut digits, u64::from(status));
    let phrase = reason_phrase(status).as_bytes();
    put(b"<html><head><title>");
    put(code);
    put(b" ");
    put(phrase);
    put(b"</title></head><body><h1>");
    put(code);
    put(b" ");
    put(phrase);
    put(b"</h1>");
    escape_html(put, reason.unwrap_or_default().as_bytes());
    put(b"</body></html>");
}

/// Hands `text` to `put` with the five characters that mean something in HTML replaced.
pub(crate) fn escape_html(put: &mut dyn FnMut(&[u8]), text: &[u8]) {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| b"<>\"'&".contains(byte)) {
        put(&rest[..at]);
        put(match rest[at] {
            b'<' => b"&lt;",
            b'>' => b"&gt;",
            b'"' => b"&quot;",
            b'\'' => b"&#039;",
            _ => b"&amp;",
        });
        rest = &rest[at + 1..];
    }
    put(rest);
}

/// Appends the line that goes before a chunk of `len` bytes, which must not be zero: that would end the body.
///
/// The data and [`CHUNK_END`] follow.
pub(crate) fn chunk_start(out: &mut Vec<u8>, len: u64) {
    debug_assert_ne!(len, 0, "an empty chunk ends the body");
    let mut digits = [0; 16];
    let mut at = digits.len();
    let mut rest = len;
    loop {
        at -= 1;
        digits[at] = b"0123456789abcdef"[(rest & 15) as usize];
        rest >>= 4;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
    out.extend_from_slice(b"\r\n");
}

/// Appends the last chunk and the trailers, which end a chunked body.
pub(crate) fn last_chunk(out: &mut Vec<u8>, trailers: Option<&Headers>) {
    out.extend_from_slice(b"0\r\n");
    if let Some(trailers) = trailers {
        trailers.fields.iter().for_each(|&field| trailers.push_line(field, out));
    }
    out.extend_from_slice(b"\r\n");
}

fn push_status_line(out: &mut Vec<u8>, status: u16, reason: Option<&str>) {
    if status == 200 && reason.is_none() {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        return;
    }
    let mut digits = [0; 20];
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(decimal_digits(&mut digits, u64::from(status)));
    out.push(b' ');
    out.extend_from_slice(reason.unwrap_or_else(|| reason_phrase(status)).as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn push_length(out: &mut Vec<u8>, length: u64) {
    let mut digits = [0; 20];
    out.extend_from_slice(b"Content-Length: ");
    out.extend_from_slice(decimal_digits(&mut digits, length));
    out.extend_from_slice(b"\r\n");
}

/// The decimal digits of `number`, right-aligned in `digits`.
fn decimal_digits(digits: &mut [u8; 20], mut number: u64) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::few::few_under_miri;

    const DATE: &DateLine = b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    const GET: ReplyTo = ReplyTo { asked: Asked::Other, version: Version::Http11, close: false };
    const HEAD: ReplyTo = ReplyTo { asked: Asked::Head, ..GET };
    const HTTP10: ReplyTo = ReplyTo { version: Version::Http10, close: true, ..GET };
    const DATE_LINE: &str = "Date: Sun, 06 Nov 1994 08:49:37 GMT|";
    const TYPE_LINE: &str = "Content-Type: text/html; charset=ISO-8859-1|";

    fn headers(fields: &[(&str, &str)]) -> Headers {
        let mut headers = Headers::new();
        fields.iter().for_each(|(name, value)| headers.add(name, value).unwrap());
        headers
    }

    /// The head with `|` for CRLF, `D` and `T` for the default Date and Content-Type lines, and what it binds to.
    fn reply(to: ReplyTo, status: u16, fields: &[(&str, &str)], payload: Payload) -> (String, Delivery) {
        let mut out = Vec::new();
        let content_type = headers(&[("Content-Type", DEFAULT_CONTENT_TYPE)]);
        let automatic = Automatic { date: DATE, content_type: Some(&content_type) };
        let head = ReplyHead { status, reason: None, headers: &headers(fields) };
        let delivery = reply_head(&mut out, to, &head, payload, automatic).unwrap();
        let text = String::from_utf8(out).unwrap().replace("\r\n", "|");
        (text.replace(DATE_LINE, "D|").replace(TYPE_LINE, "T|"), delivery)
    }

    #[track_caller]
    fn check(
        to: ReplyTo,
        status: u16,
        fields: &[(&str, &str)],
        payload: Payload,
        text: &str,
        mode: Mode,
        close: bool,
    ) {
        assert_eq!(reply(to, status, fields, payload), (text.to_string(), Delivery { mode, close }));
    }

    #[test]
    fn the_short_way_writes_what_the_long_way_writes() {
        let content_type = headers(&[("Content-Type", DEFAULT_CONTENT_TYPE)]);
        let mut short_ways = 0;
        let mut heads = PlainHeads::default();
        for status in (100..=few_under_miri(600, 210)).chain([999]) {
            for (reason, fields, to, length, has_type) in [
                (None, &[][..], GET, 1, true),
                (Some("Reason"), &[], GET, 10, true),
                (Some(""), &[], GET, 2_047, true),
                (Some("a\r\nX: y"), &[], GET, 5, true),
                (None, &[("X-A", "1")], GET, 5, true),
                (None, &[], GET, 0, true),
                (None, &[], GET, 5, false),
                (None, &[], HEAD, 5, true),
                (None, &[], HTTP10, 5, true),
                (None, &[], ReplyTo { close: true, ..GET }, 5, true),
                (None, &[], ReplyTo { asked: Asked::Connect, ..GET }, 5, true),
            ] {
                let (fields, body) = (headers(fields), vec![b'b'; length]);
                let head = ReplyHead { status, reason, headers: &fields };
                let automatic = Automatic { date: DATE, content_type: has_type.then_some(&content_type) };
                let mut short = b"before".to_vec();
                let (now, until) = (1_000_000_000, Duration::from_secs(2));
                if !PlainHeads::are_for(to, &head, &body) || !heads.fill(&head, automatic, to.close, until) {
                    continue;
                }
                assert!(heads.are_of(&head, now) && !heads.are_of(&head, now * 2));
                for other in [
                    ReplyHead { status: status - 1, ..head },
                    ReplyHead { reason: Some("Other"), ..head },
                    ReplyHead { reason: if reason.is_some() { None } else { Some("") }, ..head },
                ] {
                    assert!(!heads.are_of(&other, now));
                }
                for other in [9, 10, 9_999, 3, length] {
                    short.truncate(b"before".len());
                    heads.write(&mut short, &vec![b'b'; other]);
                }
                short_ways += 1;
                let mut long = b"before".to_vec();
                let payload = Payload::Whole(length as u64);
                let delivery = reply_head(&mut long, to, &head, payload, automatic).unwrap();
                assert_eq!(delivery, Delivery { mode: Mode::Length(length as u64), close: to.close });
                long.extend_from_slice(&body);
                assert_eq!(short, long);
            }
        }
        assert_eq!(short_ways, 4 * few_under_miri(402 - 3, 12 - 2));
    }

    #[test]
    fn automatic_fields_follow_the_programs_in_evhttps_order() {
        let fields = [("X-B", "1"), ("X-A", "2")];
        let text = "HTTP/1.1 200 OK|X-B: 1|X-A: 2|D|Content-Length: 5|T||";
        check(GET, 200, &fields, Payload::Whole(5), text, Mode::Length(5), false);
        let text = "HTTP/1.1 200 OK|D|Content-Length: 0||";
        check(GET, 200, &[], Payload::Whole(0), text, Mode::Length(0), false);
        let fields = [("date", "x"), ("content-type", "a/b")];
        let text = "HTTP/1.1 404 Not Found|date: x|content-type: a/b|Content-Length: 1|Connection: close||";
        check(ReplyTo { close: true, ..GET }, 404, &fields, Payload::Whole(1), text, Mode::Length(1), true);
    }

    #[test]
    fn a_head_answer_has_the_length_of_get() {
        let text = "HTTP/1.1 200 OK|D|Content-Length: 5|T||";
        check(HEAD, 200, &[], Payload::Whole(5), text, Mode::Nothing, false);
        check(HEAD, 200, &[], Payload::Whole(0), "HTTP/1.1 200 OK|D||", Mode::Nothing, false);
        let text = "HTTP/1.1 200 OK|Content-Length: 77|D||";
        check(HEAD, 200, &[("Content-Length", "77")], Payload::Whole(0), text, Mode::Nothing, false);
        check(HEAD, 200, &[], Payload::Stream, "HTTP/1.1 200 OK|D|T||", Mode::Nothing, false);
    }

    #[test]
    fn answers_without_content_have_neither_length_nor_coding() {
        let fields = [("Content-Length", "5"), ("Transfer-Encoding", "chunked")];
        for payload in [Payload::Whole(5), Payload::Stream] {
            check(GET, 204, &fields, payload, "HTTP/1.1 204 No Content|D||", Mode::Nothing, false);
            let text = "HTTP/1.1 103 Early Hints|D||";
            check(ReplyTo { close: true, ..GET }, 103, &fields, payload, text, Mode::Nothing, false);
            let text = "HTTP/1.1 304 Not Modified|Content-Length: 5|D||";
            check(GET, 304, &fields, payload, text, Mode::Nothing, false);
            check(GET, 304, &[], payload, "HTTP/1.1 304 Not Modified|D||", Mode::Nothing, false);
            let text = "HTTP/1.1 205 Reset Content|D|Content-Length: 0||";
            check(GET, 205, &fields, payload, text, Mode::Nothing, false);
        }
        let connect = ReplyTo { asked: Asked::Connect, ..GET };
        check(connect, 200, &fields, Payload::Handover, "HTTP/1.1 200 OK|D||", Mode::Nothing, false);
        let text = "HTTP/1.1 200 OK|D|Connection: close||";
        check(connect, 200, &fields, Payload::Whole(0), text, Mode::Nothing, true);
        let upgrade = [("Connection", "Upgrade"), ("Upgrade", "websocket")];
        let text = "HTTP/1.1 101 Switching Protocols|Connection: Upgrade|Upgrade: websocket|D||";
        check(GET, 101, &upgrade, Payload::Handover, text, Mode::Nothing, false);
        let text = "HTTP/1.1 101 Switching Protocols|Upgrade: websocket|D|Connection: close||";
        check(GET, 101, &upgrade, Payload::Whole(0), text, Mode::Nothing, true);
    }

    #[test]
    fn streams_are_chunked_only_where_the_client_understands_it() {
        let text = "HTTP/1.1 200 OK|Transfer-Encoding: chunked|D|T||";
        check(GET, 200, &[], Payload::Stream, text, Mode::Chunked, false);
        let text = "HTTP/1.1 200 OK|D|T|Connection: close||";
        check(HTTP10, 200, &[], Payload::Stream, text, Mode::UntilClose, true);
        let keep = ReplyTo { close: false, ..HTTP10 };
        check(keep, 200, &[], Payload::Stream, text, Mode::UntilClose, true);
        let text = "HTTP/1.1 200 OK|Content-Length: 9|D|T|Connection: keep-alive||";
        check(keep, 200, &[("Content-Length", "9")], Payload::Stream, text, Mode::Length(9), false);
    }

    #[test]
    fn framing_is_not_left_to_the_program() {
        let fields = [("Content-Length", "99"), ("Transfer-Encoding", "gzip"), ("content-length", "1")];
        let text = "HTTP/1.1 200 OK|D|Content-Length: 5|T||";
        check(GET, 200, &fields, Payload::Whole(5), text, Mode::Length(5), false);
        let text = "HTTP/1.1 200 OK|Content-Length: 99|D|T||";
        check(GET, 200, &fields, Payload::Stream, text, Mode::Length(99), false);
    }

    #[test]
    fn connection_says_what_happens() {
        let text = "HTTP/1.1 200 OK|D|Content-Length: 1|T|Connection: close||";
        for value in ["close", "foo, Close"] {
            check(GET, 200, &[("Connection", value)], Payload::Whole(1), text, Mode::Length(1), true);
        }
        let closing = ReplyTo { close: true, ..GET };
        check(closing, 200, &[("connection", "keep-alive")], Payload::Whole(1), text, Mode::Length(1), true);
        check(HTTP10, 200, &[], Payload::Whole(1), text, Mode::Length(1), true);
        let keep = ReplyTo { close: false, ..HTTP10 };
        let text = "HTTP/1.1 200 OK|D|Content-Length: 1|T|Connection: keep-alive||";
        check(keep, 200, &[], Payload::Whole(1), text, Mode::Length(1), false);
        let text = "HTTP/1.1 200 OK|Connection: Keep-Alive|D|Content-Length: 1|T||";
        check(keep, 200, &[("Connection", "Keep-Alive")], Payload::Whole(1), text, Mode::Length(1), false);
    }

    #[test]
    fn a_bad_head_writes_nothing() {
        let mut out = Vec::new();
        let automatic = Automatic { date: DATE, content_type: None };
        let bad_length = headers(&[("Content-Length", "x")]);
        let none = Headers::new();
        for (status, reason, headers) in [
            (99, None, &none),
            (1000, None, &none),
            (200, Some("a\r\nX: y"), &none),
            (200, Some("\0"), &none),
            (200, None, &bad_length),
        ] {
            let head = ReplyHead { status, reason, headers };
            assert!(
                reply_head(&mut out, GET, &head, Payload::Stream, automatic).is_err_and(|e| e.is_caller())
            );
        }
        assert!(out.is_empty());
        let head = ReplyHead { status: 999, reason: Some(""), headers: &none };
        reply_head(&mut out, GET, &head, Payload::Whole(0), automatic).unwrap();
        assert!(out.starts_with(b"HTTP/1.1 999 \r\n"));
    }

    fn error_text(
        asked: Asked,
        status: u16,
        reason: Option<&str>,
        allow: Option<&MethodSet>,
    ) -> (String, String) {
        let mut out = Vec::new();
        error_reply(&mut out, asked, &ErrorReply { status, reason, allow }, DATE);
        let text = String::from_utf8(out).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.replace("\r\n", "|"), body.to_string())
    }

    #[test]
    fn error_pages_are_evhttps() {
        let (head, body) = error_text(Asked::Other, 500, Some("Oops"), None);
        assert_eq!(
            head,
            "HTTP/1.1 500 Oops|Content-Type: text/html|Connection: close|Date: Sun, 06 Nov 1994 08:49:37 GMT|\
             Content-Length: 117"
        );
        assert_eq!(
            body,
            "<html><head><title>500 Internal Server Error</title></head><body><h1>500 Internal Server Error</h1>Oops\
             </body></html>"
        );
        for (status, len) in [(400, 93), (501, 101), (417, 107), (503, 109), (404, 89)] {
            let (head, body) = error_text(Asked::Other, status, None, None);
            assert_eq!(body.len(), len);
            assert!(head.ends_with(&format!("Content-Length: {len}")));
        }
    }

    #[test]
    fn error_pages_escape_the_reason_and_obey_head() {
        let (head, body) = error_text(Asked::Other, 404, Some("<b a=\"1\" c='2'>&"), None);
        assert!(head.contains(" <b a=\"1\" c='2'>&|"));
        assert!(body.contains("</h1>&lt;b a=&quot;1&quot; c=&#039;2&#039;&gt;&amp;</body>"), "{body}");
        assert!(head.ends_with(&format!("Content-Length: {}", body.len())));

        let (head, body) = error_text(Asked::Head, 404, None, None);
        assert!(head.ends_with("Content-Length: 89") && body.is_empty());

        let (head, _) = error_text(Asked::Other, 500, Some("a\r\nX: y"), None);
        assert!(head.starts_with("HTTP/1.1 500 Internal Server Error|"));
    }

    #[test]
    fn a_405_lists_the_methods() {
        let (head, _) = error_text(Asked::Other, 405, None, Some(&MethodSet::default()));
        assert!(head.contains("|Allow: GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS|"), "{head}");
    }

    #[test]
    fn chunk_sizes_are_lower_case_hexadecimal() {
        let mut out = Vec::new();
        for len in [1, 15, 16, 0xabc, 1 << 32, u64::MAX] {
            chunk_start(&mut out, len);
        }
        assert_eq!(out, b"1\r\nf\r\n10\r\nabc\r\n100000000\r\nffffffffffffffff\r\n");
        out.clear();
        last_chunk(&mut out, None);
        last_chunk(&mut out, Some(&headers(&[("X-Sum", "1")])));
        assert_eq!(out, b"0\r\n\r\n0\r\nX-Sum: 1\r\n\r\n");
    }

    #[test]
    fn numbers_are_written_in_full() {
        for number in [0, 9, 10, 1_234_567_890, u64::MAX] {
            assert_eq!(decimal_digits(&mut [0; 20], number), number.to_string().as_bytes());
        }
    }

    #[test]
    fn fields_that_were_received_can_be_sent_on() {
        let mut received = Headers::new();
        let input = b"A:1\r\nB: \t2 \r\nC:  3\r\nD:\r\nE: 5\r\n\r\n";
        crate::parse::field_lines(input, 5, &mut received).unwrap();
        let mut out = Vec::new();
        last_chunk(&mut out, Some(&received));
        assert_eq!(out, b"0\r\nA: 1\r\nB: 2\r\nC: 3\r\nD: \r\nE: 5\r\n\r\n");
    }
}
