//! Splits a request target into its parts without decoding it (RFC 9112 section 3.2).

use crate::error::Peer;
use crate::head::{Method, Span};
use crate::parse::authority;

/// The parts of a target; spans count from its first byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) path: Span,
    pub(crate) query: Option<Span>,
    /// From the absolute-form and CONNECT's authority-form.
    pub(crate) authority: Option<Span>,
}

/// Splits `target`, whose form must be one that `method` allows.
///
/// Splitting comes before decoding, so an escaped `?` stays part of the path. Bytes that RFC 3986 forbids but browsers
/// send (`|`, `^`, `{`, `"`) pass; controls, blanks, bytes above 0x7e and `#` do not, since the next hop might cut
/// the target there. `%` is not checked here: a decoder decides what a bad escape means. The connection refuses both if
/// the program wants it.
pub(crate) fn split(target: &[u8], method: &Method) -> Result<Target, Peer> {
    let mut mark = None;
    for (at, &byte) in target.iter().enumerate() {
        if !matches!(byte, b'!'..=b'~') || byte == b'#' {
            return Err(Peer::Target);
        }
        if byte == b'?' && mark.is_none() {
            mark = Some(at);
        }
    }
    if *method == Method::CONNECT {
        if !authority::is_valid_with_port(target) {
            return Err(Peer::Target);
        }
        return Ok(Target { authority: Some(span(0, target.len())?), ..Target::default() });
    }
    match target {
        [b'/', ..] => origin(target, 0, mark),
        b"*" if *method == Method::OPTIONS => Ok(Target { path: span(0, 1)?, ..Target::default() }),
        _ => absolute(target, mark),
    }
}

/// `start`: where the path begins. `mark`: where the first `?` is.
fn origin(target: &[u8], start: usize, mark: Option<usize>) -> Result<Target, Peer> {
    let end = mark.unwrap_or(target.len());
    let query = match mark {
        Some(mark) => Some(span(mark + 1, target.len() - mark - 1)?),
        None => None,
    };
    Ok(Target { path: span(start, end - start)?, query, authority: None })
}

/// `http://authority[/path][?query]`; other schemes are no business of an origin server.
fn absolute(target: &[u8], mark: Option<usize>) -> Result<Target, Peer> {
    let Some(start) = [&b"http://"[..], b"https://"]
        .into_iter()
        .find(|scheme| starts_with_ignoring_case(target, scheme))
        .map(<[u8]>::len)
    else {
        return Err(Peer::Target);
    };
    let end = target[start..]
        .iter()
        .position(|&byte| byte == b'/' || byte == b'?')
        .map_or(target.len(), |n| start + n);
    // An http URI has a host (RFC 9110 section 4.2.1), and user information in one is an attempt to mislead
    // (section 4.2.4), so the rule for Host serves here too.
    if !authority::is_valid(&target[start..end]) {
        return Err(Peer::Target);
    }
    let authority = Some(span(start, end - start)?);
    Ok(Target { authority, ..origin(target, end, mark)? })
}

fn starts_with_ignoring_case(bytes: &[u8], prefix: &[u8]) -> bool {
    bytes.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix))
}

fn span(start: usize, len: usize) -> Result<Span, Peer> {
    Span::new(start, len).ok_or(Peer::RequestLineTooLong)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Path, query and authority as text, `-` for none.
    fn parts(target: &str, method: &Method) -> Option<String> {
        let got = split(target.as_bytes(), method).ok()?;
        let text = |span: Span| String::from_utf8_lossy(span.slice(target.as_bytes())).into_owned();
        let part = |span: Option<Span>| span.map_or("-".into(), text);
        Some(format!("{} {} {}", text(got.path), part(got.query), part(got.authority)))
    }

    #[test]
    fn each_form_splits_into_its_parts() {
        for (target, expected) in [
            ("/", "/ - -"),
            ("/?", "/  -"),
            ("/a?b?c", "/a b?c -"),
            ("//a/b", "//a/b - -"),
            ("/r.json%3Fp1%3Dv1%26p2%3D100%2525", "/r.json%3Fp1%3Dv1%26p2%3D100%2525 - -"),
            ("/|{}^\"", "/|{}^\" - -"),
            ("http://a", " - a"),
            ("HTTP://a:80/x", "/x - a:80"),
            ("https://[::1]?q=/", " q=/ [::1]"),
            ("http://a/http://b", "/http://b - a"),
        ] {
            assert_eq!(parts(target, &Method::GET).as_deref(), Some(expected), "{target}");
        }
        assert_eq!(parts("*", &Method::OPTIONS).as_deref(), Some("* - -"));
        assert_eq!(parts("h:443", &Method::CONNECT).as_deref(), Some(" - h:443"));
    }

    #[test]
    fn other_targets_are_refused() {
        for target in [
            "",
            "abc",
            "?x",
            "*",
            "h:443",
            "ftp://a/",
            "http:/a",
            "http://",
            "http:///a",
            "http://u@a/",
            "http://a:x/",
            "/#f",
            "/a b",
            "/\t",
            "/\u{e9}",
            "/\x7f",
            "/\0",
            "mailto:a",
            "http://?q",
            "//\u{80}",
        ] {
            assert_eq!(parts(target, &Method::GET), None, "{target:?}");
        }
        assert_eq!(parts("/", &Method::CONNECT), None);
        assert_eq!(parts("http://h:1/", &Method::CONNECT), None);
        assert_eq!(parts("*x", &Method::OPTIONS), None);
    }
}
