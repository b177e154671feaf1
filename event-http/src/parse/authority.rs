//! Checks `uri-host [ ":" port ]`, the value of Host and the authority of a target (RFC 9110 section 7.2, RFC 3986
//! section 3.2).

use std::net::Ipv6Addr;

use crate::head::token;

/// True if `bytes` is a host that is not empty, with an optional port.
///
/// A port may be empty (RFC 3986 section 3.2.3) but must fit 16 bits and five digits.
#[inline]
pub(crate) fn is_valid(bytes: &[u8]) -> bool {
    // Nearly every host is a plain name, and this runs for every request.
    let name = bytes.iter().position(|&byte| !token::is_reg_name(byte)).unwrap_or(bytes.len());
    match &bytes[name..] {
        [] => !bytes.is_empty(),
        [b':', port @ ..] if name > 0 => is_port(port),
        _ => split(bytes).is_some_and(|(host, port)| is_host(host) && port.is_none_or(is_port)),
    }
}

/// True if `bytes` is a host with a port that is not empty, as CONNECT needs (RFC 9110 section 9.3.6).
pub(crate) fn is_valid_with_port(bytes: &[u8]) -> bool {
    split(bytes).is_some_and(|(host, port)| {
        is_host(host) && port.is_some_and(|port| !port.is_empty() && is_port(port))
    })
}

/// Host (with its brackets) and port.
fn split(bytes: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let end = match bytes {
        [b'[', ..] => bytes.iter().position(|&byte| byte == b']')? + 1,
        _ => bytes.iter().position(|&byte| byte == b':').unwrap_or(bytes.len()),
    };
    let (host, rest) = bytes.split_at(end);
    match rest {
        [] => Some((host, None)),
        [b':', port @ ..] => Some((host, Some(port))),
        _ => None,
    }
}

/// Up to five digits: the grammar allows more zeros in front, which no client sends.
fn is_port(port: &[u8]) -> bool {
    if port.len() > 5 {
        return false;
    }
    let mut number = 0u32;
    for byte in port {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return false;
        }
        number = number * 10 + u32::from(digit);
    }
    number <= u32::from(u16::MAX)
}

/// True for a host that is not empty, an IP literal in its brackets.
pub(crate) fn is_host(host: &[u8]) -> bool {
    match host {
        [] => false,
        [b'[', inner @ .., b']'] => is_ipv6(inner) || is_ip_future(inner),
        name => is_reg_name(name),
    }
}

/// No zone identifier: it means nothing to another machine, and RFC 9844 took its URI form back.
fn is_ipv6(inner: &[u8]) -> bool {
    std::str::from_utf8(inner).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

/// `"v" 1*HEXDIG "." 1*( unreserved / sub-delims / ":" )`
fn is_ip_future(inner: &[u8]) -> bool {
    let [b'v' | b'V', rest @ ..] = inner else { return false };
    let Some(dot) = rest.iter().position(|&byte| byte == b'.') else { return false };
    let (version, address) = (&rest[..dot], &rest[dot + 1..]);
    !version.is_empty()
        && version.iter().all(u8::is_ascii_hexdigit)
        && !address.is_empty()
        && address.iter().all(|&byte| token::is_reg_name(byte) || byte == b':')
}

/// An encoded NUL is refused, as in a path: whoever takes a host for a C string would see another one.
fn is_reg_name(mut name: &[u8]) -> bool {
    loop {
        name = match name {
            [] => return true,
            [b'%', b'0', b'0', ..] => return false,
            [b'%', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => rest,
            [byte, rest @ ..] if token::is_reg_name(*byte) => rest,
            _ => return false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_follow_the_grammar() {
        for good in [
            "a",
            "example.com",
            "example.com:80",
            "a:",
            "a:65535",
            "127.0.0.1:8080",
            "[::1]",
            "[::1]:8080",
            "[::ffff:1.2.3.4]",
            "[v1.fe:x]",
            "under_score",
            "xn--nxasmq6b",
            "a%2Db",
            "a!$&'()*+,;=b",
            "a:00080",
        ] {
            assert!(is_valid(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            ":",
            ":80",
            "a:65536",
            "a:8x",
            "a:-1",
            "a b",
            "a/b",
            "a?b",
            "a#b",
            "a@b",
            "a\\b",
            "[::1",
            "::1",
            "[::1]x",
            "[]",
            "[::1%25eth0]",
            "[v.x]",
            "[v1.]",
            "[1.2.3.4]",
            "a%2",
            "a%zz",
            "a%00",
            "%00.example.com:80",
            "a:80:80",
            "caf\u{e9}",
            "a\tb",
            "\"a\"",
            "<a>",
            "[::1]]",
            "a:999999999999999999999",
        ] {
            assert!(!is_valid(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn connect_needs_a_port() {
        assert!(is_valid_with_port(b"h:443") && is_valid_with_port(b"[::1]:1"));
        for bad in [&b"h"[..], b"h:", b":443", b"h:443/", b"u@h:1"] {
            assert!(!is_valid_with_port(bad));
        }
    }
}
