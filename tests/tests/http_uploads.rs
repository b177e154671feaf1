//! Requests that are handed out before their bodies, and bodies that are streamed.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use event_http::{BodyEvent, BodyReader, Limits, Method, MethodSet, Request};
use tests::http::{GET, PAGE, Web, each_simulated_web, each_socket_web, each_web};

const HEAD: &str = "POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n";
const CHUNKED: &str = "POST /up HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

type Log = Rc<RefCell<Vec<String>>>;

fn all() -> MethodSet {
    MethodSet::default()
}

/// Logs what happens, gathers the bytes of adjacent pieces, and answers at the end.
fn log_body(log: &Log) -> impl FnMut(&BodyReader, BodyEvent) + use<> {
    let log = log.clone();
    move |body, event| match event {
        BodyEvent::Data(piece) => {
            let text = String::from_utf8(piece.to_vec()).unwrap();
            let mut log = log.borrow_mut();
            match log.last_mut().filter(|last| last.starts_with("data ")) {
                Some(last) => last.push_str(&text),
                None => log.push(format!("data {text}")),
            }
        }
        BodyEvent::End(trailers) => {
            log.borrow_mut().push(format!("end {trailers:?}"));
            if let Some(req) = body.take_request() {
                req.send_reply(200, None, format!("got {}", body.received())).unwrap();
            }
        }
        BodyEvent::Failed(error) => {
            let text = error.to_string();
            assert_eq!(error.is_too_large(), text.ends_with("too large"), "{text}");
            assert_eq!(error.is_timeout(), text.ends_with("too slowly"), "{text}");
            assert_eq!(error.is_client_gone(), text.starts_with("the client left"), "{text}");
            assert_eq!(error.is_peer(), error.status().is_some_and(|status| status < 500), "{text}");
            log.borrow_mut().push(format!("failed {text}"));
        }
        _ => unreachable!(),
    }
}

type Readers = Rc<RefCell<Vec<BodyReader>>>;

/// A route whose bodies are logged and pause after each piece, and who may let them go on.
fn pausing(web: &Web<'_>) -> (Log, Readers) {
    let (log, readers) = (Log::default(), Readers::default());
    let (sink, kept) = (log.clone(), readers.clone());
    web.server
        .route_early(all(), "/up", move |req| {
            let mut inner = log_body(&sink);
            let reader = req.stream_body(None, move |body, event| {
                if matches!(event, BodyEvent::Data(_)) {
                    body.pause();
                }
                inner(body, event);
            });
            kept.borrow_mut().push(reader);
        })
        .unwrap();
    (log, readers)
}

/// A route whose bodies are logged.
fn streamed(web: &Web<'_>, max: Option<u64>) -> Log {
    let log = Log::default();
    let sink = log.clone();
    web.server
        .route_early(all(), "/up", move |req| {
            req.stream_body(max, log_body(&sink));
        })
        .unwrap();
    log
}

#[test]
fn a_body_goes_to_its_callback_by_length_by_chunks_and_when_there_is_none() {
    each_web(|web| {
        web.page();
        let log = streamed(web, None);
        let client = web.client();
        let text = web.ask(&client, format!("{HEAD}01234").as_bytes(), 0);
        assert_eq!(text, "");
        web.bed.run_until(&mut web.base, || !log.borrow().is_empty());
        assert_eq!(log.take(), ["data 01234"]);
        assert!(web.ask(&client, b"56789", 1).ends_with("got 10"));
        assert_eq!(log.take(), ["data 56789", "end {}"]);
        client.forget();
        let chunks = format!("{CHUNKED}3\r\nabc\r\n1\r\nd\r\n0\r\nX-A: 1\r\n\r\n");
        assert!(web.ask(&client, chunks.as_bytes(), 1).ends_with("got 4"));
        assert_eq!(log.take(), ["data abcd", "end {\"X-A\": \"1\"}"]);
        client.forget();
        // Without a body, and with another request right behind it.
        let get = b"GET /up HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let text = web.ask(&client, get, 2);
        assert!(text.contains("got 0") && text.ends_with(PAGE));
        assert_eq!(log.take(), ["end {}"]);
    });
}

#[test]
fn a_body_of_any_size_is_streamed_in_bounded_memory() {
    each_simulated_web(|web| {
        web.server.set_limits(Limits { max_body_bytes: Some(10), ..Limits::default() });
        let largest = Rc::new(Cell::new(0));
        let sink = largest.clone();
        web.server
            .route_early(Method::PUT, "/up", move |req| {
                let sink = sink.clone();
                req.stream_body(None, move |body, event| match event {
                    BodyEvent::Data(piece) => sink.set(sink.get().max(piece.len())),
                    BodyEvent::End(_) => {
                        let req = body.take_request().unwrap();
                        req.send_reply(200, None, format!("got {}", body.received())).unwrap();
                    }
                    other => panic!("{other:?}"),
                });
            })
            .unwrap();
        let client = web.client();
        let len = 30 << 20;
        client.write(format!("PUT /up HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n").as_bytes());
        let block = vec![b'x'; 1 << 16];
        let mut left = len;
        while left > 0 {
            left -= client.write_some(&block[..left.min(block.len())]);
            web.settle(&client);
        }
        web.until(&client, |got, _| got.ends_with(b"got 31457280"));
        assert!(largest.get() <= 512 << 10, "{}", largest.get());
    });
}

#[test]
fn a_paused_body_is_not_read_and_its_clock_stands_still() {
    each_socket_web(|web| {
        let (_, readers) = pausing(web);
        let client = web.client();
        let len = 8 << 20;
        client.write(format!("PUT /up HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n").as_bytes());
        let block = vec![b'x'; 1 << 16];
        let mut sent = 0;
        for _ in 0..200 {
            sent += client.write_some(&block[..(len - sent).min(block.len())]);
            web.settle(&client);
        }
        let received = |readers: &Readers| readers.borrow()[0].received();
        assert!(received(&readers) <= 512 << 10 && sent < len, "{} {sent}", received(&readers));
        assert!(readers.borrow()[0].is_paused());
        if web.bed.sim().is_some() {
            // Longer than any clock of a body.
            assert_eq!(web.pass(&client, Duration::from_secs(600)), "");
            assert!(!client.is_ended());
        }
        let mut turns = 0;
        while sent < len || received(&readers) < len as u64 {
            readers.borrow()[0].resume();
            sent += client.write_some(&block[..(len - sent).min(block.len())]);
            web.settle(&client);
            turns += 1;
            assert!(turns < 10_000);
        }
        // The end waits, too, if the last piece was followed by a pause.
        readers.borrow()[0].resume();
        web.until(&client, |got, _| got.ends_with(b"got 8388608"));
        readers.borrow()[0].resume();
        assert!(!readers.borrow()[0].is_paused());
    });
}

#[test]
fn the_end_waits_for_a_paused_reader_and_so_do_requests_behind_it() {
    each_web(|web| {
        web.page();
        let (log, readers) = pausing(web);
        let client = web.client();
        client.write(format!("{HEAD}0123456789{}", std::str::from_utf8(GET).unwrap()).as_bytes());
        assert_eq!(web.settle(&client), "");
        assert_eq!(log.take(), ["data 0123456789"]);
        let reader = readers.borrow()[0].clone();
        reader.resume();
        assert!(log.borrow().is_empty(), "never in the call");
        let text = web.ask(&client, b"", 2);
        assert_eq!(log.take(), ["end {}"]);
        assert!(text.contains("got 10") && text.ends_with(PAGE));
        assert!(reader.take_request().is_none());
    });
}

#[test]
fn nothing_is_read_while_a_kept_request_has_not_decided_about_its_body() {
    each_web(|web| {
        let kept: Rc<RefCell<Vec<Request>>> = Rc::default();
        let sink = kept.clone();
        web.server.route_early(all(), "/up", move |req| sink.borrow_mut().push(req)).unwrap();
        let client = web.client();
        let expect = HEAD.replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n");
        client.write(expect.as_bytes());
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 1);
        assert_eq!(web.settle(&client), "", "nobody has asked for the body");
        if web.bed.sim().is_some() {
            web.pass(&client, Duration::from_secs(600));
            assert!(!client.is_ended());
        }
        let log = Log::default();
        let req = kept.borrow_mut().remove(0);
        assert_eq!(req.body().len(), 0);
        req.stream_body(10, log_body(&log));
        web.until(&client, |got, _| got.ends_with(b"100 Continue\r\n\r\n"));
        assert!(web.ask(&client, b"0123456789", 2).ends_with("got 10"));
        assert_eq!(log.take(), ["data 0123456789", "end {}"]);
    });
}

#[test]
fn an_answer_before_the_body_ends_the_connection_and_is_read() {
    each_web(|web| {
        let log = Log::default();
        let sink = log.clone();
        web.server
            .route_early(all(), "/up", move |req: Request| {
                let sink = sink.clone();
                req.on_complete(move |completion| sink.borrow_mut().push(format!("{completion:?}")));
                req.send_reply(403, None, "no")
            })
            .unwrap();
        let client = web.client();
        let text = web.ask_to_end(&client, format!("{HEAD}012").as_bytes());
        assert!(text.starts_with("HTTP/1.1 403 ") && text.ends_with("\r\n\r\nno"), "{text}");
        assert_eq!(log.take(), ["Sent"]);
    });
}

#[test]
fn the_header_hook_sees_every_request_and_may_answer_keep_or_pass_it_on() {
    each_web(|web| {
        let log = Log::default();
        let sink = log.clone();
        web.server.set_header_cb(move |mut req| {
            sink.borrow_mut().push(format!("{} {}", req.path(), req.body().len()));
            if req.header("Authorization").is_none() {
                req.send_error(401, None).unwrap();
                return None;
            }
            req.add_header("X-Seen", "yes").unwrap();
            Some(req)
        });
        web.server.set_gencb(|req| {
            let body = format!("{} {}", req.path(), req.body().len());
            req.send_reply(200, None, body)
        });
        web.server.route_early(all(), "/early", |req| req.send_reply(200, None, "early")).unwrap();
        let client = web.client();
        let post = HEAD.replace("\r\n\r\n", "\r\nAuthorization: x\r\n\r\n0123456789");
        let text = web.ask(&client, post.repeat(2).as_bytes(), 2);
        assert_eq!(text.matches("X-Seen: yes").count(), 2, "{text}");
        assert!(text.ends_with("/up 10"));
        assert_eq!(log.take(), ["/up 0", "/up 0"]);
        let get = "GET /early HTTP/1.1\r\nHost: a\r\nAuthorization: x\r\n\r\n";
        let text = web.ask(&client, get.as_bytes(), 3);
        assert!(text.contains("X-Seen") && text.ends_with("early"));
        let text = web.ask_to_end(&client, HEAD.as_bytes());
        assert!(text.contains("HTTP/1.1 401 "));
    });
}

#[test]
fn a_body_that_is_too_large_slow_or_broken_fails_with_its_answer() {
    each_web(|web| {
        let log = streamed(web, Some(4));
        let client = web.client();
        let text = web.ask_to_end(&client, HEAD.as_bytes());
        assert!(text.starts_with("HTTP/1.1 413 "), "{text}");
        assert_eq!(log.take(), ["failed the request body is too large"]);

        let client = web.client();
        let text = web.ask_to_end(&client, format!("{CHUNKED}3\r\nabc\r\n2\r\nde\r\n").as_bytes());
        assert!(text.starts_with("HTTP/1.1 413 "), "{text}");
        assert_eq!(log.take().last().unwrap(), "failed the request body is too large");

        let client = web.client();
        let text = web.ask_to_end(&client, format!("{CHUNKED}3\r\nabcX").as_bytes());
        assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
        assert_eq!(log.take().last().unwrap(), "failed chunk data is not followed by CRLF");

        if web.bed.sim().is_some() {
            let client = web.client();
            client.write(format!("{CHUNKED}3\r\nabc").as_bytes());
            let text = web.pass(&client, Duration::from_secs(31));
            assert!(text.starts_with("HTTP/1.1 408 "), "{text}");
            assert_eq!(log.take(), ["data abc", "failed the request body came too slowly"]);
        }
    });
}

#[test]
fn a_client_that_leaves_inside_its_body_is_told_once_and_nothing_stays() {
    each_web(|web| {
        let log = streamed(web, None);
        for reset in [false, true] {
            let client = web.client();
            client.write(format!("{HEAD}01234").as_bytes());
            web.bed.run_until(&mut web.base, || !log.borrow().is_empty());
            if reset {
                client.reset()
            } else {
                client.finish()
            }
            web.until_connections(0);
            web.settle_all();
            assert_eq!(log.take(), ["data 01234", "failed the client left before the reply"], "{reset}");
        }
        // It leaves while the program has not decided.
        let kept: Rc<RefCell<Vec<Request>>> = Rc::default();
        let sink = kept.clone();
        web.server.route_early(all(), "/keep", move |req| sink.borrow_mut().push(req)).unwrap();
        let client = web.client();
        client.write(HEAD.replace("/up", "/keep").as_bytes());
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 1);
        client.reset();
        web.settle_all();
        let req = kept.borrow_mut().remove(0);
        req.stream_body(None, log_body(&log));
        web.settle_all();
        if web.wire() == tests::http::Wire::Listener {
            assert_eq!(log.take(), ["failed the client left before the reply"]);
        }
        web.server.free();
    });
}

#[test]
fn a_reader_of_a_freed_server_is_told_in_the_next_turn() {
    each_web(|web| {
        let log = streamed(web, None);
        let client = web.client();
        client.write(format!("{HEAD}01234").as_bytes());
        web.bed.run_until(&mut web.base, || !log.borrow().is_empty());
        web.server.free();
        assert_eq!(log.borrow().len(), 1, "never in the call");
        web.settle_all();
        assert_eq!(log.take(), ["data 01234", "failed the server is gone"]);
    });
}

#[test]
fn what_a_callback_of_a_body_does_to_its_server_or_itself_harms_nothing() {
    each_web(|web| {
        let alive = Rc::new(());
        for act in ["free", "panic", "drop", "answer", "take"] {
            let server = event_http::Server::new(&web.base).unwrap();
            let (this, held) = (server.clone(), alive.clone());
            server
                .route_early(all(), "/up", move |req| {
                    let (this, held) = (this.clone(), held.clone());
                    let mut slot = Vec::new();
                    req.stream_body(None, move |body, event| {
                        let _ = &held;
                        if !matches!(event, BodyEvent::Data(_)) {
                            return;
                        }
                        match act {
                            "free" => this.free(),
                            "panic" => tests::quiet_panic("a body"),
                            "drop" => drop(body.take_request()),
                            "answer" => body.take_request().unwrap().send_reply(200, None, "early").unwrap(),
                            _ => slot.extend(body.take_request()),
                        }
                    });
                })
                .unwrap();
            let address = server.bind("127.0.0.1:0").unwrap().local_address().unwrap();
            let client = web.client_at(&address);
            client.write(format!("{HEAD}01234").as_bytes());
            let text = web.settle(&client);
            match act {
                "free" => assert_eq!(text, ""),
                "panic" | "drop" => assert!(text.starts_with("HTTP/1.1 500 "), "{act} {text}"),
                "answer" => assert!(text.ends_with("early"), "{text}"),
                _ => {
                    assert_eq!(text, "");
                    let text = web.ask_to_end(&client, b"56789");
                    assert!(text.starts_with("HTTP/1.1 500 "), "{text}");
                }
            }
            server.free();
            drop((server, client));
            web.settle_all();
            assert_eq!(Rc::strong_count(&alive), 1, "{act}");
        }
    });
}

#[test]
fn a_callback_that_has_answered_before_the_end_hears_no_more() {
    each_web(|web| {
        let log = Log::default();
        let sink = log.clone();
        web.server
            .route_early(all(), "/up", move |req| {
                let sink = sink.clone();
                req.stream_body(None, move |body, event| {
                    sink.borrow_mut().push(format!("{event:?}").chars().take(4).collect());
                    if let Some(req) = body.take_request() {
                        req.send_reply(200, None, "early").unwrap();
                    }
                });
            })
            .unwrap();
        let client = web.client();
        client.write(format!("{HEAD}01234").as_bytes());
        web.until(&client, |got, _| got.ends_with(b"early"));
        client.write(b"56789");
        web.settle(&client);
        drop(client);
        web.until_connections(0);
        web.settle_all();
        assert_eq!(log.take(), ["Data"]);
    });
}

#[test]
fn an_answer_may_be_streamed_while_the_body_comes() {
    each_web(|web| {
        web.page();
        web.server
            .route_early(all(), "/up", |req| {
                let mut reply = None;
                req.stream_body(None, move |body, event| match event {
                    BodyEvent::Data(piece) => {
                        if let Some(req) = body.take_request() {
                            reply = Some(req.send_reply_start(200, None).unwrap());
                        }
                        reply.as_ref().unwrap().chunk(piece).unwrap();
                    }
                    BodyEvent::End(_) => reply.take().unwrap().end().unwrap(),
                    other => panic!("{other:?}"),
                });
            })
            .unwrap();
        let client = web.client();
        client.write(format!("{HEAD}01234").as_bytes());
        web.until(&client, |got, _| got.ends_with(b"5\r\n01234\r\n"));
        client.write(b"56789");
        web.until(&client, |got, _| got.ends_with(b"5\r\n56789\r\n0\r\n\r\n"));
        client.forget();
        assert!(web.ask(&client, GET, 1).ends_with(PAGE), "the connection goes on");
    });
}

#[test]
fn a_body_that_was_read_already_is_streamed_in_one_piece() {
    each_web(|web| {
        let log = Log::default();
        let (sink, most) = (log.clone(), Rc::new(Cell::new(10)));
        let max = most.clone();
        web.server.set_gencb(move |req| {
            req.stream_body(max.get(), log_body(&sink));
            assert!(sink.borrow().is_empty(), "never in the call");
        });
        let client = web.client();
        let text = web.ask(&client, format!("{HEAD}0123456789").as_bytes(), 1);
        assert!(text.ends_with("got 10"));
        assert_eq!(log.take(), ["data 0123456789", "end {}"]);
        most.set(9);
        client.forget();
        let text = web.ask_to_end(&client, format!("{HEAD}0123456789").as_bytes());
        assert!(text.starts_with("HTTP/1.1 413 "));
        assert_eq!(log.take(), ["failed the request body is too large"]);
    });
}

#[test]
fn an_upload_has_the_handlers_time_only_when_it_is_whole() {
    each_simulated_web(|web| {
        let limits = Limits { handler_timeout: Some(Duration::from_secs(5)), ..Limits::default() };
        web.server.set_limits(limits);
        let log = streamed(web, None);
        let client = web.client();
        client.write(HEAD.as_bytes());
        for digit in 0..10 {
            web.pass(&client, Duration::from_secs(2));
            client.write(digit.to_string().as_bytes());
        }
        web.until(&client, |got, _| got.ends_with(b"got 10"));
        assert_eq!(log.take().last().unwrap(), "end {}");
        // One that has said so late has the time anew.
        let readers: Rc<RefCell<Vec<Request>>> = Rc::default();
        let sink = readers.clone();
        web.server.route_early(all(), "/late", move |req| sink.borrow_mut().push(req)).unwrap();
        client.forget();
        client.write(HEAD.replace("/up", "/late").as_bytes());
        web.pass(&client, Duration::from_secs(4));
        let req = readers.borrow_mut().remove(0);
        req.stream_body(None, log_body(&log));
        for digit in 0..10 {
            web.pass(&client, Duration::from_secs(2));
            client.write(digit.to_string().as_bytes());
        }
        web.until(&client, |got, _| got.ends_with(b"got 10"));
        // One that does not say what it wants of the body has it from the head on.
        let kept: Rc<RefCell<Vec<Request>>> = Rc::default();
        let sink = kept.clone();
        web.server.route_early(all(), "/keep", move |req| sink.borrow_mut().push(req)).unwrap();
        client.forget();
        client.write(HEAD.replace("/up", "/keep").as_bytes());
        let text = web.pass(&client, Duration::from_secs(6));
        assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
    });
}

#[test]
fn the_rest_of_a_body_may_go_to_another_callback() {
    each_web(|web| {
        let log = Log::default();
        let sink = log.clone();
        let alive = Rc::new(());
        let held = alive.clone();
        web.server
            .route_early(all(), "/up", move |req| {
                let (sink, held) = (sink.clone(), held.clone());
                req.stream_body(None, move |body, event| {
                    let _ = &held;
                    assert!(matches!(event, BodyEvent::Data(_)), "{event:?}");
                    sink.borrow_mut().push("first".into());
                    body.pause();
                    if let Some(req) = body.take_request() {
                        req.stream_body(None, log_body(&sink));
                    }
                });
            })
            .unwrap();
        let client = web.client();
        client.write(format!("{HEAD}01234").as_bytes());
        web.bed.run_until(&mut web.base, || !log.borrow().is_empty());
        assert_eq!(Rc::strong_count(&alive), 2, "the old callback is dropped");
        assert!(web.ask(&client, b"56789", 1).ends_with("got 5"));
        assert_eq!(log.take(), ["first", "data 56789", "end {}"]);
    });
}

#[test]
fn a_hook_that_gives_back_another_request_mixes_nothing_up() {
    each_web(|web| {
        let kept: Rc<RefCell<Vec<Request>>> = Rc::default();
        let sink = kept.clone();
        web.server.set_header_cb(move |req| {
            let old = sink.borrow_mut().pop();
            sink.borrow_mut().push(req);
            old
        });
        web.page();
        let first = web.client();
        first.write(HEAD.as_bytes());
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 1);
        let second = web.client();
        second.write(format!("{HEAD}0123456789").as_bytes());
        web.until(&first, |_, ended| ended);
        assert!(first.text().starts_with("HTTP/1.1 500 "));
        assert_eq!(web.settle(&second), "");
        kept.borrow_mut().remove(0).send_reply(200, None, PAGE).unwrap();
        web.until(&second, |_, ended| ended);
        assert!(second.text().ends_with(PAGE));
    });
}

#[test]
fn a_graceful_stop_lets_streamed_uploads_finish_and_closes_what_is_left_at_its_deadline() {
    each_web(|web| {
        let log = streamed(web, None);
        let client = web.client();
        client.write(format!("{HEAD}01234").as_bytes());
        web.bed.run_until(&mut web.base, || !log.borrow().is_empty());
        web.server.shutdown(Duration::from_secs(10));
        client.write(b"56789");
        web.until(&client, |_, ended| ended);
        assert!(client.text().ends_with("got 10") && client.text().contains("Connection: close\r\n"));
        assert_eq!(log.take(), ["data 0123456789", "end {}"]);
    });
    each_web(|web| {
        let log = streamed(web, None);
        let client = web.client();
        client.write(format!("{HEAD}01234").as_bytes());
        web.bed.run_until(&mut web.base, || !log.borrow().is_empty());
        web.server.shutdown(Duration::ZERO);
        web.until(&client, |_, ended| ended);
        web.settle_all();
        assert_eq!(log.take(), ["data 01234", "failed the client left before the reply"]);
    });
}
