//! Priorities: the most urgent queue alone, and a switch to what is more urgent.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use event_core::{Error, Event, EventBase, LoopEnd, LoopFlags, Ready, Timer, What};
use tests::{Log, each_backend};

/// An event of a priority that notes its name.
fn noter(base: &EventBase, log: &Log<&'static str>, priority: u8, name: &'static str) -> Event {
    let sink = log.clone();
    let event = Event::new(base, -1, What::empty(), move |_, _| sink.push(name)).unwrap();
    event.set_priority(priority).unwrap();
    event
}

#[test]
fn a_loop_has_one_priority_until_it_is_told_otherwise_and_events_get_the_middle_one() {
    each_backend(|bed| {
        let base = bed.base();
        assert_eq!(base.priorities(), 1);
        base.priority_init(0).unwrap();
        assert_eq!(base.priorities(), 1, "there is always one");
        base.priority_init(255).unwrap();
        assert_eq!(base.priorities(), 255);
        base.priority_init(4).unwrap();
        let event = Event::new(&base, -1, What::empty(), |_, _| {}).unwrap();
        assert!(matches!(event.set_priority(4), Err(Error::Invalid(_))));
        event.set_priority(3).unwrap();
    });
}

#[test]
fn a_mailbox_of_a_priority_that_is_no_more_is_not_starved() {
    each_backend(|bed| {
        let mut base = bed.base();
        base.priority_init(10).unwrap();
        let log = Log::new();
        let sink = log.clone();
        let (_first, to_first) = base.mailbox(move |text| sink.push(text)).unwrap();
        let handle = base.handle();
        let mut turns = 0;
        let busy = Event::new(&base, -1, What::empty(), move |event, _| {
            turns += 1;
            if turns == 10 { handle.loopexit(None) } else { event.activate(Ready::READ) }.unwrap();
        })
        .unwrap();
        let (_second, to_second) = base
            .mailbox(move |()| busy.set_priority(1).and_then(|()| busy.activate(Ready::READ)).unwrap())
            .unwrap();
        // What had a priority beyond these is of the least urgent one.
        base.priority_init(2).unwrap();
        to_first.send("told").unwrap();
        to_second.send(()).unwrap();
        assert_eq!(base.run(LoopFlags::NO_EXIT_ON_EMPTY).unwrap(), LoopEnd::Exit);
        assert_eq!(log.take(), ["told"]);
    });
}

#[test]
fn urgent_callbacks_run_first_and_others_wait_for_the_next_turn() {
    each_backend(|bed| {
        let mut base = bed.base();
        base.priority_init(3).unwrap();
        let log = Log::new();
        let events = [
            noter(&base, &log, 2, "low"),
            noter(&base, &log, 1, "middle"),
            noter(&base, &log, 0, "high 1"),
            noter(&base, &log, 0, "high 2"),
        ];
        events.iter().for_each(|event| event.activate(Ready::READ).unwrap());
        base.run(LoopFlags::ONCE).unwrap();
        assert_eq!(log.take(), ["high 1", "high 2"]);
        base.run(LoopFlags::ONCE).unwrap();
        assert_eq!(log.take(), ["middle"]);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), ["low"]);
    });
}

#[test]
fn what_is_always_urgent_starves_the_rest_by_design() {
    each_backend(|bed| {
        let mut base = bed.base();
        base.priority_init(2).unwrap();
        let log = Log::new();
        let low = noter(&base, &log, 1, "low");
        let (sink, handle) = (log.clone(), base.handle());
        let high = Event::new(&base, -1, What::empty(), move |event, _| {
            sink.push("high");
            match sink.len() {
                n if n < 10 => event.activate(Ready::READ).unwrap(),
                _ => handle.loopexit(None).unwrap(),
            }
        })
        .unwrap();
        high.set_priority(0).unwrap();
        low.activate(Ready::READ).unwrap();
        high.activate(Ready::READ).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Exit);
        assert_eq!(log.take(), ["high"; 10]);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), ["low"]);
    });
}

#[test]
fn within_one_turn_and_one_priority_nobody_starves() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let sink = log.clone();
        // Activates itself over and over in the same pass.
        let greedy = Event::new(&base, -1, What::empty(), move |event, _| {
            sink.push("greedy");
            if sink.len() < 20 {
                event.activate_now(Ready::READ).unwrap();
            }
        })
        .unwrap();
        let other = noter(&base, &log, 0, "other");
        greedy.activate(Ready::READ).unwrap();
        other.activate(Ready::READ).unwrap();
        base.run(LoopFlags::ONCE).unwrap();
        let calls = log.take();
        assert_eq!(calls[..3], ["greedy", "other", "greedy"], "first come, first served");
    });
}

#[test]
fn a_more_urgent_activation_ends_the_batch_after_the_running_callback() {
    each_backend(|bed| {
        let mut base = bed.base();
        base.priority_init(2).unwrap();
        let log = Log::new();
        let high = noter(&base, &log, 0, "high");
        let (sink, id) = (log.clone(), high.id());
        let first = Event::new(&base, -1, What::empty(), move |event, _| {
            event.handle().activate_now(id, Ready::READ).unwrap();
            sink.push("low 1");
        })
        .unwrap();
        first.set_priority(1).unwrap();
        let second = noter(&base, &log, 1, "low 2");
        first.activate(Ready::READ).unwrap();
        second.activate(Ready::READ).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), ["low 1", "high", "low 2"]);
    });
}

#[test]
fn a_taken_back_urgent_activation_holds_nobody_up() {
    each_backend(|bed| {
        let mut base = bed.base();
        base.priority_init(3).unwrap();
        let log = Log::new();
        let high = noter(&base, &log, 0, "high");
        let low = noter(&base, &log, 2, "low");
        high.activate_now(Ready::READ).unwrap();
        low.activate_now(Ready::READ).unwrap();
        high.del().unwrap();
        base.run(LoopFlags::ONCE).unwrap();
        assert_eq!(log.take(), ["low"]);
    });
}

#[test]
fn an_active_event_keeps_its_priority() {
    each_backend(|bed| {
        let mut base = bed.base();
        base.priority_init(2).unwrap();
        let log = Log::new();
        let event = noter(&base, &log, 1, "ran");
        event.activate_now(Ready::READ).unwrap();
        assert!(matches!(event.set_priority(0), Err(Error::Invalid(_))));
        assert!(matches!(base.priority_init(3), Err(Error::Invalid(_))));
        base.dispatch().unwrap();
        event.set_priority(0).unwrap();
        base.priority_init(3).unwrap();
    });
}

#[test]
fn timers_and_fds_obey_their_priorities() {
    each_backend(|bed| {
        let mut base = bed.base();
        base.priority_init(2).unwrap();
        let (fd, peer) = bed.fd();
        peer.write_all(b"x");
        let log = Log::new();
        let sink = log.clone();
        let read = Event::new(&base, fd.raw(), What::READ, move |_, _| sink.push("read")).unwrap();
        read.set_priority(1).unwrap();
        read.add(None).unwrap();
        let sink = log.clone();
        let timer = Timer::new(&base, move |_| sink.push("timer")).unwrap();
        timer.set_priority(0).unwrap();
        timer.add(Duration::ZERO).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), ["timer", "read"]);
    });
}

#[test]
fn a_break_leaves_every_priority_as_it_is() {
    each_backend(|bed| {
        let mut base = bed.base();
        base.priority_init(2).unwrap();
        let log = Log::new();
        let low = noter(&base, &log, 1, "low");
        let (sink, handle) = (log.clone(), base.handle());
        let high = Event::new(&base, -1, What::empty(), move |_, _| {
            sink.push("high");
            handle.loopbreak().unwrap();
        })
        .unwrap();
        high.set_priority(0).unwrap();
        high.activate(Ready::READ).unwrap();
        low.activate(Ready::READ).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Break);
        assert_eq!(low.pending(), Ready::READ);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), ["high", "low"]);
    });
}
