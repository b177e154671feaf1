//! Several requests before their answers: order, how far is read ahead, what is held, and the end of the input.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use event_core::Timer;
use event_core::testing::Call;
use event_http::{Completion, Limits, Reply, Request};
use tests::http::{PAGE, answers, each_simulated_web, each_web};

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// The paths that answers name in their bodies.
fn bodies(bytes: &[u8]) -> Vec<String> {
    let (all, left) = answers(bytes, &[]).unwrap();
    assert_eq!(left, 0, "{}", String::from_utf8_lossy(bytes));
    all.into_iter().map(|(_, _, body)| String::from_utf8(body).unwrap()).collect()
}

fn paths(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| format!("/{n}")).collect()
}

#[test]
fn answers_leave_in_the_order_of_the_requests_though_they_are_given_in_another() {
    each_web(|web| {
        let kept = web.keep();
        let client = web.client();
        client.write(paths(0..5).iter().map(|path| get(path)).collect::<String>().as_bytes());
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 5);
        let order = [4, 2, 0, 3, 1];
        let mut requests: Vec<Option<Request>> = kept.take().into_iter().map(Some).collect();
        let timer = Timer::new(&web.base, move |_| {
            for n in order {
                let request = requests[n].take().unwrap();
                let path = request.path().to_string();
                request.send_reply(200, None, path).unwrap();
            }
        })
        .unwrap();
        timer.add(Duration::ZERO).unwrap();
        web.until(&client, |got, _| answers(got, &[]).is_some_and(|(all, _)| all.len() == 5));
        assert_eq!(bodies(&client.bytes()), paths(0..5));
    });
}

#[test]
fn a_pipelined_batch_leaves_in_one_send() {
    each_simulated_web(|web| {
        web.page();
        let client = web.client();
        web.settle(&client);
        let sim = web.bed.sim().unwrap().clone();
        let before = sim.calls();
        web.ask(&client, get("/").repeat(16).as_bytes(), 16);
        let after = sim.calls();
        assert_eq!(after[Call::Send] + after[Call::Sendv] - before[Call::Send] - before[Call::Sendv], 1);
        assert_eq!(after[Call::Recv] - before[Call::Recv], 1);
    });
}

#[test]
fn seventeen_requests_are_out_at_most_and_reading_goes_on_when_one_is_answered() {
    each_web(|web| {
        let kept = web.keep();
        let client = web.client();
        client.write(paths(0..40).iter().map(|path| get(path)).collect::<String>().as_bytes());
        web.settle(&client);
        assert_eq!(kept.borrow().len(), 17, "one is being answered, sixteen are read ahead");
        for n in 0..40 {
            let request = kept.borrow_mut().remove(0);
            let path = request.path().to_string();
            request.send_reply(200, None, path).unwrap();
            web.settle(&client);
            assert_eq!(kept.borrow().len(), 17.min(39 - n));
        }
        assert_eq!(bodies(&client.bytes()), paths(0..40));
    });
}

#[test]
fn a_hundred_requests_followed_by_the_end_are_all_answered() {
    each_web(|web| {
        web.server.set_gencb(|req: Request| {
            let path = req.path().to_string();
            req.send_reply(200, None, path)
        });
        let client = web.client();
        client.write(paths(0..100).iter().map(|path| get(path)).collect::<String>().as_bytes());
        client.finish();
        web.until(&client, |_, ended| ended);
        assert_eq!(bodies(&client.bytes()), paths(0..100));
        web.until_connections(0);
    });
}

#[test]
fn requests_that_wait_behind_seventeen_are_answered_though_the_client_has_finished() {
    each_web(|web| {
        let kept = web.keep();
        let client = web.client();
        client.write(paths(0..25).iter().map(|path| get(path)).collect::<String>().as_bytes());
        client.finish();
        web.settle(&client);
        assert_eq!(kept.borrow().len(), 17);
        for _ in 0..25 {
            let request = kept.borrow_mut().remove(0);
            let path = request.path().to_string();
            request.send_reply(200, None, path).unwrap();
            web.settle(&client);
        }
        web.until(&client, |_, ended| ended);
        assert_eq!(bodies(&client.bytes()), paths(0..25));
        web.until_connections(0);
    });
}

#[test]
fn a_continue_that_waited_for_an_answer_is_sent_after_it() {
    each_web(|web| {
        let kept = web.keep();
        let client = web.client();
        let expect = "POST /e HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
        client.write((get("/") + expect).as_bytes());
        web.settle(&client);
        assert_eq!((kept.borrow().len(), client.bytes().len()), (1, 0), "the 100 would overtake the answer");
        let first = kept.borrow_mut().remove(0);
        first.send_reply(200, None, "one").unwrap();
        web.until(&client, |got, _| got.ends_with(b"HTTP/1.1 100 Continue\r\n\r\n"));
        client.write(b"ok");
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 1);
        assert_eq!(kept.borrow()[0].body().to_vec(), b"ok");
    });
}

#[test]
fn a_continue_behind_an_answer_that_leaves_slowly_is_sent_in_the_end() {
    each_web(|web| {
        let kept = web.keep();
        let client = web.client();
        let expect = "POST /e HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
        client.write((get("/") + expect).as_bytes());
        web.settle(&client);
        let first = kept.borrow_mut().remove(0);
        // More than may be unsent before anything else is read.
        first.send_reply(200, None, vec![b'x'; 3 << 20]).unwrap();
        web.until(&client, |got, _| got.ends_with(b"HTTP/1.1 100 Continue\r\n\r\n"));
        client.write(b"ok");
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 1);
    });
}

#[test]
fn what_is_read_ahead_is_bounded_in_bytes_too() {
    each_simulated_web(|web| {
        let limits = Limits { max_body_bytes: Some(10_000), ..Limits::default() };
        web.server.set_limits(limits);
        let kept = web.keep();
        let client = web.client();
        let body = "x".repeat(9_000);
        let post = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n{body}");
        for _ in 0..16 {
            client.write_some(post.as_bytes());
            web.settle(&client);
        }
        let held: usize = kept.borrow().iter().map(|req| req.body().len()).sum();
        assert!(held <= 20_000, "{held} bytes are held for one client");
        // They all come in the end.
        for _ in 0..3 {
            let request = kept.borrow_mut().remove(0);
            request.send_reply(200, None, "").unwrap();
            web.settle(&client);
            assert!(!kept.borrow().is_empty());
        }
    });
}

#[test]
fn big_answers_to_a_pipelined_batch_wait_for_the_reader() {
    each_web(|web| {
        let served = Rc::new(Cell::new(0));
        let count = served.clone();
        web.server.set_gencb(move |req: Request| {
            count.set(count.get() + 1);
            req.send_reply(200, None, vec![b'x'; 1 << 20])
        });
        let client = web.client();
        client.write(get("/").repeat(40).as_bytes());
        if !client.is_pair() {
            for _ in 0..10 {
                web.bed.settle(&mut web.base);
            }
            assert!(
                served.get() < 12,
                "{} answers of 1 MiB each are made for a client that does not read",
                served.get()
            );
        }
        let mut whole = 0;
        web.until(&client, |got, ended| {
            assert!(!ended, "after {whole}");
            whole = got.len();
            whole > 40 << 20 && answers(got, &[]).is_some_and(|(all, _)| all.len() == 40)
        });
        assert_eq!(served.get(), 40);
        let (all, left) = answers(&client.bytes(), &[]).unwrap();
        assert_eq!((all.len(), left), (40, 0));
    });
}

#[test]
fn one_answer_may_be_larger_than_what_a_stream_may_hold() {
    each_web(|web| {
        web.server.set_gencb(|req: Request| req.send_reply(200, None, vec![b'x'; 20 << 20]));
        let client = web.client();
        client.write((get("/") + &get("/")).as_bytes());
        web.until(&client, |got, ended| {
            assert!(!ended);
            got.len() > 40 << 20 && answers(got, &[]).is_some_and(|(all, _)| all.len() == 2)
        });
        let (all, left) = answers(&client.bytes(), &[]).unwrap();
        assert!(left == 0 && all.iter().all(|answer| answer.2.len() == 20 << 20));
    });
}

#[test]
fn an_answer_that_was_given_ahead_is_complete_only_when_it_has_left() {
    each_web(|web| {
        let kept = web.keep();
        let client = web.client();
        client.write((get("/0") + &get("/1") + &get("/2")).as_bytes());
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 3);
        let log = Rc::new(RefCell::new(Vec::new()));
        for (n, request) in kept.borrow().iter().enumerate() {
            let log = log.clone();
            request.on_complete(move |completion| log.borrow_mut().push((n, completion)));
        }
        let mut requests = kept.take().into_iter();
        let (first, second, third) =
            (requests.next().unwrap(), requests.next().unwrap(), requests.next().unwrap());
        second.send_reply(200, None, "two").unwrap();
        let stream: Reply = first.send_reply_start(200, None).unwrap();
        stream.chunk("one").unwrap();
        web.until(&client, |got, _| got.ends_with(b"one\r\n"));
        web.settle(&client);
        assert!(log.borrow().is_empty(), "{:?}", log.borrow());
        // Cut off: what was given ahead never leaves.
        drop(stream);
        web.until(&client, |_, ended| ended);
        web.settle(&client);
        let mut log = log.take();
        log.sort_by_key(|entry| entry.0);
        let gone = Completion::ClientGone;
        assert_eq!(log, [(0, gone), (1, gone), (2, gone)]);
        assert!(third.send_reply(200, None, "late").unwrap_err().is_client_gone());
    });
}

#[test]
fn a_stream_that_waits_for_its_turn_has_no_room_for_ever() {
    each_web(|web| {
        let kept = web.keep();
        let client = web.client();
        client.write((get("/0") + &get("/1")).as_bytes());
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 2);
        let mut requests = kept.take().into_iter();
        let (first, second) = (requests.next().unwrap(), requests.next().unwrap());
        let stream = second.send_reply_start(200, None).unwrap();
        let mut sent = 0;
        while stream.has_room() {
            stream.chunk(vec![b'x'; 100_000]).unwrap();
            sent += 100_000;
            assert!(sent < 2 << 20, "room for {sent} bytes that cannot leave");
        }
        assert!(stream.pending_output() > 1 << 20);
        first.send_reply(200, None, PAGE).unwrap();
        web.until(&client, |got, _| got.len() > sent);
        web.settle(&client);
        assert!(stream.has_room());
        stream.end().unwrap();
        web.until(&client, |got, _| got.ends_with(b"\r\n0\r\n\r\n"));
    });
}

#[test]
fn answers_that_are_held_back_are_bounded_together() {
    each_web(|web| {
        let kept = web.keep();
        let client = web.client();
        client.write(get("/").repeat(10).as_bytes());
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 10);
        let mut requests = kept.take().into_iter();
        let first = requests.next().unwrap();
        let mut refused = 0;
        for request in requests {
            refused += u32::from(request.send_reply(200, None, vec![b'x'; 4 << 20]).is_err());
        }
        assert!(refused > 0, "36 MiB are held back");
        web.until(&client, |_, ended| ended);
        assert!(first.send_reply(200, None, "late").unwrap_err().is_client_gone());
    });
}

#[test]
fn a_client_that_sends_on_while_enough_is_out_is_not_read() {
    each_simulated_web(|web| {
        let kept = web.keep();
        let client = web.client();
        client.write(get("/").repeat(17).as_bytes());
        web.settle(&client);
        let mut sent = 0;
        for _ in 0..tests::few_under_miri(100, 10) {
            sent += client.write_some(get("/").repeat(100).as_bytes());
            web.bed.settle(&mut web.base);
        }
        assert!(sent < 150_000, "{sent} bytes were taken");
        assert_eq!(kept.borrow().len(), 17);
    });
}
