//! Handlers, callbacks and destructors that call back into the server, and what is left when it is over.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

use event_core::{BufferEvent, Callbacks, Direction, LoopEnd, Timer};
use event_http::{Request, Server};
use tests::http::{GET, PAGE, Web, Wire, block_that, each_simulated_web, each_socket_web, each_web};

/// Does something when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn a_handler_may_replace_itself_and_is_dropped_after_it_returns() {
    each_web(|web| {
        let (server, dropped) = (web.server.clone(), Rc::new(Cell::new(0)));
        let count = dropped.clone();
        let token = OnDrop(move || count.set(count.get() + 1));
        let seen = dropped.clone();
        web.server.set_gencb(move |req: Request| {
            let _token = &token;
            server.set_gencb(|req: Request| req.send_reply(200, None, "new"));
            assert_eq!(seen.get(), 0, "not while it runs");
            req.send_reply(200, None, "old")
        });
        let client = web.client();
        let answer = web.ask(&client, &GET.repeat(2), 2);
        assert!(answer.contains("\r\n\r\noldHTTP/1.1 200 OK") && answer.ends_with("\r\n\r\nnew"), "{answer}");
        assert_eq!(dropped.get(), 1);
    });
}

#[test]
fn a_handler_may_take_itself_away_or_set_its_path_anew() {
    each_web(|web| {
        for again in [false, true] {
            let server = web.server.clone();
            let handler = move |req: Request| {
                assert!(server.del_cb("/x"));
                if again {
                    server.set_cb("/x", |req: Request| req.send_reply(200, None, "second")).unwrap();
                }
                req.send_reply(200, None, "first")
            };
            web.server.set_cb("/x", handler).unwrap();
            let client = web.client();
            let get = b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
            let answer = web.ask(&client, &get.repeat(2), 2);
            let expected = if again { "\r\n\r\nsecond" } else { "404 Not Found</h1></body></html>" };
            assert!(answer.contains("\r\n\r\nfirst") && answer.ends_with(expected), "{answer}");
        }
    });
}

#[test]
fn a_panic_answers_500_and_the_handler_stays() {
    each_web(|web| {
        let mut calls = 0;
        web.server.set_gencb(move |req: Request| {
            calls += 1;
            match calls {
                1 => panic!("before the answer"),
                2 => {
                    req.send_reply(200, None, "done").unwrap();
                    panic!("after the answer");
                }
                _ => req.send_reply(200, None, format!("call {calls}")).unwrap(),
            }
        });
        let client = web.client();
        let answer = web.ask_to_end(&client, &GET.repeat(2));
        assert!(answer.starts_with("HTTP/1.1 500 ") && answer.contains("Connection: close"), "{answer}");
        let client = web.client();
        let answer = web.ask(&client, &GET.repeat(2), 2);
        assert!(answer.contains("\r\n\r\ndone") && answer.ends_with("\r\n\r\ncall 3"), "{answer}");
    });
}

#[test]
fn a_panic_while_streaming_cuts_the_answer_off() {
    each_web(|web| {
        web.server.set_gencb(|req: Request| {
            let reply = req.send_reply_start(200, None).unwrap();
            reply.chunk("half").unwrap();
            if reply.has_room() {
                panic!("in the middle");
            }
        });
        let client = web.client();
        let answer = web.ask_to_end(&client, GET);
        assert!(answer.ends_with("4\r\nhalf\r\n"), "{answer}");
    });
}

#[test]
fn a_handler_may_drop_every_handle_of_its_server() {
    each_web(|web| {
        let handles = Rc::new(RefCell::new(vec![web.server.clone()]));
        let mine = handles.clone();
        web.server.set_gencb(move |req: Request| {
            mine.borrow_mut().clear();
            req.send_reply(200, None, PAGE)
        });
        let other = Server::new(&web.base).unwrap();
        drop(std::mem::replace(&mut web.server, other));
        let client = web.client_of(&handles.borrow()[0].clone());
        for _ in 0..2 {
            client.forget();
            assert!(web.ask(&client, GET, 1).ends_with(PAGE));
        }
    });
}

#[test]
fn requests_kept_by_their_own_handler_are_answered_500_or_dropped_with_it() {
    each_web(|web| {
        let kept: Rc<RefCell<Vec<Request>>> = Rc::default();
        let sink = kept.clone();
        web.server.set_gencb(move |req: Request| sink.borrow_mut().push(req));
        drop(kept);
        let client = web.client();
        client.write(&GET.repeat(3));
        web.settle(&client);
        assert_eq!(client.text(), "");
        // Replacing the handler drops the only list there is.
        web.page();
        web.until(&client, |_, ended| ended);
        assert!(client.text().starts_with("HTTP/1.1 500 "));
        let client = web.client();
        assert!(web.ask(&client, GET, 1).ends_with(PAGE));
    });
}

#[test]
fn what_a_handler_captures_may_call_the_server_when_it_is_dropped() {
    each_web(|web| {
        let log = Rc::new(RefCell::new(Vec::new()));
        for way in 0..5 {
            let (server, sink) = (web.server.clone(), log.clone());
            let token = OnDrop(move || {
                server.del_cb("/other");
                let _ = server.set_cb("/other", |_: Request| ());
                server.set_limits(server.limits());
                server.set_max_connections(None);
                let _ = server.addresses();
                if way > 2 {
                    server.set_gencb(|_: Request| ());
                    server.free();
                }
                sink.borrow_mut().push((way, server.connection_count()));
            });
            let handler = move |req: Request| {
                let _token = &token;
                req.send_reply(200, None, PAGE)
            };
            match way {
                0 => {
                    web.server.set_cb("/x", handler).unwrap();
                    web.server.del_cb("/x");
                }
                1 => {
                    web.server.set_cb("/y", |_: Request| ()).unwrap();
                    assert!(web.server.set_cb("/y", handler).is_err());
                }
                2 => {
                    web.server.set_gencb(handler);
                    web.page();
                }
                3 => {
                    web.server.set_gencb(handler);
                    web.page();
                }
                _ => web.server.set_gencb(handler),
            }
        }
        assert_eq!(*log.borrow(), [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0)]);
    });
}

#[test]
fn a_block_of_an_answer_may_free_the_server_when_it_is_dropped() {
    // Copied at once behind its head; copied into the output; sent and then dropped; held for its turn.
    for (len, ahead) in
        [(100, false), (3_000, false), (100_000, false), (100, true), (3_000, true), (100_000, true)]
    {
        each_web(|web| {
            let (client, [first, second, third]) = web.pipelined();
            let server = web.server.clone();
            let block = block_that(len, move || server.free());
            if ahead {
                let _ = second.send_reply(200, None, block);
                let _ = first.send_reply(200, None, PAGE);
            } else {
                let _ = first.send_reply(200, None, block);
                let _ = second.send_reply(200, None, PAGE);
            }
            web.until(&client, |_, ended| ended);
            assert!(third.send_reply(200, None, PAGE).unwrap_err().is_server_gone());
            assert_eq!(web.server.connection_count(), 0);
            assert_eq!(web.base.dispatch().unwrap(), LoopEnd::Empty);
        });
    }
}

#[test]
fn a_block_of_a_request_may_call_the_server_when_it_is_dropped() {
    // Over a pair the client's blocks become the body.
    tests::each_backend(|bed| {
        for free in [false, true] {
            let mut web = Web::new(bed, Wire::Pair);
            web.page();
            let client = web.client();
            let (server, calls) = (web.server.clone(), Rc::new(Cell::new(0)));
            let count = calls.clone();
            client.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 400000\r\n\r\n");
            for _ in 0..4 {
                let (server, count) = (server.clone(), count.clone());
                client.write_buffer(block_that(100_000, move || {
                    count.set(count.get() + 1);
                    server.set_limits(server.limits());
                    let _ = server.connection_count();
                    if free {
                        server.free();
                    }
                }));
            }
            web.until(&client, |got, ended| ended || got.ends_with(PAGE.as_bytes()));
            web.bed.run_until(&mut web.base, || calls.get() == 4);
            assert!(free || client.text().ends_with(PAGE));
        }
    });
}

#[test]
fn a_request_dropped_by_a_block_of_another_answers_in_order() {
    each_web(|web| {
        let (client, [first, second, third]) = web.pipelined();
        // The second's turn comes while its own piece is being moved.
        let cell = Rc::new(RefCell::new(Some(first)));
        let reply = second.send_reply_start(200, None).unwrap();
        reply.chunk("12345").unwrap();
        let inner = cell.clone();
        reply
            .chunk(block_that(50, move || inner.take().unwrap().send_reply(200, None, "first").unwrap()))
            .unwrap();
        reply.chunk("67890").unwrap();
        reply.end().unwrap();
        third.send_reply(200, None, "third").unwrap();
        web.until(&client, |got, ended| ended || got.ends_with(b"third"));
        let (all, left) = tests::http::answers(&client.bytes(), &[]).unwrap();
        let bodies: Vec<_> = all.into_iter().map(|answer| String::from_utf8(answer.2).unwrap()).collect();
        let middle = format!("12345{}67890", "x".repeat(50));
        assert_eq!((bodies, left), (vec!["first".to_string(), middle, "third".to_string()], 0));
        assert!(cell.borrow().is_none());
    });
}

#[test]
fn callbacks_that_capture_their_server_are_dropped_with_the_loop() {
    each_web(|web| {
        let count = Rc::new(());
        let capture = |server: &Server| (server.clone(), count.clone());
        let held = capture(&web.server);
        let kept: Rc<RefCell<Vec<Request>>> = Rc::default();
        let sink = kept.clone();
        web.server.set_gencb(move |req: Request| {
            let (server, token) = (held.0.clone(), held.1.clone());
            req.on_complete(move |_| drop((server, token)));
            let (server, token) = (held.0.clone(), held.1.clone());
            req.on_client_gone(move |_| drop((server, token)));
            sink.borrow_mut().push(req);
        });
        let held = capture(&web.server);
        web.server
            .set_cb("/s", move |req: Request| {
                let reply = req.send_reply_start(200, None).unwrap();
                let held = (held.0.clone(), held.1.clone());
                reply.on_room(move || drop(held.clone()));
                std::mem::forget(reply);
            })
            .unwrap();
        let clients = [web.client(), web.client()];
        clients[0].write(GET);
        clients[1].write(b"GET /s HTTP/1.1\r\nHost: a\r\n\r\n");
        web.bed.settle(&mut web.base);
        assert!(kept.borrow().len() == 1 && Rc::strong_count(&count) > 4);
        let other = web.bed.base();
        drop(std::mem::replace(&mut web.base, other));
        assert_eq!(Rc::strong_count(&count), 1);
        assert!(kept.borrow()[0].is_client_gone());
        kept.take();
    });
}

#[test]
fn the_loop_may_end_with_requests_in_every_place() {
    each_web(|web| {
        let kept: Rc<RefCell<Vec<Request>>> = Rc::default();
        let (inside, outside) = (kept.clone(), Rc::downgrade(&kept));
        web.server.set_gencb(move |req: Request| match req.path() {
            "/deferred" => std::mem::forget(req.defer()),
            _ => inside.borrow_mut().push(req),
        });
        drop(kept);
        let client = web.client();
        client.write(
            b"GET /deferred HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nPOST / HTTP/1.1\r\n",
        );
        web.settle(&client);
        assert_eq!(Weak::upgrade(&outside).map(|kept| kept.borrow().len()), Some(1));
        let other = web.bed.base();
        drop(std::mem::replace(&mut web.base, other));
        assert!(Weak::upgrade(&outside).is_none(), "the handler and what it kept are dropped");
        assert!(web.server.set_cb("/x", |_: Request| ()).unwrap_err().is_server_gone());
        assert!(web.server.bind("127.0.0.1:0").is_err());
        web.server.shutdown(Duration::ZERO);
        web.server.free();
    });
}

#[test]
fn a_stream_that_holds_input_already_is_served_at_once() {
    each_socket_web(|web| {
        // As after the head of a proxy protocol: the program has read, and hands over what is left.
        struct Line(Server);
        impl Callbacks for Line {
            fn on_read(&mut self, stream: &BufferEvent) {
                if stream.input().readln(event_core::Eol::Crlf).is_some() {
                    self.0.serve(stream.clone());
                }
            }
        }
        web.page();
        let (stream, peer) = web.bed.stream(&web.base);
        stream.set_callbacks(Line(web.server.clone()));
        stream.enable(Direction::READ).unwrap();
        peer.write_all(&[b"PROXY\r\n", GET].concat());
        let got = RefCell::new(Vec::new());
        web.bed.run_until(&mut web.base, || {
            got.borrow_mut().extend(peer.read().0);
            got.borrow().ends_with(PAGE.as_bytes())
        });
    });
}

#[test]
fn a_stream_that_still_connects_is_served_when_it_is_connected() {
    each_socket_web(|web| {
        web.page();
        let server = Server::new(&web.base).unwrap();
        server.set_gencb(|req: Request| req.send_reply(200, None, "reverse"));
        // The program connects out and serves there; the other side asks.
        let accepted = Rc::new(RefCell::new(None));
        let sink = accepted.clone();
        let listener = event_core::Listener::bind(&web.base, "127.0.0.1:0", move |_, accepted| {
            let stream = accepted.into_stream();
            stream.write(GET).unwrap();
            stream.enable(Direction::READ).unwrap();
            sink.replace(Some(stream));
        })
        .unwrap();
        let stream = BufferEvent::connect(&web.base, &listener.local_address().unwrap()).unwrap();
        server.serve(stream);
        web.bed.run_until(&mut web.base, || {
            let stream = accepted.borrow();
            stream.as_ref().is_some_and(|stream| stream.input().to_vec().ends_with(b"reverse"))
        });
    });
}

#[test]
fn ten_thousand_connections_leave_nothing_open() {
    each_simulated_web(|web| {
        let sim = web.bed.sim().unwrap().clone();
        web.page();
        let before = sim.open_fds();
        for n in 0..tests::few_under_miri(3_400, 20) {
            let client = web.client();
            client.write(GET);
            web.bed.settle(&mut web.base);
            client.read();
            assert!(client.text().ends_with(PAGE), "{n}");
            match n % 3 {
                0 => client.finish(),
                1 => drop(client),
                _ => client.reset(),
            }
            web.bed.settle(&mut web.base);
            assert_eq!(web.server.connection_count(), 0, "{n}");
        }
        assert_eq!(sim.open_fds(), before);
    });
}

#[test]
#[cfg_attr(miri, ignore = "real sockets")]
fn real_connections_leave_nothing_open() {
    let open = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    tests::each_backend(|bed| {
        if bed.sim().is_some() || !std::path::Path::new("/proc/self/fd").exists() {
            return;
        }
        let mut web = Web::new(bed, Wire::Listener);
        web.page();
        let mut most = 0;
        let before = open();
        for _ in 0..500 {
            let client = web.client();
            assert!(web.ask(&client, GET, 1).ends_with(PAGE));
            client.finish();
            web.until(&client, |_, ended| ended);
            most = most.max(web.server.connection_count());
        }
        web.until_connections(0);
        assert!(most <= 1);
        // Other tests of this binary open and close theirs meanwhile.
        assert!(open() < before + 200, "{} are open, {before} were", open());
    });
}

#[test]
fn a_timer_may_answer_free_and_answer_again() {
    each_web(|web| {
        let (client, [first, second]) = web.pipelined();
        let mut requests = Some((first, second));
        let (server, results) = (web.server.clone(), Rc::new(RefCell::new(Vec::new())));
        let sink = results.clone();
        let timer = Timer::new(&web.base, move |_| {
            let (first, second) = requests.take().unwrap();
            sink.borrow_mut().push(first.send_reply(200, None, PAGE).is_ok());
            server.free();
            server.free();
            sink.borrow_mut().push(second.send_reply(200, None, PAGE).is_ok());
        })
        .unwrap();
        timer.add(Duration::ZERO).unwrap();
        web.until(&client, |_, ended| ended);
        assert_eq!(*results.borrow(), [true, false]);
    });
}

#[test]
fn a_stream_freed_by_the_program_serves_nothing_more() {
    each_socket_web(|web| {
        let (stream, peer) = web.bed.stream(&web.base);
        let (mine, runs) = (stream.clone(), Rc::new(Cell::new(0)));
        let count = runs.clone();
        web.server.set_gencb(move |req: Request| {
            count.set(count.get() + 1);
            mine.free();
            assert!(req.is_client_gone());
            assert!(req.send_reply(200, None, PAGE).unwrap_err().is_client_gone());
        });
        web.server.serve(stream);
        peer.write_all(&GET.repeat(3));
        web.until_connections(0);
        assert_eq!((runs.get(), peer.read().0.len()), (1, 0));
    });
}

#[test]
fn a_piece_whose_drop_writes_another_piece_leaves_whole_chunks() {
    for (len, ahead) in
        [(50, false), (3_000, false), (100_000, false), (50, true), (3_000, true), (100_000, true)]
    {
        each_web(|web| {
            let (client, [first, second]) = web.pipelined();
            let mut first = Some(first);
            if !ahead {
                first.take().unwrap().send_reply(200, None, "first").unwrap();
            }
            let reply = Rc::new(second.send_reply_start(200, None).unwrap());
            let inner = reply.clone();
            reply.chunk(block_that(len, move || inner.chunk("inner").unwrap())).unwrap();
            if let Some(first) = first {
                first.send_reply(200, None, "first").unwrap();
            }
            // The block is dropped when it is sent, if not before.
            web.bed.run_until(&mut web.base, || {
                client.read();
                String::from_utf8_lossy(&client.bytes()).contains("inner")
            });
            Rc::into_inner(reply).unwrap().end().unwrap();
            web.until(&client, |got, _| got.ends_with(b"\r\n0\r\n\r\n"));
            let (all, left) = tests::http::answers(&client.bytes(), &[]).unwrap();
            let body = String::from_utf8_lossy(&all[1].2).replace('x', "");
            assert_eq!((all.len(), left, all[1].2.len(), body.as_str()), (2, 0, len + 5, "inner"));
        });
    }
}

#[test]
fn a_server_that_stops_or_is_gone_does_not_listen_anew() {
    each_socket_web(|web| {
        web.server.shutdown(Duration::from_secs(1));
        assert!(web.server.bind("127.0.0.1:0").unwrap_err().is_server_gone());
        web.server.free();
        assert!(web.server.bind("127.0.0.1:0").unwrap_err().is_server_gone());
        assert!(web.server.addresses().is_empty());
        assert_eq!(web.base.dispatch().unwrap(), LoopEnd::Empty, "nothing listens");
    });
}
