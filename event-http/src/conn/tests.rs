//! Time, order and the ends of connections.

use super::*;
use crate::encode::{self, Automatic, Payload, ReplyHead};
use crate::few::few_under_miri;

/// A connection with input that was not consumed, at a time.
struct Peer {
    conn: Conn<Vec<u8>>,
    input: Vec<u8>,
    now: Duration,
    pool: HeadPool,
    rules: Rules,
    wire: String,
}

impl Peer {
    fn new() -> Peer {
        Peer::with(Limits::default())
    }

    fn with(limits: Limits) -> Peer {
        let now = seconds(100);
        let methods = MethodSet::default() | crate::Method::CONNECT;
        Peer {
            conn: Conn::new(now),
            input: Vec::new(),
            now,
            pool: HeadPool::default(),
            rules: Rules { limits, methods, lenient_targets: false },
            wire: String::new(),
        }
    }

    /// Adds bytes and returns what the steps were, up to one that waits.
    fn feed(&mut self, bytes: &str) -> String {
        self.input.extend_from_slice(bytes.as_bytes());
        let mut steps = Vec::new();
        loop {
            let (consumed, step) = self.conn.next(&self.input, self.now, &self.rules, &mut self.pool);
            let (text, waits) = match step {
                Step::Closed => ("closed".into(), true),
                Step::Continue => ("continue".into(), false),
                Step::Data(range) => (format!("{}", self.input[range].escape_ascii()), false),
                Step::End { .. } => ("end".into(), false),
                Step::Fail { seq, error } => (format!("fail {:?} {}", error.status(), seq.is_some()), false),
                Step::Head { head, .. } => (head.target().to_string(), false),
                Step::NeedMore => ("more".into(), true),
                Step::Paused => ("paused".into(), true),
            };
            self.input.drain(..consumed);
            steps.push(text);
            if waits {
                return steps.join(" ");
            }
        }
    }

    /// One answer after another: `+name` as its body.
    fn answer(&mut self, seq: Seq, name: &str) -> Result<(), Error> {
        match self.conn.turn(seq) {
            Turn::Now => self.wire += name,
            Turn::Later(held) => held.extend_from_slice(name.as_bytes()),
            Turn::Gone => {}
        }
        self.conn.finish(seq)?;
        while let Some(advance) = self.conn.advance(self.now) {
            match advance {
                Advance::Turn(held) => self.wire += std::str::from_utf8(&held).unwrap(),
                Advance::Empty => self.wire += ".",
                Advance::HandOver => self.wire += "%",
                Advance::Last(_) => self.wire += "!",
            }
        }
        Ok(())
    }

    fn deadline(&self) -> Option<Duration> {
        self.conn.deadline(&self.rules.limits, false)
    }

    fn expire(&mut self, at: Duration) -> String {
        match self.conn.on_deadline(at, &self.rules.limits, false) {
            None => "nothing".into(),
            Some(Step::Fail { seq, error }) => format!("{:?} {}", error.status(), seq.is_some()),
            Some(step) => format!("{step:?}"),
        }
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn seq(conn: &Conn<Vec<u8>>, index: usize) -> Seq {
    let mut seqs = Queue::<Vec<u8>>::new();
    let to = ReplyTo { asked: Asked::Other, version: Version::Http11, close: false };
    let seq = (0..=index).map(|_| seqs.open(to)).last().unwrap();
    assert!(conn.exchange(seq).is_some());
    seq
}

const GET: &str = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
const POST: &str = "POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n";
const EXPECT: &str = "POST /e HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
const CHUNKED: &str = "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn an_idle_connection_is_closed_in_silence() {
    let mut peer = Peer::new();
    assert_eq!(peer.deadline(), Some(seconds(175)));
    assert_eq!(peer.expire(seconds(174)), "nothing");
    assert_eq!(peer.feed("\r\n"), "more");
    assert_eq!(peer.deadline(), Some(seconds(175)), "an empty line is no request");
    assert_eq!(peer.expire(seconds(175)), "None false");
    assert_eq!(peer.feed(GET), "closed");
}

#[test]
fn the_head_has_a_deadline_from_its_first_byte_however_the_bytes_drip() {
    let mut peer = Peer::new();
    peer.now = seconds(150);
    assert_eq!(peer.feed("G"), "more");
    for second in 151..170 {
        peer.now = seconds(second);
        assert_eq!(peer.feed("E"), "more");
        assert_eq!(peer.deadline(), Some(seconds(170)));
    }
    assert_eq!(peer.expire(seconds(170)), "Some(408) true");
    assert_eq!(peer.feed(GET), "closed");
}

#[test]
fn a_head_in_one_piece_arms_nothing_and_a_handler_has_no_deadline() {
    let mut peer = Peer::new();
    assert_eq!(peer.feed(GET), "/a end more");
    assert_eq!(peer.deadline(), None);
    peer.now = seconds(500);
    peer.answer(seq(&peer.conn, 0), "a").unwrap();
    assert_eq!(peer.deadline(), Some(seconds(575)), "idle from the answer on");
    assert_eq!(peer.conn.deadline(&peer.rules.limits, true), None, "not idle while the answer is unread");
    peer.conn.on_drained(seconds(600));
    assert_eq!(peer.deadline(), Some(seconds(675)));
}

#[test]
fn a_body_must_not_stop_nor_drip() {
    let mut peer = Peer::new();
    assert_eq!(peer.feed(&format!("{POST}12345")), "/p 12345 more");
    assert_eq!(peer.deadline(), Some(seconds(130)));
    peer.now = seconds(129);
    assert_eq!(peer.feed("6"), "6 more");
    assert_eq!(peer.deadline(), Some(seconds(130)), "six bytes in thirty seconds are too few");
    assert_eq!(peer.expire(seconds(130)), "Some(408) true");
    assert_eq!(peer.feed("7890"), "closed");

    let mut peer = Peer::with(Limits { min_body_rate: None, ..Limits::default() });
    peer.feed(&format!("{POST}12345"));
    peer.now = seconds(129);
    peer.feed("6");
    assert_eq!(peer.deadline(), Some(seconds(159)));
}

#[test]
#[cfg_attr(miri, ignore = "its forty thousand bytes are written out one by one")]
fn a_fast_body_earns_time() {
    let mut peer = Peer::new();
    let head = POST.replace("10", "1000000");
    peer.feed(&head);
    peer.now = seconds(101);
    peer.feed(&"x".repeat(20_000));
    assert_eq!(peer.deadline(), Some(seconds(131)), "the gap is nearer than the 40 s that the bytes earned");
    peer.now = seconds(125);
    peer.feed("x");
    assert_eq!(peer.deadline().map(|d| d.as_secs()), Some(140));
    peer.now = seconds(126);
    peer.feed(&"x".repeat(20_000));
    assert_eq!(peer.deadline(), Some(seconds(156)));
}

#[test]
fn dripping_chunk_lines_and_trailers_earn_nothing() {
    let mut peer = Peer::new();
    peer.feed(CHUNKED);
    for (second, bytes) in [(110, "0"), (120, "0"), (129, "0\r\nA:")] {
        peer.now = seconds(second);
        peer.feed(bytes);
        assert_eq!(peer.deadline(), Some(seconds(130)));
    }
    assert_eq!(peer.expire(seconds(130)), "Some(408) true");
}

#[test]
fn deadlines_of_none_never_come_and_zero_comes_at_once() {
    let none = Limits { idle_timeout: None, head_timeout: None, ..Limits::default() };
    let mut peer = Peer::with(none);
    assert_eq!(peer.deadline(), None);
    peer.feed("G");
    assert_eq!(peer.deadline(), None);
    assert_eq!(peer.expire(Duration::MAX), "nothing");
    let mut peer = Peer::with(Limits { idle_timeout: Some(Duration::ZERO), ..Limits::default() });
    assert_eq!(peer.expire(seconds(100)), "None false");
    let huge =
        Limits { min_body_rate: Some(u64::MAX), body_timeout: Some(Duration::MAX), ..Limits::default() };
    let mut peer = Peer::with(huge);
    peer.feed(&format!("{POST}12345"));
    assert_eq!(peer.deadline(), Some(seconds(130)));
    let zero = Limits { min_body_rate: Some(0), body_timeout: None, ..Limits::default() };
    let mut peer = Peer::with(zero);
    peer.feed(POST);
    assert_eq!(peer.deadline(), None);
}

#[test]
fn continue_is_sent_once_and_only_to_a_client_that_waits() {
    let mut peer = Peer::new();
    assert_eq!(peer.feed(EXPECT), "/e continue more");
    assert_eq!(peer.feed(""), "more");
    assert_eq!(peer.feed("ok"), "ok end more");
    let mut peer = Peer::new();
    assert_eq!(peer.feed(&format!("{EXPECT}o")), "/e o more");
    assert_eq!(peer.feed("k"), "k end more");
    let mut peer = Peer::new();
    assert_eq!(peer.feed(&EXPECT.replace("1.1", "1.0")), "/e more");
}

#[test]
fn continue_does_not_overtake_an_answer() {
    let mut peer = Peer::new();
    assert_eq!(peer.feed(&format!("{GET}{EXPECT}")), "/a end /e more");
    assert_eq!(peer.deadline(), None, "the client waits for us, not we for it");
    peer.now = seconds(200);
    peer.answer(seq(&peer.conn, 0), "a").unwrap();
    assert_eq!(peer.feed(""), "continue more");
    assert_eq!(peer.deadline(), Some(seconds(230)), "the body's clock begins with the 100");
}

#[test]
fn continue_is_not_sent_for_a_body_that_is_refused_or_was_answered() {
    let mut peer = Peer::with(Limits { max_body_bytes: Some(1), ..Limits::default() });
    assert_eq!(peer.feed(EXPECT), "/e fail Some(413) true closed");

    let mut peer = Peer::new();
    peer.input.extend_from_slice(EXPECT.as_bytes());
    let (consumed, step) = peer.conn.next(&peer.input, peer.now, &peer.rules, &mut peer.pool);
    let Step::Head { seq, .. } = step else { panic!("a head") };
    peer.input.drain(..consumed);
    assert!(peer.conn.is_unread(seq));
    peer.answer(seq, "no").unwrap();
    assert_eq!(peer.wire, "no!", "whether a body follows is not known, so the connection ends");
    assert_eq!(peer.feed("okGET /smuggled HTTP/1.1\r\n\r\n"), "closed");
}

#[test]
fn an_answer_that_starts_instead_of_a_continue_starts_the_clock_of_the_body() {
    let mut peer = Peer::new();
    peer.input.extend_from_slice(EXPECT.as_bytes());
    let (consumed, step) = peer.conn.next(&peer.input, peer.now, &peer.rules, &mut peer.pool);
    let Step::Head { seq, .. } = step else { panic!("a head") };
    peer.input.drain(..consumed);
    assert_eq!(peer.deadline(), None);
    let delivery = Delivery { mode: Mode::Chunked, close: false };
    peer.conn.start_reply(seq, delivery, seconds(110)).unwrap();
    assert_eq!(peer.feed(""), "more");
    assert_eq!(peer.deadline(), Some(seconds(140)));
    assert_eq!(peer.feed("ok"), "ok end more");
}

#[test]
fn answers_leave_in_the_order_of_the_requests() {
    let mut peer = Peer::new();
    assert_eq!(peer.feed(&GET.repeat(3)), "/a end /a end /a end more");
    let seqs = [0, 1, 2].map(|index| seq(&peer.conn, index));
    peer.answer(seqs[2], "c").unwrap();
    peer.answer(seqs[0], "a").unwrap();
    assert_eq!(peer.wire, "a");
    peer.answer(seqs[1], "b").unwrap();
    assert_eq!(peer.wire, "abc.");
    assert!(peer.answer(seqs[1], "again").is_err_and(|e| e.is_client_gone()));
}

#[test]
fn reading_waits_when_enough_requests_are_out() {
    let mut peer = Peer::with(Limits { max_parsed_ahead: Some(2), ..Limits::default() });
    assert_eq!(peer.feed(&GET.repeat(5)), "/a end /a end /a end paused");
    assert_eq!(peer.input.len(), 2 * GET.len(), "the rest stays untouched");
    assert_eq!(peer.deadline(), None);
    peer.answer(seq(&peer.conn, 0), "a").unwrap();
    assert_eq!(peer.feed(""), "/a end paused");
    assert_eq!(peer.conn.outstanding(), 3);
    let mut peer = Peer::with(Limits { max_parsed_ahead: Some(0), ..Limits::default() });
    assert_eq!(peer.feed(&GET.repeat(2)), "/a end paused");
}

#[test]
fn an_answer_that_closes_is_the_last() {
    let mut peer = Peer::new();
    peer.feed(&GET.repeat(3));
    let seqs = [0, 1, 2].map(|index| seq(&peer.conn, index));
    peer.answer(seqs[2], "c").unwrap();
    peer.conn.start_reply(seqs[1], Delivery { mode: Mode::UntilClose, close: true }, seconds(100)).unwrap();
    assert_eq!(peer.feed(GET), "closed");
    assert!(matches!(peer.conn.turn(seqs[2]), Turn::Gone));
    peer.answer(seqs[1], "b").unwrap();
    peer.answer(seqs[0], "a").unwrap();
    assert_eq!(peer.wire, "ab!");
    assert!(peer.conn.finish(seqs[2]).is_err_and(|e| e.is_client_gone()));
}

#[test]
fn a_refusal_waits_for_the_answers_before_it() {
    let mut peer = Peer::new();
    assert_eq!(peer.feed(&format!("{GET}GET / HTTP/1.1\r\n\r\n{GET}")), "/a end fail Some(400) true closed");
    let (first, refusal) = (seq(&peer.conn, 0), seq(&peer.conn, 1));
    peer.answer(refusal, "400").unwrap();
    assert_eq!(peer.wire, "");
    peer.answer(first, "a").unwrap();
    assert_eq!(peer.wire, "a400!");
}

#[test]
fn a_refused_head_request_is_answered_without_a_body() {
    let mut peer = Peer::new();
    peer.feed("\r\nHEAD / HTTP/1.1\r\n\r\n");
    let exchange = peer.conn.exchange(seq(&peer.conn, 0)).unwrap();
    assert!(exchange.to.asked == Asked::Head && exchange.to.close);
}

#[test]
fn a_body_that_fails_is_answered_in_its_own_exchange() {
    let mut peer = Peer::new();
    assert_eq!(peer.feed(&format!("{CHUNKED}5\r\nhello!")), "/c hello fail Some(400) true closed");
    assert_eq!(peer.conn.outstanding(), 1);
    assert!(peer.conn.exchange(seq(&peer.conn, 0)).unwrap().to.close);
}

#[test]
fn closing_while_the_own_body_is_read_still_reads_it() {
    let mut peer = Peer::new();
    assert_eq!(peer.feed(&format!("{POST}01234")), "/p 01234 more");
    let seq = seq(&peer.conn, 0);
    peer.conn.start_reply(seq, Delivery { mode: Mode::Chunked, close: true }, seconds(100)).unwrap();
    assert_eq!(peer.feed(&format!("56789{GET}")), "56789 end closed");
    peer.answer(seq, "p").unwrap();
    assert_eq!(peer.wire, "p!");
}

#[test]
fn an_answer_before_the_body_is_read_ends_the_connection() {
    let mut peer = Peer::new();
    peer.feed(&format!("{POST}01234"));
    let seq = seq(&peer.conn, 0);
    assert!(peer.conn.is_unread(seq));
    peer.answer(seq, "p").unwrap();
    assert_eq!(peer.wire, "p!");
    assert_eq!(peer.feed("56789"), "closed");
}

#[test]
fn bodies_of_answers_are_held_to_their_length() {
    let mut peer = Peer::new();
    peer.feed(&GET.repeat(2));
    let (first, second) = (seq(&peer.conn, 0), seq(&peer.conn, 1));
    assert!(peer.conn.take_body(first, 1).is_err_and(|e| e.is_caller()), "the head comes first");
    let delivery = Delivery { mode: Mode::Length(5), close: false };
    peer.conn.start_reply(first, delivery, seconds(100)).unwrap();
    assert!(peer.conn.start_reply(first, delivery, seconds(100)).is_err(), "one head");
    assert_eq!(peer.conn.take_body(first, 4).unwrap(), Mode::Length(1));
    assert!(peer.conn.take_body(first, 2).is_err_and(|e| e.is_caller()));
    assert_eq!(peer.conn.take_body(first, 1).unwrap(), Mode::Length(0));
    peer.answer(first, "").unwrap();
    peer.conn.start_reply(second, delivery, seconds(100)).unwrap();
    peer.conn.take_body(second, 4).unwrap();
    assert!(peer.conn.finish(second).is_err_and(|e| e.is_caller()));
    assert!(peer.conn.finish(second).is_err(), "it is over all the same");
    assert!(matches!(peer.conn.advance(peer.now), Some(Advance::Last(None))), "closing tells the client");
}

#[test]
fn what_may_be_another_protocol_waits_for_its_answer() {
    let upgrade =
        "GET /w HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n";
    for head in [upgrade, "CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n"] {
        let mut peer = Peer::new();
        assert!(peer.feed(&format!("{head}\x01raw")).ends_with("end paused"));
        assert_eq!(peer.input, b"\x01raw", "bytes of the other protocol are left alone");
        assert_eq!(peer.deadline(), None);
        peer.input.clear();
        peer.answer(seq(&peer.conn, 0), "no").unwrap();
        assert_eq!(peer.feed(GET), "/a end more", "refused, it is HTTP as before");
    }
}

#[test]
fn an_accepted_offer_hands_the_connection_over_in_its_turn() {
    let head = "GET /w HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: w\r\n\r\n";
    let mut peer = Peer::new();
    assert_eq!(peer.feed(&format!("{GET}{head}raw")), "/a end /w end paused");
    let (first, second) = (seq(&peer.conn, 0), seq(&peer.conn, 1));
    assert!(peer.conn.hand_over(first).is_err_and(|e| e.is_caller()), "it did not offer");
    peer.conn.hand_over(second).unwrap();
    assert!(peer.conn.advance(peer.now).is_none());
    peer.answer(first, "a").unwrap();
    assert_eq!(peer.wire, "a%");
    assert_eq!(peer.input, b"raw");
    assert_eq!(peer.deadline(), None);

    let mut peer = Peer::new();
    peer.feed(&head.replace("Upgrade\r\nU", "Upgrade, close\r\nU"));
    let only = seq(&peer.conn, 0);
    assert!(peer.conn.hand_over(only).is_err(), "the client ends the connection");
}

#[test]
fn a_connection_ends_with_the_last_request_that_it_may_have() {
    let mut peer = Peer::with(Limits { max_requests: Some(2), ..Limits::default() });
    assert_eq!(peer.feed(&GET.repeat(3)), "/a end /a end closed");
    let exchange = |peer: &Peer, index| peer.conn.exchange(seq(&peer.conn, index)).unwrap().to.close;
    assert!(!exchange(&peer, 0) && exchange(&peer, 1));
    let mut peer = Peer::with(Limits { max_requests: Some(1), ..Limits::default() });
    peer.feed(GET);
    peer.answer(seq(&peer.conn, 0), "a").unwrap();
    assert_eq!(peer.wire, "a!");
}

#[test]
fn the_clocks_of_a_body_stand_still_while_the_program_is_not_ready() {
    let mut peer = Peer::new();
    peer.feed(&format!("{POST}12345"));
    assert_eq!(peer.deadline(), Some(seconds(130)));
    peer.now = seconds(500);
    peer.conn.on_body_resumed(seconds(400), peer.now);
    assert_eq!(peer.deadline(), Some(seconds(530)));
    assert_eq!(peer.feed("67890"), "67890 end more");
}

#[test]
fn the_bound_of_a_body_may_change_once_its_head_is_read() {
    let mut peer = Peer::with(Limits { max_body_bytes: Some(1), ..Limits::default() });
    let step = |peer: &mut Peer, max| {
        let input = std::mem::take(&mut peer.input);
        let (consumed, step) = peer.conn.next_within(&input, peer.now, &peer.rules, max, &mut peer.pool);
        peer.input = input[consumed..].to_vec();
        format!("{step:?}")
    };
    peer.input.extend_from_slice(format!("{POST}0123456789").as_bytes());
    assert!(step(&mut peer, Some(1)).starts_with("Head"));
    assert!(step(&mut peer, None).starts_with("Data"));
    assert!(step(&mut peer, None).starts_with("End"));
}

#[test]
fn the_end_of_input_tells_what_it_cut_off() {
    let mut peer = Peer::new();
    assert_eq!(peer.conn.on_eof(), Eof::BetweenRequests);
    let mut peer = Peer::new();
    peer.feed("GET");
    assert_eq!(peer.conn.on_eof(), Eof::InHead);
    let mut peer = Peer::new();
    peer.feed(&format!("{GET}{POST}"));
    let (first, second) = (seq(&peer.conn, 0), seq(&peer.conn, 1));
    assert_eq!(peer.conn.on_eof(), Eof::InBody(second));
    peer.answer(first, "a").unwrap();
    assert_eq!(peer.wire, "a", "an answer that is out is still sent");
    assert!(peer.conn.exchange(second).unwrap().to.close);
}

#[test]
fn a_graceful_stop_answers_what_is_out_and_reads_no_more() {
    assert!(Peer::new().conn.stop());
    let mut peer = Peer::new();
    peer.feed(&GET.repeat(2));
    let (first, second) = (seq(&peer.conn, 0), seq(&peer.conn, 1));
    assert!(!peer.conn.stop());
    assert!(!peer.conn.exchange(first).unwrap().to.close && peer.conn.exchange(second).unwrap().to.close);
    assert_eq!(peer.feed(GET), "closed");
    peer.answer(first, "a").unwrap();
    peer.answer(second, "b").unwrap();
    assert_eq!(peer.wire, "ab!");

    let mut peer = Peer::new();
    peer.feed(&format!("{POST}01234"));
    assert!(!peer.conn.stop());
    assert_eq!(peer.feed(&format!("56789{GET}")), "56789 end closed", "a request that has begun is read");
}

#[test]
fn the_host_is_the_targets_before_the_fields() {
    for (head, host, path) in [
        ("GET http://b:1/x?y HTTP/1.1\r\nHost: a\r\n\r\n", Some("b:1"), "/x"),
        ("GET /x HTTP/1.1\r\nHost: a:2\r\n\r\n", Some("a:2"), "/x"),
        // RFC 9112 section 3.2.4: the absolute spelling of the asterisk.
        ("OPTIONS http://b HTTP/1.1\r\nHost: a\r\n\r\n", Some("b"), "*"),
        ("OPTIONS http://b?q HTTP/1.1\r\nHost: a\r\n\r\n", Some("b"), "/"),
        ("GET http://b HTTP/1.1\r\nHost: a\r\n\r\n", Some("b"), "/"),
        ("GET /x HTTP/1.1\r\nHost:\r\n\r\n", Some(""), "/x"),
        ("GET /x HTTP/1.0\r\n\r\n", None, "/x"),
        ("CONNECT h:1 HTTP/1.1\r\nHost: a\r\n\r\n", Some("h:1"), ""),
    ] {
        let mut peer = Peer::new();
        let (_, step) = peer.conn.next(head.as_bytes(), peer.now, &peer.rules, &mut peer.pool);
        let Step::Head { head, .. } = step else { panic!("{head}: {step:?}") };
        assert_eq!((head.host(), head.path()), (host, path));
    }
}

#[test]
fn a_warm_request_uses_the_memory_of_the_last() {
    let mut peer = Peer::new();
    let mut out = Vec::new();
    let mut held = None;
    for _ in 0..3 {
        let (_, step) = peer.conn.next(GET.as_bytes(), peer.now, &peer.rules, &mut peer.pool);
        let Step::Head { seq, head, .. } = step else { panic!("a head") };
        let at = head.headers().raw().next().map(|(name, _)| name.as_ptr());
        assert!(held.is_none() || held == at);
        held = at;
        peer.pool.give(head);
        let headers = Headers::new();
        let reply = ReplyHead { status: 200, reason: None, headers: &headers };
        let automatic = Automatic { date: b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n", content_type: None };
        let to = peer.conn.exchange(seq).unwrap().to;
        out.clear();
        let delivery = encode::reply_head(&mut out, to, &reply, Payload::Whole(0), automatic).unwrap();
        peer.conn.start_reply(seq, delivery, seconds(100)).unwrap();
        assert_eq!(peer.feed(""), "end more");
        peer.answer(seq, "").unwrap();
    }
    assert_eq!(peer.wire, "...");
}

#[test]
fn random_bytes_never_panic() {
    let mut state = 0x5eed_0002u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..few_under_miri(5_000, 10) {
        let mut peer = Peer::new();
        for _ in 0..8 {
            let bytes: Vec<u8> = (0..random() % 40).map(|_| (random() >> 11) as u8).collect();
            peer.input.extend(bytes);
            peer.feed(["", GET, POST, EXPECT, CHUNKED, "5\r\nhello\r\n", "0\r\n\r\n"][random() as usize % 7]);
            peer.now += seconds(random() % 9);
            peer.expire(peer.now);
            if random() % 16 == 0 {
                peer.conn.on_eof();
            }
            if random() % 4 == 0 && peer.conn.outstanding() > 0 {
                let newest = peer.conn.queue.newest();
                let _ = peer.answer(newest, "x");
            }
        }
    }
}

#[test]
fn reading_waits_when_the_bodies_that_are_out_are_larger_than_one_may_be() {
    let mut peer = Peer::with(Limits { max_body_bytes: Some(10), ..Limits::default() });
    let post = format!("{POST}0123456789");
    let one = "/p 0123456789 end";
    assert_eq!(peer.feed(&post.repeat(4)), format!("{one} {one} paused"));
    peer.answer(seq(&peer.conn, 0), "a").unwrap();
    assert_eq!(peer.feed(""), "paused", "what is still out counts until nothing is out");
    peer.answer(seq(&peer.conn, 1), "b").unwrap();
    assert_eq!(peer.feed(""), format!("{one} {one} paused"));
}
