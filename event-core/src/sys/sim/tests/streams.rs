//! Streams and pipes: what they report and answer.

use super::*;

/// What happens to the pair, what a poll of the first end says then, calls on it, and how they end.
type Scene = (&'static str, fn(&Stage, RawFd, RawFd), &'static str, &'static str, &'static [i32]);

fn play(unix: bool, scenes: &[Scene]) {
    for (title, act, report, calls, outcomes) in scenes {
        let stage = Stage::new();
        let (a, b) = stage.pair(unix);
        act(&stage, a, b);
        assert_eq!(name(stage.poll(a)), *report, "{title}: readiness");
        assert_eq!(probe(&stage, a, calls), *outcomes, "{title}: outcomes of {calls}");
    }
}

fn fill(stage: &Stage, fd: RawFd) {
    while stage.send(fd, &[0; 65_536]).is_ok() {}
}

// The expectations of the two tests that follow were read off Linux 6.18 with epoll on loopback sockets.

#[test]
fn tcp_streams_report_and_answer_as_those_of_linux_do() {
    play(
        false,
        &[
            ("idle", |_, _, _| {}, "W", "r", &[AGAIN]),
            ("full", |t, a, _| fill(t, a), "", "s", &[AGAIN]),
            ("data", |t, _, b| assert_eq!(t.send(b, b"abc").unwrap(), 3), "RW", "rr", &[3, AGAIN]),
            (
                "peer shut write",
                |t, _, b| t.sys.shutdown(b, Shutdown::Write).unwrap(),
                "RWC",
                "rsr",
                &[0, 1, 0],
            ),
            (
                "peer shut read",
                |t, _, b| t.sys.shutdown(b, Shutdown::Read).unwrap(),
                "W",
                "rss",
                &[AGAIN, 1, 1],
            ),
            (
                "own shut write",
                |t, a, _| t.sys.shutdown(a, Shutdown::Write).unwrap(),
                "W",
                "rs",
                &[AGAIN, PIPE],
            ),
            ("own shut read", |t, a, _| t.sys.shutdown(a, Shutdown::Read).unwrap(), "RWC", "rs", &[0, 1]),
            ("own shut both", |t, a, _| t.sys.shutdown(a, Shutdown::Both).unwrap(), "RWHC", "rs", &[0, PIPE]),
            ("both shut", both_shut, "RWHC", "rs", &[0, PIPE]),
            ("closed", |t, _, b| t.sys.close(b), "RWC", "rs", &[0, 1]),
            ("closed, then written to", closed_and_written_to, "RWEHC", "rsso", &[0, PIPE, PIPE, 0]),
            ("closed with unread", closed_with_unread, "RWEHC", "rrs", &[RESET, 0, PIPE]),
            ("closed with unread, send first", closed_with_unread, "RWEHC", "ssrr", &[RESET, PIPE, 0, 0]),
            ("data, then closed with unread", data_then_unread, "RWEHC", "rrrs", &[4, RESET, 0, PIPE]),
            ("the error is asked for", closed_with_unread, "RWEHC", "oors", &[libc::ECONNRESET, 0, 0, PIPE]),
            ("fin, then rst", fin_then_rst, "RWEHC", "rss", &[0, PIPE, PIPE]),
            ("both fins, then rst", both_fins_then_rst, "RWHC", "rs", &[0, PIPE]),
            ("own fin, then rst", own_fin_then_rst, "RWEHC", "rrs", &[RESET, 0, PIPE]),
            ("full, then closed", full_then_closed, "RWEHC", "rrs", &[RESET, 0, PIPE]),
        ],
    );
}

#[test]
fn unix_streams_report_and_answer_as_those_of_linux_do() {
    play(
        true,
        &[
            ("idle", |_, _, _| {}, "W", "r", &[AGAIN]),
            ("full", |t, a, _| fill(t, a), "", "s", &[AGAIN]),
            ("peer shut write", |t, _, b| t.sys.shutdown(b, Shutdown::Write).unwrap(), "RWC", "rs", &[0, 1]),
            (
                "peer shut read",
                |t, _, b| t.sys.shutdown(b, Shutdown::Read).unwrap(),
                "W",
                "rss",
                &[AGAIN, PIPE, PIPE],
            ),
            (
                "own shut write",
                |t, a, _| t.sys.shutdown(a, Shutdown::Write).unwrap(),
                "W",
                "rs",
                &[AGAIN, PIPE],
            ),
            ("own shut read", |t, a, _| t.sys.shutdown(a, Shutdown::Read).unwrap(), "RWC", "rs", &[0, 1]),
            ("own shut both", |t, a, _| t.sys.shutdown(a, Shutdown::Both).unwrap(), "RWHC", "rs", &[0, PIPE]),
            ("both shut", both_shut, "RWHC", "rs", &[0, PIPE]),
            ("closed", |t, _, b| t.sys.close(b), "RWHC", "rso", &[0, PIPE, 0]),
            ("closed with unread", closed_with_unread, "RWEHC", "rrs", &[RESET, 0, PIPE]),
            ("closed with unread, send first", closed_with_unread, "RWEHC", "ssrr", &[PIPE, PIPE, RESET, 0]),
            ("data, then closed with unread", data_then_unread, "RWEHC", "rrrs", &[4, RESET, 0, PIPE]),
            ("full, then closed", full_then_closed, "RWEHC", "rrs", &[RESET, 0, PIPE]),
        ],
    );
}

fn both_shut(stage: &Stage, a: RawFd, b: RawFd) {
    stage.sys.shutdown(a, Shutdown::Write).unwrap();
    stage.sys.shutdown(b, Shutdown::Write).unwrap();
}

fn closed_and_written_to(stage: &Stage, a: RawFd, b: RawFd) {
    stage.sys.close(b);
    assert_eq!(stage.send(a, b"x").unwrap(), 1);
}

fn data_then_unread(stage: &Stage, a: RawFd, b: RawFd) {
    stage.send(b, b"data").unwrap();
    closed_with_unread(stage, a, b);
}

fn fin_then_rst(stage: &Stage, _: RawFd, b: RawFd) {
    stage.sys.shutdown(b, Shutdown::Write).unwrap();
    stage.close_by_rst(b);
}

fn both_fins_then_rst(stage: &Stage, a: RawFd, b: RawFd) {
    both_shut(stage, a, b);
    stage.close_by_rst(b);
}

fn own_fin_then_rst(stage: &Stage, a: RawFd, b: RawFd) {
    stage.sys.shutdown(a, Shutdown::Write).unwrap();
    stage.close_by_rst(b);
    assert_eq!(code(stage.sys.shutdown(a, Shutdown::Write)), libc::ENOTCONN);
    assert_eq!(code(stage.sys.peer_address(a)), libc::ENOTCONN);
}

fn full_then_closed(stage: &Stage, a: RawFd, b: RawFd) {
    fill(stage, a);
    stage.sys.close(b);
}

#[test]
fn pipes_end_with_a_hang_up_and_break_with_an_error() {
    let stage = Stage::new();
    let (r, w) = stage.pipe();
    assert_eq!((name(stage.poll(r)), name(stage.poll(w))), (String::new(), "W".into()));
    stage.send(w, b"x").unwrap();
    assert_eq!(name(stage.poll(r)), "R");
    stage.sys.close(w);
    assert_eq!(name(stage.poll(r)), "RH");
    assert_eq!(probe(&stage, r, "rr"), [1, 0]);
    assert_eq!(name(stage.poll(r)), "H");

    let (r, w) = stage.pipe();
    fill(&stage, w);
    assert_eq!(name(stage.poll(w)), "");
    stage.sys.close(r);
    assert_eq!(name(stage.poll(w)), "E");
    assert_eq!(probe(&stage, w, "s"), [PIPE]);
}

#[test]
fn a_pipe_makes_its_stream_a_file_and_a_socket_does_not() {
    let stage = Stage::new();
    let (_, w) = stage.pipe();
    let (a, _) = stage.pair(false);
    let (of_pipe, of_socket) = (Cell::default(), Cell::default());
    stage.sys.send(w, &of_pipe, b"x").unwrap();
    stage.sys.send(a, &of_socket, b"x").unwrap();
    assert_eq!((of_pipe.get(), of_socket.get()), (FdKind::File, FdKind::Socket));
    assert_eq!(code(stage.sys.shutdown(w, Shutdown::Both)), libc::ENOTSOCK);
    assert_eq!(code(stage.sys.take_error(w)), libc::ENOTSOCK);
}

#[test]
fn a_receive_never_makes_the_buffer_grow() {
    let stage = Stage::new();
    let (a, b) = stage.pair(false);
    stage.send(b, b"0123456789").unwrap();
    let mut buf = Vec::with_capacity(4);
    buf.push(b'>');
    let (room, at) = (buf.capacity() - 1, buf.as_ptr());
    assert_eq!(stage.sys.recv(a, &Cell::default(), &mut buf, 100).unwrap(), room);
    assert_eq!((buf.len(), buf.as_ptr()), (buf.capacity(), at));
    let mut buf = Vec::with_capacity(100);
    assert_eq!(stage.sys.recv(a, &Cell::default(), &mut buf, 2).unwrap(), 2);
}

#[test]
fn several_pieces_are_sent_in_order_and_at_most_64_at_once() {
    let stage = Stage::new();
    let (a, b) = stage.pair(false);
    let text: Vec<[u8; 2]> = (0..70).map(|n| [n, n]).collect();
    let pieces: Vec<IoSlice<'_>> = text.iter().map(|piece| IoSlice::new(piece)).collect();
    assert_eq!(stage.sys.sendv(a, &Cell::default(), &pieces).unwrap(), 128);
    assert_eq!(stage.recv(b).unwrap(), text[..64].concat());
}

#[test]
fn the_send_buffer_is_bounded_and_room_wakes_the_sender() {
    let stage = Stage::new();
    stage.world.with(|state| state.default_capacity = 9);
    let (a, b) = stage.pair(false);
    stage.add(a, Interest::WRITE | Interest::EDGE);
    assert_eq!(stage.wait(NOW).len(), 1);
    assert_eq!(stage.send(a, &[7; 20]).unwrap(), 9);
    assert_eq!(code(stage.send(a, b"x")), libc::EAGAIN);
    let mut buf = Vec::with_capacity(2);
    stage.sys.recv(b, &Cell::default(), &mut buf, 2).unwrap();
    assert_eq!(stage.wait(NOW), [], "less than a third is free");
    stage.sys.recv(b, &Cell::default(), &mut Vec::with_capacity(1), 1).unwrap();
    assert_eq!(stage.wait(NOW), [(a as u64, Report::WRITE)]);
    assert_eq!(stage.wait(NOW), []);
    assert_eq!(stage.send(a, &[7; 20]).unwrap(), 3);
    stage.world.with(|state| state.file_of(a).and_then(|id| state.set_capacity(id, 100))).unwrap();
    assert_eq!(stage.wait(NOW), [(a as u64, Report::WRITE)], "a larger buffer is room, too");
}
