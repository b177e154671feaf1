//! What a thread that answers knows of its client: whether it is there, and how much it has not taken yet.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::Limits;

/// Shared by the loop and the holder of a token.
#[derive(Debug)]
pub(crate) struct Flow {
    gone: AtomicBool,
    /// Bytes above which there is no room, and above which there is an end.
    room: usize,
    max: Option<usize>,
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
    pub(crate) fn new(gone: bool, limits: &Limits) -> Flow {
        Flow {
            gone: AtomicBool::new(gone),
            room: limits.room,
            max: limits.max_output_bytes,
            pending: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        !self.is_gone() && self.pending() <= self.room
    }

    pub(crate) fn is_full(&self) -> bool {
        !self.is_gone() && self.max.is_some_and(|max| self.pending() > max)
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

    /// Waits until there is room, nobody is there to wait for, or `timeout` has passed. True
    /// unless it has.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> bool {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut pending = self.lock();
        while pending.mailed + pending.unsent > self.room && !self.is_gone() {
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
        let limits = Limits { room: 4, max_output_bytes: Some(20), ..Limits::default() };
        let flow = Arc::new(Flow::new(false, &limits));
        flow.mail(4);
        assert!(flow.wait(None) && flow.has_room());
        flow.mail(6);
        assert!(!flow.wait(Some(Duration::ZERO)) && !flow.has_room() && !flow.is_full());
        let other = flow.clone();
        let waiter = std::thread::spawn(move || other.wait(None));
        flow.deliver(10, 10);
        assert_eq!(flow.pending(), 10);
        flow.deliver(0, 4);
        assert!(waiter.join().unwrap() && !flow.is_gone());
        flow.mail(100);
        assert!(flow.is_full());
        let other = flow.clone();
        let waiter = std::thread::spawn(move || other.wait(None));
        flow.raise();
        assert!(waiter.join().unwrap() && flow.is_gone());
    }
}
