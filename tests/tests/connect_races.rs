//! Which address of a name is tried when, to the millisecond of simulated time: RFC 8305, and the deadlines.

// Everything here is part of a test.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use event_core::testing::Reach;
use event_core::{BufferEvent, Family};
use tests::connects::stage;
use tests::each_seed;
use tests::streams::words;

const MS: Duration = Duration::from_millis(1);

#[test]
fn addresses_of_both_families_take_turns_a_quarter_of_a_second_apart() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        let hosts = ["2001:db8::1", "2001:db8::2", "192.0.2.1", "192.0.2.2", "192.0.2.3"];
        stage.resolver.answer("dead.test", 7 * MS, Family::Any, &hosts);
        for host in ["[2001:db8::1]", "[2001:db8::2]", "192.0.2.1", "192.0.2.2"] {
            stage.reach(&format!("{host}:80"), Reach::Never);
        }
        stage.reach("192.0.2.3:80", Reach::After(30 * MS));
        let server = stage.sim.listen(&"192.0.2.3:80".parse().unwrap()).unwrap();
        stage.start(stage.connect("dead.test:80"));
        stage.run();
        assert_eq!(
            stage.tried(),
            [
                "7 [2001:db8::1]:80",
                "257 192.0.2.1:80",
                "507 [2001:db8::2]:80",
                "757 192.0.2.2:80",
                "1007 192.0.2.3:80"
            ]
        );
        assert_eq!(stage.seen.take(), ["1037 connected"]);
        assert!(server.accept().is_some());
        assert_eq!(stage.sim.open_fds(), [], "the losers are closed, too");
    });
}

#[test]
fn the_first_to_connect_wins_and_the_others_are_closed_at_once() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        stage.resolver.answer("slow.test", Duration::ZERO, Family::Any, &["2001:db8::1", "192.0.2.1"]);
        stage.reach("[2001:db8::1]:80", Reach::After(400 * MS));
        stage.reach("192.0.2.1:80", Reach::After(20 * MS));
        let six = stage.sim.listen(&"[2001:db8::1]:80".parse().unwrap()).unwrap();
        let four = stage.sim.listen(&"192.0.2.1:80".parse().unwrap()).unwrap();
        let stream = stage.connect("slow.test:80").start(&stage.base).unwrap();
        let (peer, seen, sim) = (Rc::new(RefCell::new(None)), stage.seen.clone(), stage.sim.clone());
        let found = peer.clone();
        stream.set_event_cb(move |bev, event| {
            seen.push(format!("{} {} {}", sim.elapsed().as_millis(), words(event), sim.open_fds().len()));
            found.replace(bev.peer_address().ok());
            bev.free();
        });
        stage.run();
        assert_eq!(stage.seen.take(), ["270 connected 1"]);
        assert_eq!(peer.take().unwrap().to_string(), "192.0.2.1:80");
        stage.sim.advance(Duration::from_secs(1));
        assert!(six.accept().is_none() && four.accept().is_some(), "the slow one was called off in time");
    });
}

#[test]
fn an_attempt_that_fails_makes_room_for_the_next_at_once() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        let hosts = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"];
        stage.resolver.answer("some.test", Duration::ZERO, Family::Any, &hosts);
        stage.reach("192.0.2.1:80", Reach::FailsAtOnce(libc::ENETUNREACH));
        stage.reach("192.0.2.2:80", Reach::Fails(30 * MS, libc::ECONNREFUSED));
        stage.reach("192.0.2.3:80", Reach::Fails(300 * MS, libc::EHOSTUNREACH));
        stage.reach("192.0.2.4:80", Reach::Fails(100 * MS, libc::ENETUNREACH));
        stage.start(stage.connect("some.test:80"));
        stage.run();
        assert_eq!(
            stage.tried(),
            ["0 192.0.2.1:80", "0 192.0.2.2:80", "30 192.0.2.3:80", "280 192.0.2.4:80"]
        );
        // That there is no way to some says less than that one has refused.
        assert_eq!(stage.seen.take(), [format!("380 error Connect {}", libc::ECONNREFUSED)]);
        assert_eq!(stage.sim.open_fds(), []);
    });
}

#[test]
fn of_errors_that_say_the_same_the_last_is_told() {
    each_seed(|bed| {
        for (first, second, told) in [
            (libc::ECONNREFUSED, libc::EACCES, libc::EACCES),
            (libc::EACCES, libc::ECONNREFUSED, libc::ECONNREFUSED),
            (libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EHOSTUNREACH),
            (libc::ENETUNREACH, libc::ETIMEDOUT, libc::ETIMEDOUT),
            (libc::ETIMEDOUT, libc::EADDRNOTAVAIL, libc::ETIMEDOUT),
        ] {
            let mut stage = stage(bed);
            stage.resolver.answer("two.test", Duration::ZERO, Family::Any, &["192.0.2.1", "192.0.2.2"]);
            stage.reach("192.0.2.1:80", Reach::Fails(MS, first));
            stage.reach("192.0.2.2:80", Reach::FailsAtOnce(second));
            let stream = stage.connect("two.test:80").start(&stage.base).unwrap();
            stream.set_event_cb(|_, _| {});
            stage.run();
            assert_eq!(stream.error().unwrap().raw_os_error(), Some(told), "{first} {second}");
        }
    });
}

#[test]
fn an_answer_for_four_waits_fifty_milliseconds_for_six() {
    // When each answer comes, and what is then tried when.
    let cases: [(u32, u32, &[&str], &[&str]); 4] = [
        (10, 40, &["::1"], &["40 [::1]:80", "40 192.0.2.1:80"]),
        (10, 61, &["::1"], &["60 192.0.2.1:80", "61 [::1]:80"]),
        (10, 30, &[], &["30 192.0.2.1:80"]),
        (20, 5, &["::1"], &["5 [::1]:80", "20 192.0.2.1:80"]),
    ];
    each_seed(|bed| {
        for (four, six, sixes, expected) in cases {
            let mut stage = stage(bed);
            let begin = stage.sim.elapsed().as_millis();
            stage.resolver.answer("apart.test", four * MS, Family::V4, &["192.0.2.1"]);
            stage.resolver.answer("apart.test", six * MS, Family::V6, sixes);
            stage.start(stage.connect("apart.test:80"));
            stage.run();
            let tried: Vec<String> =
                stage.tries.take().iter().map(|(at, to)| format!("{} {to}", at - begin)).collect();
            assert_eq!(tried, expected, "four after {four} ms, six after {six} ms");
        }
    });
}

#[test]
fn six_that_comes_while_four_is_tried_takes_its_turn() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        stage.resolver.answer("late.test", Duration::ZERO, Family::V4, &["192.0.2.1", "192.0.2.2"]);
        stage.resolver.answer("late.test", 100 * MS, Family::V6, &["::1"]);
        stage.reach("192.0.2.1:80", Reach::Never);
        stage.reach("192.0.2.2:80", Reach::Never);
        let _server = stage.sim.listen(&"[::1]:80".parse().unwrap()).unwrap();
        stage.start(stage.connect("late.test:80"));
        stage.run();
        assert_eq!(stage.tried(), ["50 192.0.2.1:80", "300 [::1]:80"]);
        assert_eq!(stage.seen.take(), ["300 connected"]);
        assert_eq!((stage.resolver.open(), stage.resolver.called_off()), (0, 0));
    });
}

#[test]
fn a_connection_calls_off_the_answer_that_is_still_to_come() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        stage.resolver.answer("half.test", Duration::ZERO, Family::V6, &["::1"]);
        stage.resolver.answer("half.test", Duration::from_secs(9), Family::V4, &["192.0.2.1"]);
        let _server = stage.sim.listen(&"[::1]:80".parse().unwrap()).unwrap();
        stage.start(stage.connect("half.test:80"));
        stage.run();
        assert_eq!(stage.seen.take(), ["0 connected"]);
        assert_eq!((stage.resolver.open(), stage.resolver.called_off()), (0, 1));
    });
}

#[test]
fn one_family_alone_is_asked_for_and_tried() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        stage.resolver.answer("both.test", Duration::ZERO, Family::Any, &["::1", "192.0.2.1"]);
        for (family, expected) in [(Family::V4, "192.0.2.1:80"), (Family::V6, "[::1]:80")] {
            stage.start(stage.connect("both.test:80").family(family));
            stage.run();
            assert_eq!(stage.tries.take()[0].1, expected);
            assert_eq!(stage.resolver.queries().pop().unwrap().family, family);
        }
        // So it is with a source, which is of one family.
        let source: SocketAddr = ([192, 0, 2, 9], 0).into();
        stage.start(stage.connect("both.test:80").source(source));
        stage.run();
        assert_eq!(stage.tries.take().len(), 1);
        assert_eq!(stage.resolver.queries().pop().unwrap().family, Family::V4);
        stage.seen.take();
        stage.start(stage.connect("[::1]:80").source(source));
        stage.run();
        assert_eq!(
            stage.seen.take()[0].split(' ').skip(1).collect::<Vec<_>>().join(" "),
            "error Resolve there is no such address"
        );
    });
}

#[test]
fn a_resolver_that_never_answers_is_waited_for_until_the_deadline() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        stage.start(stage.connect("never.test:80"));
        stage.run();
        assert_eq!(stage.seen.take(), [format!("60000 error Resolve {}", libc::ETIMEDOUT)]);
        stage.start(stage.connect("never.test:80").deadline(Some(5 * MS)));
        stage.run();
        assert_eq!(stage.seen.take(), [format!("60005 error Resolve {}", libc::ETIMEDOUT)]);
        stage.start(stage.connect("never.test:80").deadline(Some(Duration::ZERO)));
        stage.run();
        assert_eq!(stage.seen.take(), [format!("60005 error Resolve {}", libc::ETIMEDOUT)]);
        assert_eq!((stage.resolver.open(), stage.resolver.called_off()), (0, 2), "no time, no question");
    });
}

#[test]
fn black_holes_end_by_their_own_deadline_or_that_of_all() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        stage.resolver.answer("hole.test", Duration::ZERO, Family::Any, &["192.0.2.1", "192.0.2.2"]);
        stage.reach("192.0.2.1:80", Reach::Never);
        stage.reach("192.0.2.2:80", Reach::Never);
        stage.start(stage.connect("hole.test:80"));
        stage.run();
        assert_eq!(stage.seen.take(), [format!("20250 error Connect {}", libc::ETIMEDOUT)]);
        stage.start(stage.connect("hole.test:80").attempt_deadline(None));
        stage.run();
        assert_eq!(stage.seen.take(), [format!("80250 error Connect {}", libc::ETIMEDOUT)]);
        stage.start(stage.connect("hole.test:80").attempt_deadline(Some(100 * MS)));
        stage.run();
        assert_eq!(stage.seen.take(), [format!("80450 error Connect {}", libc::ETIMEDOUT)]);
        assert_eq!(stage.sim.open_fds(), []);
        let tried: Vec<u128> = stage.tries.take().iter().map(|(at, _)| *at).collect();
        assert_eq!(tried, [0, 250, 20250, 20500, 80250, 80350], "a failure makes room for the next");
    });
}

#[test]
fn of_many_dead_addresses_some_are_tried_and_all_are_closed() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        let hosts: Vec<String> = (1..=60).map(|n| format!("192.0.2.{n}")).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        stage.resolver.answer("dead.test", Duration::ZERO, Family::Any, &hosts);
        for host in &hosts {
            stage.reach(&format!("{host}:80"), Reach::Never);
        }
        stage.start(stage.connect("dead.test:80").attempt_delay(Duration::ZERO));
        stage.run();
        let tried = stage.tries.take();
        assert_eq!(tried.len(), 32);
        assert_eq!(tried[31].0, 3100, "never less than 100 ms apart");
        assert_eq!(stage.seen.take(), [format!("23100 error Connect {}", libc::ETIMEDOUT)]);
        for host in &hosts {
            stage.reach(&format!("{host}:80"), Reach::FailsAtOnce(libc::ENETUNREACH));
        }
        stage.start(stage.connect("dead.test:80"));
        stage.run();
        assert_eq!(stage.tries.take().len(), 32);
        assert_eq!(stage.seen.take(), [format!("23100 error Connect {}", libc::ENETUNREACH)]);
        assert_eq!(stage.sim.open_fds(), []);
    });
}

#[test]
fn the_write_timeout_counts_while_a_name_is_looked_up() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        let stream = stage.start(stage.connect("never.test:80"));
        stream.set_timeouts(None, Some(70 * MS));
        stage.run();
        assert_eq!(stage.seen.take(), ["70 writing timeout"]);
        // It counts from when connecting begins.
        let later = BufferEvent::without_fd(&stage.base).unwrap();
        later.set_timeouts(None, Some(70 * MS));
        stage.sim.advance(50 * MS);
        stage.connect("never.test:80").start_on(&later).unwrap();
        stage.note(&later);
        stage.run();
        assert_eq!(stage.seen.take(), ["190 writing timeout"]);
        assert_eq!(stage.resolver.called_off(), 2);
    });
}
