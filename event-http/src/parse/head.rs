//! Finds the end of a head while its bytes come in, and takes a whole head apart.

use std::mem::MaybeUninit;

use crate::error::Peer;
use crate::head::{Field, Headers, Known, Method, MethodSet, RequestHead, Span, Version, token};
use crate::limits::Limits;
use crate::parse::target;

/// Where the search for an empty line stopped, so that no byte is searched twice.
///
/// It counts from the first byte of the section and is void once bytes of it are consumed.
/// `line <= at`, and everything before `line` is whole lines that end with CRLF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scan {
    at: u32,
    line: u32,
    lines: u32,
}

/// What is searched, which decides the limits and their answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    /// A request line and fields.
    Head,
    /// Fields only.
    Trailers,
}

/// Bound on a section that the program left without one: a position must fit 32 bits with room to spare.
const MAX_SECTION: usize = 1 << 30;

impl Scan {
    /// Looks for the empty line that ends the section at the start of `input`; returns the length of the section with
    /// that line, or `None` if more bytes are needed.
    ///
    /// `input` must begin with the bytes of the last call. Errors come in the order of the bytes, so they do not
    /// depend on how the bytes were split: a line longer than its limit is refused as soon as one byte too many is
    /// there, a lone LF at once.
    pub(crate) fn find_end(
        &mut self,
        input: &[u8],
        section: Section,
        limits: &Limits,
    ) -> Result<Option<usize>, Peer> {
        let (total, too_large) = match section {
            Section::Head => (limits.max_head_bytes, Peer::HeadTooLarge),
            Section::Trailers => (limits.max_trailer_bytes, Peer::TrailersTooLarge),
        };
        let total = total.unwrap_or(MAX_SECTION).min(MAX_SECTION);
        let request_line = limits.max_request_line_bytes.unwrap_or(MAX_SECTION);
        let max_lines =
            limits.max_fields.unwrap_or(MAX_SECTION).saturating_add(usize::from(section == Section::Head));
        let Scan { at, mut line, mut lines } = *self;
        let mut at = at as usize;
        loop {
            let rest = input.get(at..).unwrap_or_default();
            let found = memchr::memchr(b'\n', rest);
            at += found.map_or(rest.len(), |lf| lf + 1);
            if lines == 0 && section == Section::Head && request_line <= total && at > request_line {
                return Err(too_long(&input[..request_line]));
            }
            if at > total {
                return Err(too_large);
            }
            // `line <= at <= total`, which fits.
            if found.is_none() {
                *self = Scan { at: at as u32, line, lines };
                return Ok(None);
            }
            let [content @ .., b'\r', b'\n'] = &input[line as usize..at] else { return Err(Peer::LineEnd) };
            if content.is_empty() {
                self.lines = lines;
                return Ok(Some(at));
            }
            line = at as u32;
            lines += 1;
            if lines as usize > max_lines {
                return Err(Peer::TooManyFields);
            }
        }
    }

    /// Field lines found so far.
    pub(crate) fn fields(&self, section: Section) -> usize {
        match section {
            Section::Head => self.lines.saturating_sub(1) as usize,
            Section::Trailers => self.lines as usize,
        }
    }
}

/// What is wrong with a request line of which this is the beginning that is allowed. RFC 9112 section 3: a method
/// longer than any that is known is 501, a target that is too long 414.
#[cold]
fn too_long(line: &[u8]) -> Peer {
    /// No registered method is as long.
    const LONG: usize = 32;
    let is_method = line.len() > LONG && token::is_token(line);
    if is_method { Peer::MethodNotImplemented } else { Peer::RequestLineTooLong }
}

/// Takes a whole head apart into `head`, whose memory is used again. `bytes` ends with the empty line and has `fields`
/// field lines.
///
/// What httparse lets pass is decided here: lone LF was refused by [`Scan`], the rest of the target, the version and
/// the method below. Host and framing are decided by [`framing`](crate::framing).
pub(crate) fn request_head(
    bytes: &[u8],
    fields: usize,
    methods: &MethodSet,
    lenient_targets: bool,
    head: &mut RequestHead,
) -> Result<(), Peer> {
    head.known = Known::NOTHING;
    head.headers.clear();
    head.headers.bytes.extend_from_slice(bytes);
    let line = match parse(&mut head.headers, fields) {
        Err(httparse::Error::Version) => {
            settle_version(&mut head.headers.bytes)?;
            head.headers.fields.clear();
            parse(&mut head.headers, fields)
        }
        other => other,
    };
    let line = line.map_err(refusal)?;
    head.version = line.version;
    let bytes = &head.headers.bytes;
    let method = line.known.as_ref().unwrap_or(&Method::GET);
    let parts = target::split(line.target.slice(bytes), method, lenient_targets)?;
    // A target is checked before the method, so that a malformed line is told first.
    head.method = match line.known {
        Some(method) => method,
        None => {
            let name = std::str::from_utf8(line.name.slice(bytes)).unwrap_or_default();
            methods.extension(name).cloned().ok_or(Peer::MethodNotImplemented)?
        }
    };
    head.target = line.target;
    head.path = parts.path.shifted(line.target.start);
    head.query = parts.query.map(|span| span.shifted(line.target.start));
    head.host = parts.authority.map(|span| span.shifted(line.target.start));
    Ok(())
}

/// Takes the field lines in `bytes` apart into `headers`; `bytes` ends with an empty line.
pub(crate) fn field_lines(bytes: &[u8], fields: usize, headers: &mut Headers) -> Result<(), Peer> {
    headers.clear();
    headers.bytes.extend_from_slice(bytes);
    let mut slots = vec![httparse::EMPTY_HEADER; fields];
    match httparse::parse_headers(&headers.bytes, &mut slots) {
        Ok(httparse::Status::Complete((end, parsed))) if end == headers.bytes.len() => {
            headers.fields.extend(parsed.iter().map(|header| place(header, &headers.bytes)));
            Ok(())
        }
        _ => Err(Peer::FieldLine),
    }
}

struct RequestLine {
    /// The method by its name, which is `None` for an extension method.
    known: Option<Method>,
    name: Span,
    target: Span,
    version: Version,
}

/// Runs httparse over `headers.bytes` and fills `headers.fields`.
fn parse(headers: &mut Headers, fields: usize) -> Result<RequestLine, httparse::Error> {
    /// Room on the stack that nearly every head fits into; unused slots cost nothing.
    const SLOTS: usize = 128;
    if fields <= SLOTS {
        parse_into(headers, &mut [const { MaybeUninit::uninit() }; SLOTS])
    } else {
        let mut slots = Vec::new();
        slots.resize_with(fields, MaybeUninit::uninit);
        parse_into(headers, &mut slots)
    }
}

fn parse_into<'b>(
    headers: &'b mut Headers,
    slots: &mut [MaybeUninit<httparse::Header<'b>>],
) -> Result<RequestLine, httparse::Error> {
    let bytes = headers.bytes.as_slice();
    let mut request = httparse::Request::new(&mut []);
    let end = request.parse_with_uninit_headers(bytes, slots)?;
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version) else {
        return Err(httparse::Error::Token);
    };
    // A head that ends elsewhere for httparse than for us would be a way to smuggle.
    if end != httparse::Status::Complete(bytes.len()) {
        return Err(httparse::Error::NewLine);
    }
    let line = RequestLine {
        known: Method::known(method),
        name: Span::of(method.as_bytes(), bytes),
        target: Span::of(target.as_bytes(), bytes),
        version: if minor == 0 { Version::Http10 } else { Version::Http11 },
    };
    headers.fields.extend(request.headers.iter().map(|header| place(header, bytes)));
    Ok(line)
}

fn place(header: &httparse::Header<'_>, bytes: &[u8]) -> Field {
    Field { name: Span::of(header.name.as_bytes(), bytes), value: Span::of(header.value, bytes) }
}

/// Decides on a version that is neither HTTP/1.0 nor HTTP/1.1; a later 1.x is rewritten to 1.1, which is what
/// RFC 9110 section 2.5 asks a server of HTTP/1.1 to take it for.
fn settle_version(bytes: &mut [u8]) -> Result<(), Peer> {
    // Every LF is one of a CRLF.
    let end = memchr::memchr(b'\n', bytes).unwrap_or(bytes.len()).saturating_sub(1);
    let mut blanks = memchr::memchr_iter(b' ', &bytes[..end]);
    let (Some(_), Some(last), None) = (blanks.next(), blanks.next(), blanks.next()) else {
        return Err(Peer::RequestLine);
    };
    let start = last + 1;
    let minor = match &mut bytes[start..end] {
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            if *major != b'1' {
                return Err(Peer::VersionNotSupported);
            }
            minor
        }
        _ => return Err(Peer::Version),
    };
    if matches!(*minor, b'0' | b'1') {
        // httparse disliked something else about the line.
        return Err(Peer::RequestLine);
    }
    *minor = b'1';
    Ok(())
}

fn refusal(error: httparse::Error) -> Peer {
    match error {
        httparse::Error::HeaderName | httparse::Error::HeaderValue => Peer::FieldLine,
        httparse::Error::TooManyHeaders => Peer::TooManyFields,
        httparse::Error::Version => Peer::Version,
        _ => Peer::RequestLine,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::few::few_under_miri;

    fn limits() -> Limits {
        Limits {
            max_request_line_bytes: Some(20),
            max_head_bytes: Some(40),
            max_fields: Some(3),
            ..Limits::default()
        }
    }

    /// The outcome of a scan, whole and byte by byte, which must agree.
    fn scan(input: &[u8], section: Section, limits: &Limits) -> Result<Option<usize>, u16> {
        let status = |error: Peer| error.status().unwrap_or(0);
        let whole = Scan::default().find_end(input, section, limits).map_err(status);
        let mut scan = Scan::default();
        let mut last = Ok(None);
        for end in (0..=input.len()).step_by(few_under_miri(1, 11)).chain([input.len()]) {
            last = scan.find_end(&input[..end], section, limits).map_err(status);
            if last != Ok(None) {
                break;
            }
        }
        assert_eq!(last, whole, "{}", input.escape_ascii());
        whole
    }

    #[test]
    fn the_end_is_the_first_empty_line() {
        let limits = limits();
        assert_eq!(scan(b"GET / HTTP/1.1\r\n\r\nGET", Section::Head, &limits), Ok(Some(18)));
        assert_eq!(scan(b"GET / HTTP/1.1\r\nA: b\r\n", Section::Head, &limits), Ok(None));
        assert_eq!(scan(b"\r\nrest", Section::Trailers, &limits), Ok(Some(2)));
        assert_eq!(scan(b"A: b\r\n\r\n", Section::Trailers, &limits), Ok(Some(8)));
    }

    #[test]
    fn limits_bite_while_bytes_come_in() {
        let limits = limits();
        assert_eq!(scan(b"GET /aaaaaaaaaaaaaaaaaaa", Section::Head, &limits), Err(414));
        assert_eq!(scan(b"GET /aaa HTTP/1.1\r\n\r\n", Section::Head, &limits), Ok(Some(21)));
        assert_eq!(scan(b"GET /aaaaa HTTP/1.1\r\n\r\n", Section::Head, &limits), Err(414));
        assert_eq!(
            scan(b"GET / HTTP/1.1\r\nA: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", Section::Head, &limits),
            Err(431)
        );
        assert_eq!(scan(b"GET / HTTP/1.1\r\na:\r\nb:\r\nc:\r\nd:\r\n", Section::Head, &limits), Err(431));
        assert_eq!(scan(b"GET / HTTP/1.1\r\na:\r\nb:\r\nc:\r\n\r\n", Section::Head, &limits), Ok(Some(30)));
        let tight = Limits { max_head_bytes: Some(10), ..limits };
        assert_eq!(scan(b"GET /aaaaaaaaaaaaaaaaaaa", Section::Head, &tight), Err(431));
    }

    #[test]
    fn a_method_that_fills_the_line_is_not_implemented() {
        let limits = Limits { max_request_line_bytes: Some(40), ..Limits::default() };
        assert_eq!(scan(&[b'A'; 41], Section::Head, &limits), Err(501));
        assert_eq!(scan(&[b'A'; 40], Section::Head, &limits), Ok(None));
        assert_eq!(scan(&[&[b'A'; 20][..], b"(", &[b'A'; 20]].concat(), Section::Head, &limits), Err(414));
        assert_eq!(scan(&[&[b'A'; 20][..], b" ", &[b'A'; 20]].concat(), Section::Head, &limits), Err(414));
    }

    #[test]
    fn a_lone_lf_is_refused_at_once() {
        let limits = limits();
        for bad in [&b"GET / HTTP/1.1\n"[..], b"GET / HTTP/1.1\r\n\n", b"\n"] {
            assert_eq!(scan(bad, Section::Head, &limits), Err(400));
        }
    }

    fn parsed(input: &str) -> Result<RequestHead, u16> {
        let mut head = RequestHead::empty();
        let fields = input.matches("\r\n").count().saturating_sub(2);
        request_head(input.as_bytes(), fields, &MethodSet::default(), false, &mut head)
            .map(|()| head)
            .map_err(|error| error.status().unwrap_or(0))
    }

    #[test]
    fn a_head_is_taken_apart() {
        let head =
            parsed("POST /a/b?c=d HTTP/1.1\r\nHost: x\r\nTest: \t abc \t \r\nEmpty:\r\nEmpty2: \t\r\n\r\n")
                .unwrap();
        assert_eq!((head.method(), head.version()), (&Method::POST, Version::Http11));
        assert_eq!((head.target(), head.path(), head.query()), ("/a/b?c=d", "/a/b", Some("c=d")));
        assert_eq!(head.headers().get_str("test"), Some("abc"));
        assert_eq!(head.headers().get_str("empty"), Some(""));
        assert_eq!(head.headers().get_str("empty2"), Some(""));
        assert_eq!(head.headers().len(), 4);
    }

    #[test]
    fn versions_are_decided_by_their_digits() {
        assert_eq!(parsed("GET / HTTP/1.0\r\n\r\n").map(|h| h.version()), Ok(Version::Http10));
        for later in ["1.1", "1.2", "1.9"] {
            assert_eq!(
                parsed(&format!("GET / HTTP/{later}\r\nA: b\r\n\r\n")).map(|h| h.version()),
                Ok(Version::Http11)
            );
        }
        for unsupported in ["2.0", "0.9", "9.9", "3.0"] {
            assert_eq!(
                parsed(&format!("GET / HTTP/{unsupported}\r\n\r\n")).err(),
                Some(505),
                "{unsupported}"
            );
        }
        for bad in [
            "HTTP/abc",
            "HTTP/1.10",
            "HTTP/1.",
            "HTTP/1",
            "http/1.1",
            "HTTP/11",
            "HTTP/+1.1",
            "HTTPS/1.1",
            "x",
            "",
        ] {
            assert_eq!(parsed(&format!("GET / {bad}\r\n\r\n")).err(), Some(400), "{bad}");
        }
    }

    #[test]
    fn more_fields_than_fit_the_stack_are_parsed_too() {
        let count = few_under_miri(1000, 150);
        let fields = "A: b\r\n".repeat(count);
        assert_eq!(parsed(&format!("GET / HTTP/1.1\r\n{fields}\r\n")).map(|h| h.headers().len()), Ok(count));
    }
}
