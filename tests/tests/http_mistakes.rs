//! What handlers do wrong, and the pages of errors.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use event_core::LoopEnd;
use event_http::{Completion, Limits, Request};
use tests::http::{PAGE, Web, answers, each_simulated_web, each_socket_web, each_web};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const NEXT: &str = "GET /next HTTP/1.1\r\nHost: a\r\n\r\n";

thread_local! {
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Keeps each thread's lines apart.
struct Sink;

impl log::Log for Sink {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.level() <= log::Level::Warn {
            LINES.with_borrow_mut(|lines| lines.push(record.args().to_string()));
        }
    }

    fn flush(&self) {}
}

static SINK: Sink = Sink;

/// Warnings since the last call.
fn warnings() -> Vec<String> {
    let _ = log::set_logger(&SINK);
    log::set_max_level(log::LevelFilter::Warn);
    LINES.take()
}

#[test]
fn nothing_that_a_handler_says_breaks_a_head_apart() {
    each_web(|web| {
        web.server.set_gencb(|mut req: Request| {
            for bad in ["a\r\nX-Evil: 1", "a\nX-Evil: 1", "a\rb", "a\0b", "\r\n\r\nHTTP/1.1 200 OK"] {
                assert!(req.add_header("X", bad).is_err_and(|error| error.is_invalid_argument()));
                assert!(req.add_header(bad, "x").is_err_and(|error| error.is_invalid_argument()));
                assert!(req.reply_headers().set("X", bad).is_err());
            }
            assert!(req.add_header("", "x").is_err() && req.add_header("a b", "x").is_err());
            let reason = req.query().map(|_| "OK\r\nX-Evil: 1").unwrap_or("fine").to_owned();
            let sent = req.send_reply(200, reason.as_str(), PAGE);
            assert_eq!(sent.is_err(), reason != "fine");
        });
        let client = web.client();
        assert!(web.ask(&client, GET, 1).starts_with("HTTP/1.1 200 fine\r\n"));
        client.forget();
        let text = web.ask_to_end(&client, b"GET /?x HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 500 ") && !text.contains("Evil"), "{text}");
        // An error page takes a reason that has no place in the status line.
        web.server.set_gencb(|req: Request| req.send_error(404, "a\r\nX-Evil: <1>"));
        let client = web.client();
        let text = web.ask_to_end(&client, GET);
        assert!(text.starts_with("HTTP/1.1 404 Not Found\r\nContent-Type"), "{text}");
        assert!(text.ends_with("</h1>a\r\nX-Evil: &lt;1&gt;</body></html>"), "{text}");
    });
}

#[test]
fn a_body_where_none_may_be_is_dropped_and_the_next_answer_is_whole() {
    each_web(|web| {
        web.server.set_gencb(|req: Request| match req.path() {
            "/204" => req.send_reply(204, None, PAGE),
            "/304" => req.send_reply(304, None, PAGE),
            "/205" => req.send_reply(205, None, PAGE),
            "/stream" => {
                let reply = req.send_reply_start(204, None)?;
                reply.chunk(PAGE)?;
                reply.end()
            }
            _ => req.send_reply(200, None, PAGE),
        });
        for line in ["HEAD /", "GET /204", "GET /205", "GET /304", "GET /stream", "HEAD /stream"] {
            let client = web.client();
            client.write(format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n{NEXT}").as_bytes());
            web.until(&client, |got, _| got.ends_with(PAGE.as_bytes()));
            let (all, left) = answers(&client.bytes(), &[0]).unwrap();
            assert_eq!((all.len(), left, all[1].0), (2, 0, 200), "{line}");
            assert_eq!(client.text().matches(PAGE).count(), 1, "{line}");
        }
    });
}

#[test]
fn a_content_length_that_is_not_kept_to_is_caught_closes_and_is_logged() {
    each_web(|web| {
        warnings();
        let errors: Rc<RefCell<Vec<String>>> = Rc::default();
        let sink = errors.clone();
        web.server.set_gencb(move |mut req: Request| {
            let pieces: &[&str] = match req.path() {
                "/short" => &["123"],
                "/long" => &["12345", "6"],
                _ => &["12", "345"],
            };
            req.add_header("Content-Length", "5").unwrap();
            let done = sink.clone();
            req.on_complete(move |completion| done.borrow_mut().push(format!("{completion:?}")));
            let reply = req.send_reply_start(200, None).unwrap();
            for piece in pieces {
                if let Err(error) = reply.chunk(*piece) {
                    assert!(error.is_caller());
                    sink.borrow_mut().push(error.to_string());
                }
            }
            if let Err(error) = reply.end() {
                sink.borrow_mut().push(error.to_string());
            }
        });
        let client = web.client();
        let text =
            web.ask_to_end(&client, format!("GET /short HTTP/1.1\r\nHost: a\r\n\r\n{NEXT}").as_bytes());
        assert!(text.ends_with("\r\n\r\n123"), "nothing follows what is short: {text}");
        drop(client);
        web.until_connections(0);
        web.settle_all();
        assert_eq!(errors.take(), ["less body than the content-length says", "ClientGone"]);
        let lines = warnings();
        assert!(lines.iter().any(|line| line.contains("shorter than its content-length")), "{lines:?}");

        let client = web.client();
        let both = format!("GET /long HTTP/1.1\r\nHost: a\r\n\r\n{NEXT}");
        assert!(web.ask(&client, both.as_bytes(), 2).ends_with("\r\n\r\n12345"), "the rest was not sent");
        web.settle_all();
        assert_eq!(errors.take()[0], "more body than the content-length says");
        // One that is no number, and one beside a whole body.
        web.server.set_gencb(|mut req: Request| {
            let whole = req.path() == "/whole";
            req.add_header("Content-Length", if whole { "3" } else { "five" }).unwrap();
            if whole {
                return req.send_reply(200, None, PAGE);
            }
            let started = req.send_reply_start(200, None);
            assert!(started.is_err_and(|error| error.is_invalid_argument()));
            Ok(())
        });
        let client = web.client();
        let text = web.ask(&client, b"GET /whole HTTP/1.1\r\nHost: a\r\n\r\n", 1);
        assert!(text.contains("Content-Length: 23\r\n") && text.ends_with(PAGE), "{text}");
        client.forget();
        assert!(web.ask_to_end(&client, GET).starts_with("HTTP/1.1 500 "));
    });
}

#[test]
fn a_server_freed_in_its_own_handler_is_gone_for_its_request() {
    each_web(|web| {
        let log: Rc<RefCell<Vec<String>>> = Rc::default();
        let (server, sink) = (web.server.clone(), log.clone());
        web.server.set_gencb(move |req: Request| {
            let done = sink.clone();
            req.on_complete(move |completion| done.borrow_mut().push(format!("{completion:?}")));
            server.free();
            let sent = req.send_reply(200, None, PAGE);
            assert!(sent.is_err_and(|error| error.is_server_gone()));
        });
        let client = web.client();
        assert_eq!(web.ask_to_end(&client, &GET.repeat(3)), "");
        web.settle_all();
        assert_eq!(log.take(), ["ServerGone"]);
    });
}

#[test]
fn a_request_that_is_forgotten_goes_with_its_client_or_its_server() {
    each_socket_web(|web| {
        let completions: Rc<RefCell<Vec<Completion>>> = Rc::default();
        let sink = completions.clone();
        web.server.set_gencb(move |req: Request| {
            let sink = sink.clone();
            req.on_complete(move |completion| sink.borrow_mut().push(completion));
            std::mem::forget(req);
        });
        let client = web.client();
        client.write(GET);
        web.settle(&client);
        client.reset();
        web.until_connections(0);
        web.settle_all();
        assert_eq!(completions.take(), [Completion::ClientGone]);
        let client = web.client();
        client.write(GET);
        web.settle(&client);
        web.server.free();
        web.until(&client, |_, ended| ended);
        web.settle_all();
        assert_eq!(completions.take(), [Completion::ServerGone]);
    });
}

#[test]
fn a_request_that_is_forgotten_ends_at_the_deadline_of_its_handler_or_of_the_stop() {
    each_simulated_web(|web| {
        let completions: Rc<RefCell<Vec<Completion>>> = Rc::default();
        let sink = completions.clone();
        let forgetful = move |req: Request| {
            let sink = sink.clone();
            req.on_complete(move |completion| sink.borrow_mut().push(completion));
            std::mem::forget(req);
        };
        web.server.set_gencb(forgetful);
        web.server.set_limits(Limits { handler_timeout: Some(Duration::from_secs(5)), ..Limits::default() });
        let client = web.client();
        client.write(GET);
        web.pass(&client, Duration::from_millis(4_999));
        assert_eq!((client.text().as_str(), client.is_ended()), ("", false));
        let text = web.pass(&client, Duration::from_millis(2));
        assert!(text.starts_with("HTTP/1.1 503 ") && client.is_ended(), "{text}");
        drop(client);
        web.until_connections(0);
        web.settle_all();
        assert_eq!(completions.take().len(), 1);
        // Without such a deadline it is the one of the graceful stop, and nothing keeps the loop running after it.
        web.server.set_limits(Limits::default());
        let client = web.client();
        client.write(GET);
        web.pass(&client, Duration::from_secs(3600));
        assert_eq!((client.text().as_str(), client.is_ended()), ("", false));
        web.server.shutdown(Duration::from_secs(10));
        web.pass(&client, Duration::from_millis(9_999));
        assert!(!client.is_ended());
        web.pass(&client, Duration::from_millis(2));
        assert_eq!((client.text().as_str(), client.is_ended(), web.server.connection_count()), ("", true, 0));
        assert_eq!(completions.take().len(), 1);
        assert_eq!(web.base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn a_program_writes_the_pages_of_errors() {
    each_web(|web| {
        let seen: Rc<RefCell<Vec<String>>> = Rc::default();
        let (sink, use_it) = (seen.clone(), Rc::new(Cell::new(true)));
        let wanted = use_it.clone();
        web.server.set_errorcb(move |page| {
            let text = format!("{} {:?}", page.status(), page.reason());
            sink.borrow_mut().push(text.clone());
            page.headers().set("Content-Type", "text/plain").unwrap();
            page.headers().add("Connection", "keep-alive").unwrap();
            page.body().add(format!("sorry: {text}").as_bytes());
            wanted.get()
        });
        web.server.set_cb("/oops", |req| req.send_error(500, "Oops")).unwrap();
        web.server.set_cb("/drop", drop::<Request>).unwrap();
        web.server.route(event_http::Method::PUT, "/put", drop::<Request>).unwrap();
        for (request, status, page) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 404, "sorry: 404 None"),
            ("GET /oops HTTP/1.1\r\nHost: a\r\n\r\n", 500, "sorry: 500 Some(\"Oops\")"),
            ("GET /drop HTTP/1.1\r\nHost: a\r\n\r\n", 500, "sorry: 500 None"),
            ("GET /put HTTP/1.1\r\nHost: a\r\n\r\n", 405, "sorry: 405 None"),
            ("nonsense\r\n\r\n", 400, "sorry: 400 None"),
            ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 404, "sorry: 404 None"),
        ] {
            let client = web.client();
            let text = web.ask_to_end(&client, request.as_bytes());
            assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{request} {text}");
            assert!(
                text.contains("Content-Type: text/plain\r\n") && text.contains("Connection: close\r\n"),
                "{text}"
            );
            assert_eq!(text.contains("Allow: PUT, OPTIONS\r\n"), status == 405);
            assert!(text.ends_with(&format!("\r\n\r\n{page}")), "{request} {text}");
        }
        assert_eq!(seen.take().len(), 6, "once for each");
        use_it.set(false);
        let client = web.client();
        let text = web.ask_to_end(&client, GET);
        assert!(text.ends_with("<h1>404 Not Found</h1></body></html>"), "{text}");
        // HEAD has no page, and an error behind other answers has its turn.
        use_it.set(true);
        let client = web.client();
        let text = web.ask_to_end(&client, b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(text.ends_with("\r\n\r\n") && text.contains("Content-Length: 15\r\n"), "{text}");
        let kept = web.keep();
        let client = web.client();
        client.write(format!("{NEXT}nonsense\r\n\r\n").as_bytes());
        assert_eq!(web.settle(&client), "");
        kept.borrow_mut().remove(0).send_reply(200, None, PAGE).unwrap();
        web.until(&client, |_, ended| ended);
        assert!(client.text().contains(PAGE) && client.text().ends_with("sorry: 400 None"));
    });
}

#[test]
fn a_page_that_cannot_be_sent_gives_way_to_the_standard_one() {
    each_web(|web| {
        // An answer to HEAD tells the length that the program gives.
        web.server.set_errorcb(|page| page.headers().set("Content-Length", "many").is_ok());
        let client = web.client();
        client.write(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        let text = web.settle(&client);
        assert!(text.starts_with("HTTP/1.1 404 Not Found\r\n") && client.is_ended(), "{text}");
        assert!(!text.contains("many") && text.matches("HTTP/1.1").count() == 1, "{text}");
    });
}

#[test]
fn a_callback_of_errors_that_panics_or_ends_its_server_harms_nothing() {
    each_web(|web| {
        web.server.set_errorcb(|_| tests::quiet_panic("an error page"));
        let client = web.client();
        assert!(web.ask_to_end(&client, GET).ends_with("<h1>404 Not Found</h1></body></html>"));
        let (alive, server) = (Rc::new(()), web.server.clone());
        let held = alive.clone();
        web.server.set_errorcb(move |_| {
            let _ = &held;
            server.free();
            true
        });
        let client = web.client();
        assert_eq!(web.ask_to_end(&client, GET), "");
        web.settle_all();
        assert_eq!(Rc::strong_count(&alive), 1);
    });
}

#[test]
fn a_client_too_many_gets_the_programs_page_as_well() {
    each_web(|web: &mut Web<'_>| {
        web.page();
        web.server.set_errorcb(|page| {
            page.body().add(b"full");
            true
        });
        web.server.set_max_connections(Some(0));
        let client = web.client();
        let text = web.ask_to_end(&client, GET);
        assert!(text.starts_with("HTTP/1.1 503 ") && text.ends_with("full"), "{text}");
    });
}
