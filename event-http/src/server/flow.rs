//! What a thread that answers knows of its client: whether it is there, and how much it has not taken yet.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Shared by the loop and the holder of a token.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    gone: AtomicBool,
    pending: Mutex<Pending>,
    /// Told whenever there is more room, or nobody to wait for.
    changed: Condvar,
}

/// Bytes that have not left.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    /// On their way to the loop.
    mailed: usize,
    /// With the loop, when it last told.
    unsent: usize,
}

impl Flow {
    pub(crate) fn new(gone: bool) -> Flow {
        Flow { gone: AtomicBool::new(gone), ..Flow::default() }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// The client has left, or nobody wants the rest.
    pub(crate) fn raise(&self) {
        self.gone.store(true, Ordering::Release);
        // Under the lock, so that who has looked and is about to wait is woken.
        let _pending = self.lock();
        self.changed.notify_all();
    }

    /// The holder sends `len` bytes.
    pub(crate) fn mail(&self, len: usize) {
        self.lock().mailed += len;
    }

    /// The loop has got `len` bytes, and `unsent` wait for the client now.
    pub(crate) fn deliver(&self, len: usize, unsent: usize) {
        let mut pending = self.lock();
        pending.mailed = pending.mailed.saturating_sub(len);
        pending.unsent = unsent;
        self.changed.notify_all();
    }

    pub(crate) fn pending(&self) -> usize {
        let pending = *self.lock();
        pending.mailed + pending.unsent
    }

    /// Waits until no more than `most` bytes are pending, nobody is there to wait for, or `timeout` has passed. True
    /// unless it has.
    pub(crate) fn wait(&self, most: usize, timeout: Option<Duration>) -> bool {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut pending = self.lock();
        while pending.mailed + pending.unsent > most && !self.is_gone() {
            pending = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => self.changed.wait(pending).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return false,
                Some(left) => {
                    self.changed.wait_timeout(pending, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        true
    }

    /// Nothing that panics is done under the lock.
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_waiter_goes_on_when_enough_has_left_or_the_client_has() {
        let flow = Arc::new(Flow::new(false));
        flow.mail(10);
        assert!(!flow.wait(9, Some(Duration::ZERO)) && flow.wait(10, None));
        let other = flow.clone();
        let waiter = std::thread::spawn(move || other.wait(4, None));
        flow.deliver(10, 10);
        assert_eq!(flow.pending(), 10);
        flow.deliver(0, 4);
        assert!(waiter.join().unwrap() && !flow.is_gone());
        flow.mail(100);
        let other = flow.clone();
        let waiter = std::thread::spawn(move || other.wait(0, None));
        flow.raise();
        assert!(waiter.join().unwrap() && flow.is_gone());
    }
}
