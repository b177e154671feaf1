//! This thread's errno, which code that may interrupt other code has to leave as it was.

use libc::c_int;

#[cfg(any(target_os = "illumos", target_os = "solaris"))]
use libc::___errno as errno_location;
#[cfg(any(target_os = "android", target_os = "netbsd", target_os = "openbsd"))]
use libc::__errno as errno_location;
#[cfg(any(target_os = "linux", target_os = "dragonfly", target_os = "hurd"))]
use libc::__errno_location as errno_location;
#[cfg(any(target_vendor = "apple", target_os = "freebsd"))]
use libc::__error as errno_location;

/// Calls `body` and puts errno back. Async-signal-safe if `body` is.
pub(super) fn keep<R>(body: impl FnOnce() -> R) -> R {
    // SAFETY: errno(3): errno is an lvalue of the calling thread; this gives its address and has no precondition.
    let errno: *mut c_int = unsafe { errno_location() };
    // SAFETY: the address of this thread's errno is valid for as long as the thread runs.
    let saved = unsafe { *errno };
    let result = body();
    // SAFETY: as above; `body` has returned on the same thread.
    unsafe { *errno = saved };
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "the real kernel")]
    fn a_failing_call_inside_leaves_errno_as_it_was() {
        // SAFETY: close(2) of a number that is not open does nothing but set errno.
        unsafe { libc::close(-1) };
        keep(|| {
            // SAFETY: fcntl(2) refuses a command it does not know.
            unsafe { libc::fcntl(0, 9999) };
            assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL));
        });
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBADF));
    }
}
