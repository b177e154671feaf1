//! Connects that are called off, at every step and from everywhere, and resolvers that do not keep to their word.

// Everything here is part of a test.
#![allow(clippy::unwrap_used)]

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use event_core::testing::{Reach, ScriptedResolver};
use event_core::{
    Answer, BufferEvent, Connect, Direction, Error, Family, LoopEnd, LoopFlags, NewSocket, Query,
    StreamEvent, What,
};
use tests::connects::{Does, address, by, stage, why};
use tests::streams::{Canary, Recorder, Seen, words};
use tests::{OnDrop, each_backend, each_seed, few_under_miri, must_panic, quiet_panic};

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_resolver_that_answers_twice_is_heard_once() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        let twice = by(|query, answer| {
            assert_eq!((&*query.name, query.port, query.family), ("twice.test", 80, Family::Any));
            assert!(answer.give(Family::V4, Ok(vec![address("192.0.2.1:80"), address("[::9]:80")])));
            assert!(!answer.give(Family::V4, Ok(vec![address("192.0.2.2:80")])));
            assert!(answer.is_wanted(Family::V6) && !answer.is_wanted(Family::V4));
            // Of both, the one that is missing.
            assert!(answer.give(Family::Any, Ok(vec![address("192.0.2.3:80"), address("[::1]:80")])));
            assert!(!answer.give(Family::Any, Err(io::ErrorKind::NotFound.into())));
            assert!(!answer.is_wanted(Family::Any));
            Box::new(())
        });
        stage.start(stage.connect("twice.test:80").resolver(twice));
        stage.run();
        assert_eq!(stage.tried(), ["0 [::1]:80", "0 192.0.2.1:80"]);
        assert_eq!(stage.seen.take(), [format!("0 error Connect {}", libc::ECONNREFUSED)]);
    });
}

#[test]
fn a_resolver_that_drops_its_answer_has_failed() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        stage.start(stage.connect("drop.test:80").resolver(by(|_, _| Box::new(()))));
        stage.run();
        assert_eq!(stage.seen.take(), ["0 error Resolve the resolver gave no answer"]);
        // Of one family: the other counts.
        let half = by(|_, answer| {
            answer.give(Family::V4, Ok(vec![address("192.0.2.1:80")]));
            Box::new(())
        });
        stage.start(stage.connect("half.test:80").resolver(half));
        stage.run();
        assert_eq!(stage.seen.take(), [format!("0 error Connect {}", libc::ECONNREFUSED)]);
    });
}

#[test]
fn a_resolver_or_hook_that_panics_ends_its_stream_and_no_other() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        let canary = Canary::new();
        let held = canary.clone();
        let panics = by(move |_, _| {
            let _ = &held;
            quiet_panic("resolver")
        });
        let hook = |_: &NewSocket<'_>| -> io::Result<()> { quiet_panic("hook") };
        let _server = stage.sim.listen(&"192.0.2.1:80".parse().unwrap()).unwrap();
        for (connect, message) in [
            (stage.connect("panics.test:80").resolver(panics), "resolver"),
            (stage.connect("192.0.2.1:80").on_socket(hook), "hook"),
        ] {
            let stream = stage.start(connect);
            let other = stage.start(stage.connect("192.0.2.1:80"));
            must_panic(message, || stage.base.dispatch());
            assert!(stream.is_freed() && !other.is_freed(), "{message}");
            stage.run();
            assert_eq!(stage.seen.take(), ["0 connected"]);
            assert_eq!((canary.alive(), stage.sim.open_fds().len()), (0, 0));
        }
    });
}

#[test]
fn an_answer_that_comes_when_nobody_waits_is_dropped() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        let (kept, dropped) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(0)));
        let (keep, count) = (kept.clone(), dropped.clone());
        let keeps = by(move |_, answer| {
            keep.borrow_mut().push(answer);
            let count = count.clone();
            Box::new(OnDrop(move || count.set(count.get() + 1)))
        });
        let stream = stage.start(stage.connect("kept.test:80").resolver(keeps.clone()));
        bed.settle(&mut stage.base);
        assert!(kept.borrow()[0].is_wanted(Family::Any));
        stream.free();
        assert_eq!(dropped.get(), 1, "it was called off");
        assert!(!kept.borrow()[0].is_wanted(Family::Any));
        assert!(!kept.borrow()[0].give(Family::Any, Ok(vec![address("192.0.2.1:80")])));
        stage.run();
        assert!(stage.seen.is_empty() && stage.tries.borrow().is_empty());
        // The loop goes, and the answer after it.
        stage.start(stage.connect("kept.test:80").resolver(keeps));
        bed.settle(&mut stage.base);
        drop(stage.base);
        assert_eq!(dropped.get(), 2);
        assert!(!kept.take()[1].give(Family::Any, Ok(vec![address("192.0.2.1:80")])));
    });
}

#[test]
fn a_stream_is_freed_at_any_step_and_leaves_nothing() {
    each_seed(|bed| {
        // Steps are a millisecond apart: asked at 0, answered at 2 and 5, tried at 5 and 255, connected at 262.
        let mut ways = Vec::new();
        for at in [0, 1, 2, 3, 5, 6, 254, 255, 256, 262, 263] {
            let mut stage = stage(bed);
            stage.resolver.answer("steps.test", 5 * MS, Family::V6, &["::1"]);
            stage.resolver.answer("steps.test", 2 * MS, Family::V4, &["192.0.2.1"]);
            stage.reach("[::1]:80", Reach::Never);
            stage.reach("192.0.2.1:80", Reach::After(7 * MS));
            let _server = stage.sim.listen(&"192.0.2.1:80".parse().unwrap()).unwrap();
            let canary = Canary::new();
            let (held, seen) = (canary.clone(), stage.seen.clone());
            let stream = stage.connect("steps.test:80").start(&stage.base).unwrap();
            stream.set_event_cb(move |_, event| {
                let _ = &held;
                seen.push(words(event));
            });
            let gone = stream.clone();
            stage.sim.at(at * MS, move || gone.free());
            // So that a stream that is connected does not end the loop before.
            stage.base.once(-1, What::empty(), Some(300 * MS), |_| {}).unwrap();
            drop(stream);
            stage.run();
            ways.push((stage.tries.take().len(), stage.seen.len()));
            assert_eq!((canary.alive(), stage.resolver.open()), (0, 0), "freed after {at} ms");
            assert_eq!(stage.sim.open_fds(), [], "freed after {at} ms");
        }
        assert_eq!(ways.first(), Some(&(0, 0)));
        assert_eq!(ways.last(), Some(&(2, 1)));
    });
}

#[test]
fn a_stream_is_freed_by_its_resolver_its_hook_and_its_event() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        let (canary, slot) = (Canary::new(), Rc::new(RefCell::new(None::<BufferEvent>)));
        let free = |slot: &Rc<RefCell<Option<BufferEvent>>>| {
            let stream = slot.borrow().clone();
            stream.unwrap().free();
        };
        let _server = stage.sim.listen(&"192.0.2.1:80".parse().unwrap()).unwrap();
        let (held, stream) = (canary.clone(), slot.clone());
        let resolver = by(move |_, answer| {
            free(&stream);
            assert!(!answer.give(Family::Any, Ok(vec![address("192.0.2.1:80")])));
            Box::new(held.clone())
        });
        let (held, stream) = (canary.clone(), slot.clone());
        let hook = move |_: &NewSocket<'_>| {
            let _ = &held;
            free(&stream);
            Ok(())
        };
        let (held, stream) = (canary.clone(), slot.clone());
        let failing = move |_: &NewSocket<'_>| {
            let _ = &held;
            free(&stream);
            Err(io::ErrorKind::Other.into())
        };
        for connect in [
            Connect::new("gone.test:80").resolver(resolver),
            Connect::new("192.0.2.1:80").on_socket(hook),
            Connect::new("192.0.2.1:80").on_socket(failing),
        ] {
            let stream = stage.start(connect);
            slot.replace(Some(stream.clone()));
            stage.run();
            assert!(stream.is_freed() && stage.seen.is_empty());
            assert_eq!(stage.sim.open_fds(), []);
        }
        assert_eq!(canary.alive(), 0);
        // In the event, of success and of failure.
        for target in ["192.0.2.1:80", "192.0.2.2:80"] {
            stage.start(stage.connect(target));
            stage.run();
            assert_eq!((stage.seen.take().len(), stage.sim.open_fds().len()), (1, 0));
        }
    });
}

#[test]
fn an_error_of_the_programs_own_is_told_and_dropped_with_nothing_held() {
    /// Frees the stream when it goes.
    #[derive(Debug)]
    struct Own {
        _mark: Arc<()>,
    }
    impl std::fmt::Display for Own {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("of my own")
        }
    }
    impl std::error::Error for Own {}
    thread_local! {
        static STREAM: RefCell<Option<BufferEvent>> = const { RefCell::new(None) };
    }
    impl Drop for Own {
        fn drop(&mut self) {
            let stream = STREAM.take();
            if let Some(stream) = stream {
                assert!(stream.error().is_none_or(|error| !error.to_string().is_empty()));
                let _ = stream.write("x");
                stream.free();
            }
        }
    }
    each_seed(|bed| {
        // The first error goes when the second comes: in the hook's step, or in that of an answer.
        for resolves in [false, true] {
            let hooks = Rc::new(Cell::new(0));
            let mut stage = stage(bed);
            let mark = Arc::new(());
            let own = {
                let mark = mark.clone();
                move |kind| io::Error::new(kind, Own { _mark: mark.clone() })
            };
            let connect = if resolves {
                let resolver = by(move |_, answer| {
                    answer.give(Family::V6, Err(own(io::ErrorKind::NotFound)));
                    answer.give(Family::V4, Err(own(io::ErrorKind::Other)));
                    Box::new(())
                });
                stage.connect("own.test:80").resolver(resolver)
            } else {
                let hosts = ["192.0.2.1", "192.0.2.2", "192.0.2.3"];
                stage.resolver.answer("own.test", Duration::ZERO, Family::Any, &hosts);
                let count = hooks.clone();
                stage.connect("own.test:80").on_socket(move |_| {
                    count.set(count.get() + 1);
                    Err(own(io::ErrorKind::Other))
                })
            };
            let stream = stage.start(connect);
            STREAM.replace(Some(stream.clone()));
            stage.run();
            assert!(stream.is_freed() && stage.seen.is_empty());
            assert_eq!(hooks.get(), if resolves { 0 } else { 2 }, "the third has nobody any more");
            assert_eq!(stage.sim.open_fds(), []);
            drop(stream);
            assert_eq!(Arc::strong_count(&mark), 1);
        }
        // One that is kept is the stream's error, with all that it was made of.
        let mut stage = stage(bed);
        let mark = Arc::new(());
        let held = mark.clone();
        let hook = move |_: &NewSocket<'_>| Err(io::Error::other(Own { _mark: held.clone() }));
        let stream = stage.connect("192.0.2.1:80").on_socket(hook).start(&stage.base).unwrap();
        stream.set_event_cb(|_, _| {});
        stage.run();
        let Some(Error::Connect(error)) = stream.error() else { panic!() };
        assert!(error.cause().get_ref().unwrap().is::<Own>());
        drop(error);
        STREAM.replace(Some(stream.clone()));
        let _ = stage.connect("192.0.2.1:80").start_on(&stream);
        assert!(stream.is_freed(), "the old error went, and took the stream along");
        drop(stream);
        assert_eq!(Arc::strong_count(&mark), 1);
        stage.run();
    });
}

#[test]
fn the_loop_ends_with_everything_that_was_under_way() {
    each_backend(|bed| {
        let canary = Canary::new();
        let base = bed.base();
        let held = canary.clone();
        let never = by(move |_, answer| Box::new((held.clone(), answer)));
        for target in ["never.test:80", "127.0.0.1:1"] {
            let (held, event) = (canary.clone(), canary.clone());
            let hook = move |_: &NewSocket<'_>| {
                let _ = &held;
                Ok(())
            };
            let connect = Connect::new(target).on_socket(hook).resolver(never.clone());
            let stream = connect.start(&base).unwrap();
            let own = stream.clone();
            stream.set_event_cb(move |_, _| {
                let _ = (&event, &own);
            });
        }
        drop(never);
        let mut base = base;
        base.run(LoopFlags::NONBLOCK).unwrap();
        assert!(canary.alive() > 2);
        drop(base);
        assert_eq!(canary.alive(), 0);
    });
}

#[test]
fn another_connect_or_fd_calls_the_first_off() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        stage.reach("192.0.2.1:80", Reach::After(9 * MS));
        let (one, two) = ("192.0.2.1:80".parse().unwrap(), "192.0.2.2:80".parse().unwrap());
        let first = stage.sim.listen(&one).unwrap();
        let second = stage.sim.listen(&two).unwrap();
        let canary = Canary::new();
        for way in 0..4 {
            let held = canary.clone();
            let hook = move |_: &NewSocket<'_>| {
                let _ = &held;
                Ok(())
            };
            let stream = Connect::new(&one).on_socket(hook).start(&stage.base).unwrap();
            let seen = stage.seen.clone();
            stream.set_event_cb(move |_, event| seen.push(words(event)));
            bed.settle(&mut stage.base);
            match way {
                0 => Connect::new(&two).start_on(&stream).unwrap(),
                1 => stream.reconnect(&two).unwrap(),
                2 => drop(stage.sim.replace_fd(&stream).unwrap()),
                _ => assert_eq!(stream.detach_fd().unwrap(), None),
            }
            assert_eq!(canary.alive(), 0, "it is called off in the call");
            assert_eq!(bed.sim().unwrap().open_fds().len(), usize::from(way == 1 || way == 2));
            stage.run();
            assert_eq!(stage.seen.take().first().map(String::as_str), (way < 2).then_some("connected"));
            stage.sim.advance(20 * MS);
            assert!(first.accept().is_none());
            assert_eq!(second.accept().is_some(), way < 2);
            stream.free();
        }
    });
}

#[test]
fn the_loop_has_a_resolver_of_its_own_that_may_be_replaced() {
    each_seed(|bed| {
        let mut base = bed.base();
        let canary = Canary::new();
        for name in ["one", "two"] {
            let held = canary.clone();
            base.set_resolver(Does(move |_: &Query, answer: Answer| {
                let _ = &held;
                answer.give(Family::Any, Err(io::Error::other(name)));
                Box::new(()) as Box<dyn Any>
            }))
            .unwrap();
            assert_eq!(canary.alive(), 1, "the old one goes");
            let stream = BufferEvent::connect_hostname(&base, "any.test", 80).unwrap();
            stream.set_event_cb(|_, event| assert_eq!(event, StreamEvent::ERROR));
            base.dispatch().unwrap();
            assert_eq!(why(&stream.error().unwrap()), format!("Resolve {name}"));
        }
        let handle = base.handle();
        drop(base);
        assert_eq!(canary.alive(), 0);
        assert!(matches!(handle.set_resolver(ScriptedResolver::new(&handle)), Err(Error::LoopGone)));
    });
}

#[test]
fn a_hundred_look_ups_stand_a_change_of_resolver_and_half_are_freed() {
    each_seed(|bed| {
        let mut base = bed.base();
        let (first, second) = (ScriptedResolver::new(&base), ScriptedResolver::new(&base));
        first.answer("many.test", 3 * MS, Family::Any, &["127.0.0.1"]);
        base.set_resolver(first.clone()).unwrap();
        let all = few_under_miri(100, 6);
        let seen = Seen::new();
        let streams: Vec<BufferEvent> = (0..all)
            .map(|_| {
                let stream = BufferEvent::connect_hostname(&base, "many.test", 80).unwrap();
                stream.set_callbacks(Recorder::new(&seen));
                stream
            })
            .collect();
        base.run(LoopFlags::NONBLOCK).unwrap();
        assert_eq!(first.open(), all);
        base.set_resolver(second.clone()).unwrap();
        streams.iter().step_by(2).for_each(BufferEvent::free);
        assert_eq!((first.open(), first.called_off()), (all / 2, all / 2));
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(seen.take(), vec!["error"; all / 2], "each is told once");
        assert_eq!((first.open(), first.called_off(), second.queries().len()), (0, all / 2, 0));
    });
}

#[test]
fn an_answer_that_is_whole_lets_the_resolver_go() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        stage.reach("192.0.2.1:80", Reach::Never);
        let canary = Canary::new();
        let held = canary.clone();
        let whole = by(move |_, answer| {
            answer.give(Family::V4, Ok(vec![address("192.0.2.1:80")]));
            let later = answer.clone();
            Box::new((held.clone(), later))
        });
        let half = stage.start(stage.connect("half.test:80").resolver(whole));
        bed.settle(&mut stage.base);
        assert!(canary.alive() > 0, "the other half may come");
        half.free();
        assert_eq!(canary.alive(), 0);
        let held = canary.clone();
        let whole = by(move |_, answer| {
            answer.give(Family::Any, Ok(vec![address("192.0.2.1:80")]));
            Box::new(held.clone())
        });
        let waiting = stage.start(stage.connect("whole.test:80").resolver(whole));
        bed.settle(&mut stage.base);
        assert_eq!((canary.alive(), stage.tries.borrow().len()), (0, 1), "while the address is tried");
        waiting.free();
    });
}

#[test]
fn what_is_queued_when_a_socket_connects_still_comes() {
    each_seed(|bed| {
        let mut stage = stage(bed);
        stage.reach("192.0.2.1:80", Reach::After(30 * MS));
        let _server = stage.sim.listen(&"192.0.2.1:80".parse().unwrap()).unwrap();
        let stream = stage.connect("192.0.2.1:80").start(&stage.base).unwrap();
        stream.set_callbacks(Recorder::idle(&stage.seen));
        let asked = stream.clone();
        stage.sim.at(30 * MS, move || asked.trigger(Direction::READ).unwrap());
        stage.run();
        let mut seen = stage.seen.take();
        seen.sort_unstable();
        assert_eq!(seen, ["connected", "has 0"]);
        stream.free();
    });
}
