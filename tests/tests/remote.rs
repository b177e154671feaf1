//! What other threads may do: wake, post, activate, stop, send.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use event_core::testing::{Call, Faults};
use event_core::{Error, Event, LoopEnd, LoopFlags, Ready, SendError, Timer, What};
use tests::{Log, each_backend};

const MS: Duration = Duration::from_millis(1);

/// Runs until somebody stops the loop, as a program does whose work comes from other threads.
const WAITING: LoopFlags = LoopFlags::NO_EXIT_ON_EMPTY;

#[test]
fn a_wake_from_before_the_wait_is_not_lost() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (waker, handle) = (base.waker(), base.handle());
        std::thread::spawn(move || waker.wake()).join().unwrap();
        // A loop that lost it would sleep in its first wait.
        base.set_wait_hook(|| {}, move || handle.loopexit(None).unwrap());
        assert_eq!(base.run(WAITING).unwrap(), LoopEnd::Exit);
    });
}

#[test]
fn a_wake_from_the_moment_of_the_wait_is_not_lost() {
    const THREADS: u32 = tests::few_under_miri(200, 20);
    each_backend(|bed| {
        let mut base = bed.base();
        let (waker, handle) = (base.waker(), base.handle());
        // The thread begins when the loop is about to sleep, and may come before, in or after the step to it.
        let threads = Rc::new(Cell::new(0));
        let (count, started) = (threads.clone(), threads.clone());
        base.set_wait_hook(
            move || {
                started.set(started.get() + 1);
                let waker = waker.clone();
                std::thread::spawn(move || waker.wake());
            },
            move || {
                if count.get() == THREADS {
                    handle.loopexit(None).unwrap();
                }
            },
        );
        assert_eq!(base.run(WAITING).unwrap(), LoopEnd::Exit);
        assert_eq!(threads.get(), THREADS);
    });
}

#[test]
fn many_wakes_are_one_turn_and_no_spin() {
    each_backend(|bed| {
        let faults = Faults::new();
        let mut base = bed.base_with(&faults);
        let waker = base.waker();
        (0..tests::few_under_miri(1000, 50)).for_each(|_| waker.wake());
        base.loopexit(Some(10 * MS)).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Exit);
        assert!(faults.count(Call::Wait) <= 3, "{}", faults.count(Call::Wait));
    });
}

#[test]
fn a_thread_that_wakes_over_and_over_is_never_overheard() {
    each_backend(|bed| {
        let mut base = bed.base();
        let remote = base.remote();
        let (answer, wait) = mpsc::channel();
        // Each message is sent only once the one before was seen: a single lost wake stops both for good.
        let thread = std::thread::spawn(move || {
            for n in 0..tests::few_under_miri(2_000, 30) {
                let answer = answer.clone();
                remote.post(move |_| answer.send(n).unwrap()).unwrap();
                assert_eq!(wait.recv_timeout(tests::PATIENCE), Ok(n));
            }
            remote.loopexit().unwrap();
        });
        assert_eq!(base.run(WAITING).unwrap(), LoopEnd::Exit);
        thread.join().unwrap();
    });
}

#[test]
fn posted_closures_run_on_the_loops_thread_in_order() {
    each_backend(|bed| {
        let mut base = bed.base();
        let home = std::thread::current().id();
        let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (remote, sink) = (base.remote(), seen.clone());
        let thread = std::thread::spawn(move || {
            for n in 0..100 {
                let sink = sink.clone();
                remote
                    .post(move |handle| {
                        assert_eq!(std::thread::current().id(), home);
                        assert_eq!(handle.running_event(), None, "no event's callback runs");
                        sink.lock().unwrap().push(n);
                        if n == 99 {
                            handle.loopexit(None).unwrap();
                        }
                    })
                    .unwrap();
            }
        });
        assert_eq!(base.run(WAITING).unwrap(), LoopEnd::Exit);
        thread.join().unwrap();
        assert_eq!(*seen.lock().unwrap(), (0..100).collect::<Vec<_>>());
    });
}

#[test]
fn a_posted_closure_may_use_the_loop() {
    each_backend(|bed| {
        let mut base = bed.base();
        let ran = Arc::new(AtomicUsize::new(0));
        let count = ran.clone();
        let remote = base.remote();
        let again = remote.clone();
        remote
            .post(move |handle| {
                let timer = Timer::new(handle, move |timer| {
                    count.fetch_add(1, Ordering::Relaxed);
                    timer.handle().free(timer.id()).unwrap();
                })
                .unwrap();
                timer.add(MS).unwrap();
                timer.detach();
                again.post(|handle| handle.waker().wake()).unwrap();
            })
            .unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty, "the timer that was made held the loop");
        assert_eq!(ran.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_thread_activates_an_event_by_its_id() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let (sink, handle) = (log.clone(), base.handle());
        let event = Event::new(&base, -1, What::empty(), move |_, ready| {
            sink.push(ready);
            handle.loopexit(None).unwrap();
        })
        .unwrap();
        let gone = Event::new(&base, -1, What::empty(), |_, _| unreachable!()).unwrap();
        let (remote, id, stale) = (base.remote(), event.id(), gone.id());
        drop(gone);
        let thread = std::thread::spawn(move || {
            remote.activate(stale, Ready::READ).unwrap();
            remote.activate(id, Ready::WRITE).unwrap();
        });
        assert_eq!(base.run(WAITING).unwrap(), LoopEnd::Exit);
        thread.join().unwrap();
        assert_eq!(log.take(), [Ready::WRITE]);
    });
}

#[test]
fn a_stop_from_a_thread_is_kept_until_the_loop_has_seen_it() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let sink = log.clone();
        let event = Event::new(&base, -1, What::empty(), move |_, _| sink.push(())).unwrap();
        let remote = base.remote();
        std::thread::spawn(move || remote.loopbreak().unwrap()).join().unwrap();
        event.activate(Ready::READ).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Break);
        assert!(log.is_empty(), "no callback after a break");
        let remote = base.remote();
        std::thread::spawn(move || remote.loopexit().unwrap()).join().unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Exit);
        assert_eq!(log.take().len(), 1, "an exit lets the turn run");
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn a_timer_that_a_break_left_due_may_be_taken_back_freed_or_armed_again() {
    each_backend(|bed| {
        for what in ["stays", "deleted", "freed", "armed again", "freed, and another in its place"] {
            let mut base = bed.base();
            let log = Log::new();
            let timer = |name: &'static str| {
                let sink = log.clone();
                Timer::new(&base, move |_| sink.push(name)).unwrap()
            };
            let (first, last) = (timer("first"), timer("last"));
            first.add(Duration::ZERO).unwrap();
            last.add(Duration::ZERO).unwrap();
            let mut new = None;
            let remote = base.remote();
            std::thread::spawn(move || remote.loopbreak().unwrap()).join().unwrap();
            let make = timer("new");
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Break);
            assert!(log.is_empty(), "no callback after a break");
            let expected: &[&str] = match what {
                "deleted" => {
                    first.del().unwrap();
                    &["last"]
                }
                "freed" => {
                    drop(first);
                    &["last"]
                }
                "armed again" => {
                    first.add(Duration::from_millis(2)).unwrap();
                    &["last", "first"]
                }
                "freed, and another in its place" => {
                    drop(first);
                    make.add(Duration::from_millis(2)).unwrap();
                    new = Some(make);
                    &["last", "new"]
                }
                _ => &["first", "last"],
            };
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
            assert_eq!(log.take(), expected, "{what}");
            drop(new);
        }
    });
}

#[test]
fn a_thread_stops_a_loop_that_sleeps() {
    each_backend(|bed| {
        for stop_now in [false, true] {
            let mut base = bed.base();
            let remote = base.remote();
            let thread = std::thread::spawn(move || {
                std::thread::sleep(MS);
                if stop_now { remote.loopbreak() } else { remote.loopexit() }.unwrap();
            });
            let end = base.run(WAITING).unwrap();
            thread.join().unwrap();
            assert_eq!(end, if stop_now { LoopEnd::Break } else { LoopEnd::Exit });
            assert_eq!((base.got_exit(), base.got_break()), (!stop_now, stop_now));
        }
    });
}

#[test]
fn deleting_the_last_event_from_a_thread_ends_the_loop() {
    each_backend(|bed| {
        for timeout_only in [false, true] {
            let mut base = bed.base();
            let (fd, _peer) = bed.fd();
            let event = Event::new(&base, fd.raw(), What::READ, |_, _| unreachable!()).unwrap();
            match timeout_only {
                true => {
                    let timer = Timer::new(&base, |_| unreachable!()).unwrap();
                    timer.add(Duration::from_secs(3600)).unwrap();
                    let (remote, id) = (base.remote(), timer.detach());
                    if let Some(sim) = bed.sim() {
                        sim.set_patience(tests::PATIENCE);
                    }
                    std::thread::spawn(move || remote.post(move |handle| handle.del(id).unwrap()).unwrap());
                }
                false => {
                    event.add(None).unwrap();
                    let (remote, id) = (base.remote(), event.id());
                    std::thread::spawn(move || remote.post(move |handle| handle.del(id).unwrap()).unwrap());
                }
            }
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        }
    });
}

#[test]
fn at_most_1024_messages_run_in_a_turn_and_a_ready_fd_is_served_in_between() {
    each_backend(|bed| {
        let mut base = bed.base();
        let ran = Arc::new(AtomicUsize::new(0));
        let log = Log::new();
        let (mailbox_log, sink) = (Log::new(), log.clone());
        let count = ran.clone();
        let got = mailbox_log.clone();
        let (_mailbox, sender) = base.mailbox(move |n: usize| got.push(n)).unwrap();
        let (fd, peer) = bed.fd();
        peer.write_all(b"x");
        let seen = mailbox_log.clone();
        let event = Event::new(&base, fd.raw(), What::READ | What::PERSIST, move |_, _| {
            sink.push(count.load(Ordering::Relaxed) + seen.len());
        })
        .unwrap();
        event.add(None).unwrap();
        let remote = base.remote();
        let each = tests::few_under_miri(2500, 600);
        for n in 0..each {
            let count = ran.clone();
            remote.post(move |_| _ = count.fetch_add(1, Ordering::Relaxed)).unwrap();
            sender.send(n).unwrap();
        }
        let mut turns = 0;
        let mut before = 0;
        while before < 2 * each {
            base.run(LoopFlags::ONCE).unwrap();
            turns += 1;
            let now = ran.load(Ordering::Relaxed) + mailbox_log.len();
            assert!(now - before <= 1024, "{} in one turn", now - before);
            assert!(now > before, "none in a turn");
            before = now;
            assert_eq!(log.len(), turns, "the fd was served in each turn");
        }
        assert_eq!(ran.load(Ordering::Relaxed), each);
        assert_eq!(mailbox_log.take(), (0..each).collect::<Vec<_>>());
        assert_eq!(turns, (2 * each).div_ceil(1024));
    });
}

#[test]
fn once_ends_after_a_message_and_not_after_a_turn_without_one() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let (sink, handle) = (log.clone(), base.handle());
        let (_mailbox, sender) = base
            .mailbox(move |n: usize| {
                sink.push(n);
                if n == 1023 {
                    // It looks in vain.
                    handle.activate(handle.running_event().unwrap(), Ready::empty()).unwrap();
                }
            })
            .unwrap();
        // The request to look into the mailbox is one of the turn's 1,024, and the last message waits a turn.
        (0..1024).for_each(|n| sender.send(n).unwrap());
        for messages in [1023, 1] {
            assert_eq!(base.run(LoopFlags::ONCE | WAITING).unwrap(), LoopEnd::Once);
            assert_eq!(log.take().len(), messages);
        }
        let timer = Timer::new(&base, |_| {}).unwrap();
        timer.add(2 * MS).unwrap();
        assert_eq!(base.run(LoopFlags::ONCE | WAITING).unwrap(), LoopEnd::Once);
        assert_eq!(timer.pending(), Ready::empty(), "it was the timer that ended it");
    });
}

#[test]
fn a_busy_sender_does_not_starve_less_urgent_fds() {
    each_backend(|bed| {
        let mut base = bed.base();
        base.priority_init(3).unwrap();
        let log = Log::new();
        let (fd, peer) = bed.fd();
        peer.write_all(b"x");
        let (sink, handle) = (log.clone(), base.handle());
        let event = Event::new(&base, fd.raw(), What::READ, move |_, _| {
            sink.push(());
            handle.loopbreak().unwrap();
        })
        .unwrap();
        event.set_priority(2).unwrap();
        event.add(None).unwrap();
        let turns = Arc::new(AtomicUsize::new(0));
        // Each closure posts the next: there is always one.
        fn again(remote: event_core::Remote, turns: Arc<AtomicUsize>) {
            let next = remote.clone();
            let _ = remote.post(move |handle| {
                if turns.fetch_add(1, Ordering::Relaxed) > tests::few_under_miri(1000, 50) {
                    handle.loopexit(None).unwrap();
                }
                again(next, turns);
            });
        }
        again(base.remote(), turns);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Break);
        assert_eq!(log.len(), 1);
    });
}

#[test]
fn mailboxes_and_remotes_do_not_hold_the_loop() {
    each_backend(|bed| {
        let mut base = bed.base();
        let _remote = base.remote();
        let log = Log::new();
        let sink = log.clone();
        let (_mailbox, sender) = base.mailbox(move |n: i32| sink.push(n)).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        sender.send(7).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), [7], "what was sent is delivered all the same");
    });
}

#[test]
fn loopbreak_in_a_posted_closure_stops_before_the_next() {
    each_backend(|bed| {
        let mut base = bed.base();
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..3 {
            let count = ran.clone();
            base.remote()
                .post(move |handle| {
                    count.fetch_add(1, Ordering::Relaxed);
                    handle.loopbreak().unwrap();
                })
                .unwrap();
        }
        for n in 1..=3 {
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Break);
            assert_eq!(ran.load(Ordering::Relaxed), n);
        }
    });
}

#[test]
fn loopbreak_in_a_posted_closure_stops_before_one_of_another_type() {
    each_backend(|bed| {
        let mut base = bed.base();
        let ran = Arc::new(AtomicUsize::new(0));
        let (count, remote) = (ran.clone(), base.remote());
        remote.post(|handle| handle.loopbreak().unwrap()).unwrap();
        remote.post(move |_| _ = count.fetch_add(1, Ordering::Relaxed)).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Break);
        assert_eq!(ran.load(Ordering::Relaxed), 0);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(ran.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn what_a_break_leaves_goes_before_what_comes_later() {
    each_backend(|bed| {
        let base = bed.base();
        let log = Log::new();
        let (sink, handle) = (log.clone(), base.handle());
        let (_mailbox, sender) = base
            .mailbox(move |n: i32| {
                sink.push(n);
                if n == 1 {
                    handle.loopbreak().unwrap();
                }
            })
            .unwrap();
        let posted = Arc::new(std::sync::Mutex::new(Vec::new()));
        let post = |n: i32| {
            let posted = posted.clone();
            base.remote()
                .post(move |handle| {
                    posted.lock().unwrap().push(n);
                    if n == 1 {
                        handle.loopbreak().unwrap();
                    }
                })
                .unwrap();
        };
        (0..4).for_each(post);
        (0..4).for_each(|n| sender.send(n).unwrap());
        let mut base = base;
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Break);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Break);
        (4..6).for_each(|n| sender.send(n).unwrap());
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), (0..6).collect::<Vec<_>>());
        assert_eq!(*posted.lock().unwrap(), (0..4).collect::<Vec<_>>());
    });
}

#[test]
fn closures_of_all_types_and_sizes_keep_their_order() {
    each_backend(|bed| {
        let mut base = bed.base();
        let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (remote, sink) = (base.remote(), seen.clone());
        std::thread::spawn(move || {
            for n in 0..3000_u32 {
                let sink = sink.clone();
                // In rows of one, of some, and longer than a turn.
                let posted = match n {
                    0..100 if n % 2 == 0 => remote.post(move |_| sink.lock().unwrap().push(n)),
                    100..200 if n % 10 == 0 => remote.post(|_| {}),
                    200..250 => {
                        let large = [n; 100];
                        remote.post(move |_| sink.lock().unwrap().push(large[n as usize % 100]))
                    }
                    _ => remote.post(move |_| sink.lock().unwrap().push(n)),
                };
                posted.unwrap();
            }
            remote.loopexit().unwrap();
        })
        .join()
        .unwrap();
        assert_eq!(base.run(WAITING).unwrap(), LoopEnd::Exit);
        while seen.lock().unwrap().len() < 2990 {
            base.run(LoopFlags::ONCE).unwrap();
        }
        let expected = (0..3000).filter(|n| !(100..200).contains(n) || n % 10 != 0);
        assert_eq!(*seen.lock().unwrap(), expected.collect::<Vec<_>>());
    });
}

#[test]
fn activations_and_closures_of_a_thread_keep_their_order() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let sink = log.clone();
        let event = Event::new(&base, -1, What::empty(), move |_, ready| sink.push(ready)).unwrap();
        let (remote, id) = (base.remote(), event.id());
        // What a closure takes back was asked for before; what it does not, after.
        remote.activate(id, Ready::READ).unwrap();
        remote.post(move |handle| handle.del(id).unwrap()).unwrap();
        remote.activate(id, Ready::WRITE).unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(log.take(), [Ready::WRITE]);
    });
}

#[test]
fn remotes_and_senders_outlive_the_loop_and_then_say_so() {
    each_backend(|bed| {
        let base = bed.base();
        let (remote, waker) = (base.remote(), base.waker());
        let (mailbox, sender) = base.mailbox(|_: i32| {}).unwrap();
        let event = Event::new(&base, -1, What::empty(), |_, _| {}).unwrap();
        assert!(!remote.is_gone());
        drop(base);
        assert!(remote.is_gone());
        std::thread::spawn(move || {
            waker.wake();
            remote.waker().wake();
            assert!(matches!(remote.post(|_| unreachable!()), Err(Error::LoopGone)));
            assert!(matches!(remote.activate(event_id(), Ready::READ), Err(Error::LoopGone)));
            assert!(matches!(remote.loopexit(), Err(Error::LoopGone)));
            assert!(matches!(remote.loopbreak(), Err(Error::LoopGone)));
            assert_eq!(sender.send(1), Err(SendError(1)));
        })
        .join()
        .unwrap();
        drop((mailbox, event));
    });
}

/// Some id of some loop.
fn event_id() -> event_core::EventId {
    let base = event_core::testing::Sim::new(1).event_base().unwrap();
    Event::new(&base, -1, What::empty(), |_, _| {}).unwrap().id()
}

#[test]
fn dropping_remotes_and_senders_does_nothing() {
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let sink = log.clone();
        let (_mailbox, sender) = base.mailbox(move |n: i32| sink.push(n)).unwrap();
        drop(base.remote());
        let other = sender.clone();
        other.send(1).unwrap();
        drop(other);
        sender.send(2).unwrap();
        drop(sender);
        base.dispatch().unwrap();
        assert_eq!(log.take(), [1, 2]);
    });
}

#[test]
fn what_a_panic_has_left_is_work_for_whoever_drives_the_loop() {
    each_backend(|bed| {
        let mut base = bed.base();
        let remote = base.remote();
        let ran = Log::new();
        remote.post(|_| panic!("as a test wants it")).unwrap();
        let (mailbox, sender) = {
            let sink = ran.clone();
            base.mailbox(move |()| sink.push(())).unwrap()
        };
        sender.send(()).unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| base.run(LoopFlags::NONBLOCK)));
        assert!(panicked.is_err());
        assert!(base.next_deadline().is_some(), "there is a message");
        base.run(LoopFlags::NONBLOCK).unwrap();
        base.run(LoopFlags::NONBLOCK).unwrap();
        assert_eq!(ran.len(), 1);
        drop(mailbox);
    });
}
