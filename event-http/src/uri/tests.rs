use super::*;

const NONE: UriFlags = UriFlags::empty();

/// The parts as text, `-` for none: scheme, userinfo, host, socket, port, path, query, fragment.
fn parts(text: &str, flags: UriFlags) -> Option<String> {
    let uri = Uri::parse_with_flags(text, flags).ok()?;
    let again = Uri::parse_with_flags(&uri.to_string(), flags).unwrap();
    assert_eq!(again, uri, "{text} becomes {uri}");
    let or = |part: Option<&str>| part.unwrap_or("-").to_owned();
    let port = uri.port().map_or("-".into(), |port| port.to_string());
    Some(format!(
        "{} {} {} {} {port} {} {} {}",
        or(uri.scheme()),
        or(uri.userinfo()),
        or(uri.host()),
        or(uri.unix_socket()),
        uri.path(),
        or(uri.query()),
        or(uri.fragment()),
    ))
}

#[track_caller]
fn same(cases: &[(&str, &str)], flags: UriFlags) {
    for (text, expected) in cases {
        assert_eq!(parts(text, flags).as_deref(), Some(*expected), "{text}");
    }
}

#[test]
fn a_uri_is_taken_apart_by_rfc_3986() {
    same(
        &[
            ("", "- - - - -  - -"),
            ("/", "- - - - - / - -"),
            ("a/b", "- - - - - a/b - -"),
            ("?q", "- - - - -  q -"),
            ("#f", "- - - - -  - f"),
            ("/a?b?c/d#e?f/g", "- - - - - /a b?c/d e?f/g"),
            ("/a?", "- - - - - /a  -"),
            ("/a#", "- - - - - /a - "),
            ("http://a", "http - a - -  - -"),
            ("HTTP://A", "HTTP - A - -  - -"),
            ("http://a?b", "http - a - -  b -"),
            ("http://a#b", "http - a - -  - b"),
            ("http://a/b:c", "http - a - - /b:c - -"),
            ("http://u:p@a:80/x", "http u:p a - 80 /x - -"),
            ("http://@a/", "http  a - - / - -"),
            ("http://a:65535/", "http - a - 65535 / - -"),
            ("http://a:0/", "http - a - 0 / - -"),
            ("http://[::1]:80/", "http - [::1] - 80 / - -"),
            ("http://[v1.a:b]/", "http - [v1.a:b] - - / - -"),
            ("http://1.2.3.4/", "http - 1.2.3.4 - - / - -"),
            ("http://a%2db/%C3%A9", "http - a%2db - - /%C3%A9 - -"),
            ("//a/b", "- - a - - /b - -"),
            ("///b", "- -  - - /b - -"),
            ("file:///x", "file -  - - /x - -"),
            ("file:/x", "file - - - - /x - -"),
            ("mailto:a@b.c", "mailto - - - - a@b.c - -"),
            ("urn:a:b:c", "urn - - - - a:b:c - -"),
            ("a+b-c.d:x", "a+b-c.d - - - - x - -"),
            ("./a:b", "- - - - - ./a:b - -"),
            ("a/b:c", "- - - - - a/b:c - -"),
            ("http://unix:80/x", "http - unix - 80 /x - -"),
        ],
        NONE,
    );
    // An empty port is none, and zeros in front are no part of the number.
    assert_eq!(Uri::parse("http://a:/b").unwrap().to_string(), "http://a/b");
    assert_eq!(Uri::parse("http://a:0000080/").unwrap().port(), Some(80));
    assert_eq!("/x".parse::<Uri>().unwrap().path(), "/x");
}

#[test]
fn what_is_no_uri_is_refused_and_the_part_named() {
    for (text, part) in [
        ("1a:b", "path"),
        (":a", "path"),
        ("a b", "path"),
        ("/a b", "path"),
        ("/\u{e9}", "path"),
        ("/a%2", "path"),
        ("/a%zz", "path"),
        ("/|", "path"),
        ("/a\0b", "path"),
        ("/a?b c", "query"),
        ("/a?%", "query"),
        ("/a#b#c", "fragment"),
        ("/a#\n", "fragment"),
        ("http://a b/", "host"),
        ("http://a_\u{e9}/", "host"),
        ("http://[::1", "host"),
        ("http://[::1]x/", "host"),
        ("http://[::g]/", "host"),
        ("http://[1.2.3.4]/", "host"),
        ("http://[]/", "host"),
        ("http://::1/", "host"),
        ("http://a:b:80/", "host"),
        ("http://a@b@c/", "host"),
        ("http://a\\b/", "host"),
        ("http://a:65536/", "port"),
        ("http://a:99999999999999999999/", "port"),
        ("http://a:-1/", "port"),
        ("http://a:8x/", "port"),
        ("http://a:+8/", "port"),
        ("http://[@a/", "user"),
        ("http://a%@b/", "user"),
    ] {
        let error = Uri::parse(text).unwrap_err();
        assert!(error.is_invalid_argument() && error.is_caller(), "{text}");
        assert!(error.to_string().contains(part), "{text}: {error}");
    }
}

#[test]
fn what_is_tolerated_has_no_controls_and_a_strict_authority() {
    let flags = UriFlags::NONCONFORMANT;
    same(
        &[
            ("http://a/b c?d e|#f g#h", "http - a - - /b c d e| f g#h"),
            ("/\u{e9}{}^\"%zz", "- - - - - /\u{e9}{}^\"%zz - -"),
        ],
        flags,
    );
    for text in ["http://a b/", "/a\r\nb", "/a?\0", "/a#\x7f", "1a:b"] {
        assert!(Uri::parse_with_flags(text, flags).is_err(), "{text:?}");
    }
}

#[test]
fn brackets_are_stripped_from_what_is_given_and_not_from_the_text() {
    let mut uri = Uri::parse_with_flags("http://[::1]:80/", UriFlags::HOST_STRIP_BRACKETS).unwrap();
    assert_eq!((uri.host(), uri.to_string().as_str()), (Some("::1"), "http://[::1]:80/"));
    uri.set_flags(NONE);
    assert_eq!(uri.host(), Some("[::1]"));
    assert!(uri.set_host("::1").is_err() && uri.set_host("[::2]").is_ok());
    assert_eq!(uri.flags(), NONE);
}

#[test]
fn a_unix_socket_takes_the_place_of_the_host() {
    let flags = UriFlags::UNIX_SOCKET;
    same(
        &[
            ("http://unix:/run/a.sock:/b?c", "http - - /run/a.sock - /b c -"),
            ("http://u:p@unix:/a:", "http u:p - /a -  - -"),
            ("http://unix:a:?q", "http - - a -  q -"),
            ("//unix:/a@b:/c:d", "- - - /a@b - /c:d - -"),
            ("http://unix:80/x", "http - unix - 80 /x - -"),
            ("http://unixx:80/x", "http - unixx - 80 /x - -"),
        ],
        flags,
    );
    for text in ["http://unix::/x", "http://unix:/a?b:/c", "http://unix:/a:b", "http://unix:/a b:/c"] {
        assert!(Uri::parse_with_flags(text, flags).is_err(), "{text}");
    }
    assert!(Uri::parse("http://unix:/run/a.sock:/b").unwrap().unix_socket().is_none());
}

#[test]
fn setters_check_their_part_and_leave_it_alone_when_it_is_refused() {
    let mut uri = Uri::new();
    assert_eq!(uri.to_string(), "");
    uri.set_scheme("http").unwrap();
    uri.set_userinfo("u:p").unwrap();
    uri.set_port(8080);
    assert_eq!(uri.to_string(), "http:", "neither is part of the text without a host");
    uri.set_host("example.com").unwrap();
    uri.set_path("/a").unwrap();
    uri.set_query("b=c").unwrap();
    uri.set_fragment("d").unwrap();
    assert_eq!(uri.to_string(), "http://u:p@example.com:8080/a?b=c#d");
    let before = uri.clone();
    for bad in ["1", "", "a b", "a/", "\u{e9}"] {
        assert!(uri.set_scheme(bad).is_err(), "{bad}");
    }
    assert!(uri.set_userinfo("a@b").is_err() && uri.set_userinfo("a/b").is_err());
    for bad in ["[", "[]", "a/b", "a:1", "[::1", "a b", "a@b", "[::1]:80"] {
        assert!(uri.set_host(bad).is_err(), "{bad}");
    }
    assert!(uri.set_path("/a?b").is_err() && uri.set_path("/a#b").is_err() && uri.set_path("%4").is_err());
    assert!(uri.set_query("a#b").is_err() && uri.set_fragment("a#b").is_err());
    assert!(uri.set_query("a?b").is_ok() && uri.set_query("b=c").is_ok());
    for bad in ["", "/a:b", "/a?", "/a#", "/ "] {
        assert!(uri.set_unix_socket(bad).is_err(), "{bad}");
    }
    assert_eq!(uri, before);
    uri.set_unix_socket("/run/x").unwrap();
    assert_eq!(uri.to_string(), "http://u:p@unix:/run/x:/a?b=c#d");
    uri.set_unix_socket(None).unwrap();
    uri.set_scheme(None).unwrap();
    uri.set_userinfo(None).unwrap();
    uri.set_port(None);
    uri.set_query(None).unwrap();
    uri.set_fragment(None).unwrap();
    uri.set_path("").unwrap();
    assert_eq!(uri.to_string(), "//example.com");
    uri.set_host(None).unwrap();
    assert_eq!(uri, Uri::new());
}

#[test]
fn parts_that_do_not_go_together_still_make_a_text_that_parses() {
    let make = |scheme: Option<&str>, host: Option<&str>, path: &str| {
        let mut uri = Uri::new();
        uri.set_path(path).unwrap();
        uri.set_host(host).unwrap();
        uri.set_scheme(scheme).unwrap();
        let text = uri.to_string();
        let again = Uri::parse(&text).unwrap();
        assert_eq!((again.scheme(), again.host()), (scheme, host), "{text}");
        text
    };
    assert_eq!(make(Some("http"), Some("a"), "b"), "http://a/b");
    assert_eq!(make(None, None, "//a/b"), "/.//a/b");
    assert_eq!(make(Some("x"), None, "//a"), "x:/.//a");
    assert_eq!(make(None, None, "a:b"), "./a:b");
    assert_eq!(make(Some("x"), None, "a:b"), "x:a:b");
    assert_eq!(make(None, Some(""), "//b"), "////b");
}

#[test]
fn encoding_and_decoding_are_inverse_for_all_bytes() {
    let all: Vec<u8> = (0..=255).collect();
    for plus in [Plus::Blank, Plus::Literal] {
        let encoded = uriencode(&all, plus);
        assert_eq!(*uridecode(&encoded, plus), *all);
        assert!(encoded.len() <= 3 * all.len());
    }
    assert_eq!(encode_uri("aZ09-._~"), "aZ09-._~");
    assert_eq!(
        encode_uri("\0 \u{e9}/+&=?#[]@!$'()*,;:%"),
        "%00%20%C3%A9%2F%2B%26%3D%3F%23%5B%5D%40%21%24%27%28%29%2A%2C%3B%3A%25"
    );
    assert_eq!(uriencode("a b  c ", Plus::Blank), "a+b++c+");
    assert_eq!(uriencode("", Plus::Blank), "");
}

#[test]
fn bad_escapes_stay_as_they_are() {
    for text in ["%", "abc%", "abc%4", "%zz", "%4g", "%%", "%-1", "%+1", "% 1"] {
        assert_eq!(*uridecode(text, Plus::Literal), *text.as_bytes(), "{text}");
        assert!(uridecode_str(text, Plus::Literal).is_err(), "{text}");
    }
    assert_eq!(*uridecode("%41%6a%6A%", Plus::Literal), *b"Ajj%");
    assert_eq!(*uridecode("%2541", Plus::Literal), *b"%41", "decoded once");
    assert_eq!(*uridecode("%2B+", Plus::Blank), *b"+ ");
    assert_eq!(*uridecode("a%00b", Plus::Literal), *b"a\0b");
    assert_eq!(*decode_uri("/a+b?c+d?e+f%2B"), *b"/a+b?c d?e f+");
    assert_eq!(*decode_uri("/a+%20b"), *b"/a+ b");
    for bad in ["a%00", "%ff", "%C3"] {
        assert!(uridecode_str(bad, Plus::Literal).is_err(), "{bad}");
    }
    assert_eq!(uridecode_str("a+b", Plus::Literal).unwrap(), "a+b");
    assert_eq!(uridecode_str("a+b%21", Plus::Blank).unwrap(), "a b!");
}

/// Pairs as `key=value`, separated by blanks.
fn pairs<'a>(all: impl IntoIterator<Item = QueryPair<'a>>) -> String {
    all.into_iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn pairs_keep_duplicates_and_empty_values() {
    for (query, expected) in [
        ("", ""),
        ("a=b", "a=b"),
        ("a=1&a=2&a=", "a=1 a=2 a="),
        ("a", "a="),
        ("a&&b=&", "a= b="),
        ("=v", "=v"),
        ("a=b=c", "a=b=c"),
        ("a%3Db=c%26d", "a=b=c&d"),
        ("a=%ff", "a=\u{fffd}"),
        ("a=%", "a=%"),
        ("a%5B%5D=1+2%2B3", "a[]=1 2+3"),
        ("a;b=1", "a;b=1"),
    ] {
        assert_eq!(pairs(query_pairs(query)), expected, "{query}");
    }
}

#[test]
fn a_query_is_strict_unless_told_otherwise() {
    let parse = |query, flags| parse_query_str(query, flags).ok().map(pairs);
    let strict = QueryFlags::empty();
    for (query, expected) in [
        ("", Some("")),
        ("a=1&b=2", Some("a=1 b=2")),
        ("a=1&a=2", Some("a=1 a=2")),
        ("a=", Some("a=")),
        ("a=1&", Some("a=1")),
        ("a", None),
        ("=1", None),
        ("a=1&&b=2", None),
        ("a=1&&", None),
        ("&", None),
        ("&a=1", None),
        ("a=1&b", None),
    ] {
        assert_eq!(parse(query, strict).as_deref(), expected, "{query}");
    }
    let lenient = QueryFlags::NONCONFORMANT;
    assert_eq!(parse("a&=1&&b=2&", lenient).as_deref(), Some("a= b=2"));
    let last = QueryFlags::LAST_VAL;
    assert_eq!(parse("a=1&b=2&a=3&c=4&b=5", last).as_deref(), Some("a=3 c=4 b=5"));
    assert_eq!(parse("a=1&%61=2", last).as_deref(), Some("a=2"));
    assert_eq!(parse("a", last), None);
}

#[test]
fn html_is_escaped() {
    assert_eq!(
        htmlescape("<a b=\"c\" d='e'>&</a>\u{e9}"),
        "&lt;a b=&quot;c&quot; d=&#039;e&#039;&gt;&amp;&lt;/a&gt;\u{e9}"
    );
    assert_eq!(htmlescape(""), "");
    assert_eq!(htmlescape("&amp;"), "&amp;amp;");
}

/// Every text of up to four of these letters, two under Miri: no panic, and what parses parses again from its own text.
#[test]
fn short_texts_of_every_kind_make_a_round_trip() {
    let alphabet: Vec<char> = "a1:/?#@[]%+ .".chars().collect();
    let mut texts = vec![String::new()];
    let mut begin = 0;
    for _ in 0..if cfg!(miri) { 2 } else { 4 } {
        let end = texts.len();
        for at in begin..end {
            for letter in &alphabet {
                texts.push(format!("{}{letter}", texts[at]));
            }
        }
        begin = end;
    }
    let mut parsed = 0;
    for text in &texts {
        for flags in [NONE, UriFlags::NONCONFORMANT, UriFlags::all()] {
            let Ok(uri) = Uri::parse_with_flags(text, flags) else { continue };
            assert_eq!(Uri::parse_with_flags(&uri.to_string(), flags).unwrap(), uri, "{text}");
            parsed += 1;
        }
        uridecode_str(text, Plus::Blank).ok();
        pairs(query_pairs(text));
    }
    assert!(parsed > texts.len() / 2, "{parsed} of {}", texts.len());
}
