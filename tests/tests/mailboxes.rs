//! Mailboxes: what becomes of messages, and of those that read them.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use event_core::testing::{Call, Faults};
use event_core::{Event, LoopEnd, LoopFlags, Ready, SendError, What};
use tests::{Alive, Log, OnDrop, each_backend};

/// Runs until somebody stops the loop, as a program does whose work comes from other threads.
const WAITING: LoopFlags = LoopFlags::NO_EXIT_ON_EMPTY;

#[test]
fn the_callback_of_a_mailbox_captures_what_it_likes() {
    each_backend(|bed| {
        let mut base = bed.base();
        const MESSAGES: u64 = tests::few_under_miri(100, 10);
        let sum = Rc::new(Cell::new(0));
        let (state, handle) = (sum.clone(), base.handle());
        let (mailbox, sender) = base
            .mailbox(move |n: u64| {
                state.set(state.get() + n);
                if n == 0 {
                    handle.loopexit(None).unwrap();
                }
            })
            .unwrap();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let sender = sender.clone();
                std::thread::spawn(move || (1..=MESSAGES).for_each(|n| sender.send(n).unwrap()))
            })
            .collect();
        let last = sender.clone();
        let closer = std::thread::spawn(move || {
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            last.send(0).unwrap();
        });
        assert_eq!(base.run(WAITING).unwrap(), LoopEnd::Exit);
        closer.join().unwrap();
        assert_eq!(sum.get(), 4 * MESSAGES * (MESSAGES + 1) / 2);
        drop(mailbox);
    });
}

#[test]
fn a_dropped_mailbox_hands_messages_back() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (mailbox, sender) = base.mailbox(|_: String| unreachable!()).unwrap();
        sender.send("lost".to_owned()).unwrap();
        drop(mailbox);
        assert_eq!(sender.send("back".to_owned()), Err(SendError("back".to_owned())));
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn a_message_that_nobody_reads_is_dropped_with_the_mailbox_or_the_loop() {
    each_backend(|bed| {
        struct Counted(Arc<AtomicUsize>);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let dropped = Arc::new(AtomicUsize::new(0));
        let base = bed.base();
        let (mailbox, sender) = base.mailbox(|_: Counted| unreachable!()).unwrap();
        let (other, to_other) = base.mailbox(|_: Counted| unreachable!()).unwrap();
        sender.send(Counted(dropped.clone())).unwrap();
        to_other.send(Counted(dropped.clone())).unwrap();
        let posted = Counted(dropped.clone());
        base.remote().post(move |_| drop(posted)).unwrap();
        drop(mailbox);
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        drop(base);
        assert_eq!(dropped.load(Ordering::Relaxed), 3);
        assert!(to_other.send(Counted(dropped.clone())).is_err());
        drop(other);
    });
}

#[test]
fn a_mailbox_dropped_in_its_own_callback_stops_there() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let own = Rc::new(Cell::new(None));
        let (sink, slot) = (log.clone(), own.clone());
        let (mailbox, sender) = base
            .mailbox(move |n: i32| {
                sink.push(n);
                drop(slot.take());
            })
            .unwrap();
        own.set(Some(mailbox));
        (1..=3).for_each(|n| sender.send(n).unwrap());
        base.dispatch().unwrap();
        assert_eq!(log.take(), [1]);
        assert_eq!(sender.send(4), Err(SendError(4)));
    });
}

#[test]
fn a_detached_mailbox_lives_as_long_as_the_loop() {
    each_backend(|bed| {
        let alive = Alive::default();
        let mut base = bed.base();
        let (log, token) = (Log::new(), alive.token());
        let sink = log.clone();
        let (mailbox, sender) = base
            .mailbox(move |n: i32| {
                let _ = &token;
                sink.push(n);
            })
            .unwrap();
        mailbox.detach();
        sender.send(1).unwrap();
        base.dispatch().unwrap();
        assert_eq!(log.take(), [1]);
        drop(base);
        assert_eq!(alive.count(), 0);
        assert!(sender.send(2).is_err());
    });
}

#[test]
fn loopbreak_in_a_mailbox_stops_before_the_next_message() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let (sink, handle) = (log.clone(), base.handle());
        let (_mailbox, sender) = base
            .mailbox(move |n: i32| {
                sink.push(n);
                handle.loopbreak().unwrap();
            })
            .unwrap();
        (1..=3).for_each(|n| sender.send(n).unwrap());
        for n in 1..=3 {
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Break);
            assert_eq!(log.take(), [n]);
        }
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn a_more_urgent_event_goes_before_the_next_message() {
    each_backend(|bed| {
        let mut base = bed.base();
        base.priority_init(3).unwrap();
        let log = Log::new();
        let sink = log.clone();
        let urgent = Event::new(&base, -1, What::empty(), move |_, _| sink.push(0)).unwrap();
        urgent.set_priority(0).unwrap();
        let (sink, handle, id) = (log.clone(), base.handle(), urgent.id());
        let (_mailbox, sender) = base
            .mailbox(move |n: i32| {
                sink.push(n);
                handle.activate_now(id, Ready::READ).unwrap();
            })
            .unwrap();
        (1..=3).for_each(|n| sender.send(n).unwrap());
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), [1, 0, 2, 0, 3, 0]);
    });
}

#[test]
fn a_thousand_messages_are_one_turn() {
    each_backend(|bed| {
        let faults = Faults::new();
        let mut base = bed.base_with(&faults);
        let log = Log::new();
        let (sink, handle) = (log.clone(), base.handle());
        let (_mailbox, sender) = base
            .mailbox(move |n: usize| {
                sink.push(n);
                if n == 999 {
                    handle.loopexit(None).unwrap();
                }
            })
            .unwrap();
        std::thread::spawn(move || (0..1000).for_each(|n| sender.send(n).unwrap())).join().unwrap();
        assert_eq!(base.run(WAITING).unwrap(), LoopEnd::Exit);
        assert_eq!(log.take(), (0..1000).collect::<Vec<_>>());
        assert_eq!(faults.count(Call::Wait), 1);
    });
}

#[test]
fn what_a_callback_sends_or_posts_waits_a_turn() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let own = Rc::new(std::cell::OnceCell::<event_core::Sender<i32>>::new());
        let (sink, to_self) = (log.clone(), own.clone());
        let (_mailbox, sender) = base
            .mailbox(move |n| {
                sink.push(n);
                if n < 10 {
                    to_self.get().unwrap().send(n + 10).unwrap();
                }
            })
            .unwrap();
        own.set(sender.clone()).unwrap();
        let posted = Arc::new(AtomicUsize::new(0));
        let (count, again) = (posted.clone(), base.remote());
        base.remote()
            .post(move |_| {
                again.post(move |_| _ = count.fetch_add(1, Ordering::Relaxed)).unwrap();
            })
            .unwrap();
        (1..=2).for_each(|n| sender.send(n).unwrap());
        base.run(LoopFlags::ONCE).unwrap();
        assert_eq!((log.take(), posted.load(Ordering::Relaxed)), (vec![1, 2], 0));
        base.run(LoopFlags::ONCE).unwrap();
        assert_eq!((log.take(), posted.load(Ordering::Relaxed)), (vec![11, 12], 1));
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

/// A message that tells of its end, and sends another when it is dropped.
struct Chatty(Arc<AtomicUsize>, Option<event_core::Sender<Chatty>>);

impl Drop for Chatty {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        if let Some(sender) = self.1.take() {
            // With a lock held this would hang; the message that comes back tells of its end, too.
            drop(sender.send(Chatty(self.0.clone(), None)));
        }
    }
}

#[test]
fn a_mailbox_dropped_in_its_own_callback_drops_what_waits_at_once() {
    each_backend(|bed| {
        let mut base = bed.base();
        let dropped = Arc::new(AtomicUsize::new(0));
        let own = Rc::new(Cell::new(None));
        let to_self = Rc::new(std::cell::OnceCell::<event_core::Sender<Chatty>>::new());
        let (slot, count, again) = (own.clone(), dropped.clone(), to_self.clone());
        let (mailbox, sender) = base
            .mailbox(move |message: Chatty| {
                let sender = again.get().unwrap();
                // One that has not been taken with the others.
                sender.send(Chatty(count.clone(), None)).unwrap();
                drop(slot.take());
                assert_eq!(count.load(Ordering::Relaxed), 2 + 1 + 2, "two, one more, and two that came back");
                assert!(sender.send(Chatty(count.clone(), None)).is_err());
                assert_eq!(count.load(Ordering::Relaxed), 6);
                drop(message);
            })
            .unwrap();
        to_self.set(sender.clone()).unwrap();
        own.set(Some(mailbox));
        (0..3).for_each(|_| {
            sender.send(Chatty(dropped.clone(), Some(sender.clone()))).unwrap_or_else(|_| panic!("refused"));
        });
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(dropped.load(Ordering::Relaxed), 8, "the one that was read sent one, too");
    });
}

#[test]
fn a_mailbox_dropped_by_a_neighbour_in_the_middle_of_its_messages_drops_the_rest() {
    each_backend(|bed| {
        let mut base = bed.base();
        base.priority_init(3).unwrap();
        let dropped = Arc::new(AtomicUsize::new(0));
        let own = Rc::new(Cell::new(None));
        let slot = own.clone();
        let urgent = Event::new(&base, -1, What::empty(), move |_, _| drop(slot.take())).unwrap();
        urgent.set_priority(0).unwrap();
        let log = Log::new();
        let (sink, handle, id) = (log.clone(), base.handle(), urgent.id());
        let (mailbox, sender) = base
            .mailbox(move |_: Chatty| {
                sink.push(());
                handle.activate_now(id, Ready::READ).unwrap();
            })
            .unwrap();
        own.set(Some(mailbox));
        (0..3).for_each(|_| assert!(sender.send(Chatty(dropped.clone(), None)).is_ok()));
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!((log.take().len(), dropped.load(Ordering::Relaxed)), (1, 3));
    });
}

#[test]
fn a_mailbox_freed_by_its_id_in_its_own_callback_stops_there_and_hands_back() {
    each_backend(|bed| {
        let mut base = bed.base();
        let dropped = Arc::new(AtomicUsize::new(0));
        let log = Log::new();
        let (sink, handle) = (log.clone(), base.handle());
        let (mailbox, sender) = base
            .mailbox(move |_: Chatty| {
                sink.push(());
                handle.free(handle.running_event().unwrap()).unwrap();
            })
            .unwrap();
        mailbox.detach();
        (0..3).for_each(|_| assert!(sender.send(Chatty(dropped.clone(), None)).is_ok()));
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!((log.take().len(), dropped.load(Ordering::Relaxed)), (1, 3));
        assert!(sender.send(Chatty(dropped.clone(), None)).is_err());
    });
}

#[test]
fn what_was_taken_and_did_not_run_is_dropped_with_the_loop() {
    each_backend(|bed| {
        let mut base = bed.base();
        let dropped = Arc::new(AtomicUsize::new(0));
        let handle = base.handle();
        let (mailbox, sender) = base.mailbox(move |_: Chatty| handle.loopbreak().unwrap()).unwrap();
        let remote = base.remote();
        for n in 0..9 {
            let (count, again) = (dropped.clone(), remote.clone());
            let ends = OnDrop(move || {
                count.fetch_add(1, Ordering::Relaxed);
                let _ = again.post(|_| {});
            });
            remote
                .post(move |handle| {
                    let _ends = &ends;
                    handle.loopbreak().unwrap();
                })
                .unwrap();
            if n < 3 {
                assert!(sender.send(Chatty(dropped.clone(), None)).is_ok());
            }
        }
        (0..4).for_each(|_| assert_eq!(base.dispatch().unwrap(), LoopEnd::Break));
        assert!(dropped.load(Ordering::Relaxed) <= 4, "one for each break");
        drop(base);
        assert_eq!(dropped.load(Ordering::Relaxed), 12);
        drop(mailbox);
    });
}
