//! The simulation's waker: the one part of it that other threads may touch, and the one that waits in real time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::sys::seam::Wake;

/// Stays set from `wake` to `clear`, however many waits report it in between.
#[derive(Debug, Default)]
pub(super) struct SimWaker {
    set: AtomicBool,
    gate: Mutex<()>,
    woken: Condvar,
}

impl SimWaker {
    pub(super) fn is_set(&self) -> bool {
        self.set.load(Ordering::SeqCst)
    }

    /// Blocks the thread until the waker is set, at most `limit` of real time; says whether it is set.
    pub(super) fn block(&self, limit: Duration) -> bool {
        let end = Instant::now().checked_add(limit);
        let mut guard = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.is_set() {
            let left = end.map_or(limit, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return false;
            }
            guard = self.woken.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Wake for SimWaker {
    fn wake(&self) {
        // The flag is set under the lock: between `block`'s look at it and its sleep nothing can slip in.
        let _guard = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        self.set.store(true, Ordering::SeqCst);
        self.woken.notify_all();
    }

    fn clear(&self) {
        self.set.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    #[test]
    fn a_wake_before_the_block_ends_it_at_once_and_lasts_until_cleared() {
        let waker = SimWaker::default();
        waker.wake();
        assert!(waker.block(Duration::from_secs(30)));
        assert!(waker.block(Duration::from_secs(30)));
        waker.clear();
        assert!(!waker.block(Duration::from_millis(1)));
    }

    #[test]
    fn a_wake_from_another_thread_ends_the_block() {
        let waker = Arc::new(SimWaker::default());
        let thread = thread::spawn({
            let waker = Arc::clone(&waker);
            move || waker.wake()
        });
        assert!(waker.block(Duration::from_secs(30)));
        thread.join().unwrap();
    }
}
