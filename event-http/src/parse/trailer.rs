//! Takes a trailer section apart and keeps what may stand in one (RFC 9110 section 6.5).

use crate::error::Peer;
use crate::head::Headers;
use crate::parse::head::field_lines;

/// Fields that a trailer section must not change, in lower case and sorted: those that frame or route the message,
/// authenticate it, steer its evaluation or say what its content is (RFC 9110 section 6.5.1).
const FORBIDDEN: [&str; 36] = [
    "age",
    "authorization",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "expect",
    "expires",
    "forwarded",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "retry-after",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "vary",
    "warning",
    "www-authenticate",
];

/// The fields of a trailer section; `bytes` ends with the empty line and has `fields` field lines.
///
/// Forbidden ones are left out. The others stay apart from the header fields, since a program that takes a header for
/// checked must not find a trailer in its place.
pub(crate) fn trailers(bytes: &[u8], fields: usize) -> Result<Headers, Peer> {
    let mut headers = Headers::new();
    if fields > 0 {
        field_lines(bytes, fields, &mut headers)?;
        let Headers { bytes, fields } = &mut headers;
        fields.retain(|field| !is_forbidden(field.name.slice(bytes)));
    }
    Ok(headers)
}

fn is_forbidden(name: &[u8]) -> bool {
    FORBIDDEN.iter().any(|forbidden| name.eq_ignore_ascii_case(forbidden.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_fields_are_left_out() {
        let got = trailers(b"X-Sum: 1\r\nContent-Length: 5\r\nHOST: evil\r\nX-B: 2\r\n\r\n", 4).unwrap();
        assert_eq!(format!("{got:?}"), r#"{"X-Sum": "1", "X-B": "2"}"#);
        assert!(FORBIDDEN.is_sorted());
    }

    #[test]
    fn field_rules_are_those_of_a_head() {
        for bad in [
            &b" folded\r\n\r\n"[..],
            b"A : b\r\n\r\n",
            b": b\r\n\r\n",
            b"A: \0\r\n\r\n",
            b"A\r\n\r\n",
            b"A: b\rc\r\n\r\n",
        ] {
            assert_eq!(trailers(bad, 1).err().and_then(|e| e.status()), Some(400), "{}", bad.escape_ascii());
        }
        assert_eq!(trailers(b"\r\n", 0).unwrap().capacity(), 0, "no trailers, no memory");
    }
}
