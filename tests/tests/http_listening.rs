//! Where a server listens, what makes its streams, and what becomes of a client too many.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::{Cell, RefCell};
use std::net::TcpListener;
use std::rc::Rc;

use event_core::{Address, Listener};
use event_http::{Overload, Server};
use tests::Bed;
use tests::http::{PAGE, Web, Wire, each_socket_web};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const LAST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// Runs a test where fds are the kernel's.
fn each_real_web(test: impl Fn(&mut Web<'_>)) {
    tests::each_backend(|bed: &Bed| {
        if bed.sim().is_none() {
            test(&mut Web::new(bed, Wire::Listener));
        }
    });
}

#[track_caller]
fn served_at(web: &mut Web<'_>, address: &Address) -> bool {
    let client = web.client_at(address);
    web.ask_to_end(&client, LAST).ends_with(PAGE)
}

#[test]
fn a_server_listens_on_many_sockets_and_leaves_one_alone_when_told() {
    each_socket_web(|web| {
        web.page();
        let server = web.server.clone();
        let second = server.bind("127.0.0.1:0").unwrap();
        assert_eq!((server.bound_sockets().len(), server.addresses().len()), (2, 2));
        let address = second.local_address().unwrap();
        assert!(second.fd().is_some() && second.is_enabled());
        assert!(served_at(web, &address));
        let kept = web.client_at(&address);
        assert!(web.ask(&kept, GET, 1).ends_with(PAGE));
        assert!(server.del_accept_socket(&second) && !server.del_accept_socket(&second));
        assert!(second.fd().is_none() && second.local_address().is_err());
        kept.forget();
        assert!(web.ask(&kept, GET, 1).ends_with(PAGE), "what it has accepted goes on");
        let first = web.address().clone();
        assert!(served_at(web, &first));
        assert_eq!(server.addresses(), [first]);
        server.free();
        assert!(server.bound_sockets().is_empty());
    });
}

#[test]
fn a_listener_made_elsewhere_serves_and_closes_with_the_server() {
    each_socket_web(|web| {
        web.page();
        let other = Rc::new(Cell::new(0));
        let count = other.clone();
        let any = "127.0.0.1:0";
        let listener = Listener::bind(&web.base, any, move |_, _| count.set(count.get() + 1)).unwrap();
        let bound = web.server.bind_listener(listener.clone()).unwrap();
        assert_eq!(Rc::strong_count(&other), 1, "its callback is replaced");
        let address = bound.local_address().unwrap();
        assert!(served_at(web, &address));
        web.server.free();
        assert!(listener.fd().is_none());
        let late = Listener::bind(&web.base, any, |_, _| {}).unwrap();
        assert!(web.server.bind_listener(late.clone()).is_err_and(|error| error.is_server_gone()));
        assert!(late.fd().is_none());
    });
}

#[test]
fn sockets_that_listen_already_are_taken_over() {
    each_real_web(|web| {
        web.page();
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Ip(socket.local_addr().unwrap());
        let bound = web.server.accept_socket(socket).unwrap();
        assert_eq!(bound.local_address().unwrap(), address);
        assert!(served_at(web, &address));

        let path =
            std::env::temp_dir().join(format!("event-http-{}-{:?}", std::process::id(), web.address()));
        let socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        web.server.accept_socket(socket).unwrap();
        let address = Address::Unix(Some(path.clone()));
        assert!(served_at(web, &address));
        std::fs::remove_file(path).unwrap();
    });
}

#[test]
fn a_factory_makes_the_streams_and_one_that_makes_none_closes_the_connection() {
    each_socket_web(|web| {
        web.page();
        let log = Rc::new(RefCell::new(String::new()));
        let server = web.server.clone();
        let second = server.bind("127.0.0.1:0").unwrap();
        let sink = log.clone();
        server.set_bevcb(move |stream| {
            sink.borrow_mut().push('s');
            Some(stream)
        });
        let sink = log.clone();
        let this = second.clone();
        second.set_bevcb(move |stream| {
            sink.borrow_mut().push('b');
            // It replaces itself: the new one makes none.
            this.set_bevcb(|_| None);
            Some(stream)
        });
        let (first, address) = (web.address().clone(), second.local_address().unwrap());
        assert!(served_at(web, &first) && served_at(web, &address));
        assert_eq!(*log.borrow(), "sb");
        for _ in 0..2 {
            let client = web.client_at(&address);
            assert_eq!(web.ask_to_end(&client, GET), "", "never in the clear instead");
        }
        // One that keeps what it got has no say over it.
        let kept = Rc::new(RefCell::new(Vec::new()));
        let sink = kept.clone();
        server.set_bevcb(move |stream| {
            sink.borrow_mut().push(stream);
            None
        });
        let client = web.client_at(&first);
        assert_eq!(web.ask_to_end(&client, GET), "");
        assert!(kept.borrow()[0].is_freed());
        server.set_bevcb(|_| tests::quiet_panic("a factory"));
        let client = web.client_at(&first);
        assert_eq!(web.ask_to_end(&client, GET), "");
        assert_eq!(server.connection_count(), 0);
        // One that captures its socket and its server is dropped with them.
        let (sink, this, that) = (log.clone(), second.clone(), server.clone());
        second.set_bevcb(move |_| {
            drop((sink.clone(), this.clone(), that.clone()));
            None
        });
        let (sink, that) = (log.clone(), server.clone());
        server.set_bevcb(move |stream| {
            sink.borrow_mut().push('f');
            that.free();
            Some(stream)
        });
        let client = web.client_at(&first);
        assert_eq!(web.ask_to_end(&client, GET), "");
        assert_eq!((log.borrow().as_str(), Rc::strong_count(&log)), ("sbf", 1));
    });
}

#[test]
fn a_client_too_many_waits_where_the_server_says_so() {
    each_socket_web(|web| {
        web.page();
        let server = web.server.clone();
        server.set_max_connections(Some(2));
        server.set_overload(Overload::Wait);
        let rests = server.bind("127.0.0.1:0").unwrap();
        rests.disable();
        let one = web.client();
        assert!(web.ask(&one, GET, 1).ends_with(PAGE));
        let two = web.client();
        assert!(web.ask(&two, GET, 1).ends_with(PAGE));
        let three = web.client();
        three.write(GET);
        assert_eq!(web.settle(&three), "");
        assert_eq!(server.connection_count(), 2);
        drop(one);
        web.until(&three, |got, _| got.ends_with(PAGE.as_bytes()));
        assert_eq!(server.connection_count(), 2);
        assert!(!rests.is_enabled(), "one that the program has disabled stays so");
        // Raising the bound lets the next in.
        let four = web.client();
        four.write(GET);
        assert_eq!(web.settle(&four), "");
        server.set_max_connections(Some(3));
        web.until(&four, |got, _| got.ends_with(PAGE.as_bytes()));
        server.set_overload(Overload::Refuse);
        let five = web.client();
        assert!(web.ask_to_end(&five, GET).starts_with("HTTP/1.1 503 "));
    });
}

#[test]
fn a_socket_bound_while_clients_wait_rests_as_well() {
    each_socket_web(|web| {
        web.page();
        let server = web.server.clone();
        server.set_max_connections(Some(1));
        server.set_overload(Overload::Wait);
        let one = web.client();
        assert!(web.ask(&one, GET, 1).ends_with(PAGE));
        let late = server.bind("127.0.0.1:0").unwrap();
        assert!(!late.is_enabled());
        let two = web.client_at(&late.local_address().unwrap());
        two.write(GET);
        assert_eq!(web.settle(&two), "");
        assert_eq!(server.connection_count(), 1);
        drop(one);
        web.until(&two, |got, _| got.ends_with(PAGE.as_bytes()));
    });
}

#[test]
fn handles_on_servers_are_found_from_their_requests() {
    each_socket_web(|web| {
        web.server.set_gencb(|req| {
            let server: Server = req.server();
            let count = server.connection_count();
            req.send_reply(200, None, format!("{count}"))
        });
        let client = web.client();
        assert!(web.ask(&client, GET, 1).ends_with("\r\n\r\n1"));
    });
}
