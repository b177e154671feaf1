//! Many timers: what adding, changing, cancelling and firing one costs.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use event_core::{CommonTimeout, Error, EventBase, EventId, LoopHandle, Timer, What};

use crate::Outcome;

/// Delays of timers that are never to fire here.
const FAR: Duration = Duration::from_secs(3600);

/// Fewer timers do the same several times over.
const OPERATIONS: usize = 100_000;

/// What is slept beyond the longest delay, for clocks with coarse ticks.
const SLACK: Duration = Duration::from_millis(50);

/// Either kind of timer, by its place.
trait Timers {
    fn add(&self, at: usize, after: Duration) -> Result<(), Error>;
    fn del(&self, at: usize) -> Result<(), Error>;
}

struct Objects(Vec<Timer>);

impl Timers for Objects {
    fn add(&self, at: usize, after: Duration) -> Result<(), Error> {
        self.0[at].add(after)
    }

    fn del(&self, at: usize) -> Result<(), Error> {
        self.0[at].del()
    }
}

/// By a common duration: the one that was asked for last, as most programs know theirs beforehand.
struct Common {
    handle: LoopHandle,
    timers: Vec<Timer>,
    known: Cell<Option<CommonTimeout>>,
}

impl Timers for Common {
    fn add(&self, at: usize, after: Duration) -> Result<(), Error> {
        let common = match self.known.get() {
            Some(common) if common.duration() == after => common,
            _ => {
                let common = self.handle.common_timeout(after)?;
                self.known.set(Some(common));
                common
            }
        };
        self.timers[at].add_common(common)
    }

    fn del(&self, at: usize) -> Result<(), Error> {
        self.timers[at].del()
    }
}

struct Tokens {
    handle: LoopHandle,
    ids: Vec<EventId>,
}

impl Timers for Tokens {
    fn add(&self, at: usize, after: Duration) -> Result<(), Error> {
        self.handle.add(self.ids[at], Some(after))
    }

    fn del(&self, at: usize) -> Result<(), Error> {
        self.handle.del(self.ids[at])
    }
}

/// The delays of one run, the same in every peer.
struct Delays {
    /// `None`: one duration for all.
    random: Option<Random>,
    /// The longest delay of timers that are to fire.
    near: Duration,
}

impl Delays {
    fn far(&mut self) -> Duration {
        match &mut self.random {
            None => FAR,
            Some(random) => FAR + Duration::from_micros(random.next() % 3_600_000_000),
        }
    }

    fn near(&mut self) -> Duration {
        match &mut self.random {
            None => self.near,
            Some(random) => Duration::from_micros(random.next() % self.near.as_micros() as u64),
        }
    }
}

/// xorshift64*
struct Random(u64);

impl Random {
    fn new() -> Self {
        Self(0x9E37_79B9_7F4A_7C15)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// The numbers below `n`, shuffled.
    fn order(&mut self, n: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..n as u32).collect();
        for i in (1..n).rev() {
            order.swap(i, (self.next() % (i as u64 + 1)) as usize);
        }
        order
    }
}

/// Firings, and when the last one was.
struct Fired {
    left: Cell<usize>,
    last: Cell<Option<Instant>>,
}

impl Fired {
    fn one(&self) {
        let left = self.left.get() - 1;
        self.left.set(left);
        if left == 0 {
            self.last.set(Some(Instant::now()));
        }
    }
}

pub(crate) fn run(args: &[&str]) -> Outcome<()> {
    let &[count, shape @ ("random" | "one"), by @ ("timers" | "common" | "tokens")] = args else {
        return Err("timers COUNT random|one timers|common|tokens".into());
    };
    if shape == "random" && by == "common" {
        return Err("a common duration is one duration".into());
    }
    let count: usize = count.parse()?;
    if count == 0 {
        return Err("a timer at least".into());
    }
    let mut random = Random::new();
    let order = random.order(count);
    let delays = Delays {
        random: (shape == "random").then_some(random),
        near: Duration::from_millis(if count > OPERATIONS { 1_000 } else { 100 }),
    };
    let mut base = EventBase::new()?;
    let fired = Rc::new(Fired { left: Cell::new(count), last: Cell::new(None) });
    let timers: Rc<dyn Timers> = match by {
        "timers" => Rc::new(Objects(objects(&base, count, &fired)?)),
        "common" => {
            let timers = objects(&base, count, &fired)?;
            Rc::new(Common { handle: base.handle(), timers, known: Cell::new(None) })
        }
        _ => Rc::new(tokens(&base, count, &fired)?),
    };
    // From within a callback, where programs add most of their timers.
    let results = Rc::new(RefCell::new(None));
    let into = results.clone();
    let work = RefCell::new(Some((delays, order)));
    let first = Timer::new(&base, move |_| {
        let Some((delays, order)) = work.take() else { return };
        into.replace(Some(phases(&*timers, delays, &order)));
    })?;
    first.add(Duration::ZERO)?;
    base.dispatch()?;
    let results = results.take().ok_or("the first timer did not run")??;
    let due = results.due.ok_or("nothing was to fire")?;
    let last = fired.last.get().ok_or("timers were lost")?;
    let each = |took: Duration| took.as_secs_f64() * 1e9 / count as f64;
    println!("add {:.3}", each(results.add));
    println!("change {:.3}", each(results.change));
    println!("cancel {:.3}", each(results.cancel));
    println!("fire {:.3}", each(last - due));
    Ok(())
}

#[derive(Default)]
struct Results {
    add: Duration,
    change: Duration,
    cancel: Duration,
    /// All timers are added once more, and due.
    due: Option<Instant>,
}

fn phases(timers: &dyn Timers, mut delays: Delays, order: &[u32]) -> Result<Results, Error> {
    let times = (OPERATIONS / order.len()).max(1) as u32;
    let mut results = Results::default();
    for _ in 0..times {
        let start = Instant::now();
        for at in 0..order.len() {
            timers.add(at, delays.far())?;
        }
        let added = Instant::now();
        for &at in order {
            timers.add(at as usize, delays.far())?;
        }
        let changed = Instant::now();
        for &at in order {
            timers.del(at as usize)?;
        }
        results.add += (added - start) / times;
        results.change += (changed - added) / times;
        results.cancel += changed.elapsed() / times;
    }
    for at in 0..order.len() {
        timers.add(at, delays.near())?;
    }
    std::thread::sleep(delays.near + SLACK);
    results.due = Some(Instant::now());
    Ok(results)
}

/// How many timers there are in `steps`.
const CROWD: usize = 1_000;

/// So many times over, in a callback: adds a thousand timers and cancels them, or moves them; or adds them to be due at
/// once, and lets them fire. For counting instructions: nothing is timed.
pub(crate) fn steps(args: &[&str]) -> Outcome<()> {
    let &[what @ ("cancel" | "change" | "fire"), times] = args else {
        return Err("timers steps cancel|change|fire TIMES".into());
    };
    let what = what.to_owned();
    let mut left: u64 = times.parse()?;
    let mut base = EventBase::new()?;
    let fired = Rc::new(Fired { left: Cell::new(usize::MAX), last: Cell::new(None) });
    let timers = objects(&base, CROWD, &fired)?;
    let mut random = Random::new();
    let order = random.order(CROWD);
    let mut delays = Delays { random: Some(random), near: FAR };
    let outcome = Rc::new(Cell::new(Ok(())));
    let into = outcome.clone();
    let driver = Timer::new(&base, move |driver| {
        let mut step = || {
            for timer in &timers {
                timer.add(if what == "fire" { Duration::ZERO } else { delays.far() })?;
            }
            match what.as_str() {
                "fire" => driver.add(Duration::ZERO),
                "cancel" => order.iter().try_for_each(|&at| timers[at as usize].del()),
                _ => Ok(()),
            }
        };
        let mut done = Ok(());
        while left > 0 && done.is_ok() {
            left -= 1;
            done = step();
            if what == "fire" {
                into.set(done);
                return;
            }
        }
        let cancelled = timers.iter().try_for_each(Timer::del);
        into.set(done.and(cancelled));
    })?;
    driver.add(Duration::ZERO)?;
    base.dispatch()?;
    outcome.replace(Ok(()))?;
    println!("timers {CROWD}");
    Ok(())
}

fn objects(base: &EventBase, count: usize, fired: &Rc<Fired>) -> Outcome<Vec<Timer>> {
    let timer = |_| {
        let fired = fired.clone();
        Timer::new(base, move |_| fired.one())
    };
    Ok((0..count).map(timer).collect::<Result<_, _>>()?)
}

fn tokens(base: &EventBase, count: usize, fired: &Rc<Fired>) -> Outcome<Tokens> {
    let ids = (0..count)
        .map(|at| base.register_token(-1, false, What::empty(), None, at))
        .collect::<Result<_, _>>()?;
    let fired = fired.clone();
    base.set_token_handler(move |_, _, _, _, _| fired.one());
    Ok(Tokens { handle: base.handle(), ids })
}
