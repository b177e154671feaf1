//! The primitives that cross threads, so that the model checker can take their place.

#[cfg(not(loom))]
pub(crate) use std::sync::Mutex;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::AtomicBool;

#[cfg(loom)]
pub(crate) use loom::sync::Mutex;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::AtomicBool;

#[cfg(not(loom))]
type Guard<'a, T> = std::sync::MutexGuard<'a, T>;
#[cfg(loom)]
type Guard<'a, T> = loom::sync::MutexGuard<'a, T>;

/// Locks. No user code runs under these locks and no panic can leave them half-changed, so poison means nothing.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> Guard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
