//! Splits a request target into its parts without decoding it (RFC 9112 section 3.2).

use crate::error::Peer;
use crate::head::{Method, Span, token};
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
/// Splitting comes before decoding, so an escaped `?` stays part of the path. What `lenient` lets pass are the other
/// printable characters in path and query, a `%` that begins no escape among them: what it means the decoder decides.
/// Controls, blanks, bytes above 0x7e and `#` never pass, since the next hop might cut the target there.
pub(crate) fn split(target: &[u8], method: &Method, lenient: bool) -> Result<Target, Peer> {
    let mut mark = None;
    // The last byte that is none of path and query; brackets before them are those of an address.
    let mut odd = None;
    for (at, &byte) in target.iter().enumerate() {
        if token::is_plain_target(byte) {
            continue;
        }
        match byte {
            b'?' if mark.is_none() => mark = Some(at),
            b'?' => {}
            b'%' if matches!(target[at + 1..], [high, low, ..] if is_hex(high, low)) => {}
            b'#' => return Err(Peer::Target),
            b'!'..=b'~' => odd = Some(at),
            _ => return Err(Peer::Target),
        }
    }
    if *method == Method::CONNECT {
        if !authority::is_valid_with_port(target) {
            return Err(Peer::Target);
        }
        return Ok(Target { authority: Some(span(0, target.len())?), ..Target::default() });
    }
    let (split, start) = match target {
        [b'/', ..] => (origin(target, 0, mark)?, 0),
        b"*" if *method == Method::OPTIONS => (Target { path: span(0, 1)?, ..Target::default() }, 0),
        _ => absolute(target, mark)?,
    };
    if !lenient && odd.is_some_and(|odd| odd >= start) {
        return Err(Peer::Target);
    }
    Ok(split)
}

fn is_hex(high: u8, low: u8) -> bool {
    high.is_ascii_hexdigit() && low.is_ascii_hexdigit()
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

/// `http://authority[/path][?query]`; other schemes are no business of an origin server. Gives where the path begins, too.
fn absolute(target: &[u8], mark: Option<usize>) -> Result<(Target, usize), Peer> {
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
    Ok((Target { authority, ..origin(target, end, mark)? }, end))
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
        let got = split(target.as_bytes(), method, false).ok()?;
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
            ("/!$&'()*+,;=:@-._~/%00%fF?/?%aF", "/!$&'()*+,;=:@-._~/%00%fF /?%aF -"),
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
    fn what_rfc_3986_forbids_passes_only_where_it_is_wanted() {
        let refused = |target: &str, lenient| split(target.as_bytes(), &Method::GET, lenient).is_err();
        for odd in (b'!'..=b'~').filter(|byte| !byte.is_ascii_alphanumeric()) {
            let odd = char::from(odd);
            let is_good = "-._~!$&'()*+,;=:@/?".contains(odd);
            for target in [format!("/{odd}"), format!("/?{odd}"), format!("http://[::1]/{odd}")] {
                assert_eq!(refused(&target, false), !is_good, "{target}");
                assert_eq!(refused(&target, true), odd == '#', "{target}");
            }
        }
        for target in ["/%", "/%4", "/%zz", "/?%4g", "/%%41", "http://a/?%"] {
            assert!(refused(target, false) && !refused(target, true), "{target}");
        }
        let got = split(b"/|{}^\"?a[]=1", &Method::GET, true).unwrap();
        assert_eq!((got.path.len, got.query.map(|query| query.len)), (6, Some(5)));
        // What is lenient is the text, not where the host ends.
        for target in ["http://a|b/", "http://[::1", "http://[a]/", "http://a%zz/", "[/"] {
            assert!(refused(target, true), "{target}");
        }
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
