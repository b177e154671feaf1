//! What a server answers to whole requests: exact bytes, methods, versions, error pages and paths.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::RefCell;
use std::rc::Rc;

use event_http::{Method, MethodSet, Request};
use tests::http::{PAGE, Web, each_web};

const OK_HEAD: &str =
    "HTTP/1.1 200 Client\r\nContent-Length: 23\r\nContent-Type: text/html; charset=ISO-8859-1\r\n";

fn page(status: u16, phrase: &str) -> String {
    format!(
        "<html><head><title>{status} {phrase}</title></head><body><h1>{status} {phrase}</h1></body></html>"
    )
}

fn error(status: u16, phrase: &str, more: &str) -> String {
    let page = page(status, phrase);
    format!(
        "HTTP/1.1 {status} {phrase}\r\nContent-Type: text/html\r\nConnection: close\r\n{more}\
         Content-Length: {}\r\n\r\n{page}",
        page.len()
    )
}

#[test]
fn every_usual_method_is_answered_with_the_same_bytes() {
    each_web(|web| {
        web.page();
        let client = web.client();
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
            client.forget();
            let length = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
            let request = format!("{method} /x HTTP/1.1\r\nHost: a\r\n{length}\r\n");
            let answer = web.ask(&client, request.as_bytes(), 1);
            assert_eq!(answer, format!("{OK_HEAD}\r\n{PAGE}"), "{method}");
        }
        assert!(!client.is_ended());
        assert_eq!(web.server.connection_count(), 1);
    });
}

#[test]
fn a_content_type_is_added_where_none_is_and_the_program_says_which() {
    each_web(|web| {
        web.server.set_gencb(|mut req: Request| {
            if req.path() == "/own" {
                req.add_header("content-type", "text/css").unwrap();
            }
            let status = if req.path() == "/204" { 204 } else { 200 };
            req.send_reply(status, None, PAGE)
        });
        let types = |web: &mut Web<'_>, path: &str| {
            let client = web.client();
            let text = web.ask(&client, format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes(), 1);
            let (head, _) = text.split_once("\r\n\r\n").unwrap();
            let is_type = |line: &&str| line.to_ascii_lowercase().starts_with("content-type:");
            head.lines().filter(is_type).map(str::to_owned).collect::<Vec<_>>()
        };
        let default = "Content-Type: text/html; charset=ISO-8859-1";
        assert_eq!(types(web, "/"), [default]);
        web.server.set_default_content_type(Some("text/plain")).unwrap();
        assert_eq!(types(web, "/"), ["Content-Type: text/plain"]);
        assert_eq!(types(web, "/own"), ["content-type: text/css"]);
        assert!(types(web, "/204").is_empty());
        let refused = web.server.set_default_content_type(Some("text/plain\r\nX-Evil: 1"));
        assert!(refused.is_err_and(|error| error.is_invalid_argument()));
        assert_eq!(types(web, "/"), ["Content-Type: text/plain"], "what was refused changes nothing");
        web.server.set_default_content_type(None).unwrap();
        assert!(types(web, "/").is_empty() && types(web, "/own").len() == 1);
    });
}

#[test]
fn head_has_the_length_and_no_body_and_the_next_answer_is_whole() {
    each_web(|web| {
        web.page();
        let client = web.client();
        let both = b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n";
        client.write(both);
        let whole = format!("{OK_HEAD}\r\n{OK_HEAD}\r\n{PAGE}");
        web.until(&client, |got, _| tests::http::undated(got).len() >= whole.len());
        assert_eq!(client.text(), whole);
    });
}

#[test]
fn a_date_stands_behind_the_programs_fields() {
    each_web(|web| {
        web.server.set_gencb(|mut req: Request| {
            req.add_header("X-B", "1")?;
            req.add_header("X-A", "2")?;
            req.send_reply(451, None, "no")
        });
        let client = web.client();
        let answer = web.ask(&client, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 1);
        assert_eq!(
            answer,
            "HTTP/1.1 451 Unavailable For Legal Reasons\r\nX-B: 1\r\nX-A: 2\r\nContent-Length: 2\r\n\
             Content-Type: text/html; charset=ISO-8859-1\r\n\r\nno"
        );
        let raw = String::from_utf8(client.bytes()).unwrap();
        assert!(raw.contains("X-A: 2\r\nDate: ") && raw.contains(" GMT\r\nContent-Length: 2\r\n"), "{raw}");
    });
}

#[test]
fn unknown_methods_get_501_and_known_ones_405_unless_they_are_allowed() {
    each_web(|web| {
        web.page();
        let allow = "Allow: GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS\r\n";
        for (line, answer) in [
            ("BREW / HTTP/1.1", error(501, "Not Implemented", "")),
            ("get / HTTP/1.1", error(501, "Not Implemented", "")),
            ("TRACE / HTTP/1.1", error(405, "Method Not Allowed", allow)),
            ("CONNECT a:80 HTTP/1.1", error(405, "Method Not Allowed", allow)),
        ] {
            let client = web.client();
            let request = format!("{line}\r\nHost: a\r\n\r\n");
            assert_eq!(web.ask_to_end(&client, request.as_bytes()), answer, "{line}");
        }
        let mut methods: MethodSet =
            [Method::GET, Method::HEAD, Method::POST, Method::DELETE].into_iter().collect();
        methods.insert(Method::TRACE);
        web.server.set_allowed_methods(methods);
        let client = web.client();
        let answer = web.ask(&client, b"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 1);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let answer = web.ask_to_end(&client, b"PUT / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(
            answer.contains("HTTP/1.1 405 ") && answer.contains("Allow: GET, HEAD, POST, DELETE, TRACE\r\n"),
            "{answer}"
        );
    });
}

#[test]
fn a_connection_is_kept_or_closed_as_version_and_fields_say() {
    each_web(|web| {
        web.page();
        for (request, field, closes) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "", false),
            ("GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n", "", false),
            ("GET / HTTP/1.1\r\nHost: a\r\nConnection: close \r\n\r\n", "Connection: close\r\n", true),
            ("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, CLOSE\r\n\r\n", "Connection: close\r\n", true),
            ("GET / HTTP/1.1\r\nHost: a\r\nProxy-Connection: close\r\n\r\n", "", false),
            ("GET / HTTP/1.0\r\n\r\n", "Connection: close\r\n", true),
            ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "Connection: keep-alive\r\n", false),
        ] {
            let client = web.client();
            let answer = if closes {
                web.ask_to_end(&client, request.as_bytes())
            } else {
                web.ask(&client, request.as_bytes(), 1)
            };
            assert_eq!(answer, format!("{OK_HEAD}{field}\r\n{PAGE}"), "{request}");
            if !closes {
                client.forget();
                let again = web.ask(&client, request.as_bytes(), 1);
                assert_eq!(again, format!("{OK_HEAD}{field}\r\n{PAGE}"), "again {request}");
            }
        }
    });
}

#[test]
fn without_a_handler_a_path_is_404_and_the_page_escapes_a_reason() {
    each_web(|web| {
        let client = web.client();
        let answer = web.ask_to_end(&client, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(answer, error(404, "Not Found", ""));
        web.server.set_gencb(|req: Request| req.send_error(403, "<no>"));
        let client = web.client();
        let answer = web.ask_to_end(&client, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(
            answer.starts_with("HTTP/1.1 403 <no>\r\n") && answer.contains("</h1>&lt;no&gt;</body>"),
            "{answer}"
        );
    });
}

#[test]
fn paths_are_matched_decoded_and_without_their_query() {
    each_web(|web| {
        let seen = Rc::new(RefCell::new(Vec::new()));
        for path in ["/a b", "/x", "/"] {
            let seen = seen.clone();
            web.server
                .set_cb(path, move |req: Request| {
                    seen.borrow_mut().push(format!("{path}: {} {:?}", req.path(), req.query()));
                    req.send_reply(200, None, "own")
                })
                .unwrap();
        }
        assert!(web.server.set_cb("/x", |_: Request| ()).unwrap_err().is_caller());
        let client = web.client();
        for target in ["/a%20b?q=1+1", "/%78", "/?", "/x?a?b", "//"] {
            client.forget();
            let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
            let answer = web.ask(&client, request.as_bytes(), 1);
            assert_eq!(answer.starts_with("HTTP/1.1 200 OK\r\n"), target != "//", "{target}: {answer}");
        }
        let expected =
            ["/a b: /a%20b Some(\"q=1+1\")", "/x: /%78 None", "/: / Some(\"\")", "/x: /x Some(\"a?b\")"];
        assert_eq!(*seen.borrow(), expected);
        // The 404 has closed the first connection.
        web.page();
        assert!(web.server.del_cb("/x") && !web.server.del_cb("/x"));
        let client = web.client();
        let answer = web.ask(&client, b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n", 1);
        assert!(answer.ends_with(PAGE), "the general handler takes over: {answer}");
        assert_eq!(seen.borrow().len(), 4);
    });
}

#[test]
fn an_encoded_nul_in_a_path_is_refused() {
    each_web(|web| {
        web.server.set_cb("/secret", |req: Request| req.send_reply(200, None, "wrong")).unwrap();
        web.page();
        let client = web.client();
        let answer = web.ask_to_end(&client, b"GET /secret%00.jpg HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(answer, error(400, "Bad Request", ""));
        // With or without handlers of single paths.
        assert!(web.server.del_cb("/secret"));
        let client = web.client();
        let answer = web.ask_to_end(&client, b"GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(answer, error(400, "Bad Request", ""));
    });
}

#[test]
fn every_status_is_sent_as_it_is() {
    each_web(|web| {
        web.server.set_gencb(|req: Request| {
            let status = req.path()[1..].parse().unwrap();
            req.send_reply(status, None, "x")
        });
        let client = web.client();
        for (status, line) in [
            (200, "200 OK"),
            (422, "422 Unprocessable Content"),
            (429, "429 Too Many Requests"),
            (451, "451 Unavailable For Legal Reasons"),
            (503, "503 Service Unavailable"),
        ] {
            client.forget();
            let request = format!("GET /{status} HTTP/1.1\r\nHost: a\r\n\r\n");
            let answer = web.ask(&client, request.as_bytes(), 1);
            assert!(answer.starts_with(&format!("HTTP/1.1 {line}\r\n")), "{answer}");
        }
        for status in [299, 599, 799, 999] {
            client.forget();
            let request = format!("GET /{status} HTTP/1.1\r\nHost: a\r\n\r\n");
            let answer = web.ask(&client, request.as_bytes(), 1);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        }
        for status in [0, 99, 100, 103, 199, 1000] {
            let client = web.client();
            let request = format!("GET /{status} HTTP/1.1\r\nHost: a\r\n\r\n");
            let answer = web.ask_to_end(&client, request.as_bytes());
            assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
        }
    });
}

#[test]
fn an_error_page_needs_a_status_too() {
    each_web(|web| {
        web.server.set_gencb(|req: Request| {
            let status = req.path()[1..].parse().unwrap();
            assert!(req.send_error(status, "x\r\ny").unwrap_err().is_invalid_argument());
        });
        for status in [0, 7, 100, 1000, 65535] {
            let client = web.client();
            let request = format!("GET /{status} HTTP/1.1\r\nHost: a\r\n\r\n");
            let answer = web.ask_to_end(&client, request.as_bytes());
            assert_eq!(answer, error(500, "Internal Server Error", ""), "{status}");
        }
    });
}

#[test]
fn a_program_cannot_put_line_breaks_into_a_head() {
    each_web(|web| {
        web.server.set_gencb(|mut req: Request| {
            for value in ["a\r\nX-Injected: yes", "a\nb", "a\rb", "a\0b"] {
                assert!(req.add_header("X", value).unwrap_err().is_invalid_argument());
            }
            for name in ["X\r\nY", "", "X Y", "X:"] {
                assert!(req.add_header(name, "a").unwrap_err().is_invalid_argument());
            }
            assert!(req.send_reply(200, "OK\r\nX-Injected: yes", "x").unwrap_err().is_invalid_argument());
        });
        let client = web.client();
        let answer = web.ask_to_end(&client, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(answer, error(500, "Internal Server Error", ""));
    });
}

#[test]
fn values_are_trimmed_and_targets_are_left_as_they_came() {
    each_web(|web| {
        web.server.set_gencb(|req: Request| {
            let value = req.header("test").map(|value| value.as_bytes().to_vec()).unwrap();
            let text = format!(
                "{:?} {} {} {:?}",
                String::from_utf8(value).unwrap(),
                req.target(),
                req.path(),
                req.query()
            );
            req.send_reply(200, None, text)
        });
        let client = web.client();
        let request = b"GET /r.json%3Fp1%3Dv1?n=1+1%2525&abc HTTP/1.1\r\nHost: a\r\nTest: \t abc \t \r\n\r\n";
        let answer = web.ask(&client, request, 1);
        let text = "\"abc\" /r.json%3Fp1%3Dv1?n=1+1%2525&abc /r.json%3Fp1%3Dv1 Some(\"n=1+1%2525&abc\")";
        assert!(answer.ends_with(text), "{answer}");
    });
}

#[test]
fn a_large_body_arrives_byte_by_byte_as_it_was_given() {
    each_web(|web| {
        let len = tests::few_under_miri(3_600_000_u32, 20_000);
        let body: Vec<u8> = (0..len).map(|n| if n % 7 == 0 { b'%' } else { (n % 251) as u8 }).collect();
        let given = body.clone();
        web.server.set_gencb(move |req: Request| req.send_reply(200, None, given.clone()));
        let client = web.client();
        client.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        web.until(&client, |got, _| got.len() > body.len() && got.ends_with(&body));
        let (all, left) = tests::http::answers(&client.bytes(), &[]).unwrap();
        assert!(all.len() == 1 && all[0].2 == body && left == 0);
    });
}

#[test]
fn what_follows_an_offer_to_upgrade_waits_for_its_answer() {
    each_web(|web| {
        let kept = web.keep();
        let client = web.client();
        client.write(
            b"GET /1 HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
        );
        web.settle(&client);
        assert_eq!(kept.borrow().len(), 1);
        kept.borrow_mut().remove(0).send_reply(200, None, "no").unwrap();
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 1);
        assert_eq!(kept.borrow()[0].path(), "/2");
    });
}
