//! Which characters each part of a URI may have (RFC 3986 section 3 and appendix A).

use super::UriFlags;
use crate::head::token;
use crate::parse::is_valid_host;

/// `ALPHA *( ALPHA / DIGIT / "+" / "-" / "." )`
pub(super) fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// `*( unreserved / pct-encoded / sub-delims / ":" )`
pub(super) fn is_userinfo(text: &str) -> bool {
    is_made_of(text, |byte| byte == b':')
}

/// `IP-literal / IPv4address / reg-name`; the last may be empty.
pub(super) fn is_host(text: &str) -> bool {
    text.is_empty() || is_valid_host(text.as_bytes())
}

/// Digits that fit 16 bits; zeros in front do not count.
pub(super) fn port(text: &str) -> Option<u16> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.trim_start_matches('0');
    match number {
        "" => digits.then_some(0),
        number => number.parse().ok().filter(|_| digits),
    }
}

/// Host, with the brackets that it may have, and what is behind the colon.
pub(super) fn split_port(text: &str) -> (&str, Option<&str>) {
    let literal = text.starts_with('[').then(|| text.find(']')).flatten().unwrap_or(0);
    match text[literal..].rsplit_once(':') {
        Some((before, port)) => (&text[..literal + before.len()], Some(port)),
        None => (text, None),
    }
}

/// `*( pchar / "/" )`
pub(super) fn is_path(text: &str, flags: UriFlags) -> bool {
    is_part(text, flags, b":@/", b"?#")
}

/// `*( pchar / "/" / "?" )`
pub(super) fn is_query(text: &str, flags: UriFlags) -> bool {
    is_part(text, flags, b":@/?", b"#")
}

/// `*( pchar / "/" / "?" )`; what is tolerated has no end either.
pub(super) fn is_fragment(text: &str, flags: UriFlags) -> bool {
    is_part(text, flags, b":@/?", b"")
}

/// True if the first segment of a path has a colon.
pub(super) fn has_colon_first(path: &str) -> bool {
    path.split('/').next().is_some_and(|segment| segment.contains(':'))
}

fn is_part(text: &str, flags: UriFlags, allowed: &[u8], end: &[u8]) -> bool {
    if flags.contains(UriFlags::NONCONFORMANT) {
        // CR, LF and NUL are nothing to tolerate: in whatever the URI is put into they mean something.
        text.bytes().all(|byte| !byte.is_ascii_control() && !end.contains(&byte))
    } else {
        is_made_of(text, |byte| allowed.contains(&byte))
    }
}

/// True if `text` is `unreserved`, `sub-delims`, whole escapes, and what `also` says.
fn is_made_of(text: &str, also: impl Fn(u8) -> bool) -> bool {
    let mut rest = text.as_bytes();
    loop {
        rest = match rest {
            [] => return true,
            [b'%', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => rest,
            [byte, rest @ ..] if token::is_reg_name(*byte) || also(*byte) => rest,
            _ => return false,
        };
    }
}
