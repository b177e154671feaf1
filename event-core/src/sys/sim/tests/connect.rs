//! Listening and connecting.

use super::*;

#[test]
fn a_connect_is_ready_when_it_is_done_and_both_ends_know_each_other() {
    let stage = Stage::new();
    let listener = stage.listen(&ip("127.0.0.1:0"), 5).unwrap();
    let at = stage.sys.local_address(listener).unwrap();
    assert!(matches!(at, Address::Ip(ip) if ip.port() != 0));
    assert_eq!(stage.poll(listener), Report::empty());
    let client = stage.sys.connect(&at).unwrap();
    assert_eq!(stage.poll(client), Report::WRITE);
    assert!(stage.sys.take_error(client).unwrap().is_none());
    assert_eq!(stage.poll(listener), Report::READ);
    let (server, from) = stage.sys.accept(listener).unwrap();
    assert_eq!(from, stage.sys.local_address(client).unwrap());
    assert_eq!(from, stage.sys.peer_address(server).unwrap());
    assert_eq!(at, stage.sys.peer_address(client).unwrap());
    assert_eq!(at, stage.sys.local_address(server).unwrap());
    assert_eq!(code(stage.sys.accept(listener)), libc::EAGAIN);
    stage.send(client, b"hello").unwrap();
    assert_eq!(stage.recv(server).unwrap(), b"hello");
}

#[test]
fn a_refused_connect_reports_everything_and_the_error_once() {
    let stage = Stage::new();
    let client = stage.sys.connect(&ip("127.0.0.1:80")).unwrap();
    assert_eq!(name(stage.poll(client)), "RWEHC");
    assert_eq!(probe(&stage, client, "oors"), [libc::ECONNREFUSED, 0, 0, PIPE]);
    assert_eq!(name(stage.poll(client)), "RWHC");
    let client = stage.sys.connect(&ip("127.0.0.1:80")).unwrap();
    assert_eq!(probe(&stage, client, "rrs"), [-libc::ECONNREFUSED, 0, PIPE]);
}

#[test]
fn with_a_latency_a_connect_is_in_progress_first() {
    let stage = Stage::new();
    stage.world.with(|state| state.default_latency = ms(10));
    let listener = stage.listen(&ip("127.0.0.1:80"), 5).unwrap();
    let client = stage.sys.connect(&ip("127.0.0.1:80")).unwrap();
    assert_eq!(stage.poll(client), Report::empty());
    assert_eq!(probe(&stage, client, "rs"), [AGAIN, AGAIN]);
    assert_eq!(code(stage.sys.peer_address(client)), libc::ENOTCONN);
    stage.add(client, Interest::WRITE);
    assert_eq!(stage.wait(None), [(client as u64, Report::WRITE)]);
    assert_eq!(stage.elapsed(), ms(10));
    assert_eq!(stage.poll(listener), Report::READ);
}

#[test]
fn both_ends_have_the_latency_that_was_set_while_connecting() {
    let stage = Stage::new();
    stage.world.with(|state| state.default_latency = ms(10));
    let listener = stage.listen(&ip("127.0.0.1:80"), 5).unwrap();
    let client = stage.sys.connect(&ip("127.0.0.1:80")).unwrap();
    stage.latency(client, ms(50));
    stage.world.with(|state| state.advance(ms(10)));
    let (server, _) = stage.sys.accept(listener).unwrap();
    for (from, to) in [(server, client), (client, server)] {
        stage.send(from, b"x").unwrap();
        stage.world.with(|state| state.advance(ms(49)));
        assert_eq!(code(stage.recv(to)), libc::EAGAIN);
        stage.world.with(|state| state.advance(ms(1)));
        assert_eq!(stage.recv(to).unwrap(), b"x");
    }
}

#[test]
fn a_connect_beyond_the_backlog_waits_for_an_accept() {
    let stage = Stage::new();
    let listener = stage.listen(&ip("0.0.0.0:80"), 2).unwrap();
    stage.add(listener, Interest::READ | Interest::EDGE);
    let clients: Vec<RawFd> = (0..5).map(|_| stage.sys.connect(&ip("127.0.0.1:80")).unwrap()).collect();
    let ready = |stage: &Stage| clients.iter().filter(|&&fd| stage.poll(fd) == Report::WRITE).count();
    assert_eq!(ready(&stage), 2);
    assert_eq!(stage.wait(NOW), [(listener as u64, Report::READ)]);
    assert_eq!(stage.wait(NOW), []);
    // The third client gives up; its place falls to the fourth.
    stage.sys.close(clients[2]);
    let (first, _) = stage.sys.accept(listener).unwrap();
    assert_eq!(stage.sys.peer_address(first).unwrap(), stage.sys.local_address(clients[0]).unwrap());
    assert_eq!(stage.poll(clients[3]), Report::WRITE);
    assert_eq!(stage.poll(clients[4]), Report::empty());
    assert_eq!(stage.wait(NOW), [(listener as u64, Report::READ)]);
    stage.sys.close(listener);
    assert!(stage.world.with(|state| state.listeners.is_empty()));
    assert_eq!(probe(&stage, clients[3], "r"), [RESET], "it was in the queue");
    assert_eq!(probe(&stage, clients[4], "r"), [-libc::ECONNREFUSED], "it was not");
    assert_eq!(probe(&stage, clients[0], "r"), [AGAIN], "an accepted one lives on");
    assert_eq!(stage.world.with(|state| state.objects.len()), 5, "four clients and one server end");
}

#[test]
fn an_address_is_taken_until_its_listener_closes() {
    let stage = Stage::new();
    for address in [ip("127.0.0.1:80"), ip("[::1]:80"), unix("/run/s")] {
        let listener = stage.listen(&address, 1).unwrap();
        assert_eq!(code(stage.listen(&address, 1)), libc::EADDRINUSE);
        stage.sys.close(listener);
        if let Some(path) = address.path() {
            // The file stays, and is in the way.
            assert_eq!(code(stage.listen(&address, 1)), libc::EADDRINUSE);
            stage.sys.unlink(path);
        }
        stage.listen(&address, 1).unwrap();
    }
    let one = stage.listen(&ip("127.0.0.1:0"), 1).unwrap();
    let other = stage.listen(&ip("127.0.0.1:0"), 1).unwrap();
    assert_ne!(stage.sys.local_address(one).unwrap(), stage.sys.local_address(other).unwrap());
}

#[test]
fn unix_sockets_connect_or_fail_in_the_call() {
    let stage = Stage::new();
    assert_eq!(code(stage.sys.connect(&unix("/run/s"))), libc::ENOENT);
    assert_eq!(code(stage.sys.connect(&Address::Unix(None))), libc::EINVAL);
    let listener = stage.listen(&unix("/run/s"), 1).unwrap();
    let client = stage.sys.connect(&unix("/run/s")).unwrap();
    assert_eq!(stage.poll(client), Report::WRITE);
    assert_eq!(code(stage.sys.connect(&unix("/run/s"))), libc::EAGAIN);
    let (server, from) = stage.sys.accept(listener).unwrap();
    assert_eq!(from, Address::Unix(None));
    assert_eq!(stage.sys.local_address(server).unwrap(), unix("/run/s"));
    stage.sys.close(listener);
    assert_eq!(code(stage.sys.connect(&unix("/run/s"))), libc::ECONNREFUSED);
}

#[test]
fn without_numbers_an_accept_fails_and_the_connection_stays_in_the_queue() {
    let stage = Stage::new();
    let listener = stage.listen(&ip("127.0.0.1:80"), 5).unwrap();
    let client = stage.sys.connect(&ip("127.0.0.1:80")).unwrap();
    stage.world.with(|state| state.set_open_file_limit(5));
    assert_eq!(stage.sys.open_file_limit(), 5);
    assert_eq!(code(stage.sys.accept(listener)), libc::EMFILE);
    assert_eq!(code(stage.sys.connect(&ip("127.0.0.1:80"))), libc::EMFILE);
    assert_eq!(code(stage.listen(&ip("127.0.0.1:81"), 1)), libc::EMFILE);
    assert_eq!(stage.poll(listener), Report::READ);
    stage.sys.close(client);
    assert_eq!(stage.sys.accept(listener).unwrap().0, client);
}

#[test]
fn calls_on_the_wrong_kind_of_file_fail_as_on_linux() {
    let stage = Stage::new();
    let listener = stage.listen(&ip("127.0.0.1:80"), 5).unwrap();
    let (stream, _) = stage.pair(false);
    let (reader, _) = stage.pipe();
    assert_eq!(probe(&stage, listener, "rso"), [-libc::ENOTCONN, PIPE, 0]);
    assert_eq!(code(stage.sys.peer_address(listener)), libc::ENOTCONN);
    assert_eq!(code(stage.sys.accept(stream)), libc::EINVAL);
    assert_eq!(code(stage.sys.accept(reader)), libc::ENOTSOCK);
    assert_eq!(code(stage.sys.local_address(reader)), libc::ENOTSOCK);
    for fd in [-1, 0, 99] {
        assert_eq!(probe(&stage, fd, "rso"), [-libc::EBADF; 3]);
        assert_eq!(code(stage.sys.accept(fd)), libc::EBADF);
        assert_eq!(code(stage.sys.shutdown(fd, Shutdown::Both)), libc::EBADF);
        assert_eq!(code(stage.sys.set_nonblocking(fd)), libc::EBADF);
        stage.sys.close(fd);
    }
}

#[test]
fn a_socket_is_made_bound_and_connected_in_three_steps() {
    let stage = Stage::new();
    let listener = stage.listen(&ip("127.0.0.1:80"), 5).unwrap();
    let client = stage.sys.socket(&ip("127.0.0.1:80")).unwrap();
    assert_eq!(name(stage.poll(client)), "WH");
    assert_eq!(probe(&stage, client, "rs"), [-libc::ENOTCONN, PIPE]);
    assert_eq!(code(stage.sys.peer_address(client)), libc::ENOTCONN);
    assert_eq!(code(stage.sys.bind(client, &ip("[::1]:7"))), libc::EAFNOSUPPORT);
    assert_eq!(code(stage.sys.bind(client, &unix("/a"))), libc::EINVAL);
    stage.sys.bind(client, &ip("127.0.0.9:7")).unwrap();
    assert_eq!(code(stage.sys.start_connect(client, &ip("[::1]:80"))), libc::EAFNOSUPPORT);
    stage.sys.start_connect(client, &ip("127.0.0.1:80")).unwrap();
    assert_eq!(stage.poll(client), Report::WRITE);
    assert_eq!(stage.sys.accept(listener).unwrap().1, ip("127.0.0.9:7"));
    assert_eq!(code(stage.sys.start_connect(client, &ip("127.0.0.1:80"))), libc::EISCONN);
    assert_eq!(code(stage.sys.bind(client, &ip("127.0.0.9:8"))), libc::EINVAL);
    let other = stage.sys.socket(&ip("127.0.0.1:80")).unwrap();
    stage.sys.bind(other, &ip("127.0.0.9:0")).unwrap();
    assert!(matches!(stage.sys.local_address(other).unwrap(), Address::Ip(ip) if ip.port() != 0));
    stage.sys.close(other);
}

#[test]
fn what_the_test_says_becomes_of_a_connect() {
    let stage = Stage::new();
    stage.listen(&ip("0.0.0.0:80"), 5).unwrap();
    let reach = |host: &str, reach| stage.world.with(|state| state.set_reach(&ip(host), Some(reach)));
    reach("10.0.0.1:80", Reach::FailsAtOnce(libc::ENETUNREACH));
    reach("10.0.0.2:80", Reach::Fails(ms(5), libc::EHOSTUNREACH));
    reach("10.0.0.3:80", Reach::Never);
    assert_eq!(code(stage.sys.connect(&ip("10.0.0.1:80"))), libc::ENETUNREACH);
    let failing = stage.sys.connect(&ip("10.0.0.2:80")).unwrap();
    let lost = stage.sys.connect(&ip("10.0.0.3:80")).unwrap();
    assert_eq!([stage.poll(failing), stage.poll(lost)], [Report::empty(); 2]);
    assert_eq!(code(stage.sys.start_connect(lost, &ip("10.0.0.3:80"))), libc::EALREADY);
    stage.world.with(|state| state.advance(ms(1_000_000)));
    assert_eq!(probe(&stage, failing, "o"), [libc::EHOSTUNREACH]);
    assert_eq!(stage.poll(lost), Report::empty());
    stage.world.with(|state| state.set_reach(&ip("10.0.0.1:80"), None));
    reach("10.0.0.2:80", Reach::After(ms(3)));
    assert_eq!(stage.poll(stage.sys.connect(&ip("10.0.0.1:80")).unwrap()), Report::WRITE);
    let slow = stage.sys.connect(&ip("10.0.0.2:80")).unwrap();
    assert_eq!(stage.poll(slow), Report::empty());
    stage.world.with(|state| state.advance(ms(3)));
    assert_eq!(stage.poll(slow), Report::WRITE);
}
