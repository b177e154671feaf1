//! Measures the loop by watchers: how long the handlers of a turn take, and how late the loop wakes. Says both every
//! second: libevent's `watch-timing` sample. Ctrl-C ends it.
//!
//! Try: cargo run --example watch_timing

use std::cell::RefCell;
use std::hint::black_box;
use std::rc::Rc;
use std::time::{Duration, Instant};

use event_core::{Error, EventBase, Signal, Timer, Watcher};

/// The periods of the timers that give the loop something to do.
const PERIODS: [u64; 5] = [3, 5, 11, 23, 47];

#[derive(Default)]
struct Timing {
    /// When the loop began to wait, and how long it meant to.
    waiting: Option<(Instant, Option<Duration>)>,
    /// When it woke.
    woke: Option<Instant>,
    handlers: Vec<Duration>,
    late: Vec<Duration>,
}

impl Timing {
    fn prepare(&mut self, timeout: Option<Duration>) {
        let now = Instant::now();
        self.handlers.extend(self.woke.map(|woke| now - woke));
        self.waiting = Some((now, timeout));
    }

    fn check(&mut self) {
        let now = Instant::now();
        if let Some((since, Some(timeout))) = self.waiting {
            self.late.extend((now - since).checked_sub(timeout));
        }
        self.woke = Some(now);
    }

    fn report(&mut self) {
        let [handlers, late] = [&mut self.handlers, &mut self.late].map(|times: &mut Vec<Duration>| {
            times.sort();
            let at = |percent: usize| {
                let time: Duration = times.get(times.len() * percent / 100).copied().unwrap_or_default();
                time.as_secs_f64() * 1e3
            };
            let text = format!("p50 {:.3} ms, p95 {:.3} ms", at(50), at(95));
            times.clear();
            text
        });
        println!("handlers: {handlers}; late: {late}");
    }
}

fn main() -> Result<(), Error> {
    let mut base = EventBase::new()?;
    let timing = Rc::new(RefCell::new(Timing::default()));

    let (before, after) = (timing.clone(), timing.clone());
    let _prepare = Watcher::prepare(&base, move |info| before.borrow_mut().prepare(info.timeout()))?;
    let _check = Watcher::check(&base, move || after.borrow_mut().check())?;

    for period in PERIODS {
        let work = Timer::persistent(&base, move |_| {
            black_box((0..period * 1000).fold(0, |sum: u64, n| sum ^ black_box(n)));
        })?;
        work.add(Duration::from_millis(period))?;
        work.detach();
    }
    let report = Timer::persistent(&base, move |_| timing.borrow_mut().report())?;
    report.add(Duration::from_secs(1))?;

    let handle = base.handle();
    let interrupt = Signal::new(&base, Signal::INT, move |_| drop(handle.loopbreak()))?;
    interrupt.add()?;
    base.dispatch()?;
    println!("done");
    Ok(())
}
