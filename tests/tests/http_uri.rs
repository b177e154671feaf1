//! What a request says of its target, in parts and decoded.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use event_http::Request;
use tests::http::each_web;

#[test]
fn a_request_gives_its_target_in_parts() {
    each_web(|web| {
        web.server.set_lenient_targets(true);
        web.server.set_gencb(|req: Request| {
            let uri = req.uri();
            let pairs: Vec<_> = req.query_pairs().map(|(key, value)| format!("{key}={value}")).collect();
            let text = format!(
                "{:?} {:?} {:?} {} {:?} [{}] {uri}",
                uri.scheme(),
                uri.host(),
                uri.port(),
                uri.path(),
                uri.query(),
                pairs.join(" ")
            );
            req.send_reply(200, None, text)
        });
        for (line, expected) in [
            (
                "GET /a%20b?c=1&c=&d=x+y%21",
                "None None None /a%20b Some(\"c=1&c=&d=x+y%21\") [c=1 c= d=x y!] /a%20b?c=1&c=&d=x+y%21",
            ),
            ("GET /", "None None None / None [] /"),
            ("GET /|?", "None None None /| Some(\"\") [] /|?"),
            // Not a host: the request line of an origin server begins with its path.
            ("GET //a/b", "None None None //a/b None [] /.//a/b"),
            ("GET /x?u=http://b/", "None None None /x Some(\"u=http://b/\") [u=http://b/] /x?u=http://b/"),
            (
                "GET http://h:81/x?q",
                "Some(\"http\") Some(\"h\") Some(81) /x Some(\"q\") [q=] http://h:81/x?q",
            ),
            ("GET https://[::1]", "Some(\"https\") Some(\"[::1]\") None / None [] https://[::1]/"),
            ("OPTIONS *", "None None None * None [] *"),
            ("OPTIONS http://h", "Some(\"http\") Some(\"h\") None  None [] http://h"),
        ] {
            let client = web.client();
            let answer = web.ask(&client, format!("{line} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes(), 1);
            assert_eq!(answer.split("\r\n\r\n").nth(1), Some(expected), "{line}");
        }
    });
}
