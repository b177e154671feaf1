//! Decides how long a body is and whether the connection lives on (RFC 9112 sections 6 and 9). Smuggling is decided
//! here and nowhere else.

use crate::error::Peer;
use crate::head::{Headers, Method, RequestHead, Span, Version, token};
use crate::parse::{self, Bearing};

/// How the body of a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyLength {
    /// There is no body.
    None,
    /// After that many bytes, from Content-Length; may be zero.
    Length(u64),
    /// After the last chunk and the trailers.
    Chunked,
}

/// What the fields of a request mean to the connection it came on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meaning {
    pub(crate) body: BodyLength,
    /// The connection ends after the answer: the client said so, or spoke HTTP/1.0 without asking to keep it.
    pub(crate) close: bool,
    /// The client waits for `100 Continue` before it sends the body.
    pub(crate) expect_continue: bool,
    /// The client offers to change the protocol: what follows may not be HTTP.
    pub(crate) upgrade: bool,
}

/// Reads the meaning of a head, and settles which host it is for.
///
/// Checks come in this order: framing, Host, method-specific rules, Expect. Whether the method is allowed is asked
/// afterwards by the connection.
#[inline]
pub(crate) fn understand(head: &mut RequestHead) -> Result<Meaning, Peer> {
    let facts = Facts::collect(&head.headers);
    let body = request_body(head.version, &facts)?;
    settle_host(head, &facts)?;
    if head.method == Method::CONNECT && !matches!(body, BodyLength::None | BodyLength::Length(0)) {
        // RFC 9110 section 9.3.6: the bytes after the head belong to the tunnel.
        return Err(Peer::ConnectWithBody);
    }
    let http11 = head.version == Version::Http11;
    // RFC 9110 section 10.1.1: an HTTP/1.0 client cannot handle a 100, so its expectation is ignored.
    if http11 && facts.expect == Expect::Unknown {
        return Err(Peer::Expectation);
    }
    let has_body = !matches!(body, BodyLength::None | BodyLength::Length(0));
    let close = match head.version {
        // A token that closes wins over one that keeps (RFC 9112 section 9.3).
        Version::Http10 => facts.connection.close || !facts.connection.keep_alive,
        Version::Http11 => facts.connection.close,
    };
    Ok(Meaning {
        body,
        close,
        expect_continue: http11 && has_body && facts.expect == Expect::Continue,
        upgrade: head.method == Method::CONNECT || (http11 && facts.upgrade && facts.connection.upgrade),
    })
}

/// What a field has to do with framing, by its name: what [`Facts::collect`] would look at.
#[inline]
pub(crate) fn bearing(name: &[u8]) -> Bearing {
    let other = match name.len() {
        4 if token::is_name(name, b"host") => return Bearing::Host,
        6 => token::is_name(name, b"expect"),
        7 => token::is_name(name, b"upgrade"),
        10 => token::is_name(name, b"connection"),
        14 => token::is_name(name, b"content-length"),
        17 => token::is_name(name, b"transfer-encoding"),
        _ => false,
    };
    if other { Bearing::Other } else { Bearing::None }
}

/// As [`understand`] for a request of HTTP/1.1, other than CONNECT, of which one field is `host` and no other bears on
/// framing.
#[inline]
pub(crate) fn understand_plain(head: &mut RequestHead, host: Span) -> Result<Meaning, Peer> {
    let value = host.slice(&head.headers.bytes);
    // Nearly always the one that was good before.
    if value != head.known_host && !value.is_empty() {
        if !parse::is_valid_authority(value) {
            return Err(Peer::HostInvalid);
        }
        head.known_host.clear();
        if value.len() <= RequestHead::MAX_KNOWN_HOST {
            head.known_host.extend_from_slice(value);
        }
    }
    head.host.get_or_insert(host);
    Ok(Meaning { body: BodyLength::None, close: false, expect_continue: false, upgrade: false })
}

/// The length of a request body, by the rules of RFC 9112 section 6.3 in their order. Rules 1 and 2 are about
/// responses only.
#[inline]
fn request_body(version: Version, facts: &Facts) -> Result<BodyLength, Peer> {
    if facts.codings.present {
        // Section 6.1: an HTTP/1.0 recipient on the way may have passed the field on without understanding it.
        if version == Version::Http10 {
            return Err(Peer::TransferEncodingInHttp10);
        }
        // Rule 3: the two together are an attempt to smuggle or to split; we refuse instead of choosing one.
        if facts.length != Length::Absent {
            return Err(Peer::TransferEncodingAndLength);
        }
        // Rule 4: the last coding of a request is chunked or its length is unknown.
        return facts.codings.decide();
    }
    match facts.length {
        // Rule 5.
        Length::Invalid => Err(Peer::ContentLength),
        // Rule 6.
        Length::Value(length) => Ok(BodyLength::Length(length)),
        // Rule 7.
        Length::Absent => Ok(BodyLength::None),
    }
}

/// Requires one valid Host in HTTP/1.1 (RFC 9112 section 3.2) and takes it, unless the target names the authority.
#[inline]
fn settle_host(head: &mut RequestHead, facts: &Facts) -> Result<(), Peer> {
    match facts.hosts {
        0 if head.version == Version::Http11 => return Err(Peer::HostMissing),
        0 => return Ok(()),
        1 => {}
        _ => return Err(Peer::HostRepeated),
    }
    let value = facts.host.slice(&head.headers.bytes);
    // An empty value is right for a target without an authority (RFC 9110 section 7.2).
    if !value.is_empty() && !parse::is_valid_authority(value) {
        return Err(Peer::HostInvalid);
    }
    head.host.get_or_insert(facts.host);
    Ok(())
}

/// What the fields that matter to framing say, gathered in one pass.
#[derive(Debug, Default)]
struct Facts {
    codings: Codings,
    connection: Connection,
    expect: Expect,
    host: Span,
    hosts: usize,
    length: Length,
    upgrade: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Expect {
    #[default]
    Absent,
    Continue,
    Unknown,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Length {
    #[default]
    Absent,
    Invalid,
    Value(u64),
}

impl Facts {
    #[inline]
    fn collect(headers: &Headers) -> Facts {
        let mut facts = Facts::default();
        for field in &headers.fields {
            let name = field.name.slice(&headers.bytes);
            // Nearly every name is ruled out by its length alone.
            match name.len() {
                4 if token::is_name(name, b"host") => {
                    facts.hosts += 1;
                    facts.host = field.value;
                }
                6 if token::is_name(name, b"expect") => facts.expect(field.value.slice(&headers.bytes)),
                7 if token::is_name(name, b"upgrade") => facts.upgrade = true,
                10 if token::is_name(name, b"connection") => {
                    facts.connection.add(field.value.slice(&headers.bytes));
                }
                14 if token::is_name(name, b"content-length") => {
                    facts.length(field.value.slice(&headers.bytes));
                }
                17 if token::is_name(name, b"transfer-encoding") => {
                    facts.codings.add(field.value.slice(&headers.bytes));
                }
                _ => {}
            }
        }
        facts
    }

    fn expect(&mut self, value: &[u8]) {
        for element in token::elements(value) {
            let known = element.eq_ignore_ascii_case(b"100-continue") && self.expect != Expect::Unknown;
            self.expect = if known { Expect::Continue } else { Expect::Unknown };
        }
    }

    /// Takes one Content-Length line. RFC 9110 section 8.6 lets a recipient refuse a repeated value or take it as one;
    /// it is refused even if all are equal, because whoever put the second one there did not see the first.
    fn length(&mut self, value: &[u8]) {
        self.length = match (self.length, decimal(value)) {
            (Length::Absent, Some(length)) => Length::Value(length),
            _ => Length::Invalid,
        };
    }
}

/// `1*DIGIT` that fits 64 bits: no sign, no blank, no list.
pub(crate) fn decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// All Transfer-Encoding lines, joined into one list (RFC 9110 section 5.3).
#[derive(Debug, Default)]
struct Codings {
    present: bool,
    chunked: usize,
    chunked_is_last: bool,
    /// Another coding, well-formed.
    other: bool,
    malformed: bool,
}

impl Codings {
    fn add(&mut self, value: &[u8]) {
        self.present = true;
        for element in token::elements(value) {
            self.chunked_is_last = element.eq_ignore_ascii_case(b"chunked");
            if self.chunked_is_last {
                self.chunked += 1;
                continue;
            }
            // Parameters are allowed for other codings; chunked has none (RFC 9112 section 7.1), and identity is no
            // coding any more: its one use today is to look different to two readers.
            let name = element.split(|&byte| byte == b';').next().map(token::trim).unwrap_or_default();
            self.malformed |= !token::is_token(name)
                || name.eq_ignore_ascii_case(b"chunked")
                || name.eq_ignore_ascii_case(b"identity");
            self.other = true;
        }
    }

    fn decide(&self) -> Result<BodyLength, Peer> {
        if self.malformed || self.chunked != 1 || !self.chunked_is_last {
            return Err(Peer::TransferEncoding);
        }
        if self.other {
            return Err(Peer::CodingNotImplemented);
        }
        Ok(BodyLength::Chunked)
    }
}

/// The options of all Connection fields that matter here; names compare without case (RFC 9110 section 7.6.1).
///
/// Proxy-Connection never was a standard field and is not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Connection {
    pub(crate) close: bool,
    pub(crate) keep_alive: bool,
    pub(crate) upgrade: bool,
}

impl Connection {
    pub(crate) fn add(&mut self, value: &[u8]) {
        for option in token::elements(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            self.upgrade |= option.eq_ignore_ascii_case(b"upgrade");
        }
    }
}

/// What the length of an answer's body depends on besides the answer itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Connect,
    Head,
    Other,
}

impl From<&Method> for Asked {
    fn from(method: &Method) -> Asked {
        match *method {
            Method::CONNECT => Asked::Connect,
            Method::HEAD => Asked::Head,
            _ => Asked::Other,
        }
    }
}

/// True if the bytes of a body follow the head of such an answer (RFC 9112 section 6.3, rules 1 and 2).
pub(crate) fn body_allowed(asked: Asked, status: u16) -> bool {
    asked != Asked::Head && content_allowed(asked, status)
}

/// True if such an answer describes a body: as [`body_allowed`], but the answer to HEAD describes the one of GET.
///
/// 205 is without: RFC 9110 section 15.3.6 forbids its content.
pub(crate) fn content_allowed(asked: Asked, status: u16) -> bool {
    length_allowed(asked, status) && !matches!(status, 205 | 304)
}

/// True if such an answer may have a Content-Length at all (RFC 9110 section 8.6).
pub(crate) fn length_allowed(asked: Asked, status: u16) -> bool {
    let tunnel = asked == Asked::Connect && status / 100 == 2;
    status >= 200 && status != 204 && !tunnel
}

#[cfg(test)]
mod tests {
    use super::*;

    const HTTP10: Version = Version::Http10;
    const HTTP11: Version = Version::Http11;

    fn meaning(version: Version, method: Method, fields: &[(&str, &str)]) -> Result<Meaning, u16> {
        let mut head = RequestHead::empty();
        (head.version, head.method) = (version, method);
        for (name, value) in fields {
            head.headers.add(name, value).unwrap();
        }
        understand(&mut head).map_err(|error| error.status().unwrap_or(0))
    }

    fn body(fields: &[(&str, &str)]) -> Result<BodyLength, u16> {
        let fields = [&[("Host", "a")], fields].concat();
        meaning(HTTP11, Method::POST, &fields).map(|meaning| meaning.body)
    }

    #[test]
    fn content_length_is_digits_once() {
        assert_eq!(body(&[]), Ok(BodyLength::None));
        for (value, length) in [("0", 0), ("5", 5), ("007", 7), ("18446744073709551615", u64::MAX)] {
            assert_eq!(body(&[("content-length", value)]), Ok(BodyLength::Length(length)));
        }
        for bad in
            ["", "-1", "+5", "5 5", "5,5", "5, 6", "0x5", "5a", "18446744073709551616", "\u{665}", "1e3"]
        {
            assert_eq!(body(&[("Content-Length", bad)]), Err(400), "{bad}");
        }
        assert_eq!(body(&[("Content-Length", "5"), ("Content-Length", "6")]), Err(400));
        assert_eq!(body(&[("Content-Length", "5"), ("content-LENGTH", "5")]), Err(400));
    }

    #[test]
    fn transfer_encoding_is_one_final_chunked() {
        const TE: &str = "Transfer-Encoding";
        for good in ["chunked", "CHUNKED", " chunked ", ", chunked", "chunked,", "chunked , ,"] {
            assert_eq!(body(&[(TE, good)]), Ok(BodyLength::Chunked), "{good}");
        }
        assert_eq!(body(&[(TE, ""), (TE, "chunked")]), Ok(BodyLength::Chunked));
        for unknown in ["gzip, chunked", "x-a;q=1, chunked", "deflate, gzip, Chunked"] {
            assert_eq!(body(&[(TE, unknown)]), Err(501), "{unknown}");
        }
        assert_eq!(body(&[(TE, "gzip"), (TE, "chunked")]), Err(501));
        for bad in [
            "",
            ",",
            "gzip",
            "chunkedx",
            "xchunked",
            "chunked, gzip",
            "chunked, chunked",
            "chunked;q=1",
            "identity",
            "identity, chunked",
            "chunked, identity",
            "\"chunked\"",
            "chun ked",
            "gzip chunked",
            "chunked;",
            "gzip;chunked",
            "a b, chunked",
        ] {
            assert_eq!(body(&[(TE, bad)]), Err(400), "{bad}");
        }
        assert_eq!(body(&[(TE, "chunked"), (TE, "chunked")]), Err(400));
        assert_eq!(body(&[(TE, "chunked"), (TE, "identity")]), Err(400));
        assert_eq!(body(&[(TE, "identity"), (TE, "chunked")]), Err(400));
        assert_eq!(body(&[(TE, "chunked"), ("Content-Length", "3")]), Err(400));
        assert_eq!(body(&[("Content-Length", "0"), (TE, "chunked")]), Err(400));
        assert_eq!(meaning(HTTP10, Method::POST, &[(TE, "chunked")]).err(), Some(400));
    }

    #[test]
    fn persistence_follows_version_and_tokens() {
        let close = |version, fields: &[(&str, &str)]| {
            let fields = [&[("Host", "a")], fields].concat();
            meaning(version, Method::GET, &fields).map(|meaning| meaning.close)
        };
        assert_eq!(close(HTTP11, &[]), Ok(false));
        assert_eq!(close(HTTP10, &[]), Ok(true));
        for value in ["close", "Close ", "foo, close", " , CLOSE,", "keep-alive, close"] {
            assert_eq!(close(HTTP11, &[("Connection", value)]), Ok(true), "{value}");
            assert_eq!(close(HTTP10, &[("Connection", value)]), Ok(true), "{value}");
        }
        assert_eq!(close(HTTP10, &[("Connection", "Keep-Alive")]), Ok(false));
        assert_eq!(close(HTTP10, &[("Connection", "keep-alivex")]), Ok(true));
        assert_eq!(close(HTTP11, &[("Connection", "foo"), ("Connection", "close")]), Ok(true));
        assert_eq!(close(HTTP11, &[("Proxy-Connection", "close")]), Ok(false));
        assert_eq!(close(HTTP11, &[("Connection", "closed")]), Ok(false));
    }

    #[test]
    fn expectations_count_in_http_1_1_only() {
        let expect = |version, value| {
            let fields = [("Host", "a"), ("Content-Length", "5"), ("Expect", value)];
            meaning(version, Method::POST, &fields).map(|meaning| meaning.expect_continue)
        };
        assert_eq!(expect(HTTP11, "100-Continue"), Ok(true));
        assert_eq!(expect(HTTP10, "100-continue"), Ok(false));
        assert_eq!(expect(HTTP10, "else"), Ok(false));
        assert_eq!(expect(HTTP11, "else"), Err(417));
        assert_eq!(expect(HTTP11, "100-continue, else"), Err(417));
        assert_eq!(expect(HTTP11, "else, 100-continue"), Err(417));
        let fields = [("Host", "a"), ("Content-Length", "0"), ("Expect", "100-continue")];
        assert_eq!(
            meaning(HTTP11, Method::POST, &fields).map(|m| m.expect_continue),
            Ok(false),
            "no body to wait for"
        );
    }

    #[test]
    fn upgrades_need_both_fields() {
        let upgrade = |fields: &[(&str, &str)]| {
            let fields = [&[("Host", "a")], fields].concat();
            meaning(HTTP11, Method::GET, &fields).map(|meaning| meaning.upgrade)
        };
        assert_eq!(upgrade(&[("Connection", "keep-alive, Upgrade"), ("Upgrade", "websocket")]), Ok(true));
        assert_eq!(upgrade(&[("Connection", "Upgrade")]), Ok(false));
        assert_eq!(upgrade(&[("Upgrade", "h2c")]), Ok(false));
    }

    #[test]
    fn connect_has_no_body() {
        let connect =
            |length| meaning(HTTP11, Method::CONNECT, &[("Host", "a:1"), ("Content-Length", length)]);
        assert_eq!(connect("0").map(|m| m.upgrade), Ok(true));
        assert_eq!(connect("1"), Err(400));
    }

    #[test]
    fn bodies_of_answers_follow_method_and_status() {
        assert!(body_allowed(Asked::Other, 200) && body_allowed(Asked::Connect, 404));
        assert!(!body_allowed(Asked::Head, 200) && content_allowed(Asked::Head, 200));
        assert!(!length_allowed(Asked::Connect, 200));
        for status in [100, 101, 103, 204, 205, 304] {
            assert!(
                !body_allowed(Asked::Other, status) && !content_allowed(Asked::Other, status),
                "{status}"
            );
        }
        assert!(length_allowed(Asked::Other, 304) && length_allowed(Asked::Other, 205));
        assert!(!length_allowed(Asked::Other, 204) && !length_allowed(Asked::Other, 101));
    }
}
