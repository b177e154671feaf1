//! Objects that a loop owns, and holds on a loop.

// Everything here is part of a test.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use event_core::{Event, EventId, Hold, LoopEnd, LoopFlags, LoopHandle, Owned, Ready, Timer, What};
use tests::each_backend;
use tests::streams::{Canary, Seen};

type User = Box<dyn Fn(&LoopHandle)>;

/// An object with a callback of its user.
struct Object {
    seen: Seen,
    user: RefCell<Option<User>>,
}

impl Object {
    fn new(seen: &Seen, user: impl Fn(&LoopHandle) + 'static) -> Rc<Object> {
        Rc::new(Object { seen: seen.clone(), user: RefCell::new(Some(Box::new(user))) })
    }
}

impl Owned for Object {
    fn run(self: Rc<Self>, handle: &LoopHandle, ready: Ready) {
        self.seen.push(format!("{ready:?}"));
        let user = self.user.borrow_mut().take();
        if let Some(user) = user {
            user(handle);
            *self.user.borrow_mut() = Some(user);
        }
    }

    fn loop_gone(self: Rc<Self>) {
        self.seen.push("gone");
        let user = self.user.borrow_mut().take();
        drop(user);
    }
}

#[test]
fn an_owned_object_runs_when_it_is_activated_or_its_time_comes() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (seen, canary) = (Seen::new(), Canary::new());
        let held = canary.clone();
        let object = Object::new(&seen, move |_| {
            let _ = &held;
        });
        let id: EventId = base.own(object).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty, "it keeps nothing running");
        base.activate(id, Ready::WRITE).unwrap();
        assert!(seen.is_empty());
        base.run(LoopFlags::NONBLOCK).unwrap();
        assert_eq!(seen.take(), [format!("{:?}", Ready::WRITE)]);
        base.add(id, Some(Duration::from_millis(1))).unwrap();
        bed.pass(&mut base, Duration::from_millis(2));
        bed.settle(&mut base);
        assert_eq!(seen.take(), [format!("{:?}", Ready::TIMEOUT)]);
        bed.pass(&mut base, Duration::from_millis(3));
        assert!(seen.is_empty(), "once");
        drop(base);
        assert_eq!((seen.take(), canary.alive()), (vec!["gone".to_owned()], 0));
    });
}

#[test]
fn an_owned_object_may_be_freed_inside_itself_and_is_then_not_called() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (seen, canary) = (Seen::new(), Canary::new());
        let id = Rc::new(RefCell::new(None));
        let (own, held) = (id.clone(), canary.clone());
        let object = Object::new(&seen, move |handle| {
            let _ = &held;
            handle.free(own.borrow().unwrap()).unwrap();
        });
        let made = base.own(object).unwrap();
        *id.borrow_mut() = Some(made);
        base.activate(made, Ready::empty()).unwrap();
        bed.settle(&mut base);
        drop(base);
        assert_eq!((seen.len(), canary.alive()), (1, 0), "neither run again nor told that the loop is gone");
    });
}

#[test]
fn a_panic_in_an_owned_object_ends_it() {
    each_backend(|bed| {
        let mut base = bed.base();
        let seen = Seen::new();
        let id = base.own(Object::new(&seen, |_| panic!("on purpose"))).unwrap();
        base.activate(id, Ready::empty()).unwrap();
        assert!(catch_unwind(AssertUnwindSafe(|| bed.settle(&mut base))).is_err());
        assert!(!base.is_alive(id));
        assert_eq!(seen.take().last().map(String::as_str), Some("gone"));
        bed.settle(&mut base);
        assert!(seen.is_empty());
    });
}

#[test]
fn an_added_event_that_waits_for_nothing_keeps_the_loop_only_while_it_is_queued() {
    each_backend(|bed| {
        let mut base = bed.base();
        let seen = Seen::new();
        let log = seen.clone();
        let event = Event::new(&base, -1, What::PERSIST, move |_, _| log.push("called")).unwrap();
        event.add(None).unwrap();
        event.activate(Ready::WRITE).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(seen.take(), ["called"]);
    });
}

#[test]
fn a_hold_keeps_the_loop_running_until_it_is_dropped() {
    each_backend(|bed| {
        let mut base = bed.base();
        let hold: Rc<RefCell<Option<Hold>>> = Rc::new(RefCell::new(Some(base.hold())));
        let second = base.hold();
        let (held, seen) = (hold.clone(), Seen::new());
        let log = seen.clone();
        let timer = Timer::new(&base, move |_| {
            log.push("fired");
            let hold = held.borrow_mut().take();
            drop(hold);
        })
        .unwrap();
        timer.add(Duration::from_millis(2)).unwrap();
        drop(second);
        timer.detach();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!((seen.len(), hold.borrow().is_none()), (1, true));
        let late = base.hold();
        drop(base);
        drop(late);
    });
}
