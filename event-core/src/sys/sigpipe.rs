//! Writing to pipes and terminals without SIGPIPE, for want of a flag like MSG_NOSIGNAL.

use std::{io, mem, ptr};

use super::os;

/// Calls `write`, and sees to it that a SIGPIPE which it raises neither kills the process nor reaches a handler.
///
/// Where the process ignores SIGPIPE that is one system call more. Elsewhere the signal, which write(2) sends to the
/// thread that called it, is blocked in this thread for the length of the write and then taken, unless one was
/// pending before: that one is somebody else's and stays. The disposition is not touched, since other threads have it
/// too.
pub(super) fn without(write: impl FnOnce() -> io::Result<usize>) -> io::Result<usize> {
    if is_ignored() {
        return write();
    }
    let pipe = just_sigpipe();
    let old = set_mask(libc::SIG_BLOCK, &pipe)?;
    let was_pending = is_pending();
    let result = write();
    let raised = result.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EPIPE));
    if raised && !was_pending {
        os::take_pending(&pipe);
    }
    // No error to give with these arguments, and if there were one the bytes would be written all the same.
    let _ = set_mask(libc::SIG_SETMASK, &old);
    result
}

/// Whether a SIGPIPE waits for this thread, or for the process, to be unblocked.
pub(super) fn is_pending() -> bool {
    let mut pending = empty();
    // SAFETY: sigpending(2) writes one set.
    if unsafe { libc::sigpending(&mut pending) } != 0 {
        return false;
    }
    // SAFETY: sigismember(3) reads an initialised set.
    unsafe { libc::sigismember(&pending, libc::SIGPIPE) == 1 }
}

fn is_ignored() -> bool {
    // SAFETY: all-zero bytes are a valid `sigaction`: numbers, a set and an optional function.
    let mut now: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: sigaction(2) with a null new action only writes the old one.
    let asked = unsafe { libc::sigaction(libc::SIGPIPE, ptr::null(), &mut now) };
    asked == 0 && now.sa_sigaction == libc::SIG_IGN
}

fn empty() -> libc::sigset_t {
    // SAFETY: a `sigset_t` is plain bits, and all-zero is one of its values.
    let mut set: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: sigemptyset(3) writes one set.
    unsafe { libc::sigemptyset(&mut set) };
    set
}

fn just_sigpipe() -> libc::sigset_t {
    let mut set = empty();
    // SAFETY: sigaddset(3) changes an initialised set.
    unsafe { libc::sigaddset(&mut set, libc::SIGPIPE) };
    set
}

/// Changes this thread's signal mask and gives the one before.
fn set_mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<libc::sigset_t> {
    let mut old = empty();
    // SAFETY: pthread_sigmask(3) reads one set and writes another.
    match unsafe { libc::pthread_sigmask(how, set, &mut old) } {
        0 => Ok(old),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
