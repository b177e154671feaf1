//! Interim answers, and connections that go on as another protocol.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use event_core::{BufferEvent, StreamEvent};
use event_http::{Headers, Method, MethodSet, Request};
use tests::http::{PAGE, Web, each_web};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const OFFER: &str =
    "GET /w HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: echo, other/2\r\n\r\n";
const TUNNEL: &str = "CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n";
const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n";

fn links() -> Headers {
    let mut headers = Headers::new();
    headers.add("Link", "</a.css>; rel=preload").unwrap();
    headers.add("Content-Length", "5").unwrap();
    headers.add("Transfer-Encoding", "chunked").unwrap();
    headers
}

/// Sends back what comes, in capitals.
fn echo(stream: &BufferEvent) {
    stream.set_read_cb(|stream| {
        let text = stream.read_buffer().to_vec().to_ascii_uppercase();
        stream.write(text).unwrap();
    });
}

fn with_connect(web: &Web<'_>) {
    web.server.set_allowed_methods(MethodSet::default() | Method::CONNECT);
}

#[test]
fn interim_answers_precede_the_answer_in_its_turn() {
    each_web(|web| {
        let kept = web.keep();
        let client = web.client();
        client.write(GET.repeat(2).as_bytes());
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 2);
        let (first, second) = {
            let mut kept = kept.borrow_mut();
            (kept.remove(0), kept.remove(0))
        };
        second.send_interim(103, &links()).unwrap();
        first.send_interim(102, &Headers::new()).unwrap();
        assert_eq!(web.settle(&client), "HTTP/1.1 102 Processing\r\n\r\n");
        for status in [99, 101, 200] {
            let refused = first.send_interim(status, &Headers::new());
            assert!(refused.is_err_and(|error| error.is_invalid_argument()), "{status}");
        }
        first.send_reply(200, None, "one").unwrap();
        let text = web.settle(&client);
        let early = "one".to_owned() + "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n";
        assert!(text.ends_with(&early), "{text}");
        let reply = second.send_reply_start(200, None).unwrap();
        reply.end().unwrap();
        web.until(&client, |got, _| got.ends_with(b"0\r\n\r\n"));
    });
}

#[test]
fn an_http_1_0_client_gets_no_interim_answer_and_one_that_waits_gets_one_100() {
    each_web(|web| {
        web.server
            .route_early(MethodSet::default(), "/*", |req: Request| {
                req.send_interim(103, &Headers::new()).unwrap();
                req.send_interim(100, &Headers::new()).unwrap();
                req.stream_body(None, |body, event| {
                    if let event_http::BodyEvent::End(_) = event {
                        body.take_request().unwrap().send_reply(200, None, PAGE).unwrap();
                    }
                });
            })
            .unwrap();
        let client = web.client();
        let text = web.ask_to_end(&client, b"GET / HTTP/1.0\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 200 "));
        let client = web.client();
        client.write(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
        web.until(&client, |got, _| got.ends_with(b"100 Continue\r\n\r\n"));
        let text = web.ask(&client, b"ok", 3);
        assert_eq!(text.matches("HTTP/1.1 100 ").count(), 1, "{text}");
        assert!(text.ends_with(PAGE));
    });
}

#[test]
fn a_connection_goes_on_as_the_other_protocol_with_what_was_read() {
    each_web(|web| {
        let log: Rc<RefCell<Vec<String>>> = Rc::default();
        let sink = log.clone();
        web.server
            .route(Method::GET, "/w", move |req: Request| {
                let (done, took) = (sink.clone(), sink.clone());
                req.on_complete(move |completion| done.borrow_mut().push(format!("{completion:?}")));
                req.upgrade(move |stream| {
                    took.borrow_mut().push(format!("took {}", stream.pending_input()));
                    echo(&stream);
                })
            })
            .unwrap();
        web.page();
        let client = web.client();
        client.write(format!("{GET}{OFFER}raw").as_bytes());
        web.until(&client, |got, _| got.ends_with(b"RAW"));
        let text = client.text();
        assert!(text.contains(&format!("{PAGE}{SWITCHED}")), "{text}");
        assert_eq!(log.take(), ["Sent", "took 3"]);
        assert_eq!(web.server.connection_count(), 0);
        // It is nobody's but the program's.
        web.server.free();
        client.forget();
        client.write(b"more");
        web.until(&client, |got, _| got == b"MORE");
        client.finish();
        web.until(&client, |_, ended| ended);
    });
}

#[test]
fn a_tunnel_begins_behind_the_200_to_a_connect() {
    each_web(|web| {
        with_connect(web);
        let kept = web.keep();
        let client = web.client();
        client.write(format!("{TUNNEL}raw").as_bytes());
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 1);
        let request = kept.borrow_mut().remove(0);
        request.upgrade(|stream| echo(&stream)).unwrap();
        assert_eq!(client.text(), "", "never in the call");
        web.until(&client, |got, _| got.ends_with(b"RAW"));
        assert_eq!(client.text(), "HTTP/1.1 200 OK\r\n\r\nRAW");
    });
}

#[test]
fn an_upgrade_has_its_turn() {
    each_web(|web| {
        let kept = web.keep();
        let client = web.client();
        client.write(format!("{GET}{OFFER}raw").as_bytes());
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 2);
        let offer = kept.borrow_mut().remove(1);
        offer.upgrade(|stream| echo(&stream)).unwrap();
        assert_eq!(web.settle(&client), "");
        kept.borrow_mut().remove(0).send_reply(200, None, PAGE).unwrap();
        web.until(&client, |got, _| got.ends_with(b"RAW"));
        assert!(client.text().contains(&format!("{PAGE}{SWITCHED}RAW")));
    });
}

#[test]
fn a_handler_that_is_called_early_may_upgrade() {
    each_web(|web| {
        web.server
            .route_early(Method::GET, "/w", |req: Request| req.upgrade(|stream| echo(&stream)))
            .unwrap();
        let client = web.client();
        client.write(format!("{OFFER}raw").as_bytes());
        web.until(&client, |got, _| got.ends_with(b"RAW"));
    });
}

#[test]
fn what_was_not_offered_cannot_be_accepted() {
    each_web(|web| {
        web.server.set_gencb(|req: Request| {
            let refused = req.upgrade(|_| panic!("nothing was offered"));
            assert!(refused.is_err_and(|error| error.is_caller()));
        });
        web.server
            .route_early(Method::PUT, "/put", |req: Request| {
                let refused = req.upgrade(|_| panic!("its body is still to come"));
                assert!(refused.is_err_and(|error| error.is_caller()));
            })
            .unwrap();
        let closing = OFFER.replace("keep-alive", "close");
        let body = OFFER.replace("GET /w", "PUT /put").replace("\r\n\r\n", "\r\nContent-Length: 3\r\n\r\n");
        for request in [GET, &closing, &body] {
            let client = web.client();
            let text = web.ask_to_end(&client, request.as_bytes());
            assert!(text.starts_with("HTTP/1.1 500 "), "{request} {text}");
        }
    });
}

#[test]
fn an_answer_that_switches_without_an_upgrade_ends_the_connection() {
    each_web(|web| {
        with_connect(web);
        web.server.set_gencb(|req: Request| {
            let status = if *req.method() == Method::CONNECT { 200 } else { 101 };
            req.send_reply(status, None, "")
        });
        for request in [OFFER, TUNNEL] {
            let client = web.client();
            let text = web.ask_to_end(&client, format!("{request}{GET}").as_bytes());
            assert!(
                text.contains("Connection: close\r\n") && text.matches("HTTP/1.1").count() == 1,
                "{text}"
            );
        }
    });
}

#[test]
fn a_client_that_leaves_first_or_a_panic_leaves_nothing() {
    each_web(|web| {
        let alive = Rc::new(());
        let kept = web.keep();
        let client = web.client();
        client.write(OFFER.as_bytes());
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 1);
        let request = kept.borrow_mut().remove(0);
        let held = alive.clone();
        request.upgrade(move |_| drop(held)).unwrap();
        client.reset();
        web.until_connections(0);
        web.settle_all();
        assert_eq!(Rc::strong_count(&alive), 1);

        let client = web.client();
        client.write(OFFER.as_bytes());
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 1);
        let request = kept.borrow_mut().remove(0);
        let held = alive.clone();
        request
            .upgrade(move |_| {
                let _held = held;
                tests::quiet_panic("an upgrade")
            })
            .unwrap();
        web.until(&client, |_, ended| ended);
        // A server freed in between drops the callback.
        let client = web.client();
        client.write(OFFER.as_bytes());
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 1);
        let request = kept.borrow_mut().remove(0);
        let held = alive.clone();
        request.upgrade(move |_| drop(held)).unwrap();
        web.server.free();
        web.until(&client, |_, ended| ended);
        assert_eq!(Rc::strong_count(&alive), 1);
    });
}

#[test]
fn a_stream_that_was_handed_over_keeps_its_own_time_and_end() {
    each_web(|web| {
        let events: Rc<RefCell<Vec<StreamEvent>>> = Rc::default();
        let sink = events.clone();
        web.server
            .route(Method::GET, "/w", move |req: Request| {
                let sink = sink.clone();
                req.upgrade(move |stream| {
                    echo(&stream);
                    stream.set_event_cb(move |stream, event| {
                        sink.borrow_mut().push(event);
                        stream.free();
                    });
                })
            })
            .unwrap();
        let client = web.client();
        client.write(OFFER.as_bytes());
        web.until(&client, |got, _| !got.is_empty());
        if web.bed.sim().is_some() {
            web.pass(&client, Duration::from_secs(600));
            assert!(!client.is_ended(), "no deadline of HTTP is left");
        }
        client.finish();
        web.bed.run_until(&mut web.base, || !events.borrow().is_empty());
        assert!(events.borrow()[0].contains(StreamEvent::EOF));
    });
}

#[test]
fn an_end_that_came_with_the_offer_is_told_to_who_gets_the_stream() {
    each_web(|web| {
        let kept = web.keep();
        let events: Rc<RefCell<Vec<&str>>> = Rc::default();
        let sink = events.clone();
        let client = web.client();
        client.write(format!("{OFFER}raw").as_bytes());
        client.finish();
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 1);
        let request = kept.borrow_mut().remove(0);
        request
            .upgrade(move |stream| {
                let (read, ended) = (sink.clone(), sink);
                stream.set_read_cb(move |stream| {
                    let len = stream.read_buffer().len();
                    read.borrow_mut().push(if len == 3 { "read" } else { "nothing" });
                    stream.write("bye").unwrap();
                });
                stream.set_event_cb(move |stream, event| {
                    ended.borrow_mut().push(if event.contains(StreamEvent::EOF) { "end" } else { "other" });
                    stream.close_after_flush();
                });
            })
            .unwrap();
        web.until(&client, |_, ended| ended);
        assert_eq!(client.text(), format!("{SWITCHED}bye"));
        assert_eq!(events.borrow()[..2], ["read", "end"]);
    });
}
