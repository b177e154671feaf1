//! The short way for heads as nearly every client sends them: one pass that finds the end, the fields and the target.
//!
//! It refuses nothing. What it does not take, for whatever reason, goes the long way ([`Scan`](super::Scan), then
//! [`request_head`](super::request_head)), which decides; what it takes, the long way would have taken as the same head.

use crate::head::{Field, Known, Method, RequestHead, Span, Version, token};
use crate::limits::Limits;

/// Bytes looked at together.
const STEP: usize = 8;
const ONES: u64 = u64::MAX / 0xff;
const HIGHS: u64 = ONES << 7;

/// A head that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plain {
    /// Its fields are those of the head before: what is known of that holds for this.
    Again,
    /// The value of its Host, and no other field bears on anything.
    Host(Span),
    /// Its fields are to be looked at.
    Other,
}

/// What a field has to do with the framing of a request; framing itself says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bearing {
    Host,
    None,
    Other,
}

/// Whether the head at the start of `input` is, byte for byte, the one that lies in `head`, of which something is known.
#[inline]
pub(crate) fn is_again(input: &[u8], limits: &Limits, head: &RequestHead) -> bool {
    head.known.line > 0
        && input.starts_with(&head.headers.bytes)
        && is_within(limits, head.headers.bytes.len(), head.known.line, head.headers.fields.len())
}

#[inline]
fn is_within(limits: &Limits, len: usize, line: u32, fields: usize) -> bool {
    let is_within = |size: usize, max: Option<usize>| max.is_none_or(|max| size <= max);
    is_within(len, limits.max_head_bytes)
        && is_within(line as usize, limits.max_request_line_bytes)
        && is_within(fields, limits.max_fields)
}

/// Takes the head at the start of `input` apart into `head`, whose memory is used again. `None`, with `head` in any state,
/// if it is not whole or not plain: a usual method, a path, HTTP/1.1, fields, within the limits.
///
/// If something is known of what lies in `head`, and all behind the request line is the same, the fields are not taken
/// apart again. Else nothing is known of it afterwards.
#[inline(never)]
pub(crate) fn plain_head(
    input: &[u8],
    limits: &Limits,
    head: &mut RequestHead,
    bearing: impl Fn(&[u8]) -> Bearing,
) -> Option<Plain> {
    let Places { first: start, second: path_end, third: target_end, end: line_end } = request_line(input);
    if line_end == 0 {
        return None;
    }
    let known = std::mem::replace(&mut head.known, Known::NOTHING);
    let (len, plain) = if known.line > 0
        && let Some(fields) = head.headers.bytes.get(known.line as usize..)
        && input.get(line_end as usize..).is_some_and(|rest| rest.starts_with(fields))
    {
        let len = line_end as usize + fields.len();
        head.known = Known { line: line_end, ..known };
        move_fields(head, line_end.wrapping_sub(known.line));
        (len, Plain::Again)
    } else {
        let (len, plain) = fields(input, line_end, limits, head, bearing)?;
        head.host = None;
        (len as usize, plain)
    };
    if !is_within(limits, len, line_end, head.headers.fields.len()) {
        head.known = Known::NOTHING;
        return None;
    }
    head.headers.bytes.clear();
    head.headers.bytes.extend_from_slice(input.get(..len)?);
    head.method = match input {
        [b'G', ..] => Method::GET,
        [b'D', ..] => Method::DELETE,
        [b'H', ..] => Method::HEAD,
        [b'P', b'O', ..] => Method::POST,
        _ => Method::PUT,
    };
    head.version = Version::Http11;
    head.target = Span { start, len: target_end - start };
    head.path = Span { start, len: path_end - start };
    head.query =
        (target_end > path_end).then(|| Span { start: path_end + 1, len: target_end - path_end - 1 });
    Some(plain)
}

/// Moves the places of fields behind a request line that is `by` bytes longer, modulo 2^32.
#[inline]
fn move_fields(head: &mut RequestHead, by: u32) {
    if by == 0 {
        return;
    }
    for field in &mut head.headers.fields {
        field.name.start = field.name.start.wrapping_add(by);
        field.value.start = field.value.start.wrapping_add(by);
    }
    if let Some(host) = &mut head.host {
        host.start = host.start.wrapping_add(by);
    }
}

/// Takes the fields apart that begin at `line_end`; the length of the whole head.
#[inline]
fn fields(
    input: &[u8],
    line_end: u32,
    limits: &Limits,
    head: &mut RequestHead,
    bearing: impl Fn(&[u8]) -> Bearing,
) -> Option<(u32, Plain)> {
    head.headers.fields.clear();
    let max_fields = limits.max_fields.unwrap_or(usize::MAX);
    let (mut host, mut hosts, mut is_special) = (Span::default(), 0, false);
    let mut at = line_end;
    let len = loop {
        let rest = input.get(at as usize..)?;
        if rest.first_chunk() == Some(b"\r\n") {
            break at + 2;
        }
        let line = field_line(rest);
        if line.end == 0 {
            return None;
        }
        let value = Span { start: at + line.second, len: line.third - line.second };
        match bearing(rest.get(..line.first as usize)?) {
            Bearing::Host => (host, hosts) = (value, hosts + 1),
            Bearing::None => {}
            Bearing::Other => is_special = true,
        }
        if head.headers.fields.len() >= max_fields {
            return None;
        }
        head.headers.fields.push(Field { name: Span { start: at, len: line.first }, value });
        at += line.end;
    };
    Some((len, if hosts == 1 && !is_special { Plain::Host(host) } else { Plain::Other }))
}

/// Where the parts of a line are: it fits two registers. An `end` of 0 says that the line is not plain or not whole.
#[derive(Clone, Copy, Default)]
struct Places {
    first: u32,
    second: u32,
    third: u32,
    end: u32,
}

/// Of a request line: where the target begins, its path ends, it ends, and the line ends.
#[inline(never)]
fn request_line(input: &[u8]) -> Places {
    let start = match input {
        // Positions, and sums of two, must fit.
        _ if input.len() > i32::MAX as usize => return Places::default(),
        _ if input.starts_with(b"GET ") || input.starts_with(b"PUT ") => 4,
        _ if input.starts_with(b"POST ") || input.starts_with(b"HEAD ") => 5,
        _ if input.starts_with(b"DELETE ") => 7,
        _ => return Places::default(),
    };
    let target = &input[start..];
    let path = length_with_escapes(target, token::is_plain_target);
    let mut end = path;
    if target.get(path) == Some(&b'?') {
        end += 1;
        end += length_with_escapes(&target[end..], |byte| token::is_plain_target(byte) || byte == b'?');
    }
    let is_whole = target.first() == Some(&b'/') && target[end..].first_chunk() == Some(b" HTTP/1.1\r\n");
    match is_whole {
        true => Places {
            first: start as u32,
            second: (start + path) as u32,
            third: (start + end) as u32,
            end: (start + end + 11) as u32,
        },
        false => Places::default(),
    }
}

/// Of a field line: where its name ends, its value begins and ends, and the line ends.
#[inline(never)]
fn field_line(bytes: &[u8]) -> Places {
    let name = length(bytes, token::is_tchar);
    let [b':', value @ ..] = &bytes[name..] else { return Places::default() };
    let mut value = value;
    while let [b' ' | b'\t', more @ ..] = value {
        value = more;
    }
    let Some(rest) = text(value) else { return Places::default() };
    if name == 0 {
        return Places::default();
    }
    let mut len = value.len() - rest.len() - 2;
    while len > 0 && matches!(value[len - 1], b' ' | b'\t') {
        len -= 1;
    }
    let start = bytes.len() - value.len();
    Places {
        first: name as u32,
        second: start as u32,
        third: (start + len) as u32,
        end: (bytes.len() - rest.len()) as u32,
    }
}

/// What follows the CRLF behind a field value at the start of `bytes`; `None` if anything else ends that.
#[inline]
fn text(mut bytes: &[u8]) -> Option<&[u8]> {
    loop {
        while let Some((word, more)) = bytes.split_first_chunk::<STEP>() {
            let word = u64::from_le_bytes(*word);
            // A byte below 0x20, or 0x7f: of the bits that are set, the lowest is right, and it is the first such byte.
            let delete = word ^ (ONES * 0x7f);
            let found =
                ((word.wrapping_sub(ONES * 0x20) & !word) | (delete.wrapping_sub(ONES) & !delete)) & HIGHS;
            if found != 0 {
                bytes = bytes.get(found.trailing_zeros() as usize / 8..)?;
                break;
            }
            bytes = more;
        }
        match bytes {
            [b'\r', b'\n', rest @ ..] => return Some(rest),
            [b'\t' | b' '..=b'~' | 0x80.., rest @ ..] => bytes = rest,
            _ => return None,
        }
    }
}

/// How many bytes are such as `is` holds for, or whole escapes, from the first on.
#[inline]
fn length_with_escapes(bytes: &[u8], is: impl Fn(u8) -> bool) -> usize {
    let mut len = length(bytes, &is);
    while let [b'%', high, low, rest @ ..] = &bytes[len..]
        && high.is_ascii_hexdigit()
        && low.is_ascii_hexdigit()
    {
        len += 3 + length(rest, &is);
    }
    len
}

/// How many bytes `is` holds for, from the first on.
#[inline]
fn length(bytes: &[u8], is: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|&byte| !is(byte)).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::few::few_under_miri;
    use crate::framing;
    use crate::head::MethodSet;
    use crate::parse::{Scan, Section, request_head};

    /// The long way: the length of the head and the head, or nothing if it is not whole or refused.
    fn long_way(input: &[u8], limits: &Limits) -> Option<(usize, RequestHead)> {
        let mut scan = Scan::default();
        let len = scan.find_end(input, Section::Head, limits).ok()??;
        let mut head = RequestHead::empty();
        let fields = scan.fields(Section::Head);
        request_head(&input[..len], fields, &MethodSet::default(), false, &mut head).ok()?;
        Some((len, head))
    }

    /// All that a head says.
    fn said(head: &RequestHead) -> String {
        let mut lines = Vec::new();
        head.headers.fields.iter().for_each(|&field| head.headers.push_line(field, &mut lines));
        format!(
            "{:?} {:?} {} {} {:?} {:?} {:?} {}",
            head.method,
            head.version,
            head.target(),
            head.path(),
            head.query(),
            head.host(),
            head.headers,
            lines.escape_ascii()
        )
    }

    /// Whether the short way takes it; if so, as the long way.
    #[track_caller]
    fn takes(input: &[u8], limits: &Limits) -> bool {
        let mut head = RequestHead::empty();
        // What an earlier head has left must not be seen.
        plain_head(
            b"POST /old?query HTTP/1.1\r\nOld: field\r\n\r\n",
            &Limits::default(),
            &mut head,
            framing::bearing,
        )
        .unwrap();
        let Some(plain) = plain_head(input, limits, &mut head, framing::bearing) else {
            return false;
        };
        let len = head.headers.bytes.len();
        let (long_len, mut long) = long_way(input, limits)
            .unwrap_or_else(|| panic!("only the short way takes {}", input.escape_ascii()));
        assert_eq!((len, said(&head)), (long_len, said(&long)), "{}", input.escape_ascii());
        if let Plain::Host(host) = plain {
            let meaning = framing::understand_plain(&mut head, host).ok();
            assert_eq!(meaning, framing::understand(&mut long).ok(), "{}", input.escape_ascii());
            assert_eq!(head.host(), long.host());
        }
        true
    }

    const HEADS: [&str; 7] = [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a/b?c=d?e&f=%41 HTTP/1.1\r\nHost: www.example.org:8080\r\nAccept: */*\r\n\r\nGET",
        "POST /x HTTP/1.1\r\nHost:a\r\nContent-Length:  5 \t \r\nX:\r\nY: \t\r\n\r\nhello",
        "DELETE /? HTTP/1.1\r\nX-Tab:\ta\tb\t\r\nX-High: caf\u{e9} \u{20ac}\u{20ac}\u{20ac}\r\n\r\n",
        "HEAD / HTTP/1.1\r\n\r\n",
        "PUT /0123456789abcdefghijklmnop HTTP/1.1\r\nA: 0123456\r\nB: 01234567\r\nC: 012345678\r\n\r\n",
        "GET /a HTTP/1.1\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) \"q\" <z>\r\nAccept-Encoding: gzip, br\r\n\r\n",
    ];

    #[test]
    fn plain_heads_are_taken_and_no_beginning_of_one() {
        let limits = Limits::default();
        for head in HEADS {
            assert!(takes(head.as_bytes(), &limits), "{head:?}");
            let len = head.find("\r\n\r\n").unwrap() + 4;
            assert!((0..len).all(|end| !takes(&head.as_bytes()[..end], &limits)), "{head:?}");
        }
        for other in
            ["OPTIONS * HTTP/1.1\r\n\r\n", "GET / HTTP/1.0\r\n\r\n", "GET http://a/ HTTP/1.1\r\n\r\n"]
        {
            assert!(!takes(other.as_bytes(), &limits) && long_way(other.as_bytes(), &limits).is_some());
        }
    }

    #[test]
    fn every_byte_in_every_place_is_decided_as_the_long_way_decides() {
        let limits = Limits::default();
        let (mut taken, mut left) = (0, 0);
        for head in few_under_miri(&HEADS[..], &HEADS[..1]) {
            for at in 0..head.len() {
                for byte in (0..=255u8).step_by(few_under_miri(1, 31)) {
                    let mut input = head.as_bytes().to_vec();
                    input[at] = byte;
                    let short = takes(&input, &limits);
                    input.insert(at, byte);
                    let inserted = takes(&input, &limits);
                    taken += usize::from(short) + usize::from(inserted);
                    left += usize::from(!short) + usize::from(!inserted);
                }
            }
        }
        assert!(taken > 0 && left > 0);
    }

    #[test]
    fn limits_are_those_of_the_long_way() {
        let head = b"GET /ab HTTP/1.1\r\nHost: a\r\nB: c\r\n\r\n";
        let bound = |line, total, fields| Limits {
            max_request_line_bytes: Some(line),
            max_head_bytes: Some(total),
            max_fields: Some(fields),
            ..Limits::default()
        };
        let (line, len) = (18, head.len());
        assert!(takes(head, &bound(line, len, 2)));
        for tight in [bound(line - 1, len, 2), bound(line, len - 1, 2), bound(line, len, 1)] {
            assert!(!takes(head, &tight) && long_way(head, &tight).is_none(), "{tight:?}");
        }
        let none = Limits {
            max_request_line_bytes: None,
            max_head_bytes: None,
            max_fields: None,
            ..Limits::default()
        };
        assert!(takes(head, &none));
    }
}
