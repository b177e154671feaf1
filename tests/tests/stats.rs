//! Statistics, and the warning about slow callbacks.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::RefCell;
use std::time::Duration;

use event_core::{Event, EventBase, LoopHandle, Ready, Signal, Timer, What};
use tests::{Bed, each_backend, each_seed};

const MS: Duration = Duration::from_millis(1);

thread_local! {
    /// What was logged by this thread, and a loop to call from the sink.
    static LINES: RefCell<(Vec<String>, Option<LoopHandle>)> = const { RefCell::new((Vec::new(), None)) };
}

struct Sink;

impl log::Log for Sink {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.level() != log::Level::Warn {
            return;
        }
        let handle = LINES.with_borrow_mut(|lines| {
            lines.0.push(record.args().to_string());
            lines.1.clone()
        });
        if let Some(handle) = handle {
            // Nothing is borrowed: whatever a callback may do, a sink may.
            handle.once(-1, What::empty(), None, |_| {}).unwrap();
            assert!(handle.running_event().is_none());
            let _ = (handle.dump_events(), handle.stats());
        }
    }

    fn flush(&self) {}
}

fn capture(handle: Option<LoopHandle>) {
    static SET: std::sync::Once = std::sync::Once::new();
    SET.call_once(|| {
        log::set_logger(&Sink).unwrap();
        log::set_max_level(log::LevelFilter::Warn);
    });
    LINES.set((Vec::new(), handle));
}

fn lines() -> Vec<String> {
    LINES.with_borrow_mut(|lines| std::mem::take(&mut lines.0))
}

/// A timer whose callback takes so long.
fn taking(bed: &Bed, base: &EventBase, time: Duration) -> Timer {
    let sim = bed.sim().unwrap().clone();
    Timer::new(base, move |_| sim.advance(time)).unwrap()
}

/// Runs what is queued or due within a second of simulated time.
trait Slowly {
    fn dispatch_slowly(&mut self);
}

impl Slowly for EventBase {
    fn dispatch_slowly(&mut self) {
        self.loopexit(Some(Duration::from_secs(1))).unwrap();
        self.dispatch().unwrap();
    }
}

#[test]
fn turns_callbacks_and_their_times_are_counted_once_that_is_asked_for() {
    each_seed(|bed| {
        let mut base = bed.base();
        let timers = [MS, 3 * MS, 3 * MS].map(|time| taking(bed, &base, time));
        let rounds = |base: &mut EventBase| {
            timers.iter().zip([10, 20, 30]).for_each(|(timer, at)| timer.add(at * MS).unwrap());
            base.dispatch().unwrap();
        };
        rounds(&mut base);
        assert_eq!(base.stats().callbacks, 0);
        base.set_stats(true);
        rounds(&mut base);
        let stats = base.stats();
        assert_eq!((stats.callbacks, stats.in_callbacks), (3, 7 * MS));
        // It waits until 10, 20 and 30 ms, less what the callbacks before took.
        assert_eq!((stats.turns, stats.waiting), (3, 10 * MS + 9 * MS + 7 * MS));
        let counted: Vec<_> = stats.durations.buckets().filter(|bucket| bucket.1 > 0).collect();
        let bucket = |bits| Duration::from_nanos(1_u64 << bits);
        assert_eq!(counted, [(bucket(20), 1), (bucket(22), 2)], "1 ms is less than 2^20 ns, 3 ms than 2^22");
        assert_eq!(stats.durations.total(), 3);
        base.set_stats(false);
        rounds(&mut base);
        assert_eq!(base.stats(), stats, "they stay to be read");
        base.set_stats(true);
        assert_eq!(base.stats().callbacks, 0, "and begin anew");
    });
}

#[test]
fn what_there_is_now_is_counted_at_any_time() {
    each_backend(|bed| {
        let base = bed.base();
        let now = |base: &EventBase| {
            let stats = base.stats();
            (stats.events, stats.fds, stats.timers)
        };
        assert_eq!(now(&base), (0, 0, 0));
        let (fd, _peer) = bed.fd();
        let events: Vec<Event> =
            (0..2).map(|_| Event::new(&base, fd.raw(), What::READ, |_, _| {}).unwrap()).collect();
        assert_eq!(now(&base), (2, 0, 0));
        events[0].add(Some(MS)).unwrap();
        events[1].add(None).unwrap();
        let timer = Timer::new(&base, |_| {}).unwrap();
        timer.add_common(base.common_timeout(MS).unwrap()).unwrap();
        assert_eq!(now(&base), (3, 1, 2));
        drop((events, timer));
        assert_eq!(now(&base), (0, 0, 0));
        let handle = base.handle();
        drop(base);
        assert_eq!(handle.stats().events, 0);
    });
}

#[test]
fn a_slow_callback_is_named() {
    each_seed(|bed| {
        let mut base = bed.base();
        capture(Some(base.handle()));
        let sim = bed.sim().unwrap().clone();
        let slow = taking(bed, &base, 6 * MS);
        let fast = taking(bed, &base, 5 * MS);
        let (fd, peer) = bed.fd();
        let raw = fd.raw();
        let world = sim.clone();
        // It frees itself: what is logged was noted before.
        let event = Event::new(&base, raw, What::READ, move |event, _| {
            let _ = fd.read();
            world.advance(7 * MS);
            event.handle().free(event.id()).unwrap();
        })
        .unwrap();
        event.add(None).unwrap();
        let world = sim.clone();
        let signal = Signal::new(&base, libc::SIGWINCH, move |_| world.advance(8 * MS)).unwrap();
        slow.add(MS).unwrap();
        base.dispatch_slowly();
        assert!(lines().is_empty(), "nobody has asked");
        base.set_slow_callback(Some(5 * MS));
        slow.add(MS).unwrap();
        fast.add(2 * MS).unwrap();
        base.dispatch_slowly();
        let said = lines();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("on no fd ran for 6ms, longer than 5ms"), "{said:?}");

        peer.write_all(b"x");
        base.dispatch_slowly();
        let said = lines();
        assert!(said.len() == 1 && said[0].contains(&format!("on fd {raw} ran for 7ms")), "{said:?}");

        signal.activate(Ready::SIGNAL).unwrap();
        base.remote().post(|handle| handle.update_cache_time()).unwrap();
        base.dispatch_slowly();
        let said = lines();
        let expected = format!("on signal {} ran for 8ms", libc::SIGWINCH);
        assert!(said.len() == 1 && said[0].contains(&expected), "{said:?}");

        base.set_slow_callback(None);
        slow.add(MS).unwrap();
        base.dispatch_slowly();
        assert!(lines().is_empty());
        assert_eq!(base.stats().callbacks, 0, "a limit alone counts nothing");
        capture(None);
    });
}
