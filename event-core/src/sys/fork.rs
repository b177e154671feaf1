//! Whether this process is a copy of the one that made a loop.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use super::sig;

/// How many forks lie between the first call of `fork_count` in an ancestor and this process.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// A number that is another one after every fork(2), in the child alone. Costs no system call.
///
/// Forks before the first call are not counted, and nor is a bare clone(2) or a vfork(2), whose children may only
/// exec anyway.
pub(crate) fn fork_count() -> u64 {
    if cfg!(miri) {
        // It knows neither fork nor pthread_atfork.
        return 0;
    }
    static REGISTER: Once = Once::new();
    REGISTER.call_once(|| {
        // Its one error is ENOMEM, at a few bytes a process; forks would then go uncounted.
        // SAFETY: pthread_atfork(3) keeps the three functions for good; they are static and take no argument.
        unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    });
    forks()
}

/// The number alone, once `fork_count` has been called: for a signal handler, and where it is asked often.
#[inline]
pub(crate) fn forks() -> u64 {
    FORKS.load(Ordering::SeqCst)
}

extern "C" fn prepare() {
    sig::before_fork();
}

extern "C" fn parent() {
    sig::after_fork_in_parent();
}

extern "C" fn child() {
    FORKS.fetch_add(1, Ordering::SeqCst);
    sig::after_fork_in_child();
}
