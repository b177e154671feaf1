//! Signals as ordinary events. They are the process's, so that each test here that uses real ones takes turns.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use event_core::testing::Faults;
use event_core::{LoopEnd, LoopFlags, Ready, Signal, Timer, What};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet};
use tests::{Bed, Log, each_backend};

const MS: Duration = Duration::from_millis(1);
const SIGNAL: i32 = libc::SIGUSR1;

fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Delivers the signal before it returns.
fn raise(bed: &Bed, signal: i32) {
    match bed.sim() {
        Some(sim) => drop(sim.raise(signal)),
        None => nix::sys::signal::raise(signal.try_into().unwrap()).unwrap(),
    }
}

#[test]
fn a_signal_is_told_by_the_loop_and_again_after_deleting_and_adding() {
    let _alone = alone();
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let (sink, handle) = (log.clone(), base.handle());
        let signal = Signal::new(&base, SIGNAL, move |signal| {
            sink.push(signal.handle().running_event());
            handle.loopexit(None).unwrap();
        })
        .unwrap();
        signal.add().unwrap();
        for _ in 0..2 {
            assert_eq!(signal.pending(), Ready::SIGNAL);
            raise(bed, SIGNAL);
            assert!(log.is_empty(), "never in the context of the handler");
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Exit);
            assert_eq!(log.take(), [Some(signal.id())]);
            signal.del().unwrap();
            assert_eq!(signal.pending(), Ready::empty());
            signal.add().unwrap();
        }
    });
}

#[test]
fn a_signal_is_counted_and_told_as_often_as_it_came() {
    let _alone = alone();
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let sink = log.clone();
        let signal = Signal::new(&base, SIGNAL, move |_| sink.push(())).unwrap();
        signal.add().unwrap();
        (0..3).for_each(|_| raise(bed, SIGNAL));
        assert_eq!(base.run(LoopFlags::ONCE).unwrap(), LoopEnd::Once);
        assert_eq!(log.take().len(), 3);
        base.run(LoopFlags::NONBLOCK).unwrap();
        assert!(log.is_empty());
    });
}

#[test]
fn two_events_of_one_signal_are_both_told() {
    let _alone = alone();
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let events: Vec<Signal> = (0..2)
            .map(|n| {
                let sink = log.clone();
                let signal = Signal::new(&base, SIGNAL, move |_| sink.push(n)).unwrap();
                signal.add().unwrap();
                signal
            })
            .collect();
        raise(bed, SIGNAL);
        base.run(LoopFlags::ONCE).unwrap();
        let mut told = log.take();
        told.sort_unstable();
        assert_eq!(told, [0, 1]);
        events[1].del().unwrap();
        raise(bed, SIGNAL);
        base.run(LoopFlags::ONCE).unwrap();
        assert_eq!(log.take(), [0]);
    });
}

#[test]
fn a_signal_from_before_the_loop_is_found_without_waiting() {
    let _alone = alone();
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let sink = log.clone();
        let signal = Signal::new(&base, SIGNAL, move |_| sink.push(())).unwrap();
        signal.add().unwrap();
        raise(bed, SIGNAL);
        assert_eq!(base.run(LoopFlags::NONBLOCK).unwrap(), LoopEnd::Once);
        assert_eq!(log.take().len(), 1);
    });
}

#[test]
fn deleting_or_freeing_it_in_the_callback_stops_the_repetition() {
    let _alone = alone();
    each_backend(|bed| {
        for free in [false, true] {
            let mut base = bed.base();
            let log = Log::new();
            let sink = log.clone();
            let signal = Signal::new(&base, SIGNAL, move |signal| {
                sink.push(());
                match free {
                    true => signal.handle().free(signal.id()).unwrap(),
                    false => signal.del().unwrap(),
                }
            })
            .unwrap();
            signal.add().unwrap();
            raise(bed, SIGNAL);
            raise(bed, SIGNAL);
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
            assert_eq!(log.take().len(), 1);
        }
    });
}

#[test]
fn a_break_stops_the_repetition_and_the_rest_is_told_by_the_next_dispatch() {
    let _alone = alone();
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let (sink, handle) = (log.clone(), base.handle());
        let signal = Signal::new(&base, SIGNAL, move |_| {
            sink.push(());
            handle.loopbreak().unwrap();
        })
        .unwrap();
        signal.add().unwrap();
        (0..3).for_each(|_| raise(bed, SIGNAL));
        for n in 1..=3 {
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Break);
            assert_eq!(log.len(), n);
        }
        assert_eq!(base.run(LoopFlags::NONBLOCK).unwrap(), LoopEnd::Once);
        assert_eq!(log.len(), 3);
    });
}

#[test]
fn a_signal_raised_inside_its_callback_is_told_later() {
    let _alone = alone();
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let (sink, sim, handle) = (log.clone(), bed.sim().cloned(), base.handle());
        let signal = Signal::new(&base, SIGNAL, move |_| {
            sink.push(());
            if sink.len() == 5 {
                handle.loopbreak().unwrap();
                return;
            }
            match &sim {
                Some(sim) => drop(sim.raise(SIGNAL)),
                None => nix::sys::signal::raise(SIGNAL.try_into().unwrap()).unwrap(),
            }
        })
        .unwrap();
        signal.add().unwrap();
        raise(bed, SIGNAL);
        for n in 1..=4 {
            assert_eq!(base.run(LoopFlags::ONCE).unwrap(), LoopEnd::Once);
            assert_eq!(log.len(), n);
        }
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Break);
    });
}

#[test]
fn two_loops_that_watch_one_signal_both_get_it() {
    let _alone = alone();
    each_backend(|bed| {
        let mut bases = [bed.base(), bed.base()];
        let log = Log::new();
        let signals: Vec<Signal> = bases
            .iter()
            .enumerate()
            .map(|(n, base)| {
                let sink = log.clone();
                let signal = Signal::new(base, SIGNAL, move |_| sink.push(n)).unwrap();
                signal.add().unwrap();
                signal
            })
            .collect();
        raise(bed, SIGNAL);
        bases.iter_mut().for_each(|base| assert_eq!(base.run(LoopFlags::ONCE).unwrap(), LoopEnd::Once));
        assert_eq!(log.take(), [0, 1]);
        signals[0].del().unwrap();
        raise(bed, SIGNAL);
        assert_eq!(bases[1].run(LoopFlags::ONCE).unwrap(), LoopEnd::Once);
        assert_eq!(log.take(), [1]);
        assert_eq!(bases[0].dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn the_first_loop_to_go_takes_no_signal_from_the_second() {
    let _alone = alone();
    each_backend(|bed| {
        let first = bed.base();
        let mut second = bed.base();
        let log = Log::new();
        let sink = log.clone();
        let one = Signal::new(&first, SIGNAL, |_| {}).unwrap();
        let other = Signal::new(&second, SIGNAL, move |_| sink.push(())).unwrap();
        one.add().unwrap();
        other.add().unwrap();
        drop(first);
        raise(bed, SIGNAL);
        assert_eq!(second.run(LoopFlags::ONCE).unwrap(), LoopEnd::Once);
        assert_eq!(log.take().len(), 1);
    });
}

#[test]
fn the_handler_from_before_comes_back_when_the_last_event_goes() {
    let _alone = alone();
    extern "C" fn mine(_: i32) {}
    each_backend(|bed| {
        if bed.sim().is_some() {
            return;
        }
        let set = |handler| {
            let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
            // SAFETY: the handlers given here do nothing.
            unsafe { nix::sys::signal::sigaction(SIGNAL.try_into().unwrap(), &action) }.unwrap().handler()
        };
        let before = set(SigHandler::Handler(mine));
        let bases = [bed.base(), bed.base()];
        let signals = bases.each_ref().map(|base| Signal::new(base, SIGNAL, |_| {}).unwrap());
        signals.iter().for_each(|signal| signal.add().unwrap());
        let extra = Signal::new(&bases[0], SIGNAL, |_| {}).unwrap();
        extra.add().unwrap();
        drop(extra);
        signals[0].del().unwrap();
        assert_ne!(now(), SigHandler::Handler(mine));
        drop(bases);
        assert_eq!(now(), SigHandler::Handler(mine), "the last went with its loop");
        set(before);
    });
}

fn now() -> SigHandler {
    let action = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // SAFETY: ignoring a signal runs nothing.
    let now = unsafe { nix::sys::signal::sigaction(SIGNAL.try_into().unwrap(), &action) }.unwrap();
    // SAFETY: what was there before.
    unsafe { nix::sys::signal::sigaction(SIGNAL.try_into().unwrap(), &now) }.unwrap();
    now.handler()
}

#[test]
fn a_signal_that_came_before_the_deletion_is_not_told_after_it() {
    let _alone = alone();
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let sink = log.clone();
        let signal = Signal::new(&base, libc::SIGCONT, move |_| sink.push(())).unwrap();
        signal.add().unwrap();
        raise(bed, libc::SIGCONT);
        signal.del().unwrap();
        raise(bed, libc::SIGCONT);
        signal.add().unwrap();
        base.run(LoopFlags::NONBLOCK).unwrap();
        assert!(log.is_empty());
    });
}

#[test]
fn what_is_no_signal_or_cannot_be_caught_is_refused() {
    let _alone = alone();
    each_backend(|bed| {
        let mut base = bed.base();
        for number in [-1, 0, libc::SIGKILL, libc::SIGSTOP, 65, 1000, i32::MAX] {
            let signal = Signal::new(&base, number, |_| {}).unwrap();
            assert_eq!(signal.add().unwrap_err().raw_os_error(), Some(libc::EINVAL), "{number}");
        }
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn a_signal_event_may_have_a_timeout() {
    let _alone = alone();
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let sink = log.clone();
        let signal = Signal::new(&base, SIGNAL, move |_| sink.push(())).unwrap();
        base.add(signal.id(), Some(2 * MS)).unwrap();
        base.run(LoopFlags::ONCE).unwrap();
        assert_eq!(log.take().len(), 1, "by its timeout");
        signal.del().unwrap();
        base.add(signal.id(), Some(2 * MS)).unwrap();
        bed.stall(4 * MS);
        raise(bed, SIGNAL);
        raise(bed, SIGNAL);
        base.run(LoopFlags::ONCE).unwrap();
        assert_eq!(log.take().len(), 2, "a timeout is no delivery");
    });
}

#[test]
fn a_timeout_that_was_taken_back_does_not_count_as_a_delivery() {
    let _alone = alone();
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let sink = log.clone();
        let signal = Signal::new(&base, SIGNAL, move |_| sink.push(())).unwrap();
        let (handle, id) = (base.handle(), signal.id());
        let first =
            Timer::new(&base, move |_| handle.add(id, Some(Duration::from_secs(3600))).unwrap()).unwrap();
        first.add(Duration::ZERO).unwrap();
        base.add(signal.id(), Some(Duration::ZERO)).unwrap();
        bed.stall(MS);
        base.run(LoopFlags::ONCE).unwrap();
        assert!(log.is_empty());
        raise(bed, SIGNAL);
        base.run(LoopFlags::ONCE).unwrap();
        assert_eq!(log.take().len(), 1);
    });
}

#[test]
fn activating_a_signal_event_by_hand_calls_it_once() {
    let _alone = alone();
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let sink = log.clone();
        let signal = Signal::new(&base, SIGNAL, move |_| sink.push(())).unwrap();
        signal.add().unwrap();
        signal.activate_now(Ready::SIGNAL).unwrap();
        signal.activate_now(Ready::SIGNAL).unwrap();
        base.run(LoopFlags::ONCE).unwrap();
        assert_eq!(log.take().len(), 1, "reasons asked for before it runs are merged");
    });
}

#[test]
fn a_token_signal_is_told_once_with_its_count() {
    let _alone = alone();
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let sink = log.clone();
        base.set_token_handler(move |_, _, token, ready, times| sink.push((token, ready, times)));
        let id = base.register_token(SIGNAL, true, What::empty(), None, 5).unwrap();
        base.add(id, None).unwrap();
        (0..4).for_each(|_| raise(bed, SIGNAL));
        base.run(LoopFlags::ONCE).unwrap();
        assert_eq!(log.take(), [(5, Ready::SIGNAL, 4)]);
    });
}

#[test]
fn a_callback_that_replaces_itself_leaves_the_other_deliveries_to_the_new_one() {
    let _alone = alone();
    each_backend(|bed| {
        let mut base = bed.base();
        let log = Log::new();
        let old = log.clone();
        let signal = Signal::new(&base, SIGNAL, move |signal| {
            old.push("old");
            let new = old.clone();
            signal.set_callback(move |_| new.push("new")).unwrap();
        })
        .unwrap();
        signal.add().unwrap();
        (0..3).for_each(|_| raise(bed, SIGNAL));
        base.run(LoopFlags::NONBLOCK).unwrap();
        base.run(LoopFlags::NONBLOCK).unwrap();
        assert_eq!(log.take(), ["old", "new", "new"]);
    });
}

#[test]
fn a_stop_signal_in_the_background_does_not_hold_the_loop() {
    let _alone = alone();
    each_backend(|bed| {
        let mut base = bed.base();
        let handle = base.handle();
        let stop = Signal::new(&base, libc::SIGTERM, move |_| handle.loopexit(None).unwrap()).unwrap();
        stop.set_background(true).unwrap();
        stop.add().unwrap();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        let timer = Timer::new(&base, |_| unreachable!()).unwrap();
        timer.add(Duration::from_secs(3600)).unwrap();
        raise(bed, libc::SIGTERM);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Exit);
    });
}

#[test]
fn a_signal_that_the_kernel_refuses_to_hand_over_is_an_error_of_add() {
    each_backend(|bed| {
        let faults = Faults::new();
        let base = bed.base_with(&faults);
        let signal = Signal::new(&base, SIGNAL, |_| {}).unwrap();
        faults.fail(event_core::testing::Call::SignalAdd, 1, libc::ENOMEM);
        assert_eq!(signal.add().unwrap_err().raw_os_error(), Some(libc::ENOMEM));
        assert_eq!(signal.pending(), Ready::empty());
    });
}
