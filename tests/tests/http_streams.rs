//! Answers in pieces: framing, lengths, trailers, room, and readers that do not read.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use event_core::Timer;
use event_http::{Limits, Reply, Request};
use tests::http::{Client, Web, each_simulated_web, each_socket_web, each_web};

const TYPE: &str = "Content-Type: text/html; charset=ISO-8859-1\r\n";

/// A stream that has begun, for a request line with fields.
fn start(web: &mut Web<'_>, request: &str, fields: &[(&str, &str)]) -> (Client, Reply) {
    let kept = web.keep();
    let client = web.client();
    client.write(format!("{request}\r\nHost: a\r\n\r\n").as_bytes());
    web.bed.run_until(&mut web.base, || kept.borrow().len() == 1);
    let mut request = kept.borrow_mut().remove(0);
    for (name, value) in fields {
        request.add_header(name, value).unwrap();
    }
    (client, request.send_reply_start(200, None).unwrap())
}

fn finish(web: &mut Web<'_>, client: &Client, end: &str) -> String {
    web.until(client, |got, ended| ended || got.ends_with(end.as_bytes()));
    web.settle(client)
}

#[test]
fn pieces_are_chunks_for_http_1_1() {
    each_web(|web| {
        let (client, mut reply) = start(web, "GET / HTTP/1.1", &[]);
        reply.chunk("hello").unwrap();
        reply.chunk("").unwrap();
        reply.chunk(vec![b'x'; 20]).unwrap();
        reply.add_trailer("X-Sum", "1").unwrap();
        assert!(reply.add_trailer("X\r\n", "1").unwrap_err().is_invalid_argument());
        reply.end().unwrap();
        let head = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{TYPE}\r\n");
        let body = format!("5\r\nhello\r\n14\r\n{}\r\n0\r\nX-Sum: 1\r\n\r\n", "x".repeat(20));
        assert_eq!(finish(web, &client, "X-Sum: 1\r\n\r\n"), head + &body);
        assert!(!client.is_ended());
    });
}

#[test]
fn pieces_go_up_to_the_close_for_http_1_0() {
    each_web(|web| {
        let (client, reply) = start(web, "GET / HTTP/1.0\r\nConnection: keep-alive", &[]);
        reply.chunk("hello").unwrap();
        reply.end().unwrap();
        web.until(&client, |_, ended| ended);
        assert_eq!(client.text(), format!("HTTP/1.1 200 OK\r\n{TYPE}Connection: close\r\n\r\nhello"));
    });
}

#[test]
fn a_length_that_is_known_is_kept_to() {
    each_web(|web| {
        let (client, reply) = start(web, "GET / HTTP/1.1", &[("Content-Length", "5")]);
        reply.chunk("hel").unwrap();
        let error = reply.chunk("lo!").unwrap_err();
        assert!(error.is_caller() && !error.is_client_gone());
        reply.chunk("lo").unwrap();
        reply.end().unwrap();
        assert_eq!(
            finish(web, &client, "hello"),
            format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n{TYPE}\r\nhello")
        );
        assert!(!client.is_ended());
        let (client, reply) = start(web, "GET / HTTP/1.1", &[("Content-Length", "5")]);
        reply.chunk("hel").unwrap();
        assert!(reply.end().unwrap_err().is_caller());
        web.until(&client, |_, ended| ended);
        assert!(client.text().ends_with("\r\n\r\nhel"));
    });
}

#[test]
fn head_and_answers_without_content_have_no_body() {
    each_web(|web| {
        let (client, reply) = start(web, "HEAD / HTTP/1.1", &[]);
        reply.chunk("hello").unwrap();
        reply.end().unwrap();
        assert_eq!(finish(web, &client, "\r\n\r\n"), format!("HTTP/1.1 200 OK\r\n{TYPE}\r\n"));
        assert!(!client.is_ended());
        for status in [204, 304] {
            web.server.set_gencb(move |req: Request| {
                let reply = req.send_reply_start(status, None).unwrap();
                reply.chunk("hello").unwrap();
                reply.end()
            });
            client.forget();
            let answer = web.ask(&client, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 1);
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.ends_with("\r\n\r\n"),
                "{answer}"
            );
            assert!(!answer.contains("Length") && !answer.contains("Transfer"), "{answer}");
        }
    });
}

#[test]
fn a_stream_that_is_dropped_or_fails_to_start_does_not_look_whole() {
    each_web(|web| {
        let (client, reply) = start(web, "GET / HTTP/1.1", &[]);
        reply.chunk("hello").unwrap();
        drop(reply);
        web.until(&client, |_, ended| ended);
        assert!(client.text().ends_with("5\r\nhello\r\n"), "{}", client.text());
        web.server.set_gencb(|req: Request| {
            assert!(req.send_reply_start(20, None).unwrap_err().is_invalid_argument());
        });
        let client = web.client();
        let answer = web.ask_to_end(&client, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
    });
}

#[test]
fn streams_of_a_pipeline_follow_each_other_from_later_turns() {
    each_web(|web| {
        let kept = web.keep();
        let client = web.client();
        client.write(b"GET /0 HTTP/1.1\r\nHost: a\r\n\r\nGET /1 HTTP/1.1\r\nHost: a\r\n\r\n");
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 2);
        let mut replies: Vec<Option<Reply>> =
            kept.take().into_iter().map(|req| Some(req.send_reply_start(200, None).unwrap())).collect();
        let turn = Cell::new(0);
        let timer = Timer::new(&web.base, move |timer| {
            let n = turn.replace(turn.get() + 1);
            if n == 3 {
                // The second ends first.
                replies[1].take().unwrap().end().unwrap();
            } else if n == 5 {
                replies[0].take().unwrap().end().unwrap();
                return;
            }
            for (index, reply) in replies.iter().enumerate() {
                if let Some(reply) = reply {
                    reply.chunk(format!("{index}{n}")).unwrap();
                }
            }
            timer.add(Duration::ZERO).unwrap();
        })
        .unwrap();
        timer.add(Duration::ZERO).unwrap();
        web.until(&client, |got, _| tests::http::answers(got, &[]).is_some_and(|(all, _)| all.len() == 2));
        let (all, left) = tests::http::answers(&client.bytes(), &[]).unwrap();
        let bodies: Vec<_> = all.iter().map(|answer| String::from_utf8_lossy(&answer.2)).collect();
        assert_eq!((bodies, left), (vec!["0001020304".into(), "101112".into()], 0));
    });
}

#[test]
fn a_reader_that_never_reads_costs_sixteen_megabytes_at_most() {
    each_socket_web(|web| {
        let (client, reply) = start(web, "GET / HTTP/1.1", &[]);
        let mut sent = 0;
        let error = loop {
            match reply.chunk(vec![b'x'; 1 << 16]) {
                Ok(()) => sent += 1 << 16,
                Err(error) => break error,
            }
            assert!(reply.pending_output() <= (16 << 20) + (1 << 17), "{}", reply.pending_output());
            if sent % (1 << 20) == 0 {
                web.bed.settle(&mut web.base);
            }
            assert!(sent < 64 << 20);
        };
        assert!(error.is_ours() && sent >= 16 << 20, "{error:?} after {sent}");
        assert!(!reply.has_room());
        assert!(reply.chunk("more").unwrap_err().is_client_gone());
        web.until_connections(0);
        drop(client);
    });
}

#[test]
fn a_producer_that_asks_for_room_holds_little_for_a_slow_reader() {
    each_simulated_web(|web| {
        let (client, reply) = start(web, "GET / HTTP/1.1", &[]);
        let reply = Rc::new(RefCell::new(Some(reply)));
        let (most, left) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(100)));
        let (handle, peak, rounds) = (reply.clone(), most.clone(), left.clone());
        reply.borrow().as_ref().unwrap().on_room(move || {
            while rounds.get() > 0 && handle.borrow().as_ref().unwrap().has_room() {
                handle.borrow().as_ref().unwrap().chunk(vec![b'x'; 100_000]).unwrap();
                rounds.set(rounds.get() - 1);
                peak.set(peak.get().max(handle.borrow().as_ref().unwrap().pending_output()));
            }
            if rounds.get() == 0 {
                let reply = handle.borrow_mut().take();
                reply.unwrap().end().unwrap();
            }
        });
        // 64 KiB a second.
        for _ in 0..400 {
            client.read();
            web.bed.pass(&mut web.base, Duration::from_secs(1));
            if client.bytes().ends_with(b"\r\n0\r\n\r\n") {
                break;
            }
        }
        assert!(client.bytes().ends_with(b"\r\n0\r\n\r\n"), "a slow reader is served to the end");
        assert!(most.get() < 1_200_000, "{} bytes were held", most.get());
    });
}

#[test]
fn an_answer_until_the_close_that_is_cut_off_ends_in_a_reset_and_one_that_is_whole_in_an_end() {
    tests::each_backend(|bed| {
        for how in ["whole", "dropped", "server freed", "server stopped at once"] {
            for over_pair in [false, true] {
                let mut base = bed.base();
                let server = event_http::Server::new(&base).unwrap();
                let kept: Rc<RefCell<Option<Reply>>> = Rc::default();
                let sink = kept.clone();
                server.set_gencb(move |req: Request| {
                    let reply = req.send_reply_start(200, None).unwrap();
                    reply.chunk("half of it").unwrap();
                    *sink.borrow_mut() = Some(reply);
                });
                let client = if over_pair {
                    let (ours, theirs) = event_core::BufferEvent::pair(&base).unwrap();
                    server.serve(theirs);
                    ours
                } else {
                    let address = server.bind("127.0.0.1:0").unwrap().local_address().unwrap();
                    event_core::BufferEvent::connect(&base, &address).unwrap()
                };
                let seen = tests::streams::Seen::new();
                client.set_callbacks(tests::streams::Recorder::patient(&seen));
                client.enable(event_core::Direction::READ).unwrap();
                client.write("GET / HTTP/1.0\r\n\r\n").unwrap();
                bed.run_until(&mut base, || kept.borrow().is_some());
                bed.settle(&mut base);
                let reply = kept.borrow_mut().take().unwrap();
                match how {
                    "whole" => reply.end().unwrap(),
                    "dropped" => drop(reply),
                    "server freed" => server.free(),
                    _ => {
                        server.shutdown(Duration::ZERO);
                        server.shutdown(Duration::ZERO);
                    }
                }
                let is_end = |line: &String| line.starts_with("reading ");
                bed.run_until(&mut base, || seen.all().iter().any(is_end));
                let all = seen.take();
                let expected = if how == "whole" { "reading eof" } else { "reading error" };
                assert_eq!(all.last().unwrap(), expected, "{how}, {all:?}, over a pair: {over_pair}");
                client.free();
                server.free();
            }
        }
    });
}

#[test]
fn what_counts_as_room_and_as_too_much_is_the_programs_to_say() {
    each_socket_web(|web| {
        let limits = Limits { room: 1000, max_output_bytes: Some(8 << 20), ..Limits::default() };
        web.server.set_limits(limits);
        let (client, reply) = start(web, "GET / HTTP/1.1", &[]);
        reply.chunk(vec![b'x'; 700]).unwrap();
        assert!(reply.has_room());
        reply.chunk(vec![b'x'; 700]).unwrap();
        assert!(!reply.has_room());
        web.settle(&client);
        assert!(reply.has_room());
        let mut sent = 0;
        while reply.chunk(vec![b'x'; 1 << 18]).is_ok() {
            sent += 1 << 18;
            assert!(sent < 16 << 20);
        }
        assert!(sent >= 8 << 20);
        web.until_connections(0);
    });
}
