//! Messages from four threads to one loop: by a mailbox, or as closures.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use event_core::{EventBase, LoopHandle};
use nix::time::{ClockId, clock_gettime};

use crate::Outcome;

const THREADS: usize = 4;

/// Checks that nothing is lost and that each thread's messages come in its order.
struct Received {
    /// The next message of each thread.
    next: [u64; THREADS],
    left: u64,
    wrong: u64,
}

thread_local! {
    /// The loop's thread only: a posted closure is `Send` and may bring nothing else along.
    static RECEIVED: RefCell<Received> = const { RefCell::new(Received { next: [0; THREADS], left: 0, wrong: 0 }) };
}

impl Received {
    /// True with the last one.
    fn take(&mut self, message: u64) -> bool {
        let (thread, number) = ((message >> 32) as usize, message & 0xFFFF_FFFF);
        self.wrong += u64::from(self.next[thread] != number);
        self.next[thread] = number + 1;
        self.left -= 1;
        self.left == 0
    }
}

fn receive(handle: &LoopHandle, message: u64) {
    if RECEIVED.with_borrow_mut(|received| received.take(message)) {
        // Fails only without a loop, and one is calling.
        let _it_runs = handle.loopbreak();
    }
}

pub(crate) fn run(args: &[&str]) -> Outcome<()> {
    let &[messages, by @ ("mailbox" | "closures")] = args else {
        return Err("posts MESSAGES mailbox|closures".into());
    };
    let each = messages.parse::<u64>()? / THREADS as u64;
    if each == 0 {
        return Err("a message for each thread at least".into());
    }
    RECEIVED.with_borrow_mut(|received| received.left = each * THREADS as u64);
    let mut base = EventBase::new()?;
    let hold = base.hold();
    let waits = Rc::new(Cell::new(0_u64));
    let count = waits.clone();
    base.set_wait_hook(move || count.set(count.get() + 1), || {});
    let handle = base.handle();
    let (mailbox, sender) = base.mailbox(move |message| receive(&handle, message))?;
    let remote = base.remote();
    let barrier = Arc::new(Barrier::new(THREADS + 1));
    let senders: Vec<_> = (0..THREADS as u64)
        .map(|thread| {
            let (sender, remote, barrier) = (sender.clone(), remote.clone(), barrier.clone());
            let closures = by == "closures";
            thread::spawn(move || {
                barrier.wait();
                (0..each).all(|number| {
                    let message = thread << 32 | number;
                    if closures {
                        remote.post(move |handle| receive(handle, message)).is_ok()
                    } else {
                        sender.send(message).is_ok()
                    }
                })
            })
        })
        .collect();
    let (start, start_cpu) = (Instant::now(), cpu()?);
    barrier.wait();
    base.dispatch()?;
    let (took, took_cpu) = (start.elapsed(), cpu()? - start_cpu);
    for sender in senders {
        if !sender.join().map_err(|_| "a sender panicked")? {
            return Err("a message was refused".into());
        }
    }
    let (left, wrong) = RECEIVED.with_borrow(|received| (received.left, received.wrong));
    if (left, wrong) != (0, 0) {
        return Err(format!("{left} messages were lost, {wrong} came out of order").into());
    }
    let total = (each * THREADS as u64) as f64;
    println!("ns {:.3}", took.as_secs_f64() * 1e9 / total);
    println!("cpu {:.3}", took_cpu.as_secs_f64() * 1e9 / total);
    println!("wakes {}", waits.get());
    drop((hold, mailbox));
    Ok(())
}

/// Processor time of all threads of this process.
fn cpu() -> Outcome<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?.into())
}
