//! Every bound and deadline, on the simulation's clock where time matters, and the cap on connections.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use event_core::{BufferEvent, LoopEnd};
use event_http::{Limits, Request};
use tests::http::{Client, PAGE, Web, each_simulated_web, each_socket_web, each_web};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn status(client: &Client) -> String {
    client.text().get(9..12).unwrap_or_default().to_string()
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Nothing happens until just before `time`, and then the connection ends.
#[track_caller]
fn ends_after(web: &mut Web<'_>, client: &Client, time: Duration, expected: &str) {
    let before = client.text();
    web.pass(client, time - ms(1));
    assert_eq!((client.text(), client.is_ended()), (before, false), "too early");
    web.pass(client, ms(2));
    assert_eq!(status(client), expected);
    assert!(client.is_ended());
}

#[test]
fn an_idle_connection_is_closed_in_silence() {
    each_simulated_web(|web| {
        web.page();
        let client = web.client();
        ends_after(web, &client, Duration::from_secs(75), "");
        web.until_connections(0);
        // Each answer starts it anew.
        let client = web.client();
        for _ in 0..3 {
            web.pass(&client, Duration::from_secs(70));
            client.forget();
            assert!(web.ask(&client, GET, 1).ends_with(PAGE));
        }
        client.forget();
        ends_after(web, &client, Duration::from_secs(75), "");
    });
}

#[test]
fn an_idle_connection_is_closed_by_the_rules_under_which_it_was_last_answered() {
    let idle = |seconds| Limits { idle_timeout: Some(Duration::from_secs(seconds)), ..Limits::default() };
    let brisk = |seconds| Limits { answer_timeout: Some(Duration::from_secs(1)), ..idle(seconds) };
    each_simulated_web(|web| {
        web.page();
        for (before, after, time) in [
            (idle(75), idle(10), 10),
            (idle(75), brisk(10), 10),
            (brisk(10), idle(75), 75),
            (brisk(10), brisk(75), 75),
            (Limits { idle_timeout: None, ..brisk(1) }, brisk(10), 10),
            (Limits { answer_timeout: None, ..idle(10) }, Limits { answer_timeout: None, ..idle(20) }, 20),
        ] {
            web.server.set_limits(before);
            let client = web.client();
            for _ in 0..3 {
                assert!(web.ask(&client, GET, 1).ends_with(PAGE));
                web.pass(&client, Duration::from_secs(3));
                client.forget();
            }
            web.server.set_limits(after);
            assert!(web.ask(&client, GET, 1).ends_with(PAGE));
            client.forget();
            ends_after(web, &client, Duration::from_secs(time), "");
            web.until_connections(0);
        }
    });
}

#[test]
fn a_connection_whose_last_request_answers_an_earlier_one_still_becomes_idle() {
    each_simulated_web(|web| {
        let kept = Rc::new(RefCell::new(Vec::<Request>::new()));
        web.server.set_gencb(move |req: Request| {
            kept.borrow_mut().push(req);
            if kept.borrow().len() == 2 {
                for req in kept.take() {
                    req.send_reply(200, None, PAGE).unwrap();
                }
            }
        });
        let client = web.client();
        client.write(GET);
        web.pass(&client, Duration::from_secs(100));
        assert_eq!((client.text(), client.is_ended()), (String::new(), false), "it waits for the program");
        web.ask(&client, GET, 2);
        client.forget();
        ends_after(web, &client, Duration::from_secs(75), "");
    });
}

#[test]
fn small_answers_that_are_not_read_have_sixty_seconds_after_the_last_progress() {
    each_simulated_web(|web| {
        web.server.set_gencb(|req: Request| req.send_reply(200, None, "x".repeat(2_000)));
        let client = web.client();
        for _ in 0..3 {
            web.ask(&client, GET, 1);
            web.pass(&client, Duration::from_secs(20));
            client.forget();
        }
        // One by one, more than the wire takes and less than `room`.
        for _ in 0..300 {
            client.write(GET);
            web.bed.settle(&mut web.base);
        }
        web.bed.pass(&mut web.base, ms(59_990));
        assert_eq!(web.server.connection_count(), 1);
        web.bed.pass(&mut web.base, ms(10));
        web.bed.settle(&mut web.base);
        assert_eq!(web.server.connection_count(), 0);
    });
}

#[test]
fn a_head_has_twenty_seconds_from_its_first_byte() {
    each_simulated_web(|web| {
        web.page();
        let client = web.client();
        web.pass(&client, Duration::from_secs(60));
        client.write(b"GET / HTTP/1.1\r\n");
        for _ in 0..3 {
            web.pass(&client, Duration::from_secs(5));
            client.write(b"X: a\r\n");
        }
        web.settle(&client);
        ends_after(web, &client, Duration::from_secs(5), "408");
        // The connection lingers for the rest of the head, and not for ever.
        client.write(b"X: b\r\n");
        web.pass(&client, ms(1_990));
        assert_eq!(web.server.connection_count(), 1);
        web.pass(&client, ms(20));
        assert_eq!(web.server.connection_count(), 0);
    });
}

#[test]
fn a_body_has_thirty_seconds_between_pieces_and_a_least_rate() {
    each_simulated_web(|web| {
        web.page();
        let client = web.client();
        client.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
        web.settle(&client);
        ends_after(web, &client, Duration::from_secs(30), "408");
        assert_eq!(web.server.connection_count(), 1, "the rest of the body may be on its way");
        // A byte each second is no gap, but too slow.
        let client = web.client();
        client.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
        for _ in 0..29 {
            web.pass(&client, Duration::from_secs(1));
            client.write(b"x");
        }
        assert!(!client.is_ended());
        web.settle(&client);
        ends_after(web, &client, Duration::from_secs(1), "408");
        // Fast enough.
        let client = web.client();
        client.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n");
        for _ in 0..100 {
            web.pass(&client, Duration::from_secs(1));
            client.write(&[b'x'; 600]);
        }
        web.settle(&client);
        assert!(client.text().ends_with(PAGE), "{}", client.text());
    });
}

#[test]
fn an_answer_that_is_not_read_has_sixty_seconds_after_the_last_progress() {
    each_simulated_web(|web| {
        web.server.set_gencb(|req: Request| req.send_reply(200, None, vec![b'x'; 300_000]));
        let client = web.client();
        client.write(GET);
        web.bed.pass(&mut web.base, Duration::from_secs(40));
        client.read();
        web.bed.settle(&mut web.base);
        web.bed.pass(&mut web.base, ms(59_999));
        assert_eq!(web.server.connection_count(), 1);
        web.bed.pass(&mut web.base, ms(2));
        assert_eq!(web.server.connection_count(), 0);
        // A reader that takes a little each minute is served.
        let client = web.client();
        client.write(GET);
        for _ in 0..5 {
            web.bed.pass(&mut web.base, Duration::from_secs(59));
            client.read();
        }
        let (all, left) = tests::http::answers(&client.bytes(), &[]).unwrap();
        assert_eq!((all[0].2.len(), left), (300_000, 0));
        assert_eq!(web.server.connection_count(), 1);
    });
}

#[test]
fn a_streams_head_that_is_not_read_has_its_time_before_any_piece_comes() {
    each_simulated_web(|web| {
        let kept = web.keep();
        let (ours, theirs) = BufferEvent::pair(&web.base).unwrap();
        web.server.serve(ours);
        theirs.write(GET).unwrap(); // and never reads
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 1);
        let reply = kept.borrow_mut().remove(0).send_reply_start(200, None).unwrap();
        web.bed.pass(&mut web.base, ms(59_999));
        assert!(reply.has_room());
        web.bed.pass(&mut web.base, ms(2));
        assert_eq!((reply.has_room(), web.server.connection_count()), (false, 0));
    });
}

#[test]
fn a_read_deadline_does_not_run_while_an_answer_is_made_or_sent() {
    each_simulated_web(|web| {
        let kept = web.keep();
        let client = web.client();
        client.write(GET);
        web.pass(&client, Duration::from_secs(10_000));
        assert!(!client.is_ended());
        kept.borrow_mut().remove(0).send_reply(200, None, PAGE).unwrap();
        assert!(web.settle(&client).ends_with(PAGE));
        client.forget();
        ends_after(web, &client, Duration::from_secs(75), "");
    });
}

#[test]
fn lingering_ends_by_bytes_too() {
    each_simulated_web(|web| {
        web.page();
        web.server.set_limits(Limits {
            max_body_bytes: Some(1),
            max_linger_bytes: Some(100_000),
            ..Limits::default()
        });
        let client = web.client();
        client.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n");
        web.settle(&client);
        assert_eq!(status(&client), "413");
        let mut sent = 0;
        while web.server.connection_count() > 0 {
            sent += client.write_some(&[b'x'; 20_000]);
            web.bed.settle(&mut web.base);
            assert!(sent < 200_000, "{sent} bytes are thrown away");
        }
        assert!(sent >= 100_000, "{sent}");
    });
}

#[test]
fn a_client_that_does_not_read_its_last_answer_is_not_read_without_end() {
    each_simulated_web(|web| {
        let len = 4 << 20;
        web.server.set_gencb(move |req: Request| req.send_reply(200, None, vec![b'x'; len]));
        web.server.set_limits(Limits { max_linger_bytes: Some(100_000), ..Limits::default() });
        let client = web.client();
        client.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nmore");
        web.bed.settle(&mut web.base);
        let mut sent = 0;
        loop {
            let taken = client.write_some(&[b'x'; 20_000]);
            web.bed.settle(&mut web.base);
            sent += taken;
            assert!(sent < 2_000_000, "{sent} bytes are thrown away");
            if taken == 0 {
                break;
            }
        }
        assert!(sent >= 100_000, "{sent}");
        // The answer comes whole, and then it lingers as ever.
        web.until(&client, |_, ended| ended);
        let (all, _) = tests::http::answers(&client.bytes(), &[]).unwrap();
        assert_eq!((all.len(), all[0].2.len()), (1, len));
        client.finish();
        web.until_connections(0);
    });
}

#[test]
fn limits_of_the_head_have_their_answers() {
    each_web(|web| {
        web.page();
        web.server.set_limits(Limits {
            max_request_line_bytes: Some(100),
            max_head_bytes: Some(1_000),
            max_fields: Some(5),
            max_trailer_bytes: Some(100),
            max_chunk_line_bytes: Some(20),
            ..Limits::default()
        });
        let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        for (request, expected) in [
            (format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(84)), "200"),
            (format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(85)), "414"),
            (format!("GET /{}", "x".repeat(100)), "414"),
            (format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(968)), "200"),
            (format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(969)), "431"),
            (format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(1_000)), "431"),
            (format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(4)), "200"),
            (format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(5)), "431"),
            (format!("{chunked}1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(16)), "200"),
            (format!("{chunked}1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(17)), "400"),
            (format!("{chunked}0\r\nX: {}\r\n\r\n", "t".repeat(93)), "200"),
            (format!("{chunked}0\r\nX: {}\r\n\r\n", "t".repeat(94)), "431"),
            (format!("{chunked}0\r\n{}", "A: b\r\n".repeat(6)), "431"),
        ] {
            let client = web.client();
            client.write(request.as_bytes());
            web.until(&client, |got, ended| ended || got.ends_with(PAGE.as_bytes()));
            assert_eq!(status(&client), expected, "{request}");
        }
    });
}

#[test]
fn limits_that_a_handler_sets_hold_for_the_next_request_of_its_connection() {
    each_web(|web| {
        let server = web.server.clone();
        web.server.set_gencb(move |req: Request| {
            let tight = Limits { max_request_line_bytes: Some(30), ..Limits::default() };
            server.set_limits(if req.path() == "/tight" { tight } else { Limits::default() });
            req.send_reply(200, None, PAGE)
        });
        let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(30));
        let client = web.client();
        for target in ["/before", "/tight"] {
            let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
            assert!(web.ask(&client, long.as_bytes(), 1).starts_with("HTTP/1.1 200 "));
            client.forget();
            assert!(web.ask(&client, request.as_bytes(), 1).starts_with("HTTP/1.1 200 "));
            client.forget();
        }
        client.write(long.as_bytes());
        web.until(&client, |_, ended| ended);
        assert_eq!(status(&client), "414");
    });
}

#[test]
fn one_connection_too_many_gets_503_and_a_flood_nothing() {
    each_socket_web(|web| {
        web.page();
        web.server.set_max_connections(Some(2));
        let served = [web.client(), web.client()];
        for client in &served {
            assert!(web.ask(client, GET, 1).ends_with(PAGE));
        }
        let refused = web.client();
        let answer = web.ask_to_end(&refused, GET);
        assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{answer}");
        drop(refused);
        web.until_connections(2);
        let mut flood: Vec<Client> = (0..40).map(|_| web.client()).collect();
        for client in &flood {
            web.until(client, |_, ended| ended);
        }
        let told = flood.iter().filter(|client| client.text().starts_with("HTTP/1.1 503 ")).count();
        assert_eq!(told, 32, "the others are closed without a word");
        flood.clear();
        web.until_connections(2);
        drop(served);
        web.until_connections(0);
        let client = web.client();
        assert!(web.ask(&client, GET, 1).ends_with(PAGE));
    });
}

#[test]
fn the_bound_that_open_files_set_goes_up_with_their_limit() {
    each_simulated_web(|web| {
        web.page();
        let sim = web.bed.sim().unwrap().clone();
        sim.set_open_file_limit(64 + 2);
        let mut served = Vec::new();
        for limit in [2, 3, 5] {
            sim.set_open_file_limit(64 + limit);
            while served.len() < limit {
                let client = web.client();
                assert!(web.ask(&client, GET, 1).ends_with(PAGE));
                served.push(client);
            }
            let refused = web.client();
            assert!(web.ask_to_end(&refused, GET).starts_with("HTTP/1.1 503 "));
            drop(refused);
            web.until_connections(limit);
        }
    });
}

#[test]
fn zero_means_zero_and_none_no_limit() {
    each_simulated_web(|web| {
        web.page();
        web.server.set_limits(Limits {
            idle_timeout: None,
            head_timeout: None,
            body_timeout: None,
            min_body_rate: None,
            max_parsed_ahead: Some(0),
            max_body_bytes: Some(0),
            ..Limits::default()
        });
        let client = web.client();
        web.pass(&client, Duration::from_secs(100_000));
        client.write(b"GET / HTTP/1.1\r\n");
        web.pass(&client, Duration::from_secs(100_000));
        client.write(b"Host: a\r\n\r\n");
        assert!(web.settle(&client).ends_with(PAGE));
        let answer = web.ask_to_end(&client, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n");
        assert!(answer.contains("HTTP/1.1 413 "), "{answer}");
    });
}

#[test]
fn nothing_lingers_behind_a_client_that_has_finished() {
    each_simulated_web(|web| {
        let kept = web.keep();
        let client = web.client();
        client.write(&[GET, b"GET /part"].concat());
        client.finish();
        web.settle(&client);
        kept.borrow_mut().remove(0).send_reply(200, None, PAGE).unwrap();
        assert!(web.settle(&client).ends_with(PAGE));
        assert_eq!((client.is_ended(), web.server.connection_count()), (true, 0));
    });
}

#[test]
fn a_time_that_no_clock_can_show_is_no_limit() {
    each_simulated_web(|web| {
        web.page();
        let never = Some(Duration::MAX);
        web.server.set_limits(Limits {
            idle_timeout: never,
            head_timeout: never,
            body_timeout: never,
            answer_timeout: never,
            linger_timeout: never,
            body_rate_grace: Duration::MAX,
            ..Limits::default()
        });
        let client = web.client();
        client.write(b"POST / HTTP/1.1\r\n");
        web.pass(&client, Duration::from_secs(1_000));
        client.write(b"Host: a\r\nContent-Length: 1\r\n\r\n");
        web.pass(&client, Duration::from_secs(1_000));
        client.write(b"x");
        assert!(web.settle(&client).ends_with(PAGE));
        client.forget();
        client.write(b"bad\r\n\r\n");
        web.pass(&client, Duration::from_secs(1_000));
        assert_eq!(status(&client), "400");
        assert_eq!(web.server.connection_count(), 1);
        web.server.shutdown(Duration::MAX);
        web.pass(&client, Duration::from_secs(1_000));
        client.finish();
        web.until_connections(0);
    });
}

// Graceful stop.

#[test]
fn a_graceful_stop_closes_idle_connections_and_finishes_answers() {
    each_web(|web| {
        let kept = web.keep();
        let (idle, busy) = (web.client(), web.client());
        busy.write(&GET.repeat(2));
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 2);
        web.server.shutdown(Duration::from_secs(10));
        assert!(web.server.is_stopping());
        web.until(&idle, |_, ended| ended);
        assert_eq!((idle.text(), web.server.connection_count()), (String::new(), 1));
        assert!(web.server.addresses().is_empty());
        for request in kept.take() {
            request.send_reply(200, None, PAGE).unwrap();
        }
        web.until(&busy, |_, ended| ended);
        let answer = busy.text();
        assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 2);
        assert_eq!(answer.matches("Connection: close").count(), 1, "{answer}");
        drop((idle, busy));
        assert_eq!(web.base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn a_graceful_stop_lets_uploads_finish() {
    each_web(|web| {
        web.page();
        let client = web.client();
        client.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n01234");
        web.settle(&client);
        web.server.shutdown(Duration::from_secs(10));
        web.settle(&client);
        client.write(b"56789");
        client.write(GET);
        web.until(&client, |_, ended| ended);
        let answer = client.text();
        assert!(answer.contains("Connection: close") && answer.ends_with(PAGE), "{answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "the request behind is not run");
    });
}

#[test]
fn a_graceful_stop_inside_a_handler_answers_it_and_closes() {
    each_web(|web| {
        for first in [false, true] {
            let mut web = Web::new(web.bed, web.wire());
            let server = web.server.clone();
            web.server.set_gencb(move |req: Request| {
                if first {
                    server.shutdown(Duration::from_secs(10));
                    req.send_reply(200, None, PAGE)
                } else {
                    let sent = req.send_reply(200, None, PAGE);
                    server.shutdown(Duration::from_secs(10));
                    sent
                }
            });
            let client = web.client();
            client.write(&GET.repeat(2));
            web.until(&client, |_, ended| ended);
            let answer = client.text();
            assert!(answer.ends_with(PAGE) && answer.matches("HTTP/1.1").count() == 1, "{answer}");
            assert_eq!(
                web.server.connection_count(),
                1,
                "it lingers: more of the client's may be on its way"
            );
            client.finish();
            web.until_connections(0);
            drop(client);
            assert_eq!(web.base.dispatch().unwrap(), LoopEnd::Empty);
        }
    });
}

#[test]
fn what_is_left_at_the_deadline_is_closed_and_a_second_call_closes_at_once() {
    each_simulated_web(|web| {
        let kept = web.keep();
        let (waits, slow) = (web.client(), web.client());
        waits.write(GET);
        slow.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0");
        web.settle(&slow);
        web.server.shutdown(Duration::from_secs(10));
        web.pass(&waits, ms(9_999));
        slow.read();
        assert!(!waits.is_ended() && !slow.is_ended());
        web.pass(&waits, ms(2));
        slow.read();
        assert!(waits.is_ended() && slow.is_ended());
        assert_eq!(web.base.dispatch().unwrap(), LoopEnd::Empty);
        kept.take();

        let mut again = Web::new(web.bed, web.wire());
        let kept = again.keep();
        let client = again.client();
        client.write(GET);
        again.settle(&client);
        again.server.shutdown(Duration::from_secs(10));
        again.settle(&client);
        assert!(!client.is_ended());
        again.server.shutdown(Duration::from_secs(10));
        again.settle(&client);
        assert!(client.is_ended());
        assert_eq!(again.base.dispatch().unwrap(), LoopEnd::Empty);
        assert!(kept.borrow_mut().remove(0).send_reply(200, None, PAGE).is_err());
    });
}

#[test]
fn an_answer_on_its_way_is_read_though_a_stop_closes_behind_it() {
    each_socket_web(|web| {
        web.server.set_gencb(|req: Request| req.send_reply(200, None, vec![b'x'; 1 << 20]));
        let client = web.client();
        client.write(GET);
        // Begins the next request, which will not be read.
        client.write(b"GET / HTTP/1.1\r\nHo");
        web.bed.settle(&mut web.base);
        web.server.shutdown(Duration::from_secs(10));
        web.until(&client, |_, ended| ended);
        let (all, left) = tests::http::answers(&client.bytes(), &[]).unwrap();
        assert_eq!((all.len(), left), (1, 0));
    });
}

#[test]
fn a_port_that_is_taken_is_one_clear_line() {
    each_socket_web(|web| {
        let port = web.address().port().unwrap();
        let error = event_http::Server::start(&web.base, "127.0.0.1", port).unwrap_err();
        assert!(error.is_ours());
        let line = format!("{error:#}");
        assert!(line.starts_with("cannot listen: ") && !line.contains('\n'), "{line}");
        assert!(line.to_lowercase().contains("in use"), "{line}");
        // The failed one has left nothing behind.
        web.server.free();
        assert_eq!(web.base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn what_came_behind_the_last_request_makes_its_late_answer_linger() {
    each_simulated_web(|web| {
        let kept = web.keep();
        let client = web.client();
        client.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        web.settle(&client);
        client.write(b"GET /more HTTP/1.1\r\n");
        web.settle(&client);
        kept.borrow_mut().remove(0).send_reply(200, None, PAGE).unwrap();
        assert!(web.settle(&client).ends_with(PAGE));
        assert_eq!((client.is_ended(), web.server.connection_count()), (true, 1));
        client.finish();
        web.settle(&client);
        assert_eq!(web.server.connection_count(), 0);
    });
}
