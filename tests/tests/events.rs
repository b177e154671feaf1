//! Events on fds: what makes them ready, what they are told, and what adding and deleting do.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::rc::Rc;
use std::time::Duration;

use event_core::testing::{Call, Faults};
use event_core::{Error, Event, EventId, LoopEnd, LoopFlags, Ready, What};
use tests::events::{noter, pass};
use tests::{Log, each_backend, each_seed};

const MS: Duration = Duration::from_millis(1);
const READ: What = What::READ;
const WRITE: What = What::WRITE;
const PERSIST: What = What::PERSIST;

#[test]
fn data_and_then_the_end_of_the_stream_are_readable() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        let fd = Rc::new(fd);
        let log = Log::new();
        let (sink, reader) = (log.clone(), fd.clone());
        let event = Event::new(&base, fd.raw(), READ | PERSIST, move |event, ready| {
            let bytes = reader.read();
            if bytes.is_empty() {
                event.del().unwrap();
            }
            sink.push((ready, bytes));
        })
        .unwrap();
        event.add(None).unwrap();
        peer.write_all(b"some data");
        pass(&mut base);
        assert_eq!(log.take(), [(Ready::READ, b"some data".to_vec())]);
        peer.shutdown_write();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), [(Ready::READ, vec![])]);
    });
}

#[test]
fn an_fd_with_room_is_writable_and_a_full_one_is_not() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        let log = Log::new();
        let event = noter(&base, fd.raw(), WRITE, &log);
        event.add(None).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), [Ready::WRITE]);
        while fd.write(&[b'x'; 4096]) > 0 {}
        event.add(None).unwrap();
        pass(&mut base);
        assert!(log.is_empty());
        while !peer.read().0.is_empty() {}
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), [Ready::WRITE]);
    });
}

#[test]
fn the_close_of_the_peer_is_readable_when_idle_and_writable_when_full() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        while fd.write(&[b'x'; 4096]) > 0 {}
        let log = Log::new();
        let (read, write) = (noter(&base, fd.raw(), READ, &log), noter(&base, fd.raw(), WRITE, &log));
        read.add(None).unwrap();
        write.add(None).unwrap();
        pass(&mut base);
        assert!(log.is_empty(), "not before it is closed");
        drop(peer);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        let mut told = log.take();
        told.sort_by_key(|ready| ready.bits());
        assert_eq!(told, [Ready::READ, Ready::WRITE]);
    });
}

#[test]
fn a_one_shot_event_is_not_called_again_though_data_arrives() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        let log = Log::new();
        let event = noter(&base, fd.raw(), READ, &log);
        event.add(None).unwrap();
        peer.write_all(b"x");
        pass(&mut base);
        peer.write_all(b"y");
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), [Ready::READ]);
        assert_eq!(event.pending(), Ready::empty());
    });
}

#[test]
fn a_one_shot_event_is_no_longer_added_in_its_callback_and_a_persistent_one_is() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        peer.write_all(b"x");
        let log = Log::new();
        for what in [READ, READ | PERSIST] {
            let sink = log.clone();
            let event = Event::new(&base, fd.raw(), what, move |event, ready| {
                assert_eq!(event.handle().running_event(), Some(event.id()));
                sink.push((ready, event.pending()));
            })
            .unwrap();
            event.add(Some(Duration::from_secs(60))).unwrap();
            pass(&mut base);
        }
        let one_shot = (Ready::READ, Ready::empty());
        let persistent = (Ready::READ, Ready::READ | Ready::TIMEOUT);
        assert_eq!(log.take(), [one_shot, persistent]);
        assert_eq!(base.running_event(), None);
    });
}

#[test]
fn a_one_shot_event_may_add_itself_again() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        let log = Log::new();
        let sink = log.clone();
        let event = Event::new(&base, fd.raw(), READ, move |event, ready| {
            sink.push(ready);
            if sink.len() < 3 {
                event.add(None).unwrap();
            }
        })
        .unwrap();
        event.add(None).unwrap();
        peer.write_all(b"x");
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), [Ready::READ; 3]);
    });
}

#[test]
fn two_one_shot_events_on_one_fd_both_fire() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        let log = Log::new();
        let events = [noter(&base, fd.raw(), READ, &log), noter(&base, fd.raw(), READ, &log)];
        events.iter().for_each(|event| event.add(None).unwrap());
        peer.write_all(b"x");
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), [Ready::READ; 2]);
    });
}

#[test]
fn several_events_of_one_fd_are_each_told_what_they_asked_for() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        let logs = [Log::new(), Log::new(), Log::new()];
        let whats = [READ | PERSIST, WRITE | PERSIST, READ | WRITE | PERSIST];
        let events: Vec<Event> =
            whats.iter().zip(&logs).map(|(&w, l)| noter(&base, fd.raw(), w, l)).collect();
        events.iter().for_each(|event| event.add(None).unwrap());
        pass(&mut base);
        let told = |logs: &[Log<Ready>; 3]| logs.each_ref().map(Log::take);
        assert_eq!(told(&logs), [vec![], vec![Ready::WRITE], vec![Ready::WRITE]]);
        peer.write_all(b"x");
        pass(&mut base);
        let both = vec![Ready::READ | Ready::WRITE];
        assert_eq!(told(&logs), [vec![Ready::READ], vec![Ready::WRITE], both.clone()]);
        events[1].del().unwrap();
        pass(&mut base);
        assert_eq!(told(&logs), [vec![Ready::READ], vec![], both]);
        events[2].del().unwrap();
        pass(&mut base);
        pass(&mut base);
        assert_eq!(told(&logs), [vec![Ready::READ; 2], vec![], vec![]]);
        events[0].del().unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn an_interest_that_nobody_has_any_more_costs_one_idle_turn_and_no_spin() {
    each_backend(|bed| {
        let faults = Faults::new();
        let mut base = bed.base_with(&faults);
        let (fd, _peer) = bed.fd();
        let log = Log::new();
        let read = noter(&base, fd.raw(), READ | PERSIST, &log);
        let write = noter(&base, fd.raw(), WRITE | PERSIST, &log);
        read.add(None).unwrap();
        write.add(None).unwrap();
        write.del().unwrap();
        base.loopexit(Some(20 * MS)).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Exit);
        assert!(log.is_empty());
        assert!(faults.count(Call::Wait) <= 4, "{}", faults.count(Call::Wait));
    });
}

#[test]
fn adding_twice_is_harmless_and_one_deletion_undoes_it() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        let log = Log::new();
        let event = noter(&base, fd.raw(), READ | PERSIST, &log);
        event.add(None).unwrap();
        event.add(None).unwrap();
        peer.write_all(b"x");
        pass(&mut base);
        assert_eq!(log.take(), [Ready::READ]);
        event.del().unwrap();
        event.del().unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert!(log.is_empty());
    });
}

#[test]
fn a_new_timeout_replaces_the_old_and_none_keeps_it() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let event = noter(&base, -1, What::empty(), &log);
        event.add(Some(Duration::from_secs(3600))).unwrap();
        let far = event.deadline().unwrap();
        event.add(None).unwrap();
        assert_eq!(event.deadline(), Some(far));
        event.add(Some(2 * MS)).unwrap();
        assert!(event.deadline().unwrap() < far);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), [Ready::TIMEOUT]);
    });
}

#[test]
fn taking_the_timeout_away_leaves_the_readiness() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        let log = Log::new();
        let event = noter(&base, fd.raw(), READ | PERSIST, &log);
        event.add(Some(2 * MS)).unwrap();
        event.remove_timer().unwrap();
        assert_eq!((event.pending(), event.deadline()), (Ready::READ, None));
        bed.pass(&mut base, 6 * MS);
        assert!(log.is_empty());
        peer.write_all(b"x");
        pass(&mut base);
        assert_eq!(log.take(), [Ready::READ]);
    });
}

#[test]
fn pending_tells_what_is_waited_for_and_the_reasons_queued() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, _peer) = bed.fd();
        let log = Log::new();
        let event = noter(&base, fd.raw(), READ | WRITE | PERSIST, &log);
        assert_eq!(event.pending(), Ready::empty());
        event.activate(Ready::READ).unwrap();
        event.activate(Ready::WRITE).unwrap();
        assert_eq!(event.pending(), Ready::READ | Ready::WRITE);
        event.activate_now(Ready::TIMEOUT).unwrap();
        assert_eq!(event.pending(), Ready::READ | Ready::WRITE | Ready::TIMEOUT);
        event.del().unwrap();
        assert_eq!(event.pending(), Ready::empty());
        event.add(Some(Duration::from_secs(1))).unwrap();
        assert_eq!(event.pending(), Ready::READ | Ready::WRITE | Ready::TIMEOUT);
        event.del().unwrap();
        pass(&mut base);
        assert!(log.is_empty());
    });
}

#[test]
fn activating_works_without_adding_and_merges_the_reasons() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let event = noter(&base, -1, What::empty(), &log);
        event.activate(Ready::READ).unwrap();
        event.activate(Ready::WRITE).unwrap();
        event.activate_now(Ready::TIMEOUT).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), [Ready::READ | Ready::WRITE | Ready::TIMEOUT]);
    });
}

#[test]
fn activate_waits_a_turn_and_activate_now_does_not() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let (later, now) = (Log::new(), Log::new());
        let (second, third) =
            (noter(&base, -1, What::empty(), &later), noter(&base, -1, What::empty(), &now));
        let (second_id, third_id, sink) = (second.id(), third.id(), log.clone());
        let first = Event::new(&base, -1, What::empty(), move |event, _| {
            event.handle().activate(second_id, Ready::READ).unwrap();
            event.handle().activate_now(third_id, Ready::READ).unwrap();
            sink.push(());
        })
        .unwrap();
        first.activate(Ready::READ).unwrap();
        assert_eq!(base.run(LoopFlags::ONCE).unwrap(), LoopEnd::Once);
        assert_eq!((log.len(), later.len(), now.len()), (1, 0, 1));
        assert_eq!(base.run(LoopFlags::ONCE).unwrap(), LoopEnd::Once);
        assert_eq!((log.len(), later.len(), now.len()), (1, 1, 1));
    });
}

#[test]
fn events_that_activate_each_other_for_the_next_turn_do_not_starve_an_fd() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        peer.write_all(b"x");
        let log = Log::new();
        let turns = Log::new();
        let ids = Rc::new(std::cell::Cell::new([None::<EventId>; 2]));
        let balls: Vec<Event> = (0..2)
            .map(|n: usize| {
                let (turns, ids) = (turns.clone(), ids.clone());
                Event::new(&base, -1, What::empty(), move |event, _| {
                    turns.push(n);
                    event.handle().activate(ids.get()[1 - n].unwrap(), Ready::READ).unwrap();
                })
                .unwrap()
            })
            .collect();
        ids.set([Some(balls[0].id()), Some(balls[1].id())]);
        let (sink, handle) = (log.clone(), base.handle());
        let event = Event::new(&base, fd.raw(), READ | PERSIST, move |_, _| {
            sink.push(());
            if sink.len() == 100 {
                handle.loopbreak().unwrap();
            }
        })
        .unwrap();
        event.add(None).unwrap();
        balls[0].activate(Ready::READ).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Break);
        assert!((95..=105).contains(&turns.len()), "{}", turns.len());
    });
}

#[test]
fn a_persistent_event_that_is_ready_and_due_is_told_of_the_data_alone() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        let log = Log::new();
        let event = noter(&base, fd.raw(), READ | PERSIST, &log);
        event.add(Some(5 * MS)).unwrap();
        bed.stall(8 * MS);
        peer.write_all(b"x");
        let stalled = base.now();
        pass(&mut base);
        assert_eq!(log.take(), [Ready::READ]);
        assert!(event.deadline().unwrap() >= stalled + 5 * MS, "the timer starts anew");
        fd.read();
        base.run(LoopFlags::ONCE).unwrap();
        assert_eq!(log.take(), [Ready::TIMEOUT]);
    });
}

#[test]
fn a_one_shot_event_that_is_ready_and_due_is_told_both_in_one_call() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        let log = Log::new();
        let event = noter(&base, fd.raw(), READ, &log);
        event.add(Some(2 * MS)).unwrap();
        bed.stall(4 * MS);
        peer.write_all(b"x");
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), [Ready::READ | Ready::TIMEOUT]);
    });
}

#[test]
fn a_persistent_event_that_was_due_first_and_then_got_data_is_told_of_the_data_alone() {
    each_backend(|bed| {
        let mut base = bed.base();
        base.priority_init(2).unwrap();
        let (fd, peer) = bed.fd();
        let log = Log::new();
        let event = noter(&base, fd.raw(), READ | PERSIST, &log);
        event.set_priority(1).unwrap();
        event.add(Some(2 * MS)).unwrap();
        let urgent = Event::new(&base, -1, What::empty(), |_, _| {}).unwrap();
        urgent.set_priority(0).unwrap();
        urgent.activate(Ready::READ).unwrap();
        bed.stall(4 * MS);
        base.run(LoopFlags::ONCE).unwrap();
        assert!(log.is_empty(), "the urgent one went first");
        peer.write_all(b"x");
        base.run(LoopFlags::ONCE).unwrap();
        assert_eq!(log.take(), [Ready::READ]);
    });
}

#[test]
fn activity_restarts_the_timeout_of_a_persistent_event() {
    each_seed(|bed| {
        let mut base = bed.base();
        let sim = bed.sim().unwrap().clone();
        let (fd, peer) = bed.fd();
        let log = Log::new();
        let (sink, reader, clock) = (log.clone(), fd, sim.clone());
        let event = Event::new(&base, reader.raw(), READ | PERSIST, move |event, ready| {
            reader.read();
            sink.push((ready, clock.elapsed()));
            if sink.len() == 4 {
                event.del().unwrap();
            }
        })
        .unwrap();
        event.add(Some(100 * MS)).unwrap();
        let peer = Rc::new(peer);
        let writer = peer.clone();
        sim.at(60 * MS, move || writer.write_all(b"x"));
        let (handle, id) = (base.handle(), event.id());
        sim.at(330 * MS, move || handle.activate(id, Ready::READ).unwrap());
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(
            log.take(),
            [
                (Ready::READ, 60 * MS),
                (Ready::TIMEOUT, 160 * MS),
                (Ready::TIMEOUT, 260 * MS),
                (Ready::READ, 330 * MS),
            ]
        );
        event.add(Some(100 * MS)).unwrap();
        assert_eq!(event.pending(), Ready::READ | Ready::TIMEOUT);
    });
}

#[test]
fn many_ready_fds_are_each_told_once_a_pass() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let mut kept = Vec::new();
        for n in 0..70 {
            let (fd, peer) = bed.fd();
            let sink = log.clone();
            let event = Event::new(&base, fd.raw(), WRITE | PERSIST, move |_, _| sink.push(n)).unwrap();
            event.add(None).unwrap();
            kept.push((event, fd, peer));
        }
        // A first wait may take a part of them; the others are not told twice before all were told once.
        while log.len() < 70 {
            base.run(LoopFlags::ONCE).unwrap();
        }
        log.take();
        base.run(LoopFlags::ONCE).unwrap();
        let mut told = log.take();
        told.sort_unstable();
        assert_eq!(told, (0..70).collect::<Vec<_>>());
    });
}

#[test]
fn a_once_event_is_called_once_and_needs_no_object() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        peer.write_all(b"x");
        let log = Log::new();
        let note = |name: &'static str| {
            let log = log.clone();
            move |ready| log.push((name, ready))
        };
        base.once(-1, What::empty(), None, note("now")).unwrap();
        base.once(-1, What::empty(), Some(Duration::ZERO), note("zero")).unwrap();
        base.once(-1, What::empty(), Some(3 * MS), note("later")).unwrap();
        base.once(fd.raw(), READ, Some(Duration::from_secs(60)), note("read")).unwrap();
        base.once(fd.raw(), READ | WRITE, None, note("both")).unwrap();
        assert!(base.once(fd.raw(), READ | PERSIST, None, note("never")).is_err());
        assert!(base.once(i32::MAX, READ, None, note("never")).is_err());
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        let mut told = log.take();
        told.sort_by_key(|entry| entry.0);
        assert_eq!(
            told,
            [
                ("both", Ready::READ | Ready::WRITE),
                ("later", Ready::TIMEOUT),
                ("now", Ready::TIMEOUT),
                ("read", Ready::READ),
                ("zero", Ready::TIMEOUT),
            ]
        );
    });
}

#[test]
fn a_stale_id_is_told_so_by_every_call() {
    each_backend(|bed| {
        let base = bed.base();
        let event = Event::new(&base, -1, What::empty(), |_, _| {}).unwrap();
        let id = event.id();
        assert!(base.is_alive(id));
        base.free(id).unwrap();
        base.free(id).unwrap();
        // The slot is taken again: the old id must not speak of the new event.
        let other = Event::new(&base, -1, What::empty(), |_, _| {}).unwrap();
        assert_ne!(other.id(), id);
        assert!(!base.is_alive(id));
        assert!(matches!(base.add(id, None), Err(Error::Stale)));
        assert!(matches!(base.del(id), Err(Error::Stale)));
        assert!(matches!(base.activate(id, Ready::READ), Err(Error::Stale)));
        assert!(matches!(base.activate_now(id, Ready::READ), Err(Error::Stale)));
        assert!(matches!(base.remove_timer(id), Err(Error::Stale)));
        assert!(matches!(base.set_priority(id, 0), Err(Error::Stale)));
        assert!(matches!(base.set_background(id, true), Err(Error::Stale)));
        assert!(matches!(event.set_callback(|_, _| {}), Err(Error::Stale)));
        assert_eq!((base.pending(id), base.deadline(id)), (Ready::empty(), None));
        drop(event);
        assert!(base.is_alive(other.id()));
    });
}

#[test]
fn a_fresh_event_is_pending_for_nothing() {
    each_backend(|bed| {
        let base = bed.base();
        let event = Event::new(&base, -1, READ, |_, _| {}).unwrap();
        assert_eq!((event.pending(), event.deadline()), (Ready::empty(), None));
    });
}

#[test]
fn pieces_go_both_ways_with_one_shot_and_with_persistent_events() {
    each_backend(|bed| {
        for persist in [What::empty(), PERSIST] {
            let mut base = bed.base();
            let (fd, peer) = bed.fd();
            let fd = Rc::new(fd);
            let data: Vec<u8> = (0..tests::few_under_miri(20_000_u32, 1_000)).map(|n| n as u8).collect();
            let sent = Rc::new(std::cell::Cell::new(0));
            let (file, bytes, at) = (fd.clone(), data.clone(), sent.clone());
            let write = Event::new(&base, fd.raw(), WRITE | persist, move |event, _| {
                let end = (at.get() + 128).min(bytes.len());
                at.set(at.get() + file.write(&bytes[at.get()..end]));
                match at.get() < bytes.len() {
                    true => event.add(None).unwrap(),
                    false => event.del().unwrap(),
                }
            })
            .unwrap();
            let got = Rc::new(std::cell::RefCell::new(Vec::new()));
            let (file, sink, size) = (fd.clone(), got.clone(), data.len());
            let read = Event::new(&base, fd.raw(), READ | persist, move |event, _| {
                sink.borrow_mut().extend(file.read());
                match sink.borrow().len() < size {
                    true => event.add(None).unwrap(),
                    false => event.del().unwrap(),
                }
            })
            .unwrap();
            write.add(None).unwrap();
            read.add(None).unwrap();
            let mut echoed = Vec::new();
            let mut back = 0;
            bed.run_until(&mut base, || {
                echoed.extend(peer.read().0);
                back += peer.write(&echoed[back..]);
                got.borrow().len() == data.len()
            });
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
            assert!(echoed == data && *got.borrow() == data);
        }
    });
}

#[test]
fn two_events_that_add_each_other_again_and_again_alternate() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (fd, peer) = bed.fd();
        peer.write_all(b"x");
        let log = Log::new();
        let ids = Rc::new(std::cell::Cell::new([None::<EventId>; 2]));
        let events: Vec<Event> = (0..2)
            .map(|n: usize| {
                let (log, ids) = (log.clone(), ids.clone());
                Event::new(&base, fd.raw(), READ, move |event, _| {
                    log.push(n);
                    if log.len() < 6 {
                        event.handle().add(ids.get()[1 - n].unwrap(), None).unwrap();
                    }
                })
                .unwrap()
            })
            .collect();
        ids.set([Some(events[0].id()), Some(events[1].id())]);
        events[0].add(None).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), [0, 1, 0, 1, 0, 1]);
    });
}
