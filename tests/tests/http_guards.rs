//! What keeps clients, and handlers that take too long, within bounds that the program has set.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use event_http::{Limits, Request};
use tests::http::{PAGE, each_simulated_web, each_socket_web, each_web};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn a_program_says_no_before_a_request_is_read() {
    each_web(|web| {
        web.page();
        let asked = Rc::new(Cell::new(0));
        let count = asked.clone();
        web.server.set_newreqcb(move |_| {
            count.set(count.get() + 1);
            count.get() <= 3
        });
        let client = web.client();
        web.settle(&client);
        assert_eq!(asked.get(), 0, "nothing has come");
        for part in [&GET[..5], &GET[5..]] {
            client.write(part);
            web.settle(&client);
        }
        assert!(client.text().ends_with(PAGE));
        assert_eq!(asked.get(), 1, "once for each request");
        client.forget();
        let text = web.ask_to_end(&client, &GET.repeat(4));
        assert_eq!((text.matches(PAGE).count(), asked.get()), (2, 4), "what is out is answered");
        drop(client);
        let client = web.client();
        assert_eq!(web.ask_to_end(&client, GET), "");
        web.until_connections(0);
    });
}

#[test]
fn junk_behind_the_last_request_is_not_read_while_its_answer_is_out() {
    each_socket_web(|web| {
        let kept = web.keep();
        let client = web.client();
        client.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 1);
        let junk = vec![b'j'; 1 << 16];
        // Until nobody takes any more: what the kernel and one visit hold.
        let (mut sent, mut refused) = (0, 0);
        while refused < 20 {
            let taken = client.write_some(&junk);
            refused = if taken == 0 { refused + 1 } else { 0 };
            sent += taken;
            assert!(sent < 64 << 20, "somebody reads it");
            web.settle(&client);
        }
        kept.borrow_mut().remove(0).send_reply(200, None, PAGE).unwrap();
        web.until(&client, |got, _| got.ends_with(PAGE.as_bytes()));
    });
}

#[test]
fn junk_is_not_read_each_time_that_a_piece_of_the_answer_has_left() {
    each_simulated_web(|web| {
        let kept = web.keep();
        let client = web.client();
        client.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        web.bed.run_until(&mut web.base, || kept.borrow().len() == 1);
        let reply = kept.borrow_mut().remove(0).send_reply_start(200, None).unwrap();
        let junk = vec![b'j'; 1 << 16];
        let mut sent = 0;
        for _ in 0..100 {
            reply.chunk(PAGE).unwrap();
            sent += client.write_some(&junk);
            web.settle(&client);
        }
        assert!(sent < 2 << 20, "{sent} bytes for as many pieces as there were");
        reply.end().unwrap();
        web.until(&client, |got, _| got.ends_with(b"0\r\n\r\n"));
    });
}

#[test]
fn a_handler_has_its_time_if_there_is_a_limit() {
    each_simulated_web(|web| {
        let limits = Limits { handler_timeout: Some(Duration::from_secs(5)), ..Limits::default() };
        web.server.set_limits(limits);
        let kept = web.keep();
        let client = web.client();
        client.write(GET);
        assert_eq!(web.pass(&client, Duration::from_secs(4)), "");
        let text = web.pass(&client, Duration::from_secs(2));
        assert!(text.starts_with("HTTP/1.1 503 ") && client.is_ended(), "{text}");
        let late = kept.borrow_mut().remove(0);
        assert!(late.send_reply(200, None, PAGE).is_err_and(|error| error.is_client_gone()));

        // One that is forgotten ends its connection as well; one whose answer has begun has no deadline.
        web.server.set_gencb(|req: Request| std::mem::forget(req));
        let client = web.client();
        client.write(GET);
        web.pass(&client, Duration::from_secs(6));
        assert!(client.text().starts_with("HTTP/1.1 503 ") && client.is_ended());
        let replies = Rc::new(RefCell::new(Vec::new()));
        let sink = replies.clone();
        web.server.set_gencb(move |req: Request| {
            sink.borrow_mut().push(req.send_reply_start(200, None).unwrap());
        });
        let client = web.client();
        client.write(GET);
        web.pass(&client, Duration::from_secs(600));
        let reply = replies.borrow_mut().remove(0);
        reply.end().unwrap();
        assert!(web.settle(&client).ends_with("0\r\n\r\n"));
        web.server.free();
    });
}

#[test]
fn a_connection_has_as_many_requests_as_the_limit_says() {
    each_web(|web| {
        web.page();
        web.server.set_limits(Limits { max_requests: Some(2), ..Limits::default() });
        let client = web.client();
        let text = web.ask_to_end(&client, &GET.repeat(3));
        assert_eq!((text.matches(PAGE).count(), text.matches("Connection: close").count()), (2, 1));
    });
}
