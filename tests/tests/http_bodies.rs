//! Bodies of requests: lengths, chunks, trailers, `Expect`, and what is too large.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use event_core::{Address, EventBase};
use event_http::{Limits, Request, Server};
use tests::http::{Web, each_simulated_web, each_socket_web, each_web};

const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

/// Answers with what came: body, then trailers.
fn echo(web: &Web<'_>) {
    web.server.set_gencb(|mut req: Request| {
        let mut body = req.take_body();
        for (name, value) in req.trailers().iter() {
            write!(body, "+{name}={value}");
            assert!(req.header(name).is_none(), "a trailer is no header");
        }
        req.send_reply(200, None, body)
    });
}

fn body_of(answer: &str) -> &str {
    answer.rsplit_once("\r\n\r\n").map_or("", |(_, body)| body)
}

#[test]
fn bodies_arrive_whole_by_length_and_by_chunks() {
    each_web(|web| {
        echo(web);
        let client = web.client();
        let big = "y".repeat(300_000);
        for (fields, body, expected) in [
            ("Content-Length: 5\r\n", "hello".to_string(), "hello".to_string()),
            ("Content-Length: 0\r\n", String::new(), String::new()),
            ("", String::new(), String::new()),
            (
                "Transfer-Encoding: chunked\r\n",
                "5\r\nhello\r\n6; a=b\r\n world\r\n0\r\n\r\n".into(),
                "hello world".into(),
            ),
            (
                "Transfer-Encoding: Chunked\r\n",
                "0\r\nX-A: 1\r\nx-b:  2 \r\n\r\n".into(),
                "+X-A=1+x-b=2".into(),
            ),
            ("Content-Length: 300000\r\n", big.clone(), big.clone()),
            ("Transfer-Encoding: chunked\r\n", format!("493E0\r\n{big}\r\n0\r\n\r\n"), big.clone()),
        ] {
            client.forget();
            let request = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n{body}").into_bytes();
            let mut at = 0;
            web.until(&client, |got, ended| {
                assert!(!ended, "{fields}");
                if at < request.len() {
                    at += client.write_some(&request[at..]);
                }
                tests::http::answers(got, &[]).is_some_and(|(all, _)| all.len() == 1)
            });
            assert_eq!(body_of(&client.text()), expected, "{fields}");
        }
    });
}

#[test]
fn a_body_in_small_pieces_holds_little_more_than_its_bytes() {
    const LEN: usize = tests::few_under_miri(3000, 200);
    each_simulated_web(|web| {
        let kept = web.keep();
        let client = web.client();
        client.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: ");
        client.write(format!("{LEN}\r\n\r\n").as_bytes());
        for _ in 0..LEN {
            client.write(b"z");
            web.bed.settle(&mut web.base);
        }
        let request = kept.borrow_mut().remove(0);
        assert_eq!(request.body().len(), LEN);
        assert!(request.body().held() <= 4 * LEN, "{} bytes are held for {LEN}", request.body().held());
    });
}

#[test]
fn continue_is_sent_only_to_who_waits_for_it() {
    each_web(|web| {
        echo(web);
        let expect = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
        let client = web.client();
        client.write(expect.as_bytes());
        web.until(&client, |got, _| got == CONTINUE.as_bytes());
        client.write(b"ok");
        web.until(&client, |got, _| got.ends_with(b"ok"));
        assert!(client.text().starts_with(&format!("{CONTINUE}HTTP/1.1 200 OK\r\n")));
        // The body is there already, in part or as a whole.
        for (first, second) in [("ok", ""), ("o", "k")] {
            client.forget();
            client.write(format!("{expect}{first}").as_bytes());
            web.settle(&client);
            client.write(second.as_bytes());
            web.until(&client, |got, _| got.ends_with(b"ok"));
            assert!(client.text().starts_with("HTTP/1.1 200 OK\r\n"), "{}", client.text());
        }
        // HTTP/1.0 knows no 100.
        let client = web.client();
        client.write(expect.replace("1.1", "1.0").as_bytes());
        assert_eq!(web.settle(&client), "");
        client.write(b"ok");
        web.until(&client, |_, ended| ended);
        assert!(client.text().starts_with("HTTP/1.1 200 OK\r\n"));
        // Nothing to wait for.
        let client = web.client();
        let answer = web.ask(&client, expect.replace("th: 2", "th: 0").as_bytes(), 1);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    });
}

#[test]
fn a_refusal_comes_instead_of_a_continue() {
    each_web(|web| {
        echo(web);
        web.server.set_limits(Limits { max_body_bytes: Some(10), ..Limits::default() });
        for (fields, status) in [
            ("Content-Length: 11\r\nExpect: 100-continue\r\n", 413),
            ("Content-Length: 2\r\nExpect: 200-ok\r\n", 417),
        ] {
            let client = web.client();
            client.write(format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n").as_bytes());
            web.until(&client, |_, ended| ended);
            assert!(client.text().starts_with(&format!("HTTP/1.1 {status} ")), "{}", client.text());
        }
    });
}

#[test]
fn a_body_that_is_too_large_is_refused_before_it_is_read() {
    each_web(|web| {
        let kept = web.keep();
        web.server.set_limits(Limits { max_body_bytes: Some(10), ..Limits::default() });
        for request in [
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n01234567890",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nfffffffffffffffe\r\n",
        ] {
            let client = web.client();
            let answer = web.ask_to_end(&client, request.as_bytes());
            assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("Connection: close"), "{answer}");
        }
        assert!(kept.borrow().is_empty());
        let client = web.client();
        client.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789");
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 1);
    });
}

#[test]
fn a_client_that_is_still_sending_reads_its_413() {
    each_socket_web(|web| {
        web.page();
        web.server.set_limits(Limits { max_body_bytes: Some(10), ..Limits::default() });
        let client = web.client();
        client.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 500000\r\n\r\n");
        let mut sent = 0;
        web.until(&client, |_, ended| {
            if sent < 500_000 {
                sent += client.write_some(&[b'x'; 5_000]);
            }
            ended
        });
        assert!(client.text().starts_with("HTTP/1.1 413 "), "{}", client.text());
        client.finish();
        web.until_connections(0);
    });
}

#[test]
#[cfg_attr(miri, ignore = "real sockets")]
fn a_blocking_client_that_writes_everything_first_reads_its_413() {
    for method in EventBase::supported_methods() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let name = method;
        let server = std::thread::spawn(move || {
            let config = EventBase::supported_methods()
                .filter(|other| *other != name)
                .fold(event_core::Config::new().ignore_env(), event_core::Config::avoid_method);
            let mut base = EventBase::with_config(config).unwrap();
            let server = Server::new(&base).unwrap();
            server.set_limits(Limits { max_body_bytes: Some(1000), ..Limits::default() });
            server.set_gencb(|req: Request| req.send_reply(200, None, "stop"));
            let stop = server.clone();
            server
                .set_cb("/stop", move |req: Request| {
                    stop.shutdown(Duration::from_secs(1));
                    req.send_reply(200, None, "stopping")
                })
                .unwrap();
            sender
                .send(server.bind("127.0.0.1:0").unwrap().local_address().unwrap().socket_addr().unwrap())
                .unwrap();
            base.dispatch().unwrap();
        });
        let address = receiver.recv().unwrap();
        for _ in 0..20 {
            let mut client = TcpStream::connect(address).unwrap();
            client.set_read_timeout(Some(tests::PATIENCE)).unwrap();
            client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\n").unwrap();
            for _ in 0..90 {
                client.write_all(&[b'x'; 10_000]).unwrap();
            }
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
            let _ = client.shutdown(Shutdown::Both);
        }
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"GET /stop HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("stopping"));
        server.join().unwrap();
    }
}

#[test]
fn a_client_that_leaves_inside_its_body_is_not_served() {
    each_web(|web| {
        let kept = web.keep();
        let client = web.client();
        client.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n01234");
        web.settle(&client);
        client.finish();
        web.until_connections(0);
        assert!(kept.borrow().is_empty());
        web.until(&client, |_, ended| ended);
        assert_eq!(client.text(), "");
    });
}

#[test]
fn a_peer_may_have_no_address() {
    each_socket_web(|web| {
        if web.bed.sim().is_some() {
            return;
        }
        web.server.set_gencb(|req: Request| {
            assert!(matches!(req.peer(), Address::Unix(_)));
            req.send_reply(200, None, "unix")
        });
        let (stream, peer) = web.bed.stream(&web.base);
        web.server.serve(stream);
        peer.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let got = std::cell::RefCell::new(Vec::new());
        web.bed.run_until(&mut web.base, || {
            got.borrow_mut().extend(peer.read().0);
            got.borrow().ends_with(b"unix")
        });
    });
}

#[test]
fn a_request_may_lie_across_blocks_anywhere() {
    tests::each_backend(|bed| {
        let mut web = Web::new(bed, tests::http::Wire::Pair);
        echo(&web);
        let request = "\r\nPOST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                       5\r\nhello\r\n6\r\n world\r\n0\r\nX: 1\r\n\r\n";
        for at in (1..request.len()).step_by(tests::few_under_miri(1, 10)) {
            let client = web.client();
            let mut buffer = event_core::Buffer::new();
            for part in [&request[..at], &request[at..]] {
                buffer.add_reference(event_core::Bytes::from(part.to_string()));
            }
            client.write_buffer(buffer);
            web.until(&client, |got, _| got.ends_with(b"hello world+X=1"));
        }
    });
}
