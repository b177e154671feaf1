//! Requests that another thread answers.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use event_core::{BufferEvent, LoopEnd};
use event_http::{Deferred, DeferredReply, Request, Server};
use tests::http::{Client, PAGE, Web, Wire, answers, block_that, each_socket_web, each_web};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn is_send<T: Send>() {}

#[test]
fn tokens_may_go_to_any_thread() {
    is_send::<Deferred>();
    is_send::<DeferredReply>();
}

#[test]
fn fields_that_were_added_before_the_request_was_deferred_are_in_the_answer() {
    each_web(|web| {
        let (sender, tokens) = channel();
        web.server.set_gencb(move |mut req: Request| {
            req.add_header("X-From", "handler").unwrap();
            sender.send(req.defer()).unwrap();
        });
        let client = web.client();
        for streams in [false, true] {
            client.forget();
            client.write(GET);
            let token = RefCell::new(None);
            web.bed.run_until(&mut web.base, || {
                *token.borrow_mut() = tokens.try_recv().ok();
                token.borrow().is_some()
            });
            let mut token: Deferred = token.take().unwrap();
            token.add_header("X-By", "thread").unwrap();
            if streams {
                token.send_reply_start(200, None).unwrap().end().unwrap();
            } else {
                token.send_reply(200, None, PAGE).unwrap();
            }
            web.until(&client, |got, _| answers(got, &[]).is_some_and(|(all, _)| all.len() == 1));
            let answer = client.text();
            assert!(answer.contains("\r\nX-From: handler\r\nX-By: thread\r\n"), "{answer}");
        }
    });
}

#[test]
fn a_deferred_request_does_not_keep_its_body() {
    each_web(|web| {
        if web.wire() != Wire::Pair {
            return;
        }
        // Over a pair a large block reaches the request as it is, so that its drop can be seen.
        let dropped = Rc::new(Cell::new(false));
        let tokens = defer(web);
        let client = web.client();
        client.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
        let seen = dropped.clone();
        client.write_buffer(block_that(100_000, move || seen.set(true)));
        let token = RefCell::new(None);
        web.bed.run_until(&mut web.base, || {
            *token.borrow_mut() = tokens.try_recv().ok();
            token.borrow().is_some()
        });
        assert!(dropped.get(), "nobody can ask for it any more");
        token.take().unwrap().send_reply(200, None, PAGE).unwrap();
        web.until(&client, |got, _| answers(got, &[]).is_some_and(|(all, _)| all.len() == 1));
    });
}

#[test]
fn a_panic_in_the_drop_of_what_a_token_sent_loses_no_other_answer() {
    each_web(|web| {
        let (first, token) = out(web);
        let (second, other) = out(web);
        token.send_reply(200, None, block_that(100, || panic!("a block's drop fails"))).unwrap();
        web.settle(&first);
        other.send_reply(200, None, PAGE).unwrap();
        web.until(&second, |got, _| answers(got, &[]).is_some_and(|(all, _)| all.len() == 1));
        assert!(second.text().ends_with(PAGE));
    });
}

/// Has every request deferred and its token sent to whoever holds the receiver.
fn defer(web: &Web<'_>) -> Receiver<Deferred> {
    let (sender, receiver): (Sender<Deferred>, _) = channel();
    web.server.set_gencb(move |req: Request| {
        let _ = sender.send(req.defer());
    });
    receiver
}

/// A deferred request and its client.
fn out(web: &mut Web<'_>) -> (Client, Deferred) {
    let tokens = defer(web);
    let client = web.client();
    client.write(GET);
    let token = RefCell::new(None);
    web.bed.run_until(&mut web.base, || {
        *token.borrow_mut() = tokens.try_recv().ok();
        token.borrow().is_some()
    });
    (client, token.take().unwrap())
}

#[test]
fn a_thread_answers_and_the_connection_goes_on() {
    each_web(|web| {
        let tokens = defer(web);
        let worker = thread::spawn(move || {
            for mut token in tokens {
                token.add_header("X-From", "thread").unwrap();
                token.send_reply(201, "Made", PAGE).unwrap();
            }
        });
        let client = web.client();
        for _ in 0..3 {
            client.forget();
            let answer = web.ask(&client, GET, 1);
            assert!(answer.starts_with("HTTP/1.1 201 Made\r\nX-From: thread\r\n"), "{answer}");
            assert!(answer.ends_with(PAGE));
        }
        web.server.free();
        worker.join().unwrap();
    });
}

#[test]
fn a_thread_streams() {
    const PIECES: u32 = tests::few_under_miri(100, 10);
    each_web(|web| {
        let (client, token) = out(web);
        let worker = thread::spawn(move || {
            let reply = token.send_reply_start(200, None).unwrap();
            for n in 0..PIECES {
                reply.chunk(format!("{n},")).unwrap();
            }
            assert!(!reply.is_gone());
            reply.end().unwrap();
        });
        web.until(&client, |got, _| answers(got, &[]).is_some_and(|(all, _)| all.len() == 1));
        worker.join().unwrap();
        let (all, left) = answers(&client.bytes(), &[]).unwrap();
        let body: String = (0..PIECES).map(|n| format!("{n},")).collect();
        assert_eq!((all[0].2.as_slice(), left), (body.as_bytes(), 0));
        assert!(!client.is_ended());
    });
}

#[test]
fn a_token_that_is_dropped_or_whose_thread_panics_answers_500() {
    each_web(|web| {
        let (client, token) = out(web);
        drop(token);
        web.until(&client, |_, ended| ended);
        assert!(client.text().starts_with("HTTP/1.1 500 Internal Server Error\r\n"));
        let (client, token) = out(web);
        let worker = thread::spawn(move || {
            let _token = token;
            panic!("a worker fails");
        });
        assert!(worker.join().is_err());
        web.until(&client, |_, ended| ended);
        assert!(client.text().starts_with("HTTP/1.1 500 Internal Server Error\r\n"));
    });
}

#[test]
fn a_stream_that_a_thread_drops_does_not_look_whole() {
    each_web(|web| {
        let (client, token) = out(web);
        let reply = token.send_reply_start(200, None).unwrap();
        reply.chunk("half").unwrap();
        drop(reply);
        web.until(&client, |_, ended| ended);
        assert!(client.text().ends_with("\r\n4\r\nhalf\r\n"), "{}", client.text());
    });
}

#[test]
fn a_bad_status_or_reason_becomes_500() {
    each_web(|web| {
        let (client, token) = out(web);
        assert!(token.send_reply(99, None, "").unwrap_err().is_invalid_argument());
        web.until(&client, |_, ended| ended);
        assert!(client.text().starts_with("HTTP/1.1 500 "));
        let (client, token) = out(web);
        token.send_reply(200, "a\r\nX: y", "").unwrap();
        web.until(&client, |_, ended| ended);
        assert!(client.text().starts_with("HTTP/1.1 500 ") && !client.text().contains("X: y"));
    });
}

#[test]
fn a_reset_is_known_to_the_token_and_its_answer_is_harmless() {
    each_socket_web(|web| {
        let (client, token) = out(web);
        assert!(!token.is_gone());
        client.reset();
        web.bed.run_until(&mut web.base, || token.is_gone());
        assert!(token.send_reply(200, None, "late").unwrap_err().is_client_gone());
        web.bed.settle(&mut web.base);
        let (client, token) = out(web);
        let reply = token.send_reply_start(200, None).unwrap();
        reply.chunk("x").unwrap();
        web.until(&client, |got, _| got.ends_with(b"x\r\n"));
        client.reset();
        web.bed.run_until(&mut web.base, || reply.is_gone());
        assert!(reply.chunk("y").unwrap_err().is_client_gone());
        assert!(reply.end().unwrap_err().is_client_gone());
        web.bed.settle(&mut web.base);
    });
}

#[test]
fn tokens_outlive_their_server_and_their_loop() {
    each_web(|web| {
        let (client, token) = out(web);
        web.server.free();
        assert!(token.is_gone());
        assert!(token.send_reply(200, None, "late").is_err());
        web.until(&client, |_, ended| ended);
        assert!(client.bytes().is_empty());
        // After the server: the request is answered 500 where it can be, and the token says so.
        let server = Server::new(&web.base).unwrap();
        web.server = server.clone();
        let (ours, _theirs) = BufferEvent::pair(&web.base).unwrap();
        let tokens = defer(web);
        server.serve(ours.clone());
        ours.partner().unwrap().write(GET).unwrap();
        web.bed.settle(&mut web.base);
        let token = tokens.try_recv().unwrap();
        let other = web.bed.base();
        drop(std::mem::replace(&mut web.base, other));
        assert!(token.is_gone());
        thread::spawn(move || assert!(token.send_reply(200, None, "late").is_err())).join().unwrap();
    });
}

#[test]
fn a_deferred_request_keeps_the_loop_running_until_it_is_answered() {
    each_socket_web(|web| {
        if let Some(sim) = web.bed.sim() {
            sim.set_patience(std::time::Duration::from_secs(5));
        }
        let server = web.server.clone();
        web.server.set_gencb(move |req: Request| {
            server.shutdown(std::time::Duration::from_secs(10));
            let token = req.defer();
            thread::spawn(move || {
                thread::yield_now();
                token.send_reply(200, None, PAGE)
            });
        });
        let client = web.client();
        client.write(GET);
        assert_eq!(web.base.dispatch().unwrap(), LoopEnd::Empty);
        client.read();
        assert!(
            client.text().ends_with(PAGE) && client.text().contains("Connection: close"),
            "{}",
            client.text()
        );
        assert!(client.is_ended());
    });
}

#[test]
fn many_are_out_at_once_and_each_client_gets_its_own_answer() {
    const CLIENTS: usize = tests::few_under_miri(25, 4);
    each_web(|web| {
        let (sender, tokens) = channel::<(String, Deferred)>();
        web.server.set_gencb(move |req: Request| {
            let path = req.path().to_string();
            let _ = sender.send((path, req.defer()));
        });
        let worker = thread::spawn(move || {
            let mut batch = Vec::new();
            for token in tokens {
                batch.push(token);
                if batch.len() == 2 * CLIENTS {
                    while let Some((path, token)) = batch.pop() {
                        token.send_reply(200, None, path).unwrap();
                    }
                }
            }
        });
        let clients: Vec<Client> = (0..CLIENTS).map(|_| web.client()).collect();
        for (n, client) in clients.iter().enumerate() {
            let both = format!("GET /{n}a HTTP/1.1\r\nHost: a\r\n\r\nGET /{n}b HTTP/1.1\r\nHost: a\r\n\r\n");
            client.write(both.as_bytes());
        }
        for (n, client) in clients.iter().enumerate() {
            web.until(client, |got, _| answers(got, &[]).is_some_and(|(all, _)| all.len() == 2));
            let (all, _) = answers(&client.bytes(), &[]).unwrap();
            let bodies: Vec<_> = all.iter().map(|answer| String::from_utf8_lossy(&answer.2)).collect();
            assert_eq!(bodies, [format!("/{n}a"), format!("/{n}b")]);
        }
        web.server.free();
        worker.join().unwrap();
    });
}

#[test]
fn a_piece_whose_drop_frees_the_server_leaves_nothing_parked() {
    each_web(|web| {
        let (client, token) = out(web);
        let reply = token.send_reply_start(200, None).unwrap();
        // Small, so that it is copied and dropped inside the call that sends it.
        let server = web.server.clone();
        reply.chunk(block_that(100, move || server.free())).unwrap();
        web.until(&client, |_, ended| ended);
        assert_eq!(web.base.dispatch().unwrap(), LoopEnd::Empty, "nothing is parked that holds the loop");
        assert!(reply.is_gone());
    });
}

#[test]
fn a_thread_that_waits_for_room_holds_little_for_a_slow_reader() {
    each_web(|web| {
        let (client, token) = out(web);
        let len = tests::few_under_miri(20 << 20, 2 << 20);
        let worker = thread::spawn(move || {
            let mut reply = token.send_reply_start(200, None).unwrap();
            let mut most = 0;
            for _ in 0..len >> 16 {
                assert!(reply.wait_for_room(None).unwrap());
                reply.chunk(vec![b'x'; 1 << 16]).unwrap();
                most = most.max(reply.pending_output());
            }
            reply.add_trailer("X-Sum", "x").unwrap();
            reply.end().unwrap();
            most
        });
        web.until(&client, |got, _| got.ends_with(b"\r\n0\r\nX-Sum: x\r\n\r\n"));
        let most = worker.join().unwrap();
        // What it waits for, one piece more, and what frames it.
        assert!(most <= (1 << 20) + (1 << 16) + (1 << 10), "{most}");
        let (all, left) = answers(&client.bytes(), &[]).unwrap();
        assert_eq!((all[0].2.len(), left), (len, 0));
    });
}

#[test]
fn a_thread_that_waits_for_a_reader_that_does_not_read_is_woken_by_its_end() {
    each_socket_web(|web| {
        for end in ["reset", "free"] {
            let server = event_http::Server::new(&web.base).unwrap();
            let (sender, tokens) = channel();
            server.set_gencb(move |req: Request| sender.send(req.defer()).unwrap());
            let address = server.bind("127.0.0.1:0").unwrap().local_address().unwrap();
            let client = web.client_at(&address);
            client.write(GET);
            let token = RefCell::new(None);
            web.bed.run_until(&mut web.base, || {
                *token.borrow_mut() = tokens.try_recv().ok();
                token.borrow().is_some()
            });
            let reply = token.take().unwrap().send_reply_start(200, None).unwrap();
            while reply.has_room() {
                reply.chunk(vec![b'x'; 1 << 18]).unwrap();
                web.settle_all();
            }
            assert!(!reply.wait_for_room(Duration::ZERO).unwrap(), "nobody reads");
            let worker = thread::spawn(move || {
                let waited = reply.wait_for_room(None);
                (waited, reply.has_room(), reply.chunk("more"))
            });
            if end == "reset" {
                client.reset();
            } else {
                server.free();
            }
            web.bed.run_until(&mut web.base, || worker.is_finished());
            let (waited, has_room, more) = worker.join().unwrap();
            assert!(waited.is_err_and(|error| error.is_client_gone()), "{end}");
            assert!(!has_room && more.is_err());
            server.free();
        }
    });
}

#[test]
fn a_thread_that_runs_ahead_of_its_client_is_stopped_and_the_connection_closed() {
    each_web(|web| {
        let most = tests::few_under_miri(16 << 20, 2 << 20);
        web.server.set_limits(event_http::Limits { max_output_bytes: Some(most), ..Default::default() });
        let (client, token) = out(web);
        let reply = token.send_reply_start(200, None).unwrap();
        let mut sent = 0;
        let error = loop {
            match reply.chunk(vec![b'x'; 1 << 20]) {
                Ok(()) => sent += 1 << 20,
                Err(error) => break error,
            }
            assert!(sent < 64 << 20, "the mailbox has a bound");
        };
        assert!(error.is_ours() && (most..=most + (1 << 20)).contains(&sent), "{sent}");
        assert!(reply.chunk("more").is_err_and(|error| error.is_client_gone()));
        web.until(&client, |_, ended| ended);
        assert!(!client.bytes().ends_with(b"0\r\n\r\n"));
    });
}

#[test]
fn a_thread_answers_with_an_error_page() {
    each_web(|web| {
        let (client, token) = out(web);
        token.send_error(404, "gone").unwrap();
        web.until(&client, |_, ended| ended);
        assert!(client.text().starts_with("HTTP/1.1 404 gone\r\n"));
        let (_client, token) = out(web);
        assert!(token.send_error(100, None).is_err_and(|error| error.is_invalid_argument()));
    });
}

#[test]
fn a_thread_sends_interim_answers_before_its_answer() {
    each_web(|web| {
        let (client, token) = out(web);
        let mut links = event_http::Headers::new();
        links.add("Link", "</a>").unwrap();
        assert!(token.send_interim(200, links.clone()).is_err_and(|error| error.is_invalid_argument()));
        token.send_interim(102, event_http::Headers::new()).unwrap();
        token.send_interim(103, links).unwrap();
        token.send_reply(200, None, PAGE).unwrap();
        web.until(&client, |got, _| got.ends_with(PAGE.as_bytes()));
        let early =
            "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 ";
        assert!(client.text().starts_with(early), "{}", client.text());
    });
}
