//! Text for URIs and HTML: percent-encoding and its undoing, and escaping.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use crate::encode::escape_html;
use crate::error::{Error, UriPart};

/// Everything but `unreserved` (RFC 3986 section 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What a `+` is.
///
/// In a query that a form made it is a blank. In a path, and in a query that is made otherwise, it is a plus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plus {
    /// A blank, as in forms.
    Blank,
    /// Itself.
    Literal,
}

/// Encodes all bytes but letters, digits and `-._~`; a blank becomes `%20`.
///
/// The result stands for `text` in any part of a URI. It is at most three times as long.
///
/// ```
/// assert_eq!(event_http::encode_uri("50% & more/less"), "50%25%20%26%20more%2Fless");
/// ```
#[doc(alias = "evhttp_encode_uri")]
pub fn encode_uri(text: impl AsRef<[u8]>) -> String {
    percent_encode(text.as_ref(), RESERVED).to_string()
}

/// As [`encode_uri`]; with [`Plus::Blank`] a blank becomes `+`.
#[doc(alias = "evhttp_uriencode")]
pub fn uriencode(text: impl AsRef<[u8]>, plus: Plus) -> String {
    let text = text.as_ref();
    if plus == Plus::Literal {
        return encode_uri(text);
    }
    let mut encoded = String::new();
    for (index, word) in text.split(|&byte| byte == b' ').enumerate() {
        if index > 0 {
            encoded.push('+');
        }
        encoded.extend(percent_encode(word, RESERVED));
    }
    encoded
}

/// Undoes percent-encoding; a `%` without two hexadecimal digits behind it stays.
///
/// The result is bytes, and may hold any byte, NUL among them. It is never longer than `text`. For text use
/// [`uridecode_str`]. Split a URI before its parts are decoded: a decoded part may hold the characters that separate.
///
/// ```
/// use event_http::{Plus, uridecode};
///
/// assert_eq!(*uridecode("a+b%20c%zz%", Plus::Blank), *b"a b c%zz%");
/// assert_eq!(*uridecode("a+b%20c", Plus::Literal), *b"a+b c");
/// ```
#[doc(alias = "evhttp_uridecode")]
pub fn uridecode(text: &str, plus: Plus) -> Cow<'_, [u8]> {
    if plus == Plus::Blank && text.contains('+') {
        Cow::Owned(percent_decode_str(&text.replace('+', " ")).collect())
    } else {
        percent_decode_str(text).into()
    }
}

/// As [`uridecode`] of a whole URI, where `+` is a blank behind the first `?` only.
///
/// What was a separator and what was encoded cannot be told apart afterwards. It is here for programs that have always
/// done it; others take the parts and decode each.
#[doc(alias = "evhttp_decode_uri")]
pub fn decode_uri(text: &str) -> Cow<'_, [u8]> {
    match text.split_once('?') {
        Some((path, query)) if query.contains('+') => {
            let query = query.replace('+', " ");
            Cow::Owned(percent_decode_str(path).chain(*b"?").chain(percent_decode_str(&query)).collect())
        }
        _ => uridecode(text, Plus::Literal),
    }
}

/// Undoes percent-encoding of what must be text.
///
/// # Errors
/// - `is_invalid_argument` if a `%` is not followed by two hexadecimal digits, or if what comes out is not UTF-8 or has
///   a NUL, which would be another text to whoever takes it for a C string.
///
/// ```
/// use event_http::{Plus, uridecode_str};
///
/// assert_eq!(uridecode_str("caf%C3%A9", Plus::Literal)?, "café");
/// assert!(uridecode_str("/secret%00.jpg", Plus::Literal).is_err());
/// # Ok::<(), event_http::Error>(())
/// ```
pub fn uridecode_str(text: &str, plus: Plus) -> Result<Cow<'_, str>, Error> {
    let is_escape = |after: &str| {
        after.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !text.split('%').skip(1).all(is_escape) {
        return Err(UriPart::Escape.into());
    }
    let text = match uridecode(text, plus) {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
        Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
    };
    text.filter(|text| !text.contains('\0')).ok_or_else(|| UriPart::Escape.into())
}

/// Replaces the five characters that mean something in HTML: `<`, `>`, `"`, `'` and `&`.
///
/// The result stands for `text` between tags and in quoted attributes; it is at most six times as long.
///
/// ```
/// assert_eq!(event_http::htmlescape("<a href='x'>"), "&lt;a href=&#039;x&#039;&gt;");
/// ```
#[doc(alias = "evhttp_htmlescape")]
pub fn htmlescape(text: &str) -> String {
    let mut escaped = Vec::with_capacity(text.len());
    escape_html(&mut |piece| escaped.extend_from_slice(piece), text.as_bytes());
    // What was cut is ASCII, so the rest is as whole as it was.
    String::from_utf8(escaped).unwrap_or_default()
}
