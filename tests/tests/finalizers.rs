//! libevent's finalizers in this library's terms: the `Drop` of what a callback captures, which runs when the callback
//! surely does not.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use event_core::{Error, Event, Ready, What};
use tests::{Log, OnDrop, each_backend};

const MS: Duration = Duration::from_millis(1);

/// What a callback captures: notes its end.
fn finalizer(log: &Log<&'static str>, text: &'static str) -> OnDrop<impl FnMut() + use<>> {
    let log = log.clone();
    OnDrop(move || log.push(text))
}

#[test]
fn it_runs_in_place_of_the_callback_for_idle_added_and_active_events() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let make = |text| {
            let captured = finalizer(&log, text);
            Event::new(&base, -1, What::empty(), move |_, _| {
                let _ = &captured;
                panic!("it was freed");
            })
            .unwrap()
        };
        let (idle, added, active) = (make("idle"), make("added"), make("active"));
        added.add(Some(MS)).unwrap();
        active.activate_now(Ready::READ).unwrap();
        let ids = [idle.id(), added.id(), active.id()];
        drop(idle);
        drop(added);
        drop(active);
        assert_eq!(log.take(), ["idle", "added", "active"]);
        for id in ids {
            assert!(matches!(base.add(id, Some(MS)), Err(Error::Stale)));
            assert!(matches!(base.activate(id, Ready::READ), Err(Error::Stale)));
        }
        base.dispatch().unwrap();
    });
}

#[test]
fn in_the_callback_itself_it_runs_after_the_return_and_before_the_next_callback() {
    each_backend(|bed| {
        for what in [What::empty(), What::PERSIST] {
            let mut base = bed.base();
            let log = Log::new();
            let own: Rc<RefCell<Option<Event>>> = Rc::default();
            let (slot, sink, captured) = (own.clone(), log.clone(), finalizer(&log, "finalizer"));
            let event = Event::new(&base, -1, what, move |_, _| {
                let _ = &captured;
                let event = slot.borrow_mut().take();
                drop(event);
                sink.push("callback returns");
            })
            .unwrap();
            event.activate_now(Ready::READ).unwrap();
            event.activate(Ready::READ).unwrap();
            *own.borrow_mut() = Some(event);
            let sink = log.clone();
            let next = Event::new(&base, -1, What::empty(), move |_, _| sink.push("next")).unwrap();
            next.activate_now(Ready::READ).unwrap();
            base.dispatch().unwrap();
            assert_eq!(log.take(), ["callback returns", "finalizer", "next"]);
        }
    });
}

#[test]
fn freeing_another_event_in_a_callback_finalizes_it_at_once_and_silences_it() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let captured = finalizer(&log, "finalizer");
        let other = Event::new(&base, -1, What::PERSIST, move |_, _| {
            let _ = &captured;
            panic!("it was freed");
        })
        .unwrap();
        other.activate(Ready::READ).unwrap();
        let (sink, victim) = (log.clone(), Cell::new(Some(other)));
        let event = Event::new(&base, -1, What::empty(), move |_, _| {
            drop(victim.take());
            sink.push("freed");
        })
        .unwrap();
        event.activate_now(Ready::READ).unwrap();
        base.dispatch().unwrap();
        assert_eq!(log.take(), ["finalizer", "freed"]);
    });
}

#[test]
fn a_new_event_may_be_made_in_it() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let again: Rc<RefCell<Option<Event>>> = Rc::default();
        let (slot, handle, sink) = (again.clone(), base.handle(), log.clone());
        let captured = OnDrop(move || {
            let sink = sink.clone();
            let event = Event::new(&handle, -1, What::empty(), move |_, _| sink.push("the new one")).unwrap();
            event.add(Some(MS)).unwrap();
            *slot.borrow_mut() = Some(event);
        });
        let event = Event::new(&base, -1, What::empty(), move |_, _| _ = &captured).unwrap();
        drop(event);
        base.dispatch().unwrap();
        assert_eq!(log.take(), ["the new one"]);
    });
}
