//! Signals: counted in the handler for every loop that asked, and told to the loop through its waker.
//!
//! One table for the process. The handler reads and bumps atomics and writes to wake fds, nothing else; what is not
//! atomic (the dispositions found before ours) is under a mutex that the handler never touches.

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use std::{hint, io, mem, ptr, thread};

use libc::c_int;

use super::fork::forks;
use super::wake::{self, Waker};

/// Loops with signals that a process may have at a time; a bit each in `Registry::taken`.
const SLOTS: usize = 64;

/// Signals that can be asked for: 1 to 64, a bit each. Linux has these on nearly all machines, other systems fewer.
const SIGNALS: usize = 64;

/// What the handler sees of one loop.
struct Slot {
    /// The signals wanted. While it is 0 nobody reads the rest.
    mask: AtomicU64,
    wake_fd: AtomicI32,
    /// `forks()` when the fd was last ours alone. In a child that has not yet called `after_fork` it still wakes the
    /// parent, so that the handler must not use it.
    forks: AtomicU64,
    /// Handlers that have seen a bit of `mask` and are not done.
    running: AtomicU32,
    /// Deliveries not taken yet; 0 for a signal that is not in `mask`.
    counts: [AtomicU32; SIGNALS],
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        mask: AtomicU64::new(0),
        wake_fd: AtomicI32::new(-1),
        forks: AtomicU64::new(0),
        running: AtomicU32::new(0),
        counts: [const { AtomicU32::new(0) }; SIGNALS],
    }
}; SLOTS];

struct Registry {
    /// A bit for each slot that has a loop.
    taken: u64,
    /// What was there before our handler, for each signal that has it.
    before: Vec<(c_int, libc::sigaction)>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { taken: 0, before: Vec::new() });

fn registry() -> MutexGuard<'static, Registry> {
    // Nothing panics under this lock, and each change is complete in itself.
    REGISTRY.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A loop's signals. Dropping it gives all of them up.
pub(super) struct Subscription {
    /// Held so that the fd in the slot stays open as long as the slot is ours.
    waker: Arc<Waker>,
    /// Index into `TABLE`; taken with the first signal.
    slot: Cell<Option<usize>>,
}

impl Subscription {
    pub(super) fn new(waker: Arc<Waker>) -> Subscription {
        Subscription { waker, slot: Cell::new(None) }
    }

    /// Starts to count `signal`. No effect if it is counted already.
    ///
    /// `EINVAL` for what is no signal or cannot be caught, an error of kind `QuotaExceeded` in the 65th loop with
    /// signals.
    pub(super) fn add(&self, signal: c_int) -> io::Result<()> {
        let Some((bit, _)) = place(signal) else {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        };
        let mut registry = registry();
        let slot = self.slot(&mut registry)?;
        if slot.mask.load(SeqCst) & bit != 0 {
            return Ok(());
        }
        // The bit goes first: from the moment the handler is there it counts for us.
        slot.mask.fetch_or(bit, SeqCst);
        if registry.before.iter().all(|&(known, _)| known != signal) {
            match set_action(signal, Some(&ours())) {
                Ok(before) => registry.before.push((signal, before)),
                Err(error) => {
                    slot.mask.fetch_and(!bit, SeqCst);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Stops to count `signal` and forgets what was counted. No effect if it is not counted.
    pub(super) fn del(&self, signal: c_int) {
        if let (Some(slot), Some((bit, _))) = (self.slot.get(), place(signal)) {
            remove(&mut registry(), &TABLE[slot], bit);
        }
    }

    /// Appends what was counted since the last call.
    pub(super) fn take(&self, out: &mut Vec<(c_int, u32)>) {
        let Some(slot) = self.slot.get().map(|slot| &TABLE[slot]) else { return };
        for (signal, index) in signals(slot.mask.load(SeqCst)) {
            let count = slot.counts[index].swap(0, SeqCst);
            if count > 0 {
                out.push((signal, count));
            }
        }
    }

    /// The wake fd is the child's own from now on. Deliveries before the fork were the parent's and are gone already;
    /// those since then are kept.
    pub(super) fn after_fork(&self) {
        if let Some(slot) = self.slot.get() {
            TABLE[slot].forks.store(forks(), SeqCst);
        }
    }

    fn slot(&self, registry: &mut Registry) -> io::Result<&'static Slot> {
        if let Some(slot) = self.slot.get() {
            return Ok(&TABLE[slot]);
        }
        let free = registry.taken.trailing_ones() as usize;
        if free >= SLOTS {
            return Err(io::Error::new(
                io::ErrorKind::QuotaExceeded,
                "64 event loops of this process have signals already",
            ));
        }
        registry.taken |= 1 << free;
        self.slot.set(Some(free));
        TABLE[free].wake_fd.store(self.waker.write_fd(), SeqCst);
        TABLE[free].forks.store(forks(), SeqCst);
        Ok(&TABLE[free])
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.get() {
            let mut registry = registry();
            remove(&mut registry, &TABLE[slot], u64::MAX);
            registry.taken &= !(1 << slot);
        }
    }
}

/// Takes `bits` from the slot's mask; afterwards no handler uses the slot for them.
fn remove(registry: &mut Registry, slot: &'static Slot, bits: u64) {
    let bits = bits & slot.mask.load(SeqCst);
    for (signal, index) in signals(bits) {
        let bit = 1 << index;
        let last = TABLE.iter().all(|other| ptr::eq(other, slot) || other.mask.load(SeqCst) & bit == 0);
        // The old disposition is put back first: a delivery in between is its, not lost.
        if last && let Some(at) = registry.before.iter().position(|&(known, _)| known == signal) {
            let (_, before) = registry.before.swap_remove(at);
            restore(signal, &before);
        }
    }
    slot.mask.fetch_and(!bits, SeqCst);
    // A handler in another thread may have seen the old mask. It is a few instructions and a write away from its end;
    // new ones see the new mask, so this ends. With one total order either it sees our store or we see its `running`.
    let mut tries = 0;
    while slot.running.load(SeqCst) != 0 {
        tries += 1;
        if tries < 100 {
            hint::spin_loop();
        } else {
            // Not just a yield: a thread of lower priority must get its turn too.
            thread::sleep(Duration::from_micros(50));
        }
    }
    for (_, index) in signals(bits) {
        slot.counts[index].store(0, SeqCst);
    }
}

/// The handler.
extern "C" fn deliver(signal: c_int) {
    let Some((bit, index)) = place(signal) else { return };
    super::errno::keep(|| {
        for slot in &TABLE {
            if slot.mask.load(SeqCst) & bit == 0 {
                continue;
            }
            slot.running.fetch_add(1, SeqCst);
            if slot.mask.load(SeqCst) & bit != 0 {
                slot.counts[index].fetch_add(1, SeqCst);
                if slot.forks.load(SeqCst) == forks() {
                    wake::write(slot.wake_fd.load(SeqCst));
                }
            }
            slot.running.fetch_sub(1, SeqCst);
        }
    });
}

/// The bit and the index of a signal; `None` for what is none.
fn place(signal: c_int) -> Option<(u64, usize)> {
    let index = usize::try_from(signal).ok()?.checked_sub(1)?;
    (index < SIGNALS).then(|| (1 << index, index))
}

/// The signals of a mask, each with its index.
fn signals(mut mask: u64) -> impl Iterator<Item = (c_int, usize)> {
    std::iter::from_fn(move || {
        let index = mask.trailing_zeros();
        mask &= mask.checked_sub(1)?;
        Some((index as c_int + 1, index as usize))
    })
}

fn handler() -> libc::sighandler_t {
    deliver as *const () as libc::sighandler_t
}

/// Our action: interrupted calls go on (SA_RESTART), the program's alternate stack is used if it has one
/// (SA_ONSTACK: runtimes with small stacks rely on that), and handlers do not nest.
fn ours() -> libc::sigaction {
    // SAFETY: all-zero bytes are a valid `sigaction`: numbers, a set and an optional function.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = handler();
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: sigfillset(3) writes one set.
    unsafe { libc::sigfillset(&mut action.sa_mask) };
    action
}

/// Sets the disposition of `signal`, or only asks with `None`; gives the one before.
fn set_action(signal: c_int, new: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    // SAFETY: as in `ours`.
    let mut old: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: sigaction(2) reads one action or none at null, and writes one. A handler put there is `deliver`, which
    // is async-signal-safe, or one that was there before.
    match unsafe { libc::sigaction(signal, new.map_or(ptr::null(), ptr::from_ref), &mut old) } {
        0 => Ok(old),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Puts `before` back, unless the program has put something else over ours meanwhile: then that stays.
fn restore(signal: c_int, before: &libc::sigaction) {
    // It worked for this signal when we came, so it has no error to give now.
    if set_action(signal, None).is_ok_and(|now| now.sa_sigaction == handler()) {
        let _ = set_action(signal, Some(before));
    }
}

/// The registry's lock while the process forks. Else another thread might hold it at that moment, and the child, which
/// has no such thread, would wait for it for ever.
struct Parked(UnsafeCell<Option<MutexGuard<'static, Registry>>>);

// SAFETY: the content is reached by nobody but the thread that holds the lock which is the content.
unsafe impl Sync for Parked {}

static PARKED: Parked = Parked(UnsafeCell::new(None));

/// Runs in the forking thread before fork(2).
pub(super) fn before_fork() {
    let guard = registry();
    // SAFETY: this thread holds the lock, see `Parked`.
    unsafe { *PARKED.0.get() = Some(guard) };
}

/// Runs in the forking thread after fork(2).
pub(super) fn after_fork_in_parent() {
    // SAFETY: this thread took the lock in `before_fork` and still holds it, see `Parked`.
    let parked = unsafe { &mut *PARKED.0.get() };
    drop(parked.take());
}

/// Runs in the child before anything else of ours: what was counted and what ran was the parent's. The thread that
/// forked cannot have been in our handler, which nothing interrupts.
pub(super) fn after_fork_in_child() {
    for slot in &TABLE {
        slot.running.store(0, SeqCst);
        for count in &slot.counts {
            count.store(0, SeqCst);
        }
    }
    after_fork_in_parent();
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::super::fork::fork_count;
    use super::super::tests::{child_test, ended_well, fork};
    use super::*;

    fn subscribed(signal: c_int) -> Subscription {
        fork_count();
        let subscription = Subscription::new(Arc::new(Waker::new().unwrap()));
        subscription.add(signal).unwrap();
        subscription
    }

    #[test]
    fn a_mask_lists_its_signals() {
        assert_eq!(signals(0).next(), None);
        assert_eq!(signals(1 | 1 << 9 | 1 << 63).collect::<Vec<_>>(), [(1, 0), (10, 9), (64, 63)]);
        assert_eq!(signals(u64::MAX).count(), 64);
        assert_eq!(place(64), Some((1 << 63, 63)));
    }

    child_test! {
        fn giving_up_waits_for_the_handler_that_is_still_at_it() {
            let subscription = subscribed(libc::SIGUSR1);
            let slot = &TABLE[subscription.slot.get().unwrap()];
            let done = &AtomicBool::new(false);
            slot.running.fetch_add(1, SeqCst);
            thread::scope(|scope| {
                scope.spawn(move || {
                    thread::sleep(Duration::from_millis(50));
                    // As the handler does: what it counts late is forgotten with the rest.
                    slot.counts[libc::SIGUSR1 as usize - 1].fetch_add(1, SeqCst);
                    done.store(true, SeqCst);
                    slot.running.fetch_sub(1, SeqCst);
                });
                subscription.del(libc::SIGUSR1);
                assert!(done.load(SeqCst));
            });
            subscription.add(libc::SIGUSR1).unwrap();
            let mut out = Vec::new();
            subscription.take(&mut out);
            assert_eq!(out, []);
        }
    }

    #[test]
    fn the_table_is_locked_from_before_a_fork_until_after_it() {
        let is_locked = || thread::spawn(|| REGISTRY.try_lock().is_err()).join().unwrap();
        before_fork();
        assert!(is_locked());
        after_fork_in_parent();
        drop(registry());
    }

    child_test! {
        fn a_fork_waits_for_the_table_to_be_whole() {
            let subscription = subscribed(libc::SIGUSR1);
            let held = &AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(move || {
                    let guard = registry();
                    held.store(true, SeqCst);
                    thread::sleep(Duration::from_millis(50));
                    drop(guard);
                });
                while !held.load(SeqCst) {
                    thread::yield_now();
                }
                // A copy of the lock that the other thread holds would never be released in the child.
                let child = fork(|| {
                    subscription.add(libc::SIGUSR2).unwrap();
                    drop(subscription);
                });
                assert!(ended_well(child));
            });
            drop(registry());
        }
    }
}
