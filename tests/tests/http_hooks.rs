//! What a program is told of a request that is out: the client's leaving, room, and how it ended.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use event_core::{LoopEnd, Timer};
use event_http::{Gone, Limits, Request};
use tests::http::{GET, PAGE, Web, each_simulated_web, each_socket_web, each_web};

type Log = Rc<RefCell<Vec<String>>>;

/// Logs how `request` ends and how its client leaves.
fn watch(request: &Request, log: &Log) {
    let sink = log.clone();
    request.on_complete(move |completion| sink.borrow_mut().push(format!("{completion:?}")));
    let sink = log.clone();
    request.on_client_gone(move |gone| sink.borrow_mut().push(format!("gone {gone:?}")));
}

/// A request that is out, with a log of its hooks.
fn out(web: &mut Web<'_>) -> (tests::http::Client, Request, Log) {
    let kept = web.keep();
    let client = web.client();
    client.write(GET);
    web.bed.run_until(&mut web.base, || kept.borrow().len() == 1);
    let request = kept.borrow_mut().remove(0);
    let log = Log::default();
    watch(&request, &log);
    (client, request, log)
}

#[track_caller]
fn until_logged(web: &mut Web<'_>, log: &Log, expected: &[&str]) {
    web.bed.run_until(&mut web.base, || log.borrow().len() >= expected.len());
    web.bed.settle(&mut web.base);
    assert_eq!(*log.borrow(), expected);
}

#[test]
fn an_answer_is_complete_when_it_has_left_and_not_inside_the_call() {
    each_web(|web| {
        let (client, request, log) = out(web);
        request.send_reply(200, None, PAGE).unwrap();
        assert!(log.borrow().is_empty());
        until_logged(web, &log, &["Sent"]);
        assert!(web.settle(&client).ends_with(PAGE));
        // The connection lives on and ends later without another word.
        drop(client);
        web.until_connections(0);
        assert_eq!(log.borrow().len(), 1);
    });
}

#[test]
fn a_fin_is_told_and_the_answer_still_arrives() {
    each_web(|web| {
        let (client, request, log) = out(web);
        client.finish();
        until_logged(web, &log, &["gone Finished"]);
        assert!(!request.is_client_gone());
        request.send_reply(200, None, PAGE).unwrap();
        web.until(&client, |_, ended| ended);
        assert!(client.text().ends_with(PAGE));
        until_logged(web, &log, &["gone Finished", "Sent"]);
        web.until_connections(0);
    });
}

#[test]
fn a_reset_is_told_and_a_late_answer_is_harmless() {
    each_web(|web| {
        let (client, request, log) = out(web);
        let is_pair = client.is_pair();
        client.reset();
        if is_pair {
            // A pair has no reset: its end looks like a FIN until somebody writes.
            until_logged(web, &log, &["gone Finished"]);
            return;
        }
        until_logged(web, &log, &["gone Reset", "ClientGone"]);
        assert!(request.is_client_gone());
        let error = request.send_reply(200, None, PAGE).unwrap_err();
        assert!(error.is_client_gone() && !error.is_server_gone() && error.status().is_none());
        web.bed.settle(&mut web.base);
        assert_eq!((log.borrow().len(), web.server.connection_count()), (2, 0));
    });
}

#[test]
fn hooks_that_come_after_the_client_has_left_are_still_called() {
    each_socket_web(|web| {
        let (client, request, log) = out(web);
        client.reset();
        until_logged(web, &log, &["gone Reset", "ClientGone"]);
        watch(&request, &log);
        assert_eq!(log.borrow().len(), 2, "not inside the call");
        until_logged(web, &log, &["gone Reset", "ClientGone", "ClientGone", "gone Reset"]);
        web.server.free();
        let late = Log::default();
        watch(&request, &late);
        until_logged(web, &late, &["ClientGone", "gone Reset"]);
    });
}

#[test]
fn freeing_the_server_completes_what_is_out_in_the_next_turn() {
    each_web(|web| {
        let (client, request, log) = out(web);
        web.server.free();
        assert!(log.borrow().is_empty());
        until_logged(web, &log, &["ServerGone"]);
        watch(&request, &log);
        until_logged(web, &log, &["ServerGone", "ServerGone"]);
        let error = request.send_reply(200, None, PAGE).unwrap_err();
        assert!(error.is_server_gone() && !error.is_client_gone());
        web.until(&client, |_, ended| ended);
        assert_eq!(web.base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn a_server_freed_inside_the_handler_completes_its_request() {
    each_web(|web| {
        let log = Log::default();
        let (sink, server) = (log.clone(), web.server.clone());
        let errors = Rc::new(Cell::new(0));
        let count = errors.clone();
        web.server.set_gencb(move |req: Request| {
            watch(&req, &sink);
            server.free();
            assert!(sink.borrow().is_empty());
            count.set(count.get() + u32::from(req.send_reply(200, None, "x").unwrap_err().is_server_gone()));
        });
        let client = web.client();
        client.write(&GET.repeat(3));
        web.until(&client, |_, ended| ended);
        until_logged(web, &log, &["ServerGone"]);
        assert_eq!((client.bytes().len(), errors.get()), (0, 1), "the pipelined ones are not served");
    });
}

#[test]
fn a_stream_of_known_length_is_complete_though_its_end_writes_nothing() {
    each_web(|web| {
        let (client, mut request, log) = out(web);
        request.add_header("Content-Length", "3").unwrap();
        let reply = request.send_reply_start(200, None).unwrap();
        reply.chunk("abc").unwrap();
        web.until(&client, |got, _| got.ends_with(b"abc"));
        web.bed.settle(&mut web.base);
        assert!(log.borrow().is_empty());
        reply.end().unwrap();
        assert!(log.borrow().is_empty());
        until_logged(web, &log, &["Sent"]);
        assert!(!client.is_ended());
    });
}

#[test]
fn a_stream_that_ends_with_the_connection_is_complete_too() {
    each_web(|web| {
        let kept = web.keep();
        let client = web.client();
        client.write(b"GET / HTTP/1.0\r\n\r\n");
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 1);
        let request = kept.borrow_mut().remove(0);
        let log = Log::default();
        watch(&request, &log);
        let reply = request.send_reply_start(200, None).unwrap();
        reply.chunk("abc").unwrap();
        web.until(&client, |got, _| got.ends_with(b"abc"));
        web.bed.settle(&mut web.base);
        reply.end().unwrap();
        web.until(&client, |_, ended| ended);
        until_logged(web, &log, &["Sent"]);
    });
}

#[test]
fn a_reader_that_does_not_read_ends_as_client_gone_when_its_time_is_up() {
    each_simulated_web(|web| {
        let (client, request, log) = out(web);
        request.send_reply(200, None, vec![b'x'; 1 << 20]).unwrap();
        web.bed.pass(&mut web.base, Duration::from_millis(59_999));
        assert!(log.borrow().is_empty());
        web.bed.pass(&mut web.base, Duration::from_millis(2));
        assert_eq!(*log.borrow(), ["ClientGone"]);
        drop(client);
    });
}

#[test]
fn a_streams_reader_that_does_not_read_is_closed_at_its_time_too() {
    each_simulated_web(|web| {
        let (client, request, log) = out(web);
        let reply = request.send_reply_start(200, None).unwrap();
        web.settle(&client);
        web.bed.pass(&mut web.base, Duration::from_secs(300));
        assert!(log.borrow().is_empty(), "nothing is unsent, and a handler has all the time it wants");
        reply.chunk(vec![b'x'; 1 << 20]).unwrap();
        web.bed.pass(&mut web.base, Duration::from_millis(59_999));
        assert!(log.borrow().is_empty());
        web.bed.pass(&mut web.base, Duration::from_millis(2));
        assert_eq!(*log.borrow(), ["gone Reset", "ClientGone"]);
        assert!(reply.chunk("x").unwrap_err().is_client_gone() && !reply.has_room());
        drop(client);
    });
}

#[test]
fn an_unanswered_request_is_complete_with_its_500() {
    each_web(|web| {
        let (client, request, log) = out(web);
        drop(request);
        web.until(&client, |_, ended| ended);
        assert!(client.text().starts_with("HTTP/1.1 500 "));
        until_logged(web, &log, &["Sent"]);
    });
}

#[test]
fn the_deadline_of_a_graceful_stop_completes_what_is_out() {
    each_simulated_web(|web| {
        let (client, request, log) = out(web);
        web.server.shutdown(Duration::from_secs(10));
        web.pass(&client, Duration::from_millis(9_999));
        assert!(log.borrow().is_empty());
        web.pass(&client, Duration::from_millis(2));
        assert_eq!(*log.borrow(), ["ClientGone"]);
        assert!(client.is_ended());
        assert_eq!(
            web.base.dispatch().unwrap(),
            LoopEnd::Empty,
            "a request without its connection holds nothing"
        );
        drop(request);
    });
}

#[test]
fn room_is_told_each_time_output_has_left_and_costs_no_memory_for_each() {
    each_web(|web| {
        let (client, request, log) = out(web);
        let reply = Rc::new(RefCell::new(Some(request.send_reply_start(200, None).unwrap())));
        let (calls, handle) = (Rc::new(Cell::new(0)), reply.clone());
        let count = calls.clone();
        reply.borrow().as_ref().unwrap().on_room(move || {
            count.set(count.get() + 1);
            let done = count.get() > 40;
            if done {
                handle.borrow_mut().take().unwrap().end().unwrap();
            } else {
                let reply = handle.borrow();
                let reply = reply.as_ref().unwrap();
                while reply.has_room() {
                    reply.chunk(vec![b'x'; 300_000]).unwrap();
                }
            }
        });
        web.until(&client, |got, ended| ended || got.ends_with(b"\r\n0\r\n\r\n"));
        assert!(!client.is_ended());
        assert_eq!(calls.get(), 41);
        until_logged(web, &log, &["Sent"]);
        // The next request is served as ever.
        web.page();
        client.forget();
        assert!(web.ask(&client, GET, 1).ends_with(PAGE));
        assert_eq!(calls.get(), 41);
    });
}

#[test]
fn a_panic_in_a_hook_takes_nothing_else_along() {
    each_web(|web| {
        let kept = web.keep();
        let client = web.client();
        client.write(&GET.repeat(3));
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 3);
        let log = Log::default();
        for request in kept.borrow().iter() {
            request.on_client_gone(|_| panic!("in on_client_gone"));
            request.on_complete(|_| panic!("in on_complete"));
            watch(request, &log);
        }
        client.finish();
        until_logged(web, &log, &["gone Finished"; 3]);
        kept.borrow_mut().remove(0).send_reply(200, None, PAGE).unwrap();
        web.until(&client, |got, _| got.ends_with(PAGE.as_bytes()));
        web.bed.run_until(&mut web.base, || log.borrow().len() == 4);
        web.server.free();
        web.bed.run_until(&mut web.base, || log.borrow().len() == 6);
        assert_eq!(log.borrow()[3..], ["Sent", "ServerGone", "ServerGone"]);
    });
}

#[test]
fn a_panic_in_on_room_is_not_the_loops_end() {
    each_web(|web| {
        let (client, request, log) = out(web);
        let reply = request.send_reply_start(200, None).unwrap();
        reply.on_room(|| panic!("in on_room"));
        web.until(&client, |got, _| got.ends_with(b"\r\n\r\n"));
        web.bed.settle(&mut web.base);
        reply.chunk("x").unwrap();
        reply.end().unwrap();
        until_logged(web, &log, &["Sent"]);
    });
}

#[test]
fn a_server_freed_in_a_hook_is_gone_for_the_others() {
    each_web(|web| {
        let (client, request, log) = out(web);
        let server = web.server.clone();
        request.on_client_gone(move |_| server.free());
        watch(&request, &log);
        client.finish();
        web.bed.run_until(&mut web.base, || {
            log.borrow().iter().filter(|line| *line == "ServerGone").count() == 2
        });
        assert!(request.send_reply(200, None, "x").unwrap_err().is_server_gone());
        let (client, request, log) = {
            let mut other = Web::new(web.bed, tests::http::Wire::Listener);
            let (client, request, log) = out(&mut other);
            let server = other.server.clone();
            request.on_complete(move |_| server.free());
            request.send_reply(200, None, PAGE).unwrap();
            other.until(&client, |_, ended| ended);
            until_logged(&mut other, &log, &["Sent"]);
            assert_eq!(other.server.connection_count(), 0);
            (client, (), log)
        };
        drop((client, request, log));
    });
}

#[test]
fn a_loop_that_ends_first_drops_the_hooks_unheard() {
    each_web(|web| {
        let held = Rc::new(());
        let (client, request, log) = out(web);
        let (server, token) = (web.server.clone(), held.clone());
        request.on_complete(move |_| drop((server, token)));
        let other = web.bed.base();
        drop(std::mem::replace(&mut web.base, other));
        assert_eq!(Rc::strong_count(&held), 1, "a hook that captures its server is dropped with the loop");
        assert!(request.is_client_gone());
        assert!(request.send_reply(200, None, "late").unwrap_err().is_server_gone());
        assert!(log.borrow().is_empty());
        drop(client);
    });
}

#[test]
fn limits_change_for_the_next_request_of_the_same_batch() {
    each_web(|web| {
        let server = web.server.clone();
        web.server.set_gencb(move |req: Request| {
            server.set_limits(Limits { max_body_bytes: Some(1), ..Limits::default() });
            req.send_reply(200, None, PAGE)
        });
        let client = web.client();
        let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab";
        let answer = web.ask_to_end(&client, post.repeat(2).as_bytes());
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("HTTP/1.1 413 "), "{answer}");
    });
}

#[test]
fn a_reset_of_the_stream_reaches_a_gone_flag_from_a_timer() {
    each_socket_web(|web| {
        let (client, request, _log) = out(web);
        let seen = Rc::new(Cell::new(None));
        let sink = seen.clone();
        request.on_client_gone(move |gone| sink.set(Some(gone)));
        let request = Rc::new(RefCell::new(Some(request)));
        let held = request.clone();
        let timer = Timer::new(&web.base, move |_| drop(held.take())).unwrap();
        client.reset();
        web.bed.run_until(&mut web.base, || seen.get() == Some(Gone::Reset));
        timer.add(Duration::ZERO).unwrap();
        web.bed.run_until(&mut web.base, || request.borrow().is_none());
    });
}

#[test]
fn an_answer_shorter_than_it_said_is_not_sent_as_a_whole() {
    each_web(|web| {
        let (client, mut request, log) = out(web);
        request.add_header("Content-Length", "5").unwrap();
        let reply = request.send_reply_start(200, None).unwrap();
        reply.chunk("abc").unwrap();
        assert!(reply.end().unwrap_err().is_caller());
        web.until(&client, |_, ended| ended);
        assert!(client.bytes().ends_with(b"abc"));
        until_logged(web, &log, &["ClientGone"]);
    });
}

#[test]
fn a_reset_is_told_while_nothing_is_read() {
    each_socket_web(|web| {
        // So many are out that reading waits.
        let kept = web.keep();
        let client = web.client();
        client.write(&GET.repeat(17));
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 17);
        let log = Log::default();
        watch(&kept.borrow()[0], &log);
        client.reset();
        until_logged(web, &log, &["gone Reset", "ClientGone"]);
    });
}

#[test]
fn a_hook_for_a_client_that_has_finished_is_called_in_the_next_turn() {
    each_web(|web| {
        let (client, request, log) = out(web);
        client.finish();
        until_logged(web, &log, &["gone Finished"]);
        let late = Log::default();
        watch(&request, &late);
        assert!(late.borrow().is_empty());
        until_logged(web, &late, &["gone Finished"]);
        request.send_reply(200, None, PAGE).unwrap();
        web.until(&client, |_, ended| ended);
        until_logged(web, &late, &["gone Finished", "Sent"]);
    });
}

#[test]
fn a_request_behind_an_answer_that_closes_is_gone() {
    each_web(|web| {
        let (client, [first, second, third]) = web.pipelined();
        second.send_error(404, None).unwrap();
        assert!(third.is_client_gone() && !first.is_client_gone());
        assert!(third.send_reply(200, None, PAGE).unwrap_err().is_client_gone());
        first.send_reply(200, None, PAGE).unwrap();
        web.until(&client, |_, ended| ended);
        assert_eq!(client.text().matches("HTTP/1.1").count(), 2);
    });
}
